"""The planners that are used unless others are given.

What several ranks have alike is written once, by the rank that has least to write; a rank reads
of each stored piece what it holds itself.
"""

from __future__ import annotations

import dataclasses
import io
from collections import ChainMap
from typing import Any

import tangrad
from tangrad_distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    LocalPart,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from tangrad_distributed.checkpoint.nesting import Path, flatten_state_dict, set_element
from tangrad_distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)


def _whole(tensor: Any) -> ChunkStorageMetadata:
    return ChunkStorageMetadata((0,) * tensor.dim(), tuple(tensor.shape))


def _item(key: str, value: Any) -> WriteItem:
    if isinstance(value, LocalPart):
        tensor, chunk, size = value.tensor, value.chunk(), value.size
        kind = WriteItemType.SHARD
    elif isinstance(value, tangrad.Tensor):
        tensor, chunk, size = value, _whole(value), tuple(value.shape)
        kind = WriteItemType.TENSOR
    else:
        return WriteItem(MetadataIndex(key), WriteItemType.BYTE_IO)
    properties = TensorProperties.create_from_tensor(tensor)
    data = TensorWriteData(chunk, properties, size)
    return WriteItem(MetadataIndex(key, chunk.offsets), kind, tensor_data=data)


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """Return a plan that writes all that a flat state holds."""
    return SavePlan([_item(key, value) for key, value in state_dict.items()])


def _once(plans: list[SavePlan]) -> list[SavePlan]:
    """Leave each piece to one of the ranks that have it: the one that has least to write."""
    holders: dict[MetadataIndex, list[int]] = {}
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            holders.setdefault(item.index, []).append(rank)
            _check_alike(items.setdefault(item.index, item), item)
    load, kept = [0] * len(plans), [set[MetadataIndex]() for _ in plans]
    # What only one rank has cannot be moved; the largest of the others go first.
    by_size = sorted(
        holders, key=lambda index: (len(holders[index]) > 1, -_nbytes(items[index]), index.fqn)
    )
    for index in by_size:
        rank = min(holders[index], key=lambda rank: (load[rank], rank))
        load[rank] += _nbytes(items[index])
        kept[rank].add(index)
    return [
        dataclasses.replace(plan, items=[item for item in plan.items if item.index in mine])
        for plan, mine in zip(plans, kept, strict=True)
    ]


def _check_alike(one: WriteItem, other: WriteItem) -> None:
    """Refuse two pieces of one key and place that differ in more than their numbers."""
    a, b = one.tensor_data, other.tensor_data
    if (a is None) != (b is None):
        raise ValueError(f"{one.index.fqn!r} is a tensor on one rank and none on another")
    if a is None or b is None:
        return
    if (a.size, a.chunk, a.properties.dtype) != (b.size, b.chunk, b.properties.dtype):
        raise ValueError(
            f"ranks have different tensors under the key {one.index.fqn!r}: "
            f"{a.properties.dtype} {list(a.size)} and {b.properties.dtype} {list(b.size)}"
        )


def _nbytes(item: WriteItem) -> int:
    return item.tensor_storage_size() or 1


def create_default_global_save_plan(
    all_plans: list[SavePlan], rewrite_index_hints: bool = True
) -> tuple[list[SavePlan], Metadata]:
    """Return the plans, and what the checkpoint holds after they are done.

    Raises:
        ValueError: ranks tell different things of one key, or its pieces leave a gap or overlap.
    """
    known: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    for plan in all_plans:
        for item in plan.items:
            _add(known, item)
    for key, stored in known.items():
        if isinstance(stored, TensorStorageMetadata):
            _check_pieces(key, stored)
    return all_plans, Metadata(known)


def _add(known: dict[str, TensorStorageMetadata | BytesStorageMetadata], item: WriteItem) -> None:
    key, data = item.index.fqn, item.tensor_data
    if data is None:
        if not isinstance(known.setdefault(key, BytesStorageMetadata()), BytesStorageMetadata):
            raise ValueError(f"{key!r} is a tensor on one rank and none on another")
        return
    stored = known.setdefault(key, TensorStorageMetadata(data.properties, data.size, []))
    if isinstance(stored, BytesStorageMetadata):
        raise ValueError(f"{key!r} is a tensor on one rank and none on another")
    if stored.size != data.size or stored.properties.dtype != data.properties.dtype:
        raise ValueError(
            f"ranks have different tensors under the key {key!r}: {stored.properties.dtype} "
            f"{list(stored.size)} and {data.properties.dtype} {list(data.size)}"
        )
    stored.chunks.append(data.chunk)


