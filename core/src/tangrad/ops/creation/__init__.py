"""Ops that make tensors from sizes and numbers, or fill them."""
