"""Factors, solutions, inverses, determinants: small residuals for any size, stride and batch."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad_cpu import _kernels

# Elimination with partial pivoting leaves a residual of about n eps growth; the growth of random
# matrices stays below a small power of n (Trefethen and Schreiber 1990), here within the factor.
FACTOR = 20
SIZES = st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 130])
DTYPES = st.sampled_from(["float32", "float64"])
LAYOUTS = st.sampled_from(["rows", "columns", "steps", "expanded"])
BATCHES = st.sampled_from([(), (3,), (2, 2), (0,)])


def laid_out(a: np.ndarray[Any, Any], layout: str) -> tangrad.Tensor:
    """Return a tensor of these values whose matrices lie in memory in one of several ways."""
    if layout == "columns":
        return tangrad.from_numpy(np.ascontiguousarray(a.swapaxes(-1, -2))).mT
    if layout == "steps":
        wide = np.full((*a.shape[:-2], 2 * a.shape[-2], 3 * a.shape[-1]), np.nan, a.dtype)
        wide[..., ::2, ::3] = a
        return tangrad.from_numpy(wide)[..., ::2, ::3]
    if layout == "expanded" and a.ndim > 2 and len(a):
        a[1:] = a[0]
        return tangrad.from_numpy(a[0]).expand(*a.shape)
    return tangrad.from_numpy(a)


def drawn(seed: int, dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(residual: Any, scale: Any, n: int, dtype: str) -> bool:
    """Tell whether residuals are rounding errors beside numbers of this size."""
    if not residual.size:
        return True
    return bool(np.abs(residual).max() <= FACTOR * n * np.finfo(dtype).eps * scale)


def norm(a: np.ndarray[Any, Any]) -> float:
    return float(np.abs(a).sum(-1).max()) if a.size else 0.0


def exact(x: tangrad.Tensor) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = x.double().numpy()
    return found


@settings(max_examples=150, deadline=None)
@given(SIZES, SIZES, DTYPES, LAYOUTS, LAYOUTS, BATCHES)
def test_solve(n: int, k: int, dtype: str, layout: str, other: str, batch: Any) -> None:
    a, b = drawn(n, dtype, *batch, n, n), drawn(k, dtype, *batch, n, k)
    A, B = laid_out(a, layout), laid_out(b, other)
    x = tangrad.linalg.solve(A, B)
    assert x.shape == B.shape
    assert x.is_contiguous()
    residual = exact(A) @ exact(x) - exact(B)
    assert close(residual, norm(a) * np.abs(exact(x)).max(initial=1), n, dtype)


@settings(max_examples=150, deadline=None)
@given(SIZES, DTYPES, LAYOUTS, BATCHES)
def test_inverse_and_determinant(n: int, dtype: str, layout: str, batch: Any) -> None:
    A = laid_out(drawn(n, dtype, *batch, n, n), layout)
    wide = exact(A)
    x = exact(tangrad.linalg.inv(A))
    assert close(wide @ x - np.eye(n), norm(wide) * np.abs(x).max(initial=1), n, dtype)
    sign, size = np.linalg.slogdet(wide)
    found = tangrad.linalg.slogdet(A)
    np.testing.assert_array_equal(exact(found[0]), sign)
    # The condition numbers of these matrices are below 10^4.
    near = 1e4 * n * np.finfo(dtype).eps
    np.testing.assert_allclose(exact(found[1]), size, rtol=0, atol=near)
    if n <= 16:  # beyond, float32 overflows
        expected = sign * np.exp(size)
        np.testing.assert_allclose(exact(tangrad.linalg.det(A)), expected, rtol=near)


@settings(max_examples=150, deadline=None)
@given(SIZES, SIZES, DTYPES, LAYOUTS, BATCHES)
def test_lu_factors(m: int, n: int, dtype: str, layout: str, batch: Any) -> None:
    a = laid_out(drawn(m, dtype, *batch, m, n), layout)
    lu, pivots, info = tangrad.linalg.lu_factor_ex(a)
    assert not info.any()
    p, low, high = (exact(x) for x in tangrad.lu_unpack(lu, pivots))
    assert np.abs(low).max(initial=0) <= 1 + 2 * np.finfo(dtype).eps
    assert close(p @ low @ high - exact(a), norm(exact(a)), min(m, n), dtype)


@settings(max_examples=150, deadline=None)
@given(SIZES, DTYPES, LAYOUTS, BATCHES, st.booleans())
def test_cholesky_factors(n: int, dtype: str, layout: str, batch: Any, upper: bool) -> None:
    a = drawn(n, dtype, *batch, n, n)
    a = a @ a.swapaxes(-1, -2) + n * np.eye(n, dtype=dtype)
    A = laid_out(a, layout)
    unread = laid_out(
        np.where((np.tril if upper else np.triu)(a, -1 if upper else 1), np.nan, a), layout
    )
    factor, info = tangrad.linalg.cholesky_ex(unread, upper=upper)
    assert not info.any()
    t = exact(factor)
    assert ((np.triu if upper else np.tril)(t) == t).all()
    product = t.swapaxes(-1, -2) @ t if upper else t @ t.swapaxes(-1, -2)
    # Backward stable without growth (Higham, "Accuracy and Stability", theorem 10.3).
    assert close(product - exact(A), norm(exact(A)), n, dtype)


@pytest.mark.parametrize(("n", "minor"), [(3, 2), (20, 1), (20, 17), (100, 65), (100, 100)])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("pivot", [-1.0, 0.0, float("nan")])
def test_a_minor_that_is_not_positive_is_named(
    n: int, minor: int, upper: bool, pivot: float
) -> None:
    a = tangrad.eye(n).repeat(2, 1, 1)
    a[1, minor - 1, minor - 1] = pivot
    factor, info = tangrad.linalg.cholesky_ex(a, upper=upper)
    assert info.tolist() == [0, minor]
    assert factor[0].equal(tangrad.eye(n))
    message = rf"^linalg.cholesky: \(Batch element 1\): .* minor of order {minor} is not"
    with pytest.raises(tangrad.linalg.LinAlgError, match=message):
        tangrad.linalg.cholesky(a, upper=upper)


@settings(max_examples=200, deadline=None)
@given(SIZES, SIZES, DTYPES, LAYOUTS, LAYOUTS, BATCHES, st.booleans(), st.booleans(), st.booleans())
def test_triangular_systems(
    n: int,
    k: int,
    dtype: str,
    layout: str,
    other: str,
    batch: Any,
    upper: bool,
    left: bool,
    unit: bool,
) -> None:
    a = drawn(n, dtype, *batch, n, n) / n + 2 * np.eye(n, dtype=dtype)
    A, B = (
        laid_out(a, layout),
        laid_out(drawn(k, dtype, *batch, *((n, k) if left else (k, n))), other),
    )
    x = tangrad.linalg.solve_triangular(A, B, upper=upper, left=left, unitriangular=unit)
    t = (np.triu if upper else np.tril)(exact(A))
    if unit:
        t[..., range(n), range(n)] = 1
    residual = (t @ exact(x) if left else exact(x) @ t) - exact(B)
    assert close(residual, norm(t) * np.abs(exact(x)).max(initial=1), n, dtype)


@settings(max_examples=100, deadline=None)
@given(SIZES, SIZES, DTYPES, LAYOUTS, LAYOUTS, BATCHES, st.booleans())
def test_systems_by_cholesky_factors(
    n: int, k: int, dtype: str, layout: str, other: str, batch: Any, upper: bool
) -> None:
    factor = drawn(n, dtype, *batch, n, n) / n + 2 * np.eye(n, dtype=dtype)
    L, B = laid_out(factor, layout), laid_out(drawn(k, dtype, *batch, n, k), other)
    t = (np.triu if upper else np.tril)(exact(L))
    a = t.swapaxes(-1, -2) @ t if upper else t @ t.swapaxes(-1, -2)
    x = tangrad.cholesky_solve(B, L, upper)
    limit = norm(t) ** 2 * np.abs(exact(x)).max(initial=1)
    assert close(a @ exact(x) - exact(B), limit, n, dtype)
    inverse = tangrad.cholesky_inverse(L, upper)
    assert inverse.equal(inverse.mT)
    assert close(a @ exact(inverse) - np.eye(n), norm(t) ** 2, n, dtype)


@settings(max_examples=100, deadline=None)
@given(SIZES, SIZES, DTYPES, BATCHES, st.booleans(), st.booleans())
def test_systems_by_lu_factors(
    n: int, k: int, dtype: str, batch: Any, left: bool, adjoint: bool
) -> None:
    A = tangrad.from_numpy(drawn(n, dtype, *batch, n, n))
    B = tangrad.from_numpy(drawn(k, dtype, *batch, *((n, k) if left else (k, n))))
    x = tangrad.linalg.lu_solve(*tangrad.linalg.lu_factor(A), B, left=left, adjoint=adjoint)
    a = exact(A.mT if adjoint else A)
    residual = (a @ exact(x) if left else exact(x) @ a) - exact(B)
    # Sums of rows or of columns, whichever are larger, bound both sides.
    scale = max(norm(a), norm(a.swapaxes(-1, -2)))
    assert close(residual, scale * np.abs(exact(x)).max(initial=1), n, dtype)


def test_one_factorization_serves_a_batch_of_right_sides() -> None:
    a, b = drawn(1, "float64", 5, 5), drawn(2, "float64", 3, 5, 2)
    factors = tangrad.linalg.lu_factor(tangrad.from_numpy(a))
    x = tangrad.linalg.lu_solve(*factors, tangrad.from_numpy(b))
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b), rtol=1e-9)


@pytest.mark.parametrize("pivot", [0, 4, -1])
def test_pivots_that_name_no_row_are_refused(pivot: int) -> None:
    pivots = tangrad.tensor([1, pivot, 3], dtype=tangrad.int32)
    with pytest.raises(
        RuntimeError, match=rf"between 1 and the number of rows, 3, but got {pivot}"
    ):
        tangrad.linalg.lu_solve(tangrad.eye(3), pivots, tangrad.ones(3, 1))
    with pytest.raises(RuntimeError, match="lu_factor"):
        tangrad.lu_unpack(tangrad.eye(3), pivots)


@pytest.mark.parametrize("n", [2, 20, 100])
def test_a_singular_matrix_has_a_number_and_an_error(n: int) -> None:
    a = tangrad.from_numpy(drawn(n, "float64", 3, n, n))
    a[1, :, n - 2] = 0
    info = tangrad.linalg.lu_factor_ex(a).info
    assert info.tolist() == [0, n - 1, 0]
    assert info.dtype == tangrad.int32
    x, info = tangrad.linalg.solve_ex(a, a)
    assert info.tolist() == [0, n - 1, 0]
    assert x[1].isnan().all()
    assert not x[0].isnan().any()
    inverse, info = tangrad.linalg.inv_ex(a)
    assert info.tolist() == [0, n - 1, 0]
    assert not inverse[2].isnan().any()
    assert tangrad.linalg.det(a)[1] == 0
    assert [x[1].item() for x in tangrad.linalg.slogdet(a)] == [0, -float("inf")]
    error = tangrad.linalg.LinAlgError
    with pytest.raises(error, match=r"^torch.linalg.solve: \(Batch element 1\): The solver failed"):
        tangrad.linalg.solve(a, a)
    with pytest.raises(error, match=rf"\(Batch element 1\): The diagonal element {n - 1} is zero"):
        tangrad.linalg.inv(a)
    with pytest.raises(error, match=rf"lu_factor: \(Batch .*: U\[{n - 1},{n - 1}\] is zero"):
        tangrad.linalg.lu_factor(a)
    with pytest.raises(error, match=r"^linalg.inv: The diagonal"):
        tangrad.linalg.inv(a[1])


@pytest.mark.parametrize("n", [3, 40])
def test_nan_spreads_and_is_not_singular(n: int) -> None:
    a = drawn(n, "float32", n, n)
    a[1, 0] = np.nan
    a[0, 0] = 0
    assert tangrad.linalg.inv(tangrad.from_numpy(a)).isnan().any()
    assert tangrad.linalg.det(tangrad.from_numpy(a)).isnan()


@pytest.mark.parametrize("n", [4, 40])
def test_pivots_of_which_the_reciprocal_overflows(n: int) -> None:
    tiny = np.eye(n, dtype="float32") * np.float32(1e-40)
    tiny[0, 1] = 1e-41
    x = tangrad.linalg.solve(tangrad.from_numpy(tiny), tangrad.from_numpy(tiny))
    np.testing.assert_allclose(x.numpy(), np.eye(n), atol=1e-3)


def test_results_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    a, b = (tangrad.from_numpy(drawn(i, "float32", 300, 300)) for i in range(2))
    many = tangrad.from_numpy(drawn(2, "float64", 20, 70, 70))
    found = []
    try:
        for threads in (1, 2, 5):
            tangrad.set_num_threads(threads)
            lu = tangrad.linalg.lu_factor(a)
            results = [*lu, tangrad.linalg.solve(a, b), tangrad.linalg.inv(a)]
            results += [tangrad.linalg.cholesky(a @ a.T + 300 * tangrad.eye(300))]
            results += [tangrad.linalg.inv(many), tangrad.linalg.solve_triangular(a, b, upper=True)]
            found.append([x.numpy().tobytes() for x in results])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error() -> None:
    a = tangrad.from_numpy(drawn(1, "float32", 2, 40, 40))
    definite = a @ a.mT + tangrad.eye(40)
    calls = [
        lambda: tangrad.linalg.solve(a, a),
        lambda: tangrad.linalg.inv(a),
        lambda: tangrad.linalg.lu_factor(a),
        lambda: tangrad.linalg.det(a),
        lambda: tangrad.linalg.solve_triangular(a, a, upper=True),
        lambda: tangrad.linalg.cholesky(definite),
        lambda: tangrad.cholesky_solve(a, a),
        lambda: tangrad.cholesky_inverse(a),
    ]
    for call in calls:
        _kernels.fail_scratch_after(0)
        try:
            with pytest.raises(MemoryError, match="working space"):
                call()
        finally:
            _kernels.fail_scratch_after(-1)
        call()


LEVEL = """
import numpy as np, tangrad
for dtype in ("float32", "float64"):
    for n in (5, 30, 90):
        a = np.random.default_rng(n).standard_normal((n, n)).astype(dtype)
        A, limit = tangrad.from_numpy(a), 20 * n * np.finfo(dtype).eps
        for x in (tangrad.linalg.inv(A), tangrad.linalg.solve(A, tangrad.eye(n, dtype=A.dtype))):
            x = x.double().numpy()
            scale = np.abs(a).sum(1).max() * np.abs(x).max()
            assert np.abs(a @ x - np.eye(n)).max() <= limit * scale
        definite = a @ a.T + n * np.eye(n, dtype=dtype)
        low = tangrad.linalg.cholesky(tangrad.from_numpy(definite)).double().numpy()
        assert np.abs(low @ low.T - definite).max() <= limit * np.abs(definite).sum(1).max()
"""


@pytest.mark.parametrize("level", [name for name, runs in _kernels.levels().items() if runs])
def test_every_level(level: str) -> None:
    environment = {**os.environ, "TANGRAD_CPU_ISA": level}
    subprocess.run([sys.executable, "-c", LEVEL], env=environment, check=True, timeout=120)
