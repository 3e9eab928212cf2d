"""Single cells of recurrent layers whose weights are packed, and whose inputs are quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_quantization import functional
from tangrad_quantization.nn.quantized.dynamic.modules.rnn import gru_step, lstm_step
from tangrad_quantization.operators.linear import _packed

__all__ = [
    *("quantized_lstm_cell_dynamic", "quantized_gru_cell_dynamic"),
    *("quantized_rnn_tanh_cell_dynamic", "quantized_rnn_relu_cell_dynamic"),
]


def _parts(name: str, input: Any, hidden: Any, w_ih: Any, w_hh: Any, gates: int) -> tuple[Any, Any]:
    """Return what the input's layer and that of the hidden state make, [batch, gates * size].

    Biases are in the packed weights, where PyTorch takes them from too.
    """
    of_input, of_hidden = _packed(w_ih, name), _packed(w_hh, name)
    size = of_hidden.weight.shape[1]
    for kind, packed in (("w_ih", of_input), ("w_hh", of_hidden)):
        if packed.weight.shape[0] != gates * size:
            raise RuntimeError(
                f"quantized::{name}: {kind} must have {gates * size} rows, {gates} for each of the "
                f"{size} columns of w_hh, got shape {list(packed.weight.shape)}"
            )
    if input.dim() != 2 or hidden.dim() != 2 or len(input) != len(hidden):
        raise RuntimeError(
            f"quantized::{name}: input and hidden state must be matrices with as many rows, got "
            f"shapes {list(input.shape)} and {list(hidden.shape)}"
        )
    return functional.linear_dynamic(input, of_input), functional.linear_dynamic(hidden, of_hidden)


def quantized_lstm_cell_dynamic(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, bias_ih: Any, bias_hh: Any
) -> tuple[Any, Any]:
    """Return the new hidden and cell states, [batch, size], of an LSTM's cell.

    Args:
        input: float32 [batch, depth].
        hx: the hidden and the cell state, float32 [batch, size].
        w_ih: the packed weight of the input, [4 * size, depth], with its bias.
        w_hh: that of the hidden state, [4 * size, size], with its bias.
        bias_ih: not read; `w_ih` holds the bias.
        bias_hh: not read; `w_hh` holds the bias.
    """
    name = "quantized_lstm_cell_dynamic"
    if len(hx) != 2:
        raise RuntimeError(f"quantized::{name}: hx must be two tensors, the states, got {len(hx)}")
    hidden, cell = hx
    if cell.shape != hidden.shape:
        raise RuntimeError(
            f"quantized::{name}: both states must have one shape, got {list(hidden.shape)} and "
            f"{list(cell.shape)}"
        )
    of_input, of_hidden = _parts(name, input, hidden, w_ih, w_hh, 4)
    return lstm_step(of_input + of_hidden, cell)


def quantized_gru_cell_dynamic(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any
) -> Any:
    """Return the new hidden state, [batch, size], of a gated recurrent unit.

    Arguments as of `quantized_lstm_cell_dynamic`, with 3 * size rows and one state.
    """
    of_input, of_hidden = _parts("quantized_gru_cell_dynamic", input, hx, w_ih, w_hh, 3)
    return gru_step(of_input, of_hidden, hx)


def _plain(name: str, function: Callable[[Any], Any], word: str) -> Callable[..., Any]:
    def cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        of_input, of_hidden = _parts(name, input, hx, w_ih, w_hh, 1)
        return function(of_input + of_hidden)

    cell.__name__ = cell.__qualname__ = name
    cell.__doc__ = f"Return the new hidden state, [batch, size], of a plain cell with {word}."
    return cell


quantized_rnn_tanh_cell_dynamic = _plain("quantized_rnn_tanh_cell_dynamic", tangrad.tanh, "tanh")
quantized_rnn_relu_cell_dynamic = _plain("quantized_rnn_relu_cell_dynamic", tangrad.relu, "a ReLU")
