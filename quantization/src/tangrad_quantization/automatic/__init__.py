"""Choose what of a model to quantize by measuring it: `auto`, and what it is made of."""

from __future__ import annotations

from tangrad_quantization.automatic.choice import Automatic, QuantizationRefused, auto

__all__ = ["Automatic", "QuantizationRefused", "auto"]
