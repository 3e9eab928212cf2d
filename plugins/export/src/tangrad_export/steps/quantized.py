"""Ops on the integers of quantized tensors, with the integers that tangrad-quantization defines.

Products are summed in 32 bits, modulo 2^32, and become integers of the result by steps in float32
that are each rounded. GCC joins a product and a sum to one rounding unless it is told not to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad_export.program.buffers import Ref
from tangrad_export.program.recording import current
from tangrad_export.steps.routines import Routine, Text

__all__ = ["quantized_kernel"]

_EXACT = """#ifndef TK_EXACT
#if defined(__GNUC__) && !defined(__clang__)
#define TK_EXACT __attribute__((optimize("fp-contract=off")))
#else
#define TK_EXACT
#endif
#endif
"""

# What lies between two bounds, rounded half to even.
_LEVEL = """TK_EXACT static inline int @_level(float v, float least, float most) {
    v = v > least ? v : least;
    return (int)rintf(v < most ? v : most);
}
"""

# A block of products fits 32 bits with a sign; blocks are added modulo 2^32.
_SUMS = """static inline uint32_t @_sum(const uint8_t *x, const int8_t *w, int n, int xz, int wz) {
    uint32_t total = 0;
    for (int k = 0; k < n;) {
        const int end = n - k > 16384 ? k + 16384 : n;
        int32_t sum = 0;
        for (; k < end; ++k) {
            const int16_t a = (int16_t)(x[k] - xz), b = (int16_t)(w[k] - wz);
            sum += a * b;
        }
        total += (uint32_t)sum;
    }
    return total;
}
static inline int32_t @_signed(uint32_t total) {
    return total < 0x80000000u ? (int32_t)total : (int32_t)(total - 0x80000000u) - INT32_MAX - 1;
}
"""

_REQUANTIZED = """TK_EXACT static inline int @_of(uint32_t total, const float *bias, float scale,
    int zero, int low, int high) {
    float v = (float)@_signed(total);
    if (bias) v += *bias;
    v *= scale;
    return @_level(v, (float)(low - zero), (float)(high - zero)) + zero;
}
"""

_PRODUCT = f"""{_EXACT}{_LEVEL}{_SUMS}{_REQUANTIZED}
static void @(T *y, const uint8_t *x, const int8_t *w, const int32_t *zeros, const float *scales,
    const float *bias, int rows, int depth, int columns, int xz, int zero, int low, int high) {{
    for (int r = 0; r < rows; ++r) {{
        for (int c = 0; c < columns; ++c) {{
            const uint32_t total = @_sum(x + r * depth, w + c * depth, depth, xz,
                zeros ? zeros[c] : 0);
            y[r * columns + c] = (T)@_of(total, bias ? bias + c : 0, scales[c], zero, low, high);
        }}
    }}
}}
"""

# The padding stands for zero: what it would add is left out.
_CONVOLVE = f"""{_EXACT}{_LEVEL}{_SUMS}{_REQUANTIZED}
static void @(T *y, const uint8_t *x, const int8_t *w, const int32_t *zeros, const float *scales,
    const float *bias, int images, int id, int ih, int iw, int ins, int od, int oh, int ow,
    int outs, int groups, int kd, int kh, int kw, int sd, int sh, int sw, int pd, int ph, int pw,
    int dd, int dh, int dw, int xz, int zero, int low, int high) {{
    const int own = ins / groups, each = outs / groups, places = od * oh * ow;
    for (int at = 0; at < images * places; ++at) {{
        const int n = at / places, v = at % places;
        const int z = v / (oh * ow) * sd - pd, i = v / ow % oh * sh - ph, j = v % ow * sw - pw;
        for (int c = 0; c < outs; ++c) {{
            const uint8_t *from = x + (int64_t)n * id * ih * iw * ins + c / each * own;
            const int8_t *weight = w + (int64_t)c * kd * kh * kw * own;
            uint32_t total = 0;
            for (int t = 0; t < kd * kh * kw; ++t, weight += own) {{
                const int p = z + t / (kh * kw) * dd, q = i + t / kw % kh * dh, s = j + t % kw * dw;
                if (p < 0 || p >= id || q < 0 || q >= ih || s < 0 || s >= iw) continue;
                const uint8_t *pixel = from + ((int64_t)(p * ih + q) * iw + s) * ins;
                total += @_sum(pixel, weight, own, xz, zeros ? zeros[c] : 0);
            }}
            y[(int64_t)at * outs + c] =
                (T)@_of(total, bias ? bias + c : 0, scales[c], zero, low, high);
        }}
    }}
}}
"""

_SUM = f"""{_EXACT}{_LEVEL}
TK_EXACT static void @(T *y, const T *a, const T *b, int count, float scale, int az, float other,
    int bz, float inverse, int zero, int low, int high) {{
    for (int k = 0; k < count; ++k) {{
        const float first = (float)(a[k] - az) * scale, second = (float)(b[k] - bz) * other;
        const float both = first + second;
        y[k] = (T)(@_level(both * inverse, (float)(low - zero), (float)(high - zero)) + zero);
    }}
}}
"""

_TIMES = f"""{_EXACT}{_LEVEL}
TK_EXACT static void @(T *y, const T *a, const T *b, int count, float scale, int az, float other,
    int bz, float inverse, int zero, int low, int high) {{
    (void)scale, (void)other;
    for (int k = 0; k < count; ++k) {{
        const float product = (float)((a[k] - az) * (b[k] - bz)) * inverse;
        y[k] = (T)(@_level(product, (float)(low - zero), (float)(high - zero)) + zero);
    }}
}}
"""

_FROM_FLOAT = f"""{_EXACT}{_LEVEL}
TK_EXACT static void @(T *y, const float *x, int count, float inverse, int zero, int low,
    int high) {{
    for (int k = 0; k < count; ++k) {{
        const float scaled = x[k] * inverse;
        y[k] = (T)@_level(scaled + (float)zero, (float)low, (float)high);
    }}
}}
"""

_TO_FLOAT = """static void @(float *y, const T *x, int count, float scale, int zero) {
    for (int k = 0; k < count; ++k) y[k] = (float)(x[k] - zero) * scale;
}
"""

_LOOKUP = """static void @(T *y, const S *x, const T *table, int count) {
    for (int k = 0; k < count; ++k) y[k] = table[(uint8_t)x[k]];
}
"""

# The scale and the zero point of a range, as tangrad-quantization chooses them in double.
_DYNAMIC = f"""{_EXACT}{_LEVEL}{_SUMS}
TK_EXACT static float @_range(double low, double high, int most, int *zero) {{
    const double smallest = 6.0999998822808266e-05;
    low = low < 0 ? low : 0, high = high > 0 ? high : 0;
    double scale = (high - low) / most;
    const float single = (float)scale;
    if (single == 0 || (float)(1.0 / (double)single) == INFINITY) scale = 0.1;
    if (scale < smallest) {{
        const double wider = smallest / (double)(float)scale;
        if (low == 0) high = smallest * most;
        else if (high == 0) low = -smallest * most;
        else low *= wider, high *= wider;
        scale = smallest;
    }}
    const double below = low / scale, above = high / scale;
    double start = -fabs(below) < most - fabs(above) ? -below : most - above;
    start = rint(start);
    *zero = (int)(start < 0 ? 0 : start > most ? most : start);
    return (float)scale;
}}
TK_EXACT static void @(float *y, const float *x, uint8_t *levels, const int8_t *w,
    const int32_t *zeros, const float *scales, const float *bias, int64_t *report, int rows,
    int depth, int columns, int most, int relu) {{
    float least = 0, greatest = 0;
    for (int k = 0; k < rows * depth; ++k) {{
        if (x[k] - x[k] != 0) {{ report[0] = 1; return; }}
        if (k == 0 || x[k] < least) least = x[k];
        if (k == 0 || x[k] > greatest) greatest = x[k];
    }}
    int zero;
    const float step = @_range(least, greatest, most, &zero), inverse = 1 / step;
    for (int k = 0; k < rows * depth; ++k) {{
        const float scaled = x[k] * inverse;
        levels[k] = (uint8_t)@_level(scaled + (float)zero, 0, 255);
    }}
    for (int r = 0; r < rows; ++r) {{
        for (int c = 0; c < columns; ++c) {{
            const uint32_t total = @_sum(levels + r * depth, w + c * depth, depth, zero,
                zeros ? zeros[c] : 0);
            const float unit = step * scales[c];
            float v = (float)@_signed(total) * unit;
            if (bias) v += bias[c];
            y[r * columns + c] = relu && v < 0 ? 0 : v;
        }}
    }}
}}
"""


def quantized_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of an op on the integers of quantized tensors, None of other ops."""
    keep = _KERNELS.get(op.name)
    if keep is None:
        return None

    def kernel(outs: Any, args: Any) -> None:
        if outs[0].numel() == 0:
            return
        if not outs[0].is_contiguous() or not keep(outs, args):
            outs[0].copy_(op.definition.decompose(*args))

    return kernel


