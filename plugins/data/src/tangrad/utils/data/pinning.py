"""Batches moved to pinned memory: `torch.utils.data._utils.pin_memory`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import tangrad

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """Return `data` with its tensors in pinned memory, from which devices copy quickly.

    Containers keep their kind where it can be made again. An object that has a method `pin_memory`
    and is no container is asked to pin itself; anything else is returned as it is.

    Args:
        data: a batch.
        device: ignored; PyTorch deprecates it.
    """
    if isinstance(data, tangrad.Tensor):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        pinned = {key: pin_memory(value, device) for key, value in data.items()}
        return _rebuilt(data, pinned, MutableMapping)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(value, device) for value in data))
    if isinstance(data, Sequence):
        return _rebuilt(data, [pin_memory(value, device) for value in data], MutableSequence)
    return data.pin_memory() if hasattr(data, "pin_memory") else data


def _rebuilt(data: Any, pinned: Any, mutable: type) -> Any:
    """Return a container of the kind of `data`; a plain one where that kind cannot be made."""
    try:
        if not isinstance(data, mutable):
            return type(data)(pinned)
        # A copy keeps what the caller's class stores beside the items.
        made: Any = copy.copy(data)
        if isinstance(pinned, dict):
            made.update(pinned)
        else:
            for k, value in enumerate(pinned):
                made[k] = value
        return made
    except TypeError:
        return pinned
