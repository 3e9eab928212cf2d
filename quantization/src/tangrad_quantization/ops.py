"""Define the quantized ops once, in exact integer arithmetic; kernels give the same bits.

The ops take plain tensors of integers with their scales and zero points as arguments; quantized
tensors and modules stand on them. What is written here is the reference: products are summed in
int64 and taken modulo 2^32, as sums in int32 are; a sum becomes a number of the output by steps in
float32 (add the bias, multiply by the multiplier) and one rounding, half to even.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import op

_NO_GRADIENT = "none: the output is integers"
_COMMON: dict[str, Any] = {
    "vjp": _NO_GRADIENT,
    "function": False,
    "method": False,
    "out": False,
    "samples": lambda s: [],
}


def unpacked(packed: Any, columns: int, depth: int) -> Any:
    """Return the matrix [columns, depth] of which `pack` made blocks of 16 columns and 4 rows."""
    blocks, quads = packed.shape[0], packed.shape[1]
    return packed.permute(0, 2, 1, 3).reshape(blocks * 16, quads * 4)[:columns, :depth]


def pack(weight: Any) -> Any:
    """Return a matrix [columns, depth] of int8 in the order in which kernels read it."""
    columns, depth = weight.shape
    wide = tangrad.zeros(
        (columns + 15) // 16 * 16,
        (depth + 3) // 4 * 4,
        dtype=tangrad.int8,
        device=weight.device,
    )
    wide[:columns, :depth] = weight
    return wide.reshape(-1, 16, wide.shape[1] // 4, 4).permute(0, 2, 1, 3).contiguous()


def wrapped(sums: Any) -> Any:
    """Return int64 sums modulo 2^32, as sums in int32 would be."""
    return ((sums + 2**31) & 0xFFFFFFFF) - 2**31


def exact_product(input: Any, weight: Any) -> Any:
    """Multiply integers [rows, depth] by [columns, depth] transposed, in int64."""
    return input.to(tangrad.int64) @ weight.to(tangrad.int64).t()


def rounded(values: Any, zero: int, low: int, high: int, dtype: Any) -> Any:
    """Return float32 numbers as integers: clipped, rounded half to even, moved by the zero point.

    Between whole bounds, clipping before rounding is the same as after.
    """
    clipped = values.clamp(float(low - zero), float(high - zero))
    return (clipped.round().to(tangrad.int32) + zero).to(dtype)


def quantized(values: Any, inverse: Any, zero: Any, low: int, high: int) -> Any:
    """Return float32 numbers as integers, in float32: scaled, moved, clipped, rounded half to even.

    Sums of products are rounded before the zero point is added, numbers behind it, as PyTorch
    has it: at halves an odd zero point makes a difference.

    Args:
        values: float32.
        inverse: 1 over the scale, or over those of channels.
        zero: the zero point, or those of channels in float32.
        low: the lowest integer.
        high: the highest.
    """
    return (values * inverse + zero).clamp(low, high).round()


def requantized(
    sums: Any, scales: Any, bias: Any, zero: int, low: int, high: int, dtype: Any
) -> Any:
    """Return int64 sums, with a channel each in the last dimension, as integers of the output."""
    values = wrapped(sums).to(tangrad.float32)
    if bias is not None:
        values = values + bias
    return rounded(values * scales, zero, low, high, dtype)


def _bytes_of(low: int) -> Any:
    return tangrad.int8 if low < 0 else tangrad.uint8


def _product(
    input: Any,
    packed: Any,
    sums: Any,
    weight_zeros: Any,
    scales: Any,
    bias: Any,
    input_zero: int,
    zero: int,
    low: int,
    high: int,
) -> Any:
    total = _shifted_product(input, packed, weight_zeros, len(scales), input_zero)
    return requantized(total, scales, bias, zero, low, high, _bytes_of(low))


def _shifted_product(
    input: Any, packed: Any, weight_zeros: Any, columns: int, input_zero: int
) -> Any:
    weight = unpacked(packed, columns, input.shape[1]).to(tangrad.int64)
    if weight_zeros is not None:
        weight = weight - weight_zeros.to(tangrad.int64)[:, None]
    return exact_product(input.to(tangrad.int64) - input_zero, weight)


product = op(
    "quantized_product(Tensor input, Tensor packed, Tensor sums, Tensor? weight_zeros,"
    " Tensor scales, Tensor? bias, int input_zero, int zero, int low, int high) -> Tensor",
    shape=lambda input, scales: (input.shape[0], scales.shape[0]),
    dtype=lambda low: _bytes_of(low),
    decompose=_product,
    doc="""Multiply bytes by packed weights and requantize.

    Args:
        input: uint8 [rows, depth].
        packed: int8 weights as `pack` returns them.
        sums: int32, of the weights of each column.
        weight_zeros: int32 zero points of the columns; None where all are zero.
        scales: float32 multiplier of each column: input scale times weight scale over output scale.
        bias: float32, in units of the sums; None for none.
        input_zero: zero point of the input.
        zero: zero point of the output.
        low: the lowest integer of the output; the zero point if a ReLU follows.
        high: the highest.
    """,
    **_COMMON,
)


def _dynamic(
    input: Any,
    packed: Any,
    sums: Any,
    weight_zeros: Any,
    scales: Any,
    bias: Any,
    reduce_range: bool,
    relu: bool,
) -> Any:
    from tangrad_quantization import qparams

    most = 127 if reduce_range else 255
    scale, zero = qparams.of_tensor(input, 0, most)
    step = tangrad.tensor(scale, dtype=tangrad.float32, device=input.device)
    # The last bit is left to a half above the largest number, as in PyTorch.
    levels = quantized(input, step.reciprocal(), zero, 0, 255).to(tangrad.uint8)
    total = _shifted_product(levels, packed, weight_zeros, len(scales), zero)
    result = wrapped(total).to(tangrad.float32) * (step * scales)
    if bias is not None:
        result = result + bias
    return result.clamp(min=0) if relu else result


product_dynamic = op(
    "quantized_product_dynamic(Tensor input, Tensor packed, Tensor sums, Tensor? weight_zeros,"
    " Tensor scales, Tensor? bias, bool reduce_range, bool relu) -> Tensor",
    shape=lambda input, scales: (input.shape[0], scales.shape[0]),
    dtype=lambda: tangrad.float32,
    decompose=_dynamic,
    doc="""Quantize the input by its range, multiply by packed weights, and return numbers.

    Args:
        input: float32 [rows, depth].
        packed: int8 weights as `pack` returns them.
        sums: int32, of the weights of each column.
        weight_zeros: int32 zero points of the columns; None where all are zero.
        scales: float32 scale of each column.
        bias: float32; None for none.
        reduce_range: leave one bit of the input unused, as PyTorch does.
        relu: replace negative numbers by zero.

    Raises:
        RuntimeError: the input holds NaN or infinity.
    """,
    **_COMMON,
)


def conv_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return the extent of a convolution's output in one dimension."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


_Three = tuple[int, int, int]


def geometry_of(geometry: Any) -> tuple[_Three, _Three, _Three, _Three]:
    """Return kernel, stride, padding and dilation of the twelve numbers that hold all."""
    return tuple(tuple(geometry[i : i + 3]) for i in range(0, 12, 3))  # type: ignore[return-value]


def _conv_shape(input: Any, scales: Any, geometry: Any) -> Any:
    spatial = [
        conv_size(*sizes) for sizes in zip(input.shape[1:4], *geometry_of(geometry), strict=True)
    ]
    return (input.shape[0], *spatial, scales.shape[0])


def _conv_weight(packed: Any, channels: int, columns: int, kernel: Any) -> Any:
    """Return the weight [columns, channels of a group, *kernel] that was packed."""
    if packed.dim() == 2:
        return packed.t().reshape(columns, 1, *kernel)
    groups = packed.shape[0]
    taps = kernel[0] * kernel[1] * kernel[2]
    depth = taps * (channels // groups)
    parts = packed.reshape(*packed.shape[:2], -1, 16, 4)
    matrices = [unpacked(part, columns // groups, depth) for part in parts]
    matrix = tangrad.cat(matrices).reshape(columns, *kernel, channels // groups)
    return matrix.permute(0, 4, 1, 2, 3)


def _convolution(
    input: Any,
    packed: Any,
    sums: Any,
    weight_zeros: Any,
    scales: Any,
    bias: Any,
    geometry: Any,
    levels: Any,
) -> Any:
    input_zero, zero, low, high = levels
    total = convolution_sums(input, packed, weight_zeros, len(scales), geometry, input_zero)
    return requantized(total, scales, bias, zero, low, high, _bytes_of(low))


def convolution_sums(
    input: Any, packed: Any, weight_zeros: Any, columns: int, geometry: Any, input_zero: int
) -> Any:
    """Return the exact sums of a convolution, int64 [batch, depth, height, width, columns]."""
    channels = input.shape[4]
    kernel, stride, padding, dilation = geometry_of(geometry)
    weight = _conv_weight(packed, channels, columns, kernel)
    groups = channels // weight.shape[1]
    weight = weight.to(tangrad.float64)
    if weight_zeros is not None:
        weight = weight - weight_zeros.to(tangrad.float64).reshape(-1, 1, 1, 1, 1)
    # Sums of integers below 2^53: exact in float64 in every order, and rounded against transforms.
    total = tangrad.nn.functional.conv3d(
        input.permute(0, 4, 1, 2, 3).to(tangrad.float64) - input_zero,
        weight,
        None,
        stride,
        padding,
        dilation,
        groups,
    )
    return total.round().to(tangrad.int64).permute(0, 2, 3, 4, 1)


# Few arguments of few dimensions: what the core keeps of a call for the next one has 48 words.
convolution = op(
    "quantized_convolution(Tensor input, Tensor packed, Tensor sums, Tensor? weight_zeros,"
    " Tensor scales, Tensor? bias, int[] geometry, int[] levels) -> Tensor",
    shape=_conv_shape,
    dtype=lambda levels: _bytes_of(levels[2]),
    decompose=_convolution,
    doc="""Convolve bytes with packed weights over three dimensions and requantize.

    Args:
        input: uint8 [batch, depth, height, width, channels].
        packed: int8, the weights of each group as `pack` returns them, [groups, blocks, rest];
            where each channel is convolved by itself, [places of the kernel, channels].
        sums, weight_zeros, scales, bias: as of `quantized_product`, per output channel.
        geometry: extents of the kernel, stride, padding and dilation, three each; the padding
            stands for zero.
        levels: input_zero, zero, low and high, as of `quantized_product`.
    """,
    **_COMMON,
)


def _sum(
    self: Any,
    other: Any,
    scale: float,
    self_zero: int,
    other_scale: float,
    other_zero: int,
    inverse: float,
    zero: int,
    low: int,
    high: int,
) -> Any:
    first = (self.to(tangrad.int32) - self_zero).to(tangrad.float32) * scale
    second = (other.to(tangrad.int32) - other_zero).to(tangrad.float32) * other_scale
    return rounded((first + second) * inverse, zero, low, high, self.dtype)


def _times(
    self: Any,
    other: Any,
    scale: float,
    self_zero: int,
    other_scale: float,
    other_zero: int,
    inverse: float,
    zero: int,
    low: int,
    high: int,
) -> Any:
    exact = (self.to(tangrad.int32) - self_zero) * (other.to(tangrad.int32) - other_zero)
    return rounded(exact.to(tangrad.float32) * inverse, zero, low, high, self.dtype)


def _binary(name: str, decompose: Any, doc: str) -> Any:
    return op(
        f"{name}(Tensor self, Tensor other, float scale, int self_zero, float other_scale,"
        " int other_zero, float inverse, int zero, int low, int high) -> Tensor",
        shape=lambda self: self.shape,
        dtype=lambda self: self.dtype,
        decompose=decompose,
        doc=doc,
        **_COMMON,
    )


sum_of_two = _binary(
    "quantized_sum",
    _sum,
    "Add two tensors of bytes of one shape; `inverse` is 1 over the scale of the result.",
)
times = _binary(
    "quantized_times",
    _times,
    "Multiply two tensors of bytes of one shape; `inverse` is the product of their scales over "
    "that of the result.",
)

from_float = op(
    "quantized_from_float(Tensor self, float inverse, int zero, int low, int high) -> Tensor",
    shape=lambda self: self.shape,
    dtype=lambda low: _bytes_of(low),
    decompose=lambda self, inverse, zero, low, high: quantized(
        self.to(tangrad.float32), inverse, zero, low, high
    ).to(_bytes_of(low)),
    doc="Quantize float32 numbers to bytes; `inverse` is 1 over the scale.",
    **_COMMON,
)

to_float = op(
    "quantized_to_float(Tensor self, float scale, int zero) -> Tensor",
    shape=lambda self: self.shape,
    dtype=lambda: tangrad.float32,
    decompose=lambda self, scale, zero: (self.to(tangrad.int32) - zero).to(tangrad.float32) * scale,
    doc="Return the float32 numbers that bytes stand for.",
    **_COMMON,
)

lookup = op(
    "quantized_lookup(Tensor self, Tensor table) -> Tensor",
    shape=lambda self: self.shape,
    dtype=lambda table: table.dtype,
    decompose=lambda self, table: table[
        self.reshape(-1).view(tangrad.uint8).to(tangrad.int64)
    ].reshape(self.shape),
    doc="Replace each byte, read as unsigned, by the entry of a table of 256 bytes.",
    **_COMMON,
)


def group_values(weight: Any, bits: int, depth: int) -> Any:
    """Return the integers [columns, depth] of a weight in groups."""
    if bits == 8:
        return weight.view(tangrad.int8)
    halves = weight.view(tangrad.uint8).reshape(weight.shape[0], -1, 1, 16)
    both = tangrad.cat((halves & 15, halves >> 4), dim=2)
    return both.reshape(weight.shape[0], -1)[:, :depth]


def pack_halves(values: Any) -> Any:
    """Return integers of 0 to 15, [columns, depth], two to a byte; see `group_values`."""
    halves = values.to(tangrad.uint8).reshape(values.shape[0], -1, 2, 16)
    return (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(values.shape[0], -1)


def group_weight(weight: Any, scales: Any, zeros: Any, bits: int, group: int) -> Any:
    """Return the float32 numbers of a weight in groups."""
    depth = scales.shape[1] * group
    values = group_values(weight, bits, depth).to(tangrad.float32)
    values = values.reshape(len(scales), -1, group)
    middle = zeros[:, :, None] if zeros is not None else (8.0 if bits == 4 else 0.0)
    return ((values - middle) * scales[:, :, None]).reshape(len(scales), depth)


grouped_linear = op(
    "grouped_linear(Tensor input, Tensor weight, Tensor scales, Tensor? zeros, int bits,"
    " int group) -> Tensor",
    shape=lambda input, scales: (input.shape[0], scales.shape[0]),
    dtype=lambda: tangrad.float32,
    decompose=lambda input, weight, scales, zeros, bits, group: (
        input @ group_weight(weight, scales, zeros, bits, group).t()
    ),
    doc="""Multiply float32 rows by a weight of 8 or 4 bits in groups that share a scale.

    Args:
        input: float32 [rows, depth].
        weight: int8 [columns, depth], or uint8 [columns, depth / 2] of `pack_halves`.
        scales: float32 [columns, groups].
        zeros: float32 zero points [columns, groups]; None for 0 of 8 bits and 8 of 4 bits.
        bits: 8 or 4.
        group: elements of a group.
    """,
    **{
        **_COMMON,
        "vjp": {
            "input": lambda g, weight, scales, zeros, bits, group: (
                g @ group_weight(weight, scales, zeros, bits, group)
            )
        },
    },
)
