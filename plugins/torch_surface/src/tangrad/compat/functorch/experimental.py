"""What `functorch.experimental` holds: names of `func`, and `vmap` by a number of chunks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tangrad.func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_, vmap
from tangrad.utils._pytree import broadcast_prefix, tree_flatten

__all__ = [
    "chunk_vmap",
    "functionalize",
    "hessian",
    "jacfwd",
    "jvp",
    "replace_all_batch_norm_modules_",
]


def chunk_vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    chunks: int = 2,
) -> Callable[..., Any]:
    """Return `vmap(func)` that computes a batch in so many chunks, one after the other.

    Args:
        func, in_dims, out_dims, randomness: as for `vmap`.
        chunks: a batch of n samples is divided into parts of at most n / chunks, rounded up.

    Raises:
        ValueError: chunks is less than 1, or what `vmap` raises.
    """
    if chunks < 1:
        raise ValueError(f"chunk_vmap: chunks must be at least 1, got {chunks}")

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten(args)
        dims = broadcast_prefix(in_dims, structure) or ()
        sizes = [x.shape[dim] for x, dim in zip(leaves, dims, strict=False) if dim is not None]
        chunk_size = -(-sizes[0] // chunks) if chunks > 1 and sizes and sizes[0] else None
        return vmap(func, in_dims, out_dims, randomness, chunk_size=chunk_size)(*args, **kwargs)

    return batched
