"""Values of a running model: tensors, and arrays of what no tensor holds.

Strings and the dtypes of fewer than eight bits, or of eight bits and floating, are NumPy arrays.
So are sizes and what is computed from them, until they meet a tensor: a tracer sees them as
integers. Sequences are lists, and an optional value that is missing is None.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tangrad
from tangrad import Tensor

Array = np.ndarray[Any, Any]

# ONNX's TensorProto.DataType: name in NumPy or ml_dtypes.
NUMPY_TYPES: dict[int, Any] = {
    1: np.dtype("float32"),
    2: np.dtype("uint8"),
    3: np.dtype("int8"),
    4: np.dtype("uint16"),
    5: np.dtype("int16"),
    6: np.dtype("int32"),
    7: np.dtype("int64"),
    8: np.dtype(object),
    9: np.dtype(bool),
    10: np.dtype("float16"),
    11: np.dtype("float64"),
    12: np.dtype("uint32"),
    13: np.dtype("uint64"),
    14: np.dtype("complex64"),
    15: np.dtype("complex128"),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
}
TENSOR_TYPES: dict[int, tangrad.dtype] = {
    1: tangrad.float32,
    2: tangrad.uint8,
    3: tangrad.int8,
    4: tangrad.uint16,
    5: tangrad.int16,
    6: tangrad.int32,
    7: tangrad.int64,
    9: tangrad.bool,
    10: tangrad.float16,
    11: tangrad.float64,
    12: tangrad.uint32,
    13: tangrad.uint64,
    14: tangrad.complex64,
    15: tangrad.complex128,
    16: tangrad.bfloat16,
}
TYPE_OF_TENSOR = {dtype: number for number, dtype in TENSOR_TYPES.items()}
TYPE_OF_ARRAY = {dtype: number for number, dtype in NUMPY_TYPES.items()}
BFLOAT16 = NUMPY_TYPES[16]
_TENSOR_OF_ARRAY = {NUMPY_TYPES[number]: dtype for number, dtype in TENSOR_TYPES.items()}


def type_number(value: Any) -> int:
    """Return ONNX's number of a value's dtype."""
    if isinstance(value, Tensor):
        return TYPE_OF_TENSOR[value.dtype]
    return TYPE_OF_ARRAY.get(value.dtype, 8)


def has_tensor(dtype: Any) -> bool:
    """Return whether tensors of a NumPy dtype exist."""
    return dtype in _TENSOR_OF_ARRAY


def to_tensor(value: Any, device: Any = None) -> Any:
    """Return an array as a tensor that owns its memory; everything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    place = tangrad.get_default_device() if device is None else device
    if value.dtype == BFLOAT16:
        bits = np.ascontiguousarray(value).view(np.int16)
        return tangrad.tensor(bits, device=place).view(tangrad.bfloat16).reshape(value.shape)
    return tangrad.tensor(value, device=place)


def to_array(value: Any) -> Array:
    """Return a tensor, an array or numbers as an array."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    held = value.detach().cpu()
    if held.dtype is tangrad.bfloat16:
        bits = held.contiguous().view(tangrad.int16).numpy()
        return np.asarray(bits.view(BFLOAT16).reshape(tuple(held.shape)))
    return np.asarray(held.resolve_conj().numpy())


def item_size(value: Any) -> int:
    """Return the bytes of an element of a tensor or an array."""
    return int(value.element_size() if isinstance(value, Tensor) else value.itemsize)


def to_ints(value: Any) -> list[int]:
    """Return a vector or scalar of integers as a list."""
    if value is None or isinstance(value, list):
        return value or []
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, int):
        return [value]
    numbers = value.reshape(-1).tolist() if isinstance(value, Tensor) else value.ravel().tolist()
    return [int(number) for number in numbers]


def to_number(value: Any) -> Any:
    """Return the one number of a tensor, an array or a Python number."""
    return value.item() if isinstance(value, (Tensor, np.ndarray)) else value


def device_of(values: Any) -> Any:
    """Return the device of the first tensor, None if there is none."""
    return next((value.device for value in values if isinstance(value, Tensor)), None)
