"""Distances of all pairs of rows: within roundings of the exact ones, at any size and magnitude."""

import numpy as np
import pytest

import tangrad

ORDERS = (1.0, 2.0, float("inf"))


def _exact(x: np.ndarray, p: float) -> np.ndarray:
    first, second = np.triu_indices(len(x), 1)
    size = np.abs(x[first].astype(np.longdouble) - x[second].astype(np.longdouble))
    if p == 2:
        scale = np.maximum(size.max(-1, keepdims=True), np.finfo(np.longdouble).tiny)
        return scale[:, 0] * np.sqrt(((size / scale) ** 2).sum(-1))
    return size.sum(-1) if p == 1 else size.max(-1)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 1), (5, 3), (17, 64), (66, 65), (131, 300)])
def test_distances_of_pairs_are_exact_but_for_roundings(shape, dtype, p):
    x = np.random.default_rng(7).standard_normal(shape).astype(dtype)
    found = tangrad.nn.functional.pdist(tangrad.tensor(x), p).numpy()
    np.testing.assert_allclose(found, _exact(x, p), rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize(("dtype", "large"), [("float32", 1e30), ("float64", 1e250)])
def test_distances_do_not_overflow_before_their_results(dtype, large, p):
    x = np.zeros((4, 3), dtype)
    x[1], x[2], x[3, 0] = large, 1 / large, 2 / large
    found = tangrad.nn.functional.pdist(tangrad.tensor(x), p).numpy()
    np.testing.assert_allclose(found, _exact(x, p), rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("p", ORDERS)
def test_distances_to_nan_are_nan_and_to_infinity_infinite(p):
    x = tangrad.tensor([[0.0, 0.0], [float("nan"), float("inf")], [1.0, float("inf")]])
    nan, inf, mixed = tangrad.nn.functional.pdist(x, p).tolist()
    assert np.isnan([nan, mixed]).all()
    assert inf == float("inf")
