"""Checkpoints in a folder: a file of each rank, and one that makes them a checkpoint.

Files have names of their own in each save. The last step, a rename, puts the file in place that
names them; only then are those of the save before deleted. So a kill at any moment leaves the
last complete checkpoint, also where one is written over another.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import tangrad
from tangrad_distributed.checkpoint.default_planner import narrowed
from tangrad_distributed.checkpoint.encoding import StoredAt, decoded, encoded
from tangrad_distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from tangrad_distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from tangrad_distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from tangrad_distributed.engine import as_memory
from tangrad_distributed.futures import Future

METADATA = ".metadata"
SUFFIX = ".distcp"
_ALIGNED = 64


class FileSystemWriter(StorageWriter):
    """Write a checkpoint into a folder that all ranks reach.

    Args:
        path: the folder; it is made.
        single_file_per_rank: changes nothing: each rank writes one file.
        sync_files: wait until the disk has what was written; without it, a kill of the machine,
            not of a process, may leave a checkpoint whose checksums do not fit.
        thread_count: changes nothing.
        per_thread_copy_ahead: changes nothing.
        cache_staged_state_dict: changes nothing.
        overwrite: write over a checkpoint that is there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        self.path = Path(path)
        self.sync_files, self.overwrite = sync_files, overwrite
        self.save_id = ""

    @property
    def checkpoint_id(self) -> Path:
        """Return the folder."""
        return self.path

    def reset(self, checkpoint_id: Any = None) -> None:
        """Take another folder."""
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the folder is made by `prepare_local_plan`."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Make the folder.

        Raises:
            RuntimeError: a checkpoint is there that must not be written over.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / METADATA).exists():
            raise RuntimeError(f"there is a checkpoint in {self.path}, and overwrite is False")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Give each rank the name of its file."""
        self.save_id = secrets.token_hex(6)
        return [
            replace(plan, storage_data=f"__{rank}_{self.save_id}{SUFFIX}")
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's file."""
        done: Future[list[WriteResult]] = Future()
        done.set_result(self._write(plan, planner) if plan.items else [])
        return done

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        results, name = [], plan.storage_data
        with open(self.path / name, "wb") as file:
            for item in plan.items:
                content = _content(item, planner)
                file.write(b"\0" * (-file.tell() % _ALIGNED))
                at = StoredAt(name, file.tell(), len(content), zlib.crc32(content))
                file.write(content)
                results.append(WriteResult(item.index, len(content), at))
            if self.sync_files:
                file.flush()
                os.fsync(file.fileno())
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make what ranks wrote the checkpoint, and delete the files of the one before."""
        places = {one.index: one.storage_data for listed in results for one in listed}
        metadata.storage_data, metadata.storage_meta = places, self.storage_meta()
        wanted, made = self.path / METADATA, self.path / f"{METADATA}.{self.save_id}"
        with open(made, "wb") as file:
            file.write(encoded(metadata))
            if self.sync_files:
                file.flush()
                os.fsync(file.fileno())
        if self.sync_files:
            _sync_folder(self.path)
        os.replace(made, wanted)
        if self.sync_files:
            _sync_folder(self.path)
        self._clean({at.relative_path for at in places.values()})

    def _clean(self, kept: set[str]) -> None:
        """Delete the files of earlier saves, also of those that were killed."""
        for file in [*self.path.glob(f"__*{SUFFIX}"), *self.path.glob(f"{METADATA}.*")]:
            if file.name not in kept:
                with suppress(OSError):
                    file.unlink()

    def storage_meta(self) -> StorageMeta:
        """Return which checkpoint it is."""
        return StorageMeta(checkpoint_id=str(self.path), save_id=self.save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Tell whether it is a path."""
        return isinstance(checkpoint_id, Path) or "://" not in str(checkpoint_id)


