"""Quantized layers whose weights are mostly zeros; `.dynamic` has those of numbers."""

from tangrad.plugin import submodules_on_demand
from tangrad_quantization.nn.sparse.quantized.linear import Linear

__all__ = ["Linear"]

__getattr__ = submodules_on_demand(__name__)
