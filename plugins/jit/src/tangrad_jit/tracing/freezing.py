"""`freeze` and `optimize_for_inference`: parameters become constants."""

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

__all__ = ["freeze", "optimize_for_inference"]


def freeze(
    mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True
) -> Any:
    """Return a traced module whose parameters and buffers are constants of its graphs.

    Of a scripted module, a copy whose parameters need no gradients.

    Args:
        mod: a traced module in evaluation mode.
        preserved_attrs: methods that are kept besides `forward`.
        optimize_numerics: also fold batch norm into the convolution or linear layer before it.

    Raises:
        RuntimeError: `mod` was not traced, is in training mode, or writes its buffers.
    """
    return _frozen_module(mod, preserved_attrs, optimize_numerics, batches=True)


def _frozen_module(
    mod: Any, preserved_attrs: list[str] | None, numerics: bool, *, batches: bool
) -> Any:
    frozen_copy = getattr(mod, "frozen_copy", None)
    has_graphs = isinstance(mod, TopLevelTracedModule) and mod.methods
    if frozen_copy is not None and not has_graphs:
        return frozen_copy()
    if not isinstance(mod, TopLevelTracedModule):
        raise RuntimeError("Freezing expects a module that jit.trace has made as input")
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            "on your module before freezing."
        )
    kept = {"forward", *(preserved_attrs or ())}
    held = mod._held()
    methods = {
        name: _frozen(traced, held, numerics, traced.batch if batches else None)
        for name, traced in mod.methods.items()
        if name in kept
    }
    made = TopLevelTracedModule(None, methods)
    made.original_name = mod.original_name
    return made.eval()


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """Return a module frozen, if it is not, with batch norm folded and graphs simplified.

    Args:
        mod: a traced module in evaluation mode.
        other_methods: methods that are kept besides `forward`.
    """
    # What the passes below may do with sizes holds for the example's.
    frozen = _frozen_module(mod, other_methods, True, batches=False)
    if not isinstance(frozen, TopLevelTracedModule):
        return frozen
    for traced in frozen.methods.values():
        for run in (merge_common_subexpressions, rewrite, eliminate_copies, remove_dead_code):
            run(traced.graph)
            verify(traced.graph, run.__name__)
    return frozen


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
    written = {value.root for node in graph.nodes for value in node.written}
    for entry in graph.inputs:
        if entry.kind != "capture":
            continue
        if entry.value in written:
            raise RuntimeError(f"freeze: the graph writes {entry.name!r}, which cannot be constant")
        entry.kind, entry.tensor = "constant", held[entry.name].detach().clone()
    if numerics:
        fold_batch_norm(graph)
    fold_constants(graph)
    remove_dead_code(graph)
    used = {value for node in graph.nodes for value in node.inputs} | graph.returned()
    graph.inputs = [e for e in graph.inputs if e.kind == "argument" or e.value in used]
    return verify(graph, "freeze")
