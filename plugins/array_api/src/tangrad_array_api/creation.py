"""Functions of the standard that make arrays."""

from __future__ import annotations

import math
from array import array
from struct import calcsize
from typing import Any

import tangrad
from tangrad_array_api import dtypes
from tangrad_array_api.array import Array, wrap

# The codes of Python's buffers; those of "l" are as wide as the platform's long.
FORMATS = {
    "?": dtypes.bool,
    "f": dtypes.float32,
    "d": dtypes.float64,
    **{code: dtypes.SIGNED[8 * calcsize(code)] for code in "bhilq"},
    **{code: dtypes.UNSIGNED[8 * calcsize(code)] for code in "BHILQ"},
}


def scalar_default(values: Any) -> Any:
    """Return the default dtype of the kind that Python scalars are of."""
    if all(isinstance(value, bool) for value in values) and len(values):
        return tangrad.bool
    if any(isinstance(value, complex) for value in values):
        return tangrad.get_default_dtype().to_complex()
    if any(isinstance(value, float) for value in values) or not len(values):
        return tangrad.get_default_dtype()
    return tangrad.int64


def flat(nested: Any) -> list[Any]:
    """Return the leaves of nested sequences."""
    if isinstance(nested, (list, tuple)):
        return [leaf for each in nested for leaf in flat(each)]
    return [nested]


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple."""
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Array:
    """Return an array of what an array, a tensor, a buffer, scalars or nested sequences hold.

    Args:
        obj: What to convert. Memory of arrays, tensors and buffers is shared if it can be.
        dtype: The dtype; the default one of the scalars' kind, or that of obj.
        device: The device; that of obj, or the default one.
        copy: Whether to copy. None copies where it must, False refuses to.

    Raises:
        ValueError: If copy is False and a copy is needed, or the sequences are ragged.
    """
    if isinstance(obj, (Array, tangrad.Tensor)):
        source = obj.tensor if isinstance(obj, Array) else obj
        found = source.to(
            device=source.device if device is None else device,
            dtype=source.dtype if dtype is None else dtype,
        )
        if found is source and copy:
            found = source.clone()
        elif found is not source and copy is False:
            raise ValueError("asarray: another dtype or device needs a copy, and copy is False")
        return wrap(found)
    leaves = flat(obj)
    if all(isinstance(leaf, dtypes.SCALARS) for leaf in leaves):
        if copy is False:
            raise ValueError("asarray: Python scalars are always copied, and copy is False")
        kind = scalar_default(leaves) if dtype is None else dtype
        return wrap(tangrad.tensor(obj, dtype=kind, device=device))
    if isinstance(obj, (list, tuple)):
        if copy is False:
            raise ValueError("asarray: sequences are always copied, and copy is False")
        parts = [asarray(each, dtype=dtype, device=device) for each in obj]
        common = dtypes.result_type(*parts)
        return wrap(tangrad.stack([part.tensor.to(common) for part in parts]))
    if isinstance(obj, (bytes, bytearray, memoryview, array)):
        return asarray(of_buffer(obj, copy), dtype=dtype, device=device, copy=copy)
    if getattr(getattr(obj, "flags", None), "writeable", True) is False:
        if copy is False:
            raise ValueError("asarray: read-only memory needs a copy, and copy is False")
        obj = obj.copy()
    return wrap(tangrad.asarray(obj, dtype=dtype, device=device, copy=copy))


def of_buffer(obj: Any, copy: bool | None) -> Any:
    """Return a tensor over the memory of a buffer, over a copy of it if it is read-only.

    Raises:
        ValueError: If it needs a copy and copy is False, or holds what no dtype is for.
    """
    view = memoryview(obj)
    dtype = FORMATS.get(view.format.lstrip("@="))
    if dtype is None:
        raise ValueError(f"asarray: no dtype is of the buffer's format {view.format!r}")
    if view.readonly or not view.c_contiguous:
        if copy is False:
            raise ValueError("asarray: read-only memory needs a copy, and copy is False")
        source: Any = bytearray(view.tobytes())
    else:
        source = view.cast("B") if view.nbytes else view
    if not view.nbytes:
        return tangrad.empty(view.shape, dtype=dtype)
    return tangrad.frombuffer(source, dtype=dtype).reshape(view.shape)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """Return an array of what another library's array holds, by DLPack.

    Raises:
        AttributeError: If it has no `__dlpack__`.
        BufferError: If its memory cannot be shared.
        ValueError: If copy is False and a copy is needed.
    """
    if not hasattr(x, "__dlpack__"):
        raise AttributeError(f"from_dlpack: {type(x).__name__} has no __dlpack__; use asarray")
    # Our own memory needs no capsule, so devices that DLPack does not know are served, too.
    found = x.tensor.detach() if isinstance(x, Array) else tangrad.from_dlpack(x)
    if device is not None and tangrad.device(device) != found.device:
        if copy is False:
            raise ValueError("from_dlpack: another device needs a copy, and copy is False")
        return wrap(found.to(device))
    return wrap(found.clone() if copy else found)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Array:
    """Return evenly spaced numbers of the half-open interval; none if it is empty.

    Raises:
        ValueError: If step is zero.
    """
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("arange: step is not zero")
    if dtype is None:
        kinds = (first, last, step)
        dtype = tangrad.get_default_dtype() if any(isinstance(k, float) for k in kinds) else None
        dtype = tangrad.int64 if dtype is None else dtype
    if (last - first) * step <= 0:
        return empty(0, dtype=dtype, device=device)
    return wrap(tangrad.arange(first, last, step, dtype=dtype, device=device))


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Return an array whose elements have no particular value."""
    return wrap(tangrad.empty(shape_of(shape), dtype=dtype, device=device))


