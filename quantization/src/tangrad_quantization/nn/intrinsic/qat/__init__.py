"""Fused modules for training with quantization in view."""

from tangrad_quantization.nn.intrinsic.qat.modules import *  # noqa: F403
from tangrad_quantization.nn.intrinsic.qat.modules import __all__ as __all__
