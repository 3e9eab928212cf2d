"""What the histories of results tell: that the run has used them up, or whose backward is run."""

from __future__ import annotations

from typing import Any

import tangrad

__all__ = ["functions_behind", "is_used_up", "refusal_beside", "tells_of_second_time"]


def is_used_up(result: Any, sources: list[Any]) -> bool:
    """Return whether a result cannot be differentiated by the sources, as that was done before."""
    with tangrad.no_grad():
        seed = tangrad.ones_like(result)
    try:
        tangrad.autograd.grad(result, sources, seed, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        return tells_of_second_time(error)
    return False


def tells_of_second_time(error: RuntimeError) -> bool:
    """Return whether an error says that a graph was differentiated before."""
    return "second time" in str(error) or "freed" in str(error)


def functions_behind(results: list[Any]) -> list[Any]:
    """Return the nodes of `Function`s in the histories of results.

    They have the derivatives that their backward gives, not those of the ops that they run.
    """
    pending = [result.grad_fn for result in results]
    known = set(pending)
    while pending:
        following = {n for n, _ in pending.pop().next_functions if n is not None} - known
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
