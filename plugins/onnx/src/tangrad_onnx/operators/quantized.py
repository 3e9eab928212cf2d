"""Quantized operators: products of integers are exact, as sums in float64 below 2^53 are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.casting import converted
from tangrad_onnx.operators.linear import MatMul, multiplied
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.operators.windows import Conv
from tangrad_onnx.values import (
    NUMPY_TYPES,
    TENSOR_TYPES,
    has_tensor,
    to_array,
    to_tensor,
    type_number,
)

_INTEGERS = {2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767)}
_INTEGERS |= {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}


def _spread(p: Any, shape: Any, axis: int, block_size: int) -> Any:
    """Return a scale or zero point such that it broadcasts over what it belongs to."""
    if p is None or p.ndim == 0 or (p.ndim == 1 and p.shape[0] == 1 and len(shape) != 1):
        return p if p is None else p.reshape(())
    if block_size or p.ndim > 1:
        size = block_size or -(-shape[axis] // p.shape[axis])
        checked_count([math.prod(p.shape), max(size, 0)])
        if isinstance(p, Tensor):
            return p.repeat_interleave(size, axis).narrow(axis, 0, shape[axis])
        return np.take(np.repeat(p, size, axis), range(shape[axis]), axis)
    behind = len(shape) - 1 - axis % len(shape)
    return p.reshape((-1, *([1] * behind)))


@operator(raw=True)
def QuantizeLinear(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    to = output_dtype or (2 if zero is None else type_number(zero))
    scale = to_tensor(scale)
    x = to_tensor(x)
    kind = TENSOR_TYPES[precision] if precision else scale.dtype
    # What is narrower is divided in float32, and rounded to its precision.
    ratio = (x.to(kind) / _spread(scale, x.shape, axis, block_size).to(kind)).to(kind)
    if to in _INTEGERS:
        low, high = _INTEGERS[to]
        levels = tangrad.round(ratio.float() if ratio.element_size() == 2 else ratio)
        if zero is not None:
            point = to_tensor(to_array(zero).astype(np.int32), x.device)
            levels = levels + _spread(point, x.shape, axis, block_size)
        levels = tangrad.clamp(levels, low, high)
        if to in TENSOR_TYPES:
            return levels.to(tangrad.int32).to(TENSOR_TYPES[to])
        return to_array(levels.to(tangrad.int8)).astype(NUMPY_TYPES[to])
    numbers = to_array(ratio.float())
    if zero is not None:
        point = _spread(to_array(zero).astype(np.float32), x.shape, axis, block_size)
        numbers = numbers + point
    return converted(numbers, to, bool(saturate))


@operator(raw=True)
def DequantizeLinear(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    scale = to_tensor(scale)
    kind = TENSOR_TYPES[output_dtype] if output_dtype else scale.dtype
    levels = _levels(x)
    if zero is not None:
        levels = levels - _spread(_levels(zero), levels.shape, axis, block_size)
    wide = tangrad.float64 if scale.dtype is tangrad.float64 else tangrad.float32
    by = _spread(scale, levels.shape, axis, block_size).to(wide)
    return (levels.to(wide) * by).to(kind)


def _levels(x: Any) -> Tensor:
    if isinstance(x, np.ndarray) and not has_tensor(x.dtype):
        return tangrad.tensor(x.astype(np.float32))
    x = to_tensor(x)
    return x if x.is_floating_point() else x.to(tangrad.int32)


@operator()
def DynamicQuantizeLinear(x: Any) -> Any:
    low = tangrad.clamp(tangrad.amin(x), max=0)
    high = tangrad.clamp(tangrad.amax(x), min=0)
    scale = (high - low) / 255
    safe = tangrad.where(scale == 0, tangrad.ones_like(scale), scale)
    zero = tangrad.clamp(tangrad.round(-low / safe), 0, 255)
    y = tangrad.clamp(tangrad.round(x / safe) + zero, 0, 255)
    return y.to(tangrad.uint8), scale, zero.to(tangrad.uint8)


def _centred(x: Any, zero: Any, axis: int | None = None) -> Tensor:
    """Return integers without their zero point, in float64."""
    wide = to_tensor(x).to(tangrad.float64)
    if zero is None:
        return wide
    point = to_tensor(zero).to(tangrad.float64)
    if point.ndim == 1 and point.shape[0] == 1:
        point = point.reshape(())
    if point.ndim == 1 and axis is not None:
        point = point.reshape(-1, *([1] * (wide.ndim - 1 - axis % wide.ndim)))
    return wide - point


@operator(grows=multiplied)
def MatMulInteger(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    product = MatMul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))
    return product.to(tangrad.int64).to(tangrad.int32)


@operator()
def ConvInteger(x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, **where: Any) -> Any:
    sums = Conv(_centred(x, x_zero), _centred(w, w_zero, 0), **where)
    return sums.to(tangrad.int64).to(tangrad.int32)


def _requantized(sums: Tensor, factor: Tensor, zero: Any) -> Any:
    to = type_number(zero)
    low, high = _INTEGERS.get(to, (None, None))
    if low is None:
        numbers = to_array(sums * factor) + to_array(zero).astype(np.float32)
        return converted(numbers, to)
    levels = tangrad.round(sums * factor) + to_tensor(zero).to(sums.dtype)
    return tangrad.clamp(levels, low, high).to(tangrad.int32).to(TENSOR_TYPES[to])


@operator(raw=True)
def QLinearMatMul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    product = MatMul(_numbers(a, a_zero, -2), _numbers(b, b_zero, -1))
    a_scale = _column(to_tensor(a_scale).double(), product, -2)
    factor = a_scale * to_tensor(b_scale).double() / to_tensor(y_scale).double()
    return _requantized(product, factor, y_zero)


def _column(scale: Tensor, like: Tensor, axis: int) -> Tensor:
    if scale.ndim == 1 and scale.shape[0] > 1:
        return scale.reshape(-1, *([1] * (like.ndim - 1 - axis % like.ndim)))
    return scale


def _numbers(x: Any, zero: Any, axis: int) -> Tensor:
    if isinstance(x, np.ndarray) and not has_tensor(x.dtype):
        x = x.astype(np.float32)
        zero = None if zero is None else np.asarray(zero).astype(np.float32)
    return _centred(x, zero, axis)


@operator()
def QLinearConv(
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    b: Any = None,
    **where: Any,
) -> Any:
    bias = None if b is None else b.to(tangrad.float64)
    sums = Conv(_centred(x, x_zero), _centred(w, w_zero, 0), bias, **where)
    by = w_scale.double().reshape(-1, *([1] * (w.ndim - 2)))
    return _requantized(sums, x_scale.double() * by / y_scale.double(), y_zero)
