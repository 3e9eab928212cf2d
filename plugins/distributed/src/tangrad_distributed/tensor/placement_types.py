"""The ways in which a tensor lies along one dimension of a mesh."""

from __future__ import annotations

from dataclasses import dataclass

from tangrad_distributed.absent import absent


class Placement:
    """Say how a tensor is placed along one dimension of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Return whether ranks hold pieces, along a dimension of the tensor if one is given."""
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        """Return whether every rank holds the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Return whether ranks hold terms of a reduction, of a given one if it is named."""
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Place a piece on each rank.

    Attributes:
        dim: the dimension of the tensor that is cut.
    """

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Place the whole tensor on each rank."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Place on each rank a term of a reduction that is still to be made.

    Attributes:
        reduce_op: "sum", "avg", "product", "max" or "min".
    """

    reduce_op: str = "sum"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


_StridedShard = absent(
    "tensor.placement_types",
    "_StridedShard",
    "tensors that are spread over ranks are not there yet",
)
