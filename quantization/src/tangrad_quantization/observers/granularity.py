"""What one scale is shared by, and how numbers are mapped; the vocabulary of PyTorch's exports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = [
    "Granularity",
    "MappingType",
    "PerAxis",
    "PerBlock",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "PerToken",
    "TorchAODType",
    "ZeroPointDomain",
    "get_block_size",
]


class MappingType(Enum):
    """How a range of numbers is laid over the integers.

    `SYMMETRIC` lays the larger magnitude over the whole range, `SYMMETRIC_NO_CLIPPING_ERR` takes
    the larger of the two scales that each side needs, `ASYMMETRIC` uses a zero point.
    """

    SYMMETRIC = auto()
    SYMMETRIC_NO_CLIPPING_ERR = auto()
    ASYMMETRIC = auto()


class ZeroPointDomain(Enum):
    """Whether a zero point is an integer, a number, or absent."""

    INT = auto()
    FLOAT = auto()
    NONE = auto()


class TorchAODType(Enum):
    """Integers of fewer than eight bits that no dtype stands for."""

    INT1 = auto()
    INT2 = auto()
    INT3 = auto()
    INT4 = auto()
    INT5 = auto()
    INT6 = auto()
    INT7 = auto()


@dataclass(frozen=True)
class Granularity:
    """What shares one scale; base of the classes below."""


@dataclass(frozen=True)
class PerBlock(Granularity):
    """Share a scale within blocks.

    Attributes:
        block_size: the extent of a block in each dimension.
    """

    block_size: tuple[int, ...]


@dataclass(frozen=True)
class PerTensor(Granularity):
    """Share one scale among all elements."""


@dataclass(frozen=True)
class PerAxis(Granularity):
    """Give each index of a dimension its own scale.

    Attributes:
        axis: the dimension.
    """

    axis: int


@dataclass(frozen=True)
class PerGroup(Granularity):
    """Share a scale within groups of neighbours in the last dimension.

    Attributes:
        group_size: elements of a group.
    """

    group_size: int


class PerRow(Granularity):
    """Give each row its own scale."""


class PerToken(Granularity):
    """Give each vector along the last dimension its own scale."""


def get_block_size(input_shape: tuple[int, ...], granularity: Granularity) -> tuple[int, ...]:
    """Return the extents of what shares one scale.

    Args:
        input_shape: shape of the tensor.
        granularity: what shares a scale.

    Raises:
        AssertionError: a class is given instead of an object, or groups for other than two
            dimensions.
        ValueError: the granularity is unknown.
    """
    if not isinstance(granularity, Granularity):
        raise AssertionError("Please provide an instance of Granularity, not subclass of it")
    ndim = len(input_shape)
    if isinstance(granularity, PerTensor):
        return input_shape
    if isinstance(granularity, PerAxis):
        axis = granularity.axis % ndim
        return tuple(1 if dim == axis else size for dim, size in enumerate(input_shape))
    if isinstance(granularity, (PerRow, PerToken)):
        return (1,) * (ndim - 1) + (input_shape[-1],)
    if isinstance(granularity, PerGroup):
        if ndim != 2:
            raise AssertionError(
                f"groups are of the rows of a matrix, and the input's shape is {input_shape}"
            )
        return (1, granularity.group_size)
    raise ValueError(f"Unsupported Granularity: {granularity}")
