"""Rounding to the values of a quantized tensor, as `QuantizeLinear` and `DequantizeLinear`.

A weight of the file that is rounded is stored as its integers. Where an element lies between two
values, and float32 cannot tell to which it is nearer, the operators of the standard divide by the
scale and tangrad multiplies by its inverse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Value, Writer

# {dtype of the integers: (least, greatest, opset that knows it)}
_INTEGERS = {
    "uint8": (0, 255, 13),
    "int8": (-128, 127, 13),
    "uint16": (0, 65535, 21),
    "int16": (-32768, 32767, 21),
}


@form("fake_quantize_per_tensor_affine", whole=True)
def _per_tensor(w: Writer, a: Any, out: Any) -> Any:
    return _rounded(w, a, out, None)


@form("fake_quantize_per_channel_affine", whole=True)
def _per_channel(w: Writer, a: Any, out: Any) -> Any:
    return _rounded(w, a, out, a.axis)


def _rounded(w: Writer, a: Any, out: Any, axis: int | None) -> Any:
    kind = _integers(w, a.quant_min, a.quant_max)
    whole = not isinstance(a.zero_point, Value) or not a.zero_point.dtype.is_floating_point
    if kind is None or out.dtype != tangrad.float32 or not (whole or axis is None):
        return _refuse(a)
    dtype = getattr(tangrad, kind)
    scale = _parameter(w, a.scale, tangrad.float32, axis)
    zero = _parameter(w, a.zero_point, dtype, axis)
    values, scales, zeros = (w.held(name) for name in (a.input.name, scale, zero))
    if values is not None and scales is not None and zeros is not None:
        found = _quantized(values, scales, zeros, axis, a)
        integers = w.tensor_of(found, f"{a.input.name}_quantized")
    else:
        integers = w.op("QuantizeLinear", a.input.name, scale, zero, axis=axis)
        least, greatest, _ = _INTEGERS[kind]
        if (a.quant_min, a.quant_max) != (least, greatest):
            bounds = (w.constant(np.array(b, kind)) for b in (a.quant_min, a.quant_max))
            integers = w.op("Clip", integers, *bounds)
    return w.op("DequantizeLinear", integers, scale, zero, axis=axis)


def _refuse(a: Any) -> Any:
    from tangrad_onnx.errors import UnsupportedOperatorError

    # It is written by what it is made of instead.
    raise UnsupportedOperatorError(
        f"no integers of ONNX have the levels {a.quant_min} to {a.quant_max} and their zero points"
    )


def _integers(w: Writer, low: int, high: int) -> str | None:
    """Return the dtype whose range holds some levels."""
    for kind, (least, greatest, opset) in _INTEGERS.items():
        # 16 bits take no part of their range: `Clip` of them is later than they are.
        part = kind.endswith("int8") or (low, high) == (least, greatest)
        if least <= low and high <= greatest and w.opset >= opset and part:
            return kind
    return None


def _parameter(w: Writer, value: Any, dtype: Any, axis: int | None) -> str:
    """Return a scale or zero point: a scalar, or a vector of those of an axis."""
    if not isinstance(value, Value):
        return w.constant(value, dtype)
    held = w.held(value.name)
    if held is not None:
        array = held.reshape(-1) if axis is not None else held.reshape(())
        kind = dtype.name
        return w.constant(array.astype(kind), dtype, f"{value.name}_{kind}")
    name = value.name if axis is not None else w.reshape(value.name, [])
    return w.cast(name, value.dtype, dtype)


def _quantized(x: Any, scale: Any, zero: Any, axis: int | None, a: Any) -> Any:
    """Return the integers that an array is rounded to, by tangrad's own arithmetic."""
    shape = [1] * x.ndim
    if axis is not None:
        shape[axis] = -1
    inverse = (np.float32(1) / scale.astype(np.float32)).reshape(shape)
    level = np.rint(x * inverse) + zero.astype(np.float32).reshape(shape)
    return np.clip(level, a.quant_min, a.quant_max).astype(zero.dtype)


@form("quantized_product_dynamic")
def _dynamic(w: Writer, a: Any, out: Any) -> Any:
    packed = w.held(a.packed.name)
    columns, depth = a.scales.shape[0], a.input.shape[1]
    if packed is None:
        return None
    blocks, quads = packed.shape[:2]
    matrix = packed.transpose(0, 2, 1, 3).reshape(blocks * 16, quads * 4)[:columns, :depth]
    title = f"{w.module}.weight_quantized" if w.module else "weight_quantized"
    weight = w.tensor_of(np.ascontiguousarray(matrix.T), title)
    levels, scale, zero = _levels_of(w, a.input.name, a.reduce_range)
    zeros = w.constant(np.array(0, np.int8))
    if a.weight_zeros is not None:
        zeros = w.cast(a.weight_zeros.name, tangrad.int32, tangrad.int8)
    sums = w.op("MatMulInteger", levels, weight, zero, zeros)
    unit = w.op("Mul", scale, a.scales.name)
    made = w.op("Mul", w.cast(sums, tangrad.int32, tangrad.float32), unit)
    if a.bias is not None:
        made = w.op("Add", made, a.bias.name)
    return w.op("Relu", made) if a.relu else made


def _levels_of(w: Writer, name: str, reduce_range: bool) -> tuple[str, str, str]:
    """Return a tensor quantized by its own range, its scale and its zero point."""
    if not reduce_range:
        levels, scale, zero = w.op("DynamicQuantizeLinear", name, outputs=3)
        return levels, scale, zero
    # One bit stays unused: the operator of the standard has no such range.
    none = w.constant(0.0)
    low = w.op("Min", w.op("ReduceMin", name, keepdims=0), none)
    high = w.op("Max", w.op("ReduceMax", name, keepdims=0), none)
    width = w.op("Div", w.op("Sub", high, low), w.constant(127.0))
    scale = w.op("Where", w.op("Equal", width, none), w.constant(0.1), width)
    level = w.op("Round", w.op("Div", w.op("Neg", low), scale))
    zero = w.cast(level, tangrad.float32, tangrad.uint8)
    return str(w.op("QuantizeLinear", name, scale, zero)), str(scale), zero
