"""Recurrent layers: each step is a product of the state and one kernel for all that follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tangrad.expr.dtypes import BITS, KINDS
from tangrad.plugin.compiled import text
from tangrad.plugin.compiled.dialect import Kernel
from tangrad.plugin.compiled.products import product
from tangrad.plugin.compiled.unit import Unit

if TYPE_CHECKING:
    from tangrad.plugin.compiled.compiler import Compiler

# Of element `h` of sequence `b`: X(k), P(k) entered gate k from the sequence and from the state,
# K(k) is kept for the gradient; `hidden` and `cell` are the state, before and after.
_STEP = """        const tk_int b = i / g.hidden, h = i % g.hidden;
        x_r hidden = s[i];
{body}
        s[i] = hidden;
        y[i] = hidden;"""

# D(k) is the gradient by what entered gate k; `by` that by the hidden state after the step, at the
# end by the one before but for its product; `was` is the hidden state before, `is` after.
_BACK = """        const tk_int b = i / g.hidden, h = i % g.hidden;
        const x_r is = y[i], was = b < g.before ? z[i] : s[i];
        x_r by = d[i];
        if (dy) by = by + dy[i];
{body}
        d[i] = by;"""

# {mode: (gates, how many values are kept, the step, the step back)}
_MODES = {
    "RNN_TANH": (
        *(1, 0),
        "        hidden = TANH(X(0) + P(0));",
        "        D(0) = by * (1 - is * is);",
    ),
    "RNN_RELU": (
        *(1, 0),
        "        hidden = X(0) + P(0);\n"
        "        if (!(hidden > 0) && hidden == hidden) hidden = x_zero;",
        "        D(0) = is > 0 ? by : x_zero;",
    ),
    "LSTM": (
        *(4, 5),
        """        const x_r in = SIGMOID(X(0) + P(0)), forget = SIGMOID(X(1) + P(1));
        const x_r make = TANH(X(2) + P(2)), out = SIGMOID(X(3) + P(3));
        const x_r cell = forget * c[i] + in * make;
        hidden = out * TANH(cell);
        K(0) = in; K(1) = forget; K(2) = make; K(3) = out; K(4) = cell;
        c[i] = cell;""",
        """        const x_r in = K(0), forget = K(1), make = K(2), out = K(3), shown = TANH(K(4));
        const x_r held = b < g.before ? L(4) : c[i];
        const x_r by_cell = dc[i] + by * out * (1 - shown * shown);
        D(0) = by_cell * make * in * (1 - in);
        D(1) = by_cell * held * forget * (1 - forget);
        D(2) = by_cell * in * (1 - make * make);
        D(3) = by * shown * out * (1 - out);
        dc[i] = by_cell * forget;""",
    ),
    "GRU": (
        *(3, 4),
        """        const x_r reset = SIGMOID(X(0) + P(0)), update = SIGMOID(X(1) + P(1));
        const x_r own = P(2), made = TANH(X(2) + reset * own);
        K(0) = reset; K(1) = update; K(2) = made; K(3) = own;
        hidden = made + update * (hidden - made);""",
        """        const x_r reset = K(0), update = K(1), made = K(2), own = K(3);
        const x_r by_made = by * (1 - update) * (1 - made * made);
        const x_r by_reset = by_made * own * reset * (1 - reset);
        const x_r by_update = by * (was - made) * update * (1 - update);
        D(0) = by_reset; D(1) = by_update; D(2) = by_made;
        Q(0) = by_reset; Q(1) = by_update; Q(2) = by_made * reset;
        by = by * update;""",
    ),
}


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a layer's run or of its gradient; halves are computed in float32."""
    if KINDS[dtype] != "f" or BITS[dtype] < 32:
        return None
    return _Layer(driver, dtype) if op.name == "_recurrent_layer" else _LayerBack(driver, dtype)


