"""Where the numbers of a graph come from that differ between two runs of other sizes.

A number that a call is given is known by what had the same value in both runs: a size of a value
before it, the product of some, or what the program had computed of sizes and handed to an op. It
may be known by several; at other sizes all must agree, or the graph does not hold there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import prod
from typing import Any, Protocol

from tangrad_jit.graph.ir import Graph, Value
from tangrad_jit.graph.types import TensorType

__all__ = ["ByPlace", "Disagreement", "Terms", "Unknown", "values_of"]

# Of the values that a number may be known by, this many are asked.
_ASKED = 12


class ByPlace(Protocol):
    """The types that a graph's values have now, by their places."""

    def __getitem__(self, place: int, /) -> Any: ...


_Term = Callable[[Any], int]


class Unknown(Exception):
    """A number depends on sizes, and it is not known how."""


class Disagreement(Exception):
    """What a number may be known by is not one number at these sizes."""


def values_of(graph: Graph) -> list[Value]:
    """Return a graph's values in order: its inputs, then what its nodes make."""
    values = [entry.value for entry in graph.inputs]
    values += [value for node in graph.nodes for value in node.results]
    return values


class Terms:
    """What the numbers of one graph may be known by, found between two runs of it.

    Attributes:
        found: by key: how a number is computed from what it is known by, and the terms.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, list[_Term]]] = []
        self._keys: dict[Any, int] = {}
        self._known: dict[tuple[int, int], list[_Term]] = {}

    def see(self, place: int, one: Any, two: Any) -> None:
        """Know the sizes of a value, whose place among the graph's this is, in both runs."""
        if not isinstance(one, TensorType) or one.shape == two.shape:
            return
        for dims in _some(len(one.shape)):
            pair = prod(one.shape[d] for d in dims), prod(two.shape[d] for d in dims)
            if pair[0] != pair[1]:
                self._know(pair, _size(place, dims))

    def see_given(self, one: Any, two: Any, numbers: Callable[[Any], Any]) -> None:
        """Know what the program had computed in both runs.

        Args:
            one, two: symbolic. numbers: returns the symbols' values for the types of all values.
        """
        if one.hint != two.hint:
            # The program's own come first: they are always asked.
            terms = self._known.setdefault((one.hint, two.hint), [])
            terms.insert(0, lambda types: one.evaluate(numbers(types)))

    def _know(self, pair: tuple[int, int], term: _Term) -> None:
        terms = self._known.setdefault(pair, [])
        if len(terms) < _ASKED:
            terms.append(term)

    def key_of(self, one: Any, two: Any) -> int:
        """Return the key of a number that was another in each run.

        Raises:
            Unknown: it is not known by anything.
        """
        for kind, pair in _readings(one, two):
            terms = self._known.get(pair)
            if terms:
                made = self._keys.setdefault((kind, pair, len(terms)), len(self.found))
                if made == len(self.found):
                    self.found.append((kind, list(terms)))
                return made
        raise Unknown(f"{one} and {two}")

    def number(self, key: int, types: ByPlace) -> Any:
        """Return a number for the types of the values so far.

        Raises:
            Disagreement: it is not one number.
        """
        kind, terms = self.found[key]
        numbers = {term(types) for term in terms}
        if len(numbers) != 1:
            raise Disagreement(f"a number may be any of {sorted(numbers)}")
        number = numbers.pop()
        return number if kind == "int" else _FLOATS[kind](number)


# A mean's divisor, and the factor from a variance to its unbiased estimate (batch norm's).
_FLOATS: dict[str, Callable[[Any], float]] = {
    "float": float,
    "one over": lambda n: 1.0 / n,
    "unbiased": lambda n: n / (n - 1),
}


def _readings(one: Any, two: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if type(one) is int:
        yield "int", (one, two)
        return
    yield "float", (one, two)  # 4.0 and 4 are one key
    if one and two:
        pair = round(1 / one), round(1 / two)
        if all(pair) and (1.0 / pair[0], 1.0 / pair[1]) == (one, two):
            yield "one over", pair
    if one > 1 and two > 1:
        pair = round(one / (one - 1)), round(two / (two - 1))
        if min(pair) > 1 and tuple(n / (n - 1) for n in pair) == (one, two):
            yield "unbiased", pair


def _some(ndim: int) -> Iterator[tuple[int, ...]]:
    if ndim > 6:
        yield from ((d,) for d in range(ndim))
        return
    for count in range(1, ndim + 1):
        yield from combinations(range(ndim), count)


def _size(place: int, dims: tuple[int, ...]) -> _Term:
    return lambda types: prod(types[place].shape[d] for d in dims)
