"""Functions of positions: which pairs of query and key are seen, and what their score becomes."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import Tensor

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# Which of batch, head, query and key one `vmap` runs over; the innermost, over keys, comes first.
_LEVELS = (
    (None, None, None, 0),
    (None, None, 0, None),
    (None, 0, None, None),
    (0, None, None, None),
)
MOST_AT_ONCE = 2**22  # pairs of positions whose scores are held at the same time


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Return that a pair of positions is seen, whichever it is."""
    return batch.new_ones((), dtype=tangrad.bool)


def over_positions(function: Callable[..., Any], leading: int = 0) -> Callable[..., Any]:
    """Return a function of the vectors of all positions, for one of single positions.

    Args:
        function: takes `leading` values, then batch, head, query and key as tensors without sizes.
        leading: how many values it takes that have all four dimensions.
    """
    for level in _LEVELS:
        function = tangrad.vmap(function, in_dims=(0,) * leading + level)
    return function


def takes_score(function: Callable[..., Any]) -> bool:
    """Return whether a function is one of a score (five arguments) or a mask (four).

    Raises:
        AssertionError: it takes another number of positional arguments.
    """
    required = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) not in (4, 5):
        raise AssertionError(
            f"Expected 4 or 5 positional args (batch, head, q_idx, kv_idx, before them the score), "
            f"got {len(required)}"
        )
    return len(required) == 5


def _joined(
    mask_mods: tuple[MaskMod, ...], start: Callable[..., Tensor], join: Callable[..., Tensor]
) -> MaskMod:
    if not all(callable(f) for f in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def joined(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        seen = start(b, (), dtype=tangrad.bool)
        for mask in mask_mods:
            seen = join(seen, mask(b, h, q_idx, kv_idx))
        return seen

    return joined


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return a mask of what at least one of some masks shows.

    Raises:
        RuntimeError: one of them cannot be called.
    """
    return _joined(mask_mods, Tensor.new_zeros, operator.or_)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return a mask of what all of some masks show.

    Raises:
        RuntimeError: one of them cannot be called.
    """
    return _joined(mask_mods, Tensor.new_ones, operator.and_)


def create_mask(
    mod_fn: ScoreMod | MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """Return what a mask shows, or a score leaves finite, as bools of shape (B, H, Q_LEN, KV_LEN).

    Args:
        mod_fn: of (batch, head, query, key), before them the score.
        B, H: numbers of batches and heads, None for one that serves all.
        Q_LEN, KV_LEN: numbers of queries and keys.
        device: where; the current accelerator or "cpu" by default.
    """
    return rows_of_mask(mod_fn, (B or 1, H or 1, Q_LEN, KV_LEN), 0, Q_LEN, place(device))


def rows_of_mask(
    function: Callable[..., Any],
    sizes: tuple[int, int, int, int],
    start: int,
    stop: int,
    device: Any,
) -> Tensor:
    """Return the rows `start` to `stop` of what `create_mask` returns.

    Args:
        function: of a mask or score.
        sizes: numbers of batches, heads, queries and keys.
        start, stop: which queries.
        device: where.
    """
    batches, heads, _, keys = sizes
    positions = vectors(device, batches, heads, (start, stop), (0, keys))
    if takes_score(function):
        zeros = tangrad.zeros(batches, heads, stop - start, keys, device=device)
        return ~tangrad.isneginf(over_positions(function, 1)(zeros, *positions))
    seen: Tensor = over_positions(function)(*positions)
    return seen


def vectors(
    device: Any, batches: int, heads: int, queries: tuple[int, int], keys: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the positions of batches, heads, and ranges of queries and keys."""
    return (
        tangrad.arange(batches, device=device),
        tangrad.arange(heads, device=device),
        tangrad.arange(*queries, device=device),
        tangrad.arange(*keys, device=device),
    )


def place(device: Any) -> Any:
    """Return a device that was asked for, or the current accelerator, or "cpu"."""
    return device or tangrad.accelerator.current_accelerator() or "cpu"
