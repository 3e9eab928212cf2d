"""Kernels of `_row_norm` and its gradients: a row per group of lanes, each sum in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tangrad
from tangrad.plugin.compiled import CompilingDriver, Kernel, Unit, text
from tangrad.plugin.render import compute_type

# OF(j) is the place of the weight of a row's element.
_ROWS = """        const TG_GLOBAL x_t *from = x + row * g.length;
        x_r total = 0, squares = 0;
        if (CENTRED) {
            for (tk_int j = lane; j < length; j += GROUP) total += x_load(from[j]);
            total = tk_sum(total, shared);
        }
        const x_r mean = total / (x_r)g.length;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r centred = x_load(from[j]) - mean;
            squares += centred * centred;
        }
        const x_r rstd = 1 / x_sqrt(tk_sum(squares, shared) / (x_r)g.length + (x_r)g.eps);
        for (tk_int j = lane; j < length; j += GROUP) {
            x_r value = (x_load(from[j]) - mean) * rstd;
            if (g.has_weight) value = value * x_load(w[OF(j)]);
            if (g.has_bias) value = value + x_load(b[OF(j)]);
            y[row * g.length + j] = x_store(value);
        }
        if (active && lane == 0) {
            means[row] = mean;
            rstds[row] = rstd;
        }
"""

_BY_INPUT = """        const tk_int start = row * g.length;
        const x_r mean = means[row], rstd = rstds[row];
        x_r total = 0, slope = 0;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r h = x_load(d[start + j]) * (g.has_weight ? x_load(w[OF(j)]) : 1);
            total += h;
            slope += h * (x_load(x[start + j]) - mean) * rstd;
        }
        total = CENTRED ? tk_sum(total, shared) / (x_r)g.length : x_zero;
        slope = tk_sum(slope, shared) / (x_r)g.length;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r h = x_load(d[start + j]) * (g.has_weight ? x_load(w[OF(j)]) : 1);
            const x_r normal = (x_load(x[start + j]) - mean) * rstd;
            y[start + j] = x_store(rstd * (h - total - normal * slope));
        }
"""

# Each lane adds up a column of some rows: neighbours read side by side.
_BY_COLUMNS = """        const tk_int part = i / g.length, j = i % g.length;
        const tk_int end = (part + 1) * g.step < g.rows ? (part + 1) * g.step : g.rows;
        x_r by_weight = 0, by_bias = 0;
        for (tk_int row = part * g.step; row < end; ++row) {
            const x_r grad = x_load(d[row * g.length + j]);
            const x_r centred = x_load(x[row * g.length + j]) - means[row];
            by_weight += grad * centred * rstds[row];
            by_bias += grad;
        }
        of_weight[i] = x_or_part_store(by_weight);
        of_bias[i] = x_or_part_store(by_bias);"""

_JOIN = """        x_r by_weight = 0, by_bias = 0;
        for (tk_int part = 0; part < g.parts; ++part) {
            by_weight += of_weight[part * g.length + i];
            by_bias += of_bias[part * g.length + i];
        }
        w[i] = x_store(by_weight);
        b[i] = x_store(by_bias);"""

# `row` is a weight; its elements are those of the same place in all samples.
_BY_WEIGHT = """        const tk_int weights = g.length / g.inner, of = row / weights;
        x_r by_weight = 0, by_bias = 0;
        for (tk_int j = lane; j < length; j += GROUP) {
            const tk_int sample = j / g.inner, from = sample * g.groups + of;
            const tk_int at = (sample * g.count + row) * g.inner + j % g.inner;
            const x_r grad = x_load(d[at]);
            by_weight += grad * (x_load(x[at]) - means[from]) * rstds[from];
            by_bias += grad;
        }
        by_weight = tk_sum(by_weight, shared);
        by_bias = tk_sum(by_bias, shared);
        if (active && lane == 0) {
            of_weight[row] = x_store(by_weight);
            of_bias[row] = x_store(by_bias);
        }
