"""Layers of images that have functions of their own: pooling, and norms by known statistics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tangrad
from tangrad.plugin import get_driver
from tangrad.plugin.render import parse
from tangrad_export.program.recording import current
from tangrad_export.steps.loops import Body, Evaluation, Loop, access, function_of
from tangrad_export.steps.routines import Routine, Text

__all__ = ["Scaled", "layer_kernel"]

_POOL = """static void @(T *y, const T *x, int planes, int height, int width, int oh, int ow,
    int kh, int kw, int sh, int sw, int ph, int pw, int dh, int dw, int divisor) {
    (void)divisor;
    for (int plane = 0; plane < planes; ++plane, x += (int64_t)height * width)
        for (int v = 0; v < oh; ++v)
            for (int u = 0; u < ow; ++u, ++y) {
                const int top = v * sh - ph, left = u * sw - pw;
                START
                for (int i = 0; i < kh; ++i) {
                    const int p = top + i * dh;
                    if (p < 0 || p >= height) continue;
                    for (int j = 0; j < kw; ++j) {
                        const int q = left + j * dw;
                        if (q < 0 || q >= width) continue;
                        const T value = x[p * width + q];
                        STEP
                    }
                }
                END
            }
}
"""
_GREATEST = {
    "START": "T best = -INFINITY;",
    "STEP": "if (value > best || value != value) best = value;",
    "END": "*y = best;",
}
_SCALE = SimpleNamespace(
    inputs=("x", "s", "t"), fixed={}, expression=parse("x * s + t", ("x", "s", "t"))
)


class Scaled(Loop):
    """A loop that scales and shifts channels by what the exporter knows.

    Attributes:
        scale, shift: of each channel, arrays.
    """

    scale: Any = None
    shift: Any = None


def layer_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of such a layer, None of other ops and dtypes."""
    if op.name not in _KERNELS or dtype not in ("float32", "float64"):
        return None
    made: list[Any] = []

    def kernel(outs: Any, args: Any) -> None:
        if outs[0].numel() and _KERNELS[op.name](outs, args):
            return
        if not made:
            made.append(get_driver("c99").template_for(op, getattr(tangrad, dtype)))
        made[0](outs, args)

    return kernel


def _pool(outs: Any, x: Any, windows: Any, divisor: int, texts: dict[str, str]) -> bool:
    rank = len(windows[0])
    if rank > 2 or not outs[0].is_contiguous():
        return False
    x = x.contiguous()

    def two(values: Any, fill: int) -> list[int]:
        return [fill] * (2 - rank) + [int(v) for v in values]

    size, result = two(x.shape[-rank:], 1), two(outs[0].shape[-rank:], 1)
    planes = outs[0].numel() // (result[0] * result[1])
    numbers = [planes, *size, *result]
    for values, fill in zip(windows, (1, 1, 0, 1), strict=True):
        numbers += two(values, fill)
    text = _POOL
    for mark, part in texts.items():
        text = text.replace(mark, part)
    refs = [current().ref(outs[0]), current().ref(x)]
    work = outs[0].numel() * numbers[5] * numbers[6]
    title = "pool_most" if "best" in text else "pool_mean"
    function = Text(title, text, x.dtype.name)
    current().add(Routine(function, refs, (0,), [*numbers, divisor], work))
    return True


def _max_pool(outs: Any, args: Any) -> bool:
    x, kernel, stride, padding, dilation, _ = args
    return _pool(outs, x, (kernel, stride or kernel, padding, dilation), 1, _GREATEST)


def _batch_norm(outs: Any, args: Any) -> bool:
    x, weight, bias, mean, var, training, eps = args
    recording = current()
    if training or mean is None or var is None or not recording.weights_stay:
        return False
    known: list[Any] = []
    for t in (weight, bias, mean, var):
        if t is None:
            known.append(None)
            continue
        buffer = recording.ref(t).buffer
        if buffer.kind != "weight" or any(buffer in s.written_buffers() for s in recording.steps):
            return False
        known.append(buffer.value.detach().double())
    w, b, m, v = known
    scale = (v + eps).rsqrt()
    scale = scale if w is None else scale * w
    shift = -m * scale if b is None else b - m * scale
    shape = tuple(x.shape)
    pair = [recording.constant(t.to(x.dtype)) for t in (scale, shift)]
    along = [1, -1] + [1] * (x.ndim - 2)
    function = function_of(
        "scale", _SCALE, x.dtype.name, dict.fromkeys("xst", x.dtype.name), (x.dtype.name,)
    )
    given = [x, *(t.reshape(along) for t in pair)]
    inputs = [("load", access(recording, t, shape)) for t in given]
    evaluation = Evaluation(function, inputs, [])
    loop = Scaled(shape, Body([evaluation]), [(access(recording, outs[0], shape), evaluation, 0)])
    loop.scale, loop.shift = scale.numpy(), shift.numpy()
    recording.add(loop)
    # The statistics that were used are results, too, which hardly anything reads.
    for out, t in zip(outs[1:], (mean, var), strict=True):
        out.copy_(t)
    return True


_KERNELS = {"max_pool_values": _max_pool, "_batch_norm": _batch_norm}
