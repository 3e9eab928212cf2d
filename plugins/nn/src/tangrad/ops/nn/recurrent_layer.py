"""Define a recurrent layer's run over a sequence, in one direction, as one op with its gradient.

Enters: the sequence already multiplied by the input weight, as one product. What the gradient
needs of each step beside the output is kept in one tensor: LSTM: the gates i, f, g, o and the
cell; GRU: the gates r, z, n and the state's part of n; else nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.plugin import current, op

# What enters a step from the sequence, from the product of the state, the states -> states, kept.
Step = Callable[[Any, Any, Any, Any], tuple[list[Any], Any]]


def _tanh_step(t: Any, x: Any, product: Any, states: Any) -> tuple[list[Any], Any]:
    return [(x + product).tanh()], x[:, :0]


def _relu_step(t: Any, x: Any, product: Any, states: Any) -> tuple[list[Any], Any]:
    return [(x + product).relu()], x[:, :0]


def _lstm_step(t: Any, x: Any, product: Any, states: Any) -> tuple[list[Any], Any]:
    i, f, g, o = (x + product).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cell = f * states[1] + i * g
    return [o * cell.tanh(), cell], t.cat([i, f, g, o, cell], 1)


def _gru_step(t: Any, x: Any, product: Any, states: Any) -> tuple[list[Any], Any]:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), product.chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return [n + z * (states[0] - n)], t.cat([r, z, n, hn], 1)


# Gradients by the states after, what was kept and its gradient, the states after and before ->
# gradients by what entered from the sequence, by the product, and (without it) by the states.
Back = Callable[[Any, list[Any], Any, Any, list[Any], list[Any]], tuple[Any, Any, list[Any]]]


def _tanh_back(
    t: Any, by: list[Any], kept: Any, by_kept: Any, after: list[Any], before: list[Any]
) -> tuple[Any, Any, list[Any]]:
    found = by[0] * (1 - after[0] * after[0])
    return found, found, [None]


def _relu_back(
    t: Any, by: list[Any], kept: Any, by_kept: Any, after: list[Any], before: list[Any]
) -> tuple[Any, Any, list[Any]]:
    found = by[0] * (after[0] > 0)
    return found, found, [None]


def _lstm_back(
    t: Any, by: list[Any], kept: Any, by_kept: Any, after: list[Any], before: list[Any]
) -> tuple[Any, Any, list[Any]]:
    i, f, g, o, cell = kept.chunk(5, 1)
    by_i, by_f, by_g, by_o, by_cell = by_kept.chunk(5, 1)
    shown = cell.tanh()
    by_o = by_o + by[0] * shown
    by_cell = by_cell + by[1] + by[0] * o * (1 - shown * shown)
    by_i, by_f, by_g = by_i + by_cell * g, by_f + by_cell * before[1], by_g + by_cell * i
    found = t.cat(
        [by_i * i * (1 - i), by_f * f * (1 - f), by_g * (1 - g * g), by_o * o * (1 - o)], 1
    )
    return found, found, [None, by_cell * f]


def _gru_back(
    t: Any, by: list[Any], kept: Any, by_kept: Any, after: list[Any], before: list[Any]
) -> tuple[Any, Any, list[Any]]:
    r, z, n, hn = kept.chunk(4, 1)
    by_r, by_z, by_n, by_hn = by_kept.chunk(4, 1)
    by_n = (by_n + by[0] * (1 - z)) * (1 - n * n)
    by_r = (by_r + by_n * hn) * r * (1 - r)
    by_z = (by_z + by[0] * (before[0] - n)) * z * (1 - z)
    return (
        t.cat([by_r, by_z, by_n], 1),
        t.cat([by_r, by_z, by_hn + by_n * r], 1),
        [by[0] * z],
    )


# mode: (number of states, of gates, of what is kept, step, its gradient)
MODES: dict[str, tuple[int, int, int, Step, Back]] = {
    "RNN_TANH": (1, 1, 0, _tanh_step, _tanh_back),
    "RNN_RELU": (1, 1, 0, _relu_step, _relu_back),
    "LSTM": (2, 4, 5, _lstm_step, _lstm_back),
    "GRU": (1, 3, 4, _gru_step, _gru_back),
}


def _times(x: Any, batch_sizes: Sequence[int] | None) -> list[Any]:
    return list(x.unbind(0) if batch_sizes is None else x.split(list(batch_sizes)))


def _joined(t: Any, times: list[Any], batch_sizes: Sequence[int] | None, backwards: bool) -> Any:
    times = times[::-1] if backwards else times
    return t.stack(times) if batch_sizes is None else t.cat(times)


def _run(
    t: Any,
    entering: Any,
    states: Any,
    weight: Any,
    bias: Any,
    batch_sizes: Sequence[int] | None,
    mode: str,
    backwards: bool,
) -> tuple[Any, Any, Any]:
    """Run step by step; sequences that have ended, or not begun, keep their state."""
    *_, width, step, _ = MODES[mode]
    outputs, memory = [], []
    times = _times(entering, batch_sizes)
    if not times:
        lead, hidden = entering.shape[:-1], weight.shape[1]
        return (
            entering.new_empty((*lead, hidden)),
            states.clone(),
            entering.new_empty((*lead, width * hidden)),
        )
    for x in reversed(times) if backwards else times:
        running = states[:, : x.shape[0]]
        product = running[0].matmul(weight.t())
        product = product if bias is None else product + bias
        after, kept = step(t, x, product, running)
        outputs.append(after[0])
        memory.append(kept)
        states = t.cat([t.stack(after), states[:, x.shape[0] :]], 1)
    return (
        _joined(t, outputs, batch_sizes, backwards),
        states,
        _joined(t, memory, batch_sizes, backwards),
    )


def _before(
    t: Any, first: Any, after: Any, batch_sizes: Sequence[int] | None, backwards: bool
) -> Any:
    """Return the state before each step from the one at the start and those after each."""
    if batch_sizes is None:
        first = first.unsqueeze(0)
        return t.cat([after[1:], first] if backwards else [first, after[:-1]])
    state, found = first, []
    times = _times(after, batch_sizes)
    for piece in reversed(times) if backwards else times:
        found.append(state[: piece.shape[0]])
        state = t.cat([piece, state[piece.shape[0] :]])
    return _joined(t, found, batch_sizes, backwards)


def _run_back(
    t: Any,
    grads: Sequence[Any],
    states: Any,
    weight: Any,
    output: Any,
    kept: Any,
    batch_sizes: Sequence[int] | None,
    mode: str,
    backwards: bool,
) -> tuple[Any, Any, Any]:
    """Return the gradients by what entered, by the products of the state, by the first states.

    Args:
        grads: by the output, the last states and what was kept; None where zero.
    """
    count, gates, _, _, back = MODES[mode]
    by_output, by, by_kept = (
        t.zeros_like(like) if g is None else g
        for g, like in zip(grads, (output, states, kept), strict=True)
    )
    after = [output, kept[..., -output.shape[-1] :]][:count]
    earlier = [
        _before(t, first, x, batch_sizes, backwards)
        for first, x in zip(states.unbind(0), after, strict=True)
    ]
    given = (by_output, kept, by_kept, *after, *earlier)
    steps = list(zip(*(_times(x, batch_sizes) for x in given), strict=True))
    by_x, by_product = [], []
    for by_t, kept_t, by_kept_t, *pairs in steps if backwards else reversed(steps):
        n = by_t.shape[0]
        by_states = [by[0, :n] + by_t, *by[1:, :n]]
        found, product, rest = back(t, by_states, kept_t, by_kept_t, pairs[:count], pairs[count:])
        by_x.append(found)
        by_product.append(product)
        by_hidden = product.matmul(weight)
        rest[0] = by_hidden if rest[0] is None else rest[0] + by_hidden
        by = t.cat([t.stack(rest), by[:, n:]], 1)
    if not steps:
        empty = output.new_empty((*output.shape[:-1], gates * output.shape[-1]))
        return empty, empty, by
    # The steps were walked from the last, so they lie the other way round.
    return (
        _joined(t, by_x, batch_sizes, not backwards),
        _joined(t, by_product, batch_sizes, not backwards),
        by,
    )


def _widened(call: Callable[..., Any], arguments: Sequence[Any], dtype: Any) -> Any:
    """Run an op on halves in float32, so that states are not rounded at each step."""
    wide = [x.float() if isinstance(x, tangrad.Tensor) else x for x in arguments]
    return tuple(result.to(dtype) for result in call(*wide))


def _layer_code(
    entering: Any,
    states: Any,
    weight: Any,
    bias: Any,
    batch_sizes: Any,
    mode: str,
    backwards: bool,
) -> Any:
    arguments = (entering, states, weight, bias, batch_sizes, mode, backwards)
    if entering.dtype.itemsize < 4:
        return _widened(recurrent_layer, arguments, entering.dtype)
    return _run(tangrad, *arguments)


def _backward_code(
    grad_output: Any,
    grad_last: Any,
    states: Any,
    weight: Any,
    output: Any,
    kept: Any,
    batch_sizes: Any,
    mode: str,
    backwards: bool,
) -> Any:
    rest = (states, weight, output, kept, batch_sizes, mode, backwards)
    if output.dtype.itemsize < 4:
        return _widened(_backward, (grad_output, grad_last, *rest), output.dtype)
    found = _run_back(tangrad, (grad_output, grad_last, None), *rest)
    return found[0], found[2]


def _layer_vjp(
    grads: Any,
    states: Any,
    weight: Any,
    bias: Any,
    batch_sizes: Any,
    mode: str,
    backwards: bool,
    result0: Any,
    result2: Any,
    needs: Any,
) -> tuple[Any, ...]:
    """Walk back by one op, or by tensor code where further derivatives may follow."""
    rest = (states, weight, result0, result2, batch_sizes, mode, backwards)
    hidden = weight.shape[1]
    if grads[2] is not None or tangrad.is_grad_enabled() or current().levels:
        by_entering, by_product, by_states = _run_back(tangrad, grads, *rest)
    else:
        by_entering, by_states = _backward(grads[0], grads[1], *rest)
        by_product = by_entering
        if mode == "GRU":
            shared, own = by_entering[..., : 2 * hidden], by_entering[..., 2 * hidden :]
            by_product = tangrad.cat([shared, own * result2[..., :hidden]], -1)
    by_weight = by_bias = None
    if needs[2] or needs[3]:
        by_product = by_product.reshape((-1, by_product.shape[-1]))
    if needs[2]:
        before = _before(tangrad, states[0], result0, batch_sizes, backwards)
        by_weight = by_product.t().matmul(before.reshape((-1, hidden)))
    if needs[3]:
        by_bias = by_product.sum(0)
    return by_entering, by_states, by_weight, by_bias


def _check(entering: Any, states: Any, weight: Any, batch_sizes: Any, mode: str) -> None:
    name = "_recurrent_layer"
    if mode not in MODES:
        raise RuntimeError(f"{name}: mode must be one of {', '.join(MODES)}, got '{mode}'")
    if not entering.dtype.is_floating_point:
        raise NotImplementedError(f'"{name}" not implemented for {entering.dtype}')
    count, gates, *_ = MODES[mode]
    hidden = weight.shape[-1]
    fits = (
        len(entering.shape) == (3 if batch_sizes is None else 2)
        and tuple(weight.shape) == (gates * hidden, hidden)
        and entering.shape[-1] == gates * hidden
        and len(states.shape) == 3
        and (states.shape[0], states.shape[2]) == (count, hidden)
    )
    if not fits or entering.dtype != states.dtype or entering.dtype != weight.dtype:
        raise RuntimeError(
            f"{name}: what enters must be of shape (T, B, {gates} H), or (N, {gates} H) with batch"
            f" sizes, the states of ({count}, B, H) and the weight of ({gates} H, H), all of one"
            f" dtype, got {list(entering.shape)}, {list(states.shape)}, {list(weight.shape)} and"
            f" {entering.dtype}, {states.dtype}, {weight.dtype}"
        )
    batch = states.shape[1]
    if batch_sizes is None:
        if entering.shape[1] != batch:
            raise RuntimeError(f"{name}: {entering.shape[1]} sequences, but {batch} states")
        return
    sizes = list(batch_sizes)
    if sum(sizes) != entering.shape[0] or [batch, *sizes, 1] != sorted([*sizes, batch, 1])[::-1]:
        raise RuntimeError(
            f"{name}: batch sizes must fall from {batch} or less, not below 1, and add up to"
            f" {entering.shape[0]}, got {sizes}"
        )


def _sample(s: Any, mode: str, *, packed: bool = False, backwards: bool = False) -> Any:
    count, gates, *_ = MODES[mode]
    size = (5, gates * 3) if packed else (3, 2, gates * 3)
    return s(
        s.tensor(*size, strided=backwards), s.tensor(count, 2, 3),
        s.tensor(gates * 3, 3, low=-1, high=1), s.tensor(gates * 3) if backwards else None,
        [2, 2, 1] if packed else None, mode, backwards,
    )  # fmt: skip


def _backward_sample(s: Any, mode: str, *, packed: bool = False, backwards: bool = False) -> Any:
    count, gates, width, *_ = MODES[mode]
    lead = (5,) if packed else (3, 2)
    return s(
        s.tensor(*lead, 3, strided=packed), s.tensor(count, 2, 3) if packed else None,
        s.tensor(count, 2, 3), s.tensor(gates * 3, 3, low=-1, high=1),
        s.tensor(*lead, 3, low=-1, high=1), s.tensor(*lead, width * 3, low=0.1, high=0.9),
        [2, 2, 1] if packed else None, mode, backwards,
    )  # fmt: skip


def _samples(make: Callable[..., Any]) -> Callable[[Any], list[Any]]:
    return lambda s: [
        make(s, mode, packed=packed, backwards=backwards)
        for mode in MODES
        for packed, backwards in ((False, False), (True, False), (False, True), (True, True))
    ]


def _wide_oracle(torch: Any, run: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    tensors = [x for x in arguments if isinstance(x, torch.Tensor)]
    if not tensors[0].is_floating_point():
        raise RuntimeError(f"not implemented for {tensors[0].dtype}")
    dtype = tensors[0].dtype
    if dtype.itemsize < 4:
        arguments = tuple(x.float() if isinstance(x, torch.Tensor) else x for x in arguments)
    return tuple(result.to(dtype) for result in run(torch, *arguments))


def _backward_oracle(torch: Any, grad_output: Any, grad_last: Any, *rest: Any) -> Any:
    def run(torch: Any, grad_output: Any, grad_last: Any, *rest: Any) -> Any:
        grads = [g if g is None else g.detach() for g in (grad_output, grad_last)]
        fixed = [x.detach() if isinstance(x, torch.Tensor) else x for x in rest]
        return _run_back(torch, (*grads, None), *fixed)[::2]

    return _wide_oracle(torch, run, grad_output, grad_last, *rest)


_backward = op(
    "_recurrent_layer_backward(Tensor? grad_output, Tensor? grad_last, Tensor states,"
    " Tensor weight, Tensor output, Tensor kept, int[]? batch_sizes, str mode, bool backwards)"
    " -> (Tensor grad_entering, Tensor grad_states)",
    dtypes="floating",
    shape=lambda states, weight, output: [(*output.shape[:-1], weight.shape[0]), states.shape],
    dtype=lambda output: output.dtype,
    decompose=_backward_code,
    vjp="none: `_recurrent_layer` takes tensor code where further derivatives may follow",
    function=False,
    method=False,
    samples=_samples(_backward_sample),
    oracle=_backward_oracle,
    doc="Compute the gradients of a recurrent layer by what entered it and by its first states.",
)

recurrent_layer = op(
    "_recurrent_layer(Tensor entering, Tensor states, Tensor weight, Tensor? bias,"
    " int[]? batch_sizes, str mode, bool backwards) -> (Tensor output, Tensor last, Tensor kept)",
    dtypes="floating",
    check=_check,
    shape=lambda entering, states, weight, mode: [
        (*entering.shape[:-1], weight.shape[1]),
        states.shape,
        (*entering.shape[:-1], MODES[mode][2] * weight.shape[1]),
    ],
    dtype=lambda entering: entering.dtype,
    decompose=_layer_code,
    vjp={("entering", "states", "weight", "bias"): _layer_vjp},
    function=False,
    method=False,
    samples=_samples(_sample),
    oracle=lambda torch, *arguments: _wide_oracle(torch, _run, *arguments),
    errors=lambda s: [
        (
            s(s.tensor(3, 2, 8), s.tensor(1, 2, 3), s.tensor(9, 3), None, None, "GRU", False),
            RuntimeError,
            "must be of shape",
        ),
        (
            s(s.tensor(5, 3), s.tensor(1, 2, 3), s.tensor(3, 3), None, [1, 4], "RNN_TANH", False),
            RuntimeError,
            "batch sizes must fall",
        ),
    ],
    doc="""Run a recurrent layer over sequences in one direction.

    Give the output at each time, the states after, and what the gradient needs of each step.
    Backwards, a sequence begins at its own last time. Without batch sizes sequences have one
    length; with them they are packed, the longest first.
    """,
)
