"""`flex_attention`: attention with a function on its scores."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypedDict

import tangrad
from tangrad import Tensor
from tangrad.utils.checkpoint import checkpoint
from tangrad_fx.attention.block_mask import BlockMask, dense, no_sliced_mask
from tangrad_fx.attention.positions import (
    MOST_AT_ONCE,
    ScoreMod,
    noop_mask,
    over_positions,
    vectors,
)

_BACKENDS = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")


class FlexKernelOptions(TypedDict, total=False):
    """Settings of PyTorch's kernels; accepted, and without meaning here."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_M1: int
    BLOCK_N1: int
    BLOCK_M2: int
    BLOCK_N2: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    kpack: int
    matrix_instr_nonkdim: int
    waves_per_eu: int
    BACKEND: str


class AuxRequest(NamedTuple):
    """Say what else `flex_attention` is to return: logarithms of sums, and greatest scores."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by an `AuxRequest`, of shape (B, H, L); None for what was not."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attend with scores that a function changes, where a mask shows the keys.

    Scores are made in float32 (float64 for queries of that dtype). A query that sees no key gets
    zeros. Derivatives reach whatever `score_mod` reads, too.

    Args:
        query: (B, Hq, L, E).
        key: (B, Hkv, S, E); one batch may serve all where there is a mask.
        value: (B, Hkv, S, Ev).
        score_mod: of (score, batch, head, query, key), tensors of no dimension: the score.
        block_mask: which keys are seen. Blocks that it does not list are not seen, whatever its
            `mask_mod` says.
        scale: of the scores; 1 / sqrt(E) by default.
        enable_gqa: whether Hq may be a multiple of Hkv.
        return_lse: whether to return (result, lse).
        kernel_options: accepted; `BACKEND` has to be one that PyTorch has.
        return_aux: whether to return (result, AuxOutput).

    Returns:
        (B, Hq, L, Ev), of the query's dtype.

    Raises:
        ValueError: shapes, numbers of heads or dtypes do not fit; the mask is one for other
            lengths; both `return_lse` and `return_aux` are given; the backend is unknown.
        NotImplementedError: there are not four dimensions.
        RuntimeError: the mask is a slice of another, or on another device.
    """
    _require_fitting(query, key, value, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux; use return_aux")
    backend = (kernel_options or {}).get("BACKEND", "AUTO")
    if backend not in _BACKENDS:
        raise ValueError(f"Invalid BACKEND value '{backend}'. Must be one of {_BACKENDS}")
    _require_mask_fits(query, key, block_mask)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    batches = query.shape[0]
    if key.shape[0] != batches:
        key, value = (t.expand(batches, *t.shape[1:]) for t in (key, value))
    call = _Call(key, value, score_mod, block_mask, scale)
    result, lse, greatest = _in_parts(query, call)
    if return_aux is not None:
        wanted = return_aux
        return result, AuxOutput(
            lse if wanted.lse else None, greatest if wanted.max_scores else None
        )
    return (result, lse) if return_lse else result


class _Call(NamedTuple):
    """All but the queries."""

    key: Tensor
    value: Tensor
    score_mod: ScoreMod | None
    mask: BlockMask | None
    scale: float


def _require_fitting(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> None:
    shapes = f"query {list(query.shape)}, key {list(key.shape)}, value {list(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError(f"flex_attention: expected 4 dimensions each, got {shapes}")
    if not query.device == key.device == value.device:
        raise ValueError(
            f"flex_attention: expected one device, got {query.device}, {key.device} and "
            f"{value.device}"
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"Expect query and key to have the same embedding dimension, got {shapes}")
    if key.shape[:3] != value.shape[:3]:
        raise ValueError(f"Expect key and value to be of one batch, heads and length, got {shapes}")
    heads, of_keys = query.shape[1], key.shape[1]
    if not grouped and heads != of_keys:
        raise ValueError(
            "Expect query and key/value to have the same number of heads but got "
            f"Hq={heads} and Hkv={of_keys}. Try setting enable_gqa=True for GQA."
        )
    if grouped and heads % of_keys:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads} and Hkv={of_keys}."
        )


def _require_mask_fits(query: Tensor, key: Tensor, mask: BlockMask | None) -> None:
    of_queries, of_keys = query.shape[0], key.shape[0]
    if of_queries != of_keys and (
        mask is None or mask.kv_num_blocks.shape[0] != of_queries or of_keys != 1
    ):
        raise ValueError(
            "Expect query and key/value to have the same batch size, or one of key/value and a "
            f"block_mask for each query, but got Bq={of_queries}, Bkv={of_keys} and "
            f"block_mask {None if mask is None else mask.shape}."
        )
    if mask is None:
        return
    if mask.mask_mod is no_sliced_mask:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    if mask.kv_num_blocks.device != query.device:
        raise RuntimeError(
            "Expect q/k/v and block_mask to be on the same device but got "
            f"{query.device} and {mask.kv_num_blocks.device}."
        )
    if tuple(mask.seq_lengths) != (query.shape[-2], key.shape[-2]):
        raise ValueError(
            f"block_mask was created for block_mask.shape={mask.shape} but got "
            f"q_len={query.shape[-2]} and kv_len={key.shape[-2]}; create one for these lengths, or "
            "take its upper left corner by block_mask._adjust(q_len, kv_len)"
        )
    for name, given, has in (
        ("batches", mask.kv_indices.shape[0], query.shape[0]),
        ("heads", mask.kv_indices.shape[1], query.shape[1]),
    ):
        if given not in (1, has):
            raise ValueError(f"block_mask is for {given} {name}, and the query has {has}")


