"""Products of matrices: mm, bmm and linear, of operands with any strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin.render import KINDS, compute_type
from tangrad_source_kernels import text, tiles
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

_MACROS = """
#define LEFT(batch, m, k) x_load(a[(batch) * g.a_batch + (m) * g.a_row + (k) * g.a_k])
#define RIGHT(batch, k, n) x_load(b[(batch) * g.b_batch + (k) * g.b_k + (n) * g.b_column])
"""
_WRITE = """#define WRITE(batch, i, j, value) \\
    y[(batch) * g.y_batch + (i) * g.y_row + (j) * g.y_column] = x_store(value);
"""
_WRITE_BIASED = """#define WRITE(batch, i, j, value) \\
    y[(batch) * g.y_batch + (i) * g.y_row + (j) * g.y_column] = \\
        x_store(x_add(value, x_load(bias[(j) * g.bias_step])));
"""
_WRITE_ROWS = (
    _WRITE
    + """#define WRITE_ROW(batch, i, value) bias[(i) * g.bias_step] = x_store(value);
"""
)

_FIELDS = (
    *tiles.FIELDS,
    *("a_batch", "a_row", "a_k", "b_batch", "b_k", "b_column"),
    *("y_batch", "y_row", "y_column", "bias_step"),
)


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of mm, bmm or linear."""
    if KINDS[dtype] == "b":
        return None
    if op.name == "linear":
        return _linear(driver, dtype)
    if op.name == "linear_weight_bias":
        return lambda outs, args: product(
            driver, outs[0], args[0].t(), args[1], outs[1], row_sums=True
        )

    def kernel(outs: Any, args: Any) -> None:
        product(driver, outs[0], args[0], args[1])

    return kernel


def _linear(driver: Compiler, dtype: str) -> Callable[..., None]:
    def kernel(outs: Any, args: Any) -> None:
        x, weight, bias = args
        columns = 1 if weight.ndim == 1 else weight.shape[0]
        rows = x.reshape((-1, x.shape[-1])) if x.numel() else x.reshape((outs[0].numel(), 0))
        right = weight.reshape((columns, weight.shape[-1])).t()
        with text.Result(*outs) as out:
            if out.numel():
                product(driver, out.view((rows.shape[0], columns)), rows, right, bias)

    return kernel


def product(
    driver: Compiler, out: Any, a: Any, b: Any, bias: Any = None, row_sums: bool = False
) -> None:
    """Write `a @ b`, matrices or batches of them.

    Args:
        driver: of the device.
        out: what is written.
        a, b: the operands.
        bias: what is added to each column.
        row_sums: whether the sums of `a`'s rows are written to `bias` instead.
    """
    if out.numel() == 0:
        if row_sums:
            bias.copy_(a.sum(1))
        return
    dtype, (m, k), n = out.dtype.name, a.shape[-2:], b.shape[-1]
    batches = out.shape[0] if out.ndim == 3 else 1
    cut = tiles.cut(driver.dialect, dtype, batches, m, n, k)
    write = _WRITE_ROWS if row_sums else _WRITE if bias is None else _WRITE_BIASED
    key = ("product", dtype, cut.tile, cut.parts > 1, write)
    unit = driver.unit(key, lambda: _unit(driver, dtype, cut, write))
    (ab, ar, ak), (bb, bk, bc), (yb, yr, yc) = (_strides(t) for t in (a, b, out))
    given = [*cut.numbers(m, n, k), int(abs(ak) <= abs(ar)), int(abs(bk) < abs(bc))]
    given += [ab, ar, ak, bb, bk, bc, yb, yr, yc]
    given.append(bias.stride(-1) if bias is not None and bias.numel() > 1 else 0)
    run(driver, unit, "product", cut, [out, a, b, bias], given, (batches, m, n), row_sums)


def run(
    driver: Compiler,
    unit: Unit,
    name: str,
    cut: tiles.Cut,
    buffers: list[Any],
    given: list[int],
    sizes: tuple[int, int, int],
    row_sums: bool = False,
) -> None:
    """Launch a product, and what joins its parts; the first buffer is of the dtype of all."""
    out, parts = buffers[0], None
    if cut.parts > 1:
        batches, m, n = sizes
        wide = out.dtype.itemsize < 4 and out.is_floating_point()
        count = batches * cut.parts * m * (n + row_sums)
        dtype = tangrad.float32 if wide else out.dtype
        parts = tangrad.empty((count,), dtype=dtype, device=out.device)
    index = out.device.index
    blocks = max(1, min(cut.tiles, driver.dialect.max_blocks))
    unit.launch(name, blocks, [*buffers, parts], given, index)
    if parts is not None:
        blocks = driver.blocks_for(sizes[0] * sizes[1] * sizes[2])
        unit.launch("join", blocks, [*buffers, parts], given, index)


def _strides(tensor: Any) -> tuple[int, ...]:
    strides = tuple(tensor.stride())
    return strides if len(strides) == 3 else (0, *strides)


def _unit(driver: Compiler, dtype: str, cut: tiles.Cut, write: str) -> Unit:
    frame = text.names(driver.dialect, x=dtype) + tiles.settings(driver.dialect, cut.tile)
    buffers = (*((dtype, name) for name in ("y", "a", "b", "bias")), (compute_type(dtype), "parts"))
    made = tiles.kernels(
        "product",
        cut.parts > 1,
        row_sums=write is _WRITE_ROWS,
        buffers=buffers,
        numbers=tuple(("int64", name, 0) for name in _FIELDS),
    )
    return Unit(driver, made, frame + _MACROS + write)
