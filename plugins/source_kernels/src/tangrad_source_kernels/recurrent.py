"""Recurrent layers: each step is a product of the state and one kernel for all that follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin.render import KINDS, compute_type
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.products import product
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# Of element `h` of sequence `b`: X(k), P(k) entered gate k from the sequence and from the state,
# KEEP(k, v) keeps v for the gradient; `hidden` and `cell` are the state, before and after.
_STEP = """        const tk_int b = i / g.hidden, h = i % g.hidden;
        x_r hidden = s[i];
{body}
        s[i] = hidden;
        y[i] = x_store(hidden);"""

# D(k, v): v is the gradient by what entered gate k, and, but for Q(k, v), by its product; `by` that
# by the hidden state after the step, at the end by the one before but for its product; `was` is the
# hidden state before, `is` after.
_BACK = """        const tk_int b = i / g.hidden, h = i % g.hidden;
        const x_r is = x_load(y[i]), was = b < g.before ? x_load(z[i]) : s[i];
        x_r by = d[i];
        if (dy) by = by + x_load(dy[i]);
{body}
        d[i] = by;"""

# {mode: (gates, how many values are kept, the step, the step back)}
_MODES = {
    "RNN_TANH": (
        *(1, 0),
        "        hidden = TANH(X(0) + P(0));",
        "        D(0, by * (1 - is * is));",
    ),
    "RNN_RELU": (
        *(1, 0),
        "        hidden = X(0) + P(0);\n"
        "        if (!(hidden > 0) && hidden == hidden) hidden = x_zero;",
        "        D(0, is > 0 ? by : x_zero);",
    ),
    "LSTM": (
        *(4, 5),
        """        const x_r in = SIGMOID(X(0) + P(0)), forget = SIGMOID(X(1) + P(1));
        const x_r make = TANH(X(2) + P(2)), out = SIGMOID(X(3) + P(3));
        const x_r cell = forget * c[i] + in * make;
        hidden = out * TANH(cell);
        KEEP(0, in); KEEP(1, forget); KEEP(2, make); KEEP(3, out); KEEP(4, cell);
        c[i] = cell;""",
        """        const x_r in = K(0), forget = K(1), make = K(2), out = K(3), shown = TANH(K(4));
        const x_r held = b < g.before ? L(4) : c[i];
        const x_r by_cell = dc[i] + by * out * (1 - shown * shown);
        D(0, by_cell * make * in * (1 - in));
        D(1, by_cell * held * forget * (1 - forget));
        D(2, by_cell * in * (1 - make * make));
        D(3, by * shown * out * (1 - out));
        dc[i] = by_cell * forget;""",
    ),
    "GRU": (
        *(3, 4),
        """        const x_r reset = SIGMOID(X(0) + P(0)), update = SIGMOID(X(1) + P(1));
        const x_r own = P(2), made = TANH(X(2) + reset * own);
        KEEP(0, reset); KEEP(1, update); KEEP(2, made); KEEP(3, own);
        hidden = made + update * (hidden - made);""",
        """        const x_r reset = K(0), update = K(1), made = K(2), own = K(3);
        const x_r by_made = by * (1 - update) * (1 - made * made);
        const x_r by_reset = by_made * own * reset * (1 - reset);
        const x_r by_update = by * (was - made) * update * (1 - update);
        D(0, by_reset); D(1, by_update); D(2, by_made);
        Q(0, by_reset); Q(1, by_update); Q(2, by_made * reset);
        by = by * update;""",
    ),
}


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a layer's run or of its gradient.

    States of halves, and gradients by them, are of float32 from step to step.
    """
    if KINDS[dtype] != "f":
        return None
    return _Layer(driver, dtype) if op.name == "_recurrent_layer" else _LayerBack(driver, dtype)


