"""Tensors on the memory of a storage that is there."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from tangrad import _C

# {storage: path} of those that `from_file` made and that share their memory with the file.
files: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

# What tensors and storages of a dtype are called in old programs.
TYPE_NAMES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def on_storage(
    storage: Any,
    dtype: Any,
    offset: int = 0,
    size: tuple[int, ...] | None = None,
    stride: tuple[int, ...] = (1,),
) -> Any:
    """Return the tensor of a geometry, by default the vector of all elements of the dtype."""
    if size is None:
        size = (storage.nbytes() // dtype.itemsize,)
    return _C.set_storage(_C.empty((0,), dtype, storage.device), storage, offset, size, stride)


def storage_as(name: str, source: Any, dtype: Any) -> Any:
    """Return the bytes' storage of what may be a typed storage; None for what is no storage.

    Args:
        name: the function that was called, for the error.
        source: anything.
        dtype: that of the elements wanted; None takes any.

    Raises:
        RuntimeError: a typed storage holds elements of another dtype.
    """
    untyped = getattr(source, "_untyped_storage", source)
    if not isinstance(untyped, _C.UntypedStorage):
        return None
    if untyped is not source and dtype is not None and source.dtype is not dtype:
        raise RuntimeError(
            f"{name}(): Expected a Storage of type {dtype} or an UntypedStorage, but got one of "
            f"{source.dtype}; storage.untyped() gives its bytes"
        )
    return untyped


def bytes_of(storage: Any) -> Any:
    """Return the vector of a storage's bytes."""
    return on_storage(storage, _C.dtype_by_name("uint8"))
