"""The methods that automatic differentiation gives to Tensor."""

from __future__ import annotations

from typing import Any

from tangrad.autograd import backward as run


def backward(self: Any, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             inputs: Any = None) -> None:
    """Compute gradients of this tensor for the leaves of its graph; see `autograd.backward`."""
    run(self, gradient, retain_graph, create_graph, inputs=inputs)


TABLE: dict[str, Any] = {"backward": backward}
