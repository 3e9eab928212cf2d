"""Products of matrices and convolutions of float32: blocked, on what lies side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import current
from tangrad_export.steps.routines import Routine, Text
from tangrad_export.steps.vectors import broadcast_product, dot_product

__all__ = ["product_kernel"]

_MOST_SCRATCH = 128 << 10
_FEW_PLACES, _MANY_ROWS = 64, 16
_REST = 16  # places that a last block may have more, as the text below has it

# What the windows look at, a row for each element of a kernel, is laid out for some places at once.
_CONVOLVE = """static void @(float *y, const float *x, const float *w, const float *bias,
    float *columns, int images, int groups, int ins, int outs, int height, int width, int kh,
    int kw, int oh, int ow, int sh, int sw, int ph, int pw, int dh, int dw, int block,
    int rectified) {
    const int taps = ins * kh * kw, area = oh * ow;
    for (int g = 0; g < images * groups; ++g) {
        const float *from = x + (int64_t)g * ins * height * width;
        const float *weight = w + (int64_t)(g % groups) * outs * taps;
        const float *shift = bias ? bias + (g % groups) * outs : 0;
        float *to = y + (int64_t)g * outs * area;
        if (!columns) {
            PRODUCT(to, area, weight, taps, 1, from, area, shift, outs, area, taps);
            for (int k = 0; rectified && k < outs * area; ++k) to[k] = to[k] < 0 ? 0 : to[k];
            continue;
        }
        for (int start = 0, count; start < area; start += count) {
            /* What is left behind the last block, and fills no vector, is a part of it. */
            count = area - start < block + 16 ? area - start : block;
            for (int t = 0; t < taps; ++t) {
                const int c = t / (kh * kw), i = t / kw % kh * dh - ph, j = t % kw * dw - pw;
                float *row = columns + (int64_t)t * count;
                for (int k = 0; k < count;) {
                    const int v = (start + k) / ow, u = (start + k) % ow;
                    const int n = ow - u < count - k ? ow - u : count - k, p = v * sh + i;
                    if (p < 0 || p >= height) {
                        for (int e = 0; e < n; ++e) row[k + e] = 0;
                    } else {
                        const float *line = from + ((int64_t)c * height + p) * width;
                        if (sw == 1) {
                            const int q = u + j;
                            int low = q < 0 ? -q : 0, high = width - q < n ? width - q : n;
                            if (low > n) low = n;
                            if (high < low) high = low;
                            for (int e = 0; e < low; ++e) row[k + e] = 0;
                            const size_t bytes = sizeof(float) * (size_t)(high - low);
                            memcpy(row + k + low, line + q + low, bytes);
                            for (int e = high; e < n; ++e) row[k + e] = 0;
                        } else {
                            for (int e = 0; e < n; ++e) {
                                const int q = (u + e) * sw + j;
                                row[k + e] = q >= 0 && q < width ? line[q] : 0;
                            }
                        }
                    }
                    k += n;
                }
            }
            PRODUCT(to + start, area, weight, taps, 1, columns, count, shift, outs, count, taps);
            for (int c = 0; rectified && c < outs; ++c)
                for (int k = start; k < start + count; ++k)
                    to[c * area + k] = to[c * area + k] < 0 ? 0 : to[c * area + k];
        }
    }
}
"""


def product_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of a product or a convolution of float32, None of other ops and dtypes.

    What does not lie side by side is left to the templates.
    """
    if dtype != "float32" or op.name not in _KERNELS:
        return None
    from tangrad.plugin import get_driver

    made: list[Any] = []

    def kernel(outs: Any, args: Any) -> None:
        if outs[0].numel() and _KERNELS[op.name](outs, args):
            return
        if not made:
            made.append(get_driver("c99").template_for(op, tangrad.float32))
        made[0](outs, args)

    return kernel


def _product(y: Any, a: Any, b: Any, bias: Any) -> bool:
    """Add y = a b + bias (of each column) for matrices or batches of them."""
    recording = current()
    single = y.ndim == 2
    if single:
        y, a, b = y.unsqueeze(0), a.unsqueeze(0), b.unsqueeze(0)
    count, m, n = y.shape
    k = a.shape[-1]
    if k == 0 or (n > 1 and y.stride(2) != 1):
        return False
    (ab, ar, ak), (bb, bk, bn), (yb, yr, _) = a.stride(), b.stride(), y.stride()
    dots = (bk == 1 or k == 1) and (ak == 1 or k == 1)
    if bias is not None and not dots:
        return False
    if not dots and n > 1 and bn != 1:
        if bk == 1 and m >= 4:  # `a` is small beside the work: its rows are laid out
            a = a.contiguous()
            (ab, ar, ak), dots = a.stride(), True
        else:
            b = b.contiguous()
            bb, bk, bn = b.stride()
    refs: list[Ref | None] = [recording.ref(t) for t in (y, a, b)]
    refs.append(None if bias is None else recording.ref(bias.contiguous()))
    if single:
        yb = ab = bb = 0
    work, each = count * m * n * k, [count, yb, ab, bb]
    if dots:
        recording.add(Dots(refs, [yr, ar, bn, m, n, k, *each], work))
    else:
        recording.add(Broadcasts(refs, [yr, ar, ak, bk, m, n, k, *each], work))
    return True


def _for_each(at: list[str], each: list[Any], call: Callable[..., str]) -> list[str]:
    """Return a call for each matrix of a batch: how many there are, and how far from another."""
    count, *steps = each
    if count == 1:
        return [call(*at)]
    moved = [_moved(pointer, step) for pointer, step in zip(at, (*steps, 0), strict=True)]
    return [f"for (int i = 0; i < {count}; ++i) {{", f"    {call(*moved)}", "}"]


