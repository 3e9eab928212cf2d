"""Matrices: factorizations and what follows from them, in float64."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import current
from tangrad_export.steps.routines import Routine, Text

__all__ = ["matrix_kernel"]

# Rows of `a` are exchanged so that pivots are as large as can be; returns the first zero pivot.
_FACTOR = """static int @(double *a, int32_t *pivots, int m, int n, int exchange) {
    int info = 0;
    for (int k = 0; k < (m < n ? m : n); ++k) {
        int p = k;
        for (int i = k + 1; exchange && i < m; ++i)
            if (fabs(a[(int64_t)i * n + k]) > fabs(a[(int64_t)p * n + k])) p = i;
        pivots[k] = p + 1;
        if (p != k)
            for (int j = 0; j < n; ++j) {
                const double t = a[(int64_t)k * n + j];
                a[(int64_t)k * n + j] = a[(int64_t)p * n + j];
                a[(int64_t)p * n + j] = t;
            }
        const double pivot = a[(int64_t)k * n + k];
        if (pivot == 0) {
            if (!info) info = k + 1;
            continue;
        }
        for (int i = k + 1; i < m; ++i) {
            const double f = a[(int64_t)i * n + k] /= pivot;
            for (int j = k + 1; j < n; ++j) a[(int64_t)i * n + j] -= f * a[(int64_t)k * n + j];
        }
    }
    return info;
}
"""

_LU = (
    _FACTOR.replace("@", "@_lu")
    + """static void @(T *y, int32_t *pivots, int32_t *info, const T *x,
    double *work, int64_t *report, int count, int m, int n, int exchange, int checked) {
    const int least = m < n ? m : n;
    for (int b = 0; b < count; ++b) {
        for (int i = 0; i < m * n; ++i) work[i] = (double)x[(int64_t)b * m * n + i];
        info[b] = @_lu(work, pivots + (int64_t)b * least, m, n, exchange);
        if (checked && info[b]) report[0] = 1;
        for (int i = 0; i < m * n; ++i) y[(int64_t)b * m * n + i] = (T)work[i];
    }
}
"""
)

# Solves for `k` columns; without `right`, of the unit matrix.
_SOLVE = (
    _FACTOR.replace("@", "@_lu")
    + """static void @(T *y, int32_t *info, const T *x,
    const T *right, double *work, int32_t *pivots, int64_t *report, int count, int n, int k,
    int checked) {
    double *b = work + (int64_t)n * n;
    for (int c = 0; c < count; ++c) {
        for (int i = 0; i < n * n; ++i) work[i] = (double)x[(int64_t)c * n * n + i];
        for (int i = 0; i < n * k; ++i)
            b[i] = right ? (double)right[(int64_t)c * n * k + i] : (double)(i / k == i % k);
        info[c] = @_lu(work, pivots, n, n, 1);
        if (checked && info[c]) report[0] = 1;
        for (int i = 0; i < n; ++i) {
            const int p = pivots[i] - 1;
            for (int j = 0; j < k && p != i; ++j) {
                const double t = b[i * k + j];
                b[i * k + j] = b[p * k + j];
                b[p * k + j] = t;
            }
        }
        for (int i = 0; i < n; ++i)
            for (int q = 0; q < i; ++q)
                for (int j = 0; j < k; ++j) b[i * k + j] -= work[i * n + q] * b[q * k + j];
        for (int i = n - 1; i >= 0; --i)
            for (int j = 0; j < k; ++j) {
                for (int q = i + 1; q < n; ++q) b[i * k + j] -= work[i * n + q] * b[q * k + j];
                b[i * k + j] /= work[i * n + i];
            }
        for (int i = 0; i < n * k; ++i) y[(int64_t)c * n * k + i] = (T)b[i];
    }
}
"""
)

_DETERMINANT = (
    _FACTOR.replace("@", "@_lu")
    + """static void @(T *y, T *logarithm, const T *x, double *work,
    int32_t *pivots, int count, int n) {
    for (int b = 0; b < count; ++b) {
        double sign = 1, size = 0, product = 1;
        for (int i = 0; i < n * n; ++i) work[i] = (double)x[(int64_t)b * n * n + i];
        @_lu(work, pivots, n, n, 1);
        for (int i = 0; i < n; ++i) {
            const double d = work[i * n + i];
            if (pivots[i] != i + 1) { sign = -sign; product = -product; }
            product *= d;
            size += log(fabs(d));
            sign = d < 0 ? -sign : d == 0 ? 0 : d != d ? d : sign;
        }
        y[b] = (T)(logarithm ? sign : product);
        if (logarithm) logarithm[b] = (T)size;
    }
}
"""
)

_CHOLESKY = """static void @(T *y, int32_t *info, const T *x, double *work, int64_t *report,
    int count, int n, int upper, int checked) {
    for (int b = 0; b < count; ++b) {
        const T *from = x + (int64_t)b * n * n;
        info[b] = 0;
        memset(work, 0, sizeof(double) * (size_t)n * (size_t)n);
        for (int j = 0; j < n && !info[b]; ++j)
            for (int i = j; i < n; ++i) {
                double sum = (double)(upper ? from[j * n + i] : from[i * n + j]);
                for (int k = 0; k < j; ++k) sum -= work[i * n + k] * work[j * n + k];
                if (i == j && !(sum > 0)) { info[b] = j + 1; break; }
                work[i * n + j] = i == j ? sqrt(sum) : sum / work[j * n + j];
            }
        if (checked && info[b]) report[0] = 1;
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j)
                y[(int64_t)b * n * n + i * n + j] = (T)(upper ? work[j * n + i] : work[i * n + j]);
    }
}
"""

# Solves with a triangle, or its transpose, of `a`, row by row.
_TRIANGULAR = """static void @(T *y, const T *a, const T *right, int count, int n, int k, int upper,
    int transposed, int unit) {
    const int down = upper == transposed;
    for (int b = 0; b < count; ++b) {
        const T *m = a + (int64_t)b * n * n;
        T *to = y + (int64_t)b * n * k;
        for (int step = 0; step < n; ++step) {
            const int i = down ? step : n - 1 - step;
            for (int j = 0; j < k; ++j) {
                double sum = (double)right[(int64_t)b * n * k + i * k + j];
                for (int other = 0; other < step; ++other) {
                    const int q = down ? other : n - 1 - other;
                    const double f = (double)(transposed ? m[q * n + i] : m[i * n + q]);
                    sum -= f * (double)to[q * k + j];
                }
                to[i * k + j] = (T)(unit ? sum : sum / (double)m[i * n + i]);
            }
        }
    }
}
"""

_ORDER = """static void @(int64_t *y, const int32_t *pivots, int64_t *report, int count, int least,
    int size) {
    for (int b = 0; b < count; ++b) {
        int64_t *rows = y + (int64_t)b * size;
        for (int i = 0; i < size; ++i) rows[i] = i;
        for (int i = 0; i < least; ++i) {
            const int p = pivots[(int64_t)b * least + i] - 1;
            if (p < 0 || p >= size) { report[0] = 1; continue; }
            const int64_t t = rows[i];
            rows[i] = rows[p];
            rows[p] = t;
        }
    }
}
"""

# Scaled, by the terms of its series, and squared again.
_EXPONENTIAL = """static void @(T *y, const T *x, double *work, int count, int n) {
    double *a = work, *sum = work + n * n, *term = work + 2 * n * n, *next = work + 3 * n * n;
    for (int b = 0; b < count; ++b) {
        double norm = 0;
        int halvings = 0;
        for (int i = 0; i < n; ++i) {
            double row = 0;
            for (int j = 0; j < n; ++j) row += fabs((double)x[(int64_t)b * n * n + i * n + j]);
            if (row > norm) norm = row;
        }
        while (norm > 0.5 && halvings < 1000) { norm /= 2; ++halvings; }
        for (int i = 0; i < n * n; ++i) {
            a[i] = ldexp((double)x[(int64_t)b * n * n + i], -halvings);
            sum[i] = term[i] = i / n == i % n;
        }
        for (int k = 1; k < 18 + halvings; ++k) {
            const int squares = k >= 18;
            const double *left = squares ? sum : term, *right = squares ? sum : a;
            for (int i = 0; i < n; ++i)
                for (int j = 0; j < n; ++j) {
                    double v = 0;
                    for (int q = 0; q < n; ++q) v += left[i * n + q] * right[q * n + j];
                    next[i * n + j] = squares ? v : v / k;
                }
            for (int i = 0; i < n * n; ++i) {
                if (squares) sum[i] = next[i];
                else { term[i] = next[i]; sum[i] += next[i]; }
            }
        }
        for (int i = 0; i < n * n; ++i) y[(int64_t)b * n * n + i] = (T)sum[i];
    }
}
"""


def matrix_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of an op on matrices, None of other ops and dtypes."""
    if dtype not in ("float32", "float64") and op.name != "_linalg_row_order":
        return None
    return _KERNELS.get(op.name)