def _check_pieces(key: str, stored: TensorStorageMetadata) -> None:
    total = 0
    for at, one in enumerate(stored.chunks):
        count = 1
        for size in one.sizes:
            count *= size
        total += count
        for other in stored.chunks[:at]:
            if _overlap(one, other) is not None:
                raise ValueError(f"parts of {key!r} overlap: {one} and {other}")
    whole = 1
    for size in stored.size:
        whole *= size
    if total != whole:
        raise ValueError(f"the parts of {key!r} have {total} of its {whole} elements")


def _overlap(
    one: ChunkStorageMetadata, other: ChunkStorageMetadata
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return where two parts of one tensor overlap, as (offsets, sizes), or None."""
    begins = tuple(map(max, one.offsets, other.offsets))
    ends = tuple(
        min(a + m, b + n)
        for a, m, b, n in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    )
    sizes = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
    return None if any(size <= 0 for size in sizes) else (begins, sizes)


class DefaultSavePlanner(SavePlanner):
    """Write nested states, each piece once.

    Args:
        flatten_state_dict: open nested states; else each value of the outermost dict is a leaf.
        flatten_sharded_tensors: changes nothing.
        dedup_replicated_tensors: changes nothing: what ranks have alike is written once.
        dedup_save_to_lowest_rank: have the lowest rank write it, not the one with least to write.
        enable_plan_caching: changes nothing.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.state_dict: dict[str, Any] = {}
        self.mappings: dict[str, Path] = {}

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take the state that is saved."""
        self.state_dict, self.mappings = dict(state_dict), {}
        if self.flatten_state_dict:
            self.state_dict, self.mappings = flatten_state_dict(state_dict)
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        """Return what this rank has."""
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        return dataclasses.replace(plan, planner_data=self.mappings)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Have each piece written once."""
        plans = _lowest(all_plans) if self.dedup_save_to_lowest_rank else _once(all_plans)
        plans, metadata = create_default_global_save_plan(plans)
        metadata.planner_data = dict(ChainMap(*(plan.planner_data or {} for plan in all_plans)))
        return plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Take this rank's part."""
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        """Return a piece's tensor, or a `BytesIO` of the object."""
        value = self.state_dict[write_item.index.fqn]
        value = value.tensor if isinstance(value, LocalPart) else value
        return self.transform_object(write_item, value)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """Return what is written for an object; a subclass may change it."""
        if write_item.type != WriteItemType.BYTE_IO:
            return object
        content = io.BytesIO()
        tangrad.save(object, content)
        content.seek(0)
        return content


def _lowest(plans: list[SavePlan]) -> list[SavePlan]:
    seen: set[MetadataIndex] = set()
    result = []
    for plan in plans:
        items = [item for item in plan.items if item.index not in seen]
        seen.update(item.index for item in items)
        result.append(dataclasses.replace(plan, items=items))
    return result


def create_default_local_load_plan(
    state_dict: dict[str, Any], metadata: Metadata, strict: bool = True
) -> LoadPlan:
    """Return a plan that reads all that a flat state holds.

    Raises:
        RuntimeError: a key is not in the checkpoint, and `strict`.
        ValueError: a tensor has another shape there.
    """
    items: list[ReadItem] = []
    for key, value in state_dict.items():
        stored = metadata.state_dict_metadata.get(key)
        if stored is None:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {key}.")
            continue
        items += _reads(key, value, stored)
    return LoadPlan(items)


def _reads(key: str, value: Any, stored: Any) -> list[ReadItem]:
    if isinstance(stored, BytesStorageMetadata):
        index = MetadataIndex(key)
        return [ReadItem(LoadItemType.BYTE_IO, index, (0,), index, (0,), (0,))]
    if isinstance(value, LocalPart):
        wanted, size = value.chunk(), value.size
    elif isinstance(value, tangrad.Tensor):
        wanted, size = _whole(value), tuple(value.shape)
    else:
        raise ValueError(
            f"the checkpoint has a tensor {list(stored.size)} under {key!r}, "
            f"the state to load has {type(value).__name__}"
        )
    if tuple(stored.size) != size:
        raise ValueError(
            f"Size mismatch between saved {list(stored.size)} and current: {list(size)} for {key}"
        )
    items = []
    for chunk in stored.chunks:
        found = _overlap(wanted, chunk)
        if found is not None:
            begins, sizes = found
            items.append(
                ReadItem(
                    LoadItemType.TENSOR,
                    MetadataIndex(key, wanted.offsets),
                    _minus(begins, wanted.offsets),
                    MetadataIndex(key, chunk.offsets),
                    _minus(begins, chunk.offsets),
                    sizes,
                )
            )
    return items


def _minus(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """Return the plans as they are."""
    return all_plans


class DefaultLoadPlanner(LoadPlanner):
    """Read into the tensors of a nested state, and replace what is no tensor.

    Args:
        flatten_state_dict: open nested states, as it was saved.
        flatten_sharded_tensors: changes nothing.
        allow_partial_load: leave what the checkpoint does not have as it is.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.allow_partial_load = allow_partial_load
        self.original_state_dict: dict[str, Any] = {}
        self.state_dict: dict[str, Any] = {}
        self.mappings: dict[str, Path] = {}
        self.metadata: Metadata | None = None

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take the state that is loaded into."""
        self.original_state_dict, self.metadata = state_dict, metadata
        self.state_dict = state_dict
        self.mappings = {key: (key,) for key in state_dict}
        if self.flatten_state_dict:
            self.state_dict, self.mappings = flatten_state_dict(state_dict)
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """Return what this rank holds."""
        assert self.metadata is not None
        return create_default_local_load_plan(
            self.state_dict, self.metadata, not self.allow_partial_load
        )

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Take this rank's part."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put an object into the state."""
        key = read_item.dest_index.fqn
        loaded = tangrad.load(value)
        self.state_dict[key] = loaded
        set_element(self.original_state_dict, self.mappings[key], loaded)

    def resolve_tensor(self, read_item: ReadItem) -> Any:
        """Return the part of the state's tensor where a piece goes."""
        value = self.state_dict[read_item.dest_index.fqn]
        target = (value.tensor if isinstance(value, LocalPart) else value).detach()
        return narrowed(target, read_item.dest_offsets, read_item.lengths)

    def commit_tensor(self, read_item: ReadItem, tensor: Any) -> None:
        """Do nothing: it was written where it belongs."""


class EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Read all that a checkpoint holds into a dict that is empty at first.

    Args:
        keys: which flat keys, or beginnings of them; None for all.
    """

    def __init__(self, keys: set[str] | None = None) -> None:
        super().__init__()
        self.keys = keys

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Make what the checkpoint holds.

        Raises:
            ValueError: the dict is not empty.
        """
        if state_dict:
            raise ValueError("this planner fills an empty dict")
        assert metadata is not None
        for key, stored in metadata.state_dict_metadata.items():
            if self.keys is not None and not any(f"{key}.".startswith(f"{k}.") for k in self.keys):
                continue
            made: Any = None
            if isinstance(stored, TensorStorageMetadata):
                made = tangrad.empty(stored.size, dtype=stored.properties.dtype)
            path = (metadata.planner_data or {}).get(key, (key,))
            set_element(state_dict, path, made)
            self.mappings[key], self.state_dict[key] = path, made
        self.original_state_dict, self.metadata = state_dict, metadata
        self.is_coordinator = is_coordinator


def narrowed(tensor: Any, offsets: tuple[int, ...], lengths: tuple[int, ...]) -> Any:
    """Return a part of a tensor, as a view."""
    for dim, (begin, length) in enumerate(zip(offsets, lengths, strict=True)):
        if length != tensor.shape[dim]:
            tensor = tensor.narrow(dim, begin, length)
    return tensor
