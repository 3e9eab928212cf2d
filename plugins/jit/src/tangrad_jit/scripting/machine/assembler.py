"""Instructions of one program as they are written: registers, labels, and what they name."""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.machine._machine import OPCODES, Kind, Program
from tangrad_jit.scripting.machine.kinds_of import Unsupported, holds_python, kind_of
from tangrad_jit.scripting.program.retelling import tell
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.types.kinds import Type

__all__ = ["Assembler", "Label"]

# Instructions that need the lock of the interpreter whatever their registers hold.
_OF_PYTHON = ("TO_PYTHON", "FROM_PYTHON", "CALL_PYTHON")
_LARGEST_REGISTER = 60000


class Label:
    """A place in the code."""


class _Step:
    """An instruction; constants are registers of negative numbers until all are known."""

    __slots__ = ("a", "b", "c", "d", "e", "is_pure", "op", "place")

    def __init__(
        self, op: str, a: int, b: int, c: int, d: Any, e: int, place: Any, is_pure: bool
    ) -> None:
        self.op, self.a, self.b, self.c, self.d, self.e = op, a, b, c, d, e
        self.place, self.is_pure = place, is_pure


class Assembler:
    """Write instructions; `program` makes the program of them.

    Args:
        unit: the function, which tracebacks name.
    """

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        self.place: Place | None = None
        self.types: list[Type] = []
        self._registers: list[Kind] = []
        self._impure: list[bool] = []
        self._steps: list[_Step | Label] = []
        self._constants: list[tuple[Kind, Any]] = []
        self._constant_of: dict[Any, int] = {}
        self._kinds: list[Kind] = []
        self._kind_of: dict[str, int] = {}
        self._operands: list[int] = []
        self._sites: list[Any] = []
        self._callees: list[Program] = []
        self._free: dict[str, list[int]] = {}
        self._temporaries: set[int] = set()

    # --- registers

    def register(self, kind: Type) -> int:
        """Return a new register for values of a type.

        Raises:
            Unsupported: the machine has no such values, or the function is too long.
        """
        made = kind_of(kind)
        if len(self._registers) > _LARGEST_REGISTER:
            raise Unsupported("a function of that many values")
        self._registers.append(made)
        self._impure.append(holds_python(made))
        self.types.append(kind)
        return len(self._registers) - 1

    def temporary(self, kind: Type) -> int:
        """Return a register until `drop` is told that it is free again."""
        waiting = self._free.get(str(kind))
        made = waiting.pop() if waiting else self.register(kind)
        self._temporaries.add(made)
        return made

    def is_temporary(self, register: int) -> bool:
        """Return whether a register holds a value of an expression, and is no variable."""
        return register in self._temporaries

    def drop(self, *registers: int) -> None:
        """Give back the temporaries among some registers, and what they hold."""
        for register in registers:
            if register in self._temporaries:
                self._temporaries.discard(register)
                if self.keeping(register):
                    self.emit(f"CLEAR_{self.keeping(register)}", register)
                self._free.setdefault(str(self.types[register]), []).append(register)

    def keeping(self, register: int) -> str:
        """Return "" for words without references, "O" or "P" for those with."""
        return _letter(self._kind_at(register))

    def _kind_at(self, register: int) -> Kind:
        return self._constants[-1 - register][0] if register < 0 else self._registers[register]

    def constant(self, kind: Type, value: Any) -> int:
        """Return the register of a constant."""
        made = kind_of(kind)
        key = str(kind), repr(value) if made.tag != "python" else id(value)
        if key not in self._constant_of:
            self._constants.append((made, value))
            self._constant_of[key] = -len(self._constants)
        return self._constant_of[key]

    # --- what instructions name

    def kind(self, kind: Type) -> int:
        """Return the number by which instructions name a kind."""
        key = str(kind)
        if key not in self._kind_of:
            self._kind_of[key] = len(self._kinds)
            self._kinds.append(kind_of(kind))
        return self._kind_of[key]

    def operands(self, registers: list[int]) -> int:
        """Return where some registers stand among the operands."""
        self._operands.extend(registers)
        return len(self._operands) - len(registers)

    def call_python(self, callee: Any, given: list[int], targets: list[int]) -> None:
        """Write a call of Python."""
        self._sites.append(
            (
                callee,
                given,
                [self._kind_at(register) for register in given],
                targets,
                [self._kind_at(register) for register in targets],
            )
        )
        # The frame of what is called tells the place.
        around, self.place = self.place, None
        self.emit("CALL_PYTHON", d=len(self._sites) - 1)
        self.place = around

    def call(self, callee: Program, given: list[int], target: int) -> None:
        """Write a call of a program."""
        self._callees.append(callee)
        self.emit(
            "CALL", target, d=len(self._callees) - 1, e=self.operands(given), is_pure=callee.pure
        )

    # --- instructions

    def emit(
        self,
        op: str,
        a: int | None = None,
        b: int | None = None,
        c: int | None = None,
        d: Any = 0,
        e: int = 0,
        *,
        is_pure: bool = True,
    ) -> None:
        """Write an instruction; `a`, `b` and `c` are registers."""
        if op in _OF_PYTHON:
            is_pure = False
        for register in (a, b, c):
            is_pure = is_pure and (register is None or not holds_python(self._kind_at(register)))
        self._steps.append(_Step(op, a or 0, b or 0, c or 0, d, e, self.place, is_pure))

    def emit_on(self, op: str, registers: list[int | None], d: Any = 0, e: int = 0) -> None:
        """Write an instruction on a list of at most three registers."""
        a, b, c = [*registers, None, None, None][:3]
        self.emit(op, a, b, c, d, e)

    def emit_many(self, op: str, target: int, given: list[int], kind: int = 0) -> None:
        """Write an instruction on any number of registers."""
        count = len(given) // 2 if op == "DICT_NEW" else len(given)
        self.emit(op, target, d=kind, e=self.operands(given))
        last = self._steps[-1]
        assert isinstance(last, _Step)
        last.b = count

    def mark(self, label: Label) -> None:
        """Let a label stand here."""
        self._steps.append(label)

    def here(self) -> int:
        """Return the number of instructions so far, for `without_lock`."""
        return len(self._steps)

    def without_lock(self, first: int) -> None:
        """Let other threads run Python during the instructions from one on, where that may be."""
        steps = self._steps[first:]
        if any(isinstance(step, _Step) and not step.is_pure for step in steps):
            return
        guarded: list[_Step | Label] = [self._bare("LEAVE_LOCK")]
        for step in steps:
            if isinstance(step, _Step) and step.op == "RETURN":
                guarded.append(self._bare("TAKE_LOCK"))
            if not (isinstance(step, _Step) and step.op in ("LEAVE_LOCK", "TAKE_LOCK")):
                guarded.append(step)
        self._steps[first:] = [*guarded, self._bare("TAKE_LOCK")]

    def _bare(self, op: str) -> _Step:
        return _Step(op, 0, 0, 0, 0, 0, self.place, True)

    def program(self, parameters: int, result: Type) -> Program:
        """Return the program.

        Args:
            parameters: how many of the first registers are parameters.
            result: the type of what it returns.
        """
        at: dict[int, int] = {}
        code: list[_Step] = []
        pure = not any(self._impure) and not any(holds_python(k) for k, _ in self._constants)
        for step in self._steps:
            if isinstance(step, Label):
                at[id(step)] = len(code)
            else:
                pure = pure and step.is_pure
                code.append(step)
        if pure:
            # The whole of it runs without the lock: parts need not leave it.
            at, code = self._without_parts()
        base = len(self._registers)

        def placed(register: int) -> int:
            return base - 1 - register if register < 0 else register

        rows = []
        for step in code:
            d = at[id(step.d)] if isinstance(step.d, Label) else placed(step.d)
            rows.append(
                (
                    OPCODES[step.op],
                    placed(step.a),
                    placed(step.b),
                    placed(step.c),
                    d,
                    placed(step.e),
                )
            )
        sites = [
            (callee, [placed(r) for r in given], kinds, targets, results)
            for callee, given, kinds, targets, results in self._sites
        ]
        return Program(
            rows,
            self._registers,
            parameters,
            self._constants,
            self._kinds,
            [placed(r) for r in self._operands],
            sites,
            self._callees,
            kind_of(result),
            [step.place and (self.unit, step.place) for step in code],
            pure,
            tell,
        )

    def _without_parts(self) -> tuple[dict[int, int], list[_Step]]:
        at: dict[int, int] = {}
        code: list[_Step] = []
        for step in self._steps:
            if isinstance(step, Label):
                at[id(step)] = len(code)
            elif step.op not in ("LEAVE_LOCK", "TAKE_LOCK"):
                code.append(step)
        return at, code


def _letter(kind: Kind) -> str:
    if kind.tag == "python":
        return "P"
    return "O" if kind.tag in ("list", "dict", "tuple", "box") else ""
