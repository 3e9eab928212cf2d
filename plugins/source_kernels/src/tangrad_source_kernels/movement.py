"""What only moves elements: joined, padded, mirrored and cut tensors, most by copies of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import render_conversion
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.geometry import Loop
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of an op that moves elements."""
    if op.name == "cat":
        return _cat(driver, dtype)
    if op.name in _BY_VIEWS:
        return _BY_VIEWS[op.name]
    if op.name in ("tril", "triu"):
        return _triangle(driver, op.name, dtype)
    return _flip(driver, dtype)


# Tensors that one launch joins.
_MOST_JOINED = 8

_JOINED = """        const tk_int line = g.first[g.count], outer = i / line;
        const tk_int within = i - outer * line;
        int k = 0;
        while (within >= g.first[k + 1]) ++k;
        const tk_int at = outer * (g.first[k + 1] - g.first[k]) + within - g.first[k];
"""


def _cat(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make(count: int) -> Unit:
        sources = (f"if (k == {k}) y[i] = x{k}[at];" for k in range(count))
        body = text.elements(_JOINED + "        " + " else ".join(sources))
        buffers = ((dtype, "y"), *((dtype, f"x{k}") for k in range(count)))
        fields = (("int64", "n", 0), ("int64", "count", 0), ("int64", "first", count + 1))
        return Unit(driver, [Kernel("cat", buffers, fields, body)])

    def kernel(outs: Any, args: Any) -> None:
        tensors, dim = args
        out = outs[0]
        tensors = [t for t in tensors if t.numel()]
        usual = all(t.dtype == out.dtype and t.is_contiguous() for t in (*tensors, out))
        if not usual or not 2 <= len(tensors) <= _MOST_JOINED:
            _cat_by_views(out, tensors, dim)
            return
        first, inner = [0], text.count_of(out.shape[dim + 1 :])
        for tensor in tensors:
            first.append(first[-1] + tensor.shape[dim] * inner)
        unit = driver.unit(("cat", dtype, len(tensors)), lambda: make(len(tensors)))
        given = [out.numel(), len(tensors), *first]
        unit.launch("cat", driver.blocks_for(out.numel()), [out, *tensors], given, out.device.index)

    return kernel


def _cat_by_views(out: Any, tensors: Any, dim: int) -> None:
    start = 0
    for tensor in tensors:
        size = tensor.shape[dim]
        out.narrow(dim, start, size).copy_(tensor)
        start += size


def _pad(outs: Any, args: Any) -> None:
    x, pad, value = args
    out = outs[0]
    if out.numel() == 0:
        return
    out.fill_(value)
    source, target = x, out
    for k in range(len(pad) // 2):
        dim, (before, after) = x.ndim - 1 - k, pad[2 * k : 2 * k + 2]
        start = max(0, -before)
        size = x.shape[dim] - start - max(0, -after)
        if size <= 0:
            return
        source = source.narrow(dim, start, size)
        target = target.narrow(dim, max(0, before), size)
    target.copy_(source)


def _select_backward(outs: Any, args: Any) -> None:
    g, _, dim, index = args
    outs[0].zero_()
    outs[0].select(dim, index).copy_(g)


def _slice_backward(outs: Any, args: Any) -> None:
    g, shape, dim, start, end, step = args
    outs[0].zero_()
    if g.numel():
        part = slice(start, end, step)
        outs[0][(slice(None),) * (dim % len(shape)) + (part,)].copy_(g)


def _diagonal_backward(outs: Any, args: Any) -> None:
    g, _, offset, first, second = args
    outs[0].zero_()
    outs[0].diagonal(offset, first, second).copy_(g)


def _unfold_backward(outs: Any, args: Any) -> None:
    g, shape, dim, size, step = args
    out = outs[0]
    out.zero_()
    if g.numel() == 0:
        return
    if not shape:
        out.copy_(g.sum())
        return
    dim %= len(shape)
    reach = (g.shape[dim] - 1) * step + 1
    for tap in range(size):
        part = slice(tap, tap + reach, step)
        out[(slice(None),) * dim + (part,)].add_(g.select(-1, tap))


_BY_VIEWS = {
    "constant_pad_nd": _pad,
    "select_backward": _select_backward,
    "slice_backward": _slice_backward,
    "diagonal_backward": _diagonal_backward,
    "unfold_backward": _unfold_backward,
}


def _triangle(driver: Compiler, name: str, dtype: str) -> Callable[..., None]:
    kept = "column - row <= g.diagonal" if name == "tril" else "column - row >= g.diagonal"

    def make() -> Unit:
        zero = render_conversion("0", "int64", dtype)
        body = text.elements(
            "        const tk_int column = i % g.columns, row = i / g.columns % g.rows;\n"
            f"        if ({kept}) y[i] = x[i]; else y[i] = {zero};"
        )
        fields = tuple(("int64", n, 0) for n in ("n", "rows", "columns", "diagonal"))
        return Unit(driver, [Kernel("triangle", ((dtype, "y"), (dtype, "x")), fields, body)])

    def kernel(outs: Any, args: Any) -> None:
        x, diagonal = args
        if x.numel() == 0:
            return
        unit = driver.unit((name, dtype), make)
        with text.Result(*outs) as out:
            given = [x.numel(), *x.shape[-2:], diagonal]
            blocks = driver.blocks_for(x.numel())
            unit.launch("triangle", blocks, [out, x.contiguous()], given, x.device.index)

    return kernel


def _flip(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make(rank: int) -> Unit:
        body = text.elements(
            f"""        tk_int rest = i, at = g.start;
        for (int d = {rank - 1}; d >= 0 && rest > 0; --d) {{
            at += rest % g.shape[d] * g.steps[d];
            rest /= g.shape[d];
        }}
        y[i] = x[at];"""
        )
        counts = (("n", 0), ("start", 0), ("shape", rank), ("steps", rank))
        fields = tuple(("int64", name, count) for name, count in counts)
        return Unit(driver, [Kernel("flip", ((dtype, "y"), (dtype, "x")), fields, body)])

    def kernel(outs: Any, args: Any) -> None:
        x, dims = args
        if x.numel() == 0:
            return
        turned = {dim % x.ndim for dim in dims} if x.ndim else set()
        steps = [-s if d in turned else s for d, s in enumerate(x.stride())]
        start = sum((x.shape[d] - 1) * x.stride(d) for d in turned)
        rank = 4 if x.ndim <= 4 else 64
        loop = Loop(tuple(x.shape), (tuple(steps),), x.numel())
        unit = driver.unit(("flip", dtype, rank), lambda: make(rank))
        with text.Result(*outs) as out:
            given = [x.numel(), start, *loop.padded(rank)]
            unit.launch("flip", driver.blocks_for(x.numel()), [out, x], given, x.device.index)

    return kernel
