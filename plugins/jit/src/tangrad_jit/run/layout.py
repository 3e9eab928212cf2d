"""Lay out loops and calls as the core does, once, for kernels that are called directly.

What is laid out here is the usual case: one dtype in and out, no lazily conjugated memory. All
else is left to the op itself; `None` says so.
"""

from __future__ import annotations

import struct
from typing import Any

from tangrad.plugin.render import compute_type
from tangrad_jit.graph.ir import Node, Value
from tangrad_jit.graph.types import ITEMSIZE, TensorType

__all__ = ["coalesced", "encoded", "operand_strides", "parameter", "promoted", "reduction_loop"]

_FORMATS = {
    "float32": "f",
    "float64": "d",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "bool": "B",
}
_REAL = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def promoted(node: Node, dtypes: list[str], numbers: list[Any]) -> str | None:
    """Return the dtype that an op computes in, if all its tensors are of it, else None."""
    definition = node.op.definition
    if not dtypes or len(set(dtypes)) != 1 or dtypes[0] not in ITEMSIZE:
        return None
    dtype = dtypes[0]
    half = dtype in ("float16", "bfloat16")
    if dtype in _REAL:
        fits = all(isinstance(n, (int, float)) for n in numbers)
        return dtype if fits and not (half and numbers and not definition.exact_numbers) else None
    plain = definition.promote in ("promote", "integral", None)
    if dtype in _INTEGERS:
        fits = all(isinstance(n, int) and not isinstance(n, bool) for n in numbers)
        return dtype if plain and fits else None
    return dtype if dtype == "bool" and plain and not numbers else None


def encoded(number: Any, dtype: str) -> bytes:
    """Return a number as an element of a compute type."""
    if number is None:
        return bytes(16)
    code = _FORMATS[dtype]
    if code in "fd":
        value = float(number)
        try:
            return struct.pack("=" + code, value)
        except OverflowError:
            return struct.pack("=" + code, float("inf") if value > 0 else float("-inf"))
    if dtype == "bool":
        return bytes([bool(number)])
    return (int(number) & ((1 << 64) - 1)).to_bytes(8, "little")[: ITEMSIZE[dtype]]


def parameter(number: Any, kind: str, dtype: str, reduced: bool) -> bytes:
    """Return a parameter of a loop as `tangrad_abi.h` says."""
    compute = compute_type(dtype)
    if not reduced and kind == "int":
        return (int(number) & ((1 << 64) - 1)).to_bytes(8, "little")
    integral = compute in _INTEGERS or compute == "bool"
    if isinstance(number, float) and (reduced or not integral):
        return struct.pack("=d", number)
    if integral:
        return encoded(number, compute)
    return struct.pack("=d", float(number))


def operand_strides(type: TensorType, shape: tuple[int, ...]) -> list[int]:
    """Return the strides in bytes of an operand broadcast to a shape."""
    size, lead = ITEMSIZE[type.dtype], len(shape) - len(type.shape)
    return [0] * lead + [
        0 if own == 1 and whole != 1 else stride * size
        for own, whole, stride in zip(type.shape, shape[lead:], type.stride, strict=True)
    ]


def coalesced(
    shape: tuple[int, ...], strides: list[list[int]]
) -> tuple[tuple[int, ...], list[list[int]]]:
    """Sort dimensions by the first operands' strides and merge what follows one another in all."""
    ndim = len(shape)
    if ndim <= 1:
        return shape, strides
    order = list(range(ndim))
    for d in range(1, ndim):
        j = d
        while j > 0 and _outer_smaller(order[j - 1], order[j], strides):
            order[j - 1], order[j] = order[j], order[j - 1]
            j -= 1
    sizes = [shape[d] for d in order]
    rows = [[row[d] for d in order] for row in strides]
    kept = 0
    for d in range(1, ndim):
        if sizes[d] == 1:
            continue
        if sizes[kept] == 1:
            sizes[kept] = sizes[d]
        elif all(row[kept] == sizes[d] * row[d] for row in rows):
            sizes[kept] *= sizes[d]
        else:
            kept += 1
            sizes[kept] = sizes[d]
        for row in rows:
            row[kept] = row[d]
    return tuple(sizes[: kept + 1]), [row[: kept + 1] for row in rows]


def _outer_smaller(a: int, b: int, strides: list[list[int]]) -> bool:
    for row in strides:
        if row[a] == 0 or row[b] == 0 or row[a] == row[b]:
            continue
        return row[a] < row[b]
    return False


def reduction_loop(
    source: TensorType, result: TensorType, dims: Any, keeps_without_dims: bool
) -> tuple[tuple[int, ...], list[int], list[int], int]:
    """Return (shape, result's strides, source's strides, reduced dimensions) of a fold."""
    ndim, size = len(source.shape), ITEMSIZE[source.dtype]
    whole = dims is None or (isinstance(dims, tuple) and not dims and not keeps_without_dims)
    chosen = set(range(ndim)) if whole else set(dims if isinstance(dims, tuple) else (dims,))
    if whole and source.contiguous:
        return (source.numel,), [0], [size], 1
    kept = [d for d in range(ndim) if d not in chosen]
    reduced = [d for d in range(ndim) if d in chosen]
    order = kept + reduced
    steps, step = [], ITEMSIZE[result.dtype]
    for d in reversed(kept):
        steps.append(step)
        step *= source.shape[d]
    outs = steps[::-1] + [0] * len(reduced)
    return (
        tuple(source.shape[d] for d in order),
        outs,
        [source.stride[d] * size for d in order],
        len(reduced),
    )


def tensors_of(node: Node) -> list[tuple[int, Any]]:
    """Return (position, argument) of an op's tensor parameters."""
    return [
        (k, node.args[k])
        for k, kind in enumerate(kinds_of(node.op))
        if kind in ("Tensor", "Tensor?", "Operand")
    ]


_kinds: dict[Any, tuple[str, ...]] = {}


def kinds_of(op: Any) -> tuple[str, ...]:
    """Return the types of an op's parameters, as its schema has them."""
    found = _kinds.get(op)
    if found is None:
        found = _kinds[op] = tuple(p.type for p in op.definition.schema.params)
    return found


def is_value(item: Any) -> bool:
    """Return whether an argument is a value of the graph."""
    return isinstance(item, Value)
