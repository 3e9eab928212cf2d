"""Functions of quantized tensors: what PyTorch has as `torch.ops.quantized`.

Each takes the integers out of its arguments, calls an op of `ops.py`, and gives the result its
scale and zero point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import plugin
from tangrad.nn import functional as F
from tangrad_quantization import ops, qparams
from tangrad_quantization.dtypes import RANGES, span
from tangrad_quantization.layouts import layout
from tangrad_quantization.weights.packed import PackedConv, PackedLinear, PackedTransposedConv


def _unsigned(x: Any, op: str) -> tuple[Any, float, int]:
    """Return integers as bytes without sign, with their scale and zero point."""
    scale, zero = layout.scale_and_zero(x, op)
    values = layout.values_of(x)
    if values.dtype == tangrad.int8:
        return (values.to(tangrad.int32) + 128).to(tangrad.uint8), scale, zero + 128
    if values.dtype != tangrad.uint8:
        raise RuntimeError(f"{op}: expected integers of 8 bits, got {x.dtype}{list(x.shape)}")
    return values, scale, zero


def _output(op: str, scale: float, zero: int, dtype: Any, relu: bool) -> tuple[float, int, int]:
    """Return a checked scale and the lowest and highest integer of an output."""
    low, high, _, _ = span(dtype, op=op)
    zero = qparams.check_zero_point(op, zero, low, high, dtype)
    return qparams.check_scale(op, scale), zero if relu else low, high


def linear(x: Any, packed: PackedLinear, scale: float, zero_point: int, relu: bool = False) -> Any:
    """Apply a quantized linear layer to a quantized tensor.

    Args:
        x: quantized, its last dimension the layer's depth.
        packed: the weight and bias.
        scale: of the output.
        zero_point: of the output.
        relu: whether a ReLU follows.
    """
    op = "quantized linear"
    values, input_scale, input_zero = _unsigned(x, op)
    depth = packed.weight.shape[1]
    if x.dim() == 0 or x.shape[-1] != depth:
        raise RuntimeError(
            f"{op}: the input's last dimension must be {depth}, as the weight "
            f"{list(packed.weight.shape)} has it, got shape {list(x.shape)}"
        )
    scale, low, high = _output(op, scale, zero_point, x.dtype, relu)
    multipliers, bias = packed.multipliers(input_scale, scale)
    made = ops.product(
        values.reshape(-1, depth).contiguous(),
        packed.packed,
        packed.sums,
        packed.zeros,
        multipliers,
        bias,
        input_zero,
        zero_point,
        low,
        high,
    )
    made = _as_stored(made, x.dtype).reshape(*x.shape[:-1], made.shape[-1])
    return layout.per_tensor(made, scale, zero_point, x.dtype)


def _as_stored(values: Any, dtype: Any) -> Any:
    """Return bytes of an op as the dtype stores them: ops know a sign by their lowest integer."""
    wanted = tangrad.int8 if dtype == tangrad.qint8 else tangrad.uint8
    return values if values.dtype == wanted else values.view(wanted)


def linear_dynamic(
    x: Any, packed: PackedLinear, reduce_range: bool = True, relu: bool = False
) -> Any:
    """Apply a quantized linear layer to numbers, which are quantized by their own range.

    Args:
        x: float32, its last dimension the layer's depth.
        packed: the weight and bias.
        reduce_range: leave one bit of the input unused, as PyTorch does.
        relu: whether a ReLU follows.
    """
    depth = packed.weight.shape[1]
    if x.dim() == 0 or x.shape[-1] != depth:
        raise RuntimeError(
            f"quantized linear: the input's last dimension must be {depth}, as the weight "
            f"{list(packed.weight.shape)} has it, got shape {list(x.shape)}"
        )
    made = ops.product_dynamic(
        x.detach().reshape(-1, depth).to(tangrad.float32).contiguous(),
        packed.packed,
        packed.sums,
        packed.zeros,
        packed.scales,
        packed.bias,
        reduce_range,
        relu,
    )
    return made.reshape(*x.shape[:-1], made.shape[-1])


def _channels_last(values: Any, places: int) -> Any:
    """Return [batch, depth, height, width, channels] of [batch, channels, ...]."""
    if places == 2:  # without a reshape of strides, which costs more than a small convolution
        return values.permute(0, 2, 3, 1).contiguous().unsqueeze(1)
    shape = (values.shape[0], values.shape[1], *(1,) * (3 - places), *values.shape[2:])
    return values.reshape(shape).permute(0, 2, 3, 4, 1).contiguous()


def _channels_first(values: Any, places: int) -> Any:
    if places == 2:
        return values.squeeze(1).permute(0, 3, 1, 2)
    first = values.permute(0, 4, 1, 2, 3)
    return first.reshape(*first.shape[:2], *first.shape[5 - places :])


def _batched(x: Any, packed: Any) -> tuple[Any, bool]:
    op, places = packed.op, packed.places
    single = x.dim() == places + 1
    if x.dim() != places + 2 and not single:
        raise RuntimeError(
            f"{op}: expected {places + 2} dimensions (or {places + 1} without a batch), got "
            f"shape {list(x.shape)}"
        )
    channels = x.shape[0 if single else 1]
    if channels != packed.channels:
        raise RuntimeError(
            f"{op}: the input must have {packed.channels} channels, got {channels} in shape "
            f"{list(x.shape)}"
        )
    return x, single


def conv(x: Any, packed: PackedConv, scale: float, zero_point: int, relu: bool = False) -> Any:
    """Apply a quantized convolution to a quantized tensor [batch, channels, ...].

    Args:
        x: quantized.
        packed: the weight and bias, with the geometry.
        scale: of the output.
        zero_point: of the output.
        relu: whether a ReLU follows.
    """
    op = packed.op
    _, single = _batched(x, packed)
    values, input_scale, input_zero = _unsigned(x, op)
    scale, low, high = _output(op, scale, zero_point, x.dtype, relu)
    multipliers, bias = packed.multipliers(input_scale, scale)
    made = ops.convolution(
        _channels_last(values[None] if single else values, packed.places),
        packed.packed,
        packed.sums,
        packed.zeros,
        multipliers,
        bias,
        packed.geometry,
        (input_zero, zero_point, low, high),
    )
    made = _channels_first(_as_stored(made, x.dtype), packed.places)
    return layout.per_tensor(made[0] if single else made, scale, zero_point, x.dtype)


def conv_then(
    x: Any, packed: PackedConv, function: Callable[[Any], Any], scale: float, zero_point: int
) -> Any:
    """Apply a quantized convolution and a function of its numbers, and quantize once."""
    _, single = _batched(x, packed)
    values, input_scale, input_zero = _unsigned(x, packed.op)
    sums = ops.convolution_sums(
        _channels_last(values[None] if single else values, packed.places),
        packed.packed,
        packed.zeros,
        len(packed.scales),
        packed.geometry,
        input_zero,
    )
    one = tangrad.tensor(input_scale, dtype=tangrad.float32)
    numbers = ops.wrapped(sums).to(tangrad.float32) * (one * packed.scales)
    if packed.bias is not None:
        numbers = numbers + packed.bias
    made = _channels_first(numbers, packed.places)
    made = function(made[0] if single else made).contiguous()
    return layout.quantize_per_tensor(made, scale, zero_point, x.dtype)


def conv_dynamic(x: Any, packed: PackedConv | PackedTransposedConv, reduce_range: bool) -> Any:
    """Apply a convolution to numbers, which are quantized by their own range.

    The convolution itself runs in float32, on the numbers that both stand for: it saves memory,
    and is no faster than float.

    Args:
        x: float32, [batch, channels, ...].
        packed: the weight and bias, with the geometry.
        reduce_range: leave one bit of the input unused, as PyTorch does.
    """
    _batched(x, packed)
    scale, zero_point = qparams.of_tensor(x, 0, 127 if reduce_range else 255)
    numbers = x.detach().to(tangrad.float32).contiguous()
    seen = layout.quantize_per_tensor(numbers, scale, zero_point, tangrad.quint8)
    return packed.of_numbers(layout.dequantize(seen))


def conv_transposed(x: Any, packed: PackedTransposedConv, scale: float, zero_point: int) -> Any:
    """Apply a quantized transposed convolution; sums are exact, in float64."""
    op = packed.op
    _, single = _batched(x, packed)
    values, input_scale, input_zero = _unsigned(x, op)
    scale, low, high = _output(op, scale, zero_point, x.dtype, False)
    weight_scale, weight_zero = layout.scale_and_zero(packed.weight, op)
    values = values[None] if single else values
    shape = (*values.shape[:2], *(1,) * (3 - packed.places), *values.shape[2:])
    weight = layout.values_of(packed.weight).to(tangrad.float64) - weight_zero
    total = F.conv_transpose3d(
        values.reshape(shape).to(tangrad.float64) - input_zero,
        weight.reshape(*weight.shape[:2], *(1,) * (3 - packed.places), *weight.shape[2:]),
        None,
        packed.stride,
        packed.padding,
        packed.output_padding,
        packed.groups,
        packed.dilation,
    )
    single_scale = tangrad.tensor([input_scale, weight_scale, scale], dtype=tangrad.float32)
    products = single_scale[0] * single_scale[1]
    bias = None if packed.bias is None else packed.bias * products.reciprocal()
    made = ops.requantized(
        total.round().to(tangrad.int64).permute(0, 2, 3, 4, 1),
        products / single_scale[2],
        bias,
        zero_point,
        low,
        high,
        tangrad.int8 if x.dtype == tangrad.qint8 else tangrad.uint8,
    )
    made = _channels_first(made, packed.places)
    return layout.per_tensor(made[0] if single else made, scale, zero_point, x.dtype)


def _two(a: Any, b: Any, op: str) -> tuple[Any, Any]:
    for given in (a, b):
        layout.require(given, op)
    if a.dtype != b.dtype:
        raise RuntimeError(f"{op}: both tensors must have one dtype, got {a.dtype} and {b.dtype}")
    first, second = layout.values_of(a), layout.values_of(b)
    if first.shape != second.shape:
        first, second = tangrad.broadcast_tensors(first, second)
    return first, second


def add(a: Any, b: Any, scale: float, zero_point: int, relu: bool = False) -> Any:
    """Add two quantized tensors, to a new scale and zero point."""
    op = "quantized add"
    first, second = _two(a, b, op)
    scale, low, high = _output(op, scale, zero_point, a.dtype, relu)
    (scale_a, zero_a), (scale_b, zero_b) = (layout.scale_and_zero(x, op) for x in (a, b))
    scale_a, scale_b = qparams.single(scale_a), qparams.single(scale_b)
    inverse = qparams.inverse_of(scale)
    made = layout.in_memory_order(
        lambda x, y: ops.sum_of_two(
            x, y, scale_a, zero_a, scale_b, zero_b, inverse, zero_point, low, high
        ),
        first,
        second,
    )
    return layout.per_tensor(made, scale, zero_point, a.dtype)


def mul(a: Any, b: Any, scale: float, zero_point: int, relu: bool = False) -> Any:
    """Multiply two quantized tensors, to a new scale and zero point."""
    op = "quantized mul"
    first, second = _two(a, b, op)
    scale, low, high = _output(op, scale, zero_point, a.dtype, relu)
    (scale_a, zero_a), (scale_b, zero_b) = (layout.scale_and_zero(x, op) for x in (a, b))
    product = qparams.single(qparams.single(scale_a) * qparams.single(scale_b))
    multiplier = qparams.single(product * qparams.inverse_of(scale))
    made = layout.in_memory_order(
        lambda x, y: ops.times(x, y, 1.0, zero_a, 1.0, zero_b, multiplier, zero_point, low, high),
        first,
        second,
    )
    return layout.per_tensor(made, scale, zero_point, a.dtype)


def add_scalar(a: Any, number: float, relu: bool = False) -> Any:
    """Add a number: the range moves by it, so that only what leaves the integers is rounded."""
    op = "quantized add"
    scale, zero = layout.scale_and_zero(a, op)
    low, high, _, _ = span(a.dtype, op=op)
    moved = zero - round(number / scale)
    if low <= moved <= high:
        made = layout.per_tensor(layout.values_of(a), scale, moved, a.dtype)
        return relu_of(made) if relu else made
    # The range that holds all sums, and zero.
    least = min((low - zero) * scale + number, 0.0)
    most = max((high - zero) * scale + number, 0.0)
    wider, zero_point = qparams.choose(least, most, low, high)
    summed = layout.dequantize(a) + number
    made = layout.quantize_per_tensor(summed, wider, zero_point, a.dtype)
    return relu_of(made) if relu else made


def mul_scalar(a: Any, number: float, relu: bool = False) -> Any:
    """Multiply by a number: the scale takes it, and its sign turns the integers around."""
    op = "quantized mul"
    scale, zero = layout.scale_and_zero(a, op)
    low, high, _, _ = span(a.dtype, op=op)
    values = layout.values_of(a)
    if number > 0:
        made = layout.per_tensor(values, scale * number, zero, a.dtype)
    elif number == 0:
        made = layout.per_tensor(tangrad.zeros_like(values), 1.0, 0, a.dtype)
    else:
        turned = (high + low - values.to(tangrad.int32)).to(values.dtype)
        made = layout.per_tensor(turned, scale * -number, high + low - zero, a.dtype)
    return relu_of(made) if relu else made


def cat(tensors: Any, dim: int, scale: float, zero_point: int, relu: bool = False) -> Any:
    """Join quantized tensors, each brought to the new scale and zero point."""
    op = "quantized cat"
    if not tensors:
        raise RuntimeError(f"{op}: expected at least one tensor")
    dtype, scale, zero_point = tensors[0].dtype, float(scale), int(zero_point)
    parts = [layout.values_of(requantize(x, scale, zero_point, dtype)) for x in tensors]
    made = layout.per_tensor(tangrad.cat(parts, dim), scale, zero_point, dtype)
    return relu_of(made) if relu else made


def requantize(x: Any, scale: float, zero_point: int, dtype: Any) -> Any:
    """Return a quantized tensor with another scale and zero point; itself if it has them."""
    op = "quantized requantize"
    if x.dtype != dtype:
        raise RuntimeError(f"{op}: expected {dtype}, got {x.dtype}{list(x.shape)}")
    if layout.scale_and_zero(x, op) == (scale, zero_point):
        return x
    return layout.quantize_per_tensor(layout.dequantize(x), scale, zero_point, dtype)


def matmul(a: Any, b: Any, scale: float, zero_point: int) -> Any:
    """Multiply two quantized matrices, or batches of them, exactly, and requantize."""
    op = "quantized matmul"
    _output(op, scale, zero_point, a.dtype, False)
    (first, scale_a, zero_a), (second, scale_b, zero_b) = (_unsigned(x, op) for x in (a, b))
    low, high, _, _ = span(a.dtype, op=op)
    total = (first.to(tangrad.float64) - zero_a) @ (second.to(tangrad.float64) - zero_b)
    one = tangrad.tensor([scale_a, scale_b, scale], dtype=tangrad.float32)
    made = ops.requantized(
        total.round().to(tangrad.int64),
        one[0] * one[1] / one[2],
        None,
        zero_point,
        low,
        high,
        layout.values_of(a).dtype,
    )
    return layout.per_tensor(made, scale, zero_point, a.dtype)


def clipped(x: Any, low: float | None, high: float | None) -> Any:
    """Clip the numbers of a quantized tensor, without a new scale."""
    op = "quantized clamp"
    scale, zero = layout.scale_and_zero(x, op)
    least, most, _, _ = span(x.dtype, op=op)
    inverse = qparams.inverse_of(scale)

    def level(number: float) -> int:
        if math.isnan(number):
            raise RuntimeError(f"{op}: a bound is NaN")
        # Products of two numbers of float32 are exact in Python's, and rounded once.
        found = qparams.single(inverse * qparams.single(float(number)))
        return round(min(max(found, least - zero), most - zero)) + zero

    below = least if low is None else level(low)
    above = most if high is None else level(high)
    return layout.with_values(x, layout.values_of(x).clamp(below, above))


def relu_of(x: Any) -> Any:
    """Return a quantized tensor with its negative numbers replaced by zero."""
    zero = layout.scale_and_zero(x, "quantized relu")[1]
    return layout.with_values(x, layout.values_of(x).clamp(min=zero))


_tables: dict[tuple[Any, ...], Any] = {}


def by_table(
    x: Any, name: str, function: Callable[[Any], Any], scale: float, zero_point: int, *key: Any
) -> Any:
    """Apply a function of one number to every element, by a table of all its 256 values.

    Args:
        x: quantized to 8 bits.
        name: what the function is called.
        function: of a tensor of numbers.
        scale: of the output.
        zero_point: of the output.
        key: what else the function depends on.
    """
    op = f"quantized {name}"
    own_scale, own_zero = layout.scale_and_zero(x, op)
    _output(op, scale, zero_point, x.dtype, False)
    held = (name, key, x.dtype.name, own_scale, own_zero, scale, zero_point)
    table = _tables.get(held)
    if table is None:
        values = tangrad.arange(256, dtype=tangrad.int32).to(tangrad.uint8)
        if x.dtype == tangrad.qint8:
            values = values.view(tangrad.int8)
        # In float64, so that the table is that of the function and not of a machine's float32.
        numbers = (values.to(tangrad.float64) - own_zero) * own_scale
        levels = (function(numbers) / scale).round() + zero_point
        low, high, _, _ = span(x.dtype, op=op)
        table = levels.clamp(low, high).to(values.dtype)
        if len(_tables) >= 1024:
            _tables.clear()
        _tables[held] = table
    table = table.to(x.device)
    made = layout.in_memory_order(lambda v: ops.lookup(v, table), layout.values_of(x))
    return layout.per_tensor(made, scale, zero_point, x.dtype)


def through_float(
    x: Any, op: str, function: Callable[[Any], Any], scale: float, zero_point: int
) -> Any:
    """Compute in float32 and quantize the result, where integers would not give the function."""
    layout.require(x, op)
    return layout.quantize_per_tensor(function(layout.dequantize(x)), scale, zero_point, x.dtype)


def embedding(indices: Any, weight: Any) -> Any:
    """Look up rows of a weight quantized by rows, and return numbers, float32."""
    layout.require(weight, "quantized embedding", layout.PER_CHANNEL)
    held, flat = plugin.components(weight), indices.reshape(-1)
    rows = held["values"].index_select(0, flat)
    values = layout.split_bits(rows, RANGES[weight.dtype.name].bits, weight.shape[1])
    scales = held["scales"].to(tangrad.float32).index_select(0, flat)[:, None]
    zeros = held["zero_points"].to(tangrad.float32).index_select(0, flat)[:, None]
    made = values.to(tangrad.float32) * scales + (-zeros * scales)
    return made.reshape(*indices.shape, weight.shape[1])


def embedding_bag(
    rows: Any,
    indices: Any,
    offsets: Any = None,
    mode: str = "sum",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sum or average bags of rows that were looked up, float32.

    Args:
        rows: [number of indices, width], those of `indices` in order.
        indices: as of `nn.functional.embedding_bag`, and so are the others.
    """
    # The rows of a call are told apart by their places.
    places, nothing = tangrad.arange(len(rows), device=rows.device).reshape(indices.shape), None
    if padding_idx is not None:
        nothing = len(rows)
        places = places.masked_fill(indices == padding_idx, nothing)
        rows = tangrad.cat((rows, rows.new_zeros(1, rows.shape[1])))
    weights = None if per_sample_weights is None else per_sample_weights.to(rows.dtype)
    return F.embedding_bag(
        places,
        rows,
        offsets,
        mode=mode,
        per_sample_weights=weights,
        include_last_offset=include_last_offset,
        padding_idx=nothing,
    )


