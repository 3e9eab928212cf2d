"""`BlockMask`: which blocks of queries and keys see each other, in part or wholly."""

from __future__ import annotations

import itertools
import math
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.utils import _pytree
from tangrad_fx.attention.positions import (
    MOST_AT_ONCE,
    MaskMod,
    noop_mask,
    place,
    rows_of_mask,
    takes_score,
)

_DEFAULT_SPARSE_BLOCK_SIZE = 128
_TENSORS = (
    "kv_num_blocks",
    "kv_indices",
    "full_kv_num_blocks",
    "full_kv_indices",
    "q_num_blocks",
    "q_indices",
    "full_q_num_blocks",
    "full_q_indices",
    "dq_write_order",
    "dq_write_order_full",
    "dq_kv_order",
)
Index = int | slice | Tensor


def no_sliced_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Stand for the mask of a `BlockMask` of which a part was taken: its positions are others.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")


def dense(counts: Tensor, indices: Tensor) -> Tensor:
    """Return listed blocks as a matrix of ones and zeros.

    Args:
        counts: int32, (..., rows): how many of a row's indices count.
        indices: int32, (..., rows, columns): the columns of a row's blocks, in the first places.
    """
    columns = indices.shape[-1]
    counted = tangrad.arange(columns, device=indices.device) < counts.unsqueeze(-1)
    spilled = indices.new_zeros((*indices.shape[:-1], columns + 1))
    spilled.scatter_(-1, tangrad.where(counted, indices, columns).long(), 1)
    return spilled[..., :columns].contiguous()


