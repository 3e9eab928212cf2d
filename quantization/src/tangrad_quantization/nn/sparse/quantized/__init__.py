"""Quantized layers whose weights are mostly zeros; `.dynamic` has those that quantize their input."""

from tangrad_quantization.nn.sparse.quantized.linear import Linear

__all__ = ["Linear"]
