"""Elements read and written at places that tensors of indices or masks name.

Index tensors become one position: the sum of index times stride, as of the first element that they
name. The result's dimensions before, of, and after the index are then those of two strided loops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin.render import KINDS
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.places import copied, locate, message, padded, rank_of
from tangrad_source_kernels.reports import REPORT
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., Any] | None:
    """Return the kernel of an op that takes indices or masks."""
    return {
        "index": _index,
        "_index_put": _index_put,
        "masked_select": _masked_select,
        "masked_scatter": _masked_scatter,
        "nonzero_table": _nonzero,
    }[op.name](driver, dtype)


def positions(driver: Compiler, x: Any, indices: Any) -> Any:
    """Return, for each element of the index, its offset from `x`'s first element; flat int64."""
    used = [(d, i) for d, i in enumerate(indices) if i is not None]
    device = x.device.index
    count = used[0][1].numel()
    made = tangrad.zeros((count,), dtype=tangrad.int64, device=x.device)
    for d, index in used:
        integers = index.dtype.name
        unit = driver.unit(("positions", integers), partial(_positions_unit, driver, integers))
        site = driver.reports.site(IndexError, message(d, x))
        given = [count, site, x.shape[d], x.stride(d)]
        buffers = [made, index.contiguous(), driver.error_cell(device)]
        unit.launch("positions", driver.blocks_for(count), buffers, given, device)
        driver.reports.expect(device)
    return made


def _positions_unit(driver: Compiler, integers: str) -> Unit:
    body = """        tk_int place = (tk_int)index[i];
        if (place < -g.size || place >= g.size) {
            TG_REPORT(place, g.size);
            place = 0;
        }
        y[i] += (place < 0 ? place + g.size : place) * g.step;"""
    fields = tuple(("int64", n, 0) for n in ("n", "site", "size", "step"))
    buffers = (("int64", "y"), (integers, "index"), ("int64", "err"))
    return Unit(driver, [Kernel("positions", buffers, fields, text.elements(body))], REPORT)


def _layout(x: Any, indices: Any) -> tuple[list[int], list[int], list[int]]:
    """Return the shape of what is indexed, and strides there: of `x`, and of the positions."""
    used = [d for d, i in enumerate(indices) if i is not None]
    index = indices[used[0]]
    adjacent = used == list(range(used[0], used[-1] + 1))
    rest = [d for d in range(x.ndim) if d not in used]
    first = sum(d < used[0] for d in rest) if adjacent else 0
    flat = [1]
    for size in reversed(tuple(index.shape)[1:]):
        flat.insert(0, flat[0] * size)
    flat = flat if index.ndim else []
    before, after = rest[:first], rest[first:]
    shape = [x.shape[d] for d in before] + list(index.shape) + [x.shape[d] for d in after]
    of_x = [x.stride(d) for d in before] + [0] * index.ndim + [x.stride(d) for d in after]
    of_index = [0] * len(before) + flat + [0] * len(after)
    return shape, of_x, of_index


