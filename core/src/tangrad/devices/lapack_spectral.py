"""LAPACK for eigenvalues, singular values and determinants (see `devices.lapack`).

`numpy.linalg` computes these in double precision always; here the matrices' own is used.
"""

from __future__ import annotations

from typing import Any

from tangrad.devices.lapack import (
    LinAlgError,
    column_major,
    fill_columns,
    integers,
    library_threads,
    routine,
    routine_code,
    with_workspace,
)


def lapack_address(stem: str, dtype: str) -> int:
    """Return where a real routine's code is, for kernels that call it from C; 0 if it is unknown.

    Args:
        stem: the name without its letter for the type, such as "gesdd".
        dtype: "float32" or "float64".
    """
    return _address(routine_code(stem, dtype))


def lapack_threads() -> tuple[int, int]:
    """Return where the code is that tells how many threads LAPACK uses, and that sets it; or 0."""
    threads = library_threads()
    return (0, 0) if threads is None else (_address(threads.get), _address(threads.put))


def _address(function: Any) -> int:
    if function is None:
        return 0
    import ctypes

    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _not_converged(name: str, info: int) -> LinAlgError:
    return LinAlgError(
        f"{name}: The algorithm failed to converge because the input matrix is ill-conditioned, "
        f"has too many repeated values or is not finite (error code: {info})."
    )


