"""Discrete Fourier transforms: radix 2 where a length is a power of two, else by their sums."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_export.program.recording import current
from tangrad_export.steps.routines import Routine, Text

__all__ = ["fourier_kernel"]

# x has `given` points on each line, y `kept`; points that are not given are the conjugates of
# those on the other side.
_TRANSFORM = """static void @(T *y, const T *x, double *work, int outer, int inner, int n,
    int given, int kept, int sign, double scale) {
    double *re = work, *im = work + n, *c = work + 2 * n, *s = work + 3 * n;
    for (int k = 0; k < n; ++k) {
        c[k] = cos(6.283185307179586 * k / n);
        s[k] = sign * sin(6.283185307179586 * k / n);
    }
    for (int line = 0; line < outer * inner; ++line) {
        const T *from = x + (int64_t)(line / inner) * given * inner + line % inner;
        T *to = y + (int64_t)(line / inner) * kept * inner + line % inner;
        for (int k = 0; k < n; ++k) {
            const int own = k < given, at = own ? k : n - k;
            const T point = from[(int64_t)at * inner];
            re[k] = (double)point.re;
            im[k] = own ? (double)point.im : -(double)point.im;
        }
        if ((n & (n - 1)) == 0) {
            for (int k = 1, j = 0; k < n; ++k) {
                int bit = n >> 1;
                for (; j & bit; bit >>= 1) j ^= bit;
                j ^= bit;
                if (k < j) {
                    double t = re[k]; re[k] = re[j]; re[j] = t;
                    t = im[k]; im[k] = im[j]; im[j] = t;
                }
            }
            for (int size = 2; size <= n; size *= 2)
                for (int start = 0; start < n; start += size)
                    for (int k = 0; k < size / 2; ++k) {
                        const int a = start + k, b = a + size / 2, w = k * (n / size);
                        const double u = re[b] * c[w] - im[b] * s[w];
                        const double v = re[b] * s[w] + im[b] * c[w];
                        re[b] = re[a] - u; im[b] = im[a] - v;
                        re[a] += u; im[a] += v;
                    }
            for (int k = 0; k < kept; ++k) {
                to[(int64_t)k * inner].re = (R)(re[k] * scale);
                to[(int64_t)k * inner].im = (R)(im[k] * scale);
            }
        } else {
            for (int k = 0; k < kept; ++k) {
                double u = 0, v = 0;
                for (int t = 0, w = 0; t < n; ++t) {
                    u += re[t] * c[w] - im[t] * s[w];
                    v += re[t] * s[w] + im[t] * c[w];
                    w += k;
                    if (w >= n) w -= n;
                }
                to[(int64_t)k * inner].re = (R)(u * scale);
                to[(int64_t)k * inner].im = (R)(v * scale);
            }
        }
    }
}
"""


def fourier_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of a Fourier transform, None of other ops."""
    return {"_fft_c2c": _c2c, "_fft_r2c": _r2c, "_fft_c2r": _c2r}.get(op.name)


def _transform(y: Any, x: Any, dim: int, n: int, forward: bool, scale: float) -> None:
    recording = current()
    work = tangrad.empty(4 * n, dtype=tangrad.float64, device=x.device)
    outer = inner = 1
    for size in x.shape[:dim]:
        outer *= size
    for size in x.shape[dim + 1 :]:
        inner *= size
    real = "float" if x.dtype.name == "complex64" else "double"
    function = Text("fourier", _TRANSFORM, x.dtype.name, R=real)
    refs = [recording.ref(t) for t in (y, x, work)]
    numbers = [outer, inner, n, x.shape[dim], y.shape[dim], -1 if forward else 1, scale]
    recording.add(Routine(function, refs, (0, 2), numbers, outer * inner * n * n.bit_length() * 4))


def _scale(x: Any, sizes: Any, normalization: int) -> float:
    count = 1
    for size in sizes:
        count *= size
    return {0: 1.0, 1: count**-0.5, 2: 1.0 / max(1, count)}[normalization]


def _all_of(out: Any, x: Any, dims: Any, forward: bool, scale: float) -> Any:
    """Return a transform of complex numbers along dimensions."""
    for k, dim in enumerate(dims):
        y = tangrad.empty(tuple(x.shape), dtype=x.dtype, device=x.device)
        _transform(y, x, dim % x.ndim, x.shape[dim], forward, scale if k == 0 else 1.0)
        x = y
    return x


def _c2c(outs: Any, args: Any) -> None:
    x, dims, normalization, forward = args
    if outs[0].numel() == 0:
        return
    scale = _scale(x, [x.shape[d] for d in dims], normalization)
    outs[0].copy_(_all_of(outs[0], x.contiguous(), dims, forward, scale))


def _r2c(outs: Any, args: Any) -> None:
    x, dims, normalization, onesided = args
    if outs[0].numel() == 0:
        return
    scale = _scale(x, [x.shape[d] for d in dims], normalization)
    wide = tangrad.empty(tuple(x.shape), dtype=outs[0].dtype, device=x.device)
    wide.copy_(x)
    found = _all_of(outs[0], wide, dims, True, scale)
    last = dims[-1] % x.ndim
    outs[0].copy_(found.narrow(last, 0, outs[0].shape[last]) if onesided else found)


def _c2r(outs: Any, args: Any) -> None:
    x, dims, normalization, n = args
    if outs[0].numel() == 0:
        return
    scale = _scale(x, [*(x.shape[d] for d in dims[:-1]), n], normalization)
    x = _all_of(outs[0], x.contiguous(), dims[:-1], False, 1.0)
    last = dims[-1] % x.ndim
    half = n // 2 + 1
    if x.shape[last] > half:
        x = x.narrow(last, 0, half).contiguous()
    elif x.shape[last] < half:
        filled = tangrad.zeros(
            [half if d == last else s for d, s in enumerate(x.shape)],
            dtype=x.dtype,
            device=x.device,
        )
        filled.narrow(last, 0, x.shape[last]).copy_(x)
        x = filled
    y = tangrad.empty(tuple(outs[0].shape), dtype=x.dtype, device=x.device)
    _transform(y, x, last, n, False, scale)
    outs[0].copy_(tangrad.view_as_real(y).select(-1, 0))
