"""A pass: what changes a module made of a graph."""

from __future__ import annotations

import abc
from typing import NamedTuple

from tangrad_fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """What a pass returns.

    Attributes:
        graph_module: the module.
        modified: whether it was changed.
    """

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """Base class of passes; `call` does the work."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass with its checks before and after."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Check what the pass relies on."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Check what the pass promises."""
