"""Weights in the order in which kernels read them, with what is computed of them once."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad_quantization import ops
from tangrad_quantization.layouts import layout

_Three = tuple[int, int, int]


def _scales_and_zeros(weight: Any, op: str) -> tuple[Any, Any, bool]:
    """Return float32 scales and int32 zero points of the channels, and whether they are all."""
    channels = weight.shape[0]
    if not layout.is_quantized(weight) or weight.dtype != tangrad.qint8:
        found = weight.dtype if isinstance(weight, tangrad.Tensor) else type(weight).__name__
        raise RuntimeError(f"{op}: the weight must be quantized to tangrad.qint8, got {found}")
    if weight.layout.name == layout.PER_TENSOR:
        scale, zero = layout.scale_and_zero(weight, op)
        return (
            tangrad.full((channels,), scale, dtype=tangrad.float32, device=weight.device),
            tangrad.full((channels,), zero, dtype=tangrad.int32, device=weight.device),
            True,
        )
    if layout.q_per_channel_axis(weight) != 0:
        raise RuntimeError(
            f"{op}: the weight must have its channels in dimension 0, they are in dimension "
            f"{layout.q_per_channel_axis(weight)}"
        )
    scales = layout.q_per_channel_scales(weight).to(tangrad.float32)
    zeros = layout.q_per_channel_zero_points(weight)
    if zeros.is_floating_point():
        raise RuntimeError(f"{op}: the zero points of the weight must be integers")
    return scales, zeros.to(tangrad.int32), False


class _Packed:
    """What packed weights of all kinds share.

    Attributes:
        source: the quantized weight as it was given.
        weight: the same, detached.
        bias: float32, or None.
        packed: the weight as kernels read it.
    """

    op = "quantized op"

    def __init__(self, weight: Any, bias: Any) -> None:
        self.source, self.weight = weight, weight.detach()
        self.bias = None if bias is None else bias.detach().to(tangrad.float32)
        self.scales, zeros, self.one_scale = _scales_and_zeros(self.weight, self.op)
        matrix = self.matrix()
        self.zeros = zeros if bool((zeros != 0).any()) else None
        self.sums = matrix.to(tangrad.int64).sum(1).to(tangrad.int32)
        if bias is not None and tuple(bias.shape) != (len(self.scales),):
            raise RuntimeError(
                f"{self.op}: the bias must have {len(self.scales)} elements, got shape "
                f"{list(bias.shape)}"
            )
        self._found: dict[tuple[float, float], tuple[Any, Any]] = {}

    def matrix(self) -> Any:
        """Return the integers as [columns, depth], and keep them packed."""
        raise NotImplementedError

    def multipliers(self, input_scale: float, scale: float) -> tuple[Any, Any]:
        """Return what sums are multiplied by, and the bias in units of the sums, per channel."""
        key = (input_scale, scale)
        if key not in self._found:
            device = self.scales.device
            single = tangrad.tensor([input_scale, scale], dtype=tangrad.float32, device=device)
            products = single[0] * self.scales
            # As FBGEMM: one scale has an inverse, several divide.
            units = products.reciprocal() if self.one_scale else products
            self._found = {key: (products / single[1], units)}
        multipliers, units = self._found[key]
        if self.bias is None:
            return multipliers, None
        # The program may have written into the bias since.
        return multipliers, self.bias * units if self.one_scale else self.bias / units


class PackedLinear(_Packed):
    """The weight of a linear layer, [columns, depth] of qint8, and its bias."""

    op = "quantized linear"

    def matrix(self) -> Any:
        """Return the integers, and keep them packed."""
        if self.weight.dim() != 2:
            raise RuntimeError(
                f"{self.op}: the weight must be a matrix, got shape {list(self.weight.shape)}"
            )
        values = layout.values_of(self.weight)
        self.packed = ops.pack(values)
        return values


def triple(values: Any, filler: int) -> _Three:
    """Return extents of one, two or three dimensions as of three."""
    given = tuple(values)
    return (filler,) * (3 - len(given)) + given  # type: ignore[return-value]


class PackedConv(_Packed):
    """The weight of a convolution, [channels, channels of a group, ...] of qint8, and its bias.

    Args:
        weight: the weight, with 1 to 3 dimensions of places.
        bias: float32, or None.
        stride, padding, dilation: extents in these dimensions.
        groups: how many.
    """

    op = "quantized convolution"

    def __init__(
        self, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> None:
        self.places = weight.dim() - 2
        self.stride, self.padding = triple(stride, 1), triple(padding, 0)
        self.dilation = triple(dilation, 1)
        self.geometry = (
            *triple(weight.shape[2:], 1),
            *self.stride,
            *self.padding,
            *self.dilation,
        )
        self.groups, self.channels = groups, weight.shape[1] * groups
        super().__init__(weight, bias)

    def of_numbers(self, x: Any) -> Any:
        """Return the convolution of numbers with the weight's numbers."""
        function = getattr(F, f"conv{self.places}d")
        stride, padding, dilation = (
            extents[-self.places :] for extents in (self.stride, self.padding, self.dilation)
        )
        weight = layout.dequantize(self.weight)
        return function(x, weight, self.bias, stride, padding, dilation, self.groups)

    def matrix(self) -> Any:
        """Return the integers, channels of the input innermost, and keep them packed."""
        values = layout.values_of(self.weight)
        columns, width = values.shape[:2]
        over = values.reshape(columns, width, -1).permute(0, 2, 1)
        rows = over.reshape(columns, -1).contiguous()
        if width == 1 and columns == self.groups:
            self.packed = rows.t().contiguous()
        else:
            parts = [ops.pack(part).flatten(1) for part in rows.chunk(self.groups)]
            self.packed = tangrad.stack(parts)
        return rows


class PackedTransposedConv:
    """The weight of a transposed convolution, [channels, channels of a group, ...], and its bias.

    It has no kernel of its own: sums are computed exactly, in float64.
    """

    op = "quantized transposed convolution"

    def __init__(
        self,
        weight: Any,
        bias: Any,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
    ) -> None:
        if weight.layout.name != layout.PER_TENSOR:
            raise RuntimeError(f"{self.op}: the weight must have one scale for all")
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.places = weight.dim() - 2
        self.stride, self.padding = triple(stride, 1), triple(padding, 0)
        self.output_padding = triple(output_padding, 0)
        self.dilation, self.groups = triple(dilation, 1), groups
        self.channels = weight.shape[0]

    def of_numbers(self, x: Any) -> Any:
        """Return the transposed convolution of numbers with the weight's numbers."""
        function = getattr(F, f"conv_transpose{self.places}d")
        stride, padding, output_padding, dilation = (
            extents[-self.places :]
            for extents in (self.stride, self.padding, self.output_padding, self.dilation)
        )
        weight = layout.dequantize(self.weight)
        return function(
            x, weight, self.bias, stride, padding, output_padding, self.groups, dilation
        )
