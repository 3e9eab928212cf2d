"""Run a graph on tensors without data, and note what each node gives."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_fx.fake_tensors import FakeTensorMode
from tangrad_fx.graph_module import GraphModule
from tangrad_fx.interpreter import Interpreter
from tangrad_fx.node import Node
from tangrad_fx.passes.shape_prop import _extract_tensor_metadata

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Note in `node.meta` the shape, dtype and device that each node gives, computing nothing.

    Args:
        module: the module.
        mode: makes the tensors; by default a new one, which takes a module's real parameters.
        check_consistency: accepted.
    """

    def __init__(
        self,
        module: GraphModule,
        mode: FakeTensorMode | None = None,
        *,
        check_consistency: bool = False,
    ) -> None:
        super().__init__(module)
        self._mode = FakeTensorMode(allow_non_fake_inputs=True) if mode is None else mode

    def run_node(self, n: Node) -> Any:
        """Run one node and note what it gives, as `val` and `tensor_meta`."""
        result = super().run_node(n)
        n.meta["val"] = result
        if isinstance(result, tangrad.Tensor):
            n.meta["tensor_meta"] = _extract_tensor_metadata(result)
        return result

    def fetch_attr(self, target: str) -> Any:
        """Return an attribute without its data."""
        found = super().fetch_attr(target)
        return self._mode.from_tensor(found) if isinstance(found, tangrad.Tensor) else found

    def propagate(self, *args: Any) -> Any:
        """Run the graph on tensors like the arguments, without their data."""
        given = (self._mode.from_tensor(a) if isinstance(a, tangrad.Tensor) else a for a in args)
        return self.propagate_dont_convert_inputs(*given)

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Run the graph on tensors that have no data already."""
        with self._mode:
            return super().run(*args)
