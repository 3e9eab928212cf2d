"""Modules whose inner values can be observed: what LSTM and attention become before conversion."""

from tangrad_quantization.nn.quantizable.modules import *  # noqa: F403
from tangrad_quantization.nn.quantizable.modules import __all__ as __all__
