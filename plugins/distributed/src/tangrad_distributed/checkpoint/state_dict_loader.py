"""Load a state on all ranks, whatever number of ranks saved it."""

from __future__ import annotations

from typing import Any

from tangrad_distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    EmptyStateDictLoadPlanner,
)
from tangrad_distributed.checkpoint.exchange import Exchange
from tangrad_distributed.checkpoint.filesystem import FileSystemReader
from tangrad_distributed.checkpoint.metadata import Metadata
from tangrad_distributed.checkpoint.planner import LoadPlan, LoadPlanner
from tangrad_distributed.checkpoint.state_dict_saver import _group
from tangrad_distributed.checkpoint.stateful import Stateful, states_of
from tangrad_distributed.checkpoint.storage import StorageReader


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Load a state into tensors that are there; all ranks call it.

    Args:
        state_dict: its tensors are written, its other leaves replaced; whatever has
            `load_state_dict` is given its state. Ranks may have different keys and parts.
        checkpoint_id: a folder, unless `storage_reader` knows it.
        storage_reader: by default a `FileSystemReader`.
        planner: by default a `DefaultLoadPlanner`.
        process_group: None for all ranks.
        no_dist: this process loads alone.

    Raises:
        CheckpointException: it failed on some rank: a key is missing, a shape is another one, a
            file is damaged. Tensors may have been written then.
        ValueError: neither `checkpoint_id` nor `storage_reader` is given.
    """
    state = states_of(state_dict)
    exchange = Exchange(_group(process_group, no_dist))
    _load(state, _reader(checkpoint_id, storage_reader), planner, exchange)
    for key, value in state_dict.items():
        if isinstance(value, Stateful):
            value.load_state_dict(state[key])
        else:
            state_dict[key] = state[key]


def _load(
    state: dict[str, Any],
    reader: StorageReader,
    planner: LoadPlanner | None,
    exchange: Exchange,
) -> None:
    chosen = DefaultLoadPlanner() if planner is None else planner

    def local_step() -> LoadPlan:
        metadata: Metadata = reader.read_metadata()
        chosen.set_up_planner(state, metadata, exchange.is_coordinator)
        reader.set_up_storage_reader(metadata, exchange.is_coordinator)
        return reader.prepare_local_plan(chosen.create_local_plan())

    def global_step(plans: list[LoadPlan]) -> list[LoadPlan]:
        return reader.prepare_global_plan(chosen.create_global_plan(plans))

    plan = exchange.each_then_one("plan", local_step, global_step)

    def read() -> None:
        reader.read_data(chosen.finish_plan(plan), chosen).wait()

    exchange.everywhere("read", read)


def _reader(checkpoint_id: Any, storage_reader: StorageReader | None) -> StorageReader:
    if storage_reader is None:
        if checkpoint_id is None:
            raise ValueError("load: give a checkpoint_id, or a storage_reader that knows it")
        return FileSystemReader(checkpoint_id)
    storage_reader.reset(checkpoint_id)
    return storage_reader


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """Load a state, as `load` does: its older form, which calls no `load_state_dict`."""
    storage_reader.reset()
    exchange = Exchange(_group(process_group, no_dist), coordinator_rank)
    _load(state_dict, storage_reader, planner, exchange)


def load_whole(checkpoint_id: Any, keys: set[str] | None = None) -> dict[str, Any]:
    """Return all that a checkpoint holds, in this process alone.

    Args:
        checkpoint_id: its folder.
        keys: flat keys, or beginnings of them; None for all.
    """
    state: dict[str, Any] = {}
    planner = EmptyStateDictLoadPlanner(keys)
    _load(state, FileSystemReader(checkpoint_id), planner, Exchange(None))
    return state
