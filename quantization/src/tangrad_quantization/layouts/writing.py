"""What ops that order elements, or write into places, do with quantized tensors of one scale.

Integers are ordered as the numbers that they stand for, since scales are positive. A number that
is written is quantized first, by the scale of the tensor that it is written to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import plugin
from tangrad_quantization.layouts import layout


def ordered(op: Any) -> Callable[..., Any]:
    """Order or choose elements by their integers; what else the op tells are positions."""

    def kernel(x: Any, *rest: Any) -> Any:
        layout.require(x, op.name)
        found = op(layout.whole_values(x), *rest)
        if isinstance(found, tangrad.Tensor):
            return layout.with_values(x, found)
        return type(found)((layout.with_values(x, found[0]), *found[1:]))

    return kernel


def integer_of(x: Any, value: Any, op: str) -> int:
    """Return the integer that stands for a number in a quantized tensor, clipped to its dtype."""
    scale, zero = layout.scale_and_zero(x, op)
    number = tangrad.tensor([float(value)])
    made = layout.quantize_per_tensor(number, scale, zero, x.dtype)
    return int(layout.whole_values(made).item())


def _integers_of(x: Any, values: Any, op: str) -> Any:
    """Return the integers of numbers, or of a quantized tensor, in the scale of another tensor."""
    scale, zero = layout.scale_and_zero(x, op)
    numbers = layout.dequantize(values) if layout.is_quantized(values) else values
    made = layout.quantize_per_tensor(numbers.to(tangrad.float32), scale, zero, x.dtype)
    return layout.values_of(made)


def rewritten(x: Any, values: Any, op: str, metadata: Any = None) -> Any:
    """Give a tensor other integers in its memory, which views of it share."""
    held = dict(plugin.components(x))
    held["values"].copy_(values)
    return plugin.replace_components(x, held, metadata=metadata, writer=op)


def _unpacked(x: Any, op: str) -> Any:
    """Return the integers of a tensor that has each in bytes of its own.

    Raises:
        NotImplementedError: several share a byte.
    """
    layout.require(x, op)
    values = layout.values_of(x)
    if values.shape != x.shape:
        raise NotImplementedError(
            f"{op}: elements of {x.dtype} share bytes, and are not written one by one; call "
            f"dequantize(), write, and quantize again"
        )
    return values


def _fill(x: Any, value: Any) -> Any:
    values = _unpacked(x, "fill_")
    return rewritten(x, tangrad.full_like(values, integer_of(x, value, "fill_")), "fill_")


def _zero(x: Any) -> Any:
    return _fill(x, 0.0)


def _masked(x: Any, mask: Any, value: Any) -> Any:
    values = _unpacked(x, "masked_fill")
    return layout.with_values(x, values.masked_fill(mask, integer_of(x, value, "masked_fill")))


def _masked_in_place(x: Any, mask: Any, value: Any) -> Any:
    values = _unpacked(x, "masked_fill_")
    made = values.masked_fill(mask, integer_of(x, value, "masked_fill_"))
    if made.shape != values.shape:
        raise RuntimeError(
            f"masked_fill_: a mask of shape {list(mask.shape)} does not broadcast to the shape "
            f"of the tensor, {list(x.shape)}"
        )
    return rewritten(x, made, "masked_fill_")


def _put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return layout.with_values(x, _written(x, indices, values, accumulate, "index_put"))


def _put_in_place(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return rewritten(x, _written(x, indices, values, accumulate, "index_put_"), "index_put_")


def _written(x: Any, indices: Any, values: Any, accumulate: bool, op: str) -> Any:
    if accumulate:
        raise RuntimeError(
            f"{op}: a quantized tensor takes no accumulate=True, since sums have another scale; "
            f"call dequantize()"
        )
    return _unpacked(x, op).index_put(tuple(indices), _integers_of(x, values, op))


def _threshold(x: Any, threshold: float, value: float) -> Any:
    """Replace numbers that are not above a threshold."""
    values = _unpacked(x, "threshold")
    above = layout.dequantize(x) > threshold
    return layout.with_values(x, tangrad.where(above, values, integer_of(x, value, "threshold")))


def _padded(x: Any, pad: Any, value: float = 0) -> Any:
    values = _unpacked(x, "constant_pad_nd")
    around = integer_of(x, value, "constant_pad_nd")
    return layout.with_values(x, tangrad.constant_pad_nd(values, tuple(pad), around))


ORDERING = ("max_all", "max_dim", "min_all", "min_dim", "msort", "sort", "topk")
WRITING: dict[str, Callable[..., Any]] = {
    "_index_put": _put,
    "_index_put_": _put_in_place,
    "constant_pad_nd": _padded,
    "fill_": _fill,
    "index_put": _put,
    "index_put_": _put_in_place,
    "masked_fill": _masked,
    "masked_fill_": _masked_in_place,
    "threshold": _threshold,
    "zero_": _zero,
}
