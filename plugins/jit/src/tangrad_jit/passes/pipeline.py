"""The passes in their order, each verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit.graph.ir import Graph, Node
from tangrad_jit.graph.verifier import verify
from tangrad_jit.passes.algebra import rewrite
from tangrad_jit.passes.common_subexpressions import merge_common_subexpressions
from tangrad_jit.passes.constant_folding import fold_constants
from tangrad_jit.passes.copy_elimination import eliminate_copies
from tangrad_jit.passes.dead_code import remove_dead_code
from tangrad_jit.passes.functional_form import make_functional
from tangrad_jit.passes.fusion import fuse
from tangrad_jit.passes.held_writes import make_held_writes_functional, sink_copies
from tangrad_jit.passes.horizontal import merge_side_by_side
from tangrad_jit.passes.random_numbers import expose_random_numbers
from tangrad_jit.passes.rematerialization import rematerialize
from tangrad_jit.passes.schedule import reorder

__all__ = ["PASSES", "optimize"]

#: (name, pass, what its number counts): each takes a graph and returns how much it changed.
PASSES: list[tuple[str, Callable[[Graph], int], str]] = [
    ("functional form", make_functional, "writes in place are calls"),
    ("held writes", make_held_writes_functional, "writes into held tensors are calls"),
    ("constant folding", fold_constants, "calls computed once"),
    ("common subexpressions", merge_common_subexpressions, "calls merged"),
    ("algebra", rewrite, "calls rewritten"),
    ("random numbers", expose_random_numbers, "dropouts are pointwise"),
    ("copy elimination", eliminate_copies, "copies dropped"),
    ("dead code", remove_dead_code, "dead calls dropped"),
    ("schedule", reorder, "bytes less at the peak"),
    ("rematerialization", rematerialize, "bytes less at the peak"),
]


def optimize(
    graph: Graph, fast: bool = False, watch: Callable[[str], None] | None = None
) -> tuple[Graph, list[Any], list[str]]:
    """Return a graph after all passes, its fused groups, and a line per pass that did something.

    Args:
        graph: the graph, which is changed.
        fast: also rewrite in ways that change the last bits.
        watch: is called with the line of each pass that changed the graph, right after it.

    Raises:
        GraphError: a pass has made it no graph.
    """
    verify(graph)
    notes = []
    recorded: dict[Node, int] = {}
    for name, run, what in PASSES:
        if run is reorder:
            recorded = {node: k for k, node in enumerate(graph.nodes)}
        count = _run(graph, name, run, fast)
        if count:
            notes.append(f"{name}: {count} {what}")
            if watch is not None:
                watch(notes[-1])
    sink_copies(graph)
    verify(graph, "held writes")
    groups, note = fuse(graph, recorded)
    if note:
        notes.append(note)
    merged = merge_side_by_side(graph, groups)
    if len(merged) < len(groups):
        notes.append(f"horizontal fusion: {len(groups)} kernels are {len(merged)} calls")
    return graph, merged, notes


def _run(graph: Graph, name: str, run: Callable[[Graph], int], fast: bool = False) -> int:
    """Run one pass and verify what it leaves; return how much it changed."""
    count = rewrite(graph, fast=fast) if run is rewrite else run(graph)
    if count:
        verify(graph, name)
    return count
