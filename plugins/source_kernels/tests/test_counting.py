"""Counts of what occurs, and lists of what is distinct, on devices that compile."""

from __future__ import annotations

import pytest
import torch
from beside_torch import assert_same, moved

import tangrad
from tangrad.plugin import fallback_calls

NUMBERS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
LINES = torch.tensor([[1, 2], [0, 5], [1, 2], [0, 4], [1, 2]])


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
@pytest.mark.parametrize("least", [0, 20])
def test_numbers_are_counted(device: str, dtype: torch.dtype, least: int) -> None:
    before = dict(fallback_calls())
    x = NUMBERS.to(dtype)
    assert_same(moved(x, device).bincount(minlength=least), x.bincount(minlength=least))
    weights = torch.arange(11) * 0.5
    found = moved(x, device).bincount(moved(weights, device), least)
    assert_same(found, x.bincount(weights, least))
    assert_same(moved(x[:0], device).bincount(minlength=3), x[:0].bincount(minlength=3))
    assert fallback_calls() == before


def test_a_negative_number_cannot_be_counted(device: str) -> None:
    with pytest.raises(RuntimeError, match="non-negative.*-2"):
        moved(NUMBERS - 3, device).bincount()


@pytest.mark.parametrize("x", [NUMBERS, LINES, LINES.bool(), torch.tensor([0.5, 0.0, -0.0, 0.5])])
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_what_is_distinct_is_listed_in_order(device: str, x: torch.Tensor, dim: int | None) -> None:
    how = {"return_inverse": True, "return_counts": True, "dim": dim}
    for name in ("unique", "unique_consecutive"):
        found = getattr(tangrad, name)(moved(x, device), **how)
        for mine, theirs in zip(found, getattr(torch, name)(x, **how), strict=True):
            assert_same(mine, theirs)


def test_every_nan_is_distinct(device: str) -> None:
    x = torch.tensor([1.0, torch.nan, torch.nan, 1.0])
    found = tangrad.unique(moved(x, device), return_counts=True)
    assert found[1].tolist() == [2, 1, 1]
