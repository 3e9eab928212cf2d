"""Graphs after the passes, and their kernels, made once for all sizes.

Numbers that depend on sizes are given to fused groups with each run; other calls have them filled
in when a plan is made for a size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit.compiling.executable import Prepared
from tangrad_jit.compiling.joint import Parts
from tangrad_jit.compiling.size_terms import Disagreement, values_of
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.retyping import retype
from tangrad_jit.graph.sized import is_sized, resized
from tangrad_jit.graph.types import NumberType, TensorType
from tangrad_jit.passes.fusion import DYNAMIC_SCALAR
from tangrad_jit.passes.pipeline import optimize
from tangrad_jit.run.layout import kinds_of

__all__ = ["Template"]

_TAKEN = ("Operand", "Scalar", "float")


class Template:
    """Forward and backward, after the passes.

    Args:
        parts: the graphs, with marked numbers, at sizes that are like no others.
        settings: of the compiled function.

    Attributes:
        notes: what the passes did.
    """

    def __init__(self, parts: Parts, settings: Any) -> None:
        graphs = [parts.forward] if parts.backward is None else [parts.forward, parts.backward]
        self._parts = [_Part(graph, settings.fast) for graph in graphs]
        self.notes = [note for made in self._parts for note in made.notes]

    def at(self, parts: Parts, numbers: dict[int, Any]) -> Callable[[int], Prepared]:
        """Return what gives the graphs at other sizes, forward (0) and backward (1).

        Args:
            parts: the graphs there, before the passes. numbers: the marked ones, by key.

        Raises:
            Disagreement: at these sizes they are not the same program.
            ValueError: so for a fused group.
        """
        graphs = [parts.forward, parts.backward]

        def prepare(k: int) -> Prepared:
            graph = graphs[k]
            assert graph is not None
            return self._parts[k].at(graph, numbers)

        return prepare


class _Part:
    def __init__(self, before: Graph, fast: bool) -> None:
        graph = before.copy()
        self.given = len(graph.inputs)
        self.lifted = _lift(graph)
        numbers = dict(self.lifted)
        self.graph, self.groups, self.notes = optimize(graph, fast=fast)
        grouped = {node for group in self.groups for node in group.nodes}
        if any(
            value in numbers and node not in grouped
            for node in self.graph.nodes
            for value in node.inputs
        ):
            # Where there is no kernel that takes numbers, they are filled in for each size.
            self.lifted = []
            self.graph, self.groups, self.notes = optimize(before.copy(), fast=fast)
        self.beside = [entry.tensor for entry in self.graph.inputs[self.given :]]
        for group in self.groups:
            if any(is_sized(node.args) for node in group.nodes):
                raise Disagreement(f"{group} computes with a number that depends on sizes")

    def at(self, before: Graph, numbers: dict[int, Any]) -> Prepared:
        """Return the graph at other sizes; `before` is the one there before the passes."""
        made = self.graph.copy()
        types = [entry.value.type for entry in made.inputs]
        types[: self.given] = [entry.value.type for entry in before.inputs]
        retype(made, types, lambda node: resized(node.args, numbers))  # type: ignore[arg-type]
        for ours, theirs in zip(made.outputs, before.outputs, strict=True):
            if isinstance(ours, Value) and ours.type != theirs.type:
                raise Disagreement(f"a result is {ours.type}, and {theirs.type} before the passes")
        twins: dict[Any, Any] = dict(zip(values_of(self.graph), values_of(made), strict=True))
        twins.update(zip(self.graph.nodes, made.nodes, strict=True))
        groups = [group.at(twins.__getitem__) for group in self.groups]
        beside = list(self.beside)
        beside[: len(self.lifted)] = [float(numbers[key]) for _, key in self.lifted]
        return Prepared(made, groups, [], beside)


def _lift(graph: Graph) -> list[tuple[Value, int]]:
    """Have pointwise calls take marked numbers as inputs; return these with their keys."""
    lifted: dict[int, Value] = {}
    for node in graph.nodes:
        if not is_sized(node.args) or not _computes_with_floats(node):
            continue
        args = list(node.args)
        for k, (kind, item) in enumerate(zip(kinds_of(node.op), node.args, strict=True)):
            if kind in _TAKEN and is_sized(item):
                if item.key not in lifted:
                    lifted[item.key] = graph.add_input(DYNAMIC_SCALAR, "number", "of sizes")
                args[k] = lifted[item.key]
        node.args = tuple(args)
    return [(value, key) for key, value in lifted.items()]


def _computes_with_floats(node: Node) -> bool:
    if node.op.kind != "pointwise" or node.form != "call" or node.name == "pow":
        return False
    types = [value.type for value in node.inputs if not isinstance(value.type, NumberType)]
    return all(
        isinstance(type, TensorType) and type.dtype in ("float32", "float64") and type.shape
        for type in types
    )
