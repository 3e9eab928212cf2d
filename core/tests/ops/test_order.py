"""Medians and elements of a rank: which one, and memory of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tangrad


@pytest.mark.parametrize(
    "values",
    [
        [3.0, float("nan"), 1.0],
        [float("nan")],
        [4.0, 1.0, 3.0, 2.0],
        [0.0, -0.0],
        [2, 1, 3, 1],
        [5],
    ],
)
def test_the_median_of_all_is_the_lower_one_or_nan(values: list[Any]) -> None:
    found, expected = tangrad.tensor(values).median(), torch.tensor(values).median()
    assert repr(found.item()) == repr(expected.item())


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("shape", [(3,), (1,), (2, 3, 4), (4, 1, 2)])
def test_an_element_of_a_rank_is_a_tensor_of_its_own(shape: tuple[int, ...], keepdim: bool) -> None:
    count = tangrad.Size(shape).numel()
    for dim in range(len(shape)):
        x, y = (
            (library.arange(5.0, 5 + count) * 7 % 31).reshape(shape) for library in (tangrad, torch)
        )
        found, expected = x.kthvalue(1, dim, keepdim), y.kthvalue(1, dim, keepdim)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.tolist() == theirs.tolist()
            assert ours.stride() == theirs.stride()
            assert ours._base is None
            assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()