def _in_parts(query: Tensor, call: _Call) -> tuple[Tensor, Tensor, Tensor]:
    """Attend for some queries at a time; what is needed for derivatives is made again."""
    batches, heads, queries, _ = query.shape
    step = max(1, MOST_AT_ONCE // max(1, batches * heads * call.key.shape[2]))
    if call.mask is not None:
        rows = call.mask.BLOCK_SIZE[0]
        step = max(1, step // rows) * rows
    if step >= queries:
        return _attend(query, 0, call)
    parts = []
    for start in range(0, queries, step):
        some = query[:, :, start : start + step]
        if tangrad.is_grad_enabled():
            parts.append(checkpoint(_attend, some, start, call, use_reentrant=False))
        else:
            parts.append(_attend(some, start, call))
    result, lse, greatest = (tangrad.cat(same, dim=2) for same in zip(*parts, strict=True))
    return result, lse, greatest


def _attend(query: Tensor, start: int, call: _Call) -> tuple[Tensor, Tensor, Tensor]:
    """Return results, logarithms of sums and greatest scores for queries from `start` on."""
    batches, heads, queries, _ = query.shape
    first, last, blocks = _window(call.mask, start, queries, call.key.shape[2])
    key, value = call.key[:, :, first:last], call.value[:, :, first:last]
    working = tangrad.float64 if query.dtype == tangrad.float64 else tangrad.float32
    scores = _grouped_product(query.to(working), key.to(working).transpose(-2, -1)) * call.scale
    positions = vectors(query.device, batches, heads, (start, start + queries), (first, last))
    if call.score_mod is not None:
        scores = over_positions(call.score_mod, 1)(scores, *positions).to(working)
    if blocks is not None and call.mask is not None:
        scores = scores.masked_fill(~_seen(call.mask, positions, blocks), -math.inf)
    greatest = scores.amax(-1)
    dead = greatest == -math.inf
    # Rows without keys are filled in, as the derivative of a softmax of nothing is not a number.
    scores = scores.masked_fill(dead.unsqueeze(-1), 0.0)
    weights = scores.softmax(-1).masked_fill(dead.unsqueeze(-1), 0.0)
    result = _grouped_product(weights.to(query.dtype), value.to(query.dtype))
    return result, scores.logsumexp(-1).masked_fill(dead, -math.inf), greatest


def _grouped_product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices of Hq heads by those of Hkv heads, of which each serves a group."""
    heads, of_keys = left.shape[1], right.shape[1]
    if heads == of_keys:
        return left @ right
    together = left.unflatten(1, (of_keys, -1)).flatten(2, 3) @ right
    return together.unflatten(2, (heads // of_keys, -1)).flatten(1, 2)


def _window(
    mask: BlockMask | None, start: int, queries: int, keys: int
) -> tuple[int, int, tuple[Tensor, Tensor | None] | None]:
    """Return the range of keys that some queries see, and its blocks seen in part and wholly."""
    if mask is None:
        return 0, keys, None
    rows, columns = mask.BLOCK_SIZE
    some = slice(start // rows, -(-(start + queries) // rows))
    partial = dense(mask.kv_num_blocks[:, :, some], mask.kv_indices[:, :, some])
    whole = None
    if mask.full_kv_num_blocks is not None and mask.full_kv_indices is not None:
        whole = dense(mask.full_kv_num_blocks[:, :, some], mask.full_kv_indices[:, :, some])
    seen = partial if whole is None else partial | whole
    found = seen.amax(dim=(0, 1, 2)).nonzero().flatten().tolist() or [0]
    first, last = found[0], found[-1] + 1
    kept = partial[..., first:last], None if whole is None else whole[..., first:last]
    return first * columns, min(last * columns, keys), kept


def _seen(
    mask: BlockMask,
    positions: tuple[Tensor, Tensor, Tensor, Tensor],
    blocks: tuple[Tensor, Tensor | None],
) -> Tensor:
    """Return which pairs of positions are seen: (B or 1, H or 1, queries, keys)."""
    batch, head, query, key = positions
    rows, columns = mask.BLOCK_SIZE
    at_row = ((query - query[0]) // rows).unsqueeze(1)
    at_column = ((key - key[0]) // columns).unsqueeze(0)
    partial, whole = blocks
    seen: Tensor = partial[:, :, at_row, at_column].bool()
    if mask.mask_mod is not noop_mask:
        seen = seen & over_positions(mask.mask_mod)(batch, head, query, key)
    return seen if whole is None else seen | whole[:, :, at_row, at_column].bool()
