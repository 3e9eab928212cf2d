"""Averages and greatest elements of windows, with their gradients, each in one launch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_torch import assert_same, both

import tangrad
from tangrad.plugin import FallbackWarning
from tangrad.plugin.compiled.unit import Unit

pytestmark = pytest.mark.filterwarnings(f"error::{FallbackWarning.__module__}.FallbackWarning")
SIZES = {1: (2, 3, 11), 2: (2, 3, 9, 7), 3: (2, 5, 6, 7)}
CALLS = [
    ("avg_pool1d", (3, 2, 1, True), {}),
    ("avg_pool2d", (2,), {}),
    ("avg_pool2d", ((3, 2), (2, 1), 1, True, False), {}),
    ("avg_pool2d", (2, 3, 1), {"divisor_override": 3}),
    ("avg_pool3d", ((2, 3, 2), (1, 2, 2), 1, True), {}),
    ("adaptive_avg_pool1d", (4,), {}),
    ("adaptive_avg_pool2d", ((4, 3),), {}),
    ("adaptive_avg_pool3d", ((2, 6, 3),), {}),
    ("max_pool1d", (3, 2, 1), {}),
    ("max_pool2d", ((3, 2), (1, 2), 1, (2, 1)), {}),
    ("max_pool3d", (2, 2, 1), {}),
    ("adaptive_max_pool1d", (4,), {}),
    ("adaptive_max_pool2d", ((4, 3),), {}),
    ("adaptive_max_pool3d", ((2, 4, 3),), {}),
]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the names of the kernels that are launched."""
    names: list[str] = []
    launch = Unit.launch

    def counted(unit: Unit, name: str, *rest: Any) -> None:
        names.append(name)
        launch(unit, name, *rest)

    monkeypatch.setattr(Unit, "launch", counted)
    return names


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(("name", "args", "options"), CALLS)
def test_pooling_is_one_launch_forward_and_one_back(
    device: str, launched: list[str], name: str, args: Any, options: Any, dtype: str
) -> None:
    a, x = both(device, *SIZES[int(name[-2])], dtype=dtype)
    a = a.double().requires_grad_()
    x.requires_grad_()
    expected = getattr(torch.nn.functional, name)(a, *args, **options)
    launched.clear()
    found = getattr(tangrad.nn.functional, name)(x, *args, **options)
    assert len(launched) == 1
    near = {"float32": 1e-6, "float16": 2e-3, "float64": 1e-14}[dtype]
    assert_same(found.double(), expected, rtol=near, atol=near)
    cotangent = (torch.arange(expected.numel()) % 5).reshape(expected.shape).double()
    expected.backward(cotangent)
    h = tangrad.from_numpy(cotangent.numpy()).to(device, x.dtype)
    launched.clear()
    found.backward(h)
    assert len(launched) == 1
    assert_same(x.grad.double(), a.grad, rtol=2 * near, atol=2 * near)


def test_the_last_nan_of_a_window_is_the_greatest(device: str) -> None:
    a, x = both(device, 1, 2, 6, 6)
    for t in (a, x):
        t[0, 0, 1, 0] = t[0, 0, 1, 1] = t[0, 1, 4, 5] = float("nan")
    for name in ("max_pool2d", "adaptive_max_pool2d"):
        expected = getattr(torch.nn.functional, name)(a, 2, return_indices=True)
        found = getattr(tangrad.nn.functional, name)(x, 2, return_indices=True)
        for mine, theirs in zip(found, expected, strict=True):
            assert_same(mine, theirs, equal_nan=True, rtol=0, atol=0)


def test_gradients_of_gradients_of_averages(device: str) -> None:
    a, x = both(device, 1, 2, 6, 5)
    grads = []
    for fw, t in ((torch, a), (tangrad, x)):
        t.requires_grad_()
        y = fw.nn.functional.avg_pool2d(t, 2, 1, 1)
        (first,) = fw.autograd.grad((y * y * y).sum(), t, create_graph=True)
        grads.append(fw.autograd.grad((first * first).sum(), t)[0])
    assert_same(grads[1], grads[0], rtol=1e-4, atol=1e-3)


def test_a_call_like_one_before_is_checked_as_the_first_was(device: str) -> None:
    functional = tangrad.nn.functional
    x = tangrad.ones(1, 2, 6, 6, device=device)
    for _ in range(2):
        assert functional.avg_pool2d(x, [3, 2]).shape == (1, 2, 2, 3)
        assert functional.avg_pool2d(x, (3, 2), 2).shape == (1, 2, 2, 3)
        assert functional.adaptive_avg_pool2d(x, [None, 2]).shape == (1, 2, 6, 2)
        with pytest.raises(RuntimeError, match="Output size is too small"):
            functional.avg_pool2d(x, 7)
        with pytest.raises(RuntimeError, match="divisor must be not zero"):
            functional.avg_pool2d(x, 2, divisor_override=0)
        with pytest.raises(RuntimeError, match="greater than or equal to 0"):
            functional.adaptive_avg_pool2d(x, -1)
        with pytest.raises(TypeError):
            functional.adaptive_avg_pool2d(x, 2.0)
