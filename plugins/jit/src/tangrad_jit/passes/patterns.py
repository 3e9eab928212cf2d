"""Patterns of calls, as nested tuples: what is found in a graph, and what stands for it.

`("add_plain", X, ("neg", Y))` is a call of `add_plain` whose second argument is made by `neg`.
`X`, `Y`, `Z` are tensors, `M` is a mask of bools, `A`, `B` are Python numbers; a number is that
number with its sign of zero. Ops whose operands may be exchanged are found either way round. The
same letter is the same value. In what stands for a call, `Of` computes a number of those found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from tangrad_jit.graph.ir import Node, Value
from tangrad_jit.graph.types import TensorType

__all__ = ["A", "B", "M", "Found", "Of", "Rule", "X", "Y", "Z", "find"]

FLOATING = frozenset(("float16", "bfloat16", "float32", "float64"))
INTEGRAL = frozenset(("uint8", "int8", "int16", "int32", "int64"))
BOTH = FLOATING | INTEGRAL
COMMUTATIVE = frozenset(("add_plain", "mul", "maximum", "minimum", "eq", "ne"))


class Letter(NamedTuple):
    """What a place of a pattern may hold: a "tensor", a "mask" or a "number"."""

    name: str
    kind: str


X, Y, Z = (Letter(name, "tensor") for name in "xyz")
M = Letter("m", "mask")
A, B = (Letter(name, "number") for name in "ab")


class Of:
    """A number computed of the numbers that were found."""

    def __init__(self, function: Callable[..., float], *letters: Letter) -> None:
        self.function, self.letters = function, letters


class Rule(NamedTuple):
    """A pattern, and what stands for it.

    Attributes:
        pattern: what is found.
        instead: a letter, or calls; the inner ones are new nodes, for which all tensors must be of
            the type of the result.
        dtypes: of the tensors, which all have one.
        when: must hold of the dtype and the numbers, in the order of their letters.
        once: inner calls must have no other use: what stands for them would be one more.
    """

    pattern: tuple[Any, ...]
    instead: Any
    dtypes: frozenset[str] = FLOATING
    when: Callable[..., bool] | None = None
    once: bool = False

    @property
    def name(self) -> str:
        """The op of the outermost call."""
        return str(self.pattern[0])

    def ways(self) -> list[tuple[Any, ...]]:
        """Return the pattern with operands in every order that is the same."""
        return list(_ways(self.pattern))


class Found(NamedTuple):
    """Where a pattern was found.

    Attributes:
        values: what the letters are.
        inner: the nodes below the outermost.
    """

    values: dict[Letter, Any]
    inner: list[Node]

    @property
    def tensors(self) -> list[Value]:
        """The values that are tensors, masks too."""
        return [item for item in self.values.values() if isinstance(item, Value)]

    @property
    def numbers(self) -> list[Any]:
        """The numbers, in the order of their letters."""
        return [self.values[letter] for letter in (A, B) if letter in self.values]


def find(rule: Rule, way: tuple[Any, ...], node: Node) -> Found | None:
    """Return where a node begins a rule's pattern, or None.

    Args:
        rule: the rule. way: one of its ways.
        node: a call with one result.
    """
    found = Found({}, [])
    if not _matches(way, node, found):
        return None
    dtypes = {v.type.dtype for k, v in found.values.items() if k.kind == "tensor"}
    if len(dtypes) > 1 or not dtypes <= rule.dtypes:
        return None
    if rule.when is not None and not rule.when(*dtypes, *found.numbers):
        return None
    result = node.results[0].type
    # Numbers may have promoted what tensors of theirs would not.
    same = not dtypes or result.dtype in (*dtypes, "bool")
    return found if same else None


def _matches(pattern: Any, item: Any, found: Found) -> bool:
    if isinstance(pattern, Letter):
        return _is_letter(pattern, item, found.values)
    if not isinstance(pattern, tuple):
        return _is_number(item) and item == pattern and _sign(item) == _sign(pattern)
    outermost = isinstance(item, Node)
    node = item if outermost else item.producer if isinstance(item, Value) else None
    if node is None or node.form != "call" or node.name != pattern[0] or len(node.results) != 1:
        return False
    if len(node.args) != len(pattern) - 1:
        return False
    if not outermost:
        found.inner.append(node)
    return all(_matches(part, arg, found) for part, arg in zip(pattern[1:], node.args, strict=True))


def _is_letter(letter: Letter, item: Any, known: dict[Letter, Any]) -> bool:
    if _kind_of(item) != letter.kind:
        return False
    if letter in known:
        return known[letter] is item
    known[letter] = item
    return True


def _kind_of(item: Any) -> str:
    if isinstance(item, Value) and isinstance(item.type, TensorType):
        return "mask" if item.type.dtype == "bool" else "tensor"
    return "number" if _is_number(item) else ""


def _is_number(item: Any) -> bool:
    # Not bool; nor numbers that depend on sizes: what holds of one need not hold at others.
    return type(item) is float or (type(item) is int and -(1 << 63) <= item < 1 << 63)


def _sign(number: float) -> float:
    return math.copysign(1, number)


def _ways(pattern: Any) -> Iterator[Any]:
    if not isinstance(pattern, tuple) or isinstance(pattern, Letter):
        yield pattern
        return
    for args in product(*(list(_ways(part)) for part in pattern[1:])):
        yield (pattern[0], *args)
        if pattern[0] in COMMUTATIVE and args[0] != args[1]:
            yield (pattern[0], args[1], args[0])
