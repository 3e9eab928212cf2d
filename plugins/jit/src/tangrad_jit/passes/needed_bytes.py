"""Bytes that values need, and from how many on a program's peak of memory counts."""

from __future__ import annotations

from collections.abc import Iterable

from tangrad_jit.graph.ir import Node, Value
from tangrad_jit.passes.in_place_reuse import WRITE_INTO_FIRST

__all__ = ["LARGE", "bytes_of", "reused"]

#: From so many bytes on, values are made again, and orders are compared by what is needed then.
LARGE = 1 << 20


def bytes_of(value: Value) -> int:
    """Return the bytes of a tensor's elements."""
    size: int = value.type.nbytes
    return size


def reused(node: Node, dying: Iterable[Value]) -> int:
    """Return the bytes of a node's result that may lie where an operand dies."""
    if len(node.results) != 1 or not (node.op.kind == "pointwise" or node.name in WRITE_INTO_FIRST):
        return 0
    size = bytes_of(node.results[0])
    made = node.results[0].root
    return size if any(v is not made and bytes_of(v) == size for v in dying) else 0
