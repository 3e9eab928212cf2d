"""Modules of quantized models, and of models on their way there."""

from tangrad_quantization import submodules

API = 1
__getattr__ = submodules.of(__name__)
