"""Every op on a device against the reference device: what can be checked where torch is not."""

from __future__ import annotations

from typing import Any

import pytest

import tangrad
from tangrad_testing.calls import (
    REFUSALS,
    describe,
    detached,
    is_differentiable_dtype,
    normal_like,
    rebuild,
    tangrad_arguments,
    tangrad_tensor_on,
    tensors_in,
)
from tangrad_testing.cases import Case, has_values, may_have_derivative
from tangrad_testing.closeness import agrees, as_array, describe_difference, dtype_name
from tangrad_testing.levels import Device, NotApplicable
from tangrad_testing.levels.computing import compare
from tangrad_testing.levels.gradients import check_op
from tangrad_testing.levels.inputs import large_samples
from tangrad_testing.levels.views import strided

# Kernels differ from NumPy by the rounding of each step; gradients have several.
SLACK_OF_GRADIENTS = 10


def computes(case: Case) -> bool:
    """Tell whether a device has values of its own to compare."""
    return has_values(case) and case.device not in ("reference", "meta")


def differentiates(case: Case) -> bool:
    """Tell whether a device has gradients of its own to compare."""
    return may_have_derivative(case) and computes(case)


def assert_like_reference(actual: Any, expected: Any, context: str, slack: float = 1) -> None:
    """Compare the tensors in two results: number, shapes, dtypes, values."""
    ours, theirs = tensors_in(actual), tensors_in(expected)
    assert len(ours) == len(theirs), f"{context}{len(ours)} tensors, not {len(theirs)}"
    for i, (ours_i, theirs_i) in enumerate(zip(ours, theirs, strict=True)):
        where = f"{context}tensor {i}: "
        assert tuple(ours_i.shape) == tuple(theirs_i.shape), f"{where}shape {ours_i.shape}"
        assert ours_i.dtype == theirs_i.dtype, f"{where}dtype {ours_i.dtype}"
        a, e = as_array(ours_i), as_array(theirs_i)
        good = agrees(a, e, dtype_name(ours_i), slack)
        assert good.all(), f"{where}{describe_difference(a, e, good)} (the reference, not torch)"


@pytest.mark.tangrad_cases(when=computes)
def test_result_is_that_of_the_reference(case: Case) -> None:
    """Values within the dtype's tolerance, what is written to as well; the same refusals."""
    for sample in case.samples():
        arguments = tangrad_arguments(sample, "reference", case.definition)
        context = f"{case.op}{describe(sample)}: "
        try:
            expected = case.call(*arguments[0], **arguments[1])
        except REFUSALS as refusal:
            args, kwargs = tangrad_arguments(sample, case.device, case.definition)
            with pytest.raises(type(refusal)):
                case.call(*args, **kwargs)
            continue
        args, kwargs = tangrad_arguments(sample, case.device, case.definition)
        actual = case.call(*args, **kwargs)
        assert_like_reference(actual, expected, context)
        assert_like_reference((args, kwargs), arguments, f"{context}argument after the call, ")


def gradients(case: Case, sample: Any, device: str) -> list[Any]:
    """Return the gradients of a call by its floating arguments, zeros where there is none."""
    arguments = tangrad_arguments(sample, device, case.definition)
    given = tensors_in(arguments)
    leaves = [detached(t) if is_differentiable_dtype(t) else t for t in given]
    args, kwargs = rebuild(arguments, iter(leaves))
    outputs = [t for t in tensors_in(case.call(*args, **kwargs)) if t.requires_grad]
    leaves = [t for t in leaves if t.requires_grad]
    if not outputs or not leaves:
        return []
    make = tangrad_tensor_on(device)
    cotangents = [make(normal_like(t, i), dtype_name(t)) for i, t in enumerate(outputs)]
    found = tangrad.autograd.grad(outputs, leaves, cotangents, allow_unused=True)
    return [tangrad.zeros_like(t) if g is None else g for t, g in zip(leaves, found, strict=True)]


@pytest.mark.tangrad_cases(dtypes="derivatives", when=differentiates)
def test_gradients_are_those_of_the_reference(case: Case) -> None:
    for sample in case.samples():
        try:
            expected = gradients(case, sample, "reference")
        except REFUSALS:
            continue
        actual = gradients(case, sample, case.device)
        context = f"gradients of {case.op}{describe(sample)}: "
        assert_like_reference(actual, expected, context, SLACK_OF_GRADIENTS)


@pytest.mark.tangrad_cases(when=computes)
def test_many_elements_and_long_rows_give_what_the_reference_gives(case: Case) -> None:
    for sample in large_samples(case.call, case.dtype):
        compare(case, sample)


@pytest.mark.tangrad_cases(when=computes)
def test_strided_operands_and_results_make_no_difference(case: Case) -> None:
    for sample in case.samples():
        strided(case, sample)


@pytest.mark.tangrad_cases(dtypes="float64", when=differentiates)
def test_second_derivatives_are_those_of_the_reference(case: Case) -> None:
    try:
        check_op(Device(case.device), case.op, case.dtype)
    except NotApplicable as reason:
        pytest.skip(str(reason))
