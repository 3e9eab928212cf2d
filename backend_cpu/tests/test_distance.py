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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 1), (5, 3), (17, 64), (66, 65), (131, 300)])
def test_differences_are_counted(shape, dtype):
    rng = np.random.default_rng(5)
    x = rng.choice(np.array([0, -0.0, 1, np.finfo(dtype).smallest_subnormal], dtype), shape)
    first, second = np.triu_indices(len(x), 1)
    leaf = tangrad.tensor(x, requires_grad=True)
    found = tangrad.nn.functional.pdist(leaf, 0)
    np.testing.assert_array_equal(found.detach().numpy(), (x[first] != x[second]).sum(-1))
    found.sum().backward()
    assert not leaf.grad.any()


def test_where_infinities_are_subtracted_no_number_of_differences_is_known():
    inf, nan = float("inf"), float("nan")
    x = tangrad.tensor([[0, 0, 1], [inf, 1, 1], [inf, 0, 1], [nan, 0, 1], [-inf, 0, 1.0]])
    for given in (x, x.to("reference")):
        found = tangrad.nn.functional.pdist(given, 0).cpu().numpy()
        np.testing.assert_array_equal(found, [2, 1, nan, 1, nan, nan, 2, nan, 1, nan])


def _exact_gradient(x: np.ndarray, g: np.ndarray, p: float) -> np.ndarray:
    first, second = np.triu_indices(len(x), 1)
    difference = x[first].astype(np.longdouble) - x[second].astype(np.longdouble)
    size = np.abs(difference)
    if p == 1:
        slope = np.sign(difference)
    elif p == 2:
        distance = _exact(x, p)[:, None]
        slope = np.divide(difference, distance, np.zeros_like(difference), where=distance != 0)
    else:
        largest = size == size.max(-1, keepdims=True)
        slope = np.sign(difference) * largest / largest.sum(-1, keepdims=True)
    found = np.zeros(x.shape, np.longdouble)
    np.add.at(found, first, slope * g[:, None])
    np.add.at(found, second, -slope * g[:, None])
    return found


def _gradient(x: np.ndarray, g: np.ndarray, p: float) -> np.ndarray:
    leaf = tangrad.tensor(x, requires_grad=True)
    found = tangrad.nn.functional.pdist(leaf, p)
    return tangrad.autograd.grad(found, leaf, tangrad.tensor(g))[0].numpy()


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(12))
def test_gradients_of_distances_are_exact_but_for_roundings(seed, dtype, p):
    g = np.random.default_rng(seed)
    rows, width = g.integers(2, 70), g.integers(1, 40)
    # Whole numbers: some rows are equal, and largest differences are shared.
    x = g.integers(-2, 3, (rows, width)) if seed % 2 else g.standard_normal((rows, width))
    x, weights = x.astype(dtype), g.standard_normal(rows * (rows - 1) // 2).astype(dtype)
    expected = _exact_gradient(x, weights, p)
    most = rows * np.abs(weights).max() * 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(_gradient(x, weights, p), expected, rtol=0, atol=most)


@pytest.mark.parametrize(("dtype", "tiny"), [("float32", 1e-42), ("float64", 1e-320)])
def test_gradients_of_tiny_distances_do_not_overflow(dtype, tiny):
    x, weights = np.array([[0, 0], [3 * tiny, 4 * tiny]], dtype), np.array([5], dtype)
    expected = [[-3, -4], [3, 4]]
    np.testing.assert_allclose(_gradient(x, weights, 2.0), expected, rtol=2e-2)


@pytest.mark.parametrize("p", ORDERS)
def test_gradients_of_distances_that_are_not_finite_are_those_of_the_tensor_code(p):
    x = np.array([[0, 1], [np.nan, 2], [np.inf, 3], [np.inf, 4], [5, 1]], "float32")
    weights = np.arange(1, 11, dtype="float32")
    leaf = tangrad.tensor(x, requires_grad=True)
    found = tangrad.nn.functional.pdist(leaf, p)
    expected = tangrad.autograd.grad(found, leaf, tangrad.tensor(weights), create_graph=True)[0]
    np.testing.assert_array_equal(_gradient(x, weights, p), expected.detach().numpy())


def test_gradients_of_distances_do_not_depend_on_threads():
    x = np.random.default_rng(1).standard_normal((200, 50)).astype("float32")
    weights = np.random.default_rng(2).standard_normal(200 * 199 // 2).astype("float32")
    before, found = tangrad.get_num_threads(), []
    try:
        for threads in (1, 3):
            tangrad.set_num_threads(threads)
            found.append(_gradient(x, weights, 2.0))
    finally:
        tangrad.set_num_threads(before)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("p", [0.5, 1.5, 3.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 1), (5, 3), (64, 16), (40, 65)])
def test_distances_of_other_orders_are_exact_but_for_roundings(shape, dtype, p):
    x = np.random.default_rng(7).standard_normal(shape).astype(dtype)
    first, second = np.triu_indices(len(x), 1)
    size = np.abs(x[first].astype(np.longdouble) - x[second].astype(np.longdouble))
    found = tangrad.nn.functional.pdist(tangrad.tensor(x), p).numpy()
    exact = (size**p).sum(-1) ** (1 / np.longdouble(p))
    np.testing.assert_allclose(found, exact, rtol=16 * np.finfo(dtype).eps)
