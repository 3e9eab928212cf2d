"""Graphs of a traced program for sizes and dtypes that its example does not have.

A graph has the sizes of the run in which it was recorded. As long as the program is there, it is
recorded anew for others: twice, on the example and on the new arguments. The first recording has to
give the graph that was traced, so that nothing but the arguments can have changed; the second has
to call the same ops on the same values, so that it follows the branches of the example, as a trace
does. Numbers and constants may differ: they come from the sizes.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.plugin import innermost_tracer, is_intercepted
from tangrad_jit.graph.ir import Graph, Node, Value, values_in
from tangrad_jit.graph.printer import text_of

__all__ = ["OtherSizes"]

_KEPT = 16  # graphs, of the sizes used last

Record = Callable[[list[Any]], tuple[Graph, Any]]


class OtherSizes:
    """Graphs of one program by the sizes of its arguments.

    Args:
        record: given the arguments' tensors, runs the program and returns its graph and the
            structure of its result.
        tensors: those of the example. example: its graph. result: the structure of its result.
    """

    def __init__(self, record: Record, tensors: list[Any], example: Graph, result: Any) -> None:
        self._record, self._tensors = record, tensors
        self._example, self._result = example, result
        self._text = text_of(example, places=False)
        self._graphs: dict[Any, tuple[Graph, Any] | None] = {}
        self._lock = threading.RLock()

    def graph_for(self, given: list[Any]) -> tuple[Graph, Any] | None:
        """Return the graph for arguments and the structure of its result.

        None where the program calls other ops for them.
        """
        if is_intercepted():
            return None
        key = tuple((tuple(t.shape), t.stride(), t.dtype) for t in given)
        with self._lock:
            if key not in self._graphs:
                while len(self._graphs) >= _KEPT:
                    self._graphs.pop(next(iter(self._graphs)))
                self._graphs[key] = self._recorded(given)
            return self._graphs[key]

    def _recorded(self, given: list[Any]) -> tuple[Graph, Any] | None:
        found: list[tuple[Graph, Any] | None] = []
        if innermost_tracer() is None:
            found.append(self._found(given))
        else:  # somebody follows what this thread does, and these runs are no part of that
            thread = threading.Thread(target=lambda: found.append(self._found(given)))
            thread.start()
            thread.join()
        return found[0] if found else None

    def _found(self, given: list[Any]) -> tuple[Graph, Any] | None:
        try:
            with warnings.catch_warnings(), tangrad.random.fork_rng():
                warnings.simplefilter("ignore")
                again, _ = self._record(_copies(self._tensors))
                if text_of(again, places=False) != self._text:
                    return None
                other, result = self._record(_copies(given))
        except Exception:  # the program takes no such sizes; what it raises then is no fault
            return None
        same = _shape_of(result.data) == _shape_of(self._result.data)
        return (other, result) if same and _are_alike(self._example, other) else None

    def __deepcopy__(self, memo: Any) -> OtherSizes:
        return self

    def __reduce__(self) -> Any:
        return type(None), ()


def _copies(tensors: list[Any]) -> list[Any]:
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]


def _shape_of(data: Any) -> Any:
    """Return what a structure says, without the values of its constants."""
    kind, held = data
    if kind == "constant":
        return kind, type(held)
    if kind == "tensor":
        return kind, held
    if kind == "dict":
        return kind, [(key, _shape_of(inner)) for key, inner in held]
    return kind, [_shape_of(inner) for inner in held]


def _are_alike(one: Graph, other: Graph) -> bool:
    """Return whether two graphs call the same ops on the same values, in the same order."""
    if len(one.nodes) != len(other.nodes) or len(one.inputs) != len(other.inputs):
        return False
    pairs = zip(one.inputs, other.inputs, strict=True)
    if any((a.kind, a.name) != (b.kind, b.name) for a, b in pairs):
        return False
    numbered = _numbers(one), _numbers(other)
    return all(
        _is_same_call(a, b, numbered) for a, b in zip(one.nodes, other.nodes, strict=True)
    ) and _wiring(one.outputs, numbered[0]) == _wiring(other.outputs, numbered[1])


def _is_same_call(a: Node, b: Node, numbered: tuple[dict[Value, int], dict[Value, int]]) -> bool:
    return (
        a.op is b.op
        and a.form == b.form
        and len(a.results) == len(b.results)
        and _wiring((a.args, a.outs), numbered[0]) == _wiring((b.args, b.outs), numbered[1])
    )


def _wiring(item: Any, numbers: dict[Value, int]) -> list[int]:
    return [numbers[value] for value in values_in(item)]


def _numbers(graph: Graph) -> dict[Value, int]:
    values = [entry.value for entry in graph.inputs]
    values += [value for node in graph.nodes for value in node.results]
    return {value: k for k, value in enumerate(values)}
