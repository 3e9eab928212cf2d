"""Fused attention agrees with its definition, in float64, whatever the sizes and masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.nn.functional import scaled_dot_product_attention
from tangrad_cpu import _kernels

TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 8e-2}
# (queries, keys, depth, width): less than a tile, more than a block of keys, more than a chunk.
SIZES = [
    (1, 1, 1, 1),
    (5, 3, 8, 2),
    (20, 33, 17, 40),
    (60, 257, 4, 16),
    (300, 300, 3, 5),
    (460, 2, 2, 2),
    (3, 600, 65, 33),
]


def exact(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, mask: np.ndarray, scale: float
) -> tuple[np.ndarray, ...]:
    """Return the result and the gradients by query, key and value."""
    scores = q @ k.swapaxes(-1, -2) * scale + mask
    most = scores.max(-1, keepdims=True)
    powers = np.where(np.isneginf(scores), 0, np.exp(scores - np.where(np.isinf(most), 0, most)))
    total = powers.sum(-1, keepdims=True)
    weights = powers / np.where(total == 0, 1, total)
    result = weights @ v
    slopes = weights * (g @ v.swapaxes(-1, -2) - (g * result).sum(-1, keepdims=True)) * scale
    return result, slopes @ k, slopes.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(SIZES),
    st.sampled_from(sorted(TOLERANCE)),
    st.sampled_from(["none", "causal", "bool", "additive"]),
    st.booleans(),
)
def test_result_and_gradients(
    sizes: tuple[int, int, int, int], dtype: str, hidden: str, transposed: bool
) -> None:
    queries, keys, depth, width = sizes
    rng = np.random.default_rng(queries)
    kind = getattr(tangrad, dtype)

    def leaf(rows: int, columns: int) -> tangrad.Tensor:
        x = tangrad.from_numpy(rng.standard_normal((1, rows, 2, columns))).to(kind)
        x = x if transposed else x.reshape((1, 2, rows, columns))
        return (x.transpose(1, 2) if transposed else x).detach().requires_grad_()

    q, k, v = leaf(queries, depth), leaf(keys, depth), leaf(keys, width)
    g = leaf(queries, width).detach()
    mask, given_ = np.zeros((queries, keys)), None
    if hidden == "causal":
        mask[np.triu_indices(queries, 1, keys)] = -np.inf
    elif hidden == "bool":
        shown = rng.random((queries, keys)) < 0.7
        shown[0] = False
        mask[~shown] = -np.inf
        given_ = tangrad.from_numpy(shown)
    elif hidden == "additive":
        given_ = tangrad.from_numpy(rng.standard_normal((queries, keys))).to(kind)
        mask = given_.double().numpy()
    y = scaled_dot_product_attention(q, k, v, given_, is_causal=hidden == "causal", scale=0.3)
    y.backward(g)
    wide = [x.detach().double().numpy() for x in (q, k, v, g)]
    expected = exact(*wide, mask, 0.3)
    close = TOLERANCE[dtype]
    for ours, right in zip((y, q.grad, k.grad, v.grad), expected, strict=True):
        # Gradients add the errors of up to 600 rows.
        np.testing.assert_allclose(
            ours.detach().double().numpy(), right, rtol=4 * close, atol=8 * close
        )


def test_large_scores_do_not_overflow() -> None:
    q = tangrad.tensor([[[100.0], [-100.0]]])
    k = tangrad.tensor([[[100.0], [99.0], [-100.0]]])
    v = tangrad.tensor([[[1.0], [2.0], [3.0]]])
    assert scaled_dot_product_attention(q, k, v, scale=1.0).tolist() == [[[1.0], [3.0]]]


def test_nan_stays_in_its_row() -> None:
    q = tangrad.ones(1, 3, 2)
    q[0, 1, 0] = math.nan
    y = scaled_dot_product_attention(q, tangrad.ones(1, 4, 2), tangrad.ones(1, 4, 2))
    assert y.isnan().any(-1).tolist() == [[False, True, False]]


@pytest.mark.parametrize("gradient", [False, True])
def test_missing_working_memory_is_an_error(gradient: bool) -> None:
    q = tangrad.randn(1, 4, 8, requires_grad=gradient)
    y = scaled_dot_product_attention(q, q, q)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            y.sum().backward() if gradient else scaled_dot_product_attention(q, q, q)
    finally:
        _kernels.fail_scratch_after(-1)
    assert scaled_dot_product_attention(q, q, q).shape == (1, 4, 8)