def linear_then(
    x: Any, packed: PackedLinear, function: Callable[[Any], Any], scale: float, zero_point: int
) -> Any:
    """Apply a quantized linear layer and a function of its numbers, and quantize once."""
    op = "quantized linear"
    values, input_scale, input_zero = _unsigned(x, op)
    depth = packed.weight.shape[1]
    weight = layout.values_of(packed.weight).to(tangrad.int64)
    if packed.zeros is not None:
        weight = weight - packed.zeros.to(tangrad.int64)[:, None]
    rows = values.reshape(-1, depth).to(tangrad.int64) - input_zero
    sums = ops.wrapped(ops.exact_product(rows, weight)).to(tangrad.float32)
    one = tangrad.tensor(input_scale, dtype=tangrad.float32)
    numbers = sums * (one * packed.scales)
    if packed.bias is not None:
        numbers = numbers + packed.bias
    made = function(numbers).reshape(*x.shape[:-1], numbers.shape[-1])
    return layout.quantize_per_tensor(made, scale, zero_point, x.dtype)


def add_relu(a: Any, b: Any, scale: float, zero_point: int) -> Any:
    """Add two quantized tensors and replace negative numbers by zero."""
    return add(a, b, scale, zero_point, relu=True)


def mul_relu(a: Any, b: Any, scale: float, zero_point: int) -> Any:
    """Multiply two quantized tensors and replace negative numbers by zero."""
    return mul(a, b, scale, zero_point, relu=True)


