"""Facts of the values that a recorded run handles."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_jit.scripting.recording.sizes import TracedInt

__all__ = ["devices_of", "holds_sizes", "holds_tensors", "is_size", "storage_of"]


def storage_of(tensor: Any) -> int:
    """Return where a tensor's memory begins, or 0 of one that has none."""
    return sum(tensor.untyped_storage()._handle) if tensor.layout == tangrad.strided else 0


def devices_of(item: Any) -> set[str]:
    """Return the device types of the tensors in a value."""
    if isinstance(item, (tuple, list)):
        return {name for member in item for name in devices_of(member)}
    return {item.device.type} if isinstance(item, tangrad.Tensor) else set()


def is_size(func: Any) -> bool:
    """Return whether a function tells a size of a tensor."""
    return getattr(func, "__name__", "") in ("size", "numel", "nelement")


def holds_tensors(item: Any) -> bool:
    """Return whether a value is a tensor, or a tuple or list with one."""
    if isinstance(item, (tuple, list)):
        return any(map(holds_tensors, item))
    return isinstance(item, tangrad.Tensor)


def holds_sizes(item: Any) -> bool:
    """Return whether a value is a size that is followed, or a tuple or list with one."""
    if isinstance(item, (tuple, list)):
        return any(map(holds_sizes, item))
    return isinstance(item, TracedInt)
