"""What samples cannot say of linear algebra: other libraries beneath, phases, errors' places."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad import nn
from tangrad.devices import lapack, lapack_least_squares, lapack_spectral

TYPES = ("float32", "float64", "complex64", "complex128")


def draw(dtype, *shape, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * generator.standard_normal(shape)
    return x.astype(dtype)


def close(a, b):
    single = np.result_type(a) in (np.float32, np.complex64)
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-3 if single else 1e-8)


@pytest.fixture(params=["lapack", "numpy"])
def library(request, monkeypatch):
    """Run with the LAPACK behind NumPy, and as if there were none."""
    if request.param == "numpy":
        for module in (lapack, lapack_spectral):
            monkeypatch.setattr(module, "routine", lambda stem, dtype: None)
    elif lapack._library() is None:
        pytest.skip("this NumPy shows no LAPACK")
    with np.errstate(all="ignore"):  # as the reference device runs every kernel
        yield request.param


def adjoint(a):
    return a.conj().swapaxes(-1, -2)


@pytest.mark.parametrize("dtype", TYPES)
def test_triangular_factors_multiply_to_the_matrix(library, dtype):
    a = draw(dtype, 2, 5, 5)
    definite = a @ adjoint(a) + np.eye(5, dtype=dtype)
    for upper in (False, True):
        factor, info = lapack.cholesky(np, definite, upper)
        assert not info.any()
        close(adjoint(factor) @ factor if upper else factor @ adjoint(factor), definite)
        close(lapack.cholesky_inverse(np, factor, upper) @ definite, 0 * a + np.eye(5))
    assert (lapack.cholesky(np, -definite, False)[1] == 1).all()
    for m, n in ((5, 5), (6, 3), (3, 6)):
        matrix = draw(dtype, m, n)
        lu, pivots, info = lapack.lu_factor(np, matrix)
        k = min(m, n)
        low = np.tril(lu[:, :k], -1) + np.eye(m, k)
        close(matrix[lapack.permutation(np, pivots, m)], low @ np.triu(lu[:k]))


@pytest.mark.parametrize("dtype", TYPES)
def test_solutions_solve(library, dtype):
    a, b = draw(dtype, 2, 5, 5) + 4 * np.eye(5, dtype=dtype), draw(dtype, 2, 5, 3)
    close(a @ lapack.solve(np, a, b)[0], b)
    close(a @ lapack.inverse(np, a)[0], 0 * a + np.eye(5))
    lu, pivots, _ = lapack.factored(np, a[0])
    for trans, matrix in (("N", a[0]), ("T", a[0].T), ("C", adjoint(a[0]))):
        close(matrix @ lapack.lu_solved(np, lu, pivots, b[0], trans), b[0])
    for upper in (False, True):
        half = (np.triu if upper else np.tril)(a)
        for given_ in (a, np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)):
            close(half @ lapack.solve_triangular(np, given_, b, upper, True, False), b)
            other = lapack.solve_triangular(np, given_, adjoint(b), upper, False, False)
            close(other @ half, adjoint(b))


@pytest.mark.parametrize("dtype", TYPES)
def test_orthogonal_factors_multiply_to_the_matrix(library, dtype):
    for m, n in ((6, 4), (5, 5), (3, 5)):
        a = draw(dtype, 2, m, n)
        for rows in {min(m, n), m}:
            q, r = lapack.qr(np, a, rows)
            close(q @ r, a)
            close(adjoint(q) @ q, np.broadcast_to(np.eye(rows), (2, rows, rows)).astype(dtype))
        if m < n:
            continue
        reflectors, tau = lapack.geqrf(np, a)
        thin = lapack.householder_product(np, reflectors, tau)
        close(thin @ np.triu(reflectors)[:, :n], a)
        eye = np.broadcast_to(np.eye(m, dtype=dtype), (2, m, m))
        full = lapack.multiply_by_q(np, reflectors, tau, eye, True, False)
        c, d = draw(dtype, 2, m, 3), draw(dtype, 2, 3, m)
        close(lapack.multiply_by_q(np, reflectors, tau, c, True, True), adjoint(full) @ c)
        close(lapack.multiply_by_q(np, reflectors, tau, d, False, False), d @ full)
        close(lapack.multiply_by_q(np, reflectors, tau, d, False, True), d @ adjoint(full))


@pytest.mark.parametrize("dtype", TYPES)
def test_spectral_factors_multiply_to_the_matrix(library, dtype):
    a = draw(dtype, 2, 5, 5)
    hermitian = a + adjoint(a)
    for upper in (False, True):
        values, vectors = lapack_spectral.eigh(np, hermitian, upper, True)
        close(hermitian @ vectors, vectors * values[:, None])
        close(lapack_spectral.eigh(np, hermitian, upper, False)[0], values)
    values, vectors = lapack_spectral.eig(np, a, True)
    close(a @ vectors, vectors * values[:, None])
    for m, n in ((5, 3), (3, 5), (4, 4)):
        matrix = draw(dtype, 2, m, n)
        for full in (False, True):
            u, s, vh = lapack_spectral.svd(np, matrix, full, True)
            k = min(m, n)
            close(u[..., :k] * s[:, None] @ vh[:, :k], matrix)
            close(
                adjoint(u) @ u, np.broadcast_to(np.eye(u.shape[-1]), u.shape[:1] + u.shape[-1:] * 2)
            )
        close(lapack_spectral.svd(np, matrix, False, False)[1], s)
    sign, size = lapack_spectral.slogdet(np, a)
    close(sign * np.exp(size), np.linalg.det(a))
    close(lapack_spectral.det(np, a), np.linalg.det(a))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_by_every_driver(library, driver, dtype):
    for m, n in ((6, 4), (4, 6), (5, 5)):
        a, b = draw(dtype, 2, m, n), draw(dtype, 2, m, 3)
        x, rank, _ = lapack_least_squares.lstsq(np, a, b, 1e-6, driver)
        close(x, np.linalg.pinv(a) @ b)
        assert (rank == min(m, n)).all()


def test_a_singular_matrix_of_a_batch_is_named():
    a = tangrad.eye(2).repeat(3, 1, 1)
    a[1] = 0
    for function in (tangrad.linalg.inv, tangrad.linalg.cholesky, tangrad.linalg.lu_factor):
        with pytest.raises(tangrad.linalg.LinAlgError, match="Batch element 1"):
            function(a)
    assert tangrad.linalg.inv_ex(a).info.tolist() == [0, 1, 0]
    assert issubclass(tangrad.linalg.LinAlgError, RuntimeError)


def test_loss_that_depends_on_a_phase_is_refused():
    a = tangrad.from_numpy(draw("complex128", 3, 3))
    a = (a + a.mH).requires_grad_()
    with pytest.raises(RuntimeError, match="ill-defined"):
        (tangrad.linalg.eigh(a).eigenvectors * 1j).real.sum().backward()
    tangrad.linalg.eigh(a).eigenvectors.abs().sum().backward()
    b = tangrad.from_numpy(draw("complex128", 3, 3)).requires_grad_()
    with pytest.raises(RuntimeError, match="ill-defined"):
        tangrad.linalg.svd(b).U.imag.sum().backward()
    with pytest.raises(RuntimeError, match="ill-defined"):
        tangrad.linalg.eig(b).eigenvectors.imag.sum().backward()


def test_gradients_that_do_not_depend_on_phases_are_torchs():
    a = draw("complex128", 4, 3)
    losses = (
        lambda lib, x: (lib.linalg.svd(x, full_matrices=False)[0].abs() ** 2)[0, 1],
        lambda lib, x: (lib.linalg.svd(x, full_matrices=False)[2].abs() ** 2)[2, 1],
        lambda lib, x: (lib.linalg.eigh(x.mH @ x)[1].abs() ** 2)[0, 1],
        lambda lib, x: (lib.linalg.eig(x.mH @ x)[1].abs() ** 2)[0].prod(),
    )
    for loss in losses:
        ours = tangrad.from_numpy(a).requires_grad_()
        theirs = torch.from_numpy(a).requires_grad_()
        loss(tangrad, ours).backward()
        loss(torch, theirs).backward()
        close(ours.grad.resolve_conj().numpy(), theirs.grad.resolve_conj().numpy())


def test_gradient_of_a_determinant_that_is_zero_is_the_cofactors():
    a = tangrad.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    tangrad.det(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), [[4, -2], [-2, 1]], atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (2, 0, 3, 3)])
def test_gradients_of_determinants_of_nothing_have_its_shape(shape):
    leaf = tangrad.zeros(shape, dtype=tangrad.float64, requires_grad=True)
    tangrad.det(leaf).sum().backward()
    assert leaf.grad.shape == shape


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_gradients_of_determinants_of_any_condition_are_the_cofactors(dtype):
    g = np.random.default_rng(3)
    a = g.standard_normal((12, 4, 4))
    a = a + 1j * g.standard_normal(a.shape) if dtype.startswith("complex") else a
    a[1, 2] = a[1, 0]  # of rank three
    a[2] = np.outer(a[2, 0], a[2, 1])  # of rank one: no cofactor is left
    a[3, 1] = a[3, 2] * (1 + 1e-6)
    a[4] *= 1e-9
    a[5], a[6] = 0, np.diag([1e-4, 1e4, 1e-3, 1e3])
    a = a.astype(dtype)
    wide = a.astype(np.result_type(dtype, np.longdouble))
    expected = np.empty(a.shape, wide.dtype)
    for i, j in np.ndindex(4, 4):
        rest = np.delete(np.delete(wide, i, 1), j, 2)
        minor = sum(
            rest[:, 0, k] * rest[:, 1, (k + 1) % 3] * rest[:, 2, (k + 2) % 3]
            - rest[:, 0, k] * rest[:, 1, (k + 2) % 3] * rest[:, 2, (k + 1) % 3]
            for k in range(3)
        )
        expected[:, i, j] = (-1) ** (i + j) * minor
    leaf = tangrad.from_numpy(a).requires_grad_()
    found = tangrad.autograd.grad(tangrad.det(leaf).sum().abs(), leaf)[0]
    total = np.linalg.det(wide.astype(np.result_type(dtype, np.float64))).sum()
    expected = (expected * (total.conj() / abs(total))[None]).conj()
    size = np.abs(wide).max((1, 2), keepdims=True) ** 3
    slack = 200 * np.finfo(dtype).eps
    assert (np.abs(found.numpy() - expected) <= slack * size + 1e-6 * abs(expected)).all()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=3, max_size=6), st.integers(0, 99))
def test_a_chain_of_matrices_is_their_product_in_any_order(sizes, seed):
    given_ = [draw("float64", a, b, seed=seed + i) for i, (a, b) in enumerate(pairwise(sizes))]
    expected = given_[0]
    for m in given_[1:]:
        expected = expected @ m
    close(tangrad.linalg.multi_dot([tangrad.from_numpy(m) for m in given_]).numpy(), expected)


def test_low_rank_factors_find_a_matrix_of_that_rank():
    a = draw("float64", 3, 9, 2) @ draw("float64", 3, 2, 7)
    for matrix in (a, a.swapaxes(-1, -2)):
        u, s, v = tangrad.svd_lowrank(tangrad.from_numpy(np.ascontiguousarray(matrix)), q=3)
        close((u * s.unsqueeze(-2) @ v.mH).numpy(), matrix)
    u, s, v = tangrad.pca_lowrank(tangrad.from_numpy(a), q=2)
    close((u * s.unsqueeze(-2) @ v.mH).numpy(), a - a.mean(-2, keepdims=True))
    with pytest.raises(ValueError, match="must be non-negative"):
        tangrad.pca_lowrank(tangrad.ones(2, 2), q=3)


def test_lobpcg_finds_the_eigenvalues_at_one_end(agree):
    def program(t, start, kw):
        a = t.from_numpy(draw("float64", 9, 9))
        a = (a @ a.mT).requires_grad_()
        x = None if start is None else t.from_numpy(draw("float64", 9, start))
        values, vectors = t.lobpcg(a, X=x, **kw)
        (gradient,) = t.autograd.grad(values.sum(), a)
        return values, vectors.abs(), gradient + gradient.mT

    for start, kw in ((None, {}), (None, {"k": 3}), (None, {"k": 2, "largest": False}), (2, {})):
        agree(lambda t, kw=kw, start=start: program(t, start, kw), tolerance=1e-6)
    a = tangrad.eye(9, dtype=tangrad.float64)
    b = tangrad.diag(tangrad.arange(1.0, 10.0, dtype=tangrad.float64))
    values, vectors = tangrad.lobpcg(a, 2, b)
    close(values.numpy(), [1, 1 / 2])
    close((vectors.mT @ b @ vectors).numpy(), np.eye(2))
    for kind, wrong in ((ValueError, {"k": 4}), (AssertionError, {"B": b[:3]})):
        with pytest.raises(kind):
            tangrad.lobpcg(a, **wrong)


def test_factorizations_go_through_transforms():
    a = tangrad.from_numpy(draw("float64", 4, 3, 3)) + 4 * tangrad.eye(3, dtype=tangrad.float64)
    inverse = tangrad.func.vmap(tangrad.linalg.inv)(a)
    assert tangrad.allclose(inverse, tangrad.linalg.inv(a))
    per_sample = tangrad.func.vmap(tangrad.func.grad(lambda m: tangrad.linalg.slogdet(m)[1]))(a)
    assert tangrad.allclose(per_sample, inverse.mT)
    singular = a.clone()
    singular[2] = 0
    with pytest.raises(tangrad.linalg.LinAlgError):
        tangrad.func.vmap(tangrad.linalg.inv)(singular)


def test_ldl_solve_takes_blocks_of_two() -> None:
    a = tangrad.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    factors, pivots = tangrad.linalg.ldl_factor(a)
    assert (pivots < 0).any()
    b = tangrad.tensor([[1.0], [2.0], [4.0]])
    assert tangrad.allclose(a @ tangrad.linalg.ldl_solve(factors, pivots, b), b, atol=1e-5)


@pytest.mark.parametrize("pivots", [[9, 1, 1], [1, 1, -3], [0, 0, 0], [-1, 2, 3], [1, -2, -9]])
def test_ldl_solve_writes_no_rows_that_are_not_there(pivots: list[int]) -> None:
    with pytest.raises(RuntimeError, match="not those of a matrix with 3 rows"):
        tangrad.linalg.ldl_solve(
            tangrad.eye(3), tangrad.tensor(pivots, dtype=tangrad.int32), tangrad.ones(3, 1)
        )


@pytest.mark.parametrize(("m", "k", "n"), [(5, 8, 1), (1, 5, 8), (7, 33, 5)])
def test_products_of_the_reference_do_not_depend_on_strides(m, k, n):
    generator = tangrad.Generator("reference").manual_seed(0)
    a = tangrad.randn(m, k, generator=generator, device="reference")
    b = tangrad.randn(k, n, generator=generator, device="reference")
    by_columns = [x.t().contiguous().t() for x in (a, b)]
    expected = a.mm(b)
    assert (by_columns[0].mm(b) == expected).all()
    assert (a.mm(by_columns[1]) == expected).all()
    assert (nn.functional.linear(a, by_columns[1].t()) == expected).all()
    one = a[:, :1]
    assert (one.expand(m, k).mm(b) == one.repeat(1, k).mm(b)).all()


def test_lobpcg_sees_both_triangles():
    a = [[4.0, 1.0, 0.5], [0.75, 3.0, 0.25], [0.25, 0.5, 2.0]]  # almost symmetric

    def program(t):
        A = t.tensor(a, dtype=t.float64)
        start = t.eye(3, 1, dtype=t.float64)
        return t.lobpcg(A, k=1, X=start)[0].item(), t.linalg.eigvalsh((A + A.mT) / 2)[-1].item()

    found, exact = program(tangrad)
    assert found == pytest.approx(exact, rel=1e-12)
    assert program(torch)[0] == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize(
    ("matrices", "right"),
    [
        ((1, 3, 3), (0, 3, 2)),
        ((3, 3), (0, 3, 3)),
        ((4, 4), (2, 0, 4, 2)),
        ((0, 1, 3, 3), (1, 3, 2)),
        ((2, 1, 3, 3), (2, 3, 3, 1)),
        ((1, 2, 3, 3), (4, 1, 3, 1)),
    ],
)
def test_systems_of_expanded_matrices_have_one_number_each(matrices, right):
    def program(lib):
        count = math.prod(matrices)
        A = lib.arange(float(count)).cos().reshape(matrices)
        if count > 9 and 0 not in right:
            A[..., -1, :, :][..., -1, :] = 0.0
        found, info = lib.linalg.solve_ex(A, lib.ones(right))
        return tuple(found.shape), info.tolist()

    assert program(tangrad) == program(torch)


@pytest.mark.parametrize("p", [None, "fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2])
def test_singular_matrices_have_no_finite_condition(p):
    for values in ([[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]], [[2.0, 4.0], [4.0, 8.0]]):
        ours, theirs = (
            lib.linalg.cond(lib.tensor(values, dtype=lib.float64), p) for lib in (tangrad, torch)
        )
        assert (
            str(ours.item()) == str(theirs.item())
            or abs(theirs.item()) < 1e-6
            or (theirs.item() > 1e15)
        )
