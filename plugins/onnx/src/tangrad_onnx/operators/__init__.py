"""The operators of ai.onnx as functions, a family in a file."""

from __future__ import annotations

from tangrad_onnx.operators import (  # noqa: F401  (each registers its operators)
    attention,
    casting,
    containers,
    control,
    elementwise,
    images,
    indexing,
    linear,
    normalization,
    quantized,
    randomness,
    recurrent,
    reduction,
    resizing,
    shaping,
    signals,
    text,
    windows,
)
from tangrad_onnx.operators.registry import OPERATORS

__all__ = ["OPERATORS"]
