"""RNN, GRU and LSTM as the standard defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import operator

_PLAIN = {
    "relu": tangrad.relu,
    "tanh": tangrad.tanh,
    "sigmoid": tangrad.sigmoid,
    "softsign": F.softsign,
    "softplus": F.softplus,
}
_OF_ALPHA = {
    "leakyrelu": (lambda x, a: F.leaky_relu(x, a), 0.01),
    "thresholdedrelu": (lambda x, a: tangrad.where(x > a, x, 0), 1.0),
    "elu": (lambda x, a: F.elu(x, a), 1.0),
}
_OF_BOTH: dict[str, tuple[Callable[..., Any], float, float]] = {
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * tangrad.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: tangrad.clamp(a * x + b, 0, 1), 0.2, 0.5),
}


class _Activations:
    """Hand out a model's activations in order, with their parameters.

    Args:
        names: of all directions.
        alpha, beta: parameters of those that have some, in order.
    """

    def __init__(self, names: Any, alpha: Any, beta: Any) -> None:
        self.names, self.alpha, self.beta = list(names), list(alpha or ()), list(beta or ())

    def take(self) -> Callable[[Any], Any]:
        """Return the next activation."""
        name = self.names.pop(0).lower()
        if name in _PLAIN:
            return _PLAIN[name]
        if name in _OF_ALPHA:
            function, default = _OF_ALPHA[name]
            a = self.alpha.pop(0) if self.alpha else default
            return lambda x: function(x, a)
        if name in _OF_BOTH:
            formula, first, second = _OF_BOTH[name]
            a = self.alpha.pop(0) if self.alpha else first
            b = self.beta.pop(0) if self.beta else second
            return lambda x: formula(x, a, b)
        raise ValueError(f"unknown activation {name!r}")


Cell = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]


def _run(
    x: Any, states: tuple[Any, ...], cell: Cell, lengths: Any, backward: bool
) -> tuple[Any, tuple[Any, ...]]:
    """Run a cell along axis 0; behind a sample's length its output is 0 and its state stays."""
    checked_count([x.shape[0], *states[0].shape], x.element_size())
    steps: list[Any] = [None] * x.shape[0]
    order = reversed(range(x.shape[0])) if backward else range(x.shape[0])
    for t in order:
        new = cell(x[t], states)
        if lengths is not None:
            inside = (t < lengths).unsqueeze(1)
            new = tuple(tangrad.where(inside, n, s) for n, s in zip(new, states, strict=True))
            steps[t] = tangrad.where(inside, new[0], tangrad.zeros_like(new[0]))
        else:
            steps[t] = new[0]
        states = new
    return tangrad.stack(steps), states


def _clipped(x: Any, clip: float | None) -> Any:
    return x if clip is None else tangrad.clamp(x, -clip, clip)


def _directions(
    x: Any,
    lengths: Any,
    initial: list[Any],
    hidden: int,
    direction: str,
    layout: int,
    cells: list[Cell],
) -> tuple[Any, ...]:
    """Run a cell for each direction; return all outputs, and the last states."""
    if layout:
        x = x.transpose(0, 1)
        initial = [None if s is None else s.transpose(0, 1) for s in initial]
    zero = tangrad.zeros(len(cells), x.shape[1], hidden, dtype=x.dtype, device=x.device)
    starts = [zero if s is None else s for s in initial]
    outputs, lasts = [], []
    for i, cell in enumerate(cells):
        backward = direction == "reverse" or i == 1
        states = tuple(s[i] for s in starts)
        y, last = _run(x, states, cell, lengths, backward)
        outputs.append(y)
        lasts.append(last)
    y = tangrad.stack(outputs, 1)
    states = tuple(tangrad.stack(parts) for parts in zip(*lasts, strict=True))
    if layout:
        y = y.permute(2, 0, 1, 3)
        states = tuple(s.transpose(0, 1) for s in states)
    return (y, *states)


def _bias(b: Any, i: int, hidden: int, gates: int) -> tuple[Any, Any]:
    if b is None:
        return 0, 0
    return b[i, : gates * hidden], b[i, gates * hidden :]


@operator()
def RNN(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    initial_h: Any = None,
    *,
    activations: Any = ("Tanh", "Tanh"),
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> Any:
    hidden = r.shape[-1]
    functions = _Activations(activations, activation_alpha, activation_beta)

    def cell_of(i: int) -> Cell:
        f = functions.take()
        wb, rb = _bias(b, i, hidden, 1)

        def cell(step: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            return (f(_clipped(step @ w[i].t() + states[0] @ r[i].t() + wb + rb, clip)),)

        return cell

    cells = [cell_of(i) for i in range(w.shape[0])]
    return _directions(x, lengths, [initial_h], hidden, direction, layout, cells)


@operator()
def GRU(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    initial_h: Any = None,
    *,
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    hidden = r.shape[-1]
    names = activations or ("Sigmoid", "Tanh") * w.shape[0]
    functions = _Activations(names, activation_alpha, activation_beta)

    def cell_of(i: int) -> Cell:
        f, g = functions.take(), functions.take()
        wb, rb = _bias(b, i, hidden, 3)
        rb_zr, rb_h = (rb[: 2 * hidden], rb[2 * hidden :]) if b is not None else (0, 0)
        w_t, r_zr, r_h = w[i].t(), r[i, : 2 * hidden].t(), r[i, 2 * hidden :].t()

        def cell(step: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            h = states[0]
            of_x = step @ w_t + wb
            of_zr = f(_clipped(of_x[:, : 2 * hidden] + h @ r_zr + rb_zr, clip))
            z, reset = of_zr[:, :hidden], of_zr[:, hidden:]
            if linear_before_reset:
                inner = reset * (h @ r_h + rb_h)
            else:
                inner = (reset * h) @ r_h + rb_h
            new = g(_clipped(of_x[:, 2 * hidden :] + inner, clip))
            return ((1 - z) * new + z * h,)

        return cell

    cells = [cell_of(i) for i in range(w.shape[0])]
    return _directions(x, lengths, [initial_h], hidden, direction, layout, cells)


@operator()
def LSTM(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    initial_h: Any = None,
    initial_c: Any = None,
    peepholes: Any = None,
    *,
    activations: Any = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    hidden = r.shape[-1]
    names = activations or ("Sigmoid", "Tanh", "Tanh") * w.shape[0]
    functions = _Activations(names, activation_alpha, activation_beta)

    def cell_of(i: int) -> Cell:
        f, g, h = functions.take(), functions.take(), functions.take()
        wb, rb = _bias(b, i, hidden, 4)
        w_t, r_t = w[i].t(), r[i].t()
        peep_i, peep_o, peep_f = (0, 0, 0) if peepholes is None else peepholes[i].split(hidden)

        def cell(step: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            last, memory = states
            i_gate, o_gate, f_gate, c_gate = (step @ w_t + last @ r_t + wb + rb).split(hidden, 1)
            i_gate = f(_clipped(i_gate + peep_i * memory, clip))
            if input_forget:
                f_gate = 1 - i_gate
            else:
                f_gate = f(_clipped(f_gate + peep_f * memory, clip))
            memory = f_gate * memory + i_gate * g(_clipped(c_gate, clip))
            o_gate = f(_clipped(o_gate + peep_o * memory, clip))
            return o_gate * h(memory), memory

        return cell

    cells = [cell_of(i) for i in range(w.shape[0])]
    return _directions(x, lengths, [initial_h, initial_c], hidden, direction, layout, cells)
