"""Least squares by LAPACK, as `devices/lapack.py` calls its routines."""

from __future__ import annotations

from typing import Any

from tangrad.devices import lapack

__all__ = ["lstsq"]


def lstsq(np: Any, a: Any, b: Any, rcond: float, driver: str) -> tuple[Any, Any, Any]:
    """Solve least-squares problems (LAPACK gels, gelsy, gelsd, gelss).

    Returns:
        Solutions (..., n, k), the residual rows after them being dropped; int64 ranks;
        singular values, where the driver computes them.
    """
    batch, (m, n), columns = a.shape[:-2], a.shape[-2:], b.shape[-1]
    count = int(np.prod(batch, dtype=np.int64))
    real = np.finfo(a.dtype).dtype
    x = np.zeros((count, n, columns), a.dtype)
    rank, values = np.zeros(count, np.int64), np.zeros((count, min(m, n)), real)
    left, right = a.reshape((count, m, n)), b.reshape((count, m, columns))
    for k in range(count if m and n else 0):
        x[k], rank[k], values[k] = _least_squares(np, left[k], right[k], rcond, driver)
    return (
        x.reshape((*batch, n, columns)),
        rank.reshape(batch),
        values.reshape((*batch, min(m, n))),
    )


def _least_squares(np: Any, a: Any, b: Any, rcond: float, driver: str) -> tuple[Any, int, Any]:
    (m, n), columns = a.shape, b.shape[-1]
    real = np.finfo(a.dtype).dtype
    run = lapack.routine(driver, a.dtype.name)
    if run is None:
        x, _, rank, values = np.linalg.lstsq(a, b, rcond=max(rcond, 0))
        return x, int(rank), values
    work, rows = np.array(a, order="F"), max(m, n, 1)
    both = np.zeros((rows, columns), a.dtype, order="F")
    both[:m] = b
    values, rank, limit = np.zeros(min(m, n), real), lapack.integers(np, 1), np.array([rcond], real)
    complex_ = a.dtype.kind == "c"
    extra: tuple[Any, ...] = ()
    if driver == "gels":
        info = lapack.with_workspace(np, run, work, "N", m, n, columns, work, m, both, rows)
        return both[:n], min(m, n), values
    if driver == "gelsy":
        middle: tuple[Any, ...] = (lapack.integers(np, n), limit, rank)
        extra = (np.empty(2 * n, real),) if complex_ else ()
    else:
        middle = (values, limit, rank)
        small = min(m, n)
        if driver == "gelsd":
            # The sizes that LAPACK's own documentation gives for its smallest block, 25.
            levels = max(0, int(np.log2(max(small, 1) / 26)) + 1)
            room = 10 * max(m, n) + 2 * max(m, n) * 25 + 8 * max(m, n) * levels
            room += 3 * 25 * columns + max(26 * 26, n * (1 + columns) + 2 * columns)
            extra = (lapack.integers(np, max(1, 3 * small * levels + 11 * small)),)
            extra = (np.empty(max(1, room), real), *extra) if complex_ else extra
        elif complex_:
            extra = (np.empty(max(1, 5 * small), real),)
    info = lapack.with_workspace(
        np, run, work, m, n, columns, work, m, both, rows, *middle, after=extra
    )
    if info:
        raise lapack.LinAlgError(
            "linalg.lstsq: the singular values did not converge; scale the matrix, or take "
            "driver='gelsy'"
        )
    return both[:n], int(rank[0]), values
