"""Graphs that hold for batches of other sizes than the example's.

A graph has the sizes of the run in which it was recorded. The same program is recorded with one
row more and with two; where the graphs differ in integers alone that grow by the same with each
row, the first of them holds for every number of rows, with these integers computed from it. That
is done when a call first has other sizes, or when all there is to know of a graph is written down:
who needs no other sizes has the program run no further time.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.plugin import innermost_tracer, is_intercepted
from tangrad_jit.graph.growing import GrowingInt, growing_in, sized
from tangrad_jit.graph.ir import Graph, Node, Value

__all__ = ["BatchGraph", "LaterBatch", "of_any_batch"]

_KEPT = 8  # graphs, of the sizes used last


class BatchGraph:
    """A graph for any number of rows.

    Attributes:
        graph: a recorded one, with `GrowingInt`s. rows: of its recording.
        arguments: the arguments, by number, whose first size is the number of rows.
    """

    def __init__(self, graph: Graph, rows: int, arguments: tuple[int, ...]) -> None:
        self.graph, self.rows, self.arguments = graph, rows, arguments
        self._sized: dict[int, Graph] = {}

    def of(self, rows: int) -> Graph:
        """Return the graph for a number of rows; values keep the types of the recording."""
        made = self._sized.pop(rows, None)
        if made is None:
            made = self.graph.copy()
            for node in made.nodes:
                node.args = sized(node.args, rows - self.rows)
            made.outputs = sized(made.outputs, rows - self.rows)
            while len(self._sized) >= _KEPT:
                self._sized.pop(next(iter(self._sized)))
        self._sized[rows] = made
        return made


class LaterBatch:
    """Looks for the graph of any number of rows when it is first asked for.

    Args:
        find: looks for it, by running the program.
    """

    def __init__(self, find: Callable[[], BatchGraph | None]) -> None:
        self._find: Callable[[], BatchGraph | None] | None = find
        self._found: BatchGraph | None = None
        self._lock = threading.Lock()
        self._runner = 0  # the thread in which the program runs

    def get(self) -> BatchGraph | None:
        """Return the graph, None where there is none, or where the program itself asks for it."""
        if self._find is None or self._runner == threading.get_ident():
            return self._found
        with self._lock:
            if self._find is not None:
                self._look()
        return self._found

    def _look(self) -> None:
        if innermost_tracer() is None and not is_intercepted():
            self._run()
            return
        # Somebody follows what this thread does, and these runs are no part of that.
        thread = threading.Thread(target=self._run)
        thread.start()
        thread.join()

    def _run(self) -> None:
        assert self._find is not None
        self._runner = threading.get_ident()
        try:
            self._found = self._find()
        finally:
            self._find, self._runner = None, 0

    def __deepcopy__(self, memo: Any) -> LaterBatch:
        return self  # nothing is written in a graph that was found

    def __reduce__(self) -> Any:
        return _found_batch, (self.get(),)


def _found_batch(found: BatchGraph | None) -> LaterBatch:
    made = LaterBatch(lambda: found)
    made.get()
    return made


def of_any_batch(
    record: Callable[[list[Any]], tuple[Graph, Any]],
    tensors: list[Any],
    example: Graph,
    result: Any,
) -> BatchGraph | None:
    """Record a program with more rows, and return the graph for any number, if there is one.

    Args:
        record: given the arguments' tensors, runs the program and returns its graph and the
            structure of its result.
        tensors: those of the example. example: its graph. result: the structure of its result.

    Returns:
        None where the program draws random numbers, writes what it is given, makes results whose
        sizes depend on values, refuses other sizes, or depends on them in another way.
    """
    first = next((t for t in tensors if t.dim()), None)
    if first is None or not first.shape[0] or _has_effects(example):
        return None
    rows = int(first.shape[0])
    alike = tuple(k for k, t in enumerate(tensors) if t.dim() and t.shape[0] == rows)
    alone = alike[:1]
    for arguments in dict.fromkeys((alike, alone)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                (one, its), (two, others) = (
                    record([_longer(t, by) if k in arguments else t for k, t in enumerate(tensors)])
                    for by in (1, 2)
                )
        except Exception:  # the program takes no other size; what it raises then is no fault
            continue
        if its.data == others.data == result.data:
            found = _joined(one, two, example, rows)
            if found is not None:
                return BatchGraph(found, rows + 1, arguments)
    return None


def _has_effects(graph: Graph) -> bool:
    written = {v.root for n in graph.nodes for v in n.written}
    drawn = any(
        "random" in node.effects or node.op.definition.shape_depends_on_data for node in graph.nodes
    )
    return drawn or any(entry.value in written for entry in graph.inputs)


def _longer(t: Any, by: int) -> Any:
    made = tangrad.cat([t.detach(), *(t.detach()[-1:] for _ in range(by))])
    return made.requires_grad_(t.requires_grad)


def _joined(one: Graph, two: Graph, example: Graph, rows: int) -> Graph | None:
    """Put what grows from one graph to the other into the first, if all else is the same."""
    numbered = _numbers(one), _numbers(two)
    if not _same_inputs(one, two) or len(one.nodes) != len(two.nodes):
        return None
    changed = []
    for a, b in zip(one.nodes, two.nodes, strict=True):
        if not _same_call(a, b) or not _same_values(a.outs, b.outs, numbered):
            return None
        args = _grown(a.args, b.args, numbered)
        if args is None:
            return None
        changed.append(args[0])
    outputs = _grown(one.outputs, two.outputs, numbered)
    if outputs is None or any(growing_in(outputs[0])):
        return None
    for node, args in zip(one.nodes, changed, strict=True):
        node.args = args
    # A graph of one row may be another, as such sizes are dropped and copied otherwise.
    return one if rows == 1 or _fits_example(one, example) else None


def _fits_example(one: Graph, example: Graph) -> bool:
    numbered = _numbers(one), _numbers(example)
    if len(one.nodes) != len(example.nodes) or not _same_inputs(one, example):
        return False
    return all(
        _same_call(a, b) and _same_values(sized(a.args, -1), b.args, numbered)
        for a, b in zip(one.nodes, example.nodes, strict=True)
    )


def _numbers(graph: Graph) -> dict[Value, int]:
    values = [entry.value for entry in graph.inputs]
    values += [value for node in graph.nodes for value in node.results]
    return {value: k for k, value in enumerate(values)}


def _same_inputs(a: Graph, b: Graph) -> bool:
    def is_same(x: Any, y: Any) -> bool:
        if (x.kind, x.name) != (y.kind, y.name):
            return False
        return x.kind != "constant" or x.tensor is y.tensor or _equal(x.tensor, y.tensor)

    return len(a.inputs) == len(b.inputs) and all(map(is_same, a.inputs, b.inputs))


def _equal(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(tangrad.equal(a, b))


def _same_call(a: Node, b: Node) -> bool:
    return a.op is b.op and a.form == b.form and len(a.results) == len(b.results)


def _same_values(a: Any, b: Any, numbered: Any) -> bool:
    found = _grown(a, b, numbered)
    return found is not None and not any(growing_in(found[0]))


def _grown(a: Any, b: Any, numbered: Any) -> tuple[Any] | None:
    """Return arguments with the integers marked that differ, or None where anything else does."""
    if isinstance(a, Value) or isinstance(b, Value):
        same = isinstance(a, Value) and isinstance(b, Value)
        return (a,) if same and numbered[0][a] == numbered[1][b] else None
    if type(a) is not type(b):
        return None
    if isinstance(a, (tuple, list)):
        members = [_grown(x, y, numbered) for x, y in zip(a, b, strict=False)]
        if len(a) != len(b) or any(member is None for member in members):
            return None
        return (type(a)(member[0] for member in members if member is not None),)
    if type(a) is int and a != b:
        return (GrowingInt.of(a, b - a),)
    return (a,) if a == b or (a != a and b != b) else None
