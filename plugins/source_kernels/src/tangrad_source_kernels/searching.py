"""Where elements belong in sorted rows, and rows whose elements depend on the ones before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import KINDS
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.sorting import less
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

_BISECT = """        const tk_int start = i / g.each * g.length;
        const x_t value = x[i];
        tk_int low = 0, high = g.length;
        while (low < high) {
            const tk_int middle = (low + high) / 2;
            const x_t other = rows[start + middle];
            if (g.right ? !LESS(value, other) : LESS(other, value)) low = middle + 1;
            else high = middle;
        }
        y[i] = low;"""

# One lane per row: `i` counts rows of an inner dimension side by side.
_RECUR = """        const tk_int base = i / g.inner * g.length * g.inner + i % g.inner;
        x_r value = x_zero;
        for (tk_int j = 0; j < g.length; ++j) {
            const tk_int at = base + j * g.inner;
            const x_r entering = x_load(x[at]);
            value = j == 0 ? entering : x_add(x_mul(x_load(decay[at]), value), entering);
            y[at] = x_store(value);
        }"""


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of `_searchsorted` or `linear_recurrence`."""
    if op.name == "linear_recurrence":
        return None if KINDS[dtype] == "b" else _recurrence(driver, dtype)
    return None if KINDS[dtype] == "c" else _search(driver, dtype)


def _search(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make() -> Unit:
        buffers = (("int64", "y"), (dtype, "rows"), (dtype, "x"))
        fields = tuple(("int64", n, 0) for n in ("n", "each", "length", "right"))
        kernel = Kernel("search", buffers, fields, text.elements(_BISECT))
        return Unit(driver, [kernel], text.names(driver.dialect, x=dtype) + less(dtype))

    def kernel(outs: Any, args: Any) -> None:
        rows, x, right = args
        if outs[0].numel() == 0:
            return
        count, length = x.numel(), rows.shape[-1]
        each = count if rows.ndim == 1 else x.shape[-1]
        unit = driver.unit(("search", dtype), make)
        with text.Result(*outs) as out:
            buffers = [out, *text.contiguous(rows, x)]
            given = [count, each, length, int(right)]
            unit.launch("search", driver.blocks_for(count), buffers, given, out.device.index)

    return kernel


def _recurrence(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make() -> Unit:
        buffers = ((dtype, "y"), (dtype, "decay"), (dtype, "x"))
        fields = tuple(("int64", n, 0) for n in ("n", "length", "inner"))
        kernel = Kernel("recur", buffers, fields, text.elements(_RECUR))
        return Unit(driver, [kernel], text.names(driver.dialect, x=dtype))

    def kernel(outs: Any, args: Any) -> None:
        decay, x, dim = args
        if x.numel() == 0:
            return
        shape = tuple(x.shape) or (1,)
        length, inner = shape[dim], text.count_of(shape[dim + 1 :])
        rows = x.numel() // length
        unit = driver.unit(("recurrence", dtype), make)
        with text.Result(*outs) as out:
            buffers = [out, *text.contiguous(decay, x)]
            given = [rows, length, inner]
            unit.launch("recur", driver.blocks_for(rows), buffers, given, out.device.index)

    return kernel
