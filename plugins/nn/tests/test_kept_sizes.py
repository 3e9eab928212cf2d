"""Sizes of windows and taps that a call finds again are those of equal numbers of equal types."""

from __future__ import annotations

from typing import Any

import pytest

import tangrad
import tangrad.nn.functional as F
from tangrad.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):
    """Records a program, which keeps nothing between calls."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("size", [(2.0, 2.0), 2.0, (True, True), True, [2, 2.0]])
def test_a_size_that_equals_one_of_before_is_checked_anew(size: Any) -> None:
    x = tangrad.rand(1, 2, 5, 5)
    for known in (2, (2, 2), 1, (1, 1)):
        F.interpolate(x, known)
    with pytest.raises(TypeError, match="size"):
        F.interpolate(x, size)


def test_numbers_in_tensors_and_lists_may_change_between_calls() -> None:
    x = tangrad.rand(1, 2, 4, 4)
    scale, sizes, window = tangrad.tensor(2.0), [3, 3], [2, 2]
    for more in (2, 3):
        scale.fill_(more)
        assert F.interpolate(x, scale_factor=scale).shape == (1, 2, 4 * more, 4 * more)
        sizes[0] = more
        assert F.interpolate(x, sizes, mode="bilinear").shape == (1, 2, more, 3)
        assert F.adaptive_avg_pool2d(x, sizes).shape == (1, 2, more, 3)
        assert F.adaptive_max_pool2d(x, sizes).shape == (1, 2, more, 3)
        window[1] = more
        for pool in (F.avg_pool2d, F.max_pool2d):
            assert pool(x, window, 1).shape == (1, 2, 3, 5 - more)


@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError, ValueError])
def test_what_was_refused_is_refused_again(error: type[Exception]) -> None:
    x = tangrad.rand(1, 2, 4, 4)
    calls = {
        RuntimeError: lambda: F.interpolate(x, 0),
        NotImplementedError: lambda: F.interpolate(x, 2, mode="linear"),
        ValueError: lambda: F.interpolate(x, 2, align_corners=True),
    }
    for _ in range(3):
        with pytest.raises(error):
            calls[error]()


RESAMPLED = [
    ((1, 2, 5), {"size": 7}),
    ((1, 2, 5), {"scale_factor": 1.7, "mode": "linear"}),
    ((1, 2, 4, 6), {"scale_factor": 2}),
    ((1, 2, 4, 6), {"size": (4, 9), "mode": "nearest-exact"}),
    ((1, 2, 4, 6), {"scale_factor": (1.5, 2), "mode": "bilinear", "align_corners": True}),
    ((1, 2, 4, 6), {"size": (4, 3), "mode": "bicubic", "antialias": True}),
    ((1, 2, 4, 6), {"scale_factor": 1.0, "mode": "bicubic"}),
    ((1, 2, 3, 4, 2), {"scale_factor": 2.0, "mode": "trilinear"}),
    ((1, 2, 3, 4, 2), {"size": 3, "mode": "area"}),
    ((1, 2, 3, 4, 2), {"scale_factor": 1.3, "recompute_scale_factor": True}),
]


@pytest.mark.parametrize(("shape", "asked"), RESAMPLED, ids=str)
def test_a_recorded_program_gives_the_bits_of_a_repeated_call(shape: Any, asked: Any) -> None:
    for dtype in (tangrad.float32, tangrad.float64, tangrad.bfloat16):
        x = tangrad.rand(shape).to(dtype).requires_grad_()
        found = [F.interpolate(x, **asked) for _ in range(2)]
        with Mode():
            found.append(F.interpolate(x, **asked))
        seed = tangrad.rand(found[0].shape).to(dtype)
        grads = [tangrad.autograd.grad(y, x, seed)[0] for y in found]
        for kept, other in ((found[0], found[1:]), (grads[0], grads[1:])):
            assert all(kept.equal(y) for y in other)
