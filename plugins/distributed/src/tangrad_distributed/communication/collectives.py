"""Collectives as programs call them: arguments are checked here, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import tangrad
from tangrad_distributed.communication.reductions import ReduceOp, check_reduction, reduction
from tangrad_distributed.communication.work import Work
from tangrad_distributed.errors import CollectiveArgumentError
from tangrad_distributed.process_group import ProcessGroup
from tangrad_distributed.world import get_group_rank, member


def _tensor(value: Any, name: str, what: str) -> Any:
    if not isinstance(value, tangrad.Tensor):
        raise TypeError(
            f"{name}: Invalid function argument. Expected parameter `{what}` to be of type "
            f"Tensor, but it is {type(value).__name__}"
        )
    if value.layout != tangrad.strided:
        raise CollectiveArgumentError(
            f"{name}: {what} must be dense, got {value.layout}: call to_dense()"
        )
    return value


def _tensors(values: Any, name: str, what: str) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        raise TypeError(
            f"{name}: Invalid function argument. Expected parameter `{what}` to be of type "
            f"list of Tensor, but it is {type(values).__name__}"
        )
    return [_tensor(value, name, what) for value in values]


def _places(values: Any, name: str, what: str, group: ProcessGroup) -> list[Any]:
    found = _tensors(values, name, what)
    if len(found) != group.size():
        raise CollectiveArgumentError(
            f"{name}: {what} must have a tensor for each of the group's {group.size()} ranks, "
            f"got {len(found)}"
        )
    return found


def _alike(tensors: Sequence[Any], like: Any, name: str, shapes: bool = True) -> None:
    for tensor in tensors:
        if tensor.dtype != like.dtype:
            raise CollectiveArgumentError(
                f"{name}: Invalid usage of tensors with different dtypes: "
                f"Found {like.dtype} and {tensor.dtype}"
            )
        if shapes and tensor.numel() != like.numel():
            raise CollectiveArgumentError(
                f"{name}: tensors must be of one size, got {list(like.shape)} and "
                f"{list(tensor.shape)}"
            )


def root_of(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str) -> int:
    """Return the rank in the group that `src` or `group_src` (`dst`, `group_dst`) names.

    Raises:
        ValueError: both or neither are given, or the group has no such rank.
    """
    if (rank is None) == (group_rank is None):
        raise CollectiveArgumentError(
            f"{name}: give either the rank in the world or the one in the group"
        )
    if group_rank is None:
        assert rank is not None
        return get_group_rank(group, rank)
    if not 0 <= group_rank < group.size():
        raise CollectiveArgumentError(
            f"{name}: a group of {group.size()} ranks has no rank {group_rank}"
        )
    return group_rank


def _checked(op: Any, tensor: Any, name: str) -> ReduceOp:
    found = reduction(op, name)
    check_reduction(found, tensor.dtype, name)
    return found


def all_reduce(
    tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce a tensor over all ranks, in place, on all ranks.

    The numbers of ranks are combined in a fixed tree, so all ranks get the same bits, in every
    run and from every engine.

    Args:
        tensor: of one shape and dtype on all ranks.
        op: a `ReduceOp`.
        group: None for all ranks.
        async_op: return at once, with a `Work`.

    Raises:
        ValueError: the dtype has no such reduction.
        DistBackendError: another rank is elsewhere, lost or late.
    """
    _tensor(tensor, "all_reduce", "tensor")
    found = member(group, "all_reduce")
    if found is None:
        return None
    checked = _checked(op, tensor, "all_reduce")
    if not async_op and found.reduce_at_once(tensor, checked):
        return None
    return found.all_reduce([tensor], checked, async_op=async_op)


