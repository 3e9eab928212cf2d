"""Who writes and reads what: the steps between a state and a storage."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tangrad_distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)


class WriteItemType(Enum):
    """Say what is written."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """Say what is read."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """Tell how many bytes an object has."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """Tell which piece of which tensor is written."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: tuple[int, ...]


@dataclass(frozen=True)
class WriteItem:
    """Describe one piece that a rank writes."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """Return how many bytes the piece has, None if it is no tensor."""
        if self.tensor_data is None:
            return None
        count = 1
        for size in self.tensor_data.chunk.sizes:
            count *= size
        return count * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """Describe one piece that a rank reads: from which stored piece, and to where."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: tuple[int, ...]
    storage_index: MetadataIndex
    storage_offsets: tuple[int, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class SavePlan:
    """List what a rank writes."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """List what a rank reads."""

    items: list[ReadItem] = field(default_factory=list)
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(ABC):
    """Decide what each rank writes.

    Called in this order: `set_up_planner` and `create_local_plan` on all ranks,
    `create_global_plan` on the coordinator, `finish_plan` and `resolve_data` on all.
    """

    @abstractmethod
    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take the state that is saved."""

    @abstractmethod
    def create_local_plan(self) -> SavePlan:
        """Return what this rank could write."""

    @abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Return what each rank shall write, and what the checkpoint then holds."""

    @abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Take this rank's part of the global plan."""

    @abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Any:
        """Return a piece's tensor, or a `BytesIO` of the object."""


class LoadPlanner:
    """Decide what each rank reads; called in the order of `SavePlanner`."""

    @abstractmethod
    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take the state that is loaded into."""

    @abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """Return what this rank reads."""

    @abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Return what each rank reads."""

    @abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Take this rank's part of the global plan."""

    @abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take an object that was read."""

    @abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Any:
        """Return where a piece goes."""

    @abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Any) -> None:
        """Be told that the piece has been written there."""
