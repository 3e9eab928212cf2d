"""vmap of every op against a loop over the batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import tangrad
from tangrad_testing.calls import REFUSALS, describe, tangrad_arguments
from tangrad_testing.cases import Case, may_have_derivative
from tangrad_testing.closeness import agrees, as_array, describe_difference, dtype_name
from tangrad_testing.conformance.test_forward import same_bits
from tangrad_testing.oracle import function_of_tensors, tensors_in

BATCH = 2


def is_batchable(case: Case) -> bool:
    """Tell whether each element of a batch gives a result of the same shape."""
    forms = [o.definition for o in case.definition.members] or [case.definition]
    refused = any(d.shape_depends_on_data and d.batch is None for d in forms)
    return may_have_derivative(case) and not refused


def batched(tensor: Any, dim: int) -> Any:
    """Stack variants of a tensor: itself, and itself with its elements turned around."""
    turned = tensor.flip(0) if tensor.ndim else tensor
    return tangrad.stack([tensor, turned], dim)


def flat(function: Any) -> Any:
    """Return a function whose results are a flat tuple of tensors."""
    return lambda *tensors: tuple(tensors_in(function(*tensors)))


@pytest.mark.tangrad_cases(dtypes="derivatives", when=is_batchable)
@pytest.mark.parametrize("which", ["all", "first", "first at the end", "others"])
def test_vmap_is_a_loop(case: Case, which: str) -> None:
    for sample in case.samples():
        arguments = tangrad_arguments(sample, case.device, case.definition)
        tensors = tensors_in(arguments)
        function = function_of_tensors(case.call, *arguments)
        for dims in placings(which, len(tensors)):
            check_mapped(function, tensors, dims, f"{describe(sample)}, in_dims={dims}")


def placings(which: str, count: int) -> list[tuple[int | None, ...]]:
    """Return the `in_dims` of a kind for so many tensors.

    The kind "others" has every other choice of the batched tensors, or of many, each one alone.
    """
    first = (0, *[None] * (count - 1))[:count]
    if not count or which == "all":
        return [(0,) * count][:count]
    if which != "others":
        return [first if which == "first" else (-1, *first[1:])]
    rows = itertools.product((0, None), repeat=count) if count < 4 else set(permutations_of(first))
    return [r for r in rows if any(d is not None for d in r) and r != first and None in r]


def permutations_of(first: tuple[int | None, ...]) -> Iterator[tuple[int | None, ...]]:
    """Yield the rows of the same entries with the first of them at another place."""
    for i in range(len(first)):
        yield (*[None] * i, first[0], *[None] * (len(first) - i - 1))


def check_mapped(
    function: Any, tensors: list[Any], dims: tuple[int | None, ...], told: str
) -> None:
    """Compare one vmap with the loop over the batch."""
    try:
        stacked = [
            batched(t, d) if d is not None else t for t, d in zip(tensors, dims, strict=True)
        ]
        loop = [
            function(
                *[
                    t.select(d, b).clone(memory_format=tangrad.contiguous_format)
                    if d is not None
                    else t
                    for t, d in zip(stacked, dims, strict=True)
                ]
            )
            for b in range(BATCH)
        ]
    except REFUSALS:
        return
    mapped = tangrad.func.vmap(flat(function), in_dims=dims)(*stacked)
    for i, found in enumerate(mapped):
        expected = tangrad.stack([tensors_in(one)[i] for one in loop])
        assert tuple(found.shape) == tuple(expected.shape), (
            f"{told}: {found.shape} != {expected.shape}"
        )
        assert found.dtype == expected.dtype, told
        if not same_bits(found, expected):
            a, e = as_array(found), as_array(expected)
            good = agrees(a, e, dtype_name(found))
            assert good.all(), f"{told}: {describe_difference(a, e, good)} (a loop, not torch)"
