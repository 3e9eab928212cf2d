"""Modules whose inner values can be observed."""

from tangrad_quantization.nn.quantizable.modules.activation import MultiheadAttention
from tangrad_quantization.nn.quantizable.modules.rnn import LSTM, LSTMCell

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]
