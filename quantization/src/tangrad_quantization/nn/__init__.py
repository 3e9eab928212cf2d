"""Modules of quantized models, and of models on their way there."""

from tangrad.plugin import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
