"""The numbers that a graph is given in each call, and what must be true of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit._guards import is_same
from tangrad_jit.capture.numbers import COMPARISONS
from tangrad_jit.compiling.recording import Recording
from tangrad_jit.graph.ir import Value
from tangrad_jit.graph.printer import text_of

__all__ = ["DynamicScalars"]

_Computed = Callable[[list[Any]], Any]


class DynamicScalars:
    """Where numbers are taken from before each run, and what the recorded run asked of them.

    A graph was recorded at certain numbers. Before it runs at others, a run there is recorded,
    too: the texts of both must be the same, so that no number has come into the graph by a way
    that was not symbolic.

    Attributes:
        recorded: the numbers of the recording.
        reads: whether what was asked also depends on tensors that the program holds.
        unconfirmed: places of those that have been no others yet.
    """

    def __init__(self, recording: Recording) -> None:
        self.sources = [source for source, _, _ in recording.numbers]
        self.recorded = [number for _, _, number in recording.numbers]
        self.unconfirmed = set(range(len(self.sources)))
        self._graph, self._text = recording.graph, ""
        places = {value: k for k, (_, value, _) in enumerate(recording.numbers)}
        held = {e.value: e.tensor for e in recording.graph.inputs if e.kind == "capture"}
        self._asked = list(
            {
                (name, left, right): (
                    f"{_text(left, self.sources, places)} {name} "
                    f"{_text(right, self.sources, places)}",
                    COMPARISONS[name],
                    _computed(left, places, held),
                    _computed(right, places, held),
                    outcome,
                )
                for name, left, right, outcome in recording.asked
            }.values()
        )
        asked = [item for _, *sides, _ in recording.asked for item in sides]
        self.reads = any(_reads(item) for item in asked)
        self._getters = [source.get for source in self.sources]
        self._last = self.recorded

    @property
    def text(self) -> str:
        """The graph as it was recorded."""
        if not self._text:
            self._text = text_of(self._graph, places=False)
        return self._text

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Return the numbers of a call, or None where the graph does not hold for them."""
        found = [get(args, kwargs) for get in self._getters]
        for now, before in zip(found, self._last, strict=True):
            if now is not before:
                break
        else:
            if not self.reads:
                return found
        if self._asked and self._refused(found) is not None:
            return None
        self._last = found
        return found

    def _refused(self, numbers: list[Any]) -> str | None:
        for text, compare, left, right, outcome in self._asked:
            try:
                if bool(compare(left(numbers), right(numbers))) is not outcome:
                    return text if outcome else f"not {text}"
            except ArithmeticError as error:
                return f"{text} raises {type(error).__name__}"
        return None

    def why_not(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Return what does not hold of the numbers of a call, as text, or None."""
        found = [source.get(args, kwargs) for source in self.sources]
        refused = self._refused(found)
        if refused is None:
            return None
        told = ", ".join(
            f"{source.name} is {now!r}, it was {was!r}"
            for source, now, was in zip(self.sources, found, self.recorded, strict=True)
            if not is_same(now, was)
        )
        return f"{told or 'numbers in tensors are others'}, and the graph is for {refused}"

    def doubtful(self, numbers: list[Any]) -> list[int]:
        """Return the places of numbers that are others than ever before."""
        return [k for k in self.unconfirmed if not is_same(numbers[k], self.recorded[k])]

    def keys(self) -> set[Any]:
        """Return the keys of the places that the numbers come from."""
        return {source.key for source in self.sources}


def _reads(item: Any) -> bool:
    """Return whether a number depends on one that is read from a tensor."""
    node = item.producer if isinstance(item, Value) else None
    return node is not None and (node.op.reads or any(map(_reads, node.args)))


def _computed(item: Any, places: dict[Value, int], held: dict[Value, Any]) -> _Computed:
    """Return what computes a number from those that are given and the tensors that are held."""
    if not isinstance(item, Value):
        return lambda numbers: item
    if item in places:
        place = places[item]
        return lambda numbers: numbers[place]
    node = item.producer
    assert node is not None
    if node.op.reads:
        tensor = held[node.args[0]]
        return lambda numbers: tensor.item()
    parts, compute = [_computed(part, places, held) for part in node.args], node.op.compute
    return lambda numbers: compute(*(part(numbers) for part in parts))


def _text(item: Any, sources: list[Any], places: dict[Value, int]) -> str:
    if not isinstance(item, Value):
        return repr(item)
    if item in places:
        return str(sources[places[item]].name)
    node = item.producer
    if node is None:
        return "a tensor"
    parts = ", ".join(_text(part, sources, places) for part in node.args)
    return f"{node.name.removeprefix('number.')}({parts})"
