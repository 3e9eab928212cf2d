"""Quantized modules; `.dynamic` has those that quantize their input in each call."""

from tangrad.plugin import submodules_on_demand
from tangrad_quantization.nn.quantized.modules import *  # noqa: F403
from tangrad_quantization.nn.quantized.modules import __all__ as __all__

__getattr__ = submodules_on_demand(__name__)
