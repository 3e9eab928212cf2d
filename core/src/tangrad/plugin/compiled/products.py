"""Products of matrices, tiled through shared memory: mm, bmm and linear.

A block makes one tile of the result after the other. Its lanes bring slices of both operands into
shared memory, in the order in which they lie; each lane keeps a few rows and columns of the result
in registers. Operands have any strides, so that transposed ones are not copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tangrad.expr.dtypes import BITS, KINDS, compute_type
from tangrad.plugin.compiled import text
from tangrad.plugin.compiled.dialect import Kernel, KernelDialect
from tangrad.plugin.compiled.unit import Unit

if TYPE_CHECKING:
    from tangrad.plugin.compiled.driver import CompilingDriver


class Tile(NamedTuple):
    """Sizes of a block's tile, of the slice in shared memory, and of what one lane keeps."""

    rows: int
    columns: int
    depth: int
    own_rows: int
    own_columns: int


_BODY = """
    TG_SHARED x_r left[DEPTH][ROWS + PAD], right[DEPTH][COLUMNS + PAD];
    const int across = TG_LANE % (COLUMNS / OWN_COLUMNS), down = TG_LANE / (COLUMNS / OWN_COLUMNS);
    for (tk_int tile = TG_BLOCK; tile < g.tiles; tile += TG_BLOCKS) {
        const tk_int of_batch = g.tiles_down * g.tiles_across, batch = tile / of_batch;
        const tk_int rest = tile - batch * of_batch, top = rest / g.tiles_across;
        const tk_int row = top * ROWS, column = (rest - top * g.tiles_across) * COLUMNS;
        x_r sums[OWN_ROWS][OWN_COLUMNS];
        for (int m = 0; m < OWN_ROWS; ++m)
            for (int n = 0; n < OWN_COLUMNS; ++n) sums[m][n] = x_zero;
        for (tk_int start = 0; start < g.k; start += DEPTH) {
            TG_BARRIER;
            for (int e = TG_LANE; e < ROWS * DEPTH; e += TG_LANES) {
                const int m = g.a_deep ? e / DEPTH : e % ROWS, d = g.a_deep ? e % DEPTH : e / ROWS;
                const tk_int at = batch * g.a_batch + (row + m) * g.a_row + (start + d) * g.a_k;
                left[d][m] = row + m < g.m && start + d < g.k ? x_load(a[at]) : x_zero;
            }
            for (int e = TG_LANE; e < COLUMNS * DEPTH; e += TG_LANES) {
                const int n = g.b_deep ? e / DEPTH : e % COLUMNS;
                const int d = g.b_deep ? e % DEPTH : e / COLUMNS;
                const tk_int at = batch * g.b_batch + (start + d) * g.b_k + (column + n) * g.b_column;
                right[d][n] = column + n < g.n && start + d < g.k ? x_load(b[at]) : x_zero;
            }
            TG_BARRIER;
            for (int d = 0; d < DEPTH; ++d) {
                x_r of_left[OWN_ROWS], of_right[OWN_COLUMNS];
                for (int m = 0; m < OWN_ROWS; ++m) of_left[m] = left[d][down * OWN_ROWS + m];
                for (int n = 0; n < OWN_COLUMNS; ++n)
                    of_right[n] = right[d][across * OWN_COLUMNS + n];
                for (int m = 0; m < OWN_ROWS; ++m)
                    for (int n = 0; n < OWN_COLUMNS; ++n)
                        sums[m][n] = x_muladd(of_left[m], of_right[n], sums[m][n]);
            }
        }
        for (int m = 0; m < OWN_ROWS; ++m)
            for (int n = 0; n < OWN_COLUMNS; ++n) {
                const tk_int i = row + down * OWN_ROWS + m, j = column + across * OWN_COLUMNS + n;
                if (i < g.m && j < g.n) {
                    x_r value = sums[m][n];
                    EPILOGUE
                    y[batch * g.y_batch + i * g.y_row + j * g.y_column] = x_store(value);
                }
            }
    }"""

