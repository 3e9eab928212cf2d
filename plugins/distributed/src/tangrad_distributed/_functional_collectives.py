"""Collectives that return new tensors, by PyTorch's path; each has ended when it returns.

A group is a `ProcessGroup`, a mesh of one dimension, a mesh with one of its dimensions, or the list
of all ranks. Gradients flow through `all_reduce`, `broadcast` and what ends with `_autograd`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad_distributed.communication.point_to_point import irecv, isend
from tangrad_distributed.communication.reductions import ReduceOp
from tangrad_distributed.device_mesh import DeviceMesh
from tangrad_distributed.errors import CollectiveArgumentError
from tangrad_distributed.nn import functional
from tangrad_distributed.process_group import ProcessGroup
from tangrad_distributed.world import default_group, get_global_rank


class AsyncCollectiveTensor(tangrad.Tensor):
    """Be a tensor whose collective is under way: none is made here, for each has ended."""


def _resolve_group(group: Any) -> ProcessGroup:
    """Return the group that an argument names.

    Raises:
        ValueError: a list is not that of all ranks.
        TypeError: it names none.
    """
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, (list, tuple)):
        whole = default_group("functional collectives")
        if list(group) != whole.world_ranks:
            raise ValueError(f"ranks {list(group)} are not all ranks: give their ProcessGroup")
        return whole
    raise TypeError(f"a group, a mesh or all ranks name a group, got {type(group).__name__}")


def _reduction(name: str) -> ReduceOp:
    """Return the reduction of a name such as "sum"."""
    found = getattr(ReduceOp, name.upper(), None)
    if found is None:
        raise ValueError(f"no reduction is named {name!r}: give sum, avg, product, min or max")
    return found


def wait_tensor(tensor: Any) -> Any:
    """Return a tensor; what made it has ended."""
    return tensor


def all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:
    """Return the reduction of all ranks' tensors."""
    return functional.all_reduce(self, _reduction(reduceOp), _resolve_group(group))


def broadcast(self: Any, src: int, group: Any, tag: str = "") -> Any:
    """Return the tensor of a rank of the world."""
    return functional.broadcast(self, src, _resolve_group(group))


def all_gather_tensor_autograd(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """Return all ranks' tensors, one behind the other along a dimension."""
    return tangrad.cat(functional.all_gather(self, _resolve_group(group)), gather_dim)


def all_gather_tensor(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """Return all ranks' tensors, one behind the other along a dimension; without gradients."""
    return all_gather_tensor_autograd(self.detach(), gather_dim, group)


def reduce_scatter_tensor_autograd(
    self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = ""
) -> Any:
    """Return this rank's part, along a dimension, of the reduction of all ranks' tensors.

    Raises:
        ValueError: the dimension cannot be cut into parts of one size.
    """
    found = _resolve_group(group)
    size = self.shape[scatter_dim]
    if size % found.size():
        raise CollectiveArgumentError(
            f"reduce_scatter_tensor: dimension {scatter_dim} of {list(self.shape)} cannot be cut "
            f"into {found.size()} parts of one size"
        )
    parts = [part.contiguous() for part in self.chunk(found.size(), scatter_dim)]
    result = tangrad.empty_like(parts[0].detach())
    return functional.reduce_scatter(result, parts, _reduction(reduceOp), found)


def reduce_scatter_tensor(
    self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = ""
) -> Any:
    """Return this rank's part of the reduction of all ranks' tensors; without gradients."""
    return reduce_scatter_tensor_autograd(self.detach(), reduceOp, scatter_dim, group)


def all_to_all_single_autograd(
    self: Any,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Any,
    tag: str = "",
) -> Any:
    """Return the rows that all ranks have for this one."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    result = self.detach().new_empty((rows, *self.shape[1:]))
    given = (output_split_sizes, input_split_sizes, _resolve_group(group))
    return functional.all_to_all_single(result, self, *given)


def all_to_all_single(
    self: Any,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Any,
    tag: str = "",
) -> Any:
    """Return the rows that all ranks have for this one; without gradients."""
    return all_to_all_single_autograd(self.detach(), output_split_sizes, input_split_sizes, group)


def permute_tensor(self: Any, src_dst: list[int], group: Any, tag: str = "") -> Any:
    """Return the tensor of the rank that sends to this one: rank i sends to `src_dst[i]`."""
    found = _resolve_group(group)
    source = get_global_rank(found, src_dst.index(found.rank()))
    target = get_global_rank(found, src_dst[found.rank()])
    if source == target == get_global_rank(found, found.rank()):
        return self.detach().clone()
    result = tangrad.empty_like(self.detach())
    works = [isend(self.detach().contiguous(), target, found), irecv(result, source, found)]
    for work in works:
        assert work is not None
        work.wait()
    return result


def all_reduce_coalesced(self: list[Any], reduceOp: str, group: Any, tag: str = "") -> list[Any]:
    """Return the reduction of each of several tensors."""
    return [all_reduce(one, reduceOp, group) for one in self]


def all_gather_into_tensor_coalesced(self: list[Any], group: Any, tag: str = "") -> list[Any]:
    """Return all ranks' tensors along the first dimension, of each of several."""
    return [all_gather_tensor(one, 0, group) for one in self]


def reduce_scatter_tensor_coalesced(
    inputs: list[Any], reduceOp: str, scatter_dim: list[int], group: Any, tag: str = ""
) -> list[Any]:
    """Return this rank's part of the reduction of each of several tensors."""
    pairs = zip(inputs, scatter_dim, strict=True)
    return [reduce_scatter_tensor(one, reduceOp, dim, group) for one, dim in pairs]
