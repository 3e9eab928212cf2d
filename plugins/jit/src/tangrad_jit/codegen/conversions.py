"""Write the conversions of operands, which ops do by themselves, as steps of the group."""

from __future__ import annotations

import math
import struct
from itertools import pairwise

from tangrad_jit.codegen.group import Cast, Const, Group, Step


def with_conversions(group: Group) -> Group:
    """Return a group of the same results in which every operand has the dtype that its step takes.

    A Python number beside half types is rounded to them first, where the op does so. Steps that no
    result needs are left out.
    """
    if _is_converted(group):
        return group
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
        for k, wanted in enumerate(step.form.input_types or ()):
            arg = args[k]
            if isinstance(arg, Const):
                args[k] = Const(rounded_number(arg.value, step)) if step.form.rounds else arg
            elif dtypes[arg] != wanted and not _is_number(group, arg):
                if (arg, wanted) not in casts:
                    casts[arg, wanted] = len(dtypes)
                    append(Step(Cast(), wanted, (arg,)))
                args[k] = casts[arg, wanted]
        new.extend(range(len(dtypes), len(dtypes) + len(step.result_types)))
        same = tuple(args) == step.args
        append(step if same else Step(step.described, step.dtype, tuple(args), step.params))
    return Group(group.inputs, tuple(steps), tuple(new[o] for o in group.outputs))


def _is_converted(group: Group) -> bool:
    """Return whether all operands have the dtypes that steps take, and all steps are needed."""
    inputs = group.inputs
    dtypes = ["" if given.pattern == "number" else given.dtype for given in inputs]
    used = set(group.outputs)
    firsts = []
    for step in group.steps:
        form = step.form
        for arg, wanted in zip(step.args, form.input_types or (), strict=False):
            if arg.__class__ is not int:
                if form.rounds:
                    return False
            elif dtypes[arg] and dtypes[arg] != wanted:
                return False
        used.update([arg for arg in step.args if arg.__class__ is int])
        firsts.append(len(dtypes))
        dtypes += form.result_types
    firsts.append(len(dtypes))
    return all(not used.isdisjoint(range(first, end)) for first, end in pairwise(firsts))


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


def rounded_number(value: float | int | bool, step: Step) -> float:
    """Return a number as an element of a half type has it."""
    number = float(value)
    if step.dtype == "float16":
        try:
            return float(struct.unpack("<e", struct.pack("<e", number))[0])
        except OverflowError:
            return float("inf") if number > 0 else float("-inf")
    try:
        bits = int.from_bytes(struct.pack("<f", number), "little")
    except OverflowError:  # beyond float32, and so beyond bfloat16
        return math.copysign(math.inf, number)
    if number != number:
        return number
    bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])
