"""Modules for training with dynamic quantization in view."""

from tangrad_quantization.nn.qat.dynamic.modules.linear import Linear

__all__ = ["Linear"]
