"""Write the conversions of operands, which ops do by themselves, as steps of the group."""

from __future__ import annotations

import struct
from dataclasses import replace

from tangrad.plugin.render import Fold, PointwiseOp
from tangrad_jit.codegen.group import Cast, Const, Group, Step

HALVES = ("float16", "bfloat16")


def wanted_types(step: Step) -> list[str]:
    """Return the dtypes that the operands of a step are converted to."""
    if isinstance(step.described, Fold):
        return [step.dtype]
    return list(step.typed().input_types)


def with_conversions(group: Group) -> Group:
    """Return a group of the same results in which every operand has the dtype that its step takes.

    A Python number beside half types is rounded to them first, where the op does so. Steps that no
    result needs are left out.
    """
    live = live_steps(group)
    dtypes = [given.dtype for given in group.inputs]
    new = list(range(len(dtypes)))
    casts: dict[tuple[int, str], int] = {}
    steps: list[Step] = []

    def append(step: Step) -> None:
        steps.append(step)
        dtypes.extend(step.result_types)

    for number, step in enumerate(group.steps):
        if number not in live:
            new.extend([-1] * len(step.result_types))
            continue
        args: list[int | Const] = [a if isinstance(a, Const) else new[a] for a in step.args]
        if not isinstance(step.described, Cast):
            for k, wanted in enumerate(wanted_types(step)):
                arg = args[k]
                if isinstance(arg, Const):
                    args[k] = (
                        Const(rounded_number(arg.value, step)) if rounds_numbers(step) else arg
                    )
                elif dtypes[arg] != wanted and not _is_number(group, arg):
                    if (arg, wanted) not in casts:
                        casts[arg, wanted] = len(dtypes)
                        append(Step(Cast(), wanted, (arg,)))
                    args[k] = casts[arg, wanted]
        new.extend(range(len(dtypes), len(dtypes) + len(step.result_types)))
        same = tuple(args) == step.args
        append(step if same else replace(step, args=tuple(args)))
    return Group(group.inputs, tuple(steps), tuple(new[o] for o in group.outputs))


def live_steps(group: Group) -> set[int]:
    """Return the places of the steps that results depend on."""
    makers: list[int] = [-1] * len(group.inputs)
    for number, step in enumerate(group.steps):
        makers += [number] * len(step.result_types)
    found: set[int] = set()
    pending = [makers[output] for output in group.outputs if 0 <= output < len(makers)]
    while pending:
        number = pending.pop()
        if number >= 0 and number not in found:
            found.add(number)
            pending += [makers[a] for a in group.steps[number].args if isinstance(a, int)]
    return found


def _is_number(group: Group, value: int) -> bool:
    return value < len(group.inputs) and group.inputs[value].pattern == "number"


def rounds_numbers(step: Step) -> bool:
    """Tell whether a step rounds Python numbers to a half type before it computes with them."""
    op = step.described
    return isinstance(op, PointwiseOp) and step.dtype in HALVES and not op.exact_numbers


def rounded_number(value: float | int | bool, step: Step) -> float:
    """Return a number as an element of a half type has it."""
    number = float(value)
    if step.dtype == "float16":
        try:
            return float(struct.unpack("<e", struct.pack("<e", number))[0])
        except OverflowError:
            return float("inf") if number > 0 else float("-inf")
    bits = int.from_bytes(struct.pack("<f", number), "little")
    if number != number:
        return number
    bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])
