"""Layers whose weights are mostly zeros."""

from tangrad_quantization import submodules

__getattr__ = submodules.of(__name__)
