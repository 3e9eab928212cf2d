"""How the integers of a graph depend on sizes that vary.

A program is run with other sizes, and its graphs are compared: they must be alike but for integers,
and these a polynomial of second degree in the sizes, found by differences and checked at further
sizes. That covers what programs compute by sums and products; what they decide by a size is kept as
it went at the example.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import tangrad
from tangrad import Tensor
from tangrad_fx.export.dynamic_shapes import Size
from tangrad_fx.export.nested import nested_graphs
from tangrad_fx.graph import Graph
from tangrad_fx.node import Node

MOST_SIZES = 6
Offsets = tuple[int, ...]  # by how much each size is greater than in the example


class DependsOnSizesError(ValueError):
    """A program does otherwise at other sizes than the example's.

    Args:
        message: how.
        node: where, if it is known.
    """

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.node = node


class Polynomial(NamedTuple):
    """Twice an integer, as a polynomial in sizes: {positions of the factors: coefficient}."""

    terms: tuple[tuple[tuple[int, ...], int], ...]


def steps(size: Size) -> list[int]:
    """Return by how much to change a size in order to find a polynomial: twice, within its range.

    Where the range has no two other sizes there are fewer: they tell all that may be asked.
    """
    low, high = _usual_range(size)
    above, below = [1, 2], [-1, -2]
    found = [d for d in (*above, *below) if low <= size.example + d <= high]
    # Sizes of 0 and 1 are tried only if there are no others, as they are broadcast.
    return (found or [d for d in below if size.min <= size.example + d])[:2]


def offsets_to_try(sizes: list[Size]) -> list[Offsets]:
    """Return by how much to change sizes in order to find a polynomial of second degree."""
    single = [
        [tuple(by if i == k else 0 for i in range(len(sizes))) for by in steps(size)]
        for k, size in enumerate(sizes)
    ]
    firsts = [offsets[0] for offsets in single if offsets]
    pairs = [_sum(a, b) for a, b in itertools.combinations(firsts, 2)]
    return [*itertools.chain.from_iterable(single), *pairs]


def offsets_to_check(sizes: list[Size]) -> list[Offsets]:
    """Return further changes of sizes, at which a polynomial is checked: within their ranges."""
    ranges = [_usual_range(size) for size in sizes]
    further = tuple(
        3 + k if s.example + 3 + k <= high else max(low - s.example, -3 - k)
        for k, (s, (low, high)) in enumerate(zip(sizes, ranges, strict=True))
    )
    least = tuple(low - s.example for s, (low, _) in zip(sizes, ranges, strict=True))
    most = tuple(0 if s.max is None else s.max - s.example for s in sizes)
    found = [further, least, most]
    return [f for i, f in enumerate(found) if any(f) and f not in found[:i]]


def _usual_range(size: Size) -> tuple[int, float]:
    """Return the range of a size without 0 and 1, for all places where it is found."""
    low = max(size.min, 2, *(-((p.plus - 2) // p.times) for p in size.places))
    return min(low, size.example), math.inf if size.max is None else size.max


def _sum(a: Offsets, b: Offsets) -> Offsets:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def resized(t: Tensor, dim: int, size: int) -> Tensor:
    """Return a tensor with another size in a dimension, whose elements are those of `t` again."""
    at = tangrad.arange(size, device=t.device) % max(1, t.shape[dim])
    return t.detach().index_select(dim, at)


def require_same_constants(base: Any, other: Any, offsets: Offsets) -> None:
    """Raise where the tensors that two runs made of numbers are not the same.

    Args:
        base, other: the traces.
        offsets: by how much sizes are changed in the other.

    Raises:
        DependsOnSizesError: they are not.
    """
    for path, ours in base.constants.items():
        theirs = other.constants.get(path)
        if theirs is not None and not (ours is theirs or _is_equal(ours, theirs)):
            name = f"c_{path}"
            users = [u for n in base.graph.nodes if n.name == name for u in n.users]
            raise DependsOnSizesError(
                f"a tensor made of numbers is another with sizes changed by {offsets}",
                users[0] if users else None,
            )


def _is_equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are the same, bit for bit."""
    if a.layout is not tangrad.strided or a.dtype != b.dtype or a.shape != b.shape:
        return a.layout is not tangrad.strided
    flat = (t.detach().resolve_conj().contiguous().reshape(-1).view(tangrad.uint8) for t in (a, b))
    return tangrad.equal(*flat)


