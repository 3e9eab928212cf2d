"""Systems, inverses and triangular systems: sizes around the blocks, pivots, stacks, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tangrad
from tangrad.linalg import LinAlgError
from tangrad_cpu import _kernels

SIZES = [1, 2, 7, 8, 9, 16, 33, 130, 257]
# Of the residual, relative to the sizes of what it is made of.
LIMIT = {"float32": 2e-6, "float64": 4e-15}


def matrices(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def off(a: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """Return the largest residual of a x = b, relative to |a| |x|."""
    wide, solution = a.astype("float64"), x.astype("float64")
    scale = np.abs(wide).sum(-1).max() * np.abs(solution).max() + 1e-300
    return float(np.abs(wide @ solution - b).max() / scale)


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("n", SIZES)
def test_solutions_have_small_residuals(n: int, dtype: str) -> None:
    a, b = matrices(n, n, dtype=dtype), matrices(n, 5, dtype=dtype, seed=1)
    x = tangrad.linalg.solve(tangrad.from_numpy(a), tangrad.from_numpy(b))
    assert off(a, x.numpy(), b) < LIMIT[dtype]
    inverse = tangrad.linalg.inv(tangrad.from_numpy(a)).numpy()
    assert off(a, inverse, np.eye(n)) < LIMIT[dtype]


@pytest.mark.parametrize("n", [5, 40, 200])
def test_rows_are_exchanged_where_the_diagonal_is_zero(n: int) -> None:
    order = np.random.default_rng(n).permutation(n)
    a = np.eye(n, dtype="float64")[order]
    b = matrices(n, 3, dtype="float64")
    x = tangrad.linalg.solve(tangrad.from_numpy(a), tangrad.from_numpy(b)).numpy()
    np.testing.assert_array_equal(x, a.T @ b)
    np.testing.assert_array_equal(tangrad.linalg.inv(tangrad.from_numpy(a)).numpy(), a.T)


def test_elimination_bounds_its_growth_by_the_largest_pivots() -> None:
    a = np.eye(64, dtype="float32") * 1e-6 + matrices(64, 64)
    np.fill_diagonal(a, 1e-6)
    x = tangrad.linalg.solve(tangrad.from_numpy(a), tangrad.from_numpy(a)).numpy()
    np.testing.assert_allclose(x, np.eye(64), atol=1e-3)


def test_stacks_of_strided_and_expanded_operands() -> None:
    a, b = matrices(3, 1, 20, 20), matrices(4, 20, 6)
    left = tangrad.from_numpy(a).mT
    right = tangrad.from_numpy(b).flip(-1)[..., ::2]
    x = tangrad.linalg.solve(left, right)
    assert x.shape == (3, 4, 20, 3)
    for i in range(3):
        for k in range(4):
            assert off(a[i, 0].T, x[i, k].numpy(), b[k][:, ::-1][:, ::2]) < LIMIT["float32"]
    inverses = tangrad.linalg.inv(left)
    for i in range(3):
        assert off(a[i, 0].T, inverses[i, 0].numpy(), np.eye(20)) < LIMIT["float32"]


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [3, 8, 21, 150])
def test_triangular_systems_read_one_triangle(n: int, upper: bool, left: bool, unit: bool) -> None:
    a = matrices(n, n, dtype="float64") / n + 2 * np.eye(n)
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        np.fill_diagonal(triangle, 1)
    given = a.copy()
    given[np.tril_indices(n, -1) if upper else np.triu_indices(n, 1)] = np.nan
    b = matrices(*((n, 4) if left else (4, n)), dtype="float64", seed=1)
    for matrix in (tangrad.from_numpy(given), tangrad.from_numpy(given.T.copy()).mT):
        x = tangrad.linalg.solve_triangular(
            matrix, tangrad.from_numpy(b), upper=upper, left=left, unitriangular=unit
        ).numpy()
        residual = off(triangle, x, b) if left else off(triangle.T, x.T, b.T)
        assert residual < LIMIT["float64"]


def test_a_zero_on_the_diagonal_of_a_triangle_gives_infinity() -> None:
    a = tangrad.tensor([[1.0, 0.0], [2.0, 0.0]])
    x = tangrad.linalg.solve_triangular(a, tangrad.tensor([[1.0], [5.0]]), upper=False)
    assert x.flatten().tolist() == [1.0, float("inf")]


@pytest.mark.parametrize("n", [3, 40])
def test_singular_matrices_are_named(n: int) -> None:
    a = np.broadcast_to(np.eye(n, dtype="float32"), (2, 3, n, n)).copy()
    a[1, 2, n - 1, n - 1] = 0
    stack, right = tangrad.from_numpy(a), tangrad.ones(2, 3, n, 2)
    with pytest.raises(LinAlgError, match=r"^torch\.linalg\.solve: \(Batch element 1, 2\): The so"):
        tangrad.linalg.solve(stack, right)
    with pytest.raises(LinAlgError, match=rf"Batch element 1, 2\): The diagonal element {n} is z"):
        tangrad.linalg.inv(stack)
    with pytest.raises(LinAlgError, match=r"^linalg\.inv: The diagonal element 1 is zero"):
        tangrad.linalg.inv(tangrad.zeros(n, n))
    found, info = tangrad.linalg.solve_ex(stack, right)
    assert info.tolist() == [[0, 0, 0], [0, 0, n]]
    assert bool(found[1, 2].isnan().all())
    assert bool((found[0] == 1).all())


def test_empty_systems() -> None:
    assert tangrad.linalg.solve(tangrad.ones(0, 0), tangrad.ones(0, 3)).shape == (0, 3)
    assert tangrad.linalg.solve(tangrad.eye(3), tangrad.ones(3, 0)).shape == (3, 0)
    assert tangrad.linalg.inv(tangrad.ones(0, 4, 4)).shape == (0, 4, 4)
    with pytest.raises(LinAlgError, match="singular"):
        tangrad.linalg.solve(tangrad.zeros(3, 3), tangrad.ones(3, 0))


def test_not_a_number_goes_through() -> None:
    a = tangrad.eye(30)
    a[4, 7] = float("nan")
    assert bool(tangrad.linalg.solve(a, tangrad.ones(30, 2)).isnan().any())
    assert tangrad.linalg.inv(tangrad.full((30, 30), float("nan"))).shape == (30, 30)


@pytest.mark.parametrize("shape", [(300, 300), (40, 20, 20)])
def test_results_are_the_same_bits_for_any_number_of_threads(shape: tuple[int, ...]) -> None:
    a, b = (tangrad.from_numpy(matrices(*shape, seed=seed)) for seed in (0, 1))
    even = tangrad.eye(shape[-1])
    before, found = tangrad.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            tangrad.set_num_threads(threads)
            found.append(
                [
                    tangrad.linalg.solve(a, b),
                    tangrad.linalg.inv(a),
                    tangrad.linalg.solve_triangular(a / 300 + even, b, upper=True),
                ]
            )
    finally:
        tangrad.set_num_threads(before)
    for results in found[1:]:
        assert [x.tolist() for x in results] == [x.tolist() for x in found[0]]


def test_missing_memory_is_told() -> None:
    a, b = tangrad.from_numpy(matrices(300, 300)), tangrad.ones(300, 300)
    tangrad.linalg.solve(a, b)  # finds its kernel
    kept = a.clone()
    _kernels.fail_scratch_after(0)  # the only allocation: a matrix has all of its memory at once
    try:
        with pytest.raises(MemoryError, match=r"bytes of working space"):
            tangrad.linalg.solve(a, b)
    finally:
        _kernels.fail_scratch_after(-1)
    assert bool((a == kept).all())
