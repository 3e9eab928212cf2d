"""How often what occurs: counts of small numbers, and lists of what is distinct, by sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin.render import KINDS
from tangrad_source_kernels import text
from tangrad_source_kernels.sorting import rows_sorted

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# Columns of slices that are sorted one after the other, the last first; more by pairs.
_FEW_COLUMNS = 4


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., Any] | None:
    """Return the kernel of `bincount` or `_distinct`."""
    if KINDS[dtype] == "c":
        return None
    return _bincount(driver) if op.name == "bincount" else _distinct(driver, op)


def _delivered(outs: Any, made: tuple[Any, ...]) -> Any:
    if outs is None:
        return made
    for out, x in zip(outs, made, strict=True):
        out.copy_(x)
    return None


def _bincount(driver: Compiler) -> Callable[..., Any]:
    def kernel(outs: Any, args: Any) -> Any:
        x, weights, least = args
        x = x.to(tangrad.int64).contiguous()
        found, size = x, least
        if x.numel():
            found = rows_sorted(driver, x, False)[0]
            low, high = (int(found[k].item()) for k in (0, -1))
            if low < 0:
                raise RuntimeError(
                    f"bincount only supports 1-d non-negative integral inputs, got the value {low}"
                )
            size = max(least, high + 1)
        if weights is not None:
            single = weights.dtype is tangrad.float32
            made = weights.new_zeros((size,), dtype=tangrad.float32 if single else tangrad.float64)
            return _delivered(outs, (made.index_add_(0, x, weights.to(made.dtype)),))
        numbers = tangrad.arange(size, device=x.device)
        ends = tangrad.searchsorted(found, numbers, right=True)
        return _delivered(outs, (ends - tangrad.cat([ends.new_zeros((1,)), ends])[:-1],))

    return kernel


def _distinct(driver: Compiler, op: Any) -> Callable[..., Any]:
    def kernel(outs: Any, args: Any) -> Any:
        x, dim, consecutive = args[:3]
        whole = dim is None or x.ndim == 0
        lines = x.reshape((-1,)) if whole else x.movedim(dim, 0)
        count = lines.shape[0]
        columns = text.count_of(lines.shape[1:])
        if x.numel() == 0:
            from tangrad.plugin import fallback

            return fallback(op)(outs, args)
        rows = lines.reshape((count, columns))
        order = tangrad.arange(count, device=x.device)
        if not consecutive:
            order = _order(driver, rows, order)
            rows = rows.index_select(0, order)
        starts = order.new_ones((count,), dtype=tangrad.bool)
        starts[1:] = (rows[1:] != rows[:-1]).any(1)
        first = starts.nonzero()[:, 0]
        inverse = starts.cumsum(0) - 1
        if not consecutive:
            # Each row looks up its place: writing to places, in an order, takes the square of rows.
            inverse = inverse.index_select(0, rows_sorted(driver, order, False)[1])
        counts = tangrad.cat([first[1:], first.new_full((1,), count)]) - first
        listed = lines.index_select(0, order.index_select(0, first))
        return _delivered(outs, (listed, inverse.reshape(x.shape) if whole else inverse, counts))

    return kernel


def _order(driver: Compiler, rows: Any, order: Any) -> Any:
    """Return the places of rows in lexicographic order: stable sorts, the last column first."""
    if rows.dtype is tangrad.bool:
        rows = rows.to(tangrad.uint8)
    if rows.shape[1] > _FEW_COLUMNS:
        return rows_sorted(driver, _ranks(driver, rows.t())[0], False)[1]
    for column in reversed(range(rows.shape[1])):
        key = rows[:, column].index_select(0, order)
        order = order.index_select(0, rows_sorted(driver, key, False)[1])
    return order


def _ranks(driver: Compiler, columns: Any) -> Any:
    """Return how many distinct rows, of which the columns are given, come before each.

    Ranks of two neighbouring columns make a number that orders like both; all pairs are ranked at
    once, until one is left.
    """
    count = columns.shape[1]
    while True:
        ordered, order = rows_sorted(driver, columns.contiguous(), False)
        changes = (ordered[:, 1:] != ordered[:, :-1]).to(tangrad.int64)
        ranks = tangrad.cat([order.new_zeros((len(order), 1)), changes], 1).cumsum(1)
        ranks = ranks.gather(1, rows_sorted(driver, order, False)[1])
        if len(ranks) == 1:
            return ranks
        if len(ranks) % 2:
            ranks = tangrad.cat([ranks, ranks[-1:]])
        columns = ranks[0::2] * count + ranks[1::2]