def _add(title: str, text: str, out: Any, refs: Any, writes: Any, numbers: Any, work: int) -> None:
    dtype = out.dtype.name if out.dtype.is_floating_point else "float32"
    current().add(Routine(Text(title, text, dtype), refs, writes, numbers, work))


def _ref(t: Any) -> Ref:
    return current().ref(t)


def _errors() -> Ref:
    return Ref(current().error_cell(), 0, "int64")


def _scratch(like: Any, count: int, dtype: Any = tangrad.float64) -> Ref:
    return _ref(tangrad.empty(max(1, count), dtype=dtype, device=like.device))


def _count(x: Any, behind: int = 2) -> int:
    count = 1
    for size in x.shape[: x.ndim - behind]:
        count *= size
    return count


def _into(outs: Any) -> list[Any]:
    """Return contiguous tensors in the place of results."""
    return [
        o if o.is_contiguous() else tangrad.empty(tuple(o.shape), dtype=o.dtype, device=o.device)
        for o in outs
    ]


def _back(outs: Any, made: Any) -> None:
    for out, own in zip(outs, made, strict=True):
        if own is not out:
            out.copy_(own)


def _lu(outs: Any, args: Any) -> None:
    x, exchange, check = args
    m, n = x.shape[-2:]
    made = _into(outs)
    if made[2].numel():
        refs = [*map(_ref, made), _ref(x.contiguous()), _scratch(x, m * n), _errors()]
        numbers = [_count(x), m, n, int(exchange), int(bool(check))]
        _add("lu", _LU, made[0], refs, (0, 1, 2, 4, 5), numbers, _count(x) * m * n * min(m, n) // 2)
    _back(outs, made)


def _solve(outs: Any, args: Any) -> None:
    x, right, check = args
    _solved(outs, x, right, right.shape[-1], check)


def _inverse(outs: Any, args: Any) -> None:
    x, check = args
    _solved(outs, x, None, x.shape[-1], check)


def _solved(outs: Any, x: Any, right: Any, k: int, check: Any) -> None:
    n, made = x.shape[-1], _into(outs)
    if made[1].numel():
        refs: list[Ref | None] = [*map(_ref, made), _ref(x.contiguous())]
        refs.append(None if right is None else _ref(right.contiguous()))
        refs += [_scratch(x, n * (n + k)), _scratch(x, n, tangrad.int32), _errors()]
        numbers = [_count(x), n, k, int(bool(check))]
        _add("solve", _SOLVE, made[0], refs, (0, 1, 4, 5, 6), numbers, _count(x) * n * n * (n + k))
    _back(outs, made)


def _determinant(outs: Any, args: Any) -> None:
    x, made = args[0], _into(outs)
    n = x.shape[-1]
    if made[0].numel():
        refs = [_ref(made[0]), _ref(made[1]) if len(made) > 1 else None, _ref(x.contiguous())]
        refs += [_scratch(x, n * n), _scratch(x, n, tangrad.int32)]
        _add(
            "determinant",
            _DETERMINANT,
            made[0],
            refs,
            (0, 1, 3, 4),
            [_count(x), n],
            _count(x) * n * n * n // 3,
        )
    _back(outs, made)


def _cholesky(outs: Any, args: Any) -> None:
    x, upper, check = args
    n, made = x.shape[-1], _into(outs)
    if made[1].numel():
        refs = [*map(_ref, made), _ref(x.contiguous()), _scratch(x, n * n), _errors()]
        numbers = [_count(x), n, int(upper), int(bool(check))]
        _add(
            "cholesky", _CHOLESKY, made[0], refs, (0, 1, 3, 4), numbers, _count(x) * n * n * n // 6
        )
    _back(outs, made)


def _one_triangular(
    y: Any, a: Any, right: Any, upper: bool, transposed: bool, unit: bool = False
) -> None:
    n, k = right.shape[-2:]
    refs = [_ref(y), _ref(a), _ref(right)]
    numbers = [_count(right), n, k, int(upper), int(transposed), int(unit)]
    _add("triangular", _TRIANGULAR, y, refs, (0,), numbers, _count(right) * n * n * k // 2)


def _like(x: Any) -> Any:
    return tangrad.empty(tuple(x.shape), dtype=x.dtype, device=x.device)


def _triangular(outs: Any, args: Any) -> None:
    a, right, upper, left, unit = args
    if outs[0].numel() == 0:
        return
    right = (right if left else right.mT).contiguous()
    y = _like(right)
    _one_triangular(y, a.contiguous(), right, upper, not left, unit)
    outs[0].copy_(y if left else y.mT)


def _cholesky_solve(outs: Any, args: Any) -> None:
    right, a, upper = args
    if outs[0].numel():
        outs[0].copy_(_by_factor(a.contiguous(), right.contiguous(), upper))


def _by_factor(a: Any, right: Any, upper: bool) -> Any:
    half, y = _like(right), _like(right)
    _one_triangular(half, a, right, upper, upper)
    _one_triangular(y, a, half, upper, not upper)
    return y


def _cholesky_inverse(outs: Any, args: Any) -> None:
    a, upper = args
    if outs[0].numel():
        n = a.shape[-1]
        unit = tangrad.eye(n, dtype=a.dtype, device=a.device).expand(tuple(a.shape)).contiguous()
        outs[0].copy_(_by_factor(a.contiguous(), unit, upper))


def _row_order(outs: Any, args: Any) -> None:
    pivots, size = args
    made = _into(outs)
    if made[0].numel():
        refs = [_ref(made[0]), _ref(pivots.contiguous()), _errors()]
        numbers = [_count(pivots, 1), pivots.shape[-1], size]
        _add("row_order", _ORDER, made[0], refs, (0, 2), numbers, made[0].numel())
    _back(outs, made)


def _exponential(outs: Any, args: Any) -> None:
    x, made = args[0], _into(outs)
    n = x.shape[-1]
    if made[0].numel():
        refs = [_ref(made[0]), _ref(x.contiguous()), _scratch(x, 4 * n * n)]
        _add(
            "exponential",
            _EXPONENTIAL,
            made[0],
            refs,
            (0, 2),
            [_count(x), n],
            _count(x) * n * n * n * 20,
        )
    _back(outs, made)


_KERNELS = {
    "_linalg_lu_factor": _lu,
    "_linalg_solve": _solve,
    "_linalg_inverse": _inverse,
    "linalg_det": _determinant,
    "linalg_slogdet": _determinant,
    "_linalg_cholesky": _cholesky,
    "_linalg_solve_triangular": _triangular,
    "_cholesky_solve": _cholesky_solve,
    "cholesky_inverse": _cholesky_inverse,
    "_linalg_row_order": _row_order,
    "linalg_matrix_exp": _exponential,
}
