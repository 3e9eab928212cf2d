"""LAPACK for the references of linear algebra: the routines that `numpy.linalg` does not show.

NumPy brings a LAPACK along (OpenBLAS in its wheels). Its routines are found through the extension
module that NumPy links with them and called by ctypes, which gives up the GIL. Where none is
found, plain NumPy code takes over: slower, the same results up to rounding.

All functions take and return C-contiguous or strided arrays of shape (..., m, n) in float32,
float64, complex64 or complex128, and loop over the leading dimensions. LAPACK's matrices lie
column by column; a row-major matrix is to it the transposed one, which most functions use instead
of copying.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tangrad.devices.lapack_threads import LARGE, OneThread, one_thread_of

# How builds of LAPACK name a routine: NumPy's wheels, ILP64 libraries, and the usual.
_PATTERNS = ("scipy_{}_64_", "{}_64_", "{}_")
_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_COMPLEX_NAMES = {"orgqr": "ungqr", "ormqr": "unmqr"}


class LinAlgError(RuntimeError):
    """A matrix has no such factorization, inverse or solution, or an iteration did not converge."""

    __module__ = "tangrad.linalg"


@cache
def _library() -> Any:
    """Open the LAPACK behind NumPy: (library, pattern of names, integer type), or None."""
    import ctypes

    import numpy as np

    try:
        library = ctypes.CDLL(np.linalg._umath_linalg.__file__)
    except (OSError, AttributeError):
        return None
    for pattern in _PATTERNS:
        probe = getattr(library, pattern.format("dgetrf"), None)
        if probe is not None:
            return library, pattern, _integer_type(ctypes, np, probe)
    return None


def _integer_type(ctypes: Any, np: Any, getrf: Any) -> Any:
    """Tell whether a build's integers have 64 bits, by the pivots it writes for the identity."""
    matrix, pivots, two = np.eye(2), np.zeros(2, np.int64), ctypes.c_int64(2)
    by = ctypes.byref
    address = ctypes.c_void_p
    info = ctypes.c_int64(0)
    getrf.restype = None
    getrf(
        by(two),
        by(two),
        address(matrix.ctypes.data),
        by(two),
        address(pivots.ctypes.data),
        by(info),
    )
    return ctypes.c_int64 if pivots[1] == 2 else ctypes.c_int32


def routine_code(stem: str, dtype: str) -> Any:
    """Return a routine as ctypes has it, or None."""
    found, letter = _library(), _LETTERS[dtype]
    name = _COMPLEX_NAMES.get(stem, stem) if letter in "cz" else stem
    return getattr(found[0], found[1].format(letter + name), None) if found else None


@cache
def library_threads() -> OneThread | None:
    """Return what limits the library to one thread; None where it is not OpenBLAS."""
    found = _library()
    return None if found is None else one_thread_of(found[0])


@cache
def routine(stem: str, dtype: str) -> Callable[..., int] | None:
    """Return a LAPACK or BLAS routine as a function, or None where there is no library.

    The function takes numbers, one-letter strings and arrays in the order of the Fortran routine,
    without its last argument `info`, whose value it returns (a BLAS routine, which has none,
    leaves it zero).

    Args:
        stem: the name without its letter for the type ("getrf"); real names of orthogonal ones.
        dtype: name of the matrices' type.
    """
    import ctypes

    function, found = routine_code(stem, dtype), _library()
    if function is None or found is None:
        return None
    integer = found[2]
    function.restype = None
    byref, address, length = ctypes.byref, ctypes.c_void_p, ctypes.c_size_t(1)
    threads = library_threads()

    def call(*arguments: Any) -> int:
        converted: list[Any] = []
        lengths = 0
        for a in arguments:
            if isinstance(a, int):
                converted.append(byref(integer(a)))
            elif isinstance(a, str):
                converted.append(a.encode())
                lengths += 1
            else:
                converted.append(address(a.__array_interface__["data"][0]))
        info = integer(0)
        converted.append(byref(info))
        # Fortran: the texts' lengths come last
        sizes = [x for x in arguments if isinstance(x, int)][:2]
        if threads is None or min(sizes) >= LARGE:
            function(*converted, *[length] * lengths)
        else:
            with threads:
                function(*converted, *[length] * lengths)
        return int(info.value)

    return call


@cache
def _integer_name() -> str:
    import ctypes

    found = _library()
    return "int64" if found is None or ctypes.sizeof(found[2]) == 8 else "int32"


