"""The greatest element of windows: each result by a lane of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.expr.dtypes import BITS, KINDS
from tangrad.plugin.compiled import text
from tangrad.plugin.compiled.dialect import Kernel
from tangrad.plugin.compiled.unit import Unit

if TYPE_CHECKING:
    from tangrad.plugin.compiled.driver import CompilingDriver

# What pads is below all others; NaN wins, the last of several; of equal ones the first.
_BODY = """        const tk_int w = i % g.output[2], v = i / g.output[2] % g.output[1];
        const tk_int above = i / g.output[2] / g.output[1];
        const tk_int u = above % g.output[0], plane = above / g.output[0];
        x_r best = LOWEST;
        tk_int place = 0, tap = 0;
        for (tk_int a = 0; a < g.kernel[0]; ++a)
            for (tk_int b = 0; b < g.kernel[1]; ++b)
                for (tk_int c = 0; c < g.kernel[2]; ++c, ++tap) {
                    tk_int p = u * g.stride[0] + a * g.dilation[0] - g.padding[0];
                    tk_int q = v * g.stride[1] + b * g.dilation[1] - g.padding[1];
                    tk_int r = w * g.stride[2] + c * g.dilation[2] - g.padding[2];
                    x_r value = LOWEST;
                    const int inside = p >= 0 && p < g.input[0] && q >= 0 && q < g.input[1] &&
                                       r >= 0 && r < g.input[2];
                    if (inside) value = x_load(x[plane * g.input[0] * g.input[1] * g.input[2] +
                                                 (p * g.input[1] + q) * g.input[2] + r]);
                    if (tap == 0 || value > best || value != value) {
                        if (tap == 0 || value > best || value != value) best = value;
                        p = p < 0 ? 0 : p >= g.input[0] ? g.input[0] - 1 : p;
                        q = q < 0 ? 0 : q >= g.input[1] ? g.input[1] - 1 : q;
                        r = r < 0 ? 0 : r >= g.input[2] ? g.input[2] - 1 : r;
                        place = (p * g.input[1] + q) * g.input[2] + r;
                    }
                }
        y[i] = x_store(best);
        if (g.placed) at[i] = place;"""


def kernel_for(driver: CompilingDriver, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of `max_pool_with_indices` or `max_pool_values`."""
    if KINDS[dtype] == "c":
        return None
    placed = op.name == "max_pool_with_indices"

    def kernel(outs: Any, args: Any) -> None:
        x, size, stride, padding, dilation, _ = args
        if outs[0].numel() == 0:
            return
        if len(size) > 3:
            from tangrad.dispatch.resolution import fallback

            fallback(op)(outs, args)
            return
        unit = driver.unit(("max_pool", dtype), lambda: _unit(driver, dtype))
        spatial = len(size)
        numbers = [outs[0].numel(), int(placed)]
        shapes = (x.shape[-spatial:], outs[0].shape[-spatial:])
        for values, fill in zip(
            (*shapes, size, stride, padding, dilation), (1, 1, 1, 1, 0, 1), strict=True
        ):
            numbers += [fill] * (3 - spatial) + list(values)
        with text.Result(*outs) as made:
            y, at = made if placed else (made, None)
            blocks = driver.blocks_for(y.numel())
            unit.launch("max_pool", blocks, [y, at, x.contiguous()], numbers, x.device.index)

    return kernel


def _unit(driver: CompilingDriver, dtype: str) -> Unit:
    dialect = driver.dialect
    lowest = "-(x_r)TG_INF"
    if KINDS[dtype] != "f":
        least = -(1 << BITS[dtype] - 1) if KINDS[dtype] == "i" else 0
        lowest = dialect.literal(least, dtype)
    frame = text.names(dialect, x=dtype) + f"#define LOWEST {lowest}\n"
    fields = [("int64", "n", 0), ("int64", "placed", 0)]
    fields += [
        ("int64", n, 3) for n in ("input", "output", "kernel", "stride", "padding", "dilation")
    ]
    buffers = ((dtype, "y"), ("int64", "at"), (dtype, "x"))
    kernel = Kernel("max_pool", buffers, tuple(fields), text.elements(_BODY))
    return Unit(driver, [kernel], frame)
