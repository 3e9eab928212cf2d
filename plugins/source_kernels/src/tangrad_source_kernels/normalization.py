"""Layer and batch normalization with their gradients: sums of rows and of channels in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin.render import KINDS, compute_type
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

_LAYER = """        const TG_GLOBAL x_t *from = x + row * g.length;
        x_r total = 0, squares = 0;
        for (tk_int j = lane; j < length; j += GROUP) total += x_load(from[j]);
        const x_r mean = tk_sum(total, shared) / (x_r)g.length;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r centred = x_load(from[j]) - mean;
            squares += centred * centred;
        }
        const x_r rstd = 1 / x_sqrt(tk_sum(squares, shared) / (x_r)g.length + (x_r)g.eps);
        for (tk_int j = lane; j < length; j += GROUP) {
            x_r value = (x_load(from[j]) - mean) * rstd;
            if (g.has_weight) value = value * x_load(w[j]);
            if (g.has_bias) value = value + x_load(b[j]);
            y[row * g.length + j] = x_store(value);
        }
        if (active && lane == 0) {
            means[row] = x_store(mean);
            rstds[row] = x_store(rstd);
        }
"""

_LAYER_INPUT = """        const tk_int start = row * g.length;
        const x_r mean = x_load(means[row]), rstd = x_load(rstds[row]);
        x_r total = 0, slope = 0;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r h = x_load(d[start + j]) * (g.has_weight ? x_load(w[j]) : 1);
            total += h;
            slope += h * (x_load(x[start + j]) - mean) * rstd;
        }
        total = tk_sum(total, shared) / (x_r)g.length;
        slope = tk_sum(slope, shared) / (x_r)g.length;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r h = x_load(d[start + j]) * (g.has_weight ? x_load(w[j]) : 1);
            const x_r normal = (x_load(x[start + j]) - mean) * rstd;
            y[start + j] = x_store(rstd * (h - total - normal * slope));
        }
"""

# Each lane adds up a column of some rows: neighbours read side by side.
_LAYER_COLUMNS = """        const tk_int part = i / g.length, j = i % g.length;
        const tk_int end = (part + 1) * g.step < g.rows ? (part + 1) * g.step : g.rows;
        x_r by_weight = 0, by_bias = 0;
        for (tk_int row = part * g.step; row < end; ++row) {
            const x_r grad = x_load(d[row * g.length + j]);
            const x_r centred = x_load(x[row * g.length + j]) - x_load(means[row]);
            by_weight += grad * centred * x_load(rstds[row]);
            by_bias += grad;
        }
        of_weight[i] = x_or_part_store(by_weight);
        of_bias[i] = x_or_part_store(by_bias);"""

_LAYER_JOIN = """        x_r by_weight = 0, by_bias = 0;
        for (tk_int part = 0; part < g.parts; ++part) {
            by_weight += of_weight[part * g.length + i];
            by_bias += of_bias[part * g.length + i];
        }
        w[i] = x_store(by_weight);
        b[i] = x_store(by_bias);"""

# `row` is a channel; its elements are those of all images.
_CHANNEL = "#define AT(j) (((j) / g.inner * g.channels + row) * g.inner + (j) % g.inner)\n"

_BATCH_SUMS = (
    _CHANNEL
    + """        x_r total = 0, squares = 0;
        for (tk_int j = lane; j < length; j += GROUP) total += x_load(x[AT(j)]);
        const x_r mean = tk_sum(total, shared) / (x_r)g.length;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r centred = x_load(x[AT(j)]) - mean;
            squares += centred * centred;
        }
        squares = tk_sum(squares, shared);
        if (g.counts && active && row == 0 && lane == 0) counter[0] += 1;
        if (active && lane == 0) {
            means[row] = mean;
            variances[row] = squares / (x_r)g.length;
            if (g.moves) {
                const x_r seen = squares / (x_r)(g.length > 1 ? g.length - 1 : 1);
                const x_r kept = (x_r)(1 - g.momentum), taken = (x_r)g.momentum;
                moving_means[row] = x_add(x_mul(moving_means[row], kept), mean * taken);
                moving_variances[row] = x_add(x_mul(moving_variances[row], kept), seen * taken);
            }
        }