def integers(np: Any, count: int) -> Any:
    """Return an array of the library's integers, for pivots."""
    return np.zeros(count, _integer_name())


_MANY = 512
_sizes: dict[Any, int] = {}  # workspace by routine and sizes of matrices: asking costs a call


def with_workspace(
    np: Any, run: Callable[..., int], array: Any, *before: Any, after: Any = ()
) -> int:
    """Run a routine with the workspace it asks for, which stands between its other arguments.

    Args:
        array: of the matrices' type, as which the workspace is made.
    """
    key = (run, *[x for x in before if isinstance(x, (int, str))])
    size = _sizes.get(key)
    if size is None:
        asked = np.zeros(1, array.dtype)
        run(*before, asked, -1, *after)
        if len(_sizes) >= _MANY:
            _sizes.clear()
        size = _sizes[key] = max(1, int(asked[0].real))
    return run(*before, np.empty(size, array.dtype), size, *after)


def _count(a: Any) -> int:
    n = 1
    for size in a.shape[:-2]:
        n *= size
    return n


_STRIP = 32  # rows of which a cache line each stays in the first-level cache


def column_major(np: Any, shape: tuple[int, int], dtype: Any) -> tuple[Any, int]:
    """Return memory for a matrix column by column, and how far its columns lie apart.

    Columns a power of two apart would share sets of the cache.
    """
    m, n = shape
    apart = m + 16 if m % 64 == 0 else max(m, 1)
    return np.empty((n, apart), dtype).T[:m], apart


def fill_columns(work: Any, matrix: Any) -> None:
    """Write a matrix into `column_major` memory, by strips: NumPy would read column by column."""
    for i in range(0, len(matrix), _STRIP):
        work[i : i + _STRIP] = matrix[i : i + _STRIP]


# --- triangular factors


def cholesky(np: Any, a: Any, upper: bool) -> tuple[Any, Any]:
    """Factor Hermitian matrices, of which one triangle is read (LAPACK potrf).

    Returns:
        The factors, and int32 numbers: 0, or the order of the first minor that is not positive.
    """
    batch, n = a.shape[:-2], a.shape[-1]
    factors = np.ascontiguousarray((np.triu if upper else np.tril)(a))
    info = np.zeros(batch, np.int32)
    stack, infos = factors.reshape((_count(a), n, n)), info.reshape(-1)
    potrf = routine("potrf", a.dtype.name)
    for k in range(len(stack) if n else 0):
        if potrf is not None:
            # To LAPACK this is the transposed matrix, so it is asked for the other triangle.
            infos[k] = potrf("L" if upper else "U", n, stack[k], n)
        else:
            infos[k] = _cholesky(np, stack[k], upper)
    return factors, info


def _cholesky(np: Any, a: Any, upper: bool) -> int:
    low = a.conj().T if upper else a
    for j in range(len(a)):
        pivot = low[j, j].real - (low[j, :j] * low[j, :j].conj()).sum().real
        if not pivot > 0:
            return j + 1
        low[j, j] = pivot**0.5
        low[j + 1 :, j] = (low[j + 1 :, j] - low[j + 1 :, :j] @ low[j, :j].conj()) / low[j, j]
    if upper:
        a[...] = low.conj().T
    return 0


def lu_factor(np: Any, a: Any) -> tuple[Any, Any, Any]:
    """Factor matrices with partial pivoting (LAPACK getrf).

    Returns:
        L below and U on and above the diagonal; int32 pivots, from one; int32 numbers: 0 or the
        first pivot that is zero.
    """
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    count = _count(a)
    lu = np.empty((count, m, n), a.dtype)
    pivots, info = np.zeros((count, min(m, n)), np.int32), np.zeros(count, np.int32)
    stack = a.reshape((count, m, n))
    for k in range(count if m and n else 0):
        lu[k], pivots[k], info[k] = factored(np, stack[k])
    return lu.reshape(a.shape), pivots.reshape((*batch, min(m, n))), info.reshape(batch)


