"""What PyTorch has in `torch.storage`: the classes of storages."""

from __future__ import annotations

from tangrad._C import UntypedStorage as UntypedStorage
from tangrad.tensor.storages import TypedStorage as TypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
