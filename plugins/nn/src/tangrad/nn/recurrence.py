"""Run recurrent layers over sequences.

The products of all inputs with a layer's weights are one; what remains is one op for all steps. Of
cells, projections and mixed dtypes each step is a product of the state and one pointwise op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad.plugin import find_op

# (what enters the gates from x, the states, hidden weight, hidden bias) -> the states.
Step = Callable[[Any, list[Any], Any, Any], list[Any]]


def _elman(activation: Callable[[Any], Any]) -> Step:
    def step(x: Any, states: list[Any], weight: Any, bias: Any) -> list[Any]:
        return [activation(x + F.linear(states[0], weight, bias))]

    return step


_op = cache(find_op)


def _gates(x: Any, count: int) -> Any:
    """Return the parts (B, H) of (B, count * H).

    Recorded, they come from one node, so that their gradients go back together; otherwise
    indexing is the cheapest way to take them.
    """
    if x.requires_grad:
        return x.chunk(count, 1)
    parts = x.reshape((x.shape[0], count, x.shape[1] // count)).transpose(0, 1)
    return [parts[k] for k in range(count)]


def _lstm(x: Any, states: list[Any], weight: Any, bias: Any) -> list[Any]:
    hidden, cell = states
    gates = _gates(x + F.linear(hidden, weight, bias), 4)
    return list(_op("_lstm_cell")(*gates, cell))


def _gru(x: Any, states: list[Any], weight: Any, bias: Any) -> list[Any]:
    (hidden,) = states
    from_state = F.linear(hidden, weight, bias)
    return [_op("_gru_cell")(*_gates(x, 3), *_gates(from_state, 3), hidden)]


STEPS: dict[str, Step] = {
    "RNN_TANH": _elman(lambda x: x.tanh()),
    "RNN_RELU": _elman(lambda x: x.relu()),
    "LSTM": _lstm,
    "GRU": _gru,
}


def run(
    layers: Any,
    x: Any,
    states: list[Any],
    batch_sizes: Sequence[int] | None,
    weights: list[list[Any]] | None = None,
) -> tuple[Any, list[Any]]:
    """Return the last layer's outputs, and the states after.

    Args:
        layers: an `nn.RNNBase`.
        x: of shape (T, B, features), or (sum of the batch sizes, features).
        states: hidden state, and cell state of an LSTM, each (layers * directions, B, *).
        batch_sizes: of a packed sequence.
        weights: in place of the layers' own.
    """
    # Of equal sizes unless the hidden state is projected: then (places, states, B, H).
    joined = None if layers.proj_size else tangrad.stack(states, 1)
    after: list[Any] = []
    directions = 2 if layers.bidirectional else 1
    weights = weights or layers.all_weights
    for layer in range(layers.num_layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            parts = _parts(layers, weights[place])
            before = [state[place] for state in states] if joined is None else joined[place]
            output, ended = _run_layer(
                layers.mode, x, before, parts, batch_sizes, backwards=direction == 1
            )
            outputs.append(output)
            after.append(ended)
        x = outputs[0] if directions == 1 else tangrad.cat(outputs, -1)
        if layers.dropout and layers.training and layer < layers.num_layers - 1:
            x = F.dropout(x, layers.dropout)
    if joined is None:
        return x, [tangrad.stack(kept) for kept in zip(*after, strict=True)]
    last = after[0].unsqueeze(1) if len(after) == 1 else tangrad.stack(after, 1)
    return x, list(last.unbind(0))


def _parts(layers: Any, weights: list[Any]) -> tuple[Any, Any, Any, Any, Any]:
    """Return input weight and bias, hidden weight and bias, projection; None for what is not."""
    biases = weights[2:4] if layers.bias else [None, None]
    projection = weights[-1] if layers.proj_size else None
    return weights[0], biases[0], weights[1], biases[1], projection


def _entering(x: Any, weight: Any, bias: Any) -> Any:
    """Multiply a sequence; one that is batch first as it lies, which makes its rows one matrix."""
    if x.dim() == 3 and not x.is_contiguous():
        return F.linear(x.transpose(0, 1), weight, bias).transpose(0, 1)
    return F.linear(x, weight, bias)


def _run_layer(
    mode: str,
    x: Any,
    states: Any,
    parts: tuple[Any, Any, Any, Any, Any],
    batch_sizes: Sequence[int] | None,
    backwards: bool,
) -> tuple[Any, Any]:
    """Return a layer's outputs in one direction, and the states after as the given ones are."""
    weight, bias, hidden_weight, hidden_bias, projection = parts
    if mode != "GRU" and bias is not None:
        bias, hidden_bias = bias + hidden_bias, None
    entering = _entering(x, weight, bias)
    if projection is None and entering.dtype == states.dtype == hidden_weight.dtype:
        output, last, _ = _op("_recurrent_layer")(
            entering, states, hidden_weight, hidden_bias, batch_sizes, mode, backwards
        )
        return output, last

    def one(x_t: Any, states: list[Any]) -> list[Any]:
        states = STEPS[mode](x_t, states, hidden_weight, hidden_bias)
        if projection is not None:
            states[0] = F.linear(states[0], projection)
        return states

    output, ended = _run_steps(one, entering, list(states), batch_sizes, backwards)
    return output, ended if projection is not None else tangrad.stack(ended)


def _run_steps(
    one: Callable[[Any, list[Any]], list[Any]],
    entering: Any,
    states: list[Any],
    batch_sizes: Sequence[int] | None,
    backwards: bool,
) -> tuple[Any, list[Any]]:
    if batch_sizes is not None:
        return _run_packed(one, entering, states, batch_sizes, backwards)
    outputs = []
    times = entering.unbind(0)
    for x_t in reversed(times) if backwards else times:
        states = one(x_t, states)
        outputs.append(states[0])
    if not outputs:
        return states[0].new_empty((0, *states[0].shape)), states
    return tangrad.stack(outputs[::-1] if backwards else outputs), states


def _run_packed(
    one: Callable[[Any, list[Any]], list[Any]],
    entering: Any,
    first: list[Any],
    batch_sizes: Sequence[int],
    backwards: bool,
) -> tuple[Any, list[Any]]:
    """Run over sequences of which fewer and fewer go on (or, backwards, more and more begin)."""
    times = entering.split(list(batch_sizes))
    if backwards:
        outputs, states = [], [state[: batch_sizes[-1]] for state in first]
        for x_t in reversed(times):
            running, begun = states[0].shape[0], x_t.shape[0]
            if begun > running:
                states = [
                    tangrad.cat([state, new[running:begun]])
                    for state, new in zip(states, first, strict=True)
                ]
            states = one(x_t, states)
            outputs.append(states[0])
        return tangrad.cat(outputs[::-1]), states
    outputs, states = [], first
    ended: list[list[Any]] = [[] for _ in first]
    for x_t in times:
        running = x_t.shape[0]
        if running < states[0].shape[0]:
            for kept, state in zip(ended, states, strict=True):
                kept.append(state[running:])
            states = [state[:running] for state in states]
        states = one(x_t, states)
        outputs.append(states[0])
    last = [
        tangrad.cat([state, *reversed(kept)]) if kept else state
        for state, kept in zip(states, ended, strict=True)
    ]
    return tangrad.cat(outputs), last
