"""What `tangrad` itself shows: functions that make quantized tensors."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import composite
from tangrad_quantization import layout, qparams
from tangrad_quantization.dtypes import span

_COMMON: dict[str, Any] = {"method": False, "samples": lambda s: []}


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, tangrad.Tensor) else value


@composite(
    "quantize_per_tensor(any input, any scale=None, any zero_point=None, any dtype=None,"
    " *, any scales=None, any zero_points=None, any tensors=None) -> any",
    **_COMMON,
)
def quantize_per_tensor(
    input: Any, scale: Any, zero_point: Any, dtype: Any, scales: Any, zero_points: Any, tensors: Any
) -> Any:
    """Quantize numbers: divide by the scale, round half to even, add the zero point, clip.

    Args:
        input: float32, or a list of tensors.
        scale: distance of two values; for a list, a tensor of one for each.
        zero_point: the integer that stands for zero; for a list, a tensor of one for each.
        dtype: tangrad.quint8, qint8, qint32, quint4x2 or quint2x4.
        scales, zero_points, tensors: other names of the first three, for lists.

    Raises:
        ValueError: the scale is not positive and finite, or the zero point is no integer of dtype.
        RuntimeError: the input is not float32, or is quantized already.
    """
    input = tensors if tensors is not None else input
    scale = scales if scales is not None else scale
    zero_point = zero_points if zero_points is not None else zero_point
    if isinstance(input, (list, tuple)):
        if not (isinstance(scale, tangrad.Tensor) and isinstance(zero_point, tangrad.Tensor)):
            raise TypeError(
                "quantize_per_tensor(): a list of tensors takes tensors of scales and zero_points, "
                f"not {type(scale).__name__} and {type(zero_point).__name__}"
            )
        pairs = zip(input, scale.tolist(), zero_point.tolist(), strict=True)
        return tuple(layout.quantize_per_tensor(x, s, z, dtype) for x, s, z in pairs)
    return layout.quantize_per_tensor(input, _number(scale), _number(zero_point), dtype)


@composite(
    "quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, any dtype)"
    " -> Tensor",
    **_COMMON,
)
def quantize_per_channel(input: Any, scales: Any, zero_points: Any, axis: int, dtype: Any) -> Any:
    """Quantize numbers with a scale and a zero point for each index of one dimension.

    Args:
        input: float32.
        scales: one for each channel.
        zero_points: one for each channel: integers, or broken ones in float32.
        axis: the dimension of the channels.
        dtype: a quantized dtype.

    Raises:
        ValueError: a scale is not positive and finite, or a zero point is no integer of dtype.
        RuntimeError: their number is not that of the channels, or the input is not float32.
        IndexError: there is no such dimension.
    """
    return layout.quantize_per_channel(input, scales, zero_points, axis, dtype)


@composite(
    "quantize_per_tensor_dynamic(Tensor input, any dtype, bool reduce_range) -> Tensor",
    **_COMMON,
)
def quantize_per_tensor_dynamic(input: Any, dtype: Any, reduce_range: bool) -> Any:
    """Quantize numbers by their own range.

    Args:
        input: float32.
        dtype: tangrad.quint8 or qint8.
        reduce_range: leave one bit unused.

    Raises:
        RuntimeError: the input holds NaN or infinity, or is not float32.
    """
    low, high, _, _ = span(dtype, op="quantize_per_tensor_dynamic")
    if reduce_range:
        low, high = low // 2, high // 2
    scale, zero_point = qparams.of_tensor(input, low, high)
    return layout.quantize_per_tensor(input, scale, zero_point, dtype)