def _known(t: Any) -> Any:
    """Return the array of a tensor that the exporter knows, None of one that is computed."""
    recording = current()
    buffer = recording.ref(t).buffer
    if buffer.kind != "weight" or not isinstance(buffer.value, tangrad.Tensor):
        return None
    if any(buffer in step.written_buffers() for step in recording.steps):
        return None
    return buffer.value.detach().numpy()


def _constant(array: Any, name: str) -> Ref:
    recording = current()
    path = recording.origin.module
    return recording.constant_ref(np.ascontiguousarray(array), f"{path}.{name}" if path else name)


def _channels(weight_zeros: Any, scales: Any, bias: Any) -> list[Ref | None] | None:
    """Return what there is for each column, None where it is not known."""
    found: list[Ref | None] = []
    for t, name in ((weight_zeros, "weight_zeros"), (scales, "scales"), (bias, "bias")):
        known = None if t is None else _known(t)
        if t is not None and known is None:
            return None
        found.append(None if known is None else _constant(known, name))
    return found


def _matrix(packed: Any, columns: int, depth: int) -> Any:
    """Return weights [columns, depth] of blocks of 16 columns and 4 rows."""
    blocks, quads = packed.shape[:2]
    return packed.transpose(0, 2, 1, 3).reshape(blocks * 16, quads * 4)[:columns, :depth]