class Integer(NamedTuple):
    """An integer that varies: in which argument of which node it stands.

    Attributes:
        node: the node.
        place: the argument's, counted over nested ones.
        value: in the example.
        values: with other sizes.
        within: the nodes that name the graphs around it, the outermost first.
    """

    node: Node
    place: int
    value: int
    values: dict[Offsets, int]
    within: tuple[Node, ...]


def differing_integers(
    base: Graph, others: dict[Offsets, Graph], within: tuple[Node, ...] = ()
) -> list[Integer]:
    """Return the integers in which graphs differ, those of graphs inside of them included.

    Args:
        base: the graph at the example.
        others: those at other sizes.
        within: the nodes that name the graphs around them.

    Raises:
        DependsOnSizesError: they differ in anything else.
    """
    nodes = list(base.nodes)
    ordered = {o: list(graph.nodes) for o, graph in others.items()}
    for offsets, graph in others.items():
        if [_kind(n) for n in graph.nodes] != [_kind(n) for n in nodes]:
            first = next(
                (a for a, b in zip(nodes, graph.nodes, strict=False) if _kind(a) != _kind(b)),
                nodes[-1],
            )
            raise DependsOnSizesError(
                f"the program makes other calls with sizes changed by {offsets}, from "
                f"'{first.name}' on",
                first,
            )
    names = {n: i for i, n in enumerate(nodes)}
    numbers = {o: {n: i for i, n in enumerate(theirs)} for o, theirs in ordered.items()}
    found = []
    for i, node in enumerate(nodes):
        leaves = list(_leaves((node.args, node.kwargs)))
        given = {o: list(_leaves((n[i].args, n[i].kwargs))) for o, n in ordered.items()}
        for place, leaf in enumerate(leaves):
            values = {o: given[o][place] if place < len(given[o]) else None for o in others}
            if _same(leaf, values, names, numbers):
                continue
            if type(leaf) is not int or any(type(v) is not int for v in values.values()):
                raise DependsOnSizesError(
                    f"'{node.name}' ({node.target}) is given {leaf!r}, which becomes "
                    f"{next(v for v in values.values() if v != leaf)!r} with other sizes",
                    node,
                )
            found.append(Integer(node, place, leaf, values, within))
    inner = {o: [graph for _, graph in nested_graphs(g)] for o, g in others.items()}
    for i, (node, graph) in enumerate(nested_graphs(base)):
        theirs = {o: graphs[i] for o, graphs in inner.items()}
        found += differing_integers(graph, theirs, (*within, node))
    return found


def mark_dimensions(base: Graph, others: list[Graph]) -> None:
    """Note in each node's `meta["varying"]` the dimensions whose sizes differ between graphs.

    Args:
        base: the graph at the example.
        others: those at other sizes, with the same calls.
    """
    for node, *same in zip(base.nodes, *(graph.nodes for graph in others), strict=True):
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            shapes = [n.meta["val"].shape for n in same]
            node.meta["varying"] = frozenset(
                dim
                for dim, size in enumerate(value.shape)
                if any(shape[dim] != size for shape in shapes)
            )
    nested = zip(nested_graphs(base), *map(nested_graphs, others), strict=True)
    for (_, graph), *same in nested:
        mark_dimensions(graph, [inner for _, inner in same])


def _kind(node: Node) -> Any:
    if node.op == "call_function":
        return node.op, id(node.target)
    return node.op, node.target


def _same(leaf: Any, values: dict[Offsets, Any], names: Any, numbers: Any) -> bool:
    if isinstance(leaf, Node):
        return all(isinstance(v, Node) and numbers[o][v] == names[leaf] for o, v in values.items())
    # A number that is not one is itself.
    return all(
        type(v) is type(leaf) and (v == leaf or v is leaf or v != v) for v in values.values()
    )


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield len(value)
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        yield from _leaves(list(value.items()))
    elif isinstance(value, slice):
        yield from _leaves((value.start, value.stop, value.step))
    else:
        yield value


