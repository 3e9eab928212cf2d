"""Level 1: every kernel of the device in all its dtypes, and what everybody calls, by reference.

Results are compared with the reference device's, which is NumPy on the same definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tangrad.plugin import Sample
from tangrad_testing.calls import REFUSALS, describe, tangrad_arguments, tensors_in
from tangrad_testing.cases import Case, has_values
from tangrad_testing.levels import stated
from tangrad_testing.levels.check import (
    Check,
    Device,
    Mismatch,
    NotApplicable,
    expect_close,
)
from tangrad_testing.levels.inputs import large_samples
from tangrad_testing.levels.kernels import everyday, of_third_parties, own_kernels

SAMPLED_DTYPES = ("bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 "
                  "float64 complex64 complex128").split()  # fmt: skip
# For ops without a kernel on the device a word suffices: they run by what was tested already.
PASSING = ("float32", "int64")
ROUNDINGS = 8.0  # a fold may round in another order than NumPy


def checks(device: Device) -> Iterator[Check]:
    """Yield a check for each op and dtype."""
    if device.driver.meta:
        return
    chosen = {(op, dtype): True for op, dtypes in own_kernels(device).items() for dtype in dtypes}
    for op in device.ops or everyday(device):
        for dtype in SAMPLED_DTYPES if device.ops else PASSING:
            chosen.setdefault((op, dtype), False)
    for (op, dtype), own in chosen.items():
        says = f"{op} of {dtype} is what the reference computes"
        yield Check(1, f"{op}-{dtype}", says, partial(check_op, op=op, dtype=dtype, own=own))
    for op in device.ops or of_third_parties():
        says = f"what the definition of {op} says of one thing agrees with what it says of another"
        yield Check(1, f"{op}-definition", says, partial(stated.check_reference, op=op))
        says = f"{op} under vmap is a loop over the batch"
        yield Check(1, f"{op}-batched", says, partial(stated.check_batching, op=op))


def check_op(device: Device, op: str, dtype: str, own: bool) -> None:
    """Compare an op's results, and what it writes, with the reference's.

    Raises:
        NotApplicable: there is nothing to compare.
    """
    if device.name == "reference":
        raise NotApplicable("the reference is what devices are compared with")
    if dtype not in SAMPLED_DTYPES:
        raise NotApplicable(f"there are no samples of {dtype}")
    case = Case(op, dtype, device.name)
    if case.definition.samples is None:
        raise NotApplicable("it has no samples of its own: it runs as a part of other ops")
    if not has_values(case):
        raise NotApplicable("its values do not follow from its arguments (level 5 compares them)")
    samples: list[Sample] = case.samples()
    if own:
        samples += large_samples(case.call, dtype)
    for sample in samples:
        compare(case, sample)


def compare(case: Case, sample: Sample) -> None:
    """Compare one call with the reference's: results, arguments afterwards, or the refusal."""
    what = f"{case.op}{describe(sample)}"
    theirs = tangrad_arguments(sample, "reference", case.definition)
    args, kwargs = tangrad_arguments(sample, case.device, case.definition)
    try:
        expected = case.call(*theirs[0], **theirs[1])
    except REFUSALS as refusal:
        expect_refusal(what, refusal, lambda: case.call(*args, **kwargs))
        return
    actual = case.call(*args, **kwargs)
    for result in tensors_in(actual):
        if result.device.type != case.device:
            raise Mismatch(f"{what}, device of the result", result.device.type, case.device)
    expect_close(what, tensors_in(actual), tensors_in(expected), ROUNDINGS)
    expect_close(
        f"{what}, arguments after the call", tensors_in((args, kwargs)), tensors_in(theirs)
    )


def expect_refusal(what: str, refusal: Exception, action: Any) -> None:
    """Raise Mismatch unless an action raises what the reference raised."""
    try:
        got = action()
    except type(refusal):
        return
    except Exception as error:
        raise Mismatch(
            what, f"{type(error).__name__}: {error}", f"{type(refusal).__name__}: {refusal}"
        ) from error
    raise Mismatch(what, got, f"{type(refusal).__name__}: {refusal}")
