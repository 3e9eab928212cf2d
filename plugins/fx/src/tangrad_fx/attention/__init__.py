"""Attention whose scores and mask are functions: `torch.nn.attention.flex_attention`.

Scores are made for some rows of queries at a time, from the blocks of keys that those rows see; in
the derivative they are made again. So what is held at once does not grow with the square of the
length. Functions are asked for all positions at once, by `vmap`.
"""

from __future__ import annotations

from tangrad_fx.attention.block_mask import (
    _DEFAULT_SPARSE_BLOCK_SIZE,
    BlockMask,
    create_block_mask,
)
from tangrad_fx.attention.flexible import AuxOutput, AuxRequest, FlexKernelOptions, flex_attention
from tangrad_fx.attention.positions import and_masks, create_mask, noop_mask, or_masks

__all__ = [
    "_DEFAULT_SPARSE_BLOCK_SIZE",
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]
