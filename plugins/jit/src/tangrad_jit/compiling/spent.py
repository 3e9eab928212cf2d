"""What the histories of results tell: of what they are, whose backward is run, what is used up."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import engine_run

__all__ = [
    "functions_behind",
    "gradients_up_to",
    "is_used_up",
    "reached",
    "refusal_beside",
    "tells_of_second_time",
]


def gradients_up_to(results: list[Any], sources: list[Any], seeds: list[Any]) -> list[Any]:
    """Return the gradients of results for sources, of which one may be computed from another.

    Whoever differentiates a graph's results goes on from each source, so the graph must not.

    Raises:
        RuntimeError: what the results were computed from was differentiated before, or written.
    """
    found: list[Any] = engine_run(results, seeds, True, False, sources, False, True)
    return found


def is_used_up(result: Any, sources: list[Any]) -> bool:
    """Return whether a result cannot be differentiated by the sources, as that was done before."""
    with tangrad.no_grad():
        seed = tangrad.ones_like(result)
    try:
        gradients_up_to([result], sources, [seed])
    except RuntimeError as error:
        return tells_of_second_time(error)
    return False


def tells_of_second_time(error: RuntimeError) -> bool:
    """Return whether an error says that a graph was differentiated before."""
    return "second time" in str(error) or "freed" in str(error)


def functions_behind(results: list[Any], sources: list[Any]) -> list[Any]:
    """Return the nodes of `Function`s between sources and results.

    They have the derivatives that their backward gives, not those of the ops that they run.
    """
    nodes, _ = _between(results, sources)
    return [node for node in nodes if isinstance(node, tangrad.autograd.function.FunctionCtx)]


def reached(results: list[Any], sources: list[Any]) -> list[bool]:
    """Return of each source whether a backward from the results comes to it.

    One that is not reached gets no gradient, and nothing that it was computed from, not even zeros.
    """
    _, edges = _between(results, sources)
    return [_edge_of(source) in edges for source in sources]


def _between(results: list[Any], sources: list[Any]) -> tuple[set[Any], set[Any]]:
    """Return the nodes between sources and results, and the edges that lead to sources."""
    ends = set(map(_edge_of, sources))
    found: set[Any] = set()
    pending = [result.grad_fn for result in results]
    known = set(pending)
    while pending:
        edges = set(pending.pop().next_functions)
        found |= edges & ends
        following = {n for n, _ in edges - ends if n is not None} - known
        known |= following
        pending.extend(following)
    return known, found


def _edge_of(source: Any) -> tuple[Any, int]:
    """Return the edge to a source, as `next_functions` has it."""
    edge = tangrad.autograd.graph.get_gradient_edge(source)
    return edge.node, edge.output_nr


def refusal_beside(result: Any, sources: list[Any]) -> RuntimeError | None:
    """Return why backward from a result is refused on ways that lead to none of the sources.

    Derivatives by the sources do not go there; eager's backward does.
    """
    leads = {_edge_of(source)[0]: True for source in sources}
    pending = [(result.grad_fn, False)]
    while pending:
        node, is_ready = pending.pop()
        following = [n for n, _ in node.next_functions if n is not None]
        if is_ready:
            leads[node] = any(leads[n] for n in following)
            error = None if leads[node] else _refusal_of(node)
            if error is not None:
                return error
        elif node not in leads:
            leads[node] = False
            pending.append((node, True))
            pending += [(n, False) for n in following if n not in leads]
    return None


def _refusal_of(node: Any) -> RuntimeError | None:
    read = getattr(node, "_saved", None) or node._saved_values
    try:
        read()
    except RuntimeError as error:
        return error
    return None
