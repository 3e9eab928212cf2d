"""Save a state from all ranks."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any

import tangrad
from tangrad_distributed.checkpoint.default_planner import DefaultSavePlanner
from tangrad_distributed.checkpoint.exchange import Exchange
from tangrad_distributed.checkpoint.filesystem import FileSystemWriter
from tangrad_distributed.checkpoint.metadata import LocalPart, Metadata
from tangrad_distributed.checkpoint.planner import SavePlan, SavePlanner
from tangrad_distributed.checkpoint.stateful import states_of
from tangrad_distributed.checkpoint.storage import StorageWriter
from tangrad_distributed.world import default_group, is_initialized, new_group


class AsyncCheckpointerType(Enum):
    """Say what saves while the caller goes on."""

    THREAD = "thread"
    PROCESS = "process"


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Save a state; all ranks call it.

    What ranks have alike is written once; a `LocalPart` is put together with those of the others
    when it is loaded. Whatever has `state_dict` and `load_state_dict` is asked for its state.

    Args:
        state_dict: nested dicts and lists of tensors and plain objects.
        checkpoint_id: a folder, unless `storage_writer` knows it.
        storage_writer: by default a `FileSystemWriter`.
        planner: by default a `DefaultSavePlanner`.
        process_group: None for all ranks.
        no_dist: this process saves alone.
        use_collectives: changes nothing.

    Returns:
        What the checkpoint holds.

    Raises:
        CheckpointException: it failed on some rank; the checkpoint before is as it was.
        ValueError: neither `checkpoint_id` nor `storage_writer` is given.
    """
    exchange = Exchange(_group(process_group, no_dist))
    return _save(states_of(state_dict), checkpoint_id, storage_writer, planner, exchange)


def _group(process_group: Any, no_dist: bool) -> Any:
    if no_dist or not (is_initialized() or process_group is not None):
        return None
    return default_group("save") if process_group is None else process_group


def _save(
    state: dict[str, Any],
    checkpoint_id: Any,
    storage_writer: StorageWriter | None,
    planner: SavePlanner | None,
    exchange: Exchange,
) -> Metadata:
    writer = _writer(checkpoint_id, storage_writer)
    chosen = DefaultSavePlanner() if planner is None else planner
    whole: list[Metadata] = []

    def local_step() -> SavePlan:
        chosen.set_up_planner(state, writer.storage_meta(), exchange.is_coordinator)
        writer.set_up_storage_writer(exchange.is_coordinator)
        return writer.prepare_local_plan(chosen.create_local_plan())

    def global_step(plans: list[SavePlan]) -> list[SavePlan]:
        plans, metadata = chosen.create_global_plan(plans)
        whole.append(metadata)
        return writer.prepare_global_plan(plans)

    plan = exchange.each_then_one("plan", local_step, global_step)

    def write() -> Any:
        return writer.write_data(chosen.finish_plan(plan), chosen).wait()

    def finish(results: list[Any]) -> Metadata:
        writer.finish(whole[0], results)
        return whole[0]

    return exchange.each_then_all("write", write, finish)


def _writer(checkpoint_id: Any, storage_writer: StorageWriter | None) -> StorageWriter:
    if storage_writer is None:
        if checkpoint_id is None:
            raise ValueError("save: give a checkpoint_id, or a storage_writer that knows it")
        if not FileSystemWriter.validate_checkpoint_id(checkpoint_id):
            raise ValueError(f"save: {checkpoint_id!r} is no folder; give a storage_writer for it")
        return FileSystemWriter(checkpoint_id)
    storage_writer.reset(checkpoint_id)
    return storage_writer


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """Save a state, as `save` does: its older form."""
    storage_writer.reset()
    exchange = Exchange(_group(process_group, no_dist), coordinator_rank)
    return _save(states_of(state_dict), None, storage_writer, planner, exchange)


# While the caller goes on ---------------------------------------------------------------------

_savers: weakref.WeakKeyDictionary[Any, tuple[Any, ThreadPoolExecutor]] = (
    weakref.WeakKeyDictionary()
)
_alone = ThreadPoolExecutor(1, "tangrad checkpoint")


def _saver(group: Any) -> tuple[Any, ThreadPoolExecutor]:
    """Return the group whose collectives a thread may use beside its owner's, and the thread."""
    if group is None:
        return None, _alone
    found = _savers.get(group)
    if found is None:
        own = new_group(group.world_ranks, use_local_synchronization=True, group_desc="checkpoint")
        found = _savers[group] = (own, ThreadPoolExecutor(1, "tangrad checkpoint"))
    return found


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Metadata]:
    """Save a state while the caller goes on; all ranks call it.

    The state is copied to the host before it returns, so that it may change at once. Saves of one
    group follow one another. A process that ends waits for them; before a group is destroyed,
    wait for the result.

    Args:
        state_dict: as for `save`.
        checkpoint_id: as for `save`.
        storage_writer: as for `save`.
        planner: as for `save`.
        process_group: as for `save`.
        async_checkpointer_type: `THREAD`.
        async_stager: an `AsyncStager` that copies the state in place of the default.
        no_dist: this process saves alone.
        use_collectives: changes nothing.

    Returns:
        A future of what `save` returns, or raises.

    Raises:
        NotImplementedError: a process is to save, not a thread.
    """
    if async_checkpointer_type != AsyncCheckpointerType.THREAD:
        raise NotImplementedError("async_save: only AsyncCheckpointerType.THREAD is supported")
    stage = staged if async_stager is None else async_stager.stage
    state = stage(states_of(state_dict))
    own, thread = _saver(_group(process_group, no_dist))
    writer = _writer(checkpoint_id, storage_writer)
    return thread.submit(_in_thread, lambda: _save(state, None, writer, planner, Exchange(own)))


def _in_thread(work: Callable[[], Metadata]) -> Metadata:
    with tangrad.no_grad():
        return work()


def staged(value: Any) -> Any:
    """Return a nested state whose tensors are copies on the host."""
    if isinstance(value, tangrad.Tensor):
        plain = value.detach()
        return plain.clone() if plain.device.type == "cpu" else plain.cpu()
    if isinstance(value, LocalPart):
        return LocalPart(staged(value.tensor), value.offsets, value.size)
    if isinstance(value, dict):
        return {key: staged(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(staged(one) for one in value)
    return value
