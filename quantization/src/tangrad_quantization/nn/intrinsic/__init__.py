"""Modules that are several in one, in float; `.qat` and `.quantized` have their other forms."""

from tangrad.plugin import submodules_on_demand
from tangrad_quantization.nn.intrinsic.modules import *  # noqa: F403
from tangrad_quantization.nn.intrinsic.modules import __all__
from tangrad_quantization.nn.intrinsic.modules import _FusedModule as _FusedModule

__all__ = [name for name in __all__ if name != "_FusedModule"]

__getattr__ = submodules_on_demand(__name__)