"""


class _Rows(NamedTuple):
    """How rows lie: see row_norm.py."""

    groups: int
    length: int
    inner: int
    centred: bool

    @property
    def shared(self) -> bool:
        """Whether all rows have the same weights, one for each element."""
        return self.groups == self.inner == 1

    @property
    def text(self) -> str:
        """The macros that tell it to kernels."""
        of = "(j)" if self.shared else "(row % g.groups * (g.length / g.inner) + (j) / g.inner)"
        return f"#define CENTRED {int(self.centred)}\n#define OF(j) {of}\n"


def kernel_for(driver: CompilingDriver, op: Any, dtype: Any) -> Callable[..., None]:
    """Return the kernel of `_row_norm` or of its gradients."""
    kind = _Forward if op.name == "_row_norm" else _Backward
    return kind(driver, dtype.name)


class _Normalization:
    """What both have in common: moments, and sums, are of the dtype that is computed in."""

    def __init__(self, driver: CompilingDriver, dtype: str) -> None:
        self.driver, self.dtype, self.compute = driver, dtype, compute_type(dtype)

    def unit(self, key: tuple[Any, ...], make: Callable[[], Unit]) -> Unit:
        found: Unit = self.driver.unit((*key, self.dtype), make)
        return found

    def frame(self, group: int) -> str:
        dialect = self.driver.dialect
        frame = text.names(dialect, x=self.dtype) + f"#define GROUP {group}\n"
        return frame + text.fold_functions(dialect, group, self.compute)

    def kernel(
        self, name: str, buffers: tuple[tuple[str, str], ...], fields: str, body: str
    ) -> Kernel:
        of = {"eps": "float64"}
        return Kernel(
            name, buffers, tuple((of.get(f, "int64"), f, 0) for f in fields.split()), body
        )

    def rows(self, group: int, body: str, count: str = "g.rows", length: str = "g.length") -> str:
        places = text.shared_places(group, self.compute, self.driver.dialect)
        return str(places + text.rows(group, body, count=count, length=length))

    def typed(self, stored: str, computed: str) -> tuple[tuple[str, str], ...]:
        """Return buffers: names of those in the dtype of the elements, then in the computed one."""
        return (
            *((self.dtype, name) for name in stored.split()),
            *((self.compute, name) for name in computed.split()),
        )


class _Forward(_Normalization):
    def __call__(self, outs: Any, args: Any) -> None:
        """Normalize rows: the kernel, as the core calls it."""
        *given, groups, length, inner, centred, eps = args
        lay = _Rows(groups, length, inner, centred)
        x, weight, bias = text.contiguous(*given)
        if x.numel() == 0:
            return
        rows, group = x.numel() // length, self.driver.group_for(length)
        unit = self.unit(("row_norm", group, lay.text), lambda: self._unit(group, lay))
        with text.Result(*outs) as (y, means, rstds):
            numbers = [rows, *lay[:3], int(weight is not None), int(bias is not None), float(eps)]
            buffers = [y, x, weight, bias, means, rstds]
            blocks = self.driver.blocks_for(rows * group)
            unit.launch("row_norm", blocks, buffers, numbers, x.device.index)

    def _unit(self, group: int, lay: _Rows) -> Unit:
        buffers = self.typed("y x w b", "means rstds")
        fields = "rows groups length inner has_weight has_bias eps"
        kernel = self.kernel("row_norm", buffers, fields, self.rows(group, _ROWS))
        return Unit(self.driver, [kernel], self.frame(group) + lay.text)


class _Backward(_Normalization):
    def __call__(self, outs: Any, args: Any) -> None:
        """Compute the three gradients: the kernel, as the core calls it."""
        *given, groups, length, inner, centred, sums = args
        lay = _Rows(groups, length, inner, centred)
        d, x, means, rstds, weight = text.contiguous(*given)
        if x.numel() == 0:
            for out in outs:
                out.zero_()
            return
        rows, group = x.numel() // length, self.driver.group_for(length)
        unit = self.unit(("row_norm_backward", group, lay.text), lambda: self._unit(group, lay))
        with text.Result(outs[0]) as y:
            numbers = [rows, *lay[:3], int(weight is not None)]
            blocks = self.driver.blocks_for(rows * group)
            buffers = [y, d, x, weight, means, rstds]
            unit.launch("by_input", blocks, buffers, numbers, x.device.index)
        if sums:
            add = self._columns if lay.shared else self._weights
            with text.Result(*outs[1:]) as (of_weight, of_bias):
                add((of_weight, of_bias), (d, x, means, rstds), rows, lay)

    def _weights(self, outs: Any, read: Any, rows: int, lay: _Rows) -> None:
        """Add up the gradients of each weight's elements in all samples."""
        count, size = outs[0].numel(), rows // lay.groups * lay.inner
        group = self.driver.group_for(size)
        unit = self.unit(("row_norm_weights", group), lambda: self._weights_unit(group))
        blocks = self.driver.blocks_for(count * group)
        index = outs[0].device.index
        unit.launch("by_weight", blocks, [*outs, *read], [count, *lay[:3], size], index)

    def _columns(self, outs: Any, read: Any, rows: int, lay: _Rows) -> None:
        """Add up the rows' gradients, in parts where there are many."""
        driver, device, length = self.driver, outs[0].device, lay.length
        step = -(-rows // self._parts(rows, length))
        parts = -(-rows // step)
        unit = self.unit(("row_norm_columns", parts > 1), lambda: self._columns_unit(parts > 1))
        kept = outs
        if parts > 1:
            kind = getattr(tangrad, self.compute)
            kept = tuple(tangrad.empty((2, parts, length), dtype=kind, device=device))
        given = [parts * length, rows, length, step]
        blocks = driver.blocks_for(parts * length)
        unit.launch("by_columns", blocks, [*kept, *read], given, device.index)
        if parts > 1:
            given = [length, parts, length]
            unit.launch("join", driver.blocks_for(length), [*outs, *kept], given, device.index)

    def _parts(self, rows: int, length: int) -> int:
        dialect = self.driver.dialect
        return max(1, min(dialect.max_blocks * dialect.lanes // length, rows // 32, 256))

    def _unit(self, group: int, lay: _Rows) -> Unit:
        buffers = self.typed("y d x w", "means rstds")
        fields = "rows groups length inner has_weight"
        kernel = self.kernel("by_input", buffers, fields, self.rows(group, _BY_INPUT))
        return Unit(self.driver, [kernel], self.frame(group) + lay.text)

    def _weights_unit(self, group: int) -> Unit:
        buffers = self.typed("of_weight of_bias d x", "means rstds")
        body = self.rows(group, _BY_WEIGHT, "g.count", "g.size")
        kernel = self.kernel("by_weight", buffers, "count groups length inner size", body)
        return Unit(self.driver, [kernel], self.frame(group))

    def _columns_unit(self, in_parts: bool) -> Unit:
        read = self.typed("d x", "means rstds")
        sums = self.typed(*(("", "of_weight of_bias") if in_parts else ("of_weight of_bias", "")))
        body = text.elements(_BY_COLUMNS)
        made = [self.kernel("by_columns", (*sums, *read), "n rows length step", body)]
        if in_parts:
            buffers = self.typed("w b", "of_weight of_bias")
            made.append(self.kernel("join", buffers, "n parts length", text.elements(_JOIN)))
        stored = "v" if in_parts else "x_store(v)"
        frame = text.names(self.driver.dialect, x=self.dtype)
        return Unit(self.driver, made, f"{frame}#define x_or_part_store(v) {stored}\n")
