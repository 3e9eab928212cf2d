"""Products of matrices, tiled through shared memory, over whatever gives their elements.

A block makes one tile of the result after the other. Its lanes bring slices of both operands into
shared memory; each lane keeps a few rows and columns of the result in registers, the columns apart,
so that neighbouring lanes store neighbouring elements. The operands are macros: `LEFT(batch, m, k)`
and `RIGHT(batch, k, n)` read elements inside of their bounds, and `WRITE(batch, m, n, value)`
stores the result, so that convolutions are products, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tangrad.plugin.render import BITS, compute_type
from tangrad_source_kernels.dialect import Kernel, KernelDialect


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
    const tk_int of_batch = g.tiles_down * g.tiles_across;
    for (tk_int tile = TG_BLOCK; tile < g.tiles; tile += TG_BLOCKS) {
        const tk_int part = tile / of_batch, batch = part / g.parts;
        const tk_int rest = tile - part * of_batch, top = rest / g.tiles_across;
        const tk_int row = top * ROWS, column = (rest - top * g.tiles_across) * COLUMNS;
        const tk_int begin = (part - batch * g.parts) * g.step;
        const tk_int end = begin + g.step < g.k ? begin + g.step : g.k;
        x_r sums[OWN_ROWS][OWN_COLUMNS];
        for (int m = 0; m < OWN_ROWS; ++m)
            for (int n = 0; n < OWN_COLUMNS; ++n) sums[m][n] = x_zero;
@BEGIN_ROWS        for (tk_int start = begin; start < end; start += DEPTH) {
            TG_BARRIER;
            for (int e = TG_LANE; e < ROWS * DEPTH; e += TG_LANES) {
                const int m = g.left_deep ? e / DEPTH : e % ROWS;
                const int d = g.left_deep ? e % DEPTH : e / ROWS;
                left[d][m] = x_zero;
                if (row + m < g.m && start + d < end) left[d][m] = LEFT(batch, row + m, start + d);
            }
            for (int e = TG_LANE; e < COLUMNS * DEPTH; e += TG_LANES) {
                const int n = g.right_deep ? e / DEPTH : e % COLUMNS;
                const int d = g.right_deep ? e % DEPTH : e / COLUMNS;
                right[d][n] = x_zero;
                if (column + n < g.n && start + d < end)
                    right[d][n] = RIGHT(batch, start + d, column + n);
            }
            TG_BARRIER;
            for (int d = 0; d < DEPTH; ++d) {
                x_r of_left[OWN_ROWS], of_right[OWN_COLUMNS];
                for (int m = 0; m < OWN_ROWS; ++m) of_left[m] = left[d][down * OWN_ROWS + m];
                for (int n = 0; n < OWN_COLUMNS; ++n)
                    of_right[n] = right[d][across + n * (COLUMNS / OWN_COLUMNS)];
                for (int m = 0; m < OWN_ROWS; ++m)
                    for (int n = 0; n < OWN_COLUMNS; ++n)
                        sums[m][n] = x_muladd(of_left[m], of_right[n], sums[m][n]);
@ADD_ROWS            }
        }
        for (int m = 0; m < OWN_ROWS; ++m)
            for (int n = 0; n < OWN_COLUMNS; ++n) {
                const tk_int i = row + down * OWN_ROWS + m;
                const tk_int j = column + across + n * (COLUMNS / OWN_COLUMNS);
                if (i < g.m && j < g.n) { STORE(part, batch, i, j, sums[m][n]) }
            }
@STORE_ROWS    }"""

# Sums in parts are added up afterwards: those of the rows lie after all others.
_JOIN = """
    const tk_int area = g.m * g.n, count = g.tiles / (g.tiles_down * g.tiles_across);
    const tk_int batches = count / g.parts;
    for (tk_int e = (tk_int)TG_BLOCK * TG_LANES + TG_LANE; e < batches * area;
         e += (tk_int)TG_BLOCKS * TG_LANES) {
        const tk_int batch = e / area, i = e % area / g.n, j = e % g.n;
        x_r total = x_zero;
        for (tk_int p = batch * g.parts; p < (batch + 1) * g.parts; ++p)
            total = x_add(total, parts[p * area + e % area]);
        WRITE(batch, i, j, total)
@JOIN_ROWS    }"""

