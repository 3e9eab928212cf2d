"""The types of values: tensors with their geometry, and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

__all__ = ["NumberType", "TensorType", "contiguous_stride", "type_of"]

# A size is an integer, or a symbol of the core's (`tangrad.SymInt`).
Size = Any


def contiguous_stride(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """Return the strides of elements that follow one another, the last dimension innermost."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (size if not isinstance(size, int) or size > 1 else 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class TensorType:
    """A tensor's dtype, shape, strides in elements, and device."""

    dtype: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    device: str = "cpu"

    @cached_property
    def contiguous(self) -> bool:
        """Whether the elements follow one another; strides of dimensions of one do not matter."""
        if 0 in self.shape:
            return True
        wanted = contiguous_stride(self.shape)
        return all(
            size == 1 or have == want
            for size, have, want in zip(self.shape, self.stride, wanted, strict=True)
        )

    @cached_property
    def numel(self) -> Size:
        """The number of elements."""
        count: Size = 1
        for size in self.shape:
            count = count * size
        return count

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        if not self.contiguous:
            text += f" strided({', '.join(map(str, self.stride))})"
        return text if self.device == "cpu" else f"{text} on {self.device}"


@dataclass(frozen=True)
class NumberType:
    """A Python number: "int", "float", "bool" or "complex"."""

    kind: str

    def __str__(self) -> str:
        return self.kind


ValueType = TensorType | NumberType


def type_of(tensor: Any) -> TensorType:
    """Return the type of a tensor as it is."""
    return TensorType(
        tensor.dtype.name, tuple(tensor.shape), tuple(tensor.stride()), str(tensor.device)
    )
