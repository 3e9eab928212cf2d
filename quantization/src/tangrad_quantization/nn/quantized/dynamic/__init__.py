"""Modules with quantized weights, whose inputs are quantized in each call."""

from tangrad_quantization.nn.quantized.dynamic.modules import *  # noqa: F403
from tangrad_quantization.nn.quantized.dynamic.modules import __all__ as __all__
