"""Derivatives of derivatives: the forward graph is run again under autograd, and differentiated.

A backward graph has no history. Where a gradient is to be differentiated in turn (`create_graph`),
forward's nodes run once more, recorded, and autograd differentiates them as it would the function.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.run.interpreter import run_node

__all__ = ["SecondOrder"]


class SecondOrder:
    """Differentiate a forward graph so that the gradients have a history.

    Args:
        graph: forward, before any pass.
        sources: places of the inputs that are differentiated by.
        results: places of the outputs that are differentiated.
        histories: per node, of its results whether they had a history in the recorded run.

    Attributes:
        refusal: why that cannot be done, or "".
    """

    def __init__(
        self,
        graph: Graph,
        sources: list[int],
        results: list[int],
        histories: list[tuple[bool, ...]],
    ) -> None:
        self.graph, self.sources, self.results = graph, sources, results
        self._with_history = self._found_histories(histories)
        given = {entry.value for entry in graph.inputs}
        self.refusal = ""
        for node in graph.nodes:
            if any(value.root in given for value in node.written):
                self.refusal = f"writes into what it is given ({node.line or node.name})"
            elif "random" in node.effects:
                self.refusal = f"draws random numbers ({node.line or node.name})"

    def _found_histories(self, histories: list[tuple[bool, ...]]) -> set[Value]:
        """Return the values that are to have a history.

        Some ops are recorded as what they are made of, of which the result alone had one; what such
        a result is made of is to have one, too.
        """
        found = {self.graph.inputs[place].value for place in self.sources}
        for node, had in zip(self.graph.nodes, histories, strict=True):
            found.update(value for value, one in zip(node.results, had, strict=True) if one)
        for node in reversed(self.graph.nodes):
            if not found.isdisjoint(node.results) and found.isdisjoint(node.inputs):
                found.update(node.inputs)
        return found

    def versions(self, inputs: list[Any]) -> list[int]:
        """Return the versions of the inputs, for `gradients` to compare."""
        return [t._version if isinstance(t, tangrad.Tensor) else 0 for t in inputs]

    def gradients(self, inputs: list[Any], versions: list[int], seeds: list[Any]) -> list[Any]:
        """Return the gradients of the sources, None where there is none.

        Args:
            inputs, versions: of forward. seeds: gradients of the results, None where there is none.

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
            for value in node.results:
                self._follow_history(node, value, env)
        asked = [
            (env[self.graph.outputs[k]], seed)
            for k, seed in zip(self.results, seeds, strict=True)
            if seed is not None
        ]
        outs, grads = [out for out, _ in asked], [seed for _, seed in asked]
        aliases = [given[place] for place in self.sources]
        return list(
            tangrad.autograd.grad(outs, aliases, grads, create_graph=True, allow_unused=True)
        )

    def _follow_history(self, node: Node, value: Value, env: dict[Value, Any]) -> None:
        """Leave a value without a history where the program computed it so (`no_grad`)."""
        made, wanted = env[value], value in self._with_history
        if not isinstance(made, tangrad.Tensor) or made.requires_grad is wanted:
            return
        if not wanted:
            env[value] = made.detach()
        elif made.is_floating_point() or made.is_complex():
            raise RuntimeError(
                f"a compiled function in which {node.name} ({node.line or 'no line'}) gives what "
                "requires grad by itself cannot be differentiated twice from outside; take the "
                "second derivative inside of it"
            )
