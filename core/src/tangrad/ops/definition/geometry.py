"""What a view's geometry rule sees of a tensor."""

from __future__ import annotations

from typing import Any


class Geometry:
    """Shape, stride and offset of a tensor (integers or symbolic integers), without data."""

    __slots__ = ("shape", "stride", "offset", "dtype", "device", "flags")

    def __init__(self, tensor: Any) -> None:
        self.shape = tuple(tensor.shape)
        self.stride = tuple(tensor.stride())
        self.offset = tensor.storage_offset()
        self.dtype, self.device = tensor.dtype, tensor.device
        self.flags = (4 if tensor.is_conj() else 0) | (8 if tensor.is_neg() else 0)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        n = 1
        for size in self.shape:
            n = n * size
        return n
