"""The tile frame: divide a group into stages that run, tile by tile, one after the other.

A stage is emitted code for as many steps as possible, or one compiled loop of the CPU backend. What
passes from stage to stage lies in temporaries of a tile's size, or in a result. The plan that emits
folds is for rows that the compiled reductions fold in its order; all others call those.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from tangrad.plugin.render import KINDS, Fold, PointwiseOp, compute_type
from tangrad_jit.codegen import _execute  # type: ignore[attr-defined]
from tangrad_jit.codegen._emit import emit  # type: ignore[attr-defined]
from tangrad_jit.codegen.conversions import rounds_numbers
from tangrad_jit.codegen.group import Cast, Const, Group, Number, Step
from tangrad_jit.codegen.lower import (
    cast_value,
    casts,
    is_emitted,
    lower_step,
    types_of,
)
from tangrad_jit.codegen.rows import RowProgram
from tangrad_jit.codegen.vector import ITEMSIZE, LANES

# Bytes of a tile's temporaries: with the operands that stream through, they stay in the caches.
TILE_BYTES = 65536
LEAST_TILE, MOST_TILE = 1024, 32768
# Elements, times their cost in operations, that are worth a task.
TASK_WORK, LEAST_TASK = 524288, 16384
NO_END = (1 << 62) - 1
# Bytes of a line of the compiled reductions, without AVX-512 and with; how many lines they take in
# this order at most; and up to which length they fold rows of one line element by element.
LINE_BYTES = (128, 256)
MOST_LINES, RUN_MOST = 512, 24
# Ops whose fold is emitted, by what emission/folds.pxi calls it.
FOLDS = {"sum": "sum", "mean": "mean", "amax": "maximum", "amin": "minimum"}
BYTES = {"complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8} | ITEMSIZE


class Refused(Exception):
    """Why a group cannot be compiled."""


class Value(NamedTuple):
    """What is known of a value: its dtype, and whether it differs between rows and columns."""

    dtype: str
    row: bool
    column: bool


@dataclass(slots=True)
class Operand:
    """An operand of a stage as the executor takes it; `index` counts those of its `place`."""

    place: str
    index: int
    itemsize: int = 0
    dtype: int = 0
    row: bool = False
    column: bool = False
    form: str = "f8"
    value: bytes = b""


@dataclass
class Stage:
    """Emitted code, or a compiled loop; `numbers` are (input or -1, form, bytes)."""

    operands: list[Operand]
    numbers: list[tuple[int, str, bytes]]
    code: _execute.Code | None = None
    program: RowProgram | None = None
    loop: tuple[int, int] = (0, 0)
    step: Step | None = None
    nout: int = 0
    reduces: int = 0
    compute: int = 0
    counter: int = -1


@dataclass
class Plan:
    """The stages for rows of some lengths."""

    stages: list[Stage] = field(default_factory=list)
    temporaries: list[tuple[int, bool, bool]] = field(default_factory=list)
    columns: tuple[int, int] = (0, NO_END)
    tile: int = MOST_TILE
    grain: int = LEAST_TASK
    folds: bool = False
    called_folds: bool = False
    fold_bytes: int = 0
    flat: bool = False
    counted: bool = False
    passes: int = 1


_PATTERNS = {
    "full": (True, True), "row": (True, False), "column": (False, True), "scalar": (False, False),
    "number": (False, False),
}  # fmt: skip


def values_of(group: Group) -> list[Value]:
    """Return what is known of all values of a group.

    Raises:
        Refused: an operand is missing, or there is a step that cannot be part of a group.
    """
    values = [Value(i.dtype, *_PATTERNS[i.pattern]) for i in group.inputs]
    for step in group.steps:
        values += _results(step, values, group)
    return values


def _results(step: Step, values: list[Value], group: Group) -> list[Value]:
    types = step.result_types
    if isinstance(step.described, Cast):
        if not isinstance(step.args[0], int) or _is_a_number(group, step.args[0]):
            raise Refused("a conversion takes one tensor")
        return [values[step.args[0]]._replace(dtype=step.dtype)]
    if isinstance(step.described, Fold):
        return _fold_results(step, values, group, list(types))
    known = [values[a] for a in step.args if isinstance(a, int)]
    return [Value(t, any(v.row for v in known), any(v.column for v in known)) for t in types]


def _fold_results(step: Step, values: list[Value], group: Group, types: list[str]) -> list[Value]:
    title, source = step.described.title, step.args[0]
    if step.described.is_scan:
        raise Refused(f"{title} is a scan")
    if not isinstance(source, int):
        raise Refused(f"{title} folds a number")
    if (
        step.described.op.definition.promote == "sum"
        and KINDS[step.dtype] in "bui"
        and step.dtype != "int64"
    ):
        raise Refused(
            f"{title} of {step.dtype} is computed in int64, which is the dtype of such a step"
        )
    value = values[source]
    if not (value.row and value.column):
        raise Refused(f"{title} folds what is the same for all rows or columns")
    return [Value(t, True, False) for t in types]


def _is_a_number(group: Group, value: int | Const) -> bool:
    return (
        isinstance(value, int)
        and value < len(group.inputs)
        and group.inputs[value].pattern == "number"
    )


class Planner:
    """Divide one group into stages.

    Args:
        group: the group.
        values: what is known of its values.
        evex: whether AVX-512 is used; None to call compiled loops alone.
        folds: whether folds are emitted.
    """

    def __init__(self, group: Group, values: list[Value], evex: bool | None, folds: bool) -> None:
        self.group, self.values, self.evex = group, values, evex
        self.wide = _is_wide(group, values)
        self.emits_folds = folds
        self.first: list[int] = []  # the number of each step's first result
        self.levels: dict[int, int] = {}
        self.plan = Plan()
        self.homes: dict[int, Operand] = {}
        number = len(group.inputs)
        for step in group.steps:
            self.first.append(number)
            number += len(step.result_types)

    def emits(self, step: Step) -> bool:
        """Tell whether a step is emitted; the others call compiled loops."""
        if self.evex is None:
            return False
        if isinstance(step.described, Cast):
            return self._holds(step) and casts(
                self.values[step.args[0]].dtype, step.dtype, self.evex, self.wide
            )
        if isinstance(step.described, PointwiseOp):
            return self._holds(step) and is_emitted(step, self.evex, self.wide)
        return self.emits_folds and emits_fold(step, self.wide)

    def _holds(self, step: Step) -> bool:
        """Tell whether all operands have dtypes that lanes hold."""
        return all(self.values[a].dtype in LANES for a in step.args if isinstance(a, int))

    def make(self) -> Plan:
        """Return the plan.

        Raises:
            Refused: a step is neither emitted nor has a compiled loop.
        """
        levels = self._levels()
        self._place(levels)
        by_level: dict[int, list[int]] = {}
        for k, level in enumerate(levels):
            by_level.setdefault(level, []).append(k)
        for level in sorted(by_level):
            members = by_level[level]
            if level % 2 == 0:
                self.plan.stages.append(self._emitted(members))
            else:
                self.plan.stages += [
                    self._called(self.group.steps[k], self.first[k]) for k in members
                ]
        self._sizes()
        return self.plan

    def check_loops(self) -> None:
        """Raise Refused unless all folds have compiled loops, too."""
        for step in self.group.steps:
            fold = isinstance(step.described, Fold)
            if fold and _execute.find_loop(step.described.op, step.dtype) is None:
                raise Refused(f"{step.described.title} of {step.dtype} has no compiled loop")

    def _levels(self) -> list[int]:
        """Return when each step runs: emitted ones at even levels, called ones at odd levels."""
        of_value = dict.fromkeys(range(len(self.group.inputs)), 0)
        levels = []
        for k, step in enumerate(self.group.steps):
            parity = 0 if self.emits(step) else 1
            level = parity
            for arg in step.args:
                if isinstance(arg, int):
                    before = of_value[arg]
                    level = max(level, before + (before % 2 != parity))
            levels.append(level)
            for r in range(len(step.result_types)):
                of_value[self.first[k] + r] = level
        self.levels = of_value
        return levels

    def _place(self, levels: list[int]) -> None:
        """Decide where each value is that passes from stage to stage, or is a result."""
        for k, given in enumerate(self.group.inputs):
            place = "number" if given.pattern == "number" else "in"
            self.homes[k] = self._operand(place, k, self.values[k])
        for position, value in enumerate(self.group.outputs):
            self.homes[value] = self._operand("out", position, self.values[value])
        for k, step in enumerate(self.group.steps):
            called = levels[k] % 2 == 1
            used = {
                a
                for s, user in enumerate(self.group.steps)
                for a in user.args
                if levels[s] != levels[k] or called
            }
            for r in range(len(step.result_types)):
                value = self.first[k] + r
                if value not in self.homes and (called or value in used):
                    known = self.values[value]
                    self.homes[value] = self._operand(
                        "temporary", len(self.plan.temporaries), known
                    )
                    self.plan.temporaries.append((BYTES[known.dtype], known.row, known.column))

    def _operand(self, place: str, index: int, value: Value) -> Operand:
        return Operand(
            place,
            index,
            BYTES[value.dtype],
            _execute.dtype_index(value.dtype),
            value.row,
            value.column,
        )

    # --- emitted stages -----------------------------------------------------------------------

    def _emitted(self, members: list[int]) -> Stage:
        assert self.evex is not None
        program = RowProgram(self.evex, self.wide)
        known: dict[int, int] = {}
        for k in members:
            step = self.group.steps[k]
            if isinstance(step.described, Fold):
                results = [self._fold(program, known, step)]
            elif isinstance(step.described, Cast):
                source = self._node(program, known, step.args[0])
                results = [
                    cast_value(program.builder, source, self.values[step.args[0]].dtype, step.dtype)
                ]
            else:
                results = self._pointwise(program, known, step)
            for r, node in enumerate(results):
                known[self.first[k] + r] = node
        for value, node in known.items():
            if (
                value in self.homes
                and value >= len(self.group.inputs)
                and self._is_of(value, members)
            ):
                at = self.values[value]
                program.store(program.stream(value, at.dtype, at.row, at.column), node)
        program.plan()
        operands = [self._stream_operand(s.value, s.dtype) for s in program.streams]
        numbers = [(source, kind, b"") for source, kind in program.numbers]
        self.plan.passes = max(self.plan.passes, len(program.passes))
        return Stage(operands, numbers, _execute.Code(emit(program)), program)

    def _is_of(self, value: int, members: list[int]) -> bool:
        return any(
            self.first[k] <= value < self.first[k] + len(self.group.steps[k].result_types)
            for k in members
        )

    def _stream_operand(self, value: int, dtype: str) -> Operand:
        if value >= 0:
            return self.homes[value]
        self.plan.temporaries.append((BYTES[dtype], False, True))
        return Operand("temporary", len(self.plan.temporaries) - 1, BYTES[dtype], 0, False, True)

    def _node(self, program: RowProgram, known: dict[int, int], value: int) -> int:
        """Return a value in the lanes of its own dtype."""
        if value not in known:
            at = self.values[value]
            known[value] = program.load(program.stream(value, at.dtype, at.row, at.column))
        return known[value]

    def _pointwise(self, program: RowProgram, known: dict[int, int], step: Step) -> list[int]:
        b, loads = program.builder, []
        for arg, dtype in zip(step.args, types_of(step).operands, strict=True):
            if isinstance(arg, Const):
                loads.append(b.literal(arg.value, dtype))
            elif _is_a_number(self.group, arg):
                number = program.number(arg, b.lanes(dtype))
                loads.append(b.rounded(number, step.dtype) if rounds_numbers(step) else number)
            else:
                loads.append(self._node(program, known, arg))
        params = {}
        for name, dtype in types_of(step).params.items():
            given = step.params[name]
            if isinstance(given, Number):
                params[name] = program.number(given.input, b.lanes(dtype))
            else:
                params[name] = b.literal(given, dtype)  # type: ignore[arg-type]
        return lower_step(b, step, loads, params)

    def _fold(self, program: RowProgram, known: dict[int, int], step: Step) -> int:
        source = self._node(program, known, step.args[0])
        kind = FOLDS[step.described.key]
        return program.builder.make("fold", program.builder.kind(source), (source,), kind)

    # --- called stages ------------------------------------------------------------------------

    def _called(self, step: Step, first: int) -> Stage:
        if isinstance(step.described, Cast):
            return self._converted(step, first)
        found = _execute.find_loop(step.described.op, step.dtype)
        if found is None:
            raise Refused(f"{step.described.title} of {step.dtype} has no compiled loop")
        typed = step.typed()
        compute = compute_type(step.dtype)
        operands = [self.homes[first + r] for r in range(len(typed.result_types))]
        nout = len(operands)
        for arg in step.args:
            operands.append(self._argument(step, arg, compute))
        if len(operands) > 20:
            raise Refused(f"{step.described.title} has more operands than a loop")
        reduces = int(isinstance(step.described, Fold))
        if reduces:
            self.plan.called_folds = True
            self.plan.fold_bytes = max(self.plan.fold_bytes, BYTES[step.dtype])
        return Stage(
            operands,
            _parameters(step, compute),
            None,
            None,
            found,
            step,
            nout,
            reduces,
            _execute.dtype_index(compute),
            self._counter(step, first),
        )

    def _counter(self, step: Step, first: int) -> int:
        """Return the place among its numbers of the counter of a step that draws random numbers.

        Its numbers follow from the places of elements, which a tile counts from its own first one.
        """
        if not isinstance(step.described, PointwiseOp) or not step.typed().program.indexed:
            return -1
        title = step.described.title
        given = [name for name in step.described.params if step.params.get(name) is not None]
        if "offset" not in given:
            raise Refused(f"{title} draws random numbers by the place of an element")
        if not (self.values[first].row and self.values[first].column):
            raise Refused(f"{title} draws random numbers for what all rows or columns share")
        self.plan.counted = True
        return given.index("offset")

    def _converted(self, step: Step, first: int) -> Stage:
        found = _execute.find_copy(step.dtype)
        if found is None:
            raise Refused(f"there is no compiled conversion to {step.dtype}")
        operands = [self.homes[first], self.homes[step.args[0]]]
        return Stage(operands, [], None, None, found, step, 1, 0, operands[0].dtype)

    def _argument(self, step: Step, arg: int | Const, compute: str) -> Operand:
        index = _execute.dtype_index(compute)
        if isinstance(arg, Const):
            return Operand("constant", 0, 0, index, value=_encoded(arg.value, compute))
        if _is_a_number(self.group, arg):
            if rounds_numbers(step):
                raise Refused(f"{step.described.title} rounds a number of the call to {step.dtype}")
            if compute not in LANES:
                raise Refused(f"a number of {compute} that comes with the call")
            return Operand(
                "number", arg, 0, index, form="byte" if compute == "bool" else LANES[compute]
            )
        return self.homes[arg]

    # --- sizes --------------------------------------------------------------------------------

    def _sizes(self) -> None:
        plan, group = self.plan, self.group
        plan.folds = any(isinstance(step.described, Fold) for step in group.steps)
        used = {a for step in group.steps for a in step.args if not _is_a_number(group, a)}
        tensors = [v for k, v in enumerate(self.values) if k >= len(group.inputs) or k in used]
        plan.flat = not plan.folds and all(v.row == v.column for v in tensors)
        if any(len(stage.operands) > 60 or len(stage.numbers) > 60 for stage in plan.stages):
            raise Refused("more operands than a stage takes")
        if len(plan.temporaries) > 60:
            raise Refused("more temporaries than a call lays out")
        cost = 3 + sum(_cost(stage) for stage in plan.stages)
        plan.grain = max(LEAST_TASK, TASK_WORK // cost & ~63)
        bytes_each = sum(size for size, row, column in plan.temporaries if row and column)
        plan.tile = max(LEAST_TILE, min(MOST_TILE, TILE_BYTES // max(1, bytes_each) & ~63))
        if bytes_each == 0:
            plan.tile = plan.grain
        if self.emits_folds and self.evex is not None:
            plan.columns = columns_served(self.evex, 8 if self.wide else 4)


def _cost(stage: Stage) -> int:
    if stage.program is not None:
        return len(stage.program.builder.ops)
    assert stage.step is not None
    if not isinstance(stage.step.described, PointwiseOp):
        return 4
    return 3 + len(stage.step.typed().program.instructions)


def columns_served(evex: bool, size: int) -> tuple[int, int]:
    """Return the fewest and the most columns of rows that the compiled reductions fold this way."""
    line = LINE_BYTES[evex] // size
    return max(line, RUN_MOST + 1), (MOST_LINES + 1) * line - 1


def emits_fold(step: Step, wide: bool) -> bool:
    """Tell whether a fold is emitted in a program whose lanes are so wide."""
    return step.described.key in FOLDS and step.dtype == ("float64" if wide else "float32")


def _is_wide(group: Group, values: list[Value]) -> bool:
    """Tell whether values of 8 bytes are computed with; then vectors have half as many columns."""
    tensors = [
        v
        for k, v in enumerate(values)
        if k >= len(group.inputs) or group.inputs[k].pattern != "number"
    ]
    steps = [s for s in group.steps if isinstance(s.described, PointwiseOp)]
    return any(v.dtype in ("float64", "int64") for v in tensors) or any(
        types_of(s).wide for s in steps
    )


def _encoded(value: float | int | bool, dtype: str) -> bytes:
    """Return a Python number as an element of a dtype."""
    kind = KINDS[dtype]
    if kind == "b":
        return bytes((bool(value),))
    if kind == "f":
        try:
            return struct.pack("<f" if dtype == "float32" else "<d", float(value))
        except OverflowError:
            return struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    if kind == "c":
        return struct.pack("<ff" if dtype == "complex64" else "<dd", float(value), 0.0)
    return (int(value) & (1 << 64) - 1).to_bytes(8, "little")


def _parameters(step: Step, compute: str) -> list[tuple[int, str, bytes]]:
    """Return the numbers of a compiled loop, as tangrad_abi.h says; what is None is left out."""
    op, found = step.described, []
    integers = op.integers if isinstance(op, PointwiseOp) else ()
    for name in op.params:
        given = step.params.get(name, False if name == "keepdim" else None)
        if given is None:
            continue
        whole = name in integers or KINDS[compute] in "bui"
        if isinstance(given, Number):
            found.append((given.input, "i8" if whole else "f8", b""))
        elif name in integers or (whole and not isinstance(given, float)):
            found.append((-1, "i8", _encoded(given, "int64")))
        elif KINDS[compute] == "c":
            found.append((-1, "f8", struct.pack("<dd", complex(given).real, complex(given).imag)))
        else:
            found.append((-1, "f8", struct.pack("<d", float(given))))
    if len(found) > 12:
        raise Refused(f"{op.title} has more parameters than a loop")
    return found
