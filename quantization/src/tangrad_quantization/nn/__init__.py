"""Modules of quantized models, and of models on their way there."""

API = 1
