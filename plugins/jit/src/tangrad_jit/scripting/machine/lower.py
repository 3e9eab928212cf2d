"""From the typed tree to a program of the machine: statements."""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.machine._machine import Misfit, Program
from tangrad_jit.scripting.machine.assembler import Label
from tangrad_jit.scripting.machine.cursors import cursor_of, walk
from tangrad_jit.scripting.machine.expressions import Expressions
from tangrad_jit.scripting.machine.foreign import Part, check_foreign
from tangrad_jit.scripting.machine.kinds_of import Unsupported, has_containers
from tangrad_jit.scripting.machine.variables import element_types
from tangrad_jit.scripting.program.emit import Emitter, program_of
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import TupleType, Type

__all__ = ["entry_program", "machine_program"]


def machine_program(unit: Any) -> Program | None:
    """Return the program of the machine for a function, or None; it is made once."""
    if unit.machine is None:
        try:
            unit.machine = _Lowering(unit).build()
        except Unsupported as error:
            unit.machine = str(error) or "unsupported"
    return unit.machine if isinstance(unit.machine, Program) else None


def entry_program(unit: Any) -> Program | None:
    """Return the program that Python enters, or None where Python code does as well.

    Functions without loops gain nothing, unless they call one with loops that Python code cannot.
    """
    return machine_program(unit) if _gains(unit) else None


def entered_program(unit: Any) -> Any:
    """Return what Python code calls for a function: its Python code, or the machine's program.

    Lists and dicts are copied where the machine is entered, so that a function which is given some
    is called as Python code.
    """
    machine = entry_program(unit) if _is_entered(unit) else None
    if machine is None:
        return program_of(unit)

    def enter(*args: Any) -> Any:
        try:
            return machine(*args)
        except Misfit:
            return program_of(unit)(*args)

    return enter


def _is_entered(unit: Any) -> bool:
    return _gains(unit) and not any(has_containers(p.type) for p in unit.parameters)


def _gains(unit: Any) -> bool:
    if unit.gains is None:
        unit.gains = False
        unit.gains = any(map(_is_loop, tree.every(unit.body)))
    return bool(unit.gains)


def _is_loop(node: Any) -> bool:
    if isinstance(node, (tree.Call, tree.Invoke)):
        if node.unit is None or not _gains(node.unit):
            return False
        return not _is_entered(node.unit) or machine_program(node.unit) is None
    return isinstance(node, (tree.For, tree.While, tree.Comprehension))


