"""What the histories of results tell: that the run has used them up, or whose backward is run."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import engine_run

__all__ = [
    "functions_behind",
    "gradients_up_to",
    "is_used_up",
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
    ends = {tangrad.autograd.graph.get_gradient_edge(source) for source in sources}
    pending = [result.grad_fn for result in results]
    known = set(pending)
    while pending:
        edges = set(pending.pop().next_functions) - ends
        following = {n for n, _ in edges if n is not None} - known
        known |= following
        pending.extend(following)
    return [node for node in known if isinstance(node, tangrad.autograd.function.FunctionCtx)]


def refusal_beside(result: Any, sources: list[Any]) -> RuntimeError | None:
    """Return why backward from a result is refused on ways that lead to none of the sources.

    Derivatives by the sources do not go there; eager's backward does.
    """
    edge = tangrad.autograd.graph.get_gradient_edge
    leads = {edge(source).node: True for source in sources}
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
