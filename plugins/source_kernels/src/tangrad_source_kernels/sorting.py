"""Sorting of rows, by merging: stable, of any length, without shared memory.

Runs of twice the length are made of two each time. An element's place in the merged run is its
place in its own plus the number of elements of the other that precede it, found by bisection, so
that every element is a lane's work of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin.render import KINDS
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.numbers import signed
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# Runs of this length are made at first, each by one lane.
_RUN = 16

_BEGIN = """        const tk_int runs = (g.length + {run} - 1) / {run};
        const tk_int row = i / runs * g.length, start = i % runs * {run};
        const tk_int end = start + {run} < g.length ? start + {run} : g.length;
        for (tk_int j = start; j < end; ++j) {{
            const x_t value = x[row + j];
            tk_int k = j;
            while (k > start && BEFORE(value, y[row + k - 1])) {{
                y[row + k] = y[row + k - 1];
                at[row + k] = at[row + k - 1];
                --k;
            }}
            y[row + k] = value;
            at[row + k] = j;
        }}"""

_MERGE = """        const tk_int row = i / g.length * g.length, j = i % g.length;
        const tk_int pair = j / (2 * g.run) * (2 * g.run);
        const int second = j >= pair + g.run;
        tk_int low = second ? pair : pair + g.run;
        tk_int high = second ? pair + g.run : pair + 2 * g.run;
        if (low > g.length) low = g.length;
        if (high > g.length) high = g.length;
        const tk_int first = low;
        const x_t value = x[i];
        while (low < high) {
            const tk_int middle = (low + high) / 2;
            const x_t other = x[row + middle];
            if (second ? !BEFORE(value, other) : BEFORE(other, value)) low = middle + 1;
            else high = middle;
        }
        const tk_int place = row + pair + (j - (second ? pair + g.run : pair)) + (low - first);
        y[place] = value;
        at[place] = from[i];"""


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of sort, topk or _permutation_of."""
    if KINDS[dtype] == "c":
        return None
    if op.name == "_permutation_of":
        return _permutation(driver)

    def sort(outs: Any, args: Any) -> None:
        x, dim, descending, _ = args
        values, places = rows_sorted(driver, _last(x, dim), bool(descending))
        _store(outs, (values, places), x, dim)

    def topk(outs: Any, args: Any) -> None:
        x, k, dim, largest, _ = args
        found = rows_sorted(driver, _last(x, dim), bool(largest))
        _store(outs, tuple(t[..., :k] for t in found), x, dim)

    return sort if op.name == "sort" else topk


def _last(x: Any, dim: int) -> Any:
    return (x.movedim(dim, -1) if x.ndim else x.reshape((1,))).contiguous()


def _store(outs: Any, found: Any, x: Any, dim: int) -> None:
    for out, made in zip(outs, found, strict=True):
        if out.numel():
            out.copy_(made.movedim(-1, dim) if x.ndim else made.reshape(out.shape))


def rows_sorted(driver: Compiler, x: Any, descending: bool) -> tuple[Any, Any]:
    """Return the values and the places of contiguous rows in order; equal ones keep theirs."""
    if x.numel() == 0:
        return x, tangrad.empty(tuple(x.shape), dtype=tangrad.int64, device=x.device)
    dtype, length, index = x.dtype.name, x.shape[-1], x.device.index
    key = ("sort", dtype, descending)
    unit = driver.unit(key, lambda: _unit(driver, dtype, descending))
    rows = x.numel() // length
    made = [_places(x) for _ in range(2 if length > _RUN else 1)]
    runs = -(-length // _RUN) * rows
    unit.launch("begin", driver.blocks_for(runs), [*made[0], x], [runs, length], index)
    run, blocks = _RUN, driver.blocks_for(x.numel())
    while run < length:
        unit.launch("merge", blocks, [*made[1], *made[0]], [x.numel(), length, run], index)
        made.reverse()
        run *= 2
    return made[0]


def _places(x: Any) -> tuple[Any, Any]:
    shape = tuple(x.shape)
    return (
        tangrad.empty(shape, dtype=x.dtype, device=x.device),
        tangrad.empty(shape, dtype=tangrad.int64, device=x.device),
    )


def less(dtype: str) -> str:
    """Return the macro `LESS(a, b)` of stored elements; NaN is greater than every number."""
    compared = "(x_load(a) < x_load(b))"
    if KINDS[dtype] == "f":
        compared = f"({compared} || (x_load(b) != x_load(b) && x_load(a) == x_load(a)))"
    return f"#define LESS(a, b) {compared}\n"


def _unit(driver: Compiler, dtype: str, descending: bool) -> Unit:
    order = "b, a" if descending else "a, b"
    frame = text.names(driver.dialect, x=dtype) + less(dtype)
    frame += f"#define BEFORE(a, b) LESS({order.replace(', ', ',')})\n"
    begin = Kernel(
        "begin",
        ((dtype, "y"), ("int64", "at"), (dtype, "x")),
        (("int64", "n", 0), ("int64", "length", 0)),
        text.elements(_BEGIN.format(run=_RUN)),
    )
    merge = Kernel(
        "merge",
        ((dtype, "y"), ("int64", "at"), (dtype, "x"), ("int64", "from")),
        (("int64", "n", 0), ("int64", "length", 0), ("int64", "run", 0)),
        text.elements(_MERGE),
    )
    return Unit(driver, [begin, merge], frame)


def _permutation(driver: Compiler) -> Callable[..., None]:
    """Sort the words of the stream: `tangrad.random.philox.randperm` says how."""
    from tangrad_source_kernels.draws import stream_functions

    def make() -> Unit:
        kind = driver.dialect.types["uint64"]
        body = text.elements(f"        y[i] = tk_integer(({kind})g.seed, ({kind})g.offset, i);")
        fields = tuple(("int64", n, 0) for n in ("n", "seed", "offset"))
        kernel = Kernel("words", (("uint64", "y"),), fields, body)
        return Unit(driver, [kernel], stream_functions(driver))

    def kernel(outs: Any, args: Any) -> None:
        out = outs[0]
        seed, offset = args[-2:]
        if out.numel() == 0:
            return
        words = tangrad.empty((out.numel(),), dtype=tangrad.uint64, device=out.device)
        given = [out.numel(), signed(seed), signed(offset)]
        unit = driver.unit("permutation", make)
        unit.launch("words", driver.blocks_for(out.numel()), [words], given, out.device.index)
        out.copy_(rows_sorted(driver, words, False)[1])

    return kernel
