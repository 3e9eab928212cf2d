"""A convolution adds its bias itself: the bits of a sum behind it, of halves with one rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad.nn import functional as F
from tangrad.ops.nn.convolution import convolution
from tangrad.ops.nn.convolution_biased import convolution_biased
from tangrad.plugin import pop_observer, push_observer
from tangrad_cpu import _kernels

# Shapes of input and weight, stride, padding, groups: each of the ways that a result is made.
CASES = {
    "gathered": ((2, 3, 19, 23), (20, 3, 5, 5), 2, 1, 1),
    "several runs": ((1, 70, 9, 9), (33, 70, 3, 3), 1, 0, 1),
    "input's size": ((3, 60, 13, 11), (37, 60, 3, 3), 1, 1, 1),
    "pieces of images": ((5, 40, 5, 5), (15, 40, 3, 3), 1, 1, 1),
    "one element": ((2, 33, 8, 8), (47, 33, 1, 1), 1, 0, 1),
    "groups": ((2, 8, 7, 7), (12, 4, 3, 3), 1, 0, 2),
    "depthwise": ((2, 9, 15, 14), (18, 1, 3, 3), 1, 1, 9),
    "depthwise, steps": ((2, 9, 15, 14), (9, 1, 3, 3), 2, 1, 9),
    "signals": ((2, 5, 40), (7, 5, 3), 1, 1, 1),
    "volumes": ((1, 3, 5, 6, 7), (4, 3, 2, 3, 2), 1, 0, 1),
}


def drawn(dtype: str, *shape: int) -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return tangrad.from_numpy(values).to(getattr(tangrad, dtype))


def operands(case: str, dtype: str) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    shape, weight_shape, stride, padding, groups = CASES[case]
    rank = len(shape) - 2
    window = ((stride,) * rank, (padding,) * rank, (1,) * rank, groups)
    bias = 3 * drawn(dtype, 2 * weight_shape[0])[::2]
    return drawn(dtype, *shape), drawn(dtype, *weight_shape), bias, window


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_are_those_of_a_sum_behind_it(case: str, dtype: str) -> None:
    x, weight, bias, window = operands(case, dtype)
    along = bias.reshape((-1,) + (1,) * (x.ndim - 2))
    expected = convolution(x, weight, *window) + along
    assert tangrad.equal(convolution_biased(x, weight, bias, *window), expected)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_halves_are_rounded_once(case: str, dtype: str, unit: float) -> None:
    x, weight, bias, window = operands(case, dtype)
    exact = convolution_biased(x.double(), weight.double(), bias.double(), *window).numpy()
    got = convolution_biased(x, weight, bias, *window).double().numpy()
    assert (np.abs(got - exact) <= unit * np.abs(exact) + 1e-4).all()


class Watch:
    def __init__(self) -> None:
        self.names: list[str] = []

    def enter_call(self, op: Any, args: Any) -> None:
        self.names.append(op.name)

    def leave_call(self, op: Any, token: Any, result: Any) -> None:
        pass


@pytest.mark.parametrize(("dtype", "one"), [("float32", True), ("complex64", False)])
def test_calls_with_a_bias_are_one_op(dtype: str, one: bool) -> None:
    x, weight, bias = drawn(dtype, 2, 3, 8, 8), drawn(dtype, 4, 3, 3, 3), drawn(dtype, 4)
    watch = Watch()
    push_observer(watch)
    try:
        F.conv2d(x, weight, bias)
    finally:
        pop_observer(watch)
    assert ("convolution_biased" in watch.names) is one
    assert ("convolution" in watch.names) is not one


def test_gradients_are_those_of_the_parts() -> None:
    x, weight, bias, window = operands("gathered", "float64")
    leaves = [t.detach().clone().requires_grad_() for t in (x, weight, bias)]
    y = F.conv2d(*leaves, *window[:3])
    g = drawn("float64", *y.shape)
    got = tangrad.autograd.grad(y, leaves, g)
    parts = convolution(leaves[0], leaves[1], *window) + leaves[2].reshape((-1, 1, 1))
    for found, want in zip(got, tangrad.autograd.grad(parts, leaves, g), strict=True):
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12)


@pytest.mark.parametrize("shape", [(2, 0, 5, 5), (0, 3, 5, 5)])
def test_nothing_to_add_up_leaves_the_bias(shape: tuple[int, ...]) -> None:
    bias = drawn("float32", 4)
    got = F.conv2d(tangrad.zeros(shape), tangrad.zeros(4, shape[1], 3, 3), bias)
    assert tangrad.equal(got, bias.reshape((1, 4, 1, 1)).expand((shape[0], 4, 3, 3)))


@pytest.mark.parametrize("case", ["several runs", "input's size", "depthwise"])
def test_results_do_not_depend_on_the_number_of_threads(case: str) -> None:
    x, weight, bias, window = operands(case, "float32")
    x, before, found = tangrad.cat([x] * 6), _kernels.get_num_threads(), []
    try:
        for threads in (1, 4):
            _kernels.set_num_threads(threads)
            found.append(convolution_biased(x, weight, bias, *window).numpy().tobytes())
    finally:
        _kernels.set_num_threads(before)
    assert found[0] == found[1]


def refused(call: Callable[[], Any], calls: int) -> bool:
    """Say whether a call raises when working memory is refused after so many requests."""
    _kernels.fail_scratch_after(calls)
    try:
        call()
    except MemoryError:
        return True
    finally:
        _kernels.fail_scratch_after(-1)
    return False


def test_missing_working_memory_is_an_error() -> None:
    x, weight, bias, window = operands("gathered", "bfloat16")
    expected, failures = convolution_biased(x, weight, bias, *window), 0
    while refused(lambda: convolution_biased(x, weight, bias, *window), failures):
        failures += 1
    assert failures > 1
    assert tangrad.equal(convolution_biased(x, weight, bias, *window), expected)