def all_reduce_coalesced(
    tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce several tensors of one dtype at once, in place, on all ranks."""
    listed = [tensors] if isinstance(tensors, tangrad.Tensor) else tensors
    listed = _tensors(listed, "all_reduce_coalesced", "tensors")
    found = member(group, "all_reduce_coalesced")
    if found is None or not listed:
        return None
    _alike(listed, listed[0], "all_reduce_coalesced", shapes=False)
    checked = _checked(op, listed[0], "all_reduce_coalesced")
    return found.all_reduce(listed, checked, async_op=async_op)


def reduce(
    tensor: Any,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduce a tensor over all ranks, in place on one of them."""
    _tensor(tensor, "reduce", "tensor")
    found = member(group, "reduce")
    if found is None:
        return None
    root = root_of(found, dst, group_dst, "reduce")
    return found.reduce(tensor, root, _checked(op, tensor, "reduce"), async_op=async_op)


def broadcast(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copy one rank's tensor to all, in place."""
    _tensor(tensor, "broadcast", "tensor")
    found = member(group, "broadcast")
    if found is None:
        return None
    root = root_of(found, src, group_src, "broadcast")
    return found.broadcast([tensor], root, async_op=async_op)


def all_gather(
    tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Copy every rank's tensor into a list on all ranks.

    Args:
        tensor_list: a tensor for each rank, of the size of `tensor`.
        tensor: of one size and dtype on all ranks.
        group: None for all ranks.
        async_op: return at once, with a `Work`.
    """
    _tensor(tensor, "all_gather", "tensor")
    found = member(group, "all_gather")
    if found is None:
        return None
    parts = _places(tensor_list, "all_gather", "tensor_list", found)
    _alike(parts, tensor, "all_gather")
    return found.all_gather([parts], [tensor], async_op=async_op)


def all_gather_coalesced(
    output_tensor_lists: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Copy every rank's list of tensors to all ranks: `output_tensor_lists[rank][i]`."""
    inputs = _tensors(input_tensor_list, "all_gather_coalesced", "input_tensor_list")
    found = member(group, "all_gather_coalesced")
    if found is None or not inputs:
        return None
    if not isinstance(output_tensor_lists, (list, tuple)):
        raise TypeError("all_gather_coalesced: output_tensor_lists must be a list of lists")
    if len(output_tensor_lists) != found.size():
        raise CollectiveArgumentError(
            "all_gather_coalesced: output_tensor_lists must have a list for each of the group's "
            f"{found.size()} ranks, got {len(output_tensor_lists)}"
        )
    listed = [_tensors(one, "all_gather_coalesced", "output") for one in output_tensor_lists]
    outputs = [[one[at] for one in listed] for at in range(len(inputs))]
    for parts, tensor in zip(outputs, inputs, strict=True):
        _alike(parts, tensor, "all_gather_coalesced")
    return found.all_gather(outputs, inputs, async_op=async_op)


def _rows(tensor: Any, group: ProcessGroup, name: str) -> list[Any]:
    """Return the part of a contiguous tensor that belongs to each rank."""
    if tensor.numel() % group.size():
        raise CollectiveArgumentError(
            f"{name}: {list(tensor.shape)} cannot be cut into {group.size()} parts of one size"
        )
    if not tensor.is_contiguous():
        raise CollectiveArgumentError(
            f"{name}: Tensors must be contiguous, got strides {tensor.stride()}"
        )
    return list(tensor.detach().view(-1).chunk(group.size()))


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Copy every rank's tensor into one tensor on all ranks, one behind the other.

    Raises:
        ValueError: the output has not as many elements as all inputs.
    """
    name = "all_gather_into_tensor"
    _tensor(output_tensor, name, "output_tensor")
    _tensor(input_tensor, name, "input_tensor")
    found = member(group, name)
    if found is None:
        return None
    _alike([output_tensor], input_tensor, name, shapes=False)
    if output_tensor.numel() != input_tensor.numel() * found.size():
        raise CollectiveArgumentError(
            f"{name}: output tensor size must be equal to world_size times input tensor size: "
            f"{found.size()} times {list(input_tensor.shape)}, got {list(output_tensor.shape)}"
        )
    if not output_tensor.numel():
        return None
    parts = _rows(output_tensor, found, name)
    return found.all_gather([parts], [input_tensor.reshape(-1)], async_op=async_op)


all_gather_single = all_gather_into_tensor


def gather(
    tensor: Any,
    gather_list: Any = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Copy every rank's tensor into a list on one rank.

    Raises:
        ValueError: `gather_list` is missing on that rank, or given on another.
    """
    _tensor(tensor, "gather", "tensor")
    found = member(group, "gather")
    if found is None:
        return None
    root = root_of(found, 0 if dst is None and group_dst is None else dst, group_dst, "gather")
    parts: list[Any] = []
    if found.rank() == root:
        if gather_list is None:
            raise CollectiveArgumentError(
                "gather: Argument ``gather_list`` must be specified on destination"
            )
        parts = _places(gather_list, "gather", "gather_list", found)
        _alike(parts, tensor, "gather")
    elif gather_list:
        raise CollectiveArgumentError(
            "gather: Argument ``gather_list`` must NOT be specified on non-destination ranks."
        )
    return found.gather(parts, tensor, root, async_op=async_op)


def scatter(
    tensor: Any,
    scatter_list: Any = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give each rank one tensor of the list that one rank has.

    Raises:
        ValueError: `scatter_list` is missing on that rank, or given on another.
    """
    _tensor(tensor, "scatter", "tensor")
    found = member(group, "scatter")
    if found is None:
        return None
    root = root_of(found, 0 if src is None and group_src is None else src, group_src, "scatter")
    parts: list[Any] = []
    if found.rank() == root:
        if scatter_list is None:
            raise CollectiveArgumentError(
                "scatter: Argument ``scatter_list`` must be specified on source rank"
            )
        parts = _places(scatter_list, "scatter", "scatter_list", found)
        _alike(parts, tensor, "scatter")
    elif scatter_list:
        raise CollectiveArgumentError(
            "scatter: Argument ``scatter_list`` must NOT be specified on non-source ranks."
        )
    return found.scatter(tensor, parts, root, async_op=async_op)


def reduce_scatter(
    output: Any,
    input_list: Any,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce lists of tensors over all ranks, and give each rank the result of its place."""
    _tensor(output, "reduce_scatter", "output")
    found = member(group, "reduce_scatter")
    if found is None:
        return None
    parts = _places(input_list, "reduce_scatter", "input_list", found)
    _alike(parts, output, "reduce_scatter", shapes=False)
    _alike([parts[found.rank()]], output, "reduce_scatter")
    checked = _checked(op, output, "reduce_scatter")
    return found.reduce_scatter([output], [parts], checked, async_op=async_op)


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce a tensor over all ranks, and give each rank its part of the result."""
    name = "reduce_scatter_tensor"
    _tensor(output, name, "output")
    _tensor(input, name, "input")
    found = member(group, name)
    if found is None:
        return None
    _alike([input], output, name, shapes=False)
    if input.numel() != output.numel() * found.size():
        raise CollectiveArgumentError(
            f"{name}: input tensor must be the same size as output size times world size: "
            f"{found.size()} times {list(output.shape)}, got {list(input.shape)}"
        )
    checked = _checked(op, output, name)
    flat = output if output.dim() == 1 and output.is_contiguous() else output.view(-1)
    return found.reduce_scatter([flat], [_rows(input, found, name)], checked, async_op=async_op)


reduce_scatter_single = reduce_scatter_tensor


def all_to_all(
    output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Give each rank one tensor of this rank's list, and receive one from each."""
    found = member(group, "all_to_all")
    if found is None:
        return None
    outputs = _places(output_tensor_list, "all_to_all", "output_tensor_list", found)
    inputs = _places(input_tensor_list, "all_to_all", "input_tensor_list", found)
    _alike([*outputs, *inputs], inputs[0], "all_to_all", shapes=False)
    return found.all_to_all(outputs, inputs, "all_to_all", async_op=async_op)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Give each rank some rows of this rank's tensor, and receive rows from each.

    Args:
        output: where the rows that are received go, in the order of ranks.
        input: the rows to send, in the order of ranks.
        output_split_sizes: how many rows come from each rank; None or []: as many from each.
        input_split_sizes: how many rows go to each.
        group: None for all ranks.
        async_op: return at once, with a `Work`.

    Raises:
        ValueError: the sizes do not sum to the rows there are.
    """
    name = "all_to_all_single"
    _tensor(output, name, "output")
    _tensor(input, name, "input")
    found = member(group, name)
    if found is None:
        return None
    _alike([output], input, name, shapes=False)
    incoming = _cut(output, output_split_sizes, found, name, "output_split_sizes")
    outgoing = _cut(input, input_split_sizes, found, name, "input_split_sizes")
    return found.all_to_all(incoming, outgoing, name, async_op=async_op)


def _cut(
    tensor: Any, sizes: Sequence[int] | None, group: ProcessGroup, name: str, what: str
) -> list[Any]:
    rows = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if rows % group.size():
            raise CollectiveArgumentError(
                f"{name}: Tensor's dim 0 ({rows}) does not divide equally across group size "
                f"{group.size()}; give {what}"
            )
        sizes = [rows // group.size()] * group.size()
    if len(sizes) != group.size() or sum(sizes) != rows:
        raise CollectiveArgumentError(
            f"{name}: {what} must be {group.size()} numbers that sum to the {rows} rows of the "
            f"tensor, got {list(sizes)}"
        )
    return list(tensor.detach().split(list(sizes)))


def barrier(
    group: Any = None,
    async_op: bool = False,
    device_ids: Any = None,
    timeout: timedelta | None = None,
) -> Work | None:
    """Wait until all ranks of a group have come."""
    found = member(group, "barrier")
    if found is None:
        return None
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("barrier: Invalid function argument: device_ids type should be List[int]")
    return found.barrier(async_op=async_op, timeout=timeout)


def monitored_barrier(
    group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait until all ranks of a group have come; rank 0 names those that do not.

    Raises:
        CollectiveTimeoutError: some do not within the timeout.
    """
    found = member(group, "monitored_barrier")
    if found is not None:
        found.monitored_barrier(timeout, wait_all_ranks)


@contextmanager
def record_comm(name: str) -> Any:
    """Name the collectives within for the profiler, where one listens."""
    with tangrad.autograd.profiler.record_function(name):
        yield


def supports_complex(op: Any) -> bool:
    """Tell whether a reduction is defined for complex numbers."""
    kinds = (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM, ReduceOp.PRODUCT)
    return reduction(op, "supports_complex").op in kinds
