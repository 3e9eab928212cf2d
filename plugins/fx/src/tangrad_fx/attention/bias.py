"""Causal biases of attention that need no matrix: `nn.attention.bias`."""

from __future__ import annotations

import warnings
from enum import IntEnum
from typing import Any

import tangrad
from tangrad.nn import functional as F

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """Which corner the diagonal of a causal mask that is no square begins in.

    UPPER_LEFT: query i sees keys 0 ... i. LOWER_RIGHT: the last query sees all keys, as where the
    queries are the newest of the keys' positions.
    """

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(tangrad.Tensor):
    """A causal mask for `scaled_dot_product_attention`, made only where it has to be.

    Args:
        variant: where its diagonal begins.
        seq_len_q: number of queries.
        seq_len_kv: number of keys.

    Raises:
        TypeError: the variant is none.
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        """Return a tensor of the mask's shape without its elements."""
        if not isinstance(variant, CausalVariant):
            raise TypeError(
                f"CausalBias: the variant must be a CausalVariant, got {type(variant).__name__}"
            )
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warnings.warn(
                f"CausalBias: {seq_len_q} queries are more than {seq_len_kv} keys, so the first "
                f"queries see no key, and their rows are NaN",
                stacklevel=3,
            )
        bare = tangrad.empty(1, dtype=tangrad.bool).expand(seq_len_q, seq_len_kv)
        made = bare.as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        pass

    def _materialize(self, device: Any = None) -> Any:
        """Return the mask, True where a query sees a key."""
        offset = 0
        if self.variant == CausalVariant.LOWER_RIGHT:
            offset = self.seq_len_kv - self.seq_len_q
        ones = tangrad.ones(self.seq_len_q, self.seq_len_kv, device=device, dtype=tangrad.bool)
        return tangrad.tril(ones, diagonal=offset)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._materialize())

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Attend by it; to all else it is the mask that it stands for."""
        given = dict(kwargs or {})
        if getattr(func, "__name__", "") == "scaled_dot_product_attention":
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            return cls._attend(**dict(zip(names, args, strict=False)), **given)
        if getattr(func, "__name__", "") in ("__get__", "__set__"):
            return super().__torch_function__(func, types, args, given)
        placed = (a._materialize() if isinstance(a, CausalBias) else a for a in args)
        named = {k: a._materialize() if isinstance(a, CausalBias) else a for k, a in given.items()}
        return func(*placed, **named)

    @staticmethod
    def _attend(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **rest: Any,
    ) -> Any:
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        lengths = query.shape[-2], key.shape[-2]
        if lengths != (attn_mask.seq_len_q, attn_mask.seq_len_kv):
            raise RuntimeError(
                f"scaled_dot_product_attention: the bias is of {attn_mask.seq_len_q} queries and "
                f"{attn_mask.seq_len_kv} keys, there are {lengths[0]} and {lengths[1]}"
            )
        same = lengths[0] == lengths[1] or attn_mask.variant == CausalVariant.UPPER_LEFT
        if same:
            return F.scaled_dot_product_attention(
                query, key, value, None, dropout_p, is_causal=True, **rest
            )
        mask = attn_mask._materialize(query.device)
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, **rest)


def causal_upper_left(*size: int) -> CausalBias:
    """Return a causal bias of (queries, keys) whose diagonal begins in the upper left corner.

    Raises:
        RuntimeError: there are not two sizes.
    """
    return CausalBias(CausalVariant.UPPER_LEFT, *_two(size))


def causal_lower_right(*size: int) -> CausalBias:
    """Return a causal bias of (queries, keys) whose diagonal ends in the lower right corner.

    Raises:
        RuntimeError: there are not two sizes.
    """
    return CausalBias(CausalVariant.LOWER_RIGHT, *_two(size))


def _two(size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise RuntimeError(f"a causal bias has two sizes, (queries, keys), got {size}")
    return size[0], size[1]
