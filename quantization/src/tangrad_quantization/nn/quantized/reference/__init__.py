"""Float modules that know how their weights will be quantized, and round them so."""

from tangrad_quantization.nn.quantized.reference.modules import *  # noqa: F403
from tangrad_quantization.nn.quantized.reference.modules import __all__ as __all__
