"""Tensors that a module owns: parameters and buffers."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import _C

Parameter = _C.Parameter


class _BufferType(type):
    """Let `isinstance(t, Buffer)` be true of every tensor made by `Buffer(...)`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, tangrad.Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(metaclass=_BufferType):
    """Make a tensor that becomes a buffer when it is assigned to a module.

    The result shares memory with `data`, and is a plain tensor: operations on it take no detour
    through a subclass.

    Args:
        data: the values; an empty tensor when omitted.
        persistent: whether the buffer is part of the module's `state_dict`.
    """

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        """Return `data`, detached and marked as a buffer."""
        if data is None:
            data = tangrad.empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer
