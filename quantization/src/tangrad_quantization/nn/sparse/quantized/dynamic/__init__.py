"""Layers of numbers with quantized weights that are mostly zeros."""

from tangrad_quantization.nn.sparse.quantized.linear import DynamicLinear as Linear

__all__ = ["Linear"]
