"""What a checkpoint holds, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tangrad


@dataclass(frozen=True)
class ChunkStorageMetadata:
    """Tell which part of a tensor is stored as one piece."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass
class TensorProperties:
    """Tell what a tensor is beside its shape."""

    dtype: Any = field(default_factory=tangrad.get_default_dtype)
    layout: Any = field(default=tangrad.strided)
    requires_grad: bool = False
    memory_format: Any = field(default=tangrad.contiguous_format)
    pin_memory: bool = False

    @staticmethod
    def create_from_tensor(tensor: Any) -> TensorProperties:
        """Return those of a tensor."""
        return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad)


@dataclass
class TensorStorageMetadata:
    """Describe a stored tensor and its pieces."""

    properties: TensorProperties
    size: tuple[int, ...]
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """Describe a stored object that is no tensor."""


@dataclass(frozen=True)
class MetadataIndex:
    """Name a piece: the key, and where the piece begins; `index` only speeds up finding it."""

    fqn: str
    offset: tuple[int, ...] | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.offset is not None:
            object.__setattr__(self, "offset", tuple(self.offset))


@dataclass
class StorageMeta:
    """Tell which checkpoint it is."""

    checkpoint_id: Any = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """Describe a whole checkpoint.

    Attributes:
        state_dict_metadata: key to what is stored.
        planner_data: key to the path in the nested state that it was made of.
        storage_data: piece to where the storage has it.
        storage_meta: which checkpoint it is.
        version: of the format.
    """

    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


class LocalPart:
    """Show a checkpoint the part that this rank holds of a tensor that ranks have divided.

    Saved parts are put together again by whoever loads: parts may be cut otherwise then, or the
    tensor may be loaded whole.

    Args:
        tensor: this rank's part.
        offsets: where it begins in the whole, for each dimension.
        size: the shape of the whole.

    Raises:
        ValueError: the part does not lie within the whole.
    """

    def __init__(self, tensor: Any, offsets: Sequence[int], size: Sequence[int]) -> None:
        self.tensor, self.offsets, self.size = tensor, tuple(offsets), tuple(size)
        dims = {len(self.offsets), len(self.size), tensor.dim()}
        ends = zip(self.offsets, tensor.shape, self.size, strict=False)
        if len(dims) != 1 or any(o < 0 or o + n > whole for o, n, whole in ends):
            raise ValueError(
                f"LocalPart: a part of shape {list(tensor.shape)} at {self.offsets} does not lie "
                f"within {self.size}"
            )

    def chunk(self) -> ChunkStorageMetadata:
        """Return which part it is."""
        return ChunkStorageMetadata(self.offsets, tuple(self.tensor.shape))