"""
)

# The first element of a channel keeps the moments that it was normalized by.
_BATCH = """        const tk_int c = i / g.inner % g.channels;
        const x_r mean = (x_r)m_load(given_means[c]), variance = (x_r)m_load(given_variances[c]);
        if (g.keeps && i % g.inner == 0 && i / g.inner < g.channels) {
            means[c] = mean;
            variances[c] = variance;
        }
        x_r value = (x_load(x[i]) - mean) * (1 / x_sqrt(variance + (x_r)g.eps));
        if (g.has_weight) value = value * (x_r)w_load(w[c]);
        if (g.has_bias) value = value + (x_r)w_load(b[c]);
        y[i] = x_store(value);"""

_BATCH_GRADIENT_SUMS = (
    _CHANNEL
    + """        const x_r mean = (x_r)s_load(means[row]);
        const x_r rstd = 1 / x_sqrt((x_r)s_load(variances[row]) + (x_r)g.eps);
        x_r total = 0, slope = 0;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r grad = x_load(d[AT(j)]);
            total += grad;
            slope += grad * (x_load(x[AT(j)]) - mean) * rstd;
        }
        total = tk_sum(total, shared);
        slope = tk_sum(slope, shared);
        if (active && lane == 0) {
            of_bias[row] = total;
            of_weight[row] = slope;
        }
"""
)

_BATCH_GRADIENT = """        const tk_int c = i / g.inner % g.channels;
        const x_r rstd = 1 / x_sqrt((x_r)s_load(variances[c]) + (x_r)g.eps);
        const x_r normal = (x_load(x[i]) - (x_r)s_load(means[c])) * rstd;
        x_r value = x_load(d[i]);
        if (g.training)
            value = value - of_bias[c] / (x_r)g.length - normal * of_weight[c] / (x_r)g.length;
        y[i] = x_store(value * rstd * (g.has_weight ? (x_r)w_load(w[c]) : 1));"""

# Both at once, where a channel's elements are few.
_BATCH_GRADIENT_WHOLE = (
    _BATCH_GRADIENT_SUMS
    + """        const x_r scale = rstd * (g.has_weight && active ? (x_r)w_load(w[row]) : 1);
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r normal = (x_load(x[AT(j)]) - mean) * rstd;
            x_r value = x_load(d[AT(j)]);
            if (g.training)
                value = value - total / (x_r)g.length - normal * slope / (x_r)g.length;
            y[AT(j)] = x_store(value * scale);
        }
"""
)
_FEW = 1 << 14


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a normalization or its gradient."""
    if KINDS[dtype] != "f":
        return None
    kinds: dict[str, Any] = {
        "native_layer_norm": _LayerNorm,
        "native_layer_norm_backward": _LayerNormBackward,
        "_batch_norm": _BatchNorm,
        "_batch_moments_": _BatchMoments,
        "_batch_norm_backward": _BatchNormBackward,
    }
    found: Callable[..., None] = kinds[op.name](driver, dtype)
    return found


class _Normalization:
    """What all of them have in common."""

    def __init__(self, driver: Compiler, dtype: str) -> None:
        self.driver, self.dtype, self.compute = driver, dtype, compute_type(dtype)

    def frame(self, group: int, **others: str) -> str:
        dialect = self.driver.dialect
        frame = text.names(dialect, x=self.dtype, **others) + f"#define GROUP {group}\n"
        return frame + text.fold_functions(dialect, group, self.compute)

    def rows(self, group: int, body: str, count: str = "g.rows") -> str:
        places = text.shared_places(group, self.compute, self.driver.dialect)
        return places + text.rows(group, body, count=count)

    def typed(self, names: str, dtype: str) -> tuple[tuple[str, str], ...]:
        return tuple((dtype, name) for name in names.split())

    def kept(self, *shape: int, device: Any) -> Any:
        """Return a new tensor of the type that is computed in."""
        return tangrad.empty(shape, dtype=getattr(tangrad, self.compute), device=device)


def _ints(names: str) -> tuple[tuple[str, str, int], ...]:
    return tuple(("int64", name, 0) for name in names.split())


class _LayerNorm(_Normalization):
    def __call__(self, outs: Any, args: Any) -> None:
        """Normalize rows: the kernel, as the core calls it."""
        x, shape, weight, bias, eps = args
        length = text.count_of(shape)
        if length == 0:
            for out in outs[1:]:
                out.zero_()
        if x.numel() == 0:
            return
        rows = x.numel() // length
        group = self.driver.group_for(length)
        unit = self.driver.unit(("layer_norm", self.dtype, group), lambda: self._unit(group))
        x, weight, bias = text.contiguous(x, weight, bias)
        with text.Result(*outs) as (y, means, rstds):
            given = [rows, length, int(weight is not None), int(bias is not None), float(eps)]
            buffers = [y, means, rstds, x, weight, bias]
            blocks = self.driver.blocks_for(rows * group)
            unit.launch("layer_norm", blocks, buffers, given, x.device.index)

    def _unit(self, group: int) -> Unit:
        buffers = self.typed("y means rstds x w b", self.dtype)
        fields = (*_ints("rows length has_weight has_bias"), ("float64", "eps", 0))
        kernel = Kernel("layer_norm", buffers, fields, self.rows(group, _LAYER))
        return Unit(self.driver, [kernel], self.frame(group))


