"""Branches and loops of a program: the graphs of their functions, run between markers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.random.generator import get_default_generator
from tangrad_export.program.recording import Recording
from tangrad_export.steps.control_flow import Else, EndBranch, EndLoop, If, Loops, Marker, Test
from tangrad_export.steps.copies import keep_copy
from tangrad_export.steps.reports import guard

__all__ = ["Inside", "branch", "is_control_flow", "loop", "rounds", "title_of"]

_BRANCH, _LOOP = "cond", "while_loop"
Runner = Any  # of `running.py`, which asks here


def is_control_flow(node: Any) -> bool:
    """Tell whether a call of a graph is a branch or a loop, whose functions are graphs."""
    return any("graph" in n.meta for n in node.all_input_nodes)


def title_of(node: Any) -> str:
    """Return how a program calls a branch or a loop."""
    return _BRANCH if node.target is tangrad.cond else _LOOP


def branch(
    runner: Runner, pred: Tensor, true: Any, false: Any, operands: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Add a branch to the program and return its results, which either side writes.

    Args:
        runner: of the graph around it.
        pred: the truth value.
        true, false: graphs of the two sides.
        operands: the values of their inputs.

    Raises:
        ExportError: the sides give tensors of different kinds, or draw random numbers.
    """
    inside = Inside(runner, _BRANCH)
    inside.mark(If([inside.place(pred)]))
    first = inside.run(true, operands)
    results = [_like(t) for t in first]
    inside.copy(results, first)
    inside.mark(Else())
    inside.copy(results, inside.run(false, operands))
    inside.mark(EndBranch())
    return tuple(results)


def loop(
    runner: Runner, condition: Any, body: Any, carried: Sequence[Tensor], additional: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Add a loop to the program and return the values that it carries.

    Args:
        runner: of the graph around it.
        condition, body: graphs of its functions.
        carried: the first values.
        additional: what both functions are given behind them.

    Raises:
        ExportError: the values change in kind, or random numbers are drawn.
    """
    inside = Inside(runner, _LOOP)
    return rounds(
        inside,
        lambda values: inside.run(condition, [*values, *additional])[0],
        lambda values: inside.run(body, [*values, *additional]),
        carried,
    )


def rounds(
    inside: Inside,
    condition: Callable[[list[Tensor]], Tensor],
    body: Callable[[list[Tensor]], list[Tensor]],
    carried: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Add a loop whose functions add their own steps, and return the values that it carries.

    Args:
        inside: adds what stands in the loop.
        condition, body: functions of the carried values.
        carried: the first values.

    Raises:
        ExportError: the values change in kind.
    """
    recording = inside.recording
    guard(recording)  # a loop over values that are none might not end
    values = [_like(t) for t in carried]
    inside.copy(values, carried)
    places = [recording.ref(t) for t in values if t.numel()]
    inside.mark(Loops(places))
    start = len(recording.steps)
    holds = condition(values)
    _guard_since(recording, start)
    inside.mark(Test([inside.place(holds)]))
    start = len(recording.steps)
    following = body(values)
    # Values may change places: what a copy would overwrite is put aside.
    buffers = {ref.buffer for ref in places}
    for k, t in enumerate(following):
        if t is not values[k] and t.numel() and recording.ref(t).buffer in buffers:
            following[k] = _like(t)
            inside.copy([following[k]], [t])
    inside.copy(values, following)
    _guard_since(recording, start)
    inside.mark(EndLoop(places))
    return tuple(values)


class Inside:
    """Adds what stands inside of a branch or a loop.

    Args:
        runner: of the graph around it.
        title: what it is.
    """

    def __init__(self, runner: Runner, title: str) -> None:
        self.runner, self.title = runner, title
        self.recording: Recording = runner.recording
        self.origin = self.recording.origin

    def mark(self, marker: Marker) -> None:
        """Add the beginning or end of a block."""
        self.recording.origin = self.origin
        with self.recording.op(self.title, ""):
            self.recording.add(marker)

    def place(self, condition: Tensor) -> Any:
        """Return the place of a truth value."""
        return self.recording.ref(_on_device(condition))

    def run(self, graph: Any, given: Sequence[Any]) -> list[Tensor]:
        """Run the graph of a function and return its results.

        Raises:
            ExportError: it draws random numbers.
        """
        generator = get_default_generator("c99:0")
        drawn = generator.get_offset()
        with tangrad.set_grad_enabled(tangrad.is_grad_enabled()):
            found = self.runner.inside(graph, given)
        self.recording.origin = self.origin
        if generator.get_offset() != drawn:
            raise self.recording.refusal(
                "random numbers are drawn inside: how many would depend on values; draw them "
                "before it",
                self.title,
            )
        results = found if isinstance(found, (list, tuple)) else [found]
        return [_on_device(t) for t in results]

    def new(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return memory for values."""
        return [_like(t) for t in values]

    def copy(self, targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
        """Copy values to where they last.

        Raises:
            ExportError: they are of other kinds.
        """
        if [_kind(t) for t in targets] != [_kind(t) for t in sources]:
            raise self.recording.refusal(
                f"expected {[_kind(t) for t in targets]}, got {[_kind(t) for t in sources]}",
                self.title,
            )
        for target, source in zip(targets, sources, strict=True):
            if target is not source and target.numel():
                with self.recording.op(self.title, target.dtype.name, [target]):
                    keep_copy(target, _on_device(source))


def _on_device(t: Tensor) -> Tensor:
    return t.to("c99").resolve_conj().resolve_neg()


def _like(t: Tensor) -> Tensor:
    with tangrad.no_grad():
        return tangrad.empty_like(t, device="c99")


def _kind(t: Tensor) -> str:
    return f"{t.dtype}{list(t.shape)}"


def _guard_since(recording: Recording, start: int) -> None:
    """End the program here if one of the last steps has reported something."""
    refs = [ref for step in recording.steps[start:] for ref in step.refs]
    if any(ref is not None and ref.buffer.kind == "error" for ref in refs):
        guard(recording)
