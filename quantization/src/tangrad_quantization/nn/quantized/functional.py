"""Functions of quantized tensors, as `nn.functional` has them for numbers.

Where no scale is an argument, the output has the scale and zero point of the input.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad_quantization import functional
from tangrad_quantization.layouts import layout
from tangrad_quantization.weights.packed import PackedConv, PackedLinear

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool2d",
    "avg_pool3d",
    "celu",
    "clamp",
    "conv1d",
    "conv2d",
    "conv3d",
    "elu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "interpolate",
    "leaky_relu",
    "linear",
    "max_pool1d",
    "max_pool2d",
    "threshold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]


def _require(name: str, input: Any) -> None:
    if not input.is_quantized:
        raise ValueError(
            f"Input to 'quantized.{name}' must be quantized! It is {input.dtype}"
            f"{list(input.shape)}; quantize it with tangrad.quantize_per_tensor"
        )


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Average windows of a quantized tensor; see `nn.functional.avg_pool2d`."""
    _require("avg_pool2d", input)
    rest = (stride, padding, ceil_mode, count_include_pad, divisor_override)
    return F.avg_pool2d(input, kernel_size, *rest)


def avg_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Average windows of a quantized tensor; see `nn.functional.avg_pool3d`."""
    _require("avg_pool3d", input)
    rest = (stride, padding, ceil_mode, count_include_pad, divisor_override)
    return F.avg_pool3d(input, kernel_size, *rest)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """Average a quantized tensor to a size; see `nn.functional.adaptive_avg_pool2d`."""
    _require("functional.adaptive_avg_pool2d", input)
    return F.adaptive_avg_pool2d(input, output_size)


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    """Average a quantized tensor to a size; see `nn.functional.adaptive_avg_pool3d`."""
    _require("functional.adaptive_avg_pool3d", input)
    return F.adaptive_avg_pool3d(input, output_size)


def _convolved(
    places: int,
    input: Any,
    weight: Any,
    bias: Any,
    extents: tuple[Any, Any, Any],
    groups: int,
    padding_mode: str,
    ends: tuple[float, int],
    dtype: Any,
) -> Any:
    name = f"conv{places}d"
    if padding_mode != "zeros":
        raise NotImplementedError("Only zero-padding is supported!")
    for what, found, wanted in (
        ("dtype", dtype, tangrad.quint8),
        ("input", input.dtype, tangrad.quint8),
        ("weight", weight.dtype, tangrad.qint8),
    ):
        if wanted is not None and found not in (None, wanted):
            raise NotImplementedError(
                f"quantized.{name}: {what} must be {wanted}, got {found}; tensors are quantized "
                f"with tangrad.quantize_per_tensor"
            )
    if input.dim() != places + 2:
        raise ValueError(
            f"quantized.{name}: Input shape must have {places + 2} dimensions, got "
            f"{list(input.shape)}"
        )
    stride, padding, dilation = (
        (value,) * places if isinstance(value, int) else tuple(value) for value in extents
    )
    packed = PackedConv(weight, bias, stride, padding, dilation, groups)
    return functional.conv(input, packed, *ends)


def _convolution(places: int, shape: str) -> Callable[..., Any]:
    """Return the convolution over one, two or three dimensions."""

    def convolve(
        input: Any,
        weight: Any,
        bias: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        scale: float = 1.0,
        zero_point: int = 0,
        dtype: Any = None,
    ) -> Any:
        extents, ends = (stride, padding, dilation), (scale, zero_point)
        return _convolved(places, input, weight, bias, extents, groups, padding_mode, ends, dtype)

    convolve.__name__ = convolve.__qualname__ = f"conv{places}d"
    convolve.__doc__ = f"""Convolve a quantized tensor [{shape}] with a weight of qint8.

    The weight is packed in each call: `nnq.Conv{places}d` keeps it so.

    Args:
        input: quint8.
        weight: qint8, as of `nn.functional.conv{places}d`.
        bias: float32, or None.
        stride, padding, dilation, groups: as of `nn.functional.conv{places}d`.
        padding_mode: "zeros".
        scale: of the output.
        zero_point: of the output.
        dtype: quint8.

    Raises:
        NotImplementedError: a dtype or the padding is another.
        ValueError: the input has another number of dimensions.
    """
    return convolve


conv1d = _convolution(1, "batch, channels, width")
conv2d = _convolution(2, "batch, channels, height, width")
conv3d = _convolution(3, "batch, channels, depth, height, width")


def linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    scale: float | None = None,
    zero_point: int | None = None,
) -> Any:
    """Apply a linear layer; the weight is packed in each call: `nnq.Linear` keeps it so.

    Args:
        input: quantized, [..., columns].
        weight: qint8 [rows, columns].
        bias: float32, or None.
        scale: of the output; by default of the input.
        zero_point: of the output; by default of the input.
    """
    own = layout.scale_and_zero(input, "quantized linear")
    ends = (own[0] if scale is None else scale, own[1] if zero_point is None else zero_point)
    return functional.linear(input, PackedLinear(weight, bias), *ends)


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Take the largest of windows; see `nn.functional.max_pool1d`."""
    if return_indices:
        raise NotImplementedError("return_indices is not yet implemented!")
    return F.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Take the largest of windows; see `nn.functional.max_pool2d`."""
    if return_indices:
        raise NotImplementedError("return_indices is not yet implemented!")
    return F.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)


def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """Bring a quantized tensor to another size; see `nn.functional.interpolate`."""
    _require("interpolate", input)
    return F.interpolate(input, size, scale_factor, mode, align_corners)


def celu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    """Apply the continuously differentiable exponential linear unit.

    Args:
        input: quantized.
        scale, zero_point: of the output.
        alpha: of the function.
    """
    _require("celu", input)
    return functional.celu(input, alpha, scale, zero_point)


def _stored(input: Any, made: Any, inplace: bool) -> Any:
    return input.copy_(made) if inplace else made


def leaky_relu(
    input: Any,
    negative_slope: float = 0.01,
    inplace: bool = False,
    scale: float | None = None,
    zero_point: int | None = None,
) -> Any:
    """Apply the rectifier with a slope below zero.

    Args:
        input: quantized.
        negative_slope: the slope.
        inplace: write into the input; only without a scale of its own.
        scale, zero_point: of the output, both or none.
    """
    if scale is not None and zero_point is not None:
        if inplace:
            raise AssertionError("Cannot rescale with `inplace`")
        ends = {"output_scale": scale, "output_zero_point": zero_point}
        return functional.leaky_relu(input, negative_slope, **ends)
    _require("leaky_relu", input)
    return _stored(input, F.leaky_relu(input, negative_slope), inplace)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """Clip the numbers of a quantized tensor."""
    _require("hardtanh", input)
    return _stored(input, functional.clipped(input, min_val, max_val), inplace)


def hardswish(input: Any, scale: float, zero_point: int) -> Any:
    """Apply x relu6(x + 3) / 6; `scale` and `zero_point` are those of the output."""
    _require("hardswish", input)
    return functional.hardswish(input, output_scale=scale, output_zero_point=zero_point)


def threshold(input: Any, threshold: float, value: float) -> Any:
    """Replace numbers that are not above a threshold by a value."""
    _require("threshold", input)
    for name, number in (("threshold", threshold), ("value", value)):
        if number is None:
            raise ValueError(f"Input to 'threshold' must be specified: {name} is None")
    return functional.threshold(input, threshold, value)


def elu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    """Apply the exponential linear unit; `scale` and `zero_point` are those of the output."""
    _require("elu", input)
    return functional.elu(input, alpha, output_scale=scale, output_zero_point=zero_point)


def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """Apply relu6(x + 3) / 6: the output has the scale 1 / 256, in place that of the input."""
    _require("hardsigmoid", input)
    return _stored(input, F.hardsigmoid(input), inplace)


def clamp(input: Any, min_: float, max_: float) -> Any:
    """Clip the numbers of a quantized tensor."""
    _require("clamp", input)
    return functional.clipped(input, min_, max_)


def upsample(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """Call `interpolate`, which stands in its place."""
    warnings.warn(
        "nn.quantized.functional.upsample is deprecated. Use nn.quantized.functional.interpolate "
        "instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Call `interpolate(mode="bilinear", align_corners=True)`, which stands in its place."""
    warnings.warn(
        "nn.quantized.functional.upsample_bilinear is deprecated. Use "
        "nn.quantized.functional.interpolate instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Call `interpolate(mode="nearest")`, which stands in its place."""
    warnings.warn(
        "nn.quantized.functional.upsample_nearest is deprecated. Use "
        "nn.quantized.functional.interpolate instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="nearest")