def factored(np: Any, matrix: Any) -> tuple[Any, Any, int]:
    """Factor one matrix: (column-major LU, pivots as LAPACK's integers, info)."""
    m, n = matrix.shape
    work, pivots = np.array(matrix, order="F"), integers(np, min(m, n))
    getrf = routine("getrf", matrix.dtype.name)
    if getrf is not None:
        return work, pivots, getrf(m, n, work, max(1, m), pivots)
    info = 0
    for j in range(min(m, n)):
        p = j + int(np.argmax(np.abs(work[j:, j].real) + np.abs(work[j:, j].imag)))
        pivots[j] = p + 1
        if p != j:
            work[[j, p]] = work[[p, j]]
        if work[j, j] == 0:
            info = info or j + 1
            continue
        work[j + 1 :, j] /= work[j, j]
        work[j + 1 :, j + 1 :] -= np.outer(work[j + 1 :, j], work[j, j + 1 :])
    return work, pivots, info


def permutation(np: Any, pivots: Any, size: int) -> Any:
    """Return the order of rows that LAPACK's pivots mean: row i of P^T A is row order[i] of A."""
    order = np.arange(size)
    for j, p in enumerate(pivots):
        order[[j, p - 1]] = order[[p - 1, j]]
    return order


def lu_solved(np: Any, lu: Any, pivots: Any, b: Any, trans: str) -> Any:
    """Solve op(A) X = B by the factors of one matrix; "N", "T" or "C" says which op."""
    n, columns = lu.shape[-1], b.shape[-1]
    x = np.array(b, order="F")
    getrs = routine("getrs", lu.dtype.name)
    if getrs is not None:
        getrs(trans, n, columns, np.asfortranarray(lu), n, pivots, x, n)
        return x
    order = permutation(np, pivots, n)
    low, high = np.tril(lu, -1) + np.eye(n, dtype=lu.dtype), np.triu(lu)
    if trans == "N":
        return _substitute(np, high, _substitute(np, low, x[order], False), True)
    conj = np.conj if trans == "C" else np.asarray
    y = _substitute(np, conj(low.T), _substitute(np, conj(high.T), x, False), True)
    x[order] = y
    return x


