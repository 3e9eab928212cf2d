"""Collectives that gradients flow through: the derivative of each is another collective.

What a rank receives as a gradient is that of its own output. A sum over ranks hands each rank the
sum of all gradients; what was copied to all ranks gets the sum of what they send back.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.autograd import Function
from tangrad_distributed.communication import collectives
from tangrad_distributed.communication.reductions import ReduceOp, reduction
from tangrad_distributed.world import get_group_rank, get_rank, get_world_size
from tangrad_distributed.world import group as group


def _in_group(rank: int, group: Any) -> int:
    return rank if group is None else get_group_rank(group, rank)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, op: Any, group: Any) -> Any:
        ctx.op, ctx.group = op, group
        result = tensor.clone()
        collectives.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if reduction(ctx.op, "all_reduce").op not in (ReduceOp.SUM, ReduceOp.AVG):
            raise RuntimeError(f"all_reduce: the derivative of {ctx.op!r} is not defined; use SUM")
        return all_reduce(gradient.contiguous(), ctx.op, ctx.group), None, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, src: int, group: Any) -> Any:
        ctx.src, ctx.group = src, group
        result = tensor.clone()
        collectives.broadcast(result, src, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return reduce(gradient.contiguous(), ctx.src, ReduceOp.SUM, ctx.group), None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, dst: int, op: Any, group: Any) -> Any:
        ctx.dst, ctx.group = dst, group
        result = tensor.clone()
        collectives.reduce(result, dst, op, group)
        # Only the destination has the sum; elsewhere nothing depends on the input.
        return result if get_rank() == dst else tangrad.zeros_like(result)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return broadcast(gradient.contiguous(), ctx.dst, ctx.group), None, None, None


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, group: Any) -> Any:
        ctx.group = group
        parts = [tangrad.empty_like(tensor) for _ in range(get_world_size(group))]
        collectives.all_gather(parts, tensor.contiguous(), group)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        mine = tangrad.empty_like(gradients[0])
        listed = [gradient.contiguous() for gradient in gradients]
        return reduce_scatter(mine, listed, ReduceOp.SUM, ctx.group), None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, output: Any, op: Any, group: Any, *parts: Any) -> Any:
        ctx.group = group
        result = tangrad.empty_like(output)
        listed = [part.contiguous() for part in parts]
        collectives.reduce_scatter(result, listed, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return (None, None, None, *all_gather(gradient.contiguous(), ctx.group))


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, outputs: list[Any], *inputs: Any) -> Any:
        ctx.group = group
        ctx.shapes = [part.shape for part in inputs]
        results = [tangrad.empty_like(output) for output in outputs]
        collectives.all_to_all(results, [part.contiguous() for part in inputs], group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        back = [gradients[0].new_empty(shape) for shape in ctx.shapes]
        return (None, None, *all_to_all(back, list(gradients), ctx.group))


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """Return the reduction over all ranks; its derivative is the same reduction."""
    return _AllReduce.apply(tensor, op, group)


def broadcast(tensor: Any, src: int, group: Any = None) -> Any:
    """Return one rank's tensor; that rank gets the sum of all gradients."""
    return _Broadcast.apply(tensor, src, group)


def reduce(tensor: Any, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """Return the reduction over all ranks on one, zeros elsewhere."""
    return _Reduce.apply(tensor, dst, op, group)


def all_gather(tensor: Any, group: Any = None) -> tuple[Any, ...]:
    """Return every rank's tensor."""
    return _AllGather.apply(tensor, group)


def gather(tensor: Any, dst: int = 0, group: Any = None) -> tuple[Any, ...]:
    """Return every rank's tensor on one rank, zeros elsewhere."""
    parts = all_gather(tensor, group)
    return parts if get_rank() == dst else tuple(part * 0 for part in parts)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Any:
    """Return this rank's one of the tensors that one rank has."""
    stacked = broadcast(tangrad.stack(list(tensors)), src, group)
    return stacked[_in_group(get_rank(), group)]


def reduce_scatter(output: Any, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """Return the reduction, over all ranks, of the tensors at this rank's place."""
    return _ReduceScatter.apply(output, op, group, *input_list)


def all_to_all(
    output_tensor_list: Any, input_tensor_list: Any, group: Any = None
) -> tuple[Any, ...]:
    """Return what each rank has for this one; `output_tensor_list` tells shapes."""
    return _AllToAll.apply(group, list(output_tensor_list), *input_tensor_list)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
) -> Any:
    """Return the rows that each rank has for this one, in the order of ranks."""
    size = get_world_size(group)
    incoming = output_split_sizes or [output.shape[0] // size] * size
    outgoing = input_split_sizes or [input.shape[0] // size] * size
    parts = all_to_all(list(output.split(incoming)), list(input.split(outgoing)), group)
    return tangrad.cat(parts)