def ordered(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return numbers and columns of the blocks in each row of a matrix of ones and zeros."""
    matrix = matrix.to(tangrad.int32)
    indices = tangrad.argsort(matrix, dim=-1, descending=True, stable=True)
    return matrix.sum(-1).to(tangrad.int32), indices.to(tangrad.int32)


def _transposed(counts: Tensor | None, indices: Tensor | None) -> tuple[Any, Any]:
    if counts is None or indices is None:
        return None, None
    return ordered(dense(counts, indices).transpose(-2, -1))


class BlockMask:
    """Say which blocks of keys the blocks of queries see.

    Args:
        seq_lengths: numbers of queries and keys.
        kv_num_blocks, kv_indices: the blocks seen in part: int32, (B, H, rows) and (B, H, rows,
            columns). What `mask_mod` shows of them is seen.
        full_kv_num_blocks, full_kv_indices: the blocks seen wholly, in the same form, or None.
        q_num_blocks, q_indices, full_q_num_blocks, full_q_indices: the same by keys, or None.
        BLOCK_SIZE: numbers of queries and of keys in a block.
        mask_mod: of (batch, head, query, key): a bool.
        dq_write_order, dq_write_order_full, dq_kv_order, dq_kv_order_spt: an order of work for
            kernels that PyTorch has; kept.

    Raises:
        RuntimeError: `kv_indices` has less than two dimensions.
        AssertionError: numbers are given without indices, or indices without numbers.
        ValueError: `dq_write_order_full` comes without `dq_write_order`.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod: MaskMod = noop_mask,
        *,
        dq_write_order: Tensor | None = None,
        dq_write_order_full: Tensor | None = None,
        dq_kv_order: Tensor | None = None,
        dq_kv_order_spt: bool | None = None,
    ) -> None:
        _require_both("kv", kv_num_blocks, kv_indices)
        _require_both("full_kv", full_kv_num_blocks, full_kv_indices)
        _require_both("full_q", full_q_num_blocks, full_q_indices)
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if dq_write_order_full is not None and dq_write_order is None:
            raise ValueError("dq_write_order_full requires dq_write_order")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.dq_write_order, self.dq_write_order_full = dq_write_order, dq_write_order_full
        self.dq_kv_order, self.dq_kv_order_spt = dq_kv_order, dq_kv_order_spt
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
        *,
        dq_write_order: Tensor | None = None,
        dq_write_order_full: Tensor | None = None,
        dq_kv_order: Tensor | bool | None = None,
    ) -> BlockMask:
        """Make a mask of the blocks of keys that are seen; arguments as those of the class.

        Args:
            seq_lengths: as many as fill all blocks by default.
            compute_q_blocks: whether to list the blocks by keys too.
            mask_mod: None where all of the listed blocks is seen.
            kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, BLOCK_SIZE,
                dq_write_order, dq_write_order_full, dq_kv_order: see the class.

        Raises:
            RuntimeError: `kv_indices` has less than two dimensions.
            AssertionError: numbers are given without indices, or indices without numbers.
        """
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        _require_both("full_kv", full_kv_num_blocks, full_kv_indices)
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        if seq_lengths is None:
            seq_lengths = kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1]
        by_keys: tuple[Any, ...] = (None,) * 4
        if compute_q_blocks:
            by_keys = (
                *_transposed(kv_num_blocks, kv_indices),
                *_transposed(full_kv_num_blocks, full_kv_indices),
            )
        return cls(
            seq_lengths,
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            *by_keys,
            BLOCK_SIZE=size,
            mask_mod=mask_mod or noop_mask,
            dq_write_order=dq_write_order,
            dq_write_order_full=dq_write_order_full,
            dq_kv_order=dq_kv_order if isinstance(dq_kv_order, Tensor) else None,
            dq_kv_order_spt=dq_kv_order if isinstance(dq_kv_order, bool) else None,
        )

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Return all that the mask holds; pairs of numbers as single ones if `flatten`."""
        lengths: tuple[Any, ...] = tuple(self.seq_lengths) if flatten else (self.seq_lengths,)
        size: tuple[Any, ...] = tuple(self.BLOCK_SIZE) if flatten else (self.BLOCK_SIZE,)
        tensors = (getattr(self, name) for name in _TENSORS)
        return (*lengths, *tensors, self.dq_kv_order_spt, *size, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of batches, heads, queries and keys."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> BlockMask:
        """Take some batches, heads and rows of blocks; the mask's function is lost with it."""
        given = index if isinstance(index, tuple) else (index,)
        padded = (*given, slice(None), slice(None), slice(None))[:3]
        # An integer keeps its dimension.
        at = tuple(
            slice(i % n, i % n + 1) if isinstance(i, int) and -n <= i < n else i
            for i, n in zip(padded, self.kv_num_blocks.shape[:3], strict=True)
        )
        full = self.full_kv_num_blocks, self.full_kv_indices
        return BlockMask.from_kv_blocks(
            self.kv_num_blocks[at],
            self.kv_indices[at],
            *(None if t is None else t[at] for t in full),
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=no_sliced_mask,
            seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Return the upper left corner of the mask, for fewer queries and keys."""
        rows = -(-new_q_len // self.BLOCK_SIZE[0])
        columns = -(-new_kv_len // self.BLOCK_SIZE[1])

        def corner(counts: Tensor | None, indices: Tensor | None) -> tuple[Any, Any]:
            if counts is None or indices is None:
                return None, None
            return ordered(dense(counts, indices)[..., :rows, :columns])

        return BlockMask.from_kv_blocks(
            *corner(self.kv_num_blocks, self.kv_indices),
            *corner(self.full_kv_num_blocks, self.full_kv_indices),
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=self.mask_mod,
            seq_lengths=(new_q_len, new_kv_len),
            compute_q_blocks=self.q_indices is not None,
        )

    def numel(self) -> int:
        """Return the number of pairs of positions, seen or not."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Return how much lies in blocks that are not seen, in percent."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """Return the blocks that are seen, wholly or in part, as int32 ones in a matrix of them."""
        seen = dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return seen
        return seen | dense(self.full_kv_num_blocks, self.full_kv_indices)

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Return a picture of the blocks for each batch and head.

        Args:
            grid_size: the most rows and columns of it; -1 for as many as there are blocks.
            limit: the most pictures.
        """
        matrix = self.to_dense()
        *batches, rows, columns = matrix.shape
        if grid_size == -1:
            grid_size = rows, columns
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        pictures = []
        for k, at in enumerate(itertools.product(*map(range, batches))):
            if k == limit:
                pictures.append(
                    "...\nTo print out more, set BlockMask.to_string(limit=N)\n"
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or head"
                )
                break
            pictures.append(_picture(matrix[at], at, *most))
        return "\n".join(pictures)

    def to(self, device: Any) -> BlockMask:
        """Return the mask with its tensors on a device."""
        tensors = {name: getattr(self, name) for name in _TENSORS}
        moved = {name: None if t is None else t.to(device) for name, t in tensors.items()}
        return BlockMask(
            self.seq_lengths,
            **moved,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=self.mask_mod,
            dq_kv_order_spt=self.dq_kv_order_spt,
        )

    def __str__(self) -> str:
        return (
            f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n"
            f"{self.to_string().strip()}\n)"
        )

    def __repr__(self) -> str:
        shapes = [(name, getattr(self, name)) for name in _TENSORS[:8]]
        lines = [f"{name}={None if t is None else t.shape}" for name, t in shapes]
        lines += [
            f"BLOCK_SIZE={self.BLOCK_SIZE}",
            f"shape={self.shape}",
            f"sparsity={self.sparsity():.2f}%",
            f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}",
        ]
        return "BlockMask(\n    " + ",\n    ".join(lines) + "\n)"

    def _flatten(self) -> tuple[list[Any], Any]:
        rest = self.seq_lengths, self.BLOCK_SIZE, self.mask_mod, self.dq_kv_order_spt
        return [getattr(self, name) for name in _TENSORS], rest

    @classmethod
    def _unflatten(cls, leaves: Any, rest: Any) -> BlockMask:
        lengths, size, mask_mod, spt = rest
        named = dict(zip(_TENSORS, leaves, strict=True))
        return cls(lengths, **named, BLOCK_SIZE=size, mask_mod=mask_mod, dq_kv_order_spt=spt)


_pytree.register_pytree_node(BlockMask, BlockMask._flatten, BlockMask._unflatten)


def _require_both(name: str, counts: Tensor | None, indices: Tensor | None) -> None:
    if (counts is None) != (indices is None):
        raise AssertionError(
            f"{name}_num_blocks and {name}_indices must be both provided or omitted"
        )


def _picture(matrix: Tensor, at: tuple[int, ...], most_rows: int, most_columns: int) -> str:
    rows, columns = matrix.shape
    row_step, column_step = max(1, -(-rows // most_rows)), max(1, -(-columns // most_columns))
    lines = [f"{at}"]
    for r in range(0, rows, row_step):
        parts = [
            float(matrix[r : r + row_step, c : c + column_step].float().mean())
            for c in range(0, columns, column_step)
        ]
        lines.append("".join(2 * ("█" if p == 1 else " " if p == 0 else "░") for p in parts))
    return "\n".join(lines) + "\n"


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """Ask a mask for all pairs of positions and keep which blocks are seen.

    Args:
        mask_mod: of (batch, head, query, key): a bool.
        B, H: numbers of batches and heads, None for one that serves all.
        Q_LEN, KV_LEN: numbers of queries and keys.
        device: where; the current accelerator or "cpu" by default.
        BLOCK_SIZE: numbers of queries and of keys in a block.
        separate_full_blocks: whether to list apart the blocks that are seen wholly.
        _compile, compute_dq_write_order, dq_kv_order: accepted; nothing here is ordered by them.

    Raises:
        AssertionError: `mask_mod` does not take four arguments.
    """
    if takes_score(mask_mod):
        raise AssertionError(f"create_block_mask requires a mask_mod function! Got {mask_mod}")
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    sizes = B or 1, H or 1, Q_LEN, KV_LEN
    step = rows * max(1, MOST_AT_ONCE // (sizes[0] * sizes[1] * KV_LEN * rows))
    parts = []
    for start in range(0, Q_LEN, step):
        stop = min(start + step, Q_LEN)
        mask = rows_of_mask(mask_mod, sizes, start, stop, place(device))
        parts.append(_seen_per_block(mask, rows, columns))
    counts = tangrad.cat(parts, dim=2)
    whole = counts == rows * columns
    partial = (counts > 0) & ~whole if separate_full_blocks else counts > 0
    return BlockMask.from_kv_blocks(
        *ordered(partial),
        *(ordered(whole) if separate_full_blocks else (None, None)),
        BLOCK_SIZE=(rows, columns),
        mask_mod=mask_mod,
        seq_lengths=(Q_LEN, KV_LEN),
    )


def _seen_per_block(mask: Tensor, rows: int, columns: int) -> Tensor:
    """Return how many pairs of each block are seen."""
    queries, keys = mask.shape[-2:]
    padded = tangrad.nn.functional.pad(mask, (0, -keys % columns, 0, -queries % rows))
    blocks = padded.unflatten(-1, (-1, columns)).unflatten(-3, (-1, rows))
    return blocks.sum(dim=(-3, -1))
