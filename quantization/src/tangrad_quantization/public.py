"""What `tangrad` itself shows: functions that make quantized tensors, and some of such tensors."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import Ints, Tensor, composite
from tangrad_quantization import qparams
from tangrad_quantization.dtypes import span
from tangrad_quantization.layouts import layout

_COMMON: dict[str, Any] = {"method": False, "samples": lambda s: []}


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, tangrad.Tensor) else value


@composite(**_COMMON)
def quantize_per_tensor(
    input: Any,
    scale: Any = None,
    zero_point: Any = None,
    dtype: Any = None,
    *,
    scales: Any = None,
    zero_points: Any = None,
    tensors: Any = None,
) -> Any:
    """Quantize numbers: divide by the scale, round half to even, add the zero point, clip.

    Args:
        input: float32, or a list of tensors.
        scale: distance of two values; for a list, a tensor of one for each.
        zero_point: the integer that stands for zero; for a list, a tensor of one for each.
        dtype: tangrad.quint8, qint8, qint32, quint4x2 or quint2x4.
        scales, zero_points, tensors: other names of the first three, for lists.

    Raises:
        ValueError: the scale is not positive and finite.
        RuntimeError: the zero point is no integer of dtype, or the input is not float32, or is
            quantized already.
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


@composite(**_COMMON)
def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any
) -> Tensor:
    """Quantize numbers with a scale and a zero point for each index of one dimension.

    Args:
        input: float32.
        scales: one for each channel.
        zero_points: one for each channel: integers, or broken ones in float32.
        axis: the dimension of the channels.
        dtype: a quantized dtype.

    Raises:
        ValueError: a scale is not positive and finite.
        RuntimeError: a zero point is no integer of dtype, their number is not that of the
            channels, or the input is not float32.
        IndexError: there is no such dimension.
    """
    return layout.quantize_per_channel(input, scales, zero_points, axis, dtype)


@composite(**_COMMON)
def _make_per_tensor_quantized_tensor(input: Tensor, scale: float, zero_point: int) -> Tensor:
    """Take integers as a quantized tensor.

    Args:
        input: uint8, int8 or int32.
        scale: distance of two values.
        zero_point: the integer that stands for zero.

    Raises:
        RuntimeError: the dtype is another, or the zero point is no integer of it.
    """
    dtype = _quantized_dtype(input, "_make_per_tensor_quantized_tensor")
    low, high, _, _ = span(dtype, op="_make_per_tensor_quantized_tensor")
    scale = qparams.check_scale("_make_per_tensor_quantized_tensor", scale)
    zero = qparams.check_zero_point(
        "_make_per_tensor_quantized_tensor", zero_point, low, high, dtype
    )
    return layout.per_tensor(input.clone(), scale, zero, dtype)


@composite(**_COMMON)
def _make_per_channel_quantized_tensor(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int
) -> Tensor:
    """Take integers as a tensor that is quantized by the channels of one dimension.

    Args:
        input: uint8, int8 or int32.
        scale: distances of two values, one for each channel.
        zero_point: the integers, or numbers, that stand for zero.
        axis: the dimension of the channels.

    Raises:
        RuntimeError: the dtype is another, or there are not as many scales as channels.
    """
    name = "_make_per_channel_quantized_tensor"
    dtype = _quantized_dtype(input, name)
    if not -input.dim() <= axis < input.dim():
        raise RuntimeError(f"{name}: shape {tuple(input.shape)} has no dimension {axis}")
    channels = (input.shape[axis],)
    if tuple(scale.shape) != channels or tuple(zero_point.shape) != channels:
        raise RuntimeError(
            f"{name}: scales {tuple(scale.shape)} and zero points {tuple(zero_point.shape)} do not "
            f"fit shape {tuple(input.shape)} along dimension {axis}"
        )
    kept = tangrad.float32 if zero_point.is_floating_point() else tangrad.int64
    return layout.per_channel(
        input.clone(), scale.to(tangrad.float64), zero_point.to(kept), axis % input.dim(), dtype,
        input.shape,
    )  # fmt: skip


def _quantized_dtype(input: Any, op: str) -> Any:
    """Return the dtype of quantized tensors of such integers."""
    kinds = {tangrad.uint8: "quint8", tangrad.int8: "qint8", tangrad.int32: "qint32"}
    if input.dtype not in kinds:
        raise RuntimeError(f"{op}: got {input.dtype}; give uint8, int8 or int32")
    return getattr(tangrad, kinds[input.dtype])


@composite(**_COMMON)
def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> Tensor:
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


@composite(**_COMMON)
def quantized_max_pool1d(
    self: Tensor,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> Tensor:
    """Take the largest of windows of a quantized tensor; see `nn.functional.max_pool1d`."""
    layout.require(self, "quantized_max_pool1d")
    return tangrad.nn.functional.max_pool1d(
        self, kernel_size, stride or None, padding, dilation, ceil_mode
    )


@composite(**_COMMON)
def quantized_max_pool2d(
    self: Tensor,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> Tensor:
    """Take the largest of windows of a quantized tensor; see `nn.functional.max_pool2d`."""
    layout.require(self, "quantized_max_pool2d")
    kernel, step, around, apart = (
        list(value) * 2 if len(value) == 1 else list(value)
        for value in (kernel_size, stride, padding, dilation)
    )
    return tangrad.nn.functional.max_pool2d(self, kernel, step or None, around, apart, ceil_mode)


@composite(**_COMMON)
def quantized_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> Tensor:
    """Normalize a quantized tensor by statistics of its channels, computed in float32.

    Args:
        input: quantized [batch, channels, ...].
        weight, bias: of each channel, or None.
        mean, var: of each channel.
        eps: added to the variance.
        output_scale, output_zero_point: of the output.
    """
    from tangrad_quantization import functional

    def normalized(x: Any) -> Any:
        return tangrad.nn.functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    return functional.through_float(
        input, "quantized_batch_norm", normalized, output_scale, output_zero_point
    )
