"""Layer normalization and its gradient agree with float64, whatever the strides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.nn.functional import layer_norm, nll_loss
from tangrad_cpu import _kernels

TOLERANCE = {"float32": 1e-5, "float64": 1e-13, "float16": 1e-2}


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(
        [
            (1, 5),
            (3, 64),
            (7, 65),
            (20, 300),
            (2, 5000),
            (16, 16),
            (33, 8),
            (50, 3),
            (17, 17),
        ]
    ),
    st.sampled_from(sorted(TOLERANCE)),
    st.booleans(),
    st.booleans(),
)
def test_result_and_gradients(
    shape: tuple[int, int], dtype: str, affine: bool, transposed: bool
) -> None:
    rng = np.random.default_rng(shape[1])
    kind = getattr(tangrad, dtype)
    x = tangrad.from_numpy(rng.standard_normal(shape[::-1] if transposed else shape)).to(kind)
    x = x.T if transposed else x
    g = tangrad.from_numpy(rng.standard_normal(shape)).to(kind)
    weight = tangrad.from_numpy(rng.standard_normal(shape[1])).to(kind) if affine else None
    bias = tangrad.from_numpy(rng.standard_normal(shape[1])).to(kind) if affine else None
    given_ = [x.detach().requires_grad_()]
    if affine:
        weight.requires_grad_()
        bias.requires_grad_()
        given_ += [weight, bias]
    y = layer_norm(given_[0], (shape[1],), weight, bias)
    y.backward(g)

    exact, cotangent = x.double().numpy(), g.double().numpy()
    w = weight.detach().double().numpy() if affine else 1.0
    b = bias.detach().double().numpy() if affine else 0.0
    centered = exact - exact.mean(1, keepdims=True)
    rstd = 1 / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5)
    normal, h = centered * rstd, cotangent * w
    slope = (h * normal).mean(1, keepdims=True)
    expected = [rstd * (h - h.mean(1, keepdims=True) - normal * slope)]
    if affine:
        expected += [(cotangent * normal).sum(0), cotangent.sum(0)]
    close = TOLERANCE[dtype]
    result = y.detach().double().numpy()
    np.testing.assert_allclose(result, normal * w + b, rtol=close, atol=close)
    for tensor, gradient in zip(given_, expected, strict=True):
        # Gradients of parameters add the errors of all rows.
        np.testing.assert_allclose(
            tensor.grad.double().numpy(), gradient, rtol=4 * close, atol=4 * close
        )


@pytest.mark.parametrize("n", [1, 4, 16, 24])
def test_rows_of_a_part_are_those_of_the_whole(n: int) -> None:
    rows = tangrad.from_numpy(np.random.default_rng(n).standard_normal((2, 61, 2 * n)))
    x, found = rows[:, :, :n].float(), []
    weight, bias = tangrad.rand(n), tangrad.rand(n)
    whole = layer_norm(x, (n,), weight, bias)
    for first in range(61):
        part = layer_norm(x[:, first : first + 3], (n,), weight, bias)
        assert part.equal(whole[:, first : first + 3])
    apart = rows.float()[:, :, :n]
    assert layer_norm(apart, (n,), weight, bias).equal(whole)
    before = tangrad.get_num_threads()
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            many = x.repeat(1, 90, 1).requires_grad_()
            given_ = (many, weight.requires_grad_(), bias.requires_grad_())
            y = layer_norm(many, (n,), weight, bias)
            gradients = tangrad.autograd.grad(y.square().sum(), given_)
            found.append([y.detach().numpy().tobytes(), *(g.numpy().tobytes() for g in gradients)])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_a_row_with_a_nan_leaves_the_others_alone() -> None:
    x = tangrad.arange(40.0).reshape(10, 4)
    x[3, 1] = float("nan")
    found = layer_norm(x, (4,))
    assert found[3].isnan().all()
    assert not tangrad.cat([found[:3], found[4:]]).isnan().any()


def test_missing_working_memory_is_an_error() -> None:
    x = tangrad.randn(4, 8)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            layer_norm(x, (8,))
    finally:
        _kernels.fail_scratch_after(-1)
    assert layer_norm(x, (8,)).shape == (4, 8)


def test_nll_loss_refuses_classes_that_do_not_exist() -> None:
    logs = tangrad.zeros(3, 4)
    with pytest.raises(IndexError, match="Target 4 is out of bounds"):
        nll_loss(logs, tangrad.tensor([0, 4, 1]))
    ignoring = nll_loss(logs + 2, tangrad.tensor([0, -100, 1]), reduction="none")
    assert ignoring.tolist() == [-2.0, 0.0, -2.0]
