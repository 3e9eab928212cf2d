"""Quantized tensors, and what ops of tangrad do with them."""
