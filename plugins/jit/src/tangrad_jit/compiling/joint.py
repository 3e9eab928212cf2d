"""Part a recorded run into forward and backward, with what is kept between them."""

from __future__ import annotations

from typing import Any

from tangrad_jit.capture.errors import CaptureError
from tangrad_jit.compiling.recording import Recording
from tangrad_jit.graph.ir import Graph, Node, Value, map_values, values_in

__all__ = ["Parts", "part"]


class Parts:
    """Forward and backward.

    Attributes:
        forward: its outputs are the run's, then what is kept.
        backward: its inputs are what is kept, then the gradients of results; its outputs the
            gradients of the forward's inputs.
        kept: how many values are kept.
    """

    def __init__(self, forward: Graph, backward: Graph | None, kept: int) -> None:
        self.forward, self.backward, self.kept = forward, backward, kept


def part(recording: Recording) -> Parts:
    """Return the graphs of a recording.

    Raises:
        CaptureError: backward writes what forward has made.
    """
    graph, first = recording.graph, recording.forward_nodes
    tangents = set(recording.tangents)
    places = [place for _, place in recording.derivatives if place is not None]
    if not tangents:
        return Parts(graph, None, 0)
    later = graph.nodes[first:]
    made = {value for node in later for value in node.results} | tangents
    gradients = [graph.outputs[place] for place in places]
    wanted: dict[Value, None] = {}
    for node in later:
        wanted.update(dict.fromkeys(v for v in node.inputs if v not in made))
    wanted.update(dict.fromkeys(v for v in values_in(gradients) if v not in made))
    kept = list(wanted)
    for node in later:
        if any(value.root in wanted or value in wanted for value in node.written):
            raise CaptureError("backward writes into what forward has made")
    forward = Graph(graph.name)
    forward.inputs = [i for i in graph.inputs if i.value not in tangents]
    forward.nodes = graph.nodes[:first]
    others = [item for k, item in enumerate(graph.outputs) if k not in places]
    forward.outputs = [*others, *kept]
    return Parts(forward, _backward(graph, later, kept, recording, gradients), len(kept))


def _backward(
    graph: Graph, nodes: list[Node], kept: list[Value], recording: Recording, gradients: list[Any]
) -> Graph:
    made = Graph(f"{graph.name}_backward")
    known: dict[Value, Value] = {}
    for k, value in enumerate(kept):
        known[value] = made.add_input(value.type, "saved", f"kept {k}")
    for value in recording.tangents:
        known[value] = made.add_input(value.type, "tangent", "gradient of a result")
    for node in nodes:
        args = map_values(known.__getitem__, node.args)
        outs = tuple(known[value] for value in node.outs)
        new = Node(node.op, args, node.form, outs, node.module, node.where)
        for value in node.results:
            twin = Value(value.type, new)
            if value.view_of is not None:
                # What forward has made is without a history of views here.
                twin.view_of = known[value.view_of]
                base = value.view_of
                twin.offset = known[base].offset + value.offset - base.offset
            known[value] = twin
            new.results.append(twin)
        made.nodes.append(new)
    made.outputs = map_values(known.__getitem__, gradients)
    return made