class _Recurrent:
    template, which = _STEP, 0
    names: tuple[str, ...] = ("y", "s", "c", "x", "p", "k")

    def __init__(self, driver: Compiler, dtype: str) -> None:
        self.driver, self.dtype = driver, dtype

    def unit(self, mode: str) -> Unit:
        """Return the kernel of a step of a mode."""
        return self.driver.unit((type(self).__name__, self.dtype, mode), lambda: self._unit(mode))

    def _unit(self, mode: str) -> Unit:
        dialect, (gates, kept, *bodies) = self.driver.dialect, _MODES[mode]
        frame = text.names(dialect, x=self.dtype)
        frame += f"#define TANH(v) {dialect.library('tanh', self.dtype)}(v)\n"
        frame += "#define SIGMOID(v) (1 / (1 + x_exp(-(v))))\n"
        gated = {"X": "x", "P": "p", "D": "dx", "Q": "q"}
        for name, (buffer, count) in {
            **{name: (buffer, gates) for name, buffer in gated.items()},
            "K": ("k", kept),
            "L": ("l", kept),
        }.items():
            place = f"{buffer}[(b * {count} + j) * g.hidden + h]"
            frame += f"#define {name}(j) {place}\n"
        body = self.template.format(body=bodies[self.which])
        fields = tuple(("int64", name, 0) for name in ("n", "hidden", "before"))
        buffers = tuple((self.dtype, name) for name in self.names)
        return Unit(self.driver, [Kernel("step", buffers, fields, text.elements(body))], frame)

    def run(self, mode: str, buffers: list[Any], count: int, hidden: int, before: int) -> None:
        """Launch the kernel for `count` sequences."""
        given = [count * hidden, hidden, before]
        blocks = self.driver.blocks_for(given[0])
        self.unit(mode).launch("step", blocks, buffers, given, buffers[0].device.index)


class _Layer(_Recurrent):
    def __call__(self, outs: Any, args: Any) -> None:
        """Run over sequences: the kernel, as the core calls it."""
        entering, states, weight, bias, batch_sizes, mode, backwards = args
        hidden = weight.shape[1]
        entering, states = text.contiguous(entering, states)
        with text.Result(*outs) as (output, last, kept):
            last.copy_(states)
            if output.numel() == 0:
                return
            gates = last.new_empty((states.shape[1], weight.shape[0]))
            cell = last[1] if mode == "LSTM" else None
            steps = list(_pieces(batch_sizes, entering, output, kept))
            for count, x, y, k in reversed(steps) if backwards else steps:
                product(self.driver, gates[:count], last[0][:count], weight.t(), bias)
                self.run(mode, [y, last[0], cell, x, gates, k], count, hidden, 0)


class _LayerBack(_Recurrent):
    template, which = _BACK, 1
    names = ("dx", "d", "dc", "q", "dy", "y", "z", "s", "c", "k", "l")

    def __call__(self, outs: Any, args: Any) -> None:
        """Walk back over sequences: the kernel, as the core calls it."""
        grad_output, grad_last, states, weight, output, kept, batch_sizes, mode, backwards = args
        hidden = weight.shape[1]
        given = text.contiguous(grad_output, states, weight, output, kept)
        grad_output, states, weight, output, kept = given
        with text.Result(*outs) as (grad_entering, by):
            if grad_last is None:
                by.zero_()
            else:
                by.copy_(grad_last)
            if output.numel() == 0:
                return
            lstm, gru = mode == "LSTM", mode == "GRU"
            cells = (by[1], states[1]) if lstm else (None, None)
            made: Any = by.new_empty((states.shape[1], weight.shape[0])) if gru else None
            like = output if grad_output is None else grad_output
            steps = list(_pieces(batch_sizes, grad_entering, output, kept, like))
            walk = range(len(steps)) if backwards else reversed(range(len(steps)))
            for t in walk:
                count, dx, y, k, dy = steps[t]
                dy = None if grad_output is None else dy
                past = t + 1 if backwards else t - 1
                known = steps[past] if 0 <= past < len(steps) else (0, None, None, None, None)
                buffers = [dx, by[0], cells[0], made, dy, y, known[2], states[0], cells[1], k]
                self.run(mode, [*buffers, known[3]], count, hidden, known[0])
                if gru:
                    by[0][:count].add_(made[:count].mm(weight))
                else:
                    product(self.driver, by[0][:count], dx, weight)


def _pieces(batch_sizes: Any, *tensors: Any) -> Iterator[tuple[Any, ...]]:
    """Return for each time the number of sequences, and the parts of tensors that are theirs."""
    lengths = [tensors[0].shape[1]] * tensors[0].shape[0] if batch_sizes is None else batch_sizes
    flat = [t if batch_sizes is not None else t.flatten(0, 1) for t in tensors]
    start = 0
    for count in lengths:
        yield count, *(t[start : start + count] for t in flat)
        start += count
