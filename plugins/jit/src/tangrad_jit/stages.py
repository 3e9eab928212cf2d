"""All stages of compiling one function, as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tangrad_jit.capture.errors import CaptureError, Unsettled
from tangrad_jit.compiling.joint import part
from tangrad_jit.compiling.recording import Recording, record
from tangrad_jit.graph.drawing import svg_of
from tangrad_jit.graph.ir import Graph
from tangrad_jit.graph.printer import text_of
from tangrad_jit.passes.pipeline import optimize
from tangrad_jit.run.plan import Plan

__all__ = ["stages_of"]


def stages_of(
    function: Callable[..., Any], args: tuple[Any, ...], fast: bool = False, svg: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (title, text) of each stage: recording, guards, passes, groups, plan.

    Args:
        function: the function or module, which is run.
        args: its arguments.
        fast: allow rewriting that changes last bits.
        svg: where to draw the final graph, or None.

    Raises:
        CaptureError: the function cannot be a graph.
    """
    recording = _recorded(function, args)
    assert recording.guards is not None
    yield "recorded", text_of(recording.graph)
    kinds = [f"{g.path or 'the function'}: {type(g).__name__}" for g in recording.guards.entries]
    yield "guards", "\n".join(kinds) or "none but the arguments"
    parts = part(recording)
    yield from _of_graph("forward", parts.forward, fast, svg)
    if parts.backward is not None:
        yield from _of_graph("backward", parts.backward, fast, None)


def _recorded(function: Callable[..., Any], args: tuple[Any, ...]) -> Recording:
    known: dict[Any, Any] = {}
    name = getattr(function, "__name__", type(function).__name__)
    for _ in range(3):
        recording = record(function, args, {}, True, known, name)
        known.update(recording.executed)
        if recording.failure is None:
            return recording
        if not isinstance(recording.failure, Unsettled):
            break
    assert recording.failure is not None
    raise CaptureError(recording.failure.reason, recording.failure.line)


def _of_graph(title: str, graph: Graph, fast: bool, svg: str | None) -> Iterator[tuple[str, str]]:
    graph = graph.copy()
    after: list[tuple[str, str]] = []

    def watch(note: str) -> None:
        after.append((f"{title}, after {note}", text_of(graph, places=False)))

    _, groups, notes = optimize(graph, fast, watch)
    yield from after
    told = "; ".join(notes[len(after) :])
    if groups:
        yield f"{title}, groups: {told}", "\n\n".join(group.listing() for group in groups)
    elif told:
        yield f"{title}, groups", told
    plan = Plan(graph, groups)
    steps = "\n".join(f"{k:4d}  {step}" for k, step in enumerate(plan.steps))
    yield f"{title}, plan: arena of {plan.arena_bytes} bytes", steps
    if svg is not None:
        with open(svg, "w", encoding="utf-8") as file:
            file.write(svg_of(graph))