class _LayerNormBackward(_Normalization):
    def __call__(self, outs: Any, args: Any) -> None:
        """Compute the three gradients: the kernel, as the core calls it."""
        d, x, shape, means, rstds, weight = args
        length = text.count_of(shape)
        if x.numel() == 0:
            for out in outs:
                out.zero_()
            return
        rows, driver, index = x.numel() // length, self.driver, x.device.index
        group = driver.group_for(length)
        unit = driver.unit(("layer_norm_backward", self.dtype, group), lambda: self._unit(group))
        d, x, means, rstds, weight = text.contiguous(d, x, means, rstds, weight)
        with text.Result(outs[0]) as y:
            given = [rows, length, int(weight is not None)]
            blocks = driver.blocks_for(rows * group)
            unit.launch("by_input", blocks, [y, d, x, means, rstds, weight], given, index)
        with text.Result(*outs[1:]) as (of_weight, of_bias):
            self._columns((of_weight, of_bias), (d, x, means, rstds), rows, length)

    def _columns(self, outs: Any, read: Any, rows: int, length: int) -> None:
        """Add up the rows' gradients, in parts where there are many."""
        driver, index = self.driver, outs[0].device.index
        step = -(-rows // self._parts(rows, length))
        parts = -(-rows // step)
        key = ("layer_norm_columns", self.dtype, parts > 1)
        unit = driver.unit(key, lambda: self._columns_unit(parts > 1))
        kept = tuple(self.kept(2, parts, length, device=outs[0].device)) if parts > 1 else outs
        given = [parts * length, rows, length, step]
        blocks = driver.blocks_for(parts * length)
        unit.launch("by_columns", blocks, [*kept, *read], given, index)
        if parts > 1:
            given = [length, parts, length]
            unit.launch("join", driver.blocks_for(length), [*outs, *kept], given, index)

    def _parts(self, rows: int, length: int) -> int:
        dialect = self.driver.dialect
        return max(1, min(dialect.max_blocks * dialect.lanes // length, rows // 32, 256))

    def _unit(self, group: int) -> Unit:
        named = self.typed("y d x means rstds w", self.dtype)
        fields = _ints("rows length has_weight")
        by_input = Kernel("by_input", named, fields, self.rows(group, _LAYER_INPUT))
        return Unit(self.driver, [by_input], self.frame(group))

    def _columns_unit(self, in_parts: bool) -> Unit:
        sums = self.typed("of_weight of_bias", self.compute if in_parts else self.dtype)
        read = self.typed("d x means rstds", self.dtype)
        fields = _ints("n rows length step")
        made = [Kernel("by_columns", (*sums, *read), fields, text.elements(_LAYER_COLUMNS))]
        if in_parts:
            buffers = (*self.typed("w b", self.dtype), *sums)
            body = text.elements(_LAYER_JOIN)
            made.append(Kernel("join", buffers, _ints("n parts length"), body))
        stored = "v" if in_parts else "x_store(v)"
        frame = text.names(self.driver.dialect, x=self.dtype)
        return Unit(self.driver, made, frame + f"#define x_or_part_store(v) {stored}\n")


class _BatchMoments(_Normalization):
    def __call__(self, outs: Any, args: Any) -> None:
        """Write moments, and move running ones: the kernel, as the core calls it."""
        x, written, momentum = args
        self.run(written, x, momentum)

    def run(self, written: Any, x: Any, momentum: float) -> None:
        """Launch the sums of all channels."""
        driver, channels = self.driver, x.shape[1]
        length = x.numel() // channels
        group = driver.group_for(length)
        unit = driver.unit(("batch_moments", self.dtype, group), lambda: self._unit(group))
        places = [*written, *[None] * (5 - len(written))]
        given = [channels, length, text.count_of(x.shape[2:])]
        given += [int(len(written) > 2), int(len(written) > 4)]
        buffers = [*places, x.contiguous()]
        blocks = driver.blocks_for(channels * group)
        unit.launch("sums", blocks, buffers, [*given, float(momentum)], x.device.index)

    def _unit(self, group: int) -> Unit:
        kept = self.typed("means variances moving_means moving_variances", self.compute)
        fields = (*_ints("channels length inner moves counts"), ("float64", "momentum", 0))
        body = self.rows(group, _BATCH_SUMS, "g.channels")
        kernel = Kernel("sums", (*kept, ("int64", "counter"), (self.dtype, "x")), fields, body)
        return Unit(self.driver, [kernel], self.frame(group))


class _BatchNorm(_Normalization):
    def __call__(self, outs: Any, args: Any) -> None:
        """Normalize channels: the kernel, as the core calls it."""
        x, weight, bias, mean, var, training, eps = args
        if x.numel() == 0:
            for out, given in zip(outs[1:], (mean, var), strict=True):
                out.zero_() if training else out.copy_(given)
            return
        x, weight, bias, mean, var = text.contiguous(x, weight, bias, mean, var)
        keeps = mean is not None
        if not keeps:
            mean, var = outs[1:]
            _BatchMoments(self.driver, self.dtype).run((mean, var), x, 0.0)
        if var.dtype != mean.dtype:
            var = var.to(mean.dtype)
        weighted = next((t.dtype.name for t in (weight, bias) if t is not None), self.compute)
        if bias is not None and bias.dtype.name != weighted:
            bias = bias.to(weight.dtype)
        key = ("batch_norm", self.dtype, weighted, mean.dtype.name)
        unit = self.driver.unit(key, lambda: self._unit(weighted, mean.dtype.name))
        with text.Result(outs[0]) as y:
            given = [x.numel(), x.shape[1], text.count_of(x.shape[2:])]
            given += [int(weight is not None), int(bias is not None), int(keeps), float(eps)]
            buffers = [y, x, *outs[1:], mean, var, weight, bias]
            blocks = self.driver.blocks_for(x.numel())
            unit.launch("normalize", blocks, buffers, given, x.device.index)

    def _unit(self, weighted: str, moments: str) -> Unit:
        buffers = (
            *self.typed("y x", self.dtype),
            *self.typed("means variances", self.compute),
            *self.typed("given_means given_variances", moments),
            *self.typed("w b", weighted),
        )
        fields = (*_ints("n channels inner has_weight has_bias keeps"), ("float64", "eps", 0))
        kernel = Kernel("normalize", buffers, fields, text.elements(_BATCH))
        frame = text.names(self.driver.dialect, x=self.dtype, w=weighted, m=moments)
        return Unit(self.driver, [kernel], frame)


class _BatchNormBackward(_Normalization):
    def __call__(self, outs: Any, args: Any) -> None:
        """Compute the three gradients: the kernel, as the core calls it."""
        d, x, mean, var, weight, training, eps = args
        if x.numel() == 0:
            for out in outs:
                out.zero_()
            return
        driver, index = self.driver, x.device.index
        channels, inner = x.shape[1], text.count_of(x.shape[2:])
        length = x.numel() // channels
        group = driver.group_for(length)
        d, x, mean, var, weight = text.contiguous(d, x, mean, var, weight)
        if var.dtype != mean.dtype:
            var = var.to(mean.dtype)
        weighted = self.compute if weight is None else weight.dtype.name
        key = ("batch_norm_backward", self.dtype, weighted, mean.dtype.name, group)
        unit = driver.unit(key, lambda: self._unit(group, weighted, mean.dtype.name))
        given = [x.numel(), channels, inner, length]
        given += [int(bool(training)), int(weight is not None), float(eps)]
        with text.Result(*outs) as (y, of_weight, of_bias):
            buffers = [y, of_weight, of_bias, d, x, mean, var, weight]
            blocks = driver.blocks_for(channels * group)
            if length <= _FEW:
                unit.launch("whole", blocks, buffers, given, index)
                return
            unit.launch("sums", blocks, buffers, given, index)
            unit.launch("by_input", driver.blocks_for(x.numel()), buffers, given, index)

    def _unit(self, group: int, weighted: str, moments: str) -> Unit:
        sums = self.typed("of_weight of_bias", self.compute)
        read = (*self.typed("d x", self.dtype), *self.typed("means variances", moments))
        buffers = ((self.dtype, "y"), *sums, *read, (weighted, "w"))
        fields = (*_ints("n channels inner length training has_weight"), ("float64", "eps", 0))
        kernels = [
            Kernel("whole", buffers, fields, self.rows(group, _BATCH_GRADIENT_WHOLE, "g.channels")),
            Kernel("sums", buffers, fields, self.rows(group, _BATCH_GRADIENT_SUMS, "g.channels")),
            Kernel("by_input", buffers, fields, text.elements(_BATCH_GRADIENT)),
        ]
        return Unit(self.driver, kernels, self.frame(group, w=weighted, s=moments))
