"""Ops that do in one launch what the ops that they stand for do in several."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_torch import assert_same, both, moved

import tangrad
from tangrad.plugin import FallbackWarning, fallback_calls

pytestmark = pytest.mark.filterwarnings(f"error::{FallbackWarning.__module__}.FallbackWarning")
NEAR = {"rtol": 2e-4, "atol": 2e-4}


def gradients(fw: Any, loss: Any, leaves: list[Any]) -> list[Any]:
    return list(fw.autograd.grad(loss, leaves))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_the_loss_of_all_samples(device: str, reduction: str, ignored: int) -> None:
    a, x = both(device, 9, 6, 70)
    t = torch.arange(9 * 70).reshape(9, 70) * 5 % 6
    found = []
    for fw, scores, target in ((torch, a, t), (tangrad, x, moved(t, device))):
        scores.requires_grad_()
        loss = fw.nn.functional.cross_entropy(
            scores, target, ignore_index=ignored, reduction=reduction
        )
        found.append([loss, *gradients(fw, loss * 3, [scores])])
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert_same(mine, theirs, **NEAR)


def test_the_loss_of_no_sample_is_none(device: str) -> None:
    _, x = both(device, 3, 4)
    ignored = tangrad.full((3,), -100, device=device)
    assert tangrad.nn.functional.nll_loss(x, ignored).isnan().item()
    assert tangrad.nn.functional.nll_loss(x, ignored, reduction="sum").item() == 0


def test_a_class_out_of_bounds_is_told(device: str) -> None:
    _, x = both(device, 3, 4)
    with pytest.raises(IndexError, match="Target 4 is out of bounds. There are 4 classes"):
        tangrad.nn.functional.cross_entropy(x, tangrad.tensor([0, 4, 1], device=device)).item()


@pytest.mark.parametrize("batch", [2, 40])  # sums of 72 terms, and of 1440 in parts
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_with_a_bias(device: str, batch: int, groups: int) -> None:
    tensors = [
        both(device, batch, 4, 6, 6),
        both(device, 6, 4 // groups, 3, 3, seed=1),
        both(device, 6, seed=2),
    ]
    found = []
    for k, fw in enumerate((torch, tangrad)):
        leaves = [pair[k].requires_grad_() for pair in tensors]
        y = fw.nn.functional.conv2d(*leaves, padding=1, groups=groups)
        found.append([y, *gradients(fw, (y * y).mean(), leaves)])
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert_same(mine, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("taken", [1, 2])
def test_a_convolution_without_elements_has_its_bias(device: str, taken: int) -> None:
    bias = tangrad.tensor([1.0, -2.0], device=device)
    x = tangrad.ones(2 - taken, 0, 5, device=device)
    found = tangrad.nn.functional.conv1d(x, tangrad.ones(2, 0, 3, device=device), bias)
    assert found.tolist() == [[[1.0] * 3, [-2.0] * 3]] * (2 - taken)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("size", [7, 20_000])  # of a channel: both gradients at once, or apart
def test_batch_norm_moves_its_running_statistics(device: str, dtype: str, size: int) -> None:
    (a, x), (g, h) = both(device, 2, 3, size, dtype=dtype), both(device, 2, 3, size, dtype=dtype)
    found = []
    for fw, t, grad in ((torch, a.double(), g.double()), (tangrad, x, h)):
        norm = fw.nn.BatchNorm1d(3, momentum=0.3).to(device if fw is tangrad else "cpu")
        norm = norm.double() if fw is torch else norm
        t.requires_grad_()
        y = norm(t)
        y.backward(grad)
        leaves = [norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var]
        found.append([y, t.grad, *leaves, norm.num_batches_tracked])
    near = {"rtol": 5e-3, "atol": 5e-3} if dtype == "float16" else {"rtol": 1e-3, "atol": 1e-4}
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert_same(mine.double(), theirs.double(), **near)


def test_evaluation_copies_no_statistics(device: str) -> None:
    a, x = both(device, 4, 3, 5)
    mean, var = both(device, 3, seed=1), both(device, 3, seed=2)
    expected = torch.nn.functional.batch_norm(a, mean[0], var[0].abs())
    assert_same(tangrad.nn.functional.batch_norm(x, mean[1], var[1].abs()), expected, **NEAR)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dropout_draws_what_it_draws_everywhere(device: str, dtype: str) -> None:
    made = []
    for place in ("reference", device):
        tangrad.manual_seed(3)
        x = tangrad.ones(5, 30, dtype=getattr(tangrad, dtype), device=place).requires_grad_()
        y = tangrad.nn.functional.dropout(x, 0.3)
        y.backward(tangrad.ones_like(y))
        made.append((y.detach().cpu(), x.grad.cpu()))
    for mine, theirs in zip(*made, strict=True):
        assert mine.equal(theirs)


def test_wide_rows_are_told_apart_on_the_device(device: str) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 2, (40, 70)) * (torch.arange(70) > 66)  # rows that begin alike
    before = dict(fallback_calls())
    how = {"return_inverse": True, "return_counts": True, "dim": 0}
    found = tangrad.unique(moved(x, device), **how)
    for mine, theirs in zip(found, torch.unique(x, **how), strict=True):
        assert_same(mine, theirs)
    assert fallback_calls() == before
