"""Promotion of every pair of dtypes, as tensors with dimensions, without, and Python numbers.

What PyTorch refuses (bool, floats and complex numbers with uint16 to uint64) may promote here; and
there is no complex32.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tangrad
from tangrad.ops.definition.samples import ALL

NUMBERS = (True, 2, 2.5, 1j)
UNSUPPORTED = RuntimeError


def result(library: Any, first: Any, second: Any) -> str:
    """Return the name of the promoted dtype, or "refused"."""
    try:
        return str(library.result_type(first, second)).rpartition(".")[2]
    except UNSUPPORTED:
        return "refused"


def agree(ours: str, theirs: str) -> bool:
    """Compare, but for what only one of the two has."""
    return theirs == "refused" or ours == theirs.replace("complex32", "complex64")


def operands(library: Any, name: str) -> list[Any]:
    """Return tensors of a dtype with and without dimensions."""
    dtype = getattr(library, name)
    return [library.zeros(2, dtype=dtype), library.zeros((), dtype=dtype)]


@pytest.mark.parametrize("name", ALL)
def test_pairs_of_tensors_promote_as_in_torch(name: str) -> None:
    for other in ALL:
        for ours, theirs in zip(operands(tangrad, name), operands(torch, name), strict=True):
            for mine, its in zip(operands(tangrad, other), operands(torch, other), strict=True):
                found, expected = result(tangrad, ours, mine), result(torch, theirs, its)
                assert agree(found, expected), (name, other, ours.ndim, mine.ndim, found, expected)


@pytest.mark.parametrize("name", ALL)
def test_tensors_and_numbers_promote_as_in_torch(name: str) -> None:
    for number in NUMBERS:
        for ours, theirs in zip(operands(tangrad, name), operands(torch, name), strict=True):
            assert agree(result(tangrad, ours, number), result(torch, theirs, number)), (
                name,
                number,
                ours.ndim,
            )
            assert agree(result(tangrad, number, ours), result(torch, number, theirs)), (
                number,
                name,
                ours.ndim,
            )


@pytest.mark.parametrize("name", ALL)
def test_casting_is_possible_where_torch_says_so(name: str) -> None:
    for other in ALL:
        ours = tangrad.can_cast(getattr(tangrad, name), getattr(tangrad, other))
        assert ours == torch.can_cast(getattr(torch, name), getattr(torch, other)), (name, other)


def test_default_dtype_decides_what_python_floats_become() -> None:
    tangrad.set_default_dtype(tangrad.float64)
    try:
        assert tangrad.tensor(1.5).dtype == tangrad.float64
        assert (tangrad.tensor([1]) + 1.5).dtype == tangrad.float64
        assert tangrad.tensor(1j).dtype == tangrad.complex128
    finally:
        tangrad.set_default_dtype(tangrad.float32)
