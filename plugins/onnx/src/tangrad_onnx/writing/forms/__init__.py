"""The forms of ops, a family in a file."""

from __future__ import annotations

from tangrad_onnx.writing.forms import (  # noqa: F401  (each registers its forms)
    activations,
    adaptive,
    counted,
    indexing,
    layers,
    quantization,
    random,
    reductions,
    resizing,
    shapes,
)
from tangrad_onnx.writing.forms.registry import FORMS, WHOLE, form

__all__ = ["FORMS", "WHOLE", "form"]
