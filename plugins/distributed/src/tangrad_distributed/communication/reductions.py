"""How the numbers of all ranks become one, and the options of collectives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, IntEnum
from typing import Any

import tangrad
from tangrad_distributed.errors import CollectiveArgumentError


class RedOpType(IntEnum):
    """Kinds of reduction."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8
    UNUSED = 9

    __str__ = Enum.__str__


class ReduceOp:
    """Name a reduction: `ReduceOp.SUM` and its like.

    Args:
        op: the kind.
        factor: for `PREMUL_SUM`, what each rank's numbers are multiplied by before they are added.
    """

    RedOpType = RedOpType
    SUM = RedOpType.SUM
    AVG = RedOpType.AVG
    PRODUCT = RedOpType.PRODUCT
    MIN = RedOpType.MIN
    MAX = RedOpType.MAX
    BAND = RedOpType.BAND
    BOR = RedOpType.BOR
    BXOR = RedOpType.BXOR
    PREMUL_SUM = RedOpType.PREMUL_SUM

    def __init__(self, op: Any = RedOpType.SUM, factor: Any = None) -> None:
        self.op: Any = RedOpType(op.op if isinstance(op, ReduceOp) else op)
        self.factor = factor

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ReduceOp):
            return self.op == other.op and self.factor is other.factor
        return isinstance(other, RedOpType) and self.op == other

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        return repr(self.op)


def premul_sum(factor: Any) -> ReduceOp:
    """Return the reduction that multiplies each rank's numbers by a factor, then adds them."""
    return ReduceOp(RedOpType.PREMUL_SUM, factor)


def reduction(op: Any, name: str) -> ReduceOp:
    """Return `op` as a `ReduceOp`.

    Raises:
        TypeError: it names no reduction.
    """
    if isinstance(op, ReduceOp):
        return op
    if isinstance(op, RedOpType):
        return _PLAIN[op]
    raise TypeError(f"{name}: op must be a ReduceOp such as ReduceOp.SUM, not {op!r}")


class _OlderReduceOp:
    """Show the kinds of reduction under the name that PyTorch had for them first."""

    def __getattr__(self, name: str) -> Any:
        kind = getattr(RedOpType, name)
        warnings.warn(
            "`torch.distributed.reduce_op` is deprecated, please use "
            "`torch.distributed.ReduceOp` instead",
            FutureWarning,
            stacklevel=2,
        )
        return kind


reduce_op = _OlderReduceOp()

_PLAIN = {kind: ReduceOp(kind) for kind in RedOpType}

_COMBINE: dict[RedOpType, Callable[[Any, Any], Any]] = {
    RedOpType.SUM: lambda a, b: a + b,
    RedOpType.AVG: lambda a, b: a + b,
    RedOpType.PREMUL_SUM: lambda a, b: a + b,
    RedOpType.PRODUCT: lambda a, b: a * b,
    RedOpType.MIN: lambda a, b: tangrad.minimum(a, b),
    RedOpType.MAX: lambda a, b: tangrad.maximum(a, b),
    RedOpType.BAND: lambda a, b: a & b,
    RedOpType.BOR: lambda a, b: a | b,
    RedOpType.BXOR: lambda a, b: a ^ b,
}
_BITS = (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR)
_ORDER = (RedOpType.MIN, RedOpType.MAX)


# The same with `out=`: what is large is written where it belongs, not to fresh memory first.
_COMBINE_INTO: dict[RedOpType, Callable[..., Any]] = {
    RedOpType.SUM: tangrad.add,
    RedOpType.AVG: tangrad.add,
    RedOpType.PREMUL_SUM: tangrad.add,
    RedOpType.PRODUCT: tangrad.mul,
    RedOpType.MIN: tangrad.minimum,
    RedOpType.MAX: tangrad.maximum,
    RedOpType.BAND: tangrad.bitwise_and,
    RedOpType.BOR: tangrad.bitwise_or,
    RedOpType.BXOR: tangrad.bitwise_xor,
}
_LARGE = 4096


def check_reduction(op: ReduceOp, dtype: Any, name: str) -> None:
    """Refuse a reduction that a dtype does not have.

    Raises:
        ValueError: bits of floating-point numbers, or the order of complex ones, are asked for.
    """
    if op.op in _BITS and (dtype.is_floating_point or dtype.is_complex):
        raise CollectiveArgumentError(
            f"{name}: ReduceOp.{op.op.name} needs integers or bool, got {dtype}"
        )
    if op.op in _ORDER and dtype.is_complex:
        raise CollectiveArgumentError(
            f"{name}: ReduceOp.{op.op.name} needs numbers with an order, got {dtype}"
        )
    if op.op == RedOpType.AVG and not (dtype.is_floating_point or dtype.is_complex):
        raise CollectiveArgumentError(
            f"{name}: ReduceOp.AVG needs floating-point numbers, got {dtype}"
        )


def fold(op: ReduceOp, parts: Sequence[Any], into: Any) -> None:
    """Reduce the ranks' numbers in a fixed tree, and write the result.

    Neighbours are combined, then neighbours of those, in the order of ranks: every engine and
    every algorithm gives the same bits.

    Args:
        op: the reduction.
        parts: a tensor of each rank, all of one shape and dtype.
        into: where the result goes; may be one of the parts.
    """
    combine = _COMBINE[op.op]
    level = list(parts)
    if op.op == RedOpType.PREMUL_SUM:
        level = [part * op.factor for part in level]
    write = _COMBINE_INTO[op.op]
    while len(level) > 1:
        if len(level) == 2 and into.numel() > _LARGE:
            level = [write(*level, out=into)]
            break
        pairs = zip(level[0::2], level[1::2], strict=False)
        odd = level[len(level) - len(level) % 2 :]
        level = [combine(a, b) for a, b in pairs] + odd
    result = level[0]
    if op.op == RedOpType.AVG:
        tangrad.div(result, len(parts), out=into)
    elif result is not into:
        into.copy_(result)


@dataclass
class _Options:
    timeout: timedelta | None = None
    asyncOp: bool = True


@dataclass
class AllreduceOptions(_Options):
    """Say how to reduce."""

    reduceOp: Any = RedOpType.SUM


@dataclass
class AllreduceCoalescedOptions(AllreduceOptions):
    """Say how to reduce several tensors."""


@dataclass
class ReduceScatterOptions(AllreduceOptions):
    """Say how to reduce what is scattered."""


@dataclass
class ReduceOptions(AllreduceOptions):
    """Say how and where to reduce."""

    rootRank: int = 0
    rootTensor: int = 0


@dataclass
class BroadcastOptions(_Options):
    """Say which rank sends."""

    rootRank: int = 0
    rootTensor: int = 0


@dataclass
class GatherOptions(_Options):
    """Say which rank receives."""

    rootRank: int = 0


@dataclass
class ScatterOptions(_Options):
    """Say which rank sends."""

    rootRank: int = 0


@dataclass
class AllToAllOptions(_Options):
    """Hold the options of `all_to_all`."""


@dataclass
class BarrierOptions(_Options):
    """Hold the options of `barrier`."""

    device_ids: list[int] = field(default_factory=list)
