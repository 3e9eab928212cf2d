"""Derivatives of derivatives: the forward graph is run again under autograd, and differentiated.

A backward graph has no history. Where a gradient is to be differentiated in turn (`create_graph`),
forward's nodes run once more, recorded, and autograd differentiates them as it would the function.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_jit.graph.ir import Graph, Value
from tangrad_jit.run.interpreter import run_node

__all__ = ["SecondOrder"]


class SecondOrder:
    """Differentiate a forward graph so that the gradients have a history.

    Args:
        graph: forward, before any pass.
        sources: places of the inputs that are differentiated by.
        results: places of the outputs that are differentiated.
    """

    def __init__(self, graph: Graph, sources: list[int], results: list[int]) -> None:
        self.graph, self.sources, self.results = graph, sources, results
        given = {entry.value for entry in graph.inputs}
        self.refusal = ""
        for node in graph.nodes:
            if any(value.root in given for value in node.written):
                self.refusal = f"writes into what it is given ({node.line or node.name})"
            elif "random" in node.effects:
                self.refusal = f"draws random numbers ({node.line or node.name})"

    def versions(self, inputs: list[Any]) -> list[int]:
        """Return the versions of the inputs, for `gradients` to compare."""
        return [t._version if isinstance(t, tangrad.Tensor) else 0 for t in inputs]

    def gradients(self, inputs: list[Any], versions: list[int], seeds: list[Any]) -> list[Any]:
        """Return the gradients of the sources, None where there is none.

        Raises:
            RuntimeError: forward has effects that must not happen twice, or an input was written
                since.
        """
        if self.refusal:
            raise RuntimeError(
                f"a compiled function that {self.refusal} cannot be differentiated twice from "
                "outside; take the second derivative inside of it"
            )
        if any(t is None for t in inputs):
            raise RuntimeError(
                "what a compiled function was given is gone, so that it cannot be differentiated "
                "twice: a backward without create_graph has let it go"
            )
        for entry, before, now in zip(
            self.graph.inputs, versions, self.versions(inputs), strict=True
        ):
            if before != now:
                raise RuntimeError(
                    f"{entry.name}, which is needed for a second derivative of a compiled "
                    f"function, was modified in place: it is at version {now}, expected {before}"
                )
        # A source may have been computed from another: aliases end the way back here.
        given = list(inputs)
        for place in self.sources:
            given[place] = inputs[place].view_as(inputs[place])
        env: dict[Value, Any] = dict(
            zip((entry.value for entry in self.graph.inputs), given, strict=True)
        )
        for node in self.graph.nodes:
            run_node(node, env)
        outs = [env[self.graph.outputs[k]] for k in self.results]
        aliases = [given[place] for place in self.sources]
        return list(
            tangrad.autograd.grad(outs, aliases, seeds, create_graph=True, allow_unused=True)
        )