def _by_numpy(np: Any, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except np.linalg.LinAlgError as error:
        raise _not_converged(name, 1) from error


def eigh(np: Any, a: Any, upper: bool, vectors: bool) -> tuple[Any, Any]:
    """Decompose Hermitian matrices (syevd, heevd): (eigenvalues, eigenvectors or None)."""
    n, kind = a.shape[-1], a.dtype.kind
    real = np.finfo(a.dtype).dtype
    values = np.empty(a.shape[:-1], real)
    run = routine("heevd" if kind == "c" else "syevd", a.dtype.name)
    if run is None:
        uplo = "U" if upper else "L"
        if vectors:
            return tuple(_by_numpy(np, "linalg.eigh", np.linalg.eigh, a, UPLO=uplo))
        return _by_numpy(np, "linalg.eigh", np.linalg.eigvalsh, a, UPLO=uplo), None
    # Columns first, as LAPACK has them: by the transposed matrix, the vectors get other signs than
    # those that programs know from elsewhere.
    found = np.empty(a.shape, a.dtype) if vectors else None
    stack, out = a.reshape((-1, n, n)) if a.size else a[:0], values.reshape((-1, n or 1))
    if kind == "c":
        spaces = [np.empty(2 * n + n * n + 64 * n, a.dtype), np.empty(1 + 5 * n + 2 * n * n, real)]
    else:
        spaces = [np.empty(1 + 6 * n + 2 * n * n + 64 * n, real)]
    spaces.append(integers(np, 3 + 5 * n))
    sized = [x for space in spaces for x in (space, space.size)]
    work, apart = column_major(np, (n, n), a.dtype)
    for k in range(len(stack)):
        fill_columns(work, stack[k])
        info = run("V" if vectors else "N", "U" if upper else "L", n, work, apart, out[k], *sized)
        if info:
            raise _not_converged("linalg.eigh", info)
        if found is not None:
            found.reshape((-1, n, n))[k] = work
    return values, found


def svd(np: Any, a: Any, full: bool, vectors: bool) -> tuple[Any, Any, Any]:
    """Decompose matrices (gesdd): (U, S, Vh), with None for vectors that are not asked for."""
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    real = np.finfo(a.dtype).dtype
    columns, rows = (m, n) if full else (k, k)
    s = np.empty((*batch, k), real)
    u = np.empty((*batch, m, columns), a.dtype) if vectors else None
    vh = np.empty((*batch, rows, n), a.dtype) if vectors else None
    if not a.size:
        if full and u is not None and vh is not None:
            u[...], vh[...] = np.eye(m), np.eye(n)
        return u, s, vh
    run = routine("gesdd", a.dtype.name)
    if run is None:
        if vectors:
            return tuple(_by_numpy(np, "linalg.svd", np.linalg.svd, a, full_matrices=full))
        return None, _by_numpy(np, "linalg.svd", np.linalg.svd, a, compute_uv=False), None
    stack = a.reshape((-1, m, n))
    job = "N" if not vectors else "A" if full else "S"
    after: tuple[Any, ...] = (integers(np, 8 * k),)
    if a.dtype.kind == "c":
        large = max(m, n)
        size = max(5 * k * k + 5 * k, 2 * large * k + 2 * k * k + k) if vectors else 7 * k
        after = (np.empty(size, real), *after)
    left, left_apart = column_major(np, (m, columns) if vectors else (1, 1), a.dtype)
    right, right_apart = column_major(np, (rows, n) if vectors else (1, 1), a.dtype)
    matrix, apart = column_major(np, (m, n), a.dtype)
    for i in range(len(stack)):
        fill_columns(matrix, stack[i])
        values = s.reshape((-1, k))[i]
        info = with_workspace(
            np,
            run,
            matrix,
            *(job, m, n, matrix, apart, values, left, left_apart, right, right_apart),
            after=after,
        )
        if info:
            raise _not_converged("linalg.svd", info)
        if u is not None and vh is not None:
            u.reshape((-1, m, columns))[i], vh.reshape((-1, rows, n))[i] = left, right
    return u, s, vh


def eig(np: Any, a: Any, vectors: bool) -> tuple[Any, Any]:
    """Decompose general matrices (geev): (complex eigenvalues, eigenvectors or None)."""
    n = a.shape[-1]
    run = routine("geev", a.dtype.name)
    if run is None:
        if vectors:
            return tuple(_by_numpy(np, "linalg.eig", np.linalg.eig, a))
        return _by_numpy(np, "linalg.eig", np.linalg.eigvals, a), None
    wide = np.result_type(a.dtype, np.complex64)
    values = np.empty(a.shape[:-1], wide)
    found = np.empty(a.shape, wide) if vectors else None
    stack = a.reshape((-1, n, n)) if a.size else a[:0]
    for k in range(len(stack)):
        w, v = _eigenvalues(np, run, stack[k], vectors)
        values.reshape((-1, n))[k] = w
        if found is not None:
            found.reshape((-1, n, n))[k] = v
    return values, found


def _eigenvalues(np: Any, run: Any, a: Any, vectors: bool) -> tuple[Any, Any]:
    n = len(a)
    work, none = np.array(a, order="F"), np.empty(1, a.dtype)
    right = np.empty((n, n), a.dtype, order="F") if vectors else none
    job = "V" if vectors else "N"
    if a.dtype.kind == "c":
        w = np.empty(n, a.dtype)
        spare = np.empty(2 * n, np.finfo(a.dtype).dtype)
        info = with_workspace(
            np, run, a, *("N", job, n, work, n, w, none, 1, right, n), after=(spare,)
        )
        v = right
    else:
        parts = np.empty((2, n), a.dtype)
        values = (parts[0], parts[1])
        info = with_workspace(np, run, a, "N", job, n, work, n, *values, none, 1, right, n)
        w = parts[0] + 1j * parts[1]
        v = _paired(np, right, parts[1]) if vectors else None
    if info:
        raise _not_converged("linalg.eig", info)
    return w, v


def _paired(np: Any, right: Any, imaginary: Any) -> Any:
    """Make the complex vectors of which geev gives real and imaginary parts as two columns."""
    v = right.astype(np.result_type(right.dtype, np.complex64))
    for j in np.flatnonzero(imaginary > 0):
        v[:, j] = right[:, j] + 1j * right[:, j + 1]
        v[:, j + 1] = v[:, j].conj()
    return v


def determinant(np: Any, a: Any) -> tuple[Any, Any]:
    """Return the product of the signs of LU pivots, and the pivots (..., n) (getrf)."""
    n = a.shape[-1]
    work = np.array(a, order="C")  # the transposed matrix has the same determinant
    stack = work.reshape((-1, n, n)) if work.size else work[:0]
    sign = np.ones(a.shape[:-2], a.dtype)
    signs = sign.reshape(-1)
    run, order = routine("getrf", a.dtype.name), integers(np, n)
    if run is None:
        phase, size = np.linalg.slogdet(a)
        pivots = np.ones(a.shape[:-1], a.dtype)
        pivots[..., 0] = np.exp(size)
        return phase, pivots
    natural = np.arange(1, n + 1)
    for k in range(len(stack)):
        run(n, n, stack[k], n, order)
        if np.count_nonzero(order != natural) & 1:
            signs[k] = -1
    return sign, np.diagonal(work, 0, -2, -1)


def det(np: Any, a: Any) -> Any:
    """Compute determinants."""
    if not a.shape[-1]:
        return np.ones(a.shape[:-2], a.dtype)
    sign, pivots = determinant(np, a)
    return sign * pivots.prod(-1)


def slogdet(np: Any, a: Any) -> tuple[Any, Any]:
    """Compute signs and logarithms of absolute values of determinants."""
    real = np.finfo(a.dtype).dtype
    if not a.shape[-1]:
        return np.ones(a.shape[:-2], a.dtype), np.zeros(a.shape[:-2], real)
    sign, pivots = determinant(np, a)
    sizes = np.abs(pivots)
    phases = np.where(sizes == 0, 0, pivots / np.where(sizes == 0, 1, sizes))
    return sign * phases.prod(-1), np.log(sizes).sum(-1)
