"""Tracing a model for quantization: which modules become one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import fx, nn
from tangrad_quantization.nn.intrinsic.modules import _FusedModule

__all__ = ["QuantizationTracer"]

_OF_LAYERS = ("tangrad.nn.", "tangrad_quantization.nn.")


class QuantizationTracer(fx.Tracer):
    """Trace a model, and look into no layer.

    Args:
        skipped_module_names: names of modules that are called as they are.
        skipped_module_classes: types of modules that are called as they are.
    """

    def __init__(
        self, skipped_module_names: Sequence[str], skipped_module_classes: Sequence[Any]
    ) -> None:
        super().__init__()
        self.skipped_module_names = list(skipped_module_names)
        self.skipped_module_classes = list(skipped_module_classes)

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Return whether a module becomes one node."""
        of_layers = type(m).__module__.startswith(_OF_LAYERS)
        return (
            (of_layers and not isinstance(m, nn.Sequential))
            or isinstance(m, _FusedModule)
            or module_qualified_name in self.skipped_module_names
            or type(m) in self.skipped_module_classes
        )