def _moved(pointer: str, step: Any) -> str:
    if step in (0, 1):
        return pointer if step == 0 else f"{pointer} + i"
    return f"{pointer} + i * {step if isinstance(step, int) else f'({step})'}"


class Dots(Routine):
    """c = a b^T + bias, for each matrix of a batch."""

    def __init__(self, refs: Sequence[Any], numbers: Sequence[int], work: int) -> None:
        super().__init__(dot_product(numbers[3] == 1), refs, (0,), numbers, work)

    def text(self, names: list[str], at: list[str], n: list[Any]) -> list[str]:
        """Return the call."""

        def call(c: str, a: str, b: str, bias: str) -> str:
            left = f"{c}, {n[0]}, {a}, {n[1]}, {b}, {n[2]}"
            return f"{names[0]}({left}, {bias}, {n[3]}, {n[4]}, {n[5]});"

        return _for_each(at, n[6:], call)


class Broadcasts(Routine):
    """c = a b, for each matrix of a batch."""

    def __init__(self, refs: Sequence[Any], numbers: Sequence[int], work: int) -> None:
        super().__init__(broadcast_product(), refs, (0,), numbers, work)

    def text(self, names: list[str], at: list[str], n: list[Any]) -> list[str]:
        """Return the call."""

        def call(c: str, a: str, b: str, bias: str) -> str:
            left = f"{c}, {n[0]}, {a}, {n[1]}, {n[2]}"
            return f"{names[0]}({left}, {b}, {n[3]}, {bias}, {n[4]}, {n[5]}, {n[6]});"

        return _for_each(at, n[7:], call)


class Convolution(Routine):
    """y = the convolution of x by w, with a bias for each channel or none."""

    def __init__(self, refs: Sequence[Any], numbers: Sequence[int], work: int) -> None:
        super().__init__(Text("convolve", _CONVOLVE), refs, (0, 4), numbers, work)

    def functions(self) -> list[Any]:
        """Return the product, then the convolution that calls it."""
        return [broadcast_product(), self.function]

    def text(self, names: list[str], at: list[str], n: list[Any]) -> list[str]:
        """Return the call."""
        return [f"{names[1]}({', '.join([*at, *map(str, n)])});"]


def _mm(outs: Any, args: Any) -> bool:
    return _product(outs[0], args[0], args[1], None)


def _linear(outs: Any, args: Any) -> bool:
    x, weight, bias = args
    out = outs[0]
    if not out.is_contiguous() or x.shape[-1] == 0:
        return False
    columns = 1 if weight.ndim == 1 else weight.shape[0]
    rows = x.reshape((-1, x.shape[-1])).contiguous()
    right = weight.reshape((columns, weight.shape[-1])).contiguous().t()
    return _product(out.view((rows.shape[0], columns)), rows, right, bias)


def _weight_bias(outs: Any, args: Any) -> bool:
    grad, x = args
    if not _product(outs[0], grad.t(), x, None):
        return False
    outs[1].copy_(grad.sum(0))
    return True


def _convolution(outs: Any, args: Any) -> bool:
    x, w = args[:2]
    bias = args[2] if len(args) == 7 else None
    stride, padding, dilation, groups = args[-4:]
    y, rank = outs[0], len(stride)
    if rank > 2 or not y.is_contiguous() or not (x.numel() and w.numel()):
        return False
    recording = current()
    x, w = x.contiguous(), w.contiguous()

    def two(values: Any, fill: int) -> list[int]:
        return [fill] * (2 - rank) + [int(v) for v in values]

    ins, outs_of = x.shape[1] // groups, w.shape[0] // groups
    size, kernel, result = two(x.shape[2:], 1), two(w.shape[2:], 1), two(y.shape[2:], 1)
    steps, pads, apart = two(stride, 1), two(padding, 0), two(dilation, 1)
    taps, area = ins * kernel[0] * kernel[1], result[0] * result[1]
    plain = kernel == [1, 1] and steps == [1, 1] and pads == [0, 0]
    columns, block = None, 0
    # Also where each place is looked at once: rows that lie far apart are slow to go through.
    if not plain or (area > _FEW_PLACES and outs_of >= _MANY_ROWS):
        room = min(_MOST_SCRATCH, max(128 * taps, 4 * x.numel() // max(1, x.shape[0])))
        block = max(32, room // (4 * taps) // 32 * 32)
        block = min(block, area)
        most = area if area < block + _REST else block + min(_REST - 1, area % block)
        columns = tangrad.empty(most * taps, dtype=x.dtype, device=x.device)
    refs: list[Ref | None] = [recording.ref(t) for t in (y, x, w)]
    refs += [None if t is None else recording.ref(t.contiguous()) for t in (bias, columns)]
    numbers = [
        x.shape[0],
        groups,
        ins,
        outs_of,
        *size,
        *kernel,
        *result,
        *steps,
        *pads,
        *apart,
        block,
    ]
    numbers.append(0)  # whether what is below 0 becomes 0
    work = x.shape[0] * groups * outs_of * taps * area
    recording.add(Convolution(refs, numbers, work))
    return True


_KERNELS = {
    "mm": _mm,
    "bmm": _mm,
    "linear": _linear,
    "linear_weight_bias": _weight_bias,
    "convolution": _convolution,
    "convolution_biased": _convolution,
}
