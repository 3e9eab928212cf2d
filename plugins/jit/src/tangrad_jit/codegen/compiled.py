"""The interface: whether a group can be compiled, and its kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tangrad.plugin import get_driver
from tangrad.plugin.render import ExpressionTypeError
from tangrad_jit.codegen import _execute  # type: ignore[attr-defined]
from tangrad_jit.codegen.conversions import with_conversions
from tangrad_jit.codegen.group import PATTERNS, Group, Number, Step
from tangrad_jit.codegen.tiles import (
    BYTES,
    NO_END,
    Plan,
    Planner,
    Refused,
    Stage,
    Value,
    emits_fold,
    values_of,
)
from tangrad_jit.codegen.vector import Unsupported

# What code is made for; "tiles" calls compiled loops alone.
LEVELS = ("avx512", "avx2", "tiles")
_MOST = 60

_state: dict[str, Any] = {}
_kernels: dict[tuple, CompiledGroup | Refused] = {}


class CompiledGroup:
    """The kernel of a group, for all sizes.

    Attributes:
        group: what it computes.
        level: what its code is made for.
        kernel: what runs it; `kernel.entry` and `kernel.context` are addresses for callers in C
            (see `_execute.pyx`).
    """

    def __init__(
        self,
        group: Group,
        level: str,
        values: list[Value],
        plans: list[Plan | None],
        make: Callable[[], Plan],
    ) -> None:
        self.group, self.level = group, level
        ins = [(0 if i.pattern == "number" else BYTES[i.dtype], v.row, v.column)
               for i, v in zip(group.inputs, values, strict=False)]  # fmt: skip
        outs = [(BYTES[values[o].dtype], values[o].row, values[o].column) for o in group.outputs]
        integral = [i.dtype != "float64" for i in group.inputs]
        hazard = any(p is None or len(p.stages) > 1 or p.passes > 1 for p in plans)
        self.kernel = _execute.Kernel(plans, ins, outs, integral, hazard, make)

    @property
    def plans(self) -> list[Plan | None]:
        """How it runs; the last for all sizes that no other is for, None until it is needed."""
        return self.kernel.plans

    def listing(self) -> str:
        """Return its code as text: the stages of each plan that was made, in order."""
        parts = []
        for plan in self.plans:
            if plan is not None:
                low, high = plan.columns
                most = "any number" if high == NO_END else str(high)
                parts.append(f"; for rows of {low} to {most} of columns\n")
                parts += [_stage_text(stage) for stage in plan.stages]
        return "\n".join(parts)

    def run(self, outs: Sequence[Any], ins: Sequence[Any], rows: int, columns: int) -> None:
        """Compute into `outs`; a result may be written over an operand.

        Args:
            outs: contiguous tensors on the CPU of the group's dtypes and sizes, which are not
                checked: the caller's plan is what makes them right.
            ins: contiguous tensors; Python numbers in the places of numbers.
            rows: how many rows there are.
            columns: how many columns.

        Raises:
            RuntimeError: an integer was divided by zero.
        """
        self.kernel.run(outs, ins, rows, columns)

    def serves(self, rows: int, columns: int) -> bool:
        """Tell whether it computes that many rows and columns: all."""
        return True


def _stage_text(stage: Stage) -> str:
    if stage.program is not None:
        from tangrad_jit.codegen.listing import listing

        return listing(stage.program)
    assert stage.step is not None
    return f"; calls the compiled loop of {stage.step.described.title}, {stage.step.dtype}\n"


def native_level() -> str | None:
    """Return the level of this machine and of tangrad-cpu's kernels, None where there is none.

    Compiled loops and emitted code belong together: a level's kernels have an order of sums and
    functions of their own. Where no code is emitted for it, the compiled loops do all.
    """
    if "level" not in _state:
        # The core's own pool has a level, too, but no kernels: a driver that has them tells it.
        opened = _execute.instruction_set()
        found = opened if get_driver("cpu").properties(0).get("instruction_set") else None
        if found is not None and not (found in LEVELS and _has_executable_memory()):
            found = "tiles"
        _state["level"] = found
    return _state["level"]


def _has_executable_memory() -> bool:
    try:
        _execute.Code(b"\xc3")
    except PermissionError:
        return False
    return True


def can_compile(group: Group) -> str | None:
    """Return None if a group can be compiled here, else the reason why not."""
    try:
        compile_group(group)
    except Refused as error:
        return str(error)
    return None


def compile_group(group: Group, level: str | None = None) -> CompiledGroup:
    """Return the kernel of a group; groups of equal steps share one.

    Args:
        group: what is computed.
        level: "avx2", "avx512", or "tiles" for compiled loops alone; by default the level of
            tangrad-cpu's kernels, which is the one whose bits are theirs. None is above that.

    Raises:
        Refused: `can_compile` tells the reason.
        ValueError: the level is unknown.
    """
    native = native_level()
    if level is not None and level not in LEVELS:
        raise ValueError(f"unknown level {level!r}; known are {', '.join(LEVELS)}")
    if native is None:
        raise Refused("there are no kernels of tangrad-cpu here")
    if level is None:
        level = native
    elif LEVELS.index(level) < LEVELS.index(native):
        raise Refused(
            f"there are no kernels for {level} here: those of tangrad-cpu are for {native}"
        )
    key = (group.key, level)
    found = _kernels.get(key)
    if found is None:
        try:
            found = new_kernel(group, level)
        except Refused as error:
            found = Refused(*error.args)  # without the frames that the other one holds
        _kernels[key] = found
    if isinstance(found, Refused):
        raise found.with_traceback(None)
    return found


def new_kernel(group: Group, level: str) -> CompiledGroup:
    """Return a kernel of a group that nobody else has."""
    try:
        _check(group)
        group = with_conversions(group)
        values = values_of(group)
    except ExpressionTypeError as error:
        raise Refused(str(error)) from error
    _check_outputs(group, values)
    evex = None if level == "tiles" else level == "avx512"

    def called() -> Plan:
        # The system may refuse executable memory later than it was asked first: there is a limit.
        with suppress(PermissionError):
            return Planner(group, values, evex, False).make()
        return Planner(group, values, None, False).make()

    folds = [step for step in group.steps if step.form.kind == "fold"]
    if evex is None or not folds:
        return CompiledGroup(group, level, values, [called()], called)
    planner = Planner(group, values, evex, True)
    plans: list[Plan | None] = []
    if any(emits_fold(step, planner.wide) for step in folds):
        with suppress(Unsupported, PermissionError):
            plans.append(planner.make())
    if plans:
        planner.check_loops()
    return CompiledGroup(group, level, values, [*plans, None if plans else called()], called)


def _check(group: Group) -> None:
    if not group.steps or not group.outputs:
        raise Refused("there is nothing to compute")
    if len(group.inputs) > _MOST or len(group.outputs) > _MOST:
        raise Refused(f"more than {_MOST} operands or results")
    for given in group.inputs:
        if given.pattern not in PATTERNS:
            raise Refused(f"unknown pattern {given.pattern!r}; known are {', '.join(PATTERNS)}")
        if given.pattern == "number" and given.dtype not in ("float64", "int64", "bool"):
            raise Refused(f"a number of dtype {given.dtype}; numbers are float64, int64 or bool")
    values = len(group.inputs)
    for step in group.steps:
        _check_step(step, values, group)
        values += len(step.form.result_types)


def _check_step(step: Step, values: int, group: Group) -> None:
    """Refuse operands and parameters that are none; `values` counts those before the step."""
    wanted = step.form.count
    if len(step.args) != wanted:
        raise Refused(
            f"{step.described.title} takes {wanted} operands, the step has {len(step.args)}"
        )
    for arg in step.args:
        if arg.__class__ is int and not 0 <= arg < values:
            raise Refused(f"{step.described.title} has an operand that is no value before it")
    for name, value in step.params.items():
        if isinstance(value, str):
            raise Refused(f"the parameter {name} of {step.described.title} is a text")
        if isinstance(value, Number):
            given = group.inputs[value.input] if value.input < len(group.inputs) else None
            if given is None or given.pattern != "number":
                raise Refused(
                    f"the parameter {name} of {step.described.title} is an input that is no number"
                )


def _check_outputs(group: Group, values: list[Value]) -> None:
    if len(set(group.outputs)) != len(group.outputs):
        raise Refused("a value is a result twice")
    for output in group.outputs:
        if not len(group.inputs) <= output < len(values):
            raise Refused("a result is no step's")
    moving = any(v.row for v in values)
    if moving and not all(values[o].row for o in group.outputs):
        raise Refused(
            "a result is the same for all rows, and others are not:"
            " it belongs in a group of its own"
        )
