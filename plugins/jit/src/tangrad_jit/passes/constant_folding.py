"""Constant folding: what depends on constants alone is computed when the graph is compiled."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_jit.graph.growing import growing_in
from tangrad_jit.graph.ir import Graph, Input, Value
from tangrad_jit.graph.sized import is_sized
from tangrad_jit.graph.types import TensorType
from tangrad_jit.passes.facts import Facts, is_pure
from tangrad_jit.run.interpreter import run_node

__all__ = ["fold_constants"]

_LARGEST = 1 << 20


def fold_constants(graph: Graph) -> int:
    """Compute nodes whose inputs are all constants; return how many."""
    if not any(entry.kind == "constant" for entry in graph.inputs):
        return 0
    facts = Facts(graph)
    known: dict[Value, Any] = {
        entry.value: entry.tensor
        for entry in graph.inputs
        if entry.kind == "constant" and not facts.is_written(entry.value)
    }
    kept, folded, made = [], 0, []
    for node in graph.nodes:
        inputs = node.inputs
        small = all(
            isinstance(v.type, TensorType) and v.type.numel <= _LARGEST for v in node.results
        )
        fits = inputs and all(v in known for v in inputs) and is_pure(node) and small
        fits = fits and not any(growing_in(node.args)) and not is_sized(node.args)
        if not fits or any(v.root in facts.returned or facts.is_written(v) for v in node.results):
            kept.append(node)
            continue
        with tangrad.no_grad():
            run_node(node, known)
        folded += 1
        made.extend(node.results)
    graph.nodes = kept
    used = {value for node in kept for value in node.inputs} | graph.returned()
    for value in made:
        value.producer, value.view_of, value.offset = None, None, 0
        if value in used:
            graph.inputs.append(Input(value, "constant", "folded", known[value]))
    return folded
