"""Messages between two ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tangrad_distributed.communication.coalescing import noted
from tangrad_distributed.communication.collectives import _tensor, root_of
from tangrad_distributed.communication.work import Work
from tangrad_distributed.world import get_global_rank, member


def _peer(group: Any, rank: int | None, group_rank: int | None, name: str) -> int:
    found = root_of(group, rank, group_rank, name)
    if found == group.rank():
        raise ValueError(f"{name}: Invalid rank: rank {found} cannot be both sides of a message")
    return found


def _checked_tag(tag: int, name: str) -> int:
    if not isinstance(tag, int) or not 0 <= tag < 1 << 31:
        raise ValueError(f"{name}: a tag is an int from 0 to {(1 << 31) - 1}, got {tag!r}")
    return tag


def isend(
    tensor: Any,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send a tensor to a rank; it must not be written before the work is over."""
    _tensor(tensor, "isend", "tensor")
    found = member(group, "isend")
    if found is None:
        return None
    peer = _peer(found, dst, group_dst, "isend")
    return noted(found.send(tensor, peer, _checked_tag(tag, "isend"), True))


def irecv(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive a tensor from a rank, or from any; it is whole when the work is over."""
    _tensor(tensor, "irecv", "tensor")
    found = member(group, "irecv")
    if found is None:
        return None
    anyone = src is None and group_src is None
    peer = -1 if anyone else _peer(found, src, group_src, "irecv")
    return noted(found.recv(tensor, peer, _checked_tag(tag, "irecv"), True))


def send(
    tensor: Any,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to a rank."""
    _tensor(tensor, "send", "tensor")
    found = member(group, "send")
    if found is not None:
        found.send(tensor, _peer(found, dst, group_dst, "send"), _checked_tag(tag, "send"), False)


def recv(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor from a rank, or from any.

    Returns:
        Who sent it, as a rank of the world; -1 if this rank is not in the group.

    Raises:
        DistBackendError: what was sent is not as long.
        WaitCycleError: ranks wait for each other in a cycle.
    """
    _tensor(tensor, "recv", "tensor")
    found = member(group, "recv")
    if found is None:
        return -1
    anyone = src is None and group_src is None
    peer = -1 if anyone else _peer(found, src, group_src, "recv")
    return get_global_rank(found, found.recv(tensor, peer, _checked_tag(tag, "recv"), False))


class P2POp:
    """Describe a message for `batch_isend_irecv`.

    Args:
        op: `isend` or `irecv`.
        tensor: what is sent, or where to receive.
        peer: the other rank, in the world.
        group: None for all ranks.
        tag: of the message.
        group_peer: the other rank, in the group.

    Raises:
        ValueError: `op` is neither.
    """

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Any,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type isend or irecv.")
        _tensor(tensor, "P2POp", "tensor")
        self.op, self.tensor, self.peer = op, tensor, peer
        self.group, self.tag, self.group_peer = group, tag, group_peer

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__} peer={self.peer}, {list(self.tensor.shape)})"


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin several messages; return the works of all.

    Raises:
        ValueError: the list is empty or holds something else.
    """
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("batch_isend_irecv: needs a list of P2POp that is not empty")
    works = []
    for one in p2p_op_list:
        key = "group_dst" if one.op is isend else "group_src"
        if one.peer is not None:
            work = one.op(one.tensor, one.peer, one.group, one.tag)
        else:
            work = one.op(one.tensor, None, one.group, one.tag, **{key: one.group_peer})
        if work is not None:
            works.append(work)
    return works
