"""Recurrent layers and cells as the top level has them: `torch.lstm`, `torch.gru_cell`, ..."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tangrad.compat.declared import declared
from tangrad.nn import functional as F
from tangrad.nn import recurrence


def _layers(
    mode: str,
    input: Any,
    states: list[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, list[Any]]:
    count = len(params) // (num_layers * (2 if bidirectional else 1))
    layers = SimpleNamespace(
        mode=mode,
        all_weights=[list(params[i : i + count]) for i in range(0, len(params), count)],
        bias=has_biases,
        proj_size=count % 2,  # a projection is the odd one among pairs
        num_layers=num_layers,
        dropout=dropout,
        training=train,
        bidirectional=bidirectional,
    )
    inner = input.transpose(0, 1) if batch_first else input
    output, after = recurrence.run(layers, inner, states, None)
    return output.transpose(0, 1) if batch_first else output, after


_OF_ONE_STATE = (
    "(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "
    "bool train, bool bidirectional, bool batch_first)"
)


def _of_one_state(mode: str) -> Any:
    def run(
        input: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Any, Any]:
        """Run layers over sequences; return the outputs and the state after."""
        output, (after,) = _layers(
            *(mode, input, [hx], params, has_biases, num_layers),
            *(dropout, train, bidirectional, batch_first),
        )
        return output, after

    run.__name__ = run.__qualname__ = mode.lower()
    return declared(_OF_ONE_STATE)(run)


gru, rnn_tanh, rnn_relu = (_of_one_state(mode) for mode in ("GRU", "RNN_TANH", "RNN_RELU"))


@declared(
    "(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, "
    "float dropout, bool train, bool bidirectional, bool batch_first)"
)
def lstm(
    input: Any,
    hx: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, Any, Any]:
    """Run layers over sequences; return the outputs, the hidden and the cell state after."""
    output, (hidden, cell) = _layers(
        *("LSTM", input, list(hx), params, has_biases, num_layers),
        *(dropout, train, bidirectional, batch_first),
    )
    return output, hidden, cell


def _cell(
    mode: str, input: Any, states: list[Any], w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any
) -> list[Any]:
    return recurrence.STEPS[mode](F.linear(input, w_ih, b_ih), states, w_hh, b_hh)


@declared(
    "(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)"
)
def lstm_cell(
    input: Any, hx: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Any, Any]:
    """Step an LSTM; return the hidden and the cell state."""
    hidden, cell = _cell("LSTM", input, list(hx), w_ih, w_hh, b_ih, b_hh)
    return hidden, cell


@declared(
    "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)"
)
def gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """Step a gated recurrent unit."""
    return _cell("GRU", input, [hx], w_ih, w_hh, b_ih, b_hh)[0]


@declared(
    "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)"
)
def rnn_tanh_cell(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Any:
    """Step an Elman network with tanh."""
    return _cell("RNN_TANH", input, [hx], w_ih, w_hh, b_ih, b_hh)[0]


@declared(
    "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)"
)
def rnn_relu_cell(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Any:
    """Step an Elman network with ReLU."""
    return _cell("RNN_RELU", input, [hx], w_ih, w_hh, b_ih, b_hh)[0]