def _index(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make(rank: int) -> Unit:
        body = locate("x", "p") + "        y[i] = x[at_x + p[at_p]];"
        fields = (("int64", "n", 0), *(("int64", n, rank) for n in ("shape", "of_x", "of_p")))
        buffers = ((dtype, "y"), (dtype, "x"), ("int64", "p"))
        kernel = Kernel("index", buffers, fields, text.elements(body))
        return Unit(driver, [kernel], f"#define RANK {rank}\n")

    def kernel(outs: Any, args: Any) -> None:
        x, indices = args
        if outs[0].numel() == 0:
            return
        shape, of_x, of_index = _layout(x, indices)
        rank = rank_of(len(shape))
        unit = driver.unit(("index", dtype, rank), lambda: make(rank))
        places = positions(driver, x, indices)
        with text.Result(*outs) as out:
            given = [out.numel(), *padded(shape, rank, 1), *padded(of_x, rank, 0)]
            given += padded(of_index, rank, 0)
            blocks = driver.blocks_for(out.numel())
            unit.launch("index", blocks, [out, x, places], given, x.device.index)

    return kernel


def _index_put(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make(rank: int, accumulate: bool) -> Unit:
        # `i` is a column: the dimensions of the index are walked through in order.
        added = "y[at] = x_store(x_add(x_load(y[at]), x_load(v[at_v + of_v])));"
        if KINDS[dtype] == "b":
            added = "y[at] = y[at] | v[at_v + of_v];"
        written = added if accumulate else "y[at] = v[at_v + of_v];"
        body = (
            locate("y", "v")
            + f"""        for (tk_int j = 0; j < g.count; ++j) {{
            tk_int left = j, of_v = 0;
            for (int d = RANK - 1; d >= 0; --d) {{
                of_v += left % g.index[d] * g.step_v[d];
                left /= g.index[d];
            }}
            const tk_int at = at_y + p[j];
            {written}
        }}"""
        )
        names = ("shape", "of_y", "of_v", "index", "step_v")
        fields = (("int64", "n", 0), ("int64", "count", 0), *(("int64", n, rank) for n in names))
        buffers = ((dtype, "y"), (dtype, "v"), ("int64", "p"))
        kernel = Kernel("put", buffers, fields, text.elements(body))
        frame = f"#define RANK {rank}\n" + text.names(driver.dialect, x=dtype)
        return Unit(driver, [kernel], frame)

    def kernel(outs: Any, args: Any) -> None:
        x, indices, values, accumulate = args
        out = outs[0]
        copied(out, x)
        shape, of_y, _ = _layout(out, indices)
        if text.count_of(shape) == 0:
            return
        count = text.count_of(next(i for i in indices if i is not None).shape)
        lead = values.ndim - len(shape)
        spread = (values.reshape(values.shape[lead:]) if lead > 0 else values).expand(shape)
        inside = _index_dims(indices)
        of_v = list(spread.stride())
        rank = rank_of(len(shape))
        unit = driver.unit(("put", dtype, rank, accumulate), lambda: make(rank, accumulate))
        places = positions(driver, out, indices)
        columns = [1 if d in inside else n for d, n in enumerate(shape)]
        given = [text.count_of(columns), count, *padded(columns, rank, 1)]
        given += padded(of_y, rank, 0)
        given += padded([0 if d in inside else s for d, s in enumerate(of_v)], rank, 0)
        given += padded([n if d in inside else 1 for d, n in enumerate(shape)], rank, 1)
        given += padded([s if d in inside else 0 for d, s in enumerate(of_v)], rank, 0)
        blocks = driver.blocks_for(given[0])
        unit.launch("put", blocks, [out, spread, places], given, out.device.index)

    return kernel


def _index_dims(indices: Any) -> range:
    """Return the dimensions of what is indexed that are the index's own."""
    used = [d for d, i in enumerate(indices) if i is not None]
    adjacent = used == list(range(used[0], used[-1] + 1))
    first = used[0] if adjacent else 0
    return range(first, first + indices[used[0]].ndim)


def _ranks(mask: Any) -> tuple[Any, int]:
    """Return for each element how many true ones there are up to it, and how many in all."""
    if mask.numel() == 0:
        return None, 0
    counted = mask.reshape((-1,)).cumsum(0)
    return counted, int(counted[-1].item())


def _masked_select(driver: Compiler, dtype: str) -> Callable[..., Any]:
    def make() -> Unit:
        body = text.elements("        if (mask[i]) y[rank[i] - 1] = x[i];")
        buffers = ((dtype, "y"), (dtype, "x"), ("bool", "mask"), ("int64", "rank"))
        return Unit(driver, [Kernel("select", buffers, (("int64", "n", 0),), body)])

    def kernel(outs: Any, args: Any) -> Any:
        x, mask = tangrad.broadcast_tensors(*args)
        ranks, count = _ranks(mask)
        made = tangrad.empty((count,), dtype=x.dtype, device=x.device)
        if count:
            unit = driver.unit(("masked_select", dtype), make)
            buffers = [made, *text.contiguous(x, mask), ranks]
            unit.launch(
                "select", driver.blocks_for(x.numel()), buffers, [x.numel()], x.device.index
            )
        if outs is None:
            return (made,)
        outs[0].copy_(made)
        return None

    return kernel


def _masked_scatter(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make() -> Unit:
        body = text.elements("        if (mask[i]) y[i] = x[rank[i] - 1];")
        buffers = ((dtype, "y"), (dtype, "x"), ("bool", "mask"), ("int64", "rank"))
        return Unit(driver, [Kernel("scatter", buffers, (("int64", "n", 0),), body)])

    def kernel(outs: Any, args: Any) -> None:
        x, mask, source = args
        with text.Result(*outs) as out:
            copied(out, x.expand(out.shape))
            mask = mask.expand(out.shape).contiguous()
            ranks, count = _ranks(mask)
            if count > source.numel():
                raise RuntimeError(
                    "masked_scatter: expected self and source to have same dtypes and source to "
                    f"have at least as many elements as the mask has true ones, but got "
                    f"{source.numel()} elements for {count}"
                )
            if count:
                unit = driver.unit(("masked_scatter", dtype), make)
                buffers = [out, source.contiguous(), mask, ranks]
                blocks = driver.blocks_for(out.numel())
                unit.launch("scatter", blocks, buffers, [out.numel()], out.device.index)

    return kernel


def _nonzero(driver: Compiler, dtype: str) -> Callable[..., Any]:
    def make(rank: int) -> Unit:
        body = text.elements(
            """        if (mask[i]) {
            tk_int rest = i;
            for (tk_int d = g.dims - 1; d >= 0; --d) {
                y[d * g.count + rank[i] - 1] = rest % g.shape[d];
                rest /= g.shape[d];
            }
        }"""
        )
        fields = tuple(("int64", n, 0) for n in ("n", "dims", "count"))
        buffers = (("int64", "y"), ("bool", "mask"), ("int64", "rank"))
        kernel = Kernel("nonzero", buffers, (*fields, ("int64", "shape", rank)), body)
        return Unit(driver, [kernel])

    def kernel(outs: Any, args: Any) -> Any:
        x = args[0]
        mask = (x != 0).contiguous()
        ranks, count = _ranks(mask)
        made = tangrad.empty((x.ndim, count), dtype=tangrad.int64, device=x.device)
        if made.numel():
            rank = rank_of(x.ndim)
            unit = driver.unit(("nonzero", rank), lambda: make(rank))
            shape = [*x.shape, *[1] * (rank - x.ndim)]
            given = [x.numel(), x.ndim, count, *shape]
            blocks = driver.blocks_for(x.numel())
            unit.launch("nonzero", blocks, [made, mask, ranks], given, x.device.index)
        if outs is None:
            return (made,)
        outs[0].copy_(made)
        return None

    return kernel
