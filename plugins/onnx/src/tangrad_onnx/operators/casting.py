"""Conversion between dtypes, tensors' and others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tangrad
from tangrad import Tensor
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import (
    NUMPY_TYPES,
    TENSOR_TYPES,
    Array,
    has_tensor,
    to_array,
    to_tensor,
    type_number,
)

_STRING = 8
_E8M0 = 24
_FLOATS_OF_BITS = {17, 18, 19, 20, 23}
_RANGES = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}


@operator(raw=True)
def Cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    kind = TENSOR_TYPES.get(to)
    if isinstance(x, Tensor) and kind is not None:
        return x.to(kind)
    given = isinstance(x, np.ndarray) and has_tensor(x.dtype)
    if given and kind is not None and to != _STRING:
        return x.astype(NUMPY_TYPES[to])
    array = to_array(x)
    result = converted(array, to, bool(saturate), round_mode)
    return to_tensor(result) if kind is not None else result


@operator(raw=True)
def CastLike(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return Cast(x, to=type_number(like), saturate=saturate, round_mode=round_mode)


def converted(array: Array, to: int, saturate: bool = True, round_mode: str = "up") -> Array:
    """Return an array in a dtype, by the rules of Cast."""
    dtype = NUMPY_TYPES[to]
    if array.dtype.kind in "OU":
        return _from_strings(array, dtype, to)
    if to == _STRING:
        return _to_strings(array)
    if to in _RANGES:
        return _low_bits(array, to)
    if to == _E8M0:
        return _exponents(array, saturate, round_mode)
    if to in _FLOATS_OF_BITS:
        wide = array.astype(np.float32)
        if saturate or to == 23:
            greatest = float(ml_dtypes.finfo(dtype).max)
            wide = np.clip(wide, -greatest, greatest)
        return wide.astype(dtype)
    if array.dtype.kind not in "biufc":  # by way of float32, which holds all that they hold
        array = array.astype(np.float32)
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _from_strings(array: Array, dtype: Any, to: int) -> Array:
    if to == _STRING:
        return array
    numbers = np.array([float(text) for text in array.ravel().astype(str)], np.float64)
    if dtype.kind in "iu":
        numbers = np.array([int(float(text)) for text in array.ravel().astype(str)], object)
    return (
        numbers.astype(np.float32 if dtype.kind == "V" else dtype)
        .astype(dtype)
        .reshape(array.shape)
    )


def _to_strings(array: Array) -> Array:
    if array.dtype.kind not in "biufc":
        array = array.astype(np.float32)
    texts = [str(number) for number in array.ravel()]
    return np.array(texts, object).reshape(array.shape)


def _low_bits(array: Array, to: int) -> Array:
    """Keep the low bits of integers, as a conversion between integers does."""
    low, high = _RANGES[to]
    span = high - low + 1
    if array.dtype.kind in "iu" and array.dtype.itemsize <= 8:
        whole = array.astype(np.int64)
    else:
        whole = np.trunc(array.astype(np.float64)).astype(np.int64)
    return ((whole - low) % span + low).astype(np.int8).astype(NUMPY_TYPES[to])


def _exponents(array: Array, saturate: bool, round_mode: str) -> Array:
    """Round to a power of two, of eight bits of exponent."""
    wide = array.astype(np.float32)
    bits = np.ascontiguousarray(wide).view(np.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(np.int64)
    fraction = bits & 0x7FFFFF
    if round_mode == "up":
        up = (fraction > 0) & ((exponent > 0) | (fraction > 0x400000))
    elif round_mode == "nearest":
        up = (fraction >= 0x400000) & ((exponent > 0) | (fraction > 0x400000))
    else:
        up = np.zeros_like(fraction, bool)
    rounded = exponent + up
    if saturate:
        rounded = np.minimum(rounded, 254)
    missing = np.isnan(wide) if saturate else ~np.isfinite(wide) | (wide == 0)
    rounded = np.where(missing | (rounded > 254), 255, rounded)
    return rounded.astype(np.uint8).reshape(wide.shape).view(NUMPY_TYPES[_E8M0])


@operator(raw=True)
def BitCast(x: Any, *, to: int) -> Any:
    array = np.ascontiguousarray(to_array(x)).view(NUMPY_TYPES[to])
    result = array.reshape(np.shape(to_array(x)))
    return to_tensor(result) if has_tensor(result.dtype) else result


def result_of(array: Array, device: Any = None) -> Any:
    """Return an array as a tensor where one holds its dtype."""
    return to_tensor(array, device) if has_tensor(array.dtype) else array


def as_float(x: Any) -> tangrad.Tensor:
    """Return any numbers as a float32 tensor."""
    if isinstance(x, Tensor):
        return x.float()
    return tangrad.tensor(np.asarray(x).astype(np.float32))
