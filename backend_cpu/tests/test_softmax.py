"""Softmax and its gradients agree with float64 along any dimension, for all floating types."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad_cpu import _kernels

# Units in the last place of results near 1: the sum, the reciprocal and the rounding.
TOLERANCE = {"float32": 1e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}


def softmax(array: np.ndarray, dim: int) -> np.ndarray:
    powers = np.exp(array - array.max(dim, keepdims=True))
    return powers / powers.sum(dim, keepdims=True)


@settings(max_examples=150, deadline=None)
@given(
    # Three long dimensions say no more than two, and take a minute.
    st.lists(st.sampled_from([1, 2, 5, 31, 32, 33, 64, 300]), min_size=1, max_size=3).filter(
        lambda shape: math.prod(shape) <= 1 << 16
    ),
    st.sampled_from(sorted(TOLERANCE)),
    st.data(),
)
def test_softmax_and_gradients(shape: list[int], dtype: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    order = data.draw(st.permutations(range(len(shape))))
    dim = data.draw(st.integers(0, len(shape) - 1))
    kind = getattr(tangrad, dtype)
    x = tangrad.from_numpy(rng.standard_normal(shape)).to(kind).permute(order)
    exact = x.double().numpy()
    g = tangrad.from_numpy(rng.standard_normal(exact.shape)).to(kind)
    cotangent = g.double().numpy()
    expected = softmax(exact, dim)
    close = TOLERANCE[dtype]
    x.requires_grad_()
    y = x.softmax(dim)
    np.testing.assert_allclose(y.detach().double().numpy(), expected, rtol=4 * close, atol=close)
    y.backward(g)
    gradient = expected * (cotangent - (cotangent * expected).sum(dim, keepdims=True))
    np.testing.assert_allclose(x.grad.double().numpy(), gradient, rtol=8 * close, atol=8 * close)
    x.grad = None
    logs = x.log_softmax(dim)
    size = 10 * close
    np.testing.assert_allclose(
        logs.detach().double().numpy(), np.log(expected), rtol=size, atol=size
    )
    logs.backward(g)
    gradient = cotangent - expected * cotangent.sum(dim, keepdims=True)
    # The sum of hundreds of half-precision cotangents multiplies a rounded result.
    size = 60 * close
    np.testing.assert_allclose(x.grad.double().numpy(), gradient, rtol=size, atol=size)


@pytest.mark.parametrize("length", [3, 100])
def test_specials(length: int) -> None:
    x = tangrad.zeros(4, length)
    x[0, 1] = float("nan")
    x[1, 0] = float("inf")
    x[2, 1] = -float("inf")
    x[3] = -float("inf")
    y = x.softmax(1)
    assert [row.isnan().any().item() for row in y] == [True, True, False, True]
    assert y[2, 1].item() == 0
    assert abs(y[2].sum().item() - 1) < 1e-6
    assert x.log_softmax(1)[2, 1].item() == -float("inf")


def test_missing_working_memory_is_an_error() -> None:
    x = tangrad.randn(100, 5)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            x.softmax(1)
    finally:
        _kernels.fail_scratch_after(-1)
    assert abs(x.softmax(1).sum().item() - 100) < 1e-3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_halves_are_those_of_float32_rounded_once(dtype: str) -> None:
    kind = getattr(tangrad, dtype)
    x, g = (tangrad.randn(40, 6, 66).to(kind)[:, ::2, 1:] for _ in range(2))
    for name in ("softmax", "log_softmax"):
        halves, wide = x.clone().requires_grad_(), x.float().requires_grad_()
        y, exact = (getattr(leaf, name)(-1) for leaf in (halves, wide))
        np.testing.assert_array_equal(y.detach().float().numpy(), exact.to(kind).detach().float())
        strided = getattr(x, name)(-1)
        np.testing.assert_array_equal(strided.float().numpy(), y.detach().float().numpy())
        y.backward(g)
        assert halves.grad.dtype is kind
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="softmax"):
            x.softmax(-1)
    finally:
        _kernels.fail_scratch_after(-1)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = tangrad.randn(700, 900)
    before = _kernels.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            _kernels.set_num_threads(threads)
            found.append([x.softmax(dim).numpy().tobytes() for dim in (0, 1)])
    finally:
        _kernels.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("log", [False, True])
def test_results_that_are_stored_past_the_caches(log: bool) -> None:
    softmax = tangrad.log_softmax if log else tangrad.softmax
    whole = tangrad.randn(1100, 8192).requires_grad_()  # 34 MiB
    part = whole[-10:].detach().requires_grad_()
    results = [softmax(x, 1) for x in (whole, part)]
    assert results[0][-10:].equal(results[1])
    slope = tangrad.randn(1100, 8192)
    results[0].backward(slope)
    results[1].backward(slope[-10:])
    assert whole.grad[-10:].equal(part.grad)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(15))
def test_rows_that_are_worked_on_together_do_not_know_of_each_other(seed, dtype):
    rng = np.random.default_rng(seed)
    rows, n = int(rng.integers(1, 70)), int(rng.integers(32, 140))
    x = rng.standard_normal((rows, n + seed % 3)).astype(dtype)[:, seed % 3 :] * 10
    x[rows // 2] = [np.nan, np.inf, -np.inf, 1e30][seed % 4]
    together = tangrad.log_softmax(tangrad.from_numpy(x), 1).numpy()
    alone = [tangrad.log_softmax(tangrad.from_numpy(row[None]), 1).numpy()[0] for row in x]
    np.testing.assert_array_equal(together, np.stack(alone))
    slack = 8 * np.finfo(dtype).eps
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble) - x.max(1, keepdims=True)
        expected = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    np.testing.assert_allclose(together, expected, rtol=slack, atol=slack)
