"""Rules of rewriting that ask for more than ops and numbers: conversions, parts joined again, sums.

Each takes a call and the facts of its graph, and returns a value that the call is, another call
(a tuple of its op and arguments), or None. Those of `STRUCTURAL` change no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit.graph.ir import Node, Value
from tangrad_jit.passes.facts import Facts
from tangrad_jit.passes.patterns import FLOATING, INTEGRAL
from tangrad_jit.run.layout import ITEMSIZE

__all__ = ["STRUCTURAL", "summed_expansion"]

_LARGEST = 1 << 20

# dtype -> the dtypes that hold each of its values.
_HOLDERS = {
    "bool": FLOATING | INTEGRAL,
    "uint8": FLOATING | {"int16", "int32", "int64"},
    "int8": FLOATING | {"int16", "int32", "int64"},
    "int16": frozenset(("int32", "int64", "float32", "float64")),
    "int32": frozenset(("int64", "float64")),
    "float16": frozenset(("float32", "float64")),
    "bfloat16": frozenset(("float32", "float64")),
    "float32": frozenset(("float64",)),
}


def _converted_twice(node: Node, facts: Facts) -> Any:
    """A conversion of what was converted to a dtype that holds all its values is one conversion.

    To integers only from integers: floats beyond their range have no value of theirs.
    """
    inner = _call_of(node.args[0], "_to_copy")
    if inner is None or node.args[2:] != inner.args[2:] or node.args[3] is not None:
        return None
    source, target = inner.args[0], node.results[0]
    types = [source.type, inner.results[0].type, target.type]
    if len({(type.stride, type.device) for type in types}) != 1 or facts.is_written(
        inner.results[0]
    ):
        return None
    first, between, last = (type.dtype for type in types)
    if between not in _HOLDERS.get(first, ()):
        return None
    if first == last:
        return source
    whole = INTEGRAL | {"bool"}
    if facts.is_written(source) or (last in INTEGRAL and not whole.issuperset((first, between))):
        return None
    return ("_to_copy", source, *node.args[1:])


def _joined_again(node: Node, facts: Facts) -> Any:
    """What is put together of all parts of a tensor, in order, is that tensor."""
    parts, dim = node.args
    if not all(isinstance(part, Value) for part in parts):
        return None
    result = node.results[0].type
    if len(parts) == 1:
        return parts[0]
    whole = parts[0].view_of
    while whole is not None and whole.type.shape != result.shape:
        whole = whole.view_of  # parts of `unbind` are views of views
    if whole is None:
        return None
    at = whole.offset
    for part in parts:
        if part.root is not whole.root or part.offset != at or not _is_slice(part, whole, dim):
            return None
        at += part.type.shape[dim] * whole.type.stride[dim] * ITEMSIZE[result.dtype]
    return whole


def _is_slice(part: Value, whole: Value, dim: int) -> bool:
    """Return whether a view has a tensor's geometry, its size along one dimension aside."""
    if part.type.dtype != whole.type.dtype or len(part.type.shape) != len(whole.type.shape):
        return False
    others = [k for k in range(len(whole.type.shape)) if k != dim % len(whole.type.shape)]
    if any(part.type.shape[k] != whole.type.shape[k] for k in others):
        return False
    places = zip(part.type.shape, part.type.stride, whole.type.stride, strict=True)
    return all(size == 1 or mine == other for size, mine, other in places)


def _chosen_by_constant(node: Node, facts: Facts) -> Any:
    """A choice by a mask that is all of one kind is that operand."""
    mask = facts.constants.get(node.args[0])
    if mask is None or not 0 < mask.numel() <= _LARGEST or facts.is_written(node.args[0]):
        return None
    if mask.all():
        return _if_value(node.args[1])
    return None if mask.any() else _if_value(node.args[2])


def _if_value(item: Any) -> Any:
    return item if isinstance(item, Value) else None


def summed_expansion(node: Node, facts: Facts) -> Any:
    """The sum of one element many times is a product; the bits are those of one rounding."""
    source, result = node.args[0], node.results[0].type
    if not isinstance(source, Value) or source.view_of is None or facts.is_written(source):
        return None
    base = source.view_of
    same = base.type == result and result.dtype in FLOATING and result.numel == 1
    return ("mul", base, source.type.numel) if same and not any(source.type.stride) else None


def _call_of(item: Any, name: str) -> Node | None:
    node = item.producer if isinstance(item, Value) else None
    return node if node is not None and node.form == "call" and node.name == name else None


STRUCTURAL: dict[str, Callable[[Node, Facts], Any]] = {
    "_to_copy": _converted_twice,
    "cat": _joined_again,
    "where_choice": _chosen_by_constant,
}
