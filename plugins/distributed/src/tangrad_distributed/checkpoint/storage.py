"""Where pieces go: the contract of a storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tangrad_distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tangrad_distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from tangrad_distributed.futures import Future


@dataclass(frozen=True)
class WriteResult:
    """Tell where a piece was written."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(ABC):
    """Write pieces, and at last what the checkpoint holds.

    Called in this order: `reset`, `set_up_storage_writer` and `prepare_local_plan` on all ranks,
    `prepare_global_plan` on the coordinator, `write_data` on all, `finish` on the coordinator.
    """

    @abstractmethod
    def reset(self, checkpoint_id: Any = None) -> None:
        """Be told which checkpoint comes next."""

    @abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Be told whether this rank coordinates."""

    @abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return what this rank could write, with remarks of the storage."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Return what ranks write, with remarks of the storage."""

    @abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's pieces."""

    @abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint valid, once all have written."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Tell whether the storage can have a checkpoint of that name."""

    def storage_meta(self) -> StorageMeta | None:
        """Return which checkpoint it is."""
        return None


class StorageReader(ABC):
    """Read what a checkpoint holds, and pieces; called in the order of `StorageWriter`."""

    @abstractmethod
    def reset(self, checkpoint_id: Any = None) -> None:
        """Be told which checkpoint comes next."""

    @abstractmethod
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return what the checkpoint holds."""

    @abstractmethod
    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Take what the checkpoint holds."""

    @abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return what this rank reads, with remarks of the storage."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return what ranks read, with remarks of the storage."""

    @abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read this rank's pieces, and hand them to the planner."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Tell whether the storage can have a checkpoint of that name."""
