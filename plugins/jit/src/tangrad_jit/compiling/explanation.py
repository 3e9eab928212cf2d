"""`compile.explain`: what the compiler makes of a call, told to people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit._queue import queues
from tangrad_jit.compiling.compiled import Compiled, Settings
from tangrad_jit.compiling.verdict import verdict_of
from tangrad_jit.graph.printer import text_of

__all__ = ["Explanation", "explain"]


class Explanation:
    """What is known of a compiled function; `str` tells it.

    Attributes:
        compiled: the function.
        graphs: its graphs, forward and backward.
        graph_count, guard_count: how many there are.
        events: recordings and their causes, refusals, and how it was dropped.
    """

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.events = list(compiled.events)
        self.graphs = [
            graph for e in compiled.executables for graph in (e.forward, e.backward) if graph
        ]

    @property
    def graph_count(self) -> int:
        """The number of graphs."""
        return len(self.graphs)

    @property
    def guard_count(self) -> int:
        """The number of guards of all graphs."""
        return sum(len(e.guards.entries) for e in self.compiled.executables)

    @property
    def graph_break_count(self) -> int:
        """Whether there is a reason against a graph: there are no graphs of parts."""
        return len(self.break_reasons)

    @property
    def break_reasons(self) -> list[str]:
        """Why the function runs as it is, if it does."""
        return [self.compiled.off] if self.compiled.off else []

    def __str__(self) -> str:
        lines = verdict_of(self.compiled)
        lines.append(f"{self.compiled.name}: {self.graph_count} graphs, {self.guard_count} guards")
        lines += [f"  {event}" for event in self.events]
        if self.compiled.off and self.compiled.off not in self.events:
            lines.append(f"  {self.compiled.off}")
        lines += [line for family in self.compiled.families for line in _tell_family(family)]
        lines += _tell_queues(self.compiled.queued)
        for k, executable in enumerate(self.compiled.executables):
            lines.append("")
            lines.extend(_tell(k, executable))
        return "\n".join(lines)


def _tell_family(family: Any) -> list[str]:
    told = ", ".join(
        f"{name} = {' = '.join(f'{path}.shape[{dim}]' for path, dim in dims)}"
        for name, dims in family.symbols.items()
    )
    lines = [
        f"  all sizes of {told}, from 2 on and different from one another: {family.served} served"
        + (f", the last in {1e3 * family.seconds:.1f} ms" if family.served else "")
    ]
    lines += [f"    where {condition}" for condition in family.conditions]
    lines += [f"  pass {note}" for note in family.template.notes]
    return lines


def _tell_queues(queued: Any) -> list[str]:
    if queued is None or not queued.calls:
        return []
    lines = [
        f"  queued: {queued.calls} calls, {queued.ops} ops in {queued.queues} queues, "
        f"{queued.compiled} of them run by a kernel"
    ]
    if queued.measured:
        times = "queued {:.1f} us, as it is {:.1f} us".format(*(1e6 * t for t in queued.measured))
        lines.append(f"  measured: {times}")
    for queue in queues():
        how = "by a kernel" if queue.has_kernel else queue.refused or "not yet by a kernel"
        ops = ", ".join(step[0].title for step in queue.steps)
        lines.append(f"  queue of {ops}: {queue.runs} runs, {how}")
        lines.append(f"    settled at {queue.line or 'no line of a program'}: {queue.cause}")
    return lines


def _tell(k: int, executable: Any) -> list[str]:
    lines = [f"recording {k}: {1e3 * executable.seconds:.1f} ms, guards:"]
    counts: dict[str, int] = {}
    for guard in executable.guards.entries:
        kind = type(guard).__name__.removesuffix("Guard").lower()
        counts[kind] = counts.get(kind, 0) + 1
    told = ", ".join(f"{count} of {kind}" for kind, count in counts.items())
    lines.append(f"  {told or 'none but the arguments'}")
    if executable.measured:
        graph, eager = executable.measured
        lines.append(f"  measured: {1e6 * graph:.1f} us, the function itself {1e6 * eager:.1f} us")
    lines += [f"  pass {note}" for note in executable.notes]
    for plan in executable.plans:
        kinds: dict[str, int] = {}
        for step in plan.steps:
            kinds[step] = kinds.get(step, 0) + 1
        steps = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        lines.append(f"  plan of {plan.graph.name}: {steps}; arena of {plan.arena_bytes} bytes")
        lines += [f"    {group}" for group in plan.groups]
        lines += [f"    {_tell_branches(*told)}" for told in plan.program.branches]
    for graph in (executable.forward, executable.backward):
        if graph is not None:
            lines += ["", text_of(graph)]
    return lines


def _tell_branches(count: int, apart: bool | None, in_turn: float, side_by_side: float) -> str:
    how = {None: "not timed yet", True: "side by side", False: "in turn"}[apart]
    if not (in_turn and side_by_side):
        return f"{count} branches: {how}"
    times = f"{1e6 * in_turn:.1f} us in turn, {1e6 * side_by_side:.1f} us side by side"
    return f"{count} branches: {how}; {times}"


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call a function until it has a graph, or cannot have one, and return what became of it.

    Args:
        function: what `compile` returned, which is called; or a function, which is compiled first.
        *args, **kwargs: of the calls. Their effects are real: a training step trains.
    """
    compiled = getattr(function, "compiled", None)
    if not isinstance(compiled, Compiled):
        compiled = Compiled(function, Settings(measure=False))
    for _ in range(Compiled.unsettled_runs):
        if compiled.executables or compiled.off:
            break
        compiled(args, kwargs)
    return Explanation(compiled)
