"""Quantized modules; `.dynamic` has those that quantize their input in each call."""

from tangrad_quantization import submodules
from tangrad_quantization.nn.quantized.modules import *  # noqa: F403
from tangrad_quantization.nn.quantized.modules import __all__ as __all__

API = 1
__getattr__ = submodules.of(__name__)
