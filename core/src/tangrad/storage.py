"""What PyTorch has in `torch.storage`: the classes of storages."""

from __future__ import annotations

from typing import Any

from tangrad._C import UntypedStorage as UntypedStorage
from tangrad.tensor.storages import DTYPES, QUANTIZED_DTYPES, dtype_of_class
from tangrad.tensor.storages import TypedStorage as TypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]


def _storage_type_to_dtype_map() -> dict[str, Any]:
    """Return the dtype of the elements of each class of storages, by the class's name."""
    found = {name: dtype_of_class(name) for name in (*DTYPES, *QUANTIZED_DTYPES)}
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def _dtype_to_storage_type_map() -> dict[Any, str]:
    """Return the name of the class of storages of each dtype; readers of old files ask for it."""
    return {dtype: name for name, dtype in _storage_type_to_dtype_map().items()}
