"""The tile frame: divide a group into stages that run, tile by tile, one after the other.

A stage is emitted code for as many steps as possible, or one compiled loop of the CPU backend. What
passes from stage to stage lies in temporaries of a tile's size, or in a result. The plan that emits
folds is for rows that the compiled reductions fold in its order; all others call those.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeGuard

from tangrad.plugin.render import KINDS, compute_type
from tangrad_jit.codegen import _execute  # type: ignore[attr-defined]
from tangrad_jit.codegen._emit import emit
from tangrad_jit.codegen.group import Const, Group, Number, Step
from tangrad_jit.codegen.lower import cast_value, casts, lower_step, template_of
from tangrad_jit.codegen.rows import RowProgram
from tangrad_jit.codegen.vector import ITEMSIZE, LANES

# Bytes of a tile's temporaries: with the operands that stream through, they stay in the caches.
TILE_BYTES = 32768
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


class Operand:
    """An operand of a stage as the executor takes it; `index` counts those of its `place`."""

    __slots__ = ("column", "dtype", "form", "index", "itemsize", "place", "row", "value")

    def __init__(
        self,
        place: str,
        index: int,
        itemsize: int = 0,
        dtype: int = 0,
        row: bool = False,
        column: bool = False,
        form: str = "f8",
        value: bytes = b"",
    ) -> None:
        self.place, self.index, self.itemsize, self.dtype = place, index, itemsize, dtype
        self.row, self.column, self.form, self.value = row, column, form, value


class Stage:
    """Emitted code, or a compiled loop.

    Attributes:
        operands: what is read and written. numbers: (input or -1, form, bytes) of each.
        code, program: what is emitted. loop, step: what is called, and for which step.
        nout, reduces, compute, counter: of what is called, as the executor takes them.
    """

    __slots__ = (
        "code", "compute", "counter", "loop", "nout", "numbers", "operands", "program", "reduces",
        "step",
    )  # fmt: skip

    def __init__(
        self, operands: list[Operand], numbers: list[tuple[int, str, bytes]], nout: int = 0
    ) -> None:
        self.operands, self.numbers, self.nout = operands, numbers, nout
        self.code: _execute.Code | None = None
        self.program: RowProgram | None = None
        self.loop: tuple[int, int] = (0, 0)
        self.step: Step | None = None
        self.reduces, self.compute, self.counter = 0, 0, -1


class Plan:
    """The stages for rows of some lengths."""

    __slots__ = (
        "called_folds", "columns", "counted", "flat", "fold_bytes", "folds", "grain", "passes",
        "stages", "temporaries", "tile",
    )  # fmt: skip

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.temporaries: list[tuple[int, bool, bool]] = []
        self.columns = (0, NO_END)
        self.tile, self.grain, self.passes, self.fold_bytes = MOST_TILE, LEAST_TASK, 1, 0
        self.folds = self.called_folds = self.flat = self.counted = False


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
    form = step.form
    if form.kind == "cast":
        if not isinstance(step.args[0], int) or _is_a_number(group, step.args[0]):
            raise Refused("a conversion takes one tensor")
        return [values[step.args[0]]._replace(dtype=step.dtype)]
    if form.kind == "fold":
        return _fold_results(step, values, group, form.result_types)
    row = column = False
    for arg in step.args:
        if arg.__class__ is int:
            _, of_row, of_column = values[arg]
            row, column = row or of_row, column or of_column
    return [Value(dtype, row, column) for dtype in form.result_types]


def _fold_results(
    step: Step, values: list[Value], group: Group, types: tuple[str, ...]
) -> list[Value]:
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


def _is_a_number(group: Group, value: int | Const) -> TypeGuard[int]:
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
        self.plan = Plan()
        self.homes: dict[int, Operand] = {}
        number = len(group.inputs)
        for step in group.steps:
            self.first.append(number)
            number += len(step.form.result_types)

    def emits(self, step: Step) -> bool:
        """Tell whether a step is emitted; the others call compiled loops."""
        if self.evex is None:
            return False
        form = step.form
        if form.kind == "pointwise":
            return form.in_lanes and template_of(step, self.evex, self.wide) is not None
        if form.kind == "fold":
            return self.emits_folds and emits_fold(step, self.wide)
        source = self.values[step.args[0]].dtype  # type: ignore[index]
        return source in LANES and casts(source, step.dtype, self.evex, self.wide)

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
        if len(self.plan.stages) > 1:
            self._share_temporaries()
        self._sizes()
        return self.plan

    def check_loops(self) -> None:
        """Raise Refused unless all folds have compiled loops, too."""
        for step in self.group.steps:
            if (
                step.form.kind == "fold"
                and _execute.find_loop(step.described.op, step.dtype) is None
            ):
                raise Refused(f"{step.described.title} of {step.dtype} has no compiled loop")

    def _levels(self) -> list[int]:
        """Return when each step runs: emitted ones at even levels, called ones at odd levels."""
        parities = [0 if self.emits(step) else 1 for step in self.group.steps]
        if not any(parities):
            return parities
        of_value = [0] * len(self.group.inputs)
        levels = []
        for step, parity in zip(self.group.steps, parities, strict=True):
            level = parity
            for arg in step.args:
                if isinstance(arg, int):
                    before = of_value[arg]
                    level = max(level, before + (before % 2 != parity))
            levels.append(level)
            of_value += [level] * len(step.form.result_types)
        return levels

    def _place(self, levels: list[int]) -> None:
        """Decide where each value is that passes from stage to stage, or is a result."""
        for k, given in enumerate(self.group.inputs):
            place = "number" if given.pattern == "number" else "in"
            self.homes[k] = self._operand(place, k, self.values[k])
        for position, value in enumerate(self.group.outputs):
            self.homes[value] = self._operand("out", position, self.values[value])
        if not any(levels):
            return
        users: dict[int, set[int]] = {}  # the levels at which each value is read
        for reader, level in zip(self.group.steps, levels, strict=True):
            for arg in reader.args:
                if isinstance(arg, int):
                    users.setdefault(arg, set()).add(level)
        for k, step in enumerate(self.group.steps):
            called = levels[k] % 2 == 1
            for value in range(self.first[k], self.first[k] + len(step.form.result_types)):
                passed = called or users.get(value, set()) - {levels[k]}
                if value not in self.homes and passed:
                    known = self.values[value]
                    number = len(self.plan.temporaries)
                    self.homes[value] = self._operand("temporary", number, known)
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
        made: list[tuple[int, int]] = []  # values of the group, and what they are in the program
        for k in members:
            step = self.group.steps[k]
            kind = step.form.kind
            if kind == "pointwise":
                results = self._pointwise(program, known, step)
            elif kind == "fold":
                results = [self._fold(program, known, step)]
            else:
                source = self._node(program, known, step.args[0])  # type: ignore[arg-type]
                dtype = self.values[step.args[0]].dtype  # type: ignore[index]
                results = [cast_value(program.builder, source, dtype, step.dtype)]
            for r, node in enumerate(results, self.first[k]):
                known[r] = node
                made.append((r, node))
        for value, node in made:
            if value in self.homes:
                at = self.values[value]
                program.store(program.stream(value, at.dtype, at.row, at.column), node)
        code, kept, passes = emit(program)
        operands = [self.homes[value] for value, *_ in program.streams]
        for dtype in kept:
            operands.append(Operand("temporary", len(self.plan.temporaries), BYTES[dtype], 0, False,
                                    True))  # fmt: skip
            self.plan.temporaries.append((BYTES[dtype], False, True))
        self.plan.passes = max(self.plan.passes, passes)
        stage = Stage(operands, [(source, kind, b"") for source, kind in program.numbers])
        stage.code, stage.program = _execute.Code(code), program
        return stage

    def _node(self, program: RowProgram, known: dict[int, int], value: int) -> int:
        """Return a value in the lanes of its own dtype."""
        if value not in known:
            at = self.values[value]
            known[value] = program.load(program.stream(value, at.dtype, at.row, at.column))
        return known[value]

    def _pointwise(self, program: RowProgram, known: dict[int, int], step: Step) -> list[int]:
        b, loads, form = program.builder, [], step.form
        for arg, dtype in zip(step.args, form.operands, strict=True):
            if isinstance(arg, Const):
                loads.append(b.literal(arg.value, dtype))
            elif arg in known:
                loads.append(known[arg])
            elif _is_a_number(self.group, arg):
                number = program.number(arg, b.lanes(dtype))
                loads.append(b.rounded(number, step.dtype) if form.rounds else number)
            else:
                loads.append(self._node(program, known, arg))
        for name, dtype in form.params.items():
            given = step.params[name]
            if isinstance(given, Number):
                loads.append(program.number(given.input, b.lanes(dtype)))
            else:
                loads.append(b.literal(given, dtype))  # type: ignore[arg-type]
        template = template_of(step, b.evex, self.wide)
        assert template is not None
        return lower_step(b, template, loads)

    def _fold(self, program: RowProgram, known: dict[int, int], step: Step) -> int:
        source = self._node(program, known, step.args[0])  # type: ignore[arg-type]
        kind = FOLDS[step.described.key]
        return program.builder.make("fold", program.builder.kind(source), (source,), kind)

    # --- called stages ------------------------------------------------------------------------

    def _called(self, step: Step, first: int) -> Stage:
        form = step.form
        if form.kind == "cast":
            return self._converted(step, first)
        found = _execute.find_loop(step.described.op, step.dtype)
        if found is None:
            raise Refused(f"{step.described.title} of {step.dtype} has no compiled loop")
        compute = compute_type(step.dtype)
        operands = [self.homes[first + r] for r in range(len(form.result_types))]
        nout = len(operands)
        for arg in step.args:
            operands.append(self._argument(step, arg, compute))
        if len(operands) > 20:
            raise Refused(f"{step.described.title} has more operands than a loop")
        stage = Stage(operands, _parameters(step, compute), nout)
        stage.loop, stage.step, stage.compute = found, step, _execute.dtype_index(compute)
        stage.counter = self._counter(step, first)
        if form.kind == "fold":
            stage.reduces = 1
            self.plan.called_folds = True
            self.plan.fold_bytes = max(self.plan.fold_bytes, BYTES[step.dtype])
        return stage

    def _counter(self, step: Step, first: int) -> int:
        """Return the place among its numbers of the counter of a step that draws random numbers.

        Its numbers follow from the places of elements, which a tile counts from its own first one.
        """
        if step.form.kind != "pointwise" or not step.typed().program.indexed:
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
        operands = [self.homes[first], self.homes[step.args[0]]]  # type: ignore[index]
        stage = Stage(operands, [], 1)
        stage.loop, stage.step, stage.compute = found, step, operands[0].dtype
        return stage

    def _argument(self, step: Step, arg: int | Const, compute: str) -> Operand:
        index = _execute.dtype_index(compute)
        if isinstance(arg, Const):
            return Operand("constant", 0, 0, index, value=_encoded(arg.value, compute))
        if _is_a_number(self.group, arg):
            if step.form.rounds:
                raise Refused(f"{step.described.title} rounds a number of the call to {step.dtype}")
            if compute not in LANES:
                raise Refused(f"a number of {compute} that comes with the call")
            return Operand(
                "number", arg, 0, index, form="byte" if compute == "bool" else LANES[compute]
            )
        return self.homes[arg]

    def _share_temporaries(self) -> None:
        """Let what is made later lie where earlier values of its size were that nobody reads."""
        stages, given = self.plan.stages, self.plan.temporaries
        lasts: dict[int, int] = {}
        for k, stage in enumerate(stages):
            lasts.update((o.index, k) for o in stage.operands if o.place == "temporary")
        shared: list[tuple[int, bool, bool]] = []
        free: dict[tuple[int, bool, bool], list[int]] = {}
        new: dict[int, int] = {}
        for k, stage in enumerate(stages):
            used = dict.fromkeys(o.index for o in stage.operands if o.place == "temporary")
            for index in used:
                if index in new:
                    continue
                if free.get(given[index]):
                    new[index] = free[given[index]].pop()
                else:
                    new[index] = len(shared)
                    shared.append(given[index])
            for index in used:
                if lasts[index] == k:
                    free.setdefault(given[index], []).append(new[index])
        # Stages share operands.
        operands = {id(o): o for stage in stages for o in stage.operands if o.place == "temporary"}
        for operand in operands.values():
            operand.index = new[operand.index]
        self.plan.temporaries = shared

    # --- sizes --------------------------------------------------------------------------------

    def _sizes(self) -> None:
        plan, group = self.plan, self.group
        plan.folds = any(step.form.kind == "fold" for step in group.steps)
        plan.flat = not plan.folds and self._is_flat()
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

    def _is_flat(self) -> bool:
        """Tell whether what is read is one for each row and column, or one for all."""
        group, used = self.group, None
        for k, value in enumerate(self.values):
            if value.row == value.column or _is_a_number(group, k):
                continue
            if used is None:
                used = {a for step in group.steps for a in step.args if isinstance(a, int)}
            if k >= len(group.inputs) or k in used:
                return False
        return True


def _cost(stage: Stage) -> int:
    if stage.program is not None:
        return len(stage.program.builder.ops)
    assert stage.step is not None
    if stage.step.form.kind != "pointwise":
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
    for k, value in enumerate(values):
        number = k < len(group.inputs) and group.inputs[k].pattern == "number"
        if value.dtype in ("float64", "int64") and not number:
            return True
    return any(step.form.wide for step in group.steps)


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
    integers = op.integers if step.form.kind == "pointwise" else ()
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
