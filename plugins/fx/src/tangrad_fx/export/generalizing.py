"""A graph at an example becomes one for all sizes of the dimensions that vary."""

from __future__ import annotations

import itertools
import operator
from typing import Any

from tangrad_fx.export import sizes as varying
from tangrad_fx.export.dynamic_shapes import Size
from tangrad_fx.export.graph_signature import InputKind
from tangrad_fx.export.nested import handed_in
from tangrad_fx.export.tracing import Trace
from tangrad_fx.node import Node

RAISED = (RuntimeError, ValueError, IndexError)  # by a program at sizes that it cannot take


def generalize(base: Trace, call: Any, wanted: list[Size]) -> None:
    """Have a graph compute its integers from the sizes of its inputs.

    Args:
        base: the graph at the example.
        call: what gives that at other sizes: `run({(leaf, dimension): size})`.
        wanted: the sizes that vary.

    Raises:
        DependsOnSizesError: the program does otherwise at other sizes.
        NotImplementedError: there are too many sizes.
    """
    if len(wanted) > varying.MOST_SIZES:
        raise NotImplementedError(
            f"export: {len(wanted)} sizes vary, and {varying.MOST_SIZES} can; give those that are "
            "equal the same Dim"
        )
    checks = varying.offsets_to_check(wanted)
    traces = {}
    for offsets in dict.fromkeys((*varying.offsets_to_try(wanted), *checks)):
        sizes = {
            (place.input, place.dim): place.of(size.example + by)
            for size, by in zip(wanted, offsets, strict=True)
            for place in size.places
        }
        try:
            other = call.run(sizes)
        except RAISED as error:
            raise varying.DependsOnSizesError(
                f"with sizes changed by {offsets} the program raises: {error}"
            ) from error
        varying.require_same_constants(base, other, offsets)
        traces[offsets] = other.graph
    found = varying.differing_integers(base.graph, traces)
    made = [varying.polynomial(integer, wanted, checks) for integer in found]
    varying.mark_dimensions(base.graph, list(traces.values()))
    _put(base, found, made, wanted)


def _put(
    base: Trace, found: list[varying.Integer], made: list[varying.Polynomial], wanted: list[Size]
) -> None:
    graph = base.graph
    specs = base.signature.input_specs
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    arguments = [
        n for n, s in zip(placeholders, specs, strict=True) if s.kind is InputKind.USER_INPUT
    ]
    sizes: dict[int, Node] = {}
    known: dict[tuple[varying.Polynomial, tuple[Node, ...]], Any] = {}
    first = next(n for n in graph.nodes if n.op != "placeholder")
    by_node: dict[Node, dict[int, Any]] = {}
    with graph.inserting_before(first):

        def size_of(i: int) -> Node:
            if i not in sizes:
                # A place that has the size itself, if there is one.
                place = min(wanted[i].places, key=lambda p: (p.times, abs(p.plus)))
                node = graph.call_method("size", (arguments[place.input], place.dim))
                if place.plus:
                    node = graph.call_function(operator.add, (node, -place.plus))
                if place.times != 1:
                    node = graph.call_function(operator.floordiv, (node, place.times))
                sizes[i] = node
            return sizes[i]

        def value(p: varying.Polynomial, within: tuple[Node, ...]) -> Any:
            """Return an integer as an argument in a graph, for graphs inside as an input more."""
            if (p, within) not in known:
                if within:
                    made_outside = value(p, within[:-1])
                    for part, node in handed_in(within[-1], made_outside):
                        known[p, (*within[:-1], part)] = node
                else:
                    known[p, within] = varying.compute(graph, p, size_of)
            return known[p, within]

        for integer, p in zip(found, made, strict=True):
            number = value(p, integer.within)
            by_node.setdefault(integer.node, {})[integer.place] = number
    for node, put in by_node.items():
        args, kwargs = varying.replaced((node.args, node.kwargs), put, itertools.count())
        node.args, node.kwargs = args, kwargs
