"""What a difference between a graph and its function comes down to: the fewest calls that show it.

A recorded graph runs node by node, and after the passes by its plan. Where these two differ, calls
are taken away as long as they still do, and what is left is written as a program. Where they agree,
the run that was recorded is not what the function does now, which no smaller graph can show.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad_jit._guards import is_same
from tangrad_jit.graph.ir import Graph, Input, Node, Value, map_values
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.functional_form import make_functional
from tangrad_jit.passes.held_writes import make_held_writes_functional
from tangrad_jit.passes.pipeline import optimize
from tangrad_jit.run.interpreter import interpret, run_node
from tangrad_jit.run.plan import Plan

__all__ = ["both_ways", "copied", "reduced", "same_bits", "write_program"]


def same_bits(a: Any, b: Any) -> bool:
    """Return whether two results are equal to the bit, NaN being equal to NaN."""
    if not (isinstance(a, tangrad.Tensor) and isinstance(b, tangrad.Tensor)):
        return is_same(a, b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    with tangrad.no_grad():
        if a.is_complex():
            a, b = (tangrad.view_as_real(t.resolve_conj()) for t in (a, b))
        same = a == b
        if a.is_floating_point():
            same &= a.signbit() == b.signbit()
        return bool((same | ((a != a) & (b != b))).all())


def both_ways(graph: Graph, inputs: Sequence[Any], fast: bool = False) -> tuple[Any, Any]:
    """Return what a graph gives node by node, and after the passes by its plan.

    Args:
        graph: the graph as recorded; it is not changed, and neither are the inputs.
        inputs: in the order of the graph's.
        fast: as of `optimize`.

    Returns:
        Two lists of outputs, followed by the inputs as they are afterwards.
    """
    state = tangrad.get_rng_state()
    given = _copies(inputs)
    by_nodes = [*interpret(graph, given), *given]
    tangrad.set_rng_state(state)
    made, groups, _ = optimize(graph.copy(), fast=fast)
    given = _copies(inputs)
    beside = [entry.tensor for entry in made.inputs[len(graph.inputs) :]]
    by_plan = [*Plan(made, groups).run([*given, *beside]), *given]
    tangrad.set_rng_state(state)
    return by_nodes, by_plan


def reduced(graph: Graph, inputs: Sequence[Any], fast: bool) -> tuple[Graph, list[Any]] | None:
    """Return the fewest calls that differ, and their inputs; None where the two ways agree.

    No call of what is returned can be left out and its results given instead.
    """
    inputs = list(inputs)
    if not _differs(graph, inputs, fast):
        return None
    functional = graph.copy()
    make_functional(functional)
    make_held_writes_functional(functional)
    if not _differs(functional, inputs, fast) or any(n.written for n in functional.nodes[:-1]):
        return graph, inputs
    known = _values_of(functional, inputs)

    def shows(nodes: list[Node]) -> tuple[Graph, list[Any]] | None:
        part = _part(functional, nodes, known)
        return part if part is not None and _differs(*part, fast) else None

    last = _first(functional.nodes, lambda node: shows(_needed(node)) is not None)
    if last is None:
        return graph, inputs
    kept = [last]
    while shows(kept) is None:
        kept = _with_producers(functional, kept)
    for node in kept[:-1]:
        without = [other for other in kept if other is not node]
        if shows(without) is not None:
            kept = without
    return shows(kept)


def copied(item: Any) -> Any:
    """Return a tensor in memory of its own, with the strides that a graph knows it by.

    Args:
        item: a tensor; anything else is returned as it is.
    """
    if not isinstance(item, tangrad.Tensor):
        return item
    source = item.detach()
    if source.layout is not tangrad.strided or source.is_contiguous():
        return source.clone()
    places = zip(source.shape, source.stride(), strict=True)
    extent = 1 + sum((size - 1) * step for size, step in places)
    whole = source.as_strided((extent,), (1,), source.storage_offset()).clone()
    return whole.as_strided(source.shape, source.stride(), 0)


def _copies(inputs: Sequence[Any]) -> list[Any]:
    return [copied(item) for item in inputs]


def _differs(graph: Graph, inputs: list[Any], fast: bool) -> bool:
    by_nodes, by_plan = both_ways(graph, inputs, fast)
    return not all(same_bits(a, b) for a, b in zip(by_nodes, by_plan, strict=True))


def _values_of(graph: Graph, inputs: list[Any]) -> dict[Value, Any]:
    """Return all values of a run."""
    env: dict[Value, Any] = {
        entry.value: item for entry, item in zip(graph.inputs, _copies(inputs), strict=True)
    }
    state = tangrad.get_rng_state()
    with tangrad.no_grad():
        for node in graph.nodes:
            run_node(node, env)
    tangrad.set_rng_state(state)
    return env


def _first(nodes: list[Node], holds: Callable[[Node], bool]) -> Node | None:
    """Return the first node for which something holds that holds for the later ones, too.

    Most differences reach all that is computed from them; halving finds one of the first such
    nodes with few runs, and where that is not one, the nodes are tried in turn.
    """
    low, high = 0, len(nodes) - 1
    while low < high:
        middle = (low + high) // 2
        if holds(nodes[middle]):
            high = middle
        else:
            low = middle + 1
    if nodes and holds(nodes[low]):
        return nodes[low]
    return next(filter(holds, nodes), None)


def _needed(node: Node) -> list[Node]:
    """Return a node and all that it is computed from, in their order."""
    found: dict[Node, None] = {}
    pending = [(node, False)]
    while pending:
        at, done = pending.pop()
        if done:
            found[at] = None
        elif at not in found:
            pending.append((at, True))
            pending.extend((p, False) for p in _producers(at) if p not in found)
    return list(found)


def _producers(node: Node) -> list[Node]:
    return [value.producer for value in node.inputs if value.producer is not None]


def _with_producers(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Return nodes with those that make what they take, in the order of the graph."""
    wanted = {*nodes, *(p for node in nodes for p in _producers(node))}
    return [node for node in graph.nodes if node in wanted]