def empty_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Return an array like x whose elements have no particular value."""
    dtypes.require("empty_like", "any", x)
    return wrap(tangrad.empty_like(x.tensor, dtype=dtype, device=device))


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Return an array of zeros."""
    return wrap(tangrad.zeros(shape_of(shape), dtype=dtype, device=device))


def zeros_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Return an array of zeros like x."""
    dtypes.require("zeros_like", "any", x)
    return wrap(tangrad.zeros_like(x.tensor, dtype=dtype, device=device))


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Return an array of ones."""
    return wrap(tangrad.ones(shape_of(shape), dtype=dtype, device=device))


def ones_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Return an array of ones like x."""
    dtypes.require("ones_like", "any", x)
    return wrap(tangrad.ones_like(x.tensor, dtype=dtype, device=device))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Return an array of one value, of the default dtype of its kind unless one is given."""
    kind = scalar_default([fill_value]) if dtype is None else dtype
    value = tangrad.tensor(fill_value, dtype=kind, device=device)
    return wrap(value.expand(shape_of(shape)).clone(memory_format=tangrad.contiguous_format))


def full_like(x: Array, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Return an array of one value like x."""
    dtypes.require("full_like", "any", x)
    return full(
        x.shape,
        fill_value,
        dtype=x.dtype if dtype is None else dtype,
        device=x.device if device is None else device,
    )


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Array:
    """Return ones on the k-th diagonal and zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    k = max(-n_rows, min(k, columns))  # farther diagonals are empty, and may pass 64 bits
    rows = tangrad.arange(n_rows, device=device)[:, None]
    ones_there = rows + k == tangrad.arange(columns, device=device)
    return wrap(ones_there.to(tangrad.get_default_dtype() if dtype is None else dtype))


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """Return `num` evenly spaced numbers from start to stop, with stop or up to it.

    Raises:
        ValueError: If num is negative.
    """
    if num < 0:
        raise ValueError(f"linspace: num is not negative, got {num}")
    if dtype is None:
        dtype = scalar_default([start, stop, 1.0])
    if not endpoint:
        found = tangrad.linspace(start, stop, num + 1, dtype=dtype, device=device)
        return wrap(found[:num].clone())
    return wrap(tangrad.linspace(start, stop, num, dtype=dtype, device=device))


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Return the coordinates of a grid, by columns and rows ("xy") or rows and columns ("ij").

    Raises:
        ValueError: If the dtypes differ.
    """
    if not arrays:
        return []
    dtypes.require("meshgrid", "any", *arrays)
    if len({each.dtype for each in arrays}) > 1:
        raise ValueError("meshgrid: arrays are of one dtype")
    found = tangrad.meshgrid(*(each.tensor for each in arrays), indexing=indexing)
    return [wrap(each.clone()) for each in found]


def tril(x: Array, /, *, k: int = 0) -> Array:
    """Return the part on and below the k-th diagonal."""
    dtypes.require("tril", "any", x)
    return wrap(tangrad.tril(x.tensor, k))


def triu(x: Array, /, *, k: int = 0) -> Array:
    """Return the part on and above the k-th diagonal."""
    dtypes.require("triu", "any", x)
    return wrap(tangrad.triu(x.tensor, k))


def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """Return the elements in a dtype; x itself if nothing changes and copy is False.

    Raises:
        TypeError: If complex numbers would become real.
    """
    dtypes.require("astype", "any", x)
    if x.dtype.is_complex and not dtype.is_complex and dtype != tangrad.bool:
        raise TypeError(f"astype: {x.dtype} does not become {dtype}; take real or imag")
    target = x.device if device is None else tangrad.device(device)
    if x.dtype == dtype and x.device == target:
        return wrap(x.tensor.clone()) if copy else x
    return wrap(x.tensor.to(device=target, dtype=dtype))


e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None
