"""Back ends made of two compilers: one for results, one for derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["AotAutograd", "aot_autograd"]


class AotAutograd:
    """A back end of two compilers; graphs of `compile` are below autograd already.

    Args:
        fw_compiler: takes (graph module, example inputs) and returns what runs.
        bw_compiler: the same for derivatives; by default `fw_compiler`.
        inference_compiler, decompositions, partition_fn, keep_inference_input_mutations: accepted:
            what is kept for backward is chosen here.
    """

    def __init__(
        self,
        *,
        fw_compiler: Callable[..., Any],
        bw_compiler: Callable[..., Any] | None = None,
        inference_compiler: Callable[..., Any] | None = None,
        decompositions: Any = None,
        partition_fn: Any = None,
        keep_inference_input_mutations: bool = True,
    ) -> None:
        self.fw_compiler, self.bw_compiler = fw_compiler, bw_compiler

    def __call__(self, graph_module: Any, example_inputs: Sequence[Any]) -> Any:
        """Return what runs a graph of results."""
        return self.fw_compiler(graph_module, example_inputs)


def aot_autograd(**kwargs: Any) -> AotAutograd:
    """Return the back end of two compilers; see `AotAutograd`."""
    return AotAutograd(**kwargs)