_FIELDS = (
    *("tiles", "tiles_down", "tiles_across", "m", "n", "k"),
    *("a_batch", "a_row", "a_k", "a_deep", "b_batch", "b_k", "b_column", "b_deep"),
    *("y_batch", "y_row", "y_column", "bias_step"),
)


def kernel_for(driver: CompilingDriver, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of mm, bmm or linear."""
    if KINDS[dtype] == "b":
        return None
    if op.name == "linear":
        return _linear(driver, dtype)

    def kernel(outs: Any, args: Any) -> None:
        product(driver, outs[0], args[0], args[1])

    return kernel


def _linear(driver: CompilingDriver, dtype: str) -> Callable[..., None]:
    def kernel(outs: Any, args: Any) -> None:
        x, weight, bias = args
        columns = 1 if weight.ndim == 1 else weight.shape[0]
        rows = x.reshape((-1, x.shape[-1])) if x.numel() else x.reshape((outs[0].numel(), 0))
        right = weight.reshape((columns, weight.shape[-1])).t()
        with text.Result(*outs) as out:
            if out.numel():
                product(driver, out.view((rows.shape[0], columns)), rows, right, bias)

    return kernel


def product(driver: CompilingDriver, out: Any, a: Any, b: Any, bias: Any = None) -> None:
    """Write `a @ b`, matrices or batches of them, plus a bias for each column."""
    if out.numel() == 0:
        return
    dtype = out.dtype.name
    m, k = a.shape[-2:]
    n = b.shape[-1]
    batches = out.shape[0] if out.ndim == 3 else 1
    tile = tile_for(driver.dialect, dtype, m, n)
    biased = bias is not None
    unit = driver.unit(
        ("product", dtype, tile, biased), lambda: _unit(driver, dtype, tile, biased)
    )
    down, across = -(-m // tile.rows), -(-n // tile.columns)
    (ab, ar, ak), (bb, bk, bc), (yb, yr, yc) = (_strides(t) for t in (a, b, out))
    given = [batches * down * across, down, across, m, n, k]
    given += [ab, ar, ak, int(abs(ak) <= abs(ar)), bb, bk, bc, int(abs(bk) < abs(bc)), yb, yr, yc]
    given.append(bias.stride(0) if biased and bias.numel() > 1 else 0)
    blocks = max(1, min(batches * down * across, driver.dialect.max_blocks))
    unit.launch("product", blocks, [out, a, b, bias], given, out.device.index)


def _strides(tensor: Any) -> tuple[int, ...]:
    strides = tuple(tensor.stride())
    return strides if len(strides) == 3 else (0, *strides)


def tile_for(dialect: KernelDialect, dtype: str, m: int, n: int) -> Tile:
    """Return the tile of a product of m rows and n columns."""
    lanes = dialect.lanes
    across = 1
    while across * across < lanes:
        across *= 2
    down = lanes // across
    own = 4 if BITS[compute_type(dtype)] <= 32 else 2
    if own == 4 and min(m, n) >= 512 and lanes > 1:
        own = 8
    if lanes > 1 and min(m, n) <= 4 * across:
        own = min(own, 2)
    depth = 16 if lanes >= 64 else 32
    return Tile(down * own, across * own, depth, own, own)


def _unit(driver: CompilingDriver, dtype: str, tile: Tile, biased: bool) -> Unit:
    settings = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "OWN_ROWS": tile.own_rows,
        "OWN_COLUMNS": tile.own_columns,
        # Lanes that write neighbouring rows of a slice then reach different banks.
        "PAD": 0 if driver.dialect.lanes == 1 else 1,
        "EPILOGUE": "value = x_add(value, x_load(bias[j * g.bias_step]));" if biased else "",
    }
    frame = text.names(driver.dialect, x=dtype)
    frame += "".join(f"#define {name} {value}\n" for name, value in settings.items())
    buffers = tuple((dtype, name) for name in ("y", "a", "b", "bias"))
    fields = tuple(("int64", name, 0) for name in _FIELDS)
    return Unit(driver, [Kernel("product", buffers, fields, _BODY)], frame)