def add_scalar_relu(a: Any, number: float) -> Any:
    """Add a number and replace negative numbers by zero."""
    return add_scalar(a, number, relu=True)


def mul_scalar_relu(a: Any, number: float) -> Any:
    """Multiply by a number and replace negative numbers by zero."""
    return mul_scalar(a, number, relu=True)


def celu(input: Any, alpha: float, scale: float, zero_point: int) -> Any:
    """Apply the continuously differentiable exponential linear unit to a quantized tensor."""
    ends = float(scale), int(zero_point)
    return by_table(input, "celu", lambda x: F.celu(x, alpha), *ends, alpha)


def threshold(input: Any, limit: float, value: float) -> Any:
    """Replace numbers of a quantized tensor that are not above a limit by a value."""
    ends = layout.scale_and_zero(input, "quantized threshold")

    def function(x: Any) -> Any:
        return tangrad.where(x.float() > limit, x, value)

    return by_table(input, "threshold", function, *ends, limit, value)


def elu(input: Any, alpha: float = 1.0, *, output_scale: Any, output_zero_point: Any) -> Any:
    """Apply the exponential linear unit to a quantized tensor."""
    ends = float(output_scale), int(output_zero_point)
    return by_table(input, "elu", lambda x: F.elu(x, alpha), *ends, alpha)


