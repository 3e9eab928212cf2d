"""Graphs of functions, for tests of passes."""

from __future__ import annotations

from typing import Any

from tangrad.plugin import traced_calls
from tangrad_jit.capture.recorder import Recorder


def recorded(function: Any, *tensors: Any) -> Any:
    """Return the graph of a function."""
    recorder = Recorder("f", lambda tensor: ("constant", "constant", tensor))
    for k, tensor in enumerate(tensors):
        recorder.argument(tensor, f"x{k}")
    with traced_calls(recorder):
        result = function(*tensors)
    several = result if isinstance(result, tuple) else (result,)
    recorder.graph.outputs = [recorder.value_of(t) for t in several]
    return recorder.graph


def names(graph: Any) -> list[str]:
    """Return the names of a graph's calls, in order."""
    return [node.name for node in graph.nodes]
