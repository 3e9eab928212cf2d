"""Numeric suite: a float model and its quantized form, compared layer by layer."""
