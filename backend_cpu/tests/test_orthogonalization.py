"""QR factors: orthonormal columns and small residuals for any size, stride and scale."""

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

# Householder's factorization is backward stable with about max(m, n) eps (Higham, "Accuracy and
# Stability of Numerical Algorithms", 19.3); the factor is for the constant that bound leaves open.
FACTOR = 20
SIZES = st.sampled_from([1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100])
DTYPES = st.sampled_from(["float32", "float64"])
BATCHES = st.sampled_from([(), (3,), (2, 2), (0,)])


def drawn(seed: int, dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def check(a: tangrad.Tensor, q: tangrad.Tensor, r: tangrad.Tensor, scale: float = 1.0) -> None:
    """Assert that Q R is A, Q's columns are orthonormal, and R is a triangle."""
    limit = FACTOR * max(a.shape[-2:]) * np.finfo(str(a.dtype).rpartition(".")[2]).eps
    wide, left, right = (x.double().numpy() for x in (a, q, r))
    gram = left.swapaxes(-1, -2) @ left - np.eye(left.shape[-1])
    residual = left @ right - wide
    assert np.abs(gram).max(initial=0) <= limit
    assert np.abs(residual).max(initial=0) <= limit * scale * np.abs(wide).max(initial=0)
    assert not np.tril(right, -1).any()


@settings(max_examples=200, deadline=None)
@given(SIZES, SIZES, DTYPES, BATCHES, st.sampled_from(["reduced", "complete"]), st.booleans())
def test_factors(m: int, n: int, dtype: str, batch: Any, mode: str, turned: bool) -> None:
    given_ = tangrad.from_numpy(drawn(m, dtype, *batch, *((n, m) if turned else (m, n))))
    a = given_.mT if turned else given_
    q, r = tangrad.linalg.qr(a, mode)
    rows = m if mode == "complete" else min(m, n)
    assert q.shape == (*batch, m, rows)
    assert r.shape == (*batch, rows, n)
    check(a, q, r)
    alone = tangrad.linalg.qr(a, "r")
    assert alone.Q.shape == (0,)
    assert alone.R.equal(r[..., : min(m, n), :])
    factors, tau = tangrad.geqrf(a)
    assert factors.triu()[..., : min(m, n), :].equal(alone.R)
    if m >= n:
        made = tangrad.linalg.householder_product(factors, tau)
        near = FACTOR * m * np.finfo(dtype).eps
        expected = tangrad.linalg.qr(a).Q.numpy()
        np.testing.assert_allclose(made.numpy(), expected, rtol=0, atol=near)


@settings(max_examples=100, deadline=None)
@given(SIZES, SIZES, SIZES, DTYPES, BATCHES, st.booleans())
def test_products_of_any_reflections(
    m: int, n: int, k: int, dtype: str, batch: Any, turned: bool
) -> None:
    n, k = min(m, n), min(m, n, k)
    a = drawn(m, dtype, *batch, *((n, m) if turned else (m, n)))
    a = tangrad.from_numpy(a).mT if turned else tangrad.from_numpy(a)
    # As of reflections: 2 / |v|^2, but for every other one, which is no reflection then.
    squares = 1 + (a.double() ** 2).tril(-1).sum(-2)[..., :k]
    tau = (2 / squares * tangrad.where(tangrad.arange(k) % 2 == 0, 1.0, 0.5)).to(a.dtype)
    tau = tangrad.stack([tau, tau], -1)[..., 0] if turned else tau
    got = tangrad.linalg.householder_product(a, tau)
    assert got.shape == (*batch, m, n)
    exact = tangrad.linalg.householder_product(
        a.double().to("reference"), tau.double().to("reference")
    )
    limit = FACTOR * m * np.finfo(dtype).eps
    np.testing.assert_allclose(got.double().numpy(), exact.cpu().numpy(), rtol=0, atol=limit)


def test_products_of_no_reflections_are_identities() -> None:
    a = tangrad.full((2, 5, 3), float("nan"))
    got = tangrad.linalg.householder_product(a, tangrad.zeros(2, 0))
    assert got.equal(tangrad.eye(5, 3).expand(2, 5, 3))
    assert tangrad.linalg.householder_product(a[:, :, :0], tangrad.zeros(2, 0)).shape == (2, 5, 0)


@pytest.mark.parametrize("scale", [1e-36, 1e-25, 1e25, 1e36])
def test_columns_of_which_the_squares_vanish_or_overflow(scale: float) -> None:
    a = tangrad.from_numpy(drawn(1, "float32", 40, 40) * np.float32(scale))
    check(a, *tangrad.linalg.qr(a))


def test_columns_that_are_zero_or_multiples() -> None:
    a = drawn(1, "float64", 50, 40)
    a[:, 3] = 0
    a[:, 30] = 2 * a[:, 7]
    a[1:, 0] = 0
    x = tangrad.from_numpy(a)
    q, r = tangrad.linalg.qr(x)
    check(x, q, r)
    assert r[0, 0] == a[0, 0]  # a column with nothing below its first element is not reflected
    identity = tangrad.eye(5)
    assert all(f.equal(identity) for f in tangrad.linalg.qr(identity))


@pytest.mark.parametrize("shape", [(20, 0), (0, 20), (0, 0)])
def test_empty_matrices(shape: tuple[int, int]) -> None:
    q, r = tangrad.linalg.qr(tangrad.zeros(*shape), "complete")
    assert q.equal(tangrad.eye(shape[0]))
    assert r.shape == shape
    assert tangrad.geqrf(tangrad.zeros(*shape))[1].shape == (0,)


def test_nan_spreads() -> None:
    a = drawn(1, "float32", 40, 40)
    a[20, 5] = np.nan
    q, r = tangrad.linalg.qr(tangrad.from_numpy(a))
    assert q.isnan().any()
    assert r[5, 5].isnan()


def test_results_of_other_strides() -> None:
    a = tangrad.from_numpy(drawn(1, "float64", 20, 12))
    q, r = tangrad.linalg.qr(a)
    out = tangrad.zeros(12, 20, dtype=a.dtype).T, tangrad.zeros(12, 24, dtype=a.dtype)[:, ::2]
    tangrad.linalg.qr(a, out=out)
    assert out[0].equal(q)
    assert out[1].equal(r)


def test_results_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    a = tangrad.from_numpy(drawn(1, "float32", 400, 300))
    many = tangrad.from_numpy(drawn(2, "float64", 30, 50, 40))
    found = []
    try:
        for threads in (1, 2, 5):
            tangrad.set_num_threads(threads)
            factors = tangrad.geqrf(a)
            results = [*tangrad.linalg.qr(a), *tangrad.linalg.qr(many), *factors]
            results.append(tangrad.linalg.householder_product(*factors))
            found.append([x.numpy().tobytes() for x in results])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error() -> None:
    a = tangrad.from_numpy(drawn(1, "float32", 300, 300))
    tau = tangrad.ones(300)
    for call in (
        lambda: tangrad.linalg.qr(a),
        lambda: tangrad.geqrf(a),
        lambda: tangrad.linalg.householder_product(a, tau),
    ):
        for calls in (0, 1, 4):
            _kernels.fail_scratch_after(calls)
            try:
                with pytest.raises(MemoryError, match="working space"):
                    call()
            finally:
                _kernels.fail_scratch_after(-1)
        call()


LEVEL = """
import numpy as np, tangrad
for dtype in ("float32", "float64"):
    for m, n in ((5, 3), (40, 33), (70, 90)):
        a = np.random.default_rng(n).standard_normal((m, n)).astype(dtype)
        q, r = (x.double().numpy() for x in tangrad.linalg.qr(tangrad.from_numpy(a)))
        assert np.abs(q @ r - a).max() <= 20 * max(m, n) * np.finfo(dtype).eps * np.abs(a).max()
        assert np.abs(q.T @ q - np.eye(len(r))).max() <= 20 * max(m, n) * np.finfo(dtype).eps
"""


@pytest.mark.parametrize("level", [name for name, runs in _kernels.levels().items() if runs])
def test_every_level(level: str) -> None:
    environment = {**os.environ, "TANGRAD_CPU_ISA": level}
    subprocess.run([sys.executable, "-c", LEVEL], env=environment, check=True, timeout=120)