def _sync_folder(path: Path) -> None:
    """Wait until the disk knows the names in a folder."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _content(item: WriteItem, planner: SavePlanner) -> memoryview:
    data = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        return memoryview(data.getbuffer())
    plain = data.detach().cpu().contiguous()
    return as_memory(plain.resolve_conj() if plain.is_complex() else plain)


class FileSystemReader(StorageReader):
    """Read a checkpoint from a folder; each piece's checksum is verified.

    Args:
        path: the folder.
    """

    def __init__(self, path: str | os.PathLike[str], *_: Any, **__: Any) -> None:
        self.path = Path(path)
        self.metadata: Metadata | None = None

    @property
    def checkpoint_id(self) -> Path:
        """Return the folder."""
        return self.path

    def reset(self, checkpoint_id: Any = None) -> None:
        """Take another folder."""
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.metadata = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return what the checkpoint holds.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is damaged.
        """
        file = self.path / METADATA
        if not file.exists():
            raise FileNotFoundError(
                f"there is no checkpoint in {self.path}: {file.name} is missing, which the last "
                "step of a save writes"
            )
        return decoded(file.read_bytes(), str(file))

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Take what the checkpoint holds."""
        self.metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read this rank's pieces, file by file.

        Raises:
            ValueError: a piece's checksum does not fit.
        """
        for name, items in _by_file(plan, self._places()):
            with open(self.path / name, "rb") as file:
                for place, wanted in items:
                    self._read(file, place, wanted, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _places(self) -> dict[MetadataIndex, StoredAt]:
        assert self.metadata is not None
        return self.metadata.storage_data

    def _read(
        self, file: Any, place: StoredAt, items: list[ReadItem], planner: LoadPlanner
    ) -> None:
        """Read one stored piece, and give each reader its part."""
        content = bytearray(place.length)
        file.seek(place.offset)
        count = file.readinto(content)
        key = items[0].storage_index.fqn
        if count != place.length or zlib.crc32(content) != place.checksum:
            raise ValueError(
                f"{self.path / place.relative_path} is damaged where it holds {key!r}: "
                "its checksum does not fit. Load an earlier checkpoint."
            )
        for item in items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(content))
                continue
            piece = self._piece(item.storage_index, content)
            target = planner.resolve_tensor(item)
            target.copy_(narrowed(piece, item.storage_offsets, item.lengths))
            planner.commit_tensor(item, target)

    def _piece(self, index: MetadataIndex, content: bytearray) -> Any:
        assert self.metadata is not None
        stored = self.metadata.state_dict_metadata[index.fqn]
        assert isinstance(stored, TensorStorageMetadata)
        sizes = next(one.sizes for one in stored.chunks if one.offsets == index.offset)
        dtype = stored.properties.dtype
        if not content:
            return tangrad.empty(sizes, dtype=dtype)
        return tangrad.frombuffer(content, dtype=dtype).reshape(sizes)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Tell whether it is a path."""
        return FileSystemWriter.validate_checkpoint_id(checkpoint_id)


def _by_file(
    plan: LoadPlan, places: dict[MetadataIndex, StoredAt]
) -> Iterator[tuple[str, list[tuple[StoredAt, list[ReadItem]]]]]:
    """Yield each file with the pieces wanted from it, in the order in which they lie there."""
    wanted: dict[StoredAt, list[ReadItem]] = {}
    for item in plan.items:
        wanted.setdefault(places[item.storage_index], []).append(item)
    files: dict[str, list[tuple[StoredAt, list[ReadItem]]]] = {}
    for place in sorted(wanted, key=lambda place: (place.relative_path, place.offset)):
        files.setdefault(place.relative_path, []).append((place, wanted[place]))
    yield from files.items()


def remove_checkpoint(path: str | os.PathLike[str]) -> None:
    """Delete a checkpoint's folder: first what makes it one, so that no half of it is loaded."""
    with suppress(FileNotFoundError):
        (Path(path) / METADATA).unlink()
    shutil.rmtree(path, ignore_errors=True)