class _Lowering(Expressions):
    """Write the program of one function."""

    def __init__(self, unit: Any) -> None:
        super().__init__(unit)
        self._loops: list[tuple[Label, Label]] = []
        self._pending: Part | None = None
        self._all_reads: dict[str, int] = {}
        for node in tree.every(unit.body):
            if isinstance(node, tree.Local):
                self._all_reads[node.name] = self._all_reads.get(node.name, 0) + 1

    def build(self) -> Program:
        """Return the program.

        Raises:
            Unsupported: the machine cannot run the function.
        """
        unit = self.unit
        self.declare(unit.parameters)
        for parameter in unit.parameters:
            self.place = unit.place()
            self._settle(parameter.name, parameter.type)
        self.statements(unit.body)
        self.place = unit.place()
        self.emit("RETURN", self.temporary(unit.returned))
        functions = self.parts.functions()
        self.resolve(functions)
        return self.program(len(unit.parameters), unit.returned)

    def machine_of(self, unit: Any) -> Program | None:
        """Return the program of the machine for a function, or None."""
        return machine_program(unit)

    def _settle(self, name: str, kind: Type) -> None:
        """Copy a parameter to the register of its variable, where that is another."""
        register, _ = self.variable(name, kind)
        given = self.parameter(name)
        if register != given:
            self.coerce(given, kind, register)

    # --- statements

    def statements(self, nodes: list[tree.Node]) -> None:
        """Write statements; those that follow each other in Python are one part.

        Raises:
            Unsupported: the machine cannot run one.
        """
        for node in nodes:
            if self._is_foreign(node):
                self._join(node)
                continue
            self.flush()
            self.place = node.place
            getattr(self, f"_do_{type(node).__name__}", self._refuse)(node)
        self.flush()

    def _refuse(self, node: Any) -> None:
        raise Unsupported(type(node).__name__)

    def _is_foreign(self, node: Any) -> bool:
        if isinstance(node, (tree.SetItem, tree.SetAttr, tree.Raise)):
            return True
        if isinstance(node, (tree.Assign, tree.Do)):
            return self.is_foreign(node.value)
        return False

    def _join(self, node: Any) -> None:
        """Add a statement to the part under way."""
        if isinstance(node, (tree.SetItem, tree.SetAttr)):
            check_foreign(node)
        part = self._pending or Part()
        if self._pending is not None and not self.may_join(node, part):
            self.flush()
            part = Part()
        part.statements.append(self.prepared(node, part))
        if isinstance(node, tree.Assign):
            for name, kind in element_types(node.target, node.value.type):
                self.variable(name, kind)
                part.assigned.setdefault(name)
                part.kinds[name] = kind
        self._pending = part
        if isinstance(node, tree.Raise):
            self.flush()

    def flush(self) -> None:
        """Write the call of the part under way."""
        part, self._pending = self._pending, None
        if part is None:
            return
        self.place = part.statements[0].place
        outs = [
            name
            for name in part.assigned
            if name in part.carried or self._all_reads.get(name, 0) > part.reads[name]
        ]
        targets = [self.variable(name, part.kinds[name])[0] for name in outs]
        self.run_part(part, outs, targets)

    def _do_Assign(self, node: tree.Assign) -> None:
        target, value = node.target, node.value
        if isinstance(target, str):
            register, kind = self.variable(target, value.type)
            if kind == value.type:
                self.value(value, register)
                return
            found = self.value(value)
            self.coerce(found, value.type, register)
            self.drop(found)
            return
        if isinstance(value, tree.MakeTuple) and len(target.targets) == len(value.elements):
            if target.star >= 0:
                raise Unsupported("a starred target")
            held = [self.held(element) for element in value.elements]
            for part, register, element in zip(target.targets, held, value.elements, strict=True):
                self.assign(part, register, element.type)
                self.drop(register)
            return
        found = self.value(value)
        self.assign(target, found, value.type)
        self.drop(found)

    def assign(self, target: Any, register: int, kind: Type) -> None:
        """Store a value in a variable, or its members in several.

        Raises:
            Unsupported: the machine does not unpack it.
        """
        if isinstance(target, str):
            stored, _ = self.variable(target, kind)
            self.coerce(register, kind, stored)
            return
        if not isinstance(kind, TupleType) or target.star >= 0:
            raise Unsupported(f"a value of type {kind} for several names")
        for k, (part, member) in enumerate(zip(target.targets, kind.elements, strict=True)):
            if isinstance(part, str) and self.variable(part, member)[1] == member:
                self.member(self.variable(part, member)[0], register, k)
                continue
            found = self.temporary(member)
            self.member(found, register, k)
            self.assign(part, found, member)
            self.drop(found)

    def _do_Do(self, node: tree.Do) -> None:
        self.effect(node.value)

    def _do_If(self, node: tree.If) -> None:
        other, end = Label(), Label()
        self.branch(node.condition, other, False)
        self.statements(node.body)
        if node.orelse:
            self.emit("JUMP", d=end)
        self.mark(other)
        if node.orelse:
            self.statements(node.orelse)
            self.mark(end)

    def _do_Assert(self, node: tree.Assert) -> None:
        end = Label()
        self.branch(node.condition, end, True)
        part = Part()
        fails = tree.Const(node.place, kinds.BOOL, False)
        part.statements.append(self.prepared(tree.Assert(node.place, fails, node.message), part))
        self.run_part(part, [], [])
        self.mark(end)

    def _do_Return(self, node: tree.Return) -> None:
        found = self.value(node.value)
        wanted = self.unit.returned
        if node.value.type != wanted:
            made = self.temporary(wanted)
            self.coerce(found, node.value.type, made)
            self.emit("RETURN", made)
            self.drop(made)
        else:
            self.emit("RETURN", found)
        self.drop(found)

    # --- loops

    def _do_Break(self, node: tree.Break) -> None:
        self.emit("JUMP", d=self._loops[-1][1])

    def _do_Continue(self, node: tree.Continue) -> None:
        self.emit("JUMP", d=self._loops[-1][0])

    def _do_While(self, node: tree.While) -> None:
        first = self.here()
        again, end = Label(), Label()
        self.mark(again)
        self.branch(node.condition, end, False)
        self._loops.append((again, end))
        self.statements(node.body)
        self._loops.pop()
        self.place = node.place
        self.emit("BACK", d=again)
        self.mark(end)
        self.without_lock(first)

    def _do_For(self, node: tree.For) -> None:
        cursor = cursor_of(self, node.iteration)
        first = self.here()

        def body() -> None:
            self._fetch(cursor, node.target)
            self.statements(node.body)

        walk(self, cursor, body, self._loops)
        self.without_lock(first)
        cursor.leave(self)

    def _fetch(self, cursor: Any, target: Any) -> None:
        if not isinstance(target, str) and cursor.parts:
            if target.star >= 0 or len(target.targets) != len(cursor.parts):
                raise Unsupported("a target of another number of names")
            for part, inner in zip(target.targets, cursor.parts, strict=True):
                self._fetch(inner, part)
            return
        if isinstance(target, str):
            stored, kind = self.variable(target, cursor.element)
            if kind == cursor.element:
                cursor.fetch(self, stored)
                return
        found = self.temporary(cursor.element)
        cursor.fetch(self, found)
        self.assign(target, found, cursor.element)
        self.drop(found)

    def comprehended(self, node: tree.Comprehension, target: int) -> None:
        """Write a loop that makes a list or a dict."""
        cursor = cursor_of(self, node.iteration)
        made = self.temporary(node.type)
        self.emit_many(
            "LIST_NEW" if node.key is None else "DICT_NEW", made, [], self.kind(node.type)
        )
        names = element_types(node.target, node.iteration.element)
        self.enter({name: (self.register(kind), kind) for name, kind in names})

        def body() -> None:
            self._fetch(cursor, node.target)
            kind: Any = node.type
            if node.key is None:
                item = self.as_type(node.value, kind.element)
                self.emit("APPEND" if self.keeping(item) else "APPEND_W", made, item)
                self.drop(item)
                return
            key, item = self.as_type(node.key, kind.key), self.as_type(node.value, kind.value)
            self.emit("DICT_SET", made, key, item)
            self.drop(key, item)

        walk(self, cursor, body, [])
        self.leave()
        cursor.leave(self)
        self.emit("TAKE_O", target, made)
        self.drop(made)


Emitter.entered = staticmethod(entered_program)