def solve(np: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Solve A X = B for stacks of square matrices; (solutions, int32 numbers as of getrf)."""
    batch, n = a.shape[:-2], a.shape[-1]
    count = _count(a)
    x, info = np.empty(b.shape, b.dtype), np.zeros(count, np.int32)
    left, right, out = (t.reshape((count, *t.shape[-2:])) for t in (a, b, x))
    for k in range(count if n else 0):
        lu, pivots, info[k] = factored(np, left[k])
        if b.shape[-1]:
            out[k] = np.nan if info[k] else lu_solved(np, lu, pivots, right[k], "N")
    return x, info.reshape(batch)


def inverse(np: Any, a: Any) -> tuple[Any, Any]:
    """Invert matrices (LAPACK getrf, getri); (inverses, int32 numbers as of getrf)."""
    batch, n = a.shape[:-2], a.shape[-1]
    inverted, info = np.array(a, order="C"), np.zeros(_count(a), np.int32)
    stack = inverted.reshape((_count(a), n, n))
    getrf, getri = routine("getrf", a.dtype.name), routine("getri", a.dtype.name)
    pivots, work = integers(np, n), np.empty(64 * n, a.dtype)
    for k in range(len(stack) if n else 0):
        if getrf is None or getri is None:
            lu, pivots, info[k] = factored(np, stack[k])
            stack[k] = lu_solved(np, lu, pivots, np.eye(n, dtype=a.dtype), "N")
            continue
        # The inverse of the transposed matrix is the transposed inverse: no copy either way.
        info[k] = getrf(n, n, stack[k], n, pivots)
        if not info[k]:
            getri(n, stack[k], n, pivots, work, work.size)
    return inverted, info.reshape(batch)


def solve_triangular(np: Any, a: Any, b: Any, upper: bool, left: bool, unit: bool) -> Any:
    """Solve A X = B (or X A = B) for triangular A (BLAS trsm)."""
    count = _count(a)
    x = np.array(b, order="C")
    matrix = a.reshape((count, *a.shape[-2:]))
    solution = x.reshape((count, *x.shape[-2:]))
    trsm = routine("trsm", a.dtype.name) if x.size else None
    one = np.ones(1, a.dtype)
    rows, columns = x.shape[-2:]
    for k in range(count if x.size else 0):
        if trsm is None:
            t = (np.triu if upper else np.tril)(matrix[k])
            if unit:
                np.fill_diagonal(t, 1)
            solution[k] = (
                _substitute(np, t, solution[k], upper)
                if left
                else _substitute(np, t.T, solution[k].T, not upper).T
            )
            continue
        # Row-major matrices are transposed to BLAS: A X = B reads X^T A^T = B^T.
        t = matrix[k]
        as_it_lies = t.flags.f_contiguous and not t.flags.c_contiguous
        t = t if as_it_lies else np.ascontiguousarray(t)
        trsm(
            "R" if left else "L",
            "U" if upper == as_it_lies else "L",
            "T" if as_it_lies else "N",
            "U" if unit else "N",
            columns,
            rows,
            one,
            t,
            len(t),
            solution[k],
            columns,
        )
    return x


def _substitute(np: Any, triangle: Any, b: Any, upper: bool) -> Any:
    x = np.array(b)
    n = len(triangle)
    for i in range(n - 1, -1, -1) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        x[i] = (x[i] - triangle[i, known] @ x[known]) / triangle[i, i]
    return x


def cholesky_inverse(np: Any, factor: Any, upper: bool) -> Any:
    """Invert Hermitian matrices given by their Cholesky factors."""
    eye = np.broadcast_to(np.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    half = solve_triangular(np, factor, eye, upper, True, False)
    other = half.conj().swapaxes(-1, -2)
    return half @ other if upper else other @ half


# --- orthogonal factors


def geqrf(np: Any, a: Any) -> tuple[Any, Any]:
    """Factor by Householder reflections (LAPACK geqrf); (reflectors below R, coefficients)."""
    count, (m, n) = _count(a), a.shape[-2:]
    factors, tau = np.empty(a.shape, a.dtype), np.zeros((*a.shape[:-2], min(m, n)), a.dtype)
    stack, out = a.reshape((count, m, n)), factors.reshape((count, m, n))
    taus = tau.reshape((count, min(m, n)))
    run = routine("geqrf", a.dtype.name)
    for k in range(count if m and n else 0):
        if run is None:
            reflectors, taus[k] = np.linalg.qr(stack[k], mode="raw")
            out[k] = reflectors.T
            continue
        work = np.array(stack[k], order="F")
        _run_qr(np, run, work, taus[k])
        out[k] = work
    return factors, tau


def _run_qr(np: Any, run: Any, work: Any, tau: Any) -> None:
    m, n = work.shape
    with_workspace(np, run, work, m, n, work, m, tau)


def qr(np: Any, a: Any, rows: int) -> tuple[Any, Any]:
    """Factor matrices (..., m, n) as Q (..., m, rows) and R (..., rows, n) (geqrf, orgqr)."""
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    q, r = np.empty((*batch, m, rows), a.dtype), np.zeros((*batch, rows, n), a.dtype)
    stack, left, right = (x.reshape((-1, *x.shape[-2:])) for x in (a, q, r))
    k = min(m, n)
    factor, generate = routine("geqrf", a.dtype.name), routine("orgqr", a.dtype.name)
    upper = ~np.tri(rows, n, -1, dtype=bool)
    for i in range(len(stack)):
        if factor is None or generate is None:
            left[i], right[i] = np.linalg.qr(stack[i], "complete" if rows > k else "reduced")
            continue
        work, apart = column_major(np, (m, max(n, rows)), a.dtype)
        tau = np.zeros(k, a.dtype)
        fill_columns(work[:, :n], stack[i])
        work[:, n:] = 0
        with_workspace(np, factor, work, m, n, work, apart, tau)
        np.copyto(right[i], work[:rows, :n], where=upper)
        with_workspace(np, generate, work, m, rows, k, work, apart, tau)
        left[i] = work[:, :rows]
    return q, r


def householder_product(np: Any, a: Any, tau: Any) -> Any:
    """Multiply reflections: the first columns of Q (LAPACK orgqr)."""
    count, (m, n), k = _count(a), a.shape[-2:], tau.shape[-1]
    product = np.empty(a.shape, a.dtype)
    stack, out = a.reshape((count, m, n)), product.reshape((count, m, n))
    taus = np.ascontiguousarray(tau).reshape((count, k))
    run = routine("orgqr", a.dtype.name)
    for i in range(count if n else 0):
        if run is None:
            out[i] = _reflected(np, stack[i], taus[i], np.eye(m, n, dtype=a.dtype), False)
            continue
        work = np.array(stack[i], order="F")
        with_workspace(np, run, work, m, n, k, work, m, taus[i])
        out[i] = work
    return product


def multiply_by_q(np: Any, a: Any, tau: Any, c: Any, left: bool, transpose: bool) -> Any:
    """Multiply matrices by the Q of a factorization (LAPACK ormqr)."""
    count, (m, n), k = _count(c), c.shape[-2:], tau.shape[-1]
    product = np.empty(c.shape, c.dtype)
    stack, out = c.reshape((count, m, n)), product.reshape((count, m, n))
    reflectors = a.reshape((count, *a.shape[-2:]))
    taus = np.ascontiguousarray(tau).reshape((count, k))
    run = routine("ormqr", c.dtype.name)
    trans = "N" if not transpose else "C" if c.dtype.kind == "c" else "T"
    order = m if left else n
    for i in range(count if c.size else 0):
        if run is None:
            if left:
                out[i] = _reflected(np, reflectors[i], taus[i], stack[i], transpose)
            else:
                other = stack[i].conj().T
                out[i] = _reflected(np, reflectors[i], taus[i], other, not transpose).conj().T
            continue
        q, work = np.asfortranarray(reflectors[i]), np.array(stack[i], order="F")
        side = "L" if left else "R"
        with_workspace(np, run, work, side, trans, m, n, k, q, order, taus[i], work, m)
        out[i] = work
    return product


def _reflected(np: Any, reflectors: Any, tau: Any, c: Any, transpose: bool) -> Any:
    """Apply Q = H_1 ... H_k, or its adjoint, to C."""
    c = np.array(c)
    order = range(len(tau)) if transpose else range(len(tau) - 1, -1, -1)
    for i in order:
        v = np.concatenate([np.zeros(i, c.dtype), np.ones(1, c.dtype), reflectors[i + 1 :, i]])
        factor = tau[i].conj() if transpose else tau[i]
        c -= factor * np.outer(v, v.conj() @ c)
    return c


# --- symmetric indefinite factors


def ldl_factor(np: Any, a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """Factor symmetric or Hermitian matrices, of which the lower triangle is read (sytrf, hetrf).

    Returns:
        The factors as LAPACK stores them, int32 pivots, int32 numbers: 0 or the block that is
        zero.
    """
    batch, n, count = a.shape[:-2], a.shape[-1], _count(a)
    factors, pivots = np.empty(a.shape, a.dtype), np.zeros((count, n), np.int32)
    info = np.zeros(count, np.int32)
    stack, out = a.reshape((count, n, n)), factors.reshape((count, n, n))
    run = _indefinite("trf", a.dtype, hermitian)
    for k in range(count if n else 0):
        work, found = np.array(stack[k], order="F"), integers(np, n)
        info[k] = with_workspace(np, run, work, "L", n, work, n, found)
        out[k], pivots[k] = np.tril(work), found
    return factors, pivots.reshape((*batch, n)), info.reshape(batch)


def ldl_solve(np: Any, factors: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """Solve by the factors that `ldl_factor` gave (sytrs, hetrs)."""
    count, n = _count(b), b.shape[-2]
    x = np.empty(b.shape, b.dtype)
    ld, given = factors.reshape((count, n, n)), pivots.reshape((count, n))
    right, out = b.reshape((count, *b.shape[-2:])), x.reshape((count, *b.shape[-2:]))
    run = _indefinite("trs", b.dtype, hermitian)
    for k in range(count if b.size else 0):
        _check_blocks(given[k].tolist(), n)
        found, work = integers(np, n), np.array(right[k], order="F")
        found[:] = given[k]
        run("L", n, b.shape[-1], np.asfortranarray(ld[k]), n, found, work, n)
        out[k] = work
    return x


def _check_blocks(pivots: list[int], n: int) -> None:
    """Raise unless pivots are such as sytrf gives: sytrs goes to rows by them, unchecked."""
    at = 0
    while at < n and 0 < abs(pivots[at]) <= n:
        if pivots[at] < 0:  # the first of two rows of a block
            at += 1
            if at == n or not -n <= pivots[at] < 0:
                break
        at += 1
    else:
        if at == n:
            return
    raise RuntimeError(
        f"linalg.ldl_solve: pivots {pivots} are not those of a matrix with {n} rows; numbers from "
        f"1 to {n} are expected, negative ones in pairs, as linalg.ldl_factor gives them"
    )


def _indefinite(what: str, dtype: Any, hermitian: bool) -> Callable[..., int]:
    run = routine(("he" if hermitian and dtype.kind == "c" else "sy") + what, dtype.name)
    if run is None:
        raise NotImplementedError(
            "LDL factorizations need the LAPACK that NumPy's wheels bring; this NumPy shows none. "
            "Install NumPy from a wheel, or use linalg.lu_factor"
        )
    return run
