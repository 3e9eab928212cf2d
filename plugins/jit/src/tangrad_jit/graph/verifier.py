"""Check that a graph is one: after every pass, so that a wrong pass is found where it is wrong."""

from __future__ import annotations

from tangrad_jit.graph.ir import Graph, Node, Value, values_in
from tangrad_jit.graph.types import NumberType, TensorType

__all__ = ["GraphError", "verify"]


_KINDS = frozenset(("argument", "capture", "gradient", "constant", "tangent", "saved", "number"))


class GraphError(RuntimeError):
    """Tell what is wrong with a graph."""


def verify(graph: Graph, after: str = "") -> Graph:
    """Return the graph if it is sound.

    Args:
        graph: the graph.
        after: the pass that has just run, for the message.

    Raises:
        GraphError: a value is used before it is made or made twice; a node has too few or too
            many arguments; a view shows what was not made; an input is of no kind.
    """
    made: set[Value] = set()
    for given in graph.inputs:
        if given.kind not in _KINDS:
            raise _error(after, f"input {given.name!r} is of the unknown kind {given.kind!r}")
        made.add(given.value)
    for position, node in enumerate(graph.nodes):
        fault = _fault(node, made)
        if fault is not None:
            line = f" ({node.line})" if node.line else ""
            raise _error(after, f"node {position}, {node.name}{line}: {fault}")
        made.update(node.results)
    for value in values_in(graph.outputs):
        if value not in made:
            raise _error(after, "an output is a value that nothing makes")
    return graph


def _fault(node: Node, made: set[Value]) -> str | None:
    """Return what is wrong with a node, or None; the values before it are those that are made."""
    wanted = len(node.op.parameter_names)
    if len(node.args) != wanted:
        return f"{len(node.args)} arguments, the op has {wanted}"
    for value in node.inputs:
        if value not in made:
            return "an argument is a value that is not made before"
    for value in node.written:
        if not isinstance(value.type, TensorType):
            return "writes what is no tensor"
    for value in node.results:
        if value in made:
            return "makes a value that is there already"
        if value.producer is not node:
            return "a result says that another node makes it"
        if value.view_of is not None and value.view_of not in made:
            return "a result shows memory of a value that is not made before"
        if node.form == "draw" and not isinstance(value.type, NumberType):
            return "draws what is no number"
    return None


def _error(after: str, what: str) -> GraphError:
    return GraphError(f"after the pass {after}: {what}" if after else what)