def hardswish(input: Any, *, output_scale: Any, output_zero_point: Any) -> Any:
    """Apply x relu6(x + 3) / 6 to a quantized tensor."""
    return by_table(input, "hardswish", F.hardswish, float(output_scale), int(output_zero_point))


def leaky_relu(
    input: Any, negative_slope: float = 0.01, *, output_scale: Any, output_zero_point: Any
) -> Any:
    """Apply the rectifier with a slope below zero to a quantized tensor."""
    ends = float(output_scale), int(output_zero_point)
    return by_table(
        input, "leaky_relu", lambda x: F.leaky_relu(x, negative_slope), *ends, negative_slope
    )


def dropout(
    input: Any,
    p: float = 0.5,
    training: bool = False,
    *,
    output_scale: Any,
    output_zero_point: Any,
) -> Any:
    """Return the tensor: quantized models are for inference."""
    return input


def _normalization(name: str, doc: str) -> Callable[..., Any]:
    """Return a float normalization as a function of quantized tensors, computed in float32."""
    function = getattr(F, name)

    def normalized(input: Any, *args: Any, output_scale: Any, output_zero_point: Any, **k: Any):  # type: ignore[no-untyped-def]
        ends = float(output_scale), int(output_zero_point)
        return through_float(input, f"quantized {name}", lambda x: function(x, *args, **k), *ends)

    normalized.__name__ = normalized.__qualname__ = name
    normalized.__doc__ = doc
    return normalized


layer_norm = _normalization("layer_norm", "Normalize the last dimensions of a quantized tensor.")
group_norm = _normalization("group_norm", "Normalize groups of channels of a quantized tensor.")
instance_norm = _normalization("instance_norm", "Normalize channels of a quantized tensor.")
