"""Quantized layers with their activation inside."""

from tangrad_quantization.nn.intrinsic.quantized.modules import *  # noqa: F403
from tangrad_quantization.nn.intrinsic.quantized.modules import __all__ as __all__
