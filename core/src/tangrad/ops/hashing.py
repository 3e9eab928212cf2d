"""Hashes of tensors."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, reduction
from tangrad.ops.definition.signature import Dims, Tensor

xor_sum = reduction(
    "xor_sum(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
    map="self",
    fold="xor",
    dtypes="integral",
    vjp="none: integer output",
    function=False,
    method=False,
    oracle=lambda torch, x, dim=None, keepdim=False: torch.hash_tensor(
        x, () if dim is None else dim, keepdim=keepdim
    ).view(torch.int64).to(x.dtype),
    samples=lambda s: (
        [
            s(s.tensor(3, 4)),
            s(s.tensor(2, 3, 4, strided=True), (0, -1)),
            s(s.tensor(3, 4), 1, keepdim=True),
            s(s.tensor()),
        ]
        if s.is_integral
        else []
    ),
    errors=lambda s: [(s(s.tensor(3, dtype="int64"), 1), IndexError, "out of range")],
    doc="Combine integers over dimensions by exclusive or.",
)  # fmt: skip


def _as_bits(self: Any) -> Any:
    if self.dtype.is_floating_point:
        return self.double().view(tangrad.int64)
    return self.view(tangrad.int64) if self.dtype is tangrad.uint64 else self.long()


@composite(
    strict_out_dtype=True,
    out=True,
    dtypes="bool integral floating",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(2, 3, 4, strided=True), (0, -1)),
        s(s.tensor(3, 4), -1, keepdim=True),
        s(s.tensor(3, 4), None),
        s(s.tensor()),
    ],
    errors=lambda s: [
        (s(s.tensor(3), mode=1), RuntimeError, "mode"),
        (s(s.tensor(0)), RuntimeError, "numel"),
        (s(s.tensor(0, 3), 0), IndexError, "non-zero size"),
        (s(s.tensor(2, dtype="complex64")), NotImplementedError, "complex64"),
    ],
)
def hash_tensor(
    self: Tensor, dim: Dims | None = (), *, keepdim: bool = False, mode: int = 0
) -> Tensor:
    """Combine the bits of all elements by exclusive or.

    Elements are widened to 64 bits (float64 or an integer) first.

    Args:
        dim: what to reduce. Default: all dimensions.
        keepdim: whether reduced dimensions stay, with size 1.
        mode: 0, the only one.

    Returns:
        A tensor of uint64.
    """
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}; 0, exclusive or, is the only one")
    if self.dtype.is_complex:
        raise NotImplementedError(f"hash_tensor is not implemented for {self.dtype}")
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if not dims and self.numel() == 0:
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify "
            "the reduction dim with the 'dim' argument."
        )
    for each in dims if self.ndim else ():
        if self.shape[each] == 0:
            raise IndexError(f"hash_tensor: Expected reduction dim {each} to have non-zero size.")
    return xor_sum(_as_bits(self), dims or None, keepdim).view(tangrad.uint64)