class _Recurrent:
    template, which = _STEP, 0
    # Operands, first those in the dtype that is computed in.
    wide, names = "s c p", "y x k"

    def __init__(self, driver: Compiler, dtype: str) -> None:
        self.driver, self.dtype, self.compute = driver, dtype, compute_type(dtype)

    def widened(self, *tensors: Any) -> list[Any]:
        """Return contiguous tensors in the dtype that is computed in; None stays None."""
        kind = getattr(tangrad, self.compute)
        return text.contiguous(*(None if t is None else t.to(kind) for t in tensors))

    def unit(self, mode: str) -> Unit:
        """Return the kernel of a step of a mode."""
        return self.driver.unit((type(self).__name__, self.dtype, mode), lambda: self._unit(mode))

    def _unit(self, mode: str) -> Unit:
        dialect, (gates, kept, *bodies) = self.driver.dialect, _MODES[mode]
        frame = text.names(dialect, x=self.dtype)
        frame += f"#define TANH(v) {dialect.library('tanh', self.compute)}(v)\n"
        frame += "#define SIGMOID(v) (1 / (1 + x_exp(-(v))))\n"
        for name, count, reads in (
            ("X", gates, "x_load(x@)"),
            ("P", gates, "p@"),
            ("K", kept, "x_load(k@)"),
            ("L", kept, "x_load(l@)"),
        ):
            frame += f"#define {name}(j) {reads.replace('@', _place(count))}\n"
        for name, count, writes in (
            ("KEEP", kept, "k@ = x_store(v)"),
            ("D", gates, "const x_r grad = v; dx@ = x_store(grad); q@ = grad"),
            ("Q", gates, "q@ = v"),
        ):
            frame += f"#define {name}(j, v) {{ {writes.replace('@', _place(count))}; }}\n"
        body = self.template.format(body=bodies[self.which])
        fields = tuple(("int64", name, 0) for name in ("n", "hidden", "before"))
        buffers = (
            *((self.compute, name) for name in self.wide.split()),
            *((self.dtype, name) for name in self.names.split()),
        )
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
        weight, bias = self.widened(weight, bias)
        with text.Result(*outs) as (output, last, kept):
            last.copy_(states)
            if output.numel() == 0:
                return
            (running,) = self.widened(last)
            gates = running.new_empty((states.shape[1], weight.shape[0]))
            cell = running[1] if mode == "LSTM" else None
            steps = list(_pieces(batch_sizes, entering.contiguous(), output, kept))
            for count, x, y, k in reversed(steps) if backwards else steps:
                product(self.driver, gates[:count], running[0][:count], weight.t(), bias)
                self.run(mode, [running[0], cell, gates, y, x, k], count, hidden, 0)
            if running is not last:
                last.copy_(running)


class _LayerBack(_Recurrent):
    template, which = _BACK, 1
    wide, names = "d dc q s c", "dx dy y z k l"

    def __call__(self, outs: Any, args: Any) -> None:
        """Walk back over sequences: the kernel, as the core calls it."""
        grad_output, grad_last, states, weight, output, kept, batch_sizes, mode, backwards = args
        hidden = weight.shape[1]
        grad_output, output, kept = text.contiguous(grad_output, output, kept)
        states, weight = self.widened(states, weight)
        with text.Result(*outs) as (grad_entering, grad_states):
            if grad_last is None:
                grad_states.zero_()
            else:
                grad_states.copy_(grad_last)
            if output.numel() == 0:
                return
            (by,) = self.widened(grad_states)
            lstm, gru = mode == "LSTM", mode == "GRU"
            cells = (by[1], states[1]) if lstm else (None, None)
            apart = gru or by.dtype != grad_entering.dtype
            made: Any = by.new_empty((states.shape[1], weight.shape[0])) if apart else None
            like = output if grad_output is None else grad_output
            steps = list(_pieces(batch_sizes, grad_entering, output, kept, like))
            walk = range(len(steps)) if backwards else reversed(range(len(steps)))
            for t in walk:
                count, dx, y, k, dy = steps[t]
                dy = None if grad_output is None else dy
                past = t + 1 if backwards else t - 1
                known = steps[past] if 0 <= past < len(steps) else (0, None, None, None, None)
                q = made[:count] if apart else dx
                buffers = [by[0], cells[0], q, states[0], cells[1], dx, dy, y, known[2], k]
                self.run(mode, [*buffers, known[3]], count, hidden, known[0])
                if gru:
                    by[0][:count].add_(q.mm(weight))
                else:
                    product(self.driver, by[0][:count], q, weight)
            if by is not grad_states:
                grad_states.copy_(by)


def _place(count: int) -> str:
    return f"[(b * {count} + j) * g.hidden + h]"


def _pieces(batch_sizes: Any, *tensors: Any) -> Iterator[tuple[Any, ...]]:
    """Return for each time the number of sequences, and the parts of tensors that are theirs."""
    lengths = [tensors[0].shape[1]] * tensors[0].shape[0] if batch_sizes is None else batch_sizes
    flat = [t if batch_sizes is not None else t.flatten(0, 1) for t in tensors]
    start = 0
    for count in lengths:
        yield count, *(t[start : start + count] for t in flat)
        start += count
