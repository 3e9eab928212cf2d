"""Quantized layers with their activation inside."""

from tangrad_quantization import submodules
from tangrad_quantization.nn.intrinsic.quantized.modules import *  # noqa: F403
from tangrad_quantization.nn.intrinsic.quantized.modules import __all__ as __all__

__getattr__ = submodules.of(__name__)
