"""Norms of lists of tensors, and what scales all of them, in few launches."""

from __future__ import annotations

import math

import pytest
import torch
from beside_torch import assert_same, moved

import tangrad

SIZES = [(3, 5), (), (0,), (40_000,), *[(7,)] * 70]


@pytest.mark.parametrize("order", [2, 1, math.inf, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_norms_of_many_tensors(device: str, order: float, dtype: str) -> None:
    torch.manual_seed(0)
    sizes = [size for size in SIZES if order != math.inf or size != (0,)]
    theirs = [torch.randn(size).to(getattr(torch, dtype)) for size in sizes]
    mine = [moved(x, device) for x in theirs]
    wide = [x.double().norm(order) for x in theirs]
    near = {"rtol": 2e-3 if dtype == "float16" else 2e-5, "atol": 1e-6}
    with tangrad.no_grad():
        each = tangrad._foreach_norm(mine, order)
    for found, expected in zip(each, wide, strict=True):
        assert_same(found.double(), expected, **near)
    total = tangrad.nn.utils.get_total_norm(mine, order)
    assert_same(total.double(), torch.stack(wide).norm(order), **near)


def test_a_norm_of_what_is_no_number_is_none(device: str) -> None:
    for order in (2, math.inf):
        x = tangrad.tensor([1.0, math.nan, 2.0], device=device)
        assert tangrad.nn.utils.get_total_norm([x], order).isnan().item()


def test_gradients_are_clipped_by_their_common_norm(device: str) -> None:
    torch.manual_seed(0)
    theirs = [torch.randn(size).requires_grad_() for size in SIZES]
    mine = [moved(x.detach(), device).requires_grad_() for x in theirs]
    for x, y in zip(theirs, mine, strict=True):
        x.grad = torch.randn(x.shape)
        y.grad = moved(x.grad, device)
    expected = torch.nn.utils.clip_grad_norm_(theirs, 1.5)
    assert_same(tangrad.nn.utils.clip_grad_norm_(mine, 1.5), expected, rtol=2e-5, atol=0)
    for x, y in zip(theirs, mine, strict=True):
        assert_same(y.grad, x.grad, rtol=2e-5, atol=1e-8)


def test_the_greatest_of_no_elements_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="empty tensor"):
        tangrad.nn.utils.get_total_norm([tangrad.ones(0, device=device)], math.inf)
