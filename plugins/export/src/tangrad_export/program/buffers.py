"""What a program keeps in memory, and places in it."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Buffer", "Ref"]


class Buffer:
    """A piece of memory: of the arena, a weight, a constant, an input or an output.

    Attributes:
        number: in the order in which the buffers were met.
        nbytes: its size.
        kind: "arena", "weight" (of the model, an optimizer or a random stream), "constant", or
            "input".
        name: of a weight or an input.
        value: the tensor of a weight, the bytes of a constant.
        dtype: name of the dtype of a weight, a constant or an input.
    """

    __slots__ = ("dtype", "kind", "name", "nbytes", "number", "value")

    def __init__(self, number: int, nbytes: int, kind: str = "arena", name: str = "") -> None:
        self.number, self.nbytes, self.kind, self.name = number, nbytes, kind, name
        self.value: Any = None
        self.dtype = ""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.number}: {self.nbytes} bytes {self.name}>"


class Ref(NamedTuple):
    """A place in a buffer, whose elements are of a dtype.

    Attributes:
        buffer: the buffer.
        offset: in bytes.
        dtype: name of the dtype.
    """

    buffer: Buffer
    offset: int
    dtype: str