_WHOLE = """
#define STORE(part, batch, i, j, value) WRITE(batch, i, j, value);
#define STORE_ROW(part, batch, i, value) WRITE_ROW(batch, i, value);
"""
_PARTS = """
#define STORE(part, batch, i, j, value) parts[((part) * g.m + (i)) * g.n + (j)] = value;
#define STORE_ROW(part, batch, i, value) \\
    parts[g.tiles / (g.tiles_down * g.tiles_across) * g.m * g.n + (part) * g.m + (i)] = value;
"""
# What sums of the left operand's rows add to the kernels.
_ROWS = {
    "@BEGIN_ROWS": """        x_r row_sums[OWN_ROWS];
        for (int m = 0; m < OWN_ROWS; ++m) row_sums[m] = x_zero;
""",
    "@ADD_ROWS": """                for (int m = 0; m < OWN_ROWS; ++m)
                    row_sums[m] = x_add(row_sums[m], of_left[m]);
""",
    "@STORE_ROWS": """        for (int m = 0; column == 0 && across == 0 && m < OWN_ROWS; ++m) {
            const tk_int i = row + down * OWN_ROWS + m;
            if (i < g.m) { STORE_ROW(part, batch, i, row_sums[m]) }
        }
""",
    "@JOIN_ROWS": """        if (j == 0) {
            x_r sum = x_zero;
            for (tk_int p = batch * g.parts; p < (batch + 1) * g.parts; ++p)
                sum = x_add(sum, parts[count * area + p * g.m + i]);
            WRITE_ROW(batch, i, sum)
        }
""",
}

FIELDS = (
    *("tiles", "tiles_down", "tiles_across", "parts", "step", "m", "n", "k"),
    *("left_deep", "right_deep"),
)


def kernels(name: str, in_parts: bool, row_sums: bool = False, **of_kernel: Any) -> list[Kernel]:
    """Return the kernels of a product: one, and one that joins parts where there are some.

    Args:
        name: of the first.
        in_parts: whether terms are summed in parts, in the buffer `parts`.
        row_sums: whether `WRITE_ROW(batch, m, value)` gets the sums of the left operand's rows.
        of_kernel: buffers, numbers and functions of both.
    """
    functions = of_kernel.pop("functions", "") + (_PARTS if in_parts else _WHOLE)
    made = []
    for kernel, body in ((name, _BODY), ("join", _JOIN))[: 1 + in_parts]:
        for mark, text in _ROWS.items():
            body = body.replace(mark, text if row_sums else "")
        made.append(Kernel(kernel, body=body, functions=functions, **of_kernel))
        functions = ""
    return made


class Cut(NamedTuple):
    """How a product is cut: into tiles, and along the dimension that is summed over."""

    tile: Tile
    tiles: int
    down: int
    across: int
    parts: int
    step: int

    def numbers(self, m: int, n: int, k: int) -> list[int]:
        """Return the first numbers of `FIELDS`, up to k."""
        return [self.tiles, self.down, self.across, self.parts, self.step, m, n, k]


def cut(dialect: KernelDialect, dtype: str, batches: int, m: int, n: int, k: int) -> Cut:
    """Return how a product of m rows, n columns and k terms is cut.

    Where there are fewer tiles than blocks, the terms are summed in parts of 32 slices or more:
    part p of a batch b is number b * parts + p.
    """
    tile = tile_for(dialect, dtype, m, n)
    down, across = -(-m // tile.rows), -(-n // tile.columns)
    tiles = batches * down * across
    parts = 1
    if dialect.lanes > 1:
        parts = max(1, min(dialect.max_blocks // (2 * max(1, tiles)), k // (32 * tile.depth), 64))
    step = -(-k // parts)
    step = max(tile.depth, -(-step // tile.depth) * tile.depth)
    parts = max(1, -(-k // step))
    return Cut(tile, tiles * parts, down, across, parts, step)


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


def settings(dialect: KernelDialect, tile: Tile) -> str:
    """Return the macros of a tile."""
    values = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "OWN_ROWS": tile.own_rows,
        "OWN_COLUMNS": tile.own_columns,
        # Lanes that write neighbouring rows of a slice then reach different banks.
        "PAD": 0 if dialect.lanes == 1 else 1,
    }
    return "".join(f"#define {name} {value}\n" for name, value in values.items())
