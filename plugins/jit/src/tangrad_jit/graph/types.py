"""The types of values: tensors with their geometry, and numbers."""

from __future__ import annotations

from math import prod
from typing import Any

from tangrad_jit._guards import geometry_of

__all__ = ["ITEMSIZE", "NumberType", "TensorType", "contiguous_stride", "type_of"]

#: dtype -> bytes of an element.
ITEMSIZE = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}

_known: dict[bytes, TensorType] = {}
_MOST_KNOWN = 4096

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


class TensorType:
    """A tensor's dtype, shape, strides in elements, and device; it is not changed.

    Attributes:
        contiguous: whether the elements follow one another; strides of dimensions of one do not
            matter.
        numel: the number of elements.
        nbytes: of the elements; 0 where their number is a symbol.
    """

    # What follows is computed when it is first asked for, as symbols may not be asked before:
    # passes then read it thousands of times.
    __slots__ = ("contiguous", "device", "dtype", "nbytes", "numel", "shape", "stride")

    contiguous: bool
    numel: Size
    nbytes: int

    def __init__(
        self, dtype: str, shape: tuple[Size, ...], stride: tuple[Size, ...], device: str = "cpu"
    ) -> None:
        self.dtype, self.shape, self.stride, self.device = dtype, shape, stride, device

    def __getattr__(self, name: str) -> Any:
        if name == "numel":
            self.numel = prod(self.shape)
            return self.numel
        if name == "nbytes":
            size = ITEMSIZE.get(self.dtype, 8)
            self.nbytes = self.numel * size if isinstance(self.numel, int) else 0
            return self.nbytes
        if name == "contiguous":
            self.contiguous = 0 in self.shape or all(
                size == 1 or have == want
                for size, have, want in zip(
                    self.shape, self.stride, contiguous_stride(self.shape), strict=True
                )
            )
            return self.contiguous
        raise AttributeError(f"a type of tensors has no {name}")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, TensorType) and (
            (self.dtype, self.shape, self.stride, self.device)
            == (other.dtype, other.shape, other.stride, other.device)
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape, self.stride, self.device))

    def __repr__(self) -> str:
        return f"TensorType({self.dtype!r}, {self.shape}, {self.stride}, {self.device!r})"

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        if not self.contiguous:
            text += f" strided({', '.join(map(str, self.stride))})"
        return text if self.device == "cpu" else f"{text} on {self.device}"


class NumberType:
    """A Python number: "int", "float", "bool" or "complex"; it is not changed."""

    __slots__ = ("kind",)
    nbytes = 0

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberType) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"NumberType({self.kind!r})"

    def __str__(self) -> str:
        return self.kind


ValueType = TensorType | NumberType


def type_of(tensor: Any) -> TensorType:
    """Return the type of a tensor as it is; tensors of one geometry have one type."""
    key = geometry_of(tensor)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = TensorType(
            tensor.dtype.name, tuple(tensor.shape), tuple(tensor.stride()), str(tensor.device)
        )
    return found
