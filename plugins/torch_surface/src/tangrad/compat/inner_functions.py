"""Functions of the top level that PyTorch keeps for itself, and libraries call all the same."""

from __future__ import annotations

from typing import Any

import tangrad

__name__ = "tangrad.functions"  # where PyTorch has it, which pickles say


def _assert_async(
    input: Any, assert_msg: str = "Expected Tensor with single nonzero value, but got zero"
) -> None:
    """Raise RuntimeError unless a tensor of one element is true: at once, on every device."""
    if not input:
        raise RuntimeError(assert_msg)


def _shape_as_tensor(self: Any) -> Any:
    """Return the shape as a tensor of int64."""
    return tangrad.tensor(list(self.shape), dtype=tangrad.int64)


def _convert_indices_from_coo_to_csr(input: Any, size: int, *, out_int32: bool = False) -> Any:
    """Return where each of `size` rows begins and the last ends, of sorted row numbers."""
    return tangrad.searchsorted(
        input, tangrad.arange(size + 1, dtype=input.dtype, device=input.device), out_int32=out_int32
    )


def _convert_indices_from_csr_to_coo(
    crow_indices: Any, col_indices: Any, *, out_int32: bool = False, transpose: bool = False
) -> Any:
    """Return row and column numbers, (2, N), of where rows begin and the column numbers."""
    rows = tangrad.arange(crow_indices.shape[0] - 1, device=crow_indices.device)
    pair = [rows.repeat_interleave(crow_indices.diff()), col_indices]
    return tangrad.stack(pair[::-1] if transpose else pair).to(
        tangrad.int32 if out_int32 else tangrad.int64
    )
