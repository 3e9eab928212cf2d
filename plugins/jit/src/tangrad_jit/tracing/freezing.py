"""Graphs of traces whose parameters become constants, for `jit.freeze`."""

from __future__ import annotations

from typing import Any

from tangrad_jit.graph.ir import Graph
from tangrad_jit.graph.verifier import verify
from tangrad_jit.passes.algebra import rewrite
from tangrad_jit.passes.batch_norm_folding import fold_batch_norm
from tangrad_jit.passes.common_subexpressions import merge_common_subexpressions
from tangrad_jit.passes.constant_folding import fold_constants
from tangrad_jit.passes.copy_elimination import eliminate_copies
from tangrad_jit.passes.dead_code import remove_dead_code
from tangrad_jit.tracing.batches import BatchGraph
from tangrad_jit.tracing.traced_module import TopLevelTracedModule, TracedGraph

__all__ = ["frozen_graphs", "simplified"]


def frozen_graphs(
    mod: TopLevelTracedModule, kept: set[str], numerics: bool, batches: bool
) -> dict[str, TracedGraph]:
    """Return the graphs of a traced module with parameters and buffers as constants.

    Args:
        mod: the module.
        kept: names of methods, and of attributes, which no graph has as constants.
        numerics: also fold batch norm into the convolution or linear layer before it.
        batches: keep the graphs of other batches, too.

    Raises:
        RuntimeError: a graph writes a buffer, and there is no program to run instead.
    """
    held = mod._held()
    made = {}
    for name, traced in mod.methods.items():
        if name not in kept:
            continue
        stays = _stays(traced.graph, kept)
        if not stays:
            made[name] = _frozen(traced, held, numerics, traced.batch if batches else None)
        elif not hasattr(mod, "script_unit"):
            raise RuntimeError(f"freeze: the graph writes {stays!r}, which cannot be constant")
    return made


def _stays(graph: Graph, kept: set[str]) -> str:
    """Return the name of a capture that is written or to be kept, or ""."""
    written = {value.root for node in graph.nodes for value in node.written}
    captures = [entry for entry in graph.inputs if entry.kind == "capture"]
    whole = [tuple(name.split(".")) for name in kept]
    for entry in captures:
        path = tuple(entry.name.split("."))
        if entry.value in written or any(path[: len(name)] == name for name in whole):
            return entry.name
    return ""


def simplified(methods: dict[str, TracedGraph]) -> None:
    """Simplify graphs, where they stand, for the sizes of their examples."""
    for traced in methods.values():
        for run in (merge_common_subexpressions, rewrite, eliminate_copies, remove_dead_code):
            run(traced.graph)
            verify(traced.graph, run.__name__)


def _frozen(
    traced: TracedGraph, held: dict[str, Any], numerics: bool, batch: BatchGraph | None
) -> TracedGraph:
    if batch is not None:
        frozen = _frozen_graph(batch.graph, held, numerics)
        batch = BatchGraph(frozen, batch.rows, batch.arguments)
    graph = _frozen_graph(traced.graph, held, numerics)
    return TracedGraph(graph, traced.arguments, traced.result, batch)


def _frozen_graph(given: Graph, held: dict[str, Any], numerics: bool) -> Graph:
    graph = given.copy()
    for entry in graph.inputs:
        if entry.kind != "capture":
            continue
        entry.kind, entry.tensor = "constant", held[entry.name].detach().clone()
    if numerics:
        fold_batch_norm(graph)
    fold_constants(graph)
    remove_dead_code(graph)
    used = {value for node in graph.nodes for value in node.inputs} | graph.returned()
    graph.inputs = [e for e in graph.inputs if e.kind == "argument" or e.value in used]
    return verify(graph, "freeze")
