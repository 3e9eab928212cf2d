"""Eigenvalues and singular values of stacks: LAPACK's, whatever the strides, sizes and threads."""

from __future__ import annotations

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


def test_results_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    a = tangrad.from_numpy(drawn(1, "float32", 200, 9, 9))
    found = []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            results = [*tangrad.linalg.eigh(a), *tangrad.linalg.svd(a)]
            found.append([x.numpy().tobytes() for x in results])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error() -> None:
    a = tangrad.from_numpy(drawn(1, "float32", 3, 9, 9))
    for call in (lambda: tangrad.linalg.eigh(a), lambda: tangrad.linalg.svd(a)):
        _kernels.fail_scratch_after(0)
        try:
            with pytest.raises(MemoryError, match="working space"):
                call()
        finally:
            _kernels.fail_scratch_after(-1)
