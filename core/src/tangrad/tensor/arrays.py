"""Host tensors as NumPy arrays, in the type that kernels compute in."""

from __future__ import annotations

from typing import Any

from tangrad import _C

COMPLEX = {"complex64": "c8", "complex128": "c16"}


def raw(t: _C.Tensor) -> Any:
    """Return the elements of a host tensor as an array sharing its memory.

    bfloat16 and foreign types come as unsigned integers of their size.
    """
    import numpy as np

    return np.asarray(_C.host_buffer(t))


def values(t: _C.Tensor) -> Any:
    """Return the elements in a type of NumPy's: halves as float32, foreign types decoded."""
    import numpy as np

    array = raw(t)
    name = t.dtype.name
    if name == "bfloat16":
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if name == "float16":
        return array.astype(np.float32)
    if t.dtype.codec is not None:
        with np.errstate(all="ignore"):
            return t.dtype.codec[0](array)
    return array


def store(t: _C.Tensor, result: Any) -> None:
    """Write computed values into a host tensor, rounding to its type once."""
    import numpy as np

    target = raw(t)
    result = np.asarray(result)
    if result.dtype == target.dtype and result.shape == target.shape and t.dtype.codec is None:
        np.copyto(target, result)
        return
    if t.dtype.name == "bfloat16" and result.dtype != np.uint16:
        result = to_bfloat16(result)
    elif t.dtype.codec is not None:
        with np.errstate(all="ignore"):
            result = t.dtype.codec[1](result)
    with np.errstate(all="ignore"):
        np.copyto(
            target,
            result.reshape(target.shape) if result.size == target.size else result,
            casting="unsafe",
        )


def to_bfloat16(x: Any) -> Any:
    """Round to bfloat16, nearest even; the bits as uint16."""
    import numpy as np

    with np.errstate(all="ignore"):
        single = np.ascontiguousarray(x, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    out = np.where(np.isnan(single), np.uint32(0x7FC0), rounded).astype(np.uint16)
    return out.reshape(np.shape(x))
