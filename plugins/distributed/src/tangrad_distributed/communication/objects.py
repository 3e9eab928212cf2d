"""Collectives of Python objects, pickled: only ranks that hold the run's key exchange them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import tangrad
from tangrad_distributed.communication.collectives import (
    all_gather,
    broadcast,
    gather,
    root_of,
    scatter,
)
from tangrad_distributed.communication.point_to_point import recv, send
from tangrad_distributed.errors import CollectiveArgumentError
from tangrad_distributed.world import get_global_rank, member


def _packed(value: Any) -> Any:
    content = io.BytesIO()
    pickle.Pickler(content).dump(value)
    return tangrad.frombuffer(bytearray(content.getvalue()), dtype=tangrad.uint8)


def _unpacked(tensor: Any, size: int) -> Any:
    return pickle.loads(tensor[:size].numpy().tobytes())


def _sizes(value: Any, group: Any) -> tuple[Any, list[int]]:
    packed = _packed(value)
    sizes = [tangrad.zeros(1, dtype=tangrad.int64) for _ in range(group.size())]
    all_gather(sizes, tangrad.tensor([packed.numel()]), group)
    found = [int(size) for size in sizes]
    padded = tangrad.zeros(max(found), dtype=tangrad.uint8)
    padded[: packed.numel()] = packed
    return padded, found


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Copy every rank's object into a list on all ranks.

    Args:
        object_list: of as many places as there are ranks, which are filled.
        obj: what can be pickled.
        group: None for all ranks.
    """
    found = member(group, "all_gather_object")
    if found is None:
        return
    padded, sizes = _sizes(obj, found)
    parts = [tangrad.empty_like(padded) for _ in sizes]
    all_gather(parts, padded, found)
    for rank, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        object_list[rank] = _unpacked(part, size)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Copy every rank's object into a list on one rank.

    Raises:
        ValueError: the list is missing there, or given on another rank.
    """
    found = member(group, "gather_object")
    if found is None:
        return
    dst = 0 if dst is None and group_dst is None else dst
    root = root_of(found, dst, group_dst, "gather_object")
    mine = found.rank() == root
    if mine != (object_gather_list is not None):
        raise CollectiveArgumentError(
            "gather_object: object_gather_list must be given on the destination, and only there"
        )
    padded, sizes = _sizes(obj, found)
    parts = [tangrad.empty_like(padded) for _ in sizes] if mine else None
    gather(padded, parts, group=found, group_dst=root)
    if object_gather_list is not None and parts is not None:
        for rank, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            object_gather_list[rank] = _unpacked(part, size)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Copy one rank's list of objects to all, in place; lists are of one length on all ranks.

    Raises:
        ValueError: the list is empty.
    """
    found = member(group, "broadcast_object_list")
    if found is None:
        return
    if not isinstance(object_list, list) or not object_list:
        raise CollectiveArgumentError("broadcast_object_list: needs a list that is not empty")
    src = 0 if src is None and group_src is None else src
    root = root_of(found, src, group_src, "broadcast_object_list")
    mine = found.rank() == root
    packed = [_packed(value) for value in object_list] if mine else []
    counts = [part.numel() for part in packed] or [0] * len(object_list)
    sizes = tangrad.tensor(counts)
    broadcast(sizes, group=found, group_src=root)
    total = int(sizes.sum())
    content = tangrad.cat(packed) if mine else tangrad.empty(total, dtype=tangrad.uint8)
    broadcast(content, group=found, group_src=root)
    if not mine:
        for at, part in enumerate(content.split(sizes.tolist())):
            object_list[at] = _unpacked(part, part.numel())


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Give each rank one object of the list that one rank has: the first place is filled.

    Raises:
        ValueError: the list to fill is empty, or the one to take from has another length.
    """
    found = member(group, "scatter_object_list")
    if found is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise CollectiveArgumentError(
            "scatter_object_list: the output must be a list that is not empty"
        )
    src = 0 if src is None and group_src is None else src
    root = root_of(found, src, group_src, "scatter_object_list")
    mine, parts, packed = found.rank() == root, None, []
    sizes = tangrad.zeros(found.size(), dtype=tangrad.int64)
    if mine:
        given = scatter_object_input_list or []
        if len(given) != found.size():
            raise CollectiveArgumentError(
                f"scatter_object_list: needs an object for each of the {found.size()} ranks, "
                f"got {len(given)}"
            )
        packed = [_packed(value) for value in given]
        sizes = tangrad.tensor([part.numel() for part in packed])
    broadcast(sizes, group=found, group_src=root)
    largest = int(sizes.max())
    if mine:
        parts = [tangrad.zeros(largest, dtype=tangrad.uint8) for _ in packed]
        for part, content in zip(parts, packed, strict=True):
            part[: content.numel()] = content
    received = tangrad.empty(largest, dtype=tangrad.uint8)
    scatter(received, parts, group=found, group_src=root)
    scatter_object_output_list[0] = _unpacked(received, int(sizes[found.rank()]))


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send a list of objects to a rank, which receives a list of the same length."""
    found = member(group, "send_object_list")
    if found is None:
        return
    root = root_of(found, dst, group_dst, "send_object_list")
    packed = [_packed(value) for value in object_list]
    send(tangrad.tensor([part.numel() for part in packed]), group=found, group_dst=root)
    send(tangrad.cat(packed), group=found, group_dst=root)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive a list of objects, in place.

    Returns:
        Who sent it, as a rank of the world; -1 if this rank is not in the group.
    """
    found = member(group, "recv_object_list")
    if found is None:
        return -1
    anyone = src is None and group_src is None
    peer = None if anyone else root_of(found, src, group_src, "recv_object_list")
    sizes = tangrad.empty(len(object_list), dtype=tangrad.int64)
    sender = recv(sizes, group=found, group_src=peer)
    content = tangrad.empty(int(sizes.sum()), dtype=tangrad.uint8)
    recv(content, sender, found)
    for at, part in enumerate(content.split(sizes.tolist())):
        object_list[at] = _unpacked(part, part.numel())
    return get_global_rank(found, found.world_ranks.index(sender))