def replaced(value: Any, put: dict[int, Any], counter: Iterator[int]) -> Any:
    """Return nested arguments with other values in some places, counted as they are compared."""
    if isinstance(value, (list, tuple)):
        next(counter)
        made = [replaced(part, put, counter) for part in value]
        return made if isinstance(value, list) else tuple(made)
    if isinstance(value, dict):
        pairs = replaced(list(value.items()), put, counter)
        return dict(pairs)
    if isinstance(value, slice):
        return slice(*replaced((value.start, value.stop, value.step), put, counter))
    return put.get(next(counter), value)


def polynomial(integer: Integer, sizes: list[Size], checks: list[Offsets]) -> Polynomial:
    """Return the polynomial that an integer is.

    Args:
        integer: its values in the example and with changed sizes.
        sizes: the sizes that vary.
        checks: changes at which it is checked.

    Raises:
        DependsOnSizesError: it is no polynomial of second degree.
    """
    f, value, count = integer.values, integer.value, len(sizes)
    b = [size.example for size in sizes]
    terms: dict[tuple[int, ...], Fraction] = {(): Fraction(2 * value)}

    def add(factors: tuple[int, ...], by: Fraction) -> None:
        terms[factors] = terms.get(factors, Fraction(0)) + by

    def change(*of: tuple[int, int]) -> int:
        """Return the integer where some sizes, by position, are changed by some number."""
        return f[tuple(dict(of).get(i, 0) for i in range(count))]

    stepped = [(i, s) for i, size in enumerate(sizes) if (s := steps(size))]
    for i, (step, *others) in stepped:
        slope = Fraction(change((i, step)) - value, step)
        square = Fraction(0)
        for other in others:
            square = (Fraction(change((i, other)) - value, other) - slope) / (other - step)
        # Newton's form, in terms of the size itself.
        add((i, i), 2 * square)
        add((i,), 2 * (slope - square * (2 * b[i] + step)))
        add((), 2 * (square * b[i] * (b[i] + step) - slope * b[i]))
    for (i, (step, *_)), (j, (other, *_)) in itertools.combinations(stepped, 2):
        corner = change((i, step), (j, other)) - change((i, step)) - change((j, other)) + value
        both = Fraction(2 * corner, step * other)
        add((i, j), both)
        add((i,), -both * b[j])
        add((j,), -both * b[i])
        add((), both * b[i] * b[j])
    if any(v.denominator != 1 for v in terms.values()):
        raise _no_polynomial(integer, next(iter(f)))
    made = Polynomial(tuple((k, int(v)) for k, v in terms.items() if v))
    for offsets in checks:
        if evaluate(made, [x + o for x, o in zip(b, offsets, strict=True)]) != f[offsets]:
            raise _no_polynomial(integer, offsets)
    return made


def _no_polynomial(integer: Integer, offsets: Offsets) -> DependsOnSizesError:
    return DependsOnSizesError(
        f"an integer given to '{integer.node.name}' ({integer.node.target}) is {integer.value} in "
        f"the example and {integer.values[offsets]} with sizes changed by {offsets}, and is no sum "
        "of products of sizes",
        integer.node,
    )


def evaluate(p: Polynomial, sizes: list[Any]) -> Any:
    """Return the integer for given sizes."""
    total = 0
    for factors, coefficient in p.terms:
        product = coefficient
        for factor in factors:
            product *= sizes[factor]
        total += product
    return total // 2


def compute(graph: Graph, p: Polynomial, size_of: Callable[[int], Node]) -> Any:
    """Add the nodes that compute an integer, and return its node.

    Args:
        graph: where, at its point of insertion.
        p: the polynomial.
        size_of: the node of a size.
    """
    halves = all(coefficient % 2 == 0 for _, coefficient in p.terms)
    total: Any = None
    for factors, coefficient in p.terms:
        term: Any = coefficient // 2 if halves else coefficient
        for factor in factors:
            size = size_of(factor)
            term = size if term == 1 else graph.call_function(operator.mul, (size, term))
        total = term if total is None else graph.call_function(operator.add, (total, term))
    if total is None:
        return 0
    return total if halves else graph.call_function(operator.floordiv, (total, 2))
