"""Eigenvalues and singular values of stacks: LAPACK's, whatever the strides, sizes and threads."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad_cpu import _kernels

# Both factorizations are backward stable (LAPACK Users' Guide, 4.7 and 4.9), with a constant that
# grows slowly; the factor leaves room for it.
FACTOR = 20
DTYPES = st.sampled_from(["float32", "float64"])
SIZES = st.sampled_from([1, 2, 3, 8, 17, 40, 70])
BATCHES = st.sampled_from([(), (5,), (2, 3), (0,)])


def drawn(seed: int, dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def near(dtype: str, n: int, scale: float) -> float:
    return float(FACTOR * n * np.finfo(dtype).eps * max(scale, 1))


@settings(max_examples=60, deadline=None)
@given(SIZES, DTYPES, BATCHES, st.sampled_from("LU"), st.booleans())
def test_eigenvectors(n: int, dtype: str, batch: Any, triangle: Any, turned: bool) -> None:
    a = drawn(n, dtype, *batch, n, n)
    given_ = tangrad.from_numpy(a.swapaxes(-1, -2).copy()).mT if turned else tangrad.from_numpy(a)
    values, vectors = tangrad.linalg.eigh(given_, triangle)
    half = np.tril(a) if triangle == "L" else np.triu(a)
    whole = half + half.swapaxes(-1, -2) - np.eye(n) * a
    v, w = vectors.double().numpy(), values.double().numpy()
    limit = near(dtype, n, np.abs(whole).max(initial=0))
    assert np.abs(whole @ v - v * w[..., None, :]).max(initial=0) <= limit
    assert np.abs(v.swapaxes(-1, -2) @ v - np.eye(n)).max(initial=0) <= near(dtype, n, 1)
    assert (np.diff(w, axis=-1) >= 0).all()
    alone = tangrad.linalg.eigvalsh(given_, triangle).double().numpy()
    assert np.abs(alone - w).max(initial=0) <= limit


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, DTYPES, BATCHES, st.booleans(), st.booleans())
def test_singular_vectors(m: int, n: int, dtype: str, batch: Any, full: bool, turned: bool) -> None:
    a = drawn(n, dtype, *batch, m, n)
    given_ = tangrad.from_numpy(a.swapaxes(-1, -2).copy()).mT if turned else tangrad.from_numpy(a)
    u, s, vh = (x.double().numpy() for x in tangrad.linalg.svd(given_, full))
    k = min(m, n)
    assert u.shape == (*batch, m, m if full else k)
    assert vh.shape == (*batch, n if full else k, n)
    limit = near(dtype, max(m, n), np.abs(a).max(initial=0))
    assert np.abs((u[..., :k] * s[..., None, :]) @ vh[..., :k, :] - a).max(initial=0) <= limit
    for basis in (u, vh.swapaxes(-1, -2)):
        gram = basis.swapaxes(-1, -2) @ basis - np.eye(basis.shape[-1])
        assert np.abs(gram).max(initial=0) <= near(dtype, max(m, n), 1)
    assert (np.diff(s, axis=-1) <= 0).all()
    alone = tangrad.linalg.svdvals(given_).double().numpy()
    assert np.abs(alone - s).max(initial=0) <= limit


@settings(max_examples=60, deadline=None)
@given(SIZES, DTYPES, BATCHES, st.booleans())
def test_eigenvectors_of_general_matrices(n: int, dtype: str, batch: Any, turned: bool) -> None:
    a = drawn(n, dtype, *batch, n, n)
    given_ = tangrad.from_numpy(a.swapaxes(-1, -2).copy()).mT if turned else tangrad.from_numpy(a)
    values, vectors = tangrad.linalg.eig(given_)
    assert values.dtype == vectors.dtype == given_.to(tangrad.complex64).dtype or dtype == "float64"
    w, v = values.numpy().astype(complex), vectors.numpy().astype(complex)
    limit = near(dtype, n, np.abs(a).max(initial=0))
    assert np.abs(a @ v - v * w[..., None, :]).max(initial=0) <= limit
    assert np.abs(np.linalg.norm(v, axis=-2) - 1).max(initial=0) <= near(dtype, n, 1)
    alone = tangrad.linalg.eigvals(given_).numpy()
    for found, wanted in zip(alone.reshape((-1, n)), w.reshape((-1, n)), strict=True):
        distances = np.abs(found[:, None] - wanted).min(0)
        assert distances.max() <= 100 * limit


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, DTYPES, BATCHES, st.booleans(), st.booleans())
def test_pseudoinverses(
    m: int, n: int, dtype: str, batch: Any, hermitian: bool, turned: bool
) -> None:
    a = drawn(n, dtype, *batch, n if hermitian else m, n)
    a = a + a.swapaxes(-1, -2) if hermitian else a
    given_ = tangrad.from_numpy(a.swapaxes(-1, -2).copy()).mT if turned else tangrad.from_numpy(a)
    found = tangrad.linalg.pinv(given_, rtol=1e-3, hermitian=hermitian).double().numpy()
    wanted = np.linalg.pinv(a.astype("float64"), rcond=1e-3)
    # Relative to the condition that the tolerance allows.
    limit = 1e4 * near(dtype, max(m, n), np.abs(wanted).max(initial=0))
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max(initial=0) <= limit


def test_pseudoinverses_leave_out_small_values() -> None:
    a = tangrad.tensor([[1.0, 0.0], [0.0, 1e-4]])
    assert tangrad.linalg.pinv(a, rtol=1e-3).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    stack = tangrad.stack((a, a))
    found = tangrad.linalg.pinv(stack, atol=tangrad.tensor([1e-3, 1e-6]))
    assert found.select(0, 0).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert float(found[1, 1, 1]) == pytest.approx(1e4)


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, st.sampled_from([0, 1, 5]), DTYPES, BATCHES, st.booleans())
def test_least_squares(m: int, n: int, columns: int, dtype: str, batch: Any, turned: bool) -> None:
    a, b = drawn(n, dtype, *batch, m, n), drawn(m, dtype, *batch, m, columns)
    given_ = tangrad.from_numpy(a.swapaxes(-1, -2).copy()).mT if turned else tangrad.from_numpy(a)
    x, residuals, rank, values = tangrad.linalg.lstsq(given_, tangrad.from_numpy(b))
    wanted = np.linalg.pinv(a.astype("float64")) @ b
    scale = np.abs(np.linalg.pinv(a.astype("float64"))).max(initial=0)
    assert tuple(x.shape) == wanted.shape
    limit = near(dtype, max(m, n), np.abs(wanted).max(initial=0)) * max(1, scale) * 50
    assert np.abs(x.numpy() - wanted).max(initial=0) <= limit
    assert rank.shape == batch
    assert columns == 0 or (rank == min(m, n)).all()
    assert residuals.shape == values.shape == (0,)


def test_least_squares_tell_the_rank() -> None:
    a = tangrad.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    x, _, rank, _ = tangrad.linalg.lstsq(a, tangrad.ones(3, 1))
    assert rank.tolist() == 2 - 1
    assert x.numpy() == pytest.approx(np.linalg.pinv(a.numpy()) @ np.ones((3, 1)), rel=1e-5)


def test_small_matrices_leave_the_threads_of_lapack_as_they_are() -> None:
    from tangrad.devices.lapack import library_threads

    threads = library_threads()
    if threads is None:
        pytest.skip("LAPACK tells no number of threads")
    before = threads.get()
    try:
        threads.put(3)
        for _ in range(2):
            tangrad.linalg.svd(tangrad.rand(9, 9))
            tangrad.linalg.lstsq(tangrad.rand(9, 9, dtype=tangrad.complex64), tangrad.eye(9) + 0j)
            assert threads.get() == 3
        threads.put(1)
        tangrad.linalg.eigh(tangrad.eye(3))
        assert threads.get() == 1
    finally:
        threads.put(before)


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (2, 0, 0)])
def test_empty_matrices_have_bases_of_identities(shape: Any) -> None:
    u, s, vh = tangrad.linalg.svd(tangrad.zeros(*shape))
    assert s.shape == (*shape[:-2], 0)
    assert u.equal(tangrad.eye(shape[-2]).expand_as(u))
    assert vh.equal(tangrad.eye(shape[-1]).expand_as(vh))


def test_numbers_that_are_not_finite_are_an_error() -> None:
    a = tangrad.full((3, 4, 4), float("nan"))
    for name in ("eigh", "eigvalsh", "svd", "svdvals"):
        with pytest.raises(tangrad.linalg.LinAlgError, match="failed to converge"):
            getattr(tangrad.linalg, name)(a)
    for name in ("eig", "eigvals"):
        with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
            getattr(tangrad.linalg, name)(a)


def test_results_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    a = tangrad.from_numpy(drawn(1, "float32", 200, 9, 9))
    found = []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            results = [*tangrad.linalg.eigh(a), *tangrad.linalg.svd(a), *tangrad.linalg.eig(a)]
            results += [tangrad.linalg.pinv(a), tangrad.linalg.lstsq(a, a).solution]
            found.append([x.numpy().tobytes() for x in results])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error() -> None:
    a = tangrad.from_numpy(drawn(1, "float32", 3, 9, 9))
    names = tangrad.linalg.eigh, tangrad.linalg.svd, tangrad.linalg.eig, tangrad.linalg.pinv
    for call in (*(partial(f, a) for f in names), lambda: tangrad.linalg.lstsq(a, a)):
        _kernels.fail_scratch_after(0)
        try:
            with pytest.raises(MemoryError, match="working space"):
                call()
        finally:
            _kernels.fail_scratch_after(-1)


@settings(max_examples=60, deadline=None)
@given(SIZES, DTYPES, BATCHES, st.booleans(), st.booleans())
def test_symmetric_factors_are_lapacks(
    n: int, dtype: str, batch: Any, turned: bool, hermitian: bool
) -> None:
    a = drawn(n, dtype, *batch, n, n)
    given_ = tangrad.from_numpy(a.swapaxes(-1, -2).copy()).mT if turned else tangrad.from_numpy(a)
    got = tangrad.linalg.ldl_factor_ex(given_, hermitian=hermitian)
    expected = tangrad.linalg.ldl_factor_ex(given_.to("reference"), hermitian=hermitian)
    assert got.LD.equal(expected.LD.cpu())
    assert got.pivots.equal(expected.pivots.cpu())
    assert got.info.equal(expected.info.cpu())
    assert got.pivots.dtype == got.info.dtype == tangrad.int32
    x = tangrad.linalg.ldl_solve(got.LD, got.pivots, tangrad.eye(n, dtype=got.LD.dtype))
    lower = np.tril(a).astype(float)
    whole = lower + np.tril(lower, -1).swapaxes(-1, -2)
    inverse = x.double().numpy()
    near_ = near(dtype, n, np.abs(whole).max(initial=0) * np.abs(inverse).max(initial=0))
    assert np.abs(whole @ inverse - np.eye(n)).max(initial=0) <= near_


def test_a_singular_block_of_symmetric_factors_is_refused() -> None:
    a = tangrad.eye(3).repeat(2, 2, 1, 1)
    a[1, 0, 1, 1] = 0
    assert tangrad.linalg.ldl_factor_ex(a).info.tolist() == [[0, 0], [2, 0]]
    told = r"\(Batch element 1, 0\): D\[2,2\] is zero and using it on ldl_solve"
    with pytest.raises(tangrad.linalg.LinAlgError, match=told):
        tangrad.linalg.ldl_factor(a)
    nothing = tangrad.linalg.ldl_factor_ex(tangrad.zeros(3, 0, 0))
    assert nothing.info.tolist() == [0, 0, 0]


def test_others_keep_the_threads_of_lapack_while_tiny_matrices_are_worked_on() -> None:
    from tangrad.devices.lapack import library_threads

    threads = library_threads()
    if threads is None:
        pytest.skip("LAPACK tells no number of threads")
    before, x = threads.get(), tangrad.rand(4000, 12, 12)
    x = x + x.mT
    work = [
        threading.Thread(target=function, args=(x,))
        for function in (tangrad.linalg.eigh, tangrad.linalg.svd)
    ]
    try:
        threads.put(3)
        seen = set()
        for each in work:
            each.start()
            while each.is_alive():
                seen.add(threads.get())
            each.join()
    finally:
        threads.put(before)
    assert seen == {3}