def _part(
    graph: Graph, nodes: list[Node], known: dict[Value, Any]
) -> tuple[Graph, list[Any]] | None:
    """Return the graph of some nodes, which is given what others make, and its inputs.

    None where a value cannot be given, as its elements do not fill their memory.
    """
    made = Graph(graph.name)
    twins: dict[Value, Value] = {}
    inputs: list[Any] = []
    entries = {entry.value: entry for entry in graph.inputs}

    def given(value: Value) -> Value:
        if value not in twins:
            twins[value] = Value(value.type)
            tensor = isinstance(value.type, TensorType)
            entry = entries.get(value, Input(value, "argument" if tensor else "number", "given"))
            item = known[value]
            made.inputs.append(Input(twins[value], entry.kind, entry.name, item))
            inputs.append(item)
        return twins[value]

    for node in nodes:
        args = map_values(given, node.args)
        outs = tuple(given(value) for value in node.outs)
        new = Node(node.op, args, node.form, outs, node.module, node.where)
        for value in node.results:
            twin = twins[value] = Value(value.type, new)
            if value.view_of is not None:
                twin.view_of = given(value.view_of)
                twin.offset = twin.view_of.offset + value.offset - value.view_of.offset
            new.results.append(twin)
        made.nodes.append(new)
    made.outputs = list(made.nodes[-1].results)
    fits = all(
        not isinstance(entry.value.type, TensorType)
        or tuple(copied(item).stride()) == tuple(entry.value.type.stride)
        for entry, item in zip(made.inputs, inputs, strict=True)
    )
    return (made, inputs) if fits else None


def write_program(
    graph: Graph, inputs: list[Any], fast: bool, results: list[tuple[Any, Any]]
) -> str:
    """Write the fewest calls that show a difference to a new folder; return the program's path.

    Args:
        graph: as recorded. inputs: of the call. fast: as of `optimize`.
        results: of the call, by the graph and by the function.
    """
    found = reduced(graph, inputs, fast)
    graph, inputs = (graph, inputs) if found is None else found
    folder = tempfile.mkdtemp(prefix="tangrad_jit_difference_")
    with open(os.path.join(folder, "graph.txt"), "w", encoding="utf-8") as file:
        file.write(str(graph))
    call = {"inputs": _copies(inputs), "state": tangrad.get_rng_state()}
    if found is None:
        call["results"] = [tuple(_copies(pair)) for pair in results]
    tangrad.save(call, os.path.join(folder, "call.pt"))
    path = os.path.join(folder, "show.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_PROGRAM.format(fast=fast, shown=_BY_NODES if found else _AS_CALLED))
    return path


_PROGRAM = '''"""Run the graph beside this file, and print where its results differ."""

import pathlib

import tangrad
from tangrad_jit.compiling.difference import both_ways, same_bits
from tangrad_jit.graph import parse

folder = pathlib.Path(__file__).parent
graph = parse((folder / "graph.txt").read_text("utf-8"))
call = tangrad.load(folder / "call.pt")
for entry, item in zip(graph.inputs, call["inputs"]):
    entry.tensor = item
tangrad.set_rng_state(call["state"])
by_nodes, by_plan = both_ways(graph, call["inputs"], fast={fast})
{shown}
for k, (a, b) in enumerate(pairs):
    if not same_bits(a, b):
        print(f"{{k}}: {{left}} {{a!r}}, {{right}} {{b!r}}")
'''
_BY_NODES = """pairs = zip(by_nodes, by_plan)
left, right = "node by node", "by the plan"
"""
_AS_CALLED = """# The graph gives the same node by node: it is not what the function does.
pairs = call["results"]
left, right = "the graph gave", "the function"
"""
