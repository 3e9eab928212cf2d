"""Quantized layers whose weights are mostly zeros; `.dynamic` has those of numbers."""

from tangrad_quantization import submodules
from tangrad_quantization.nn.sparse.quantized.linear import Linear

__all__ = ["Linear"]

__getattr__ = submodules.of(__name__)
