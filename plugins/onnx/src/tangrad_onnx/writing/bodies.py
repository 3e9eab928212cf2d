"""Graphs inside of nodes: branches, and what loops repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import helper

from tangrad_onnx.writing.graph import type_of

__all__ = ["Body"]


class Body:
    """A graph inside of the model's.

    Args:
        name: of the graph.

    Attributes:
        nodes: its nodes.
        results: the nodes of the program that it gives.
        inputs: declared values; without those of the graph around it, which it sees.
        outputs: names of its results.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.results: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[str] = []

    def graph(self, types: Sequence[int] | None = None) -> Any:
        """Return it as ONNX has it.

        Args:
            types: of the results; those of the program's nodes by default.
        """
        known = types or [type_of(node.meta["val"].dtype) for node in self.results]
        shapes: list[Any] = [[]] * (len(known) - len(self.results))
        shapes += [[None] * node.meta["val"].ndim for node in self.results]
        outputs = [
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in zip(self.outputs, known, shapes, strict=True)
        ]
        return helper.make_graph(self.nodes, self.name, self.inputs, outputs)
