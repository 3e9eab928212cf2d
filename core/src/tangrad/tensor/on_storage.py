"""Tensors on the memory of a storage that is there."""

from __future__ import annotations

from typing import Any

from tangrad import _C


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


def bytes_of(storage: Any) -> Any:
    """Return the vector of a storage's bytes."""
    return on_storage(storage, _C.dtype_by_name("uint8"))