def _product(outs: Any, args: Any) -> bool:
    x, packed, _, weight_zeros, scales, bias, *levels = args
    known, each = _known(packed), _channels(weight_zeros, scales, bias)
    if known is None or each is None:
        return False
    (rows, depth), columns, y = x.shape, outs[0].shape[1], outs[0]
    weight = _constant(_matrix(known, columns, depth), "weight")
    refs = [current().ref(y), current().ref(x.contiguous()), weight, *each]
    function = Text("quantized_product", _PRODUCT, y.dtype.name)
    numbers = [rows, depth, columns, *levels]
    current().add(Routine(function, refs, (0,), numbers, rows * depth * columns))
    return True


def _dynamic(outs: Any, args: Any) -> bool:
    x, packed, _, weight_zeros, scales, bias, reduce_range, relu = args
    known, each = _known(packed), _channels(weight_zeros, scales, bias)
    if known is None or each is None:
        return False
    recording, (rows, depth), columns = current(), x.shape, outs[0].shape[1]
    weight = _constant(_matrix(known, columns, depth), "weight")
    levels = tangrad.empty((rows, depth), dtype=tangrad.uint8, device=x.device)
    refs: list[Any] = [recording.ref(t) for t in (outs[0], x.contiguous(), levels)]
    refs += [weight, *each, Ref(recording.error_cell(), 0, "int64")]
    most = 127 if reduce_range else 255
    numbers = [rows, depth, columns, most, int(relu)]
    function = Text("quantized_product_dynamic", _DYNAMIC)
    recording.add(Routine(function, refs, (0, 2, 7), numbers, rows * depth * columns))
    return True


def _convolution(outs: Any, args: Any) -> bool:
    x, packed, _, weight_zeros, scales, bias, geometry, levels = args
    known, each = _known(packed), _channels(weight_zeros, scales, bias)
    if known is None or each is None:
        return False
    y, ins, columns = outs[0], x.shape[4], outs[0].shape[4]
    taps = int(np.prod(geometry[:3]))
    if known.ndim == 2:
        groups, weight = columns, known.T
    else:
        groups = known.shape[0]
        depth = taps * (ins // groups)
        parts = known.reshape(*known.shape[:2], -1, 16, 4)
        weight = np.concatenate([_matrix(part, columns // groups, depth) for part in parts])
    refs = [current().ref(y), current().ref(x.contiguous()), _constant(weight, "weight"), *each]
    numbers = [x.shape[0], *x.shape[1:5], *y.shape[1:5], groups, *geometry, *levels]
    function = Text("quantized_convolution", _CONVOLVE, y.dtype.name)
    work = y.numel() * taps * (ins // groups)
    current().add(Routine(function, refs, (0,), numbers, work))
    return True


def _of_two(title: str, text: str) -> Any:
    def keep(outs: Any, args: Any) -> bool:
        a, b, *numbers = args
        refs = [current().ref(t.contiguous()) for t in (outs[0], a, b)]
        function = Text(title, text, outs[0].dtype.name)
        count = outs[0].numel()
        current().add(Routine(function, refs, (0,), [count, *map(_single, numbers)], count))
        return True

    return keep


def _of_one(title: str, text: str) -> Any:
    def keep(outs: Any, args: Any) -> bool:
        x, *numbers = args
        refs = [current().ref(t.contiguous()) for t in (outs[0], x)]
        integers = x if x.dtype is not tangrad.float32 else outs[0]
        function = Text(title, text, integers.dtype.name)
        count = outs[0].numel()
        current().add(Routine(function, refs, (0,), [count, *map(_single, numbers)], count))
        return True

    return keep


def _single(number: Any) -> Any:
    """Return a number as the kernels of the library use it: a float in float32."""
    return number if isinstance(number, int) else float(np.float32(number))


def _lookup(outs: Any, args: Any) -> bool:
    x, table = args
    known = _known(table)
    if known is None:
        return False
    kinds = {"uint8": "uint8_t", "int8": "int8_t"}
    function = Text("lookup", _LOOKUP, table.dtype.name, S=kinds[x.dtype.name])
    refs = [current().ref(outs[0]), current().ref(x.contiguous()), _constant(known, "table")]
    count = outs[0].numel()
    current().add(Routine(function, refs, (0,), [count], count))
    return True


_KERNELS = {
    "quantized_product": _product,
    "quantized_product_dynamic": _dynamic,
    "quantized_convolution": _convolution,
    "quantized_sum": _of_two("quantized_sum", _SUM),
    "quantized_times": _of_two("quantized_times", _TIMES),
    "quantized_from_float": _of_one("quantized", _FROM_FLOAT),
    "quantized_to_float": _of_one("numbers_of", _TO_FLOAT),
    "quantized_lookup": _lookup,
}
