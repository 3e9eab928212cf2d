"""Data parallelism: a module on every rank, whose gradients are averaged while backward runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tangrad
from tangrad import nn
from tangrad.plugin import phase
from tangrad_distributed.communication_hooks import BUILT_IN, allreduce_hook
from tangrad_distributed.futures import Future
from tangrad_distributed.gradient_buckets import Bucket, GradBucket, cut_into_buckets
from tangrad_distributed.join import LOCAL, NO_MORE, SYNCED, Join, Joinable, JoinHook
from tangrad_distributed.reductions import ReduceOp
from tangrad_distributed.world import default_group

API = 1
FIRST_BUCKET = 1 << 20


def _tell_deprecated(ignored: bool) -> None:
    """Warn of the argument `broadcast_buffers`, as PyTorch does."""
    if ignored:
        text = (
            "Both `broadcast_buffers` and `forward_sync_buffers` were specified. "
            "`broadcast_buffers` is deprecated and its value is ignored when "
            "`forward_sync_buffers` is provided."
        )
    else:
        text = (
            "`broadcast_buffers` is deprecated. Use `forward_sync_buffers` instead, unless ranks "
            "are to begin with buffers of their own: that is `broadcast_buffers=False`."
        )
    warnings.warn(text, FutureWarning, stacklevel=3)


class DistributedDataParallel(nn.Module, Joinable):
    """Train one module on all ranks, each with its part of the batch.

    Parameters and buffers begin as those of rank 0. Gradients are gathered in buckets in the order
    in which backward reaches them; a full bucket is averaged over all ranks while backward goes on.
    After `backward()` every rank has the mean gradient, to the same bits.

    Args:
        module: the same on all ranks.
        device_ids: at most one device, for modules on a device; inputs are not moved.
        output_device: changes nothing.
        dim: changes nothing.
        broadcast_buffers: the older name of `forward_sync_buffers`; where it is False, ranks begin
            with buffers of their own.
        init_sync: copy rank 0's parameters and buffers to all now.
        process_group: None for all ranks.
        bucket_cap_mb: size of a bucket in MiB; 25 by default.
        find_unused_parameters: look, in each forward, which parameters the output does not depend
            on, so that backward does not wait for their gradients.
        check_reduction: changes nothing.
        gradient_as_bucket_view: let gradients be views of buckets, which spares a copy.
        static_graph: the same parameters are used in each step, possibly several times: those of
            the first step are remembered.
        device_mesh: of one dimension, whose group is taken in place of `process_group`.
        skip_all_reduce_unused_params: changes nothing.
        bucket_cap_mb_list: sizes of the first buckets; the last one holds for all that follow.
        forward_sync_buffers: copy rank 0's buffers to all before each forward that follows one
            whose gradients were averaged: before all in training, and the first in evaluation;
            True by default.
        delay_all_reduce_named_params, param_to_hook_all_reduce, mixed_precision: not supported.

    Raises:
        ValueError: there is no default group, or both a group and a mesh are given.
        RuntimeError: no parameter requires a gradient, or one is not initialized.
        NotImplementedError: an argument is given that is not supported.
    """

    def __init__(
        self,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        _refuse(
            delay_all_reduce_named_params=delay_all_reduce_named_params,
            param_to_hook_all_reduce=param_to_hook_all_reduce,
            mixed_precision=mixed_precision,
        )
        if device_mesh is not None:
            if process_group is not None:
                raise ValueError("Cannot specify both process_group and device_mesh arguments.")
            process_group = device_mesh.get_group()
        self.process_group = (
            default_group("DistributedDataParallel") if process_group is None else process_group
        )
        self.module, self.device_ids, self.dim = module, device_ids, dim
        if broadcast_buffers is not None:
            _tell_deprecated(forward_sync_buffers is not None)
        given = (forward_sync_buffers, broadcast_buffers)
        self.forward_sync_buffers = next((one for one in given if one is not None), True)
        buffers_too = forward_sync_buffers is not None or broadcast_buffers is not False
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._hook: Callable[[Any, GradBucket], Future[Any]] = allreduce_hook
        self._hook_state: Any = self.process_group
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        self._named = [(name, p) for name, p in named if name not in ignored]
        self._check(self._named)
        self._parameters_in_order = [parameter for _, parameter in self._named]
        self._ignored_buffers = set(ignored)
        self._check_same_model()
        if init_sync:
            buffers = self._buffers_to_send() if buffers_too else []
            self._synchronize([*self._parameters_in_order, *buffers])
        sizes = _capacities(bucket_cap_mb, bucket_cap_mb_list)
        cut = cut_into_buckets(self._parameters_in_order, sizes)
        order = self._parameters_in_order
        self._buckets = [Bucket(at, [order[i] for i in ids]) for at, ids in enumerate(cut)]
        self._place = {
            members[place]: (bucket, place)
            for bucket, members in zip(self._buckets, cut, strict=True)
            for place in range(len(members))
        }
        self._join: Any = None
        self._armed = False
        self._next = 0
        self._under_way: list[tuple[Bucket, Future[Any]]] = []
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._when_ready(index))
            for index, parameter in enumerate(self._parameters_in_order)
        ]

    # Setting up -------------------------------------------------------------------------------

    def _check(self, named: list[tuple[str, Any]]) -> None:
        if not named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters "
                "that require a gradient."
            )
        for name, parameter in named:
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise RuntimeError(
                    f"DistributedDataParallel: {name} is not initialized. "
                    "Run a dummy forward pass to initialize the module first."
                )

    def _check_same_model(self) -> None:
        """See that all ranks have the same parameters.

        Raises:
            RuntimeError: they have not; names the first that differs.
        """
        from tangrad_distributed.objects import all_gather_object

        mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in self._named]
        everyone: list[Any] = [None] * self.process_group.size()
        all_gather_object(everyone, mine, self.process_group)
        for rank, theirs in enumerate(everyone):
            if theirs != mine:
                pairs = zip(mine, theirs, strict=False)
                differ = next((pair for pair in pairs if pair[0] != pair[1]), None)
                raise RuntimeError(
                    "DistributedDataParallel expects the same model on every rank: rank "
                    f"{self.process_group.rank()} has {len(mine)} parameters, rank {rank} has "
                    f"{len(theirs)}; first difference: {differ}"
                )

    def _buffers_to_send(self) -> list[Any]:
        named = self.module.named_buffers()
        return [buffer for name, buffer in named if name not in self._ignored_buffers]

    def _synchronize(self, tensors: list[Any], source: int = 0) -> None:
        if tensors:
            self.process_group.broadcast(tensors, source)

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Let a hook average the gradients.

        Args:
            state: its first argument.
            hook: is given the state and a `GradBucket`, and returns a future of the bucket's
                averaged gradients.

        Raises:
            TypeError: it cannot be called.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self._hook, self._hook_state = hook, state

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self.register_comm_hook(self.process_group, BUILT_IN[comm_hook_type])

    # A step -----------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the module; afterwards backward averages its gradients."""
        syncs = self.require_backward_grad_sync and tangrad.is_grad_enabled()
        source = 0 if self._join is None else self._join_step(SYNCED if syncs else LOCAL)
        self._renew_buffers(source, syncs)
        output = self.module(*inputs, **kwargs)
        if syncs:
            self._arm(output)
        return output

    def _renew_buffers(self, source: int, syncs: bool) -> None:
        """Copy a rank's buffers to all if the last forward may have changed them."""
        if self.forward_sync_buffers and self.require_forward_param_sync:
            self._synchronize(self._buffers_to_send(), source)
        self.require_forward_param_sync = syncs

    @property
    def broadcast_buffers(self) -> bool:
        """Return whether forwards copy rank 0's buffers to all; the older name."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    @property
    def reducer(self) -> Reducer:
        """Return what prepares for a backward pass, for programs that do so themselves."""
        return Reducer(self)

    def _arm(self, output: Any) -> None:
        """Wait for the gradients that backward from `output` will bring; None: for all."""
        for bucket in self._buckets:
            bucket.begin()
        self._next, self._under_way, self._armed = 0, [], True
        unused: list[int] = []
        if self._may_leave_out and output is not None:
            reached = _leaves_of(output)
            order = self._parameters_in_order
            unused = [index for index, p in enumerate(order) if id(p) not in reached]
        for index in unused:
            self._ready(index, used=False)

    def _when_ready(self, index: int) -> Callable[[Any], None]:
        return lambda _: self._ready(index)

    def _ready(self, index: int, used: bool = True) -> None:
        """Note that a parameter has its gradient; send the buckets that are full."""
        if not self._armed:
            return
        bucket, place = self._place[index]
        if bucket.found[place]:
            self._refuse_second(index)
        if not bucket.take(place, used):
            return
        # In their order on all ranks, whatever the order in which they fill.
        while self._next < len(self._buckets) and not self._buckets[self._next].missing:
            self._send(self._buckets[self._next])
            self._next += 1
        if self._next == len(self._buckets):
            self._finish()

    def _refuse_second(self, index: int) -> None:
        name = self._named[index][0]
        raise RuntimeError(
            f"DistributedDataParallel: the gradient of {name} came twice in one backward, after it "
            "had been sent. Is the parameter used outside of forward, or in several "
            "re-entrant backward passes? Backward through each forward once, or use no_sync()."
        )

    def _send(self, bucket: Bucket) -> None:
        last = bucket.index == len(self._buckets) - 1
        shown = GradBucket(bucket.index, bucket.buffer, bucket.parameters, last)
        future = self._hook(self._hook_state, shown)
        if not isinstance(future, Future):
            raise TypeError(
                f"a communication hook must return a Future, got {type(future).__name__}"
            )
        self._under_way.append((bucket, future))

    def _finish(self) -> None:
        """Wait for all buckets and give parameters their averaged gradients."""
        self._armed = False
        used = self._used_somewhere()
        for bucket, future in self._under_way:
            with phase("wait for gradients"):
                averaged = future.wait()
            averaged = averaged[0] if isinstance(averaged, (list, tuple)) else averaged
            if averaged is not bucket.buffer:
                bucket.buffer.copy_(averaged.view(-1))
            if self._join is not None and not self._join_divides_by_all:
                bucket.buffer.mul_(self.process_group.size() / len(self._join.at_work))
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                if id(parameter) in used:
                    self._give(parameter, view)
        self._under_way = []

    def _give(self, parameter: Any, averaged: Any) -> None:
        if self.gradient_as_bucket_view:
            parameter.grad = averaged
        elif parameter.grad is None:
            parameter.grad = averaged.clone()
        else:
            parameter.grad.detach().copy_(averaged)

    @property
    def _may_leave_out(self) -> bool:
        return self.find_unused_parameters or self.static_graph

    def _used_somewhere(self) -> set[int]:
        """Return the identities of the parameters that some rank has a gradient of."""
        return self._exchange_used([p.grad is not None for p in self._parameters_in_order])

    def _used_by_others(self) -> set[int]:
        """Return the same on a rank that has no batch."""
        return self._exchange_used([not self._may_leave_out] * len(self._parameters_in_order))

    def _exchange_used(self, have: list[bool]) -> set[int]:
        if self._may_leave_out:
            counts = tangrad.tensor([int(one) for one in have])
            self.process_group.all_reduce([counts], ReduceOp(ReduceOp.MAX))
            have = [bool(one) for one in counts.tolist()]
        pairs = zip(self._parameters_in_order, have, strict=True)
        return {id(parameter) for parameter, has in pairs if has}

    # For ranks that have no more batches ------------------------------------------------------

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what a rank without batches does.

        Args:
            **kwargs: `divide_by_initial_world_size`, True by default: divide sums of gradients by
                the number of all ranks, not of those that still work.
        """
        self._join_divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        return _DataParallelJoinHook(self)

    @property
    def join_device(self) -> Any:
        """Return the device of its parameters."""
        return self._parameters_in_order[0].device

    @property
    def join_process_group(self) -> Any:
        """Return its group."""
        return self.process_group

    def _join_step(self, state: int) -> int:
        """Tell what this rank does in a step that begins; return the first rank that works."""
        join = self._join
        assert join is not None
        if join.leads(self):
            join.begin_step(self, state)
        else:
            join.exchange(state)
        return join.at_work[0]

    def _shadow_step(self, states: list[int], source: int) -> None:
        """Take part in a step of the others, with gradients of zero."""
        self._renew_buffers(source, SYNCED in states)
        if SYNCED not in states:
            return
        for bucket in self._buckets:
            bucket.buffer.zero_()
            self._send(bucket)
        used = self._used_by_others()
        for bucket, future in self._under_way:
            future.wait()
            # An optimizer that owns a part of the parameters steps on this rank, too.
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                if id(parameter) in used:
                    self._give(parameter, view)
        self._under_way = []

    def take_over(self, source: int) -> None:
        """Take over the parameters and buffers of a rank that worked to the last."""
        buffers = self._buffers_to_send() if self.forward_sync_buffers else []
        self._synchronize([*self._parameters_in_order, *buffers], source)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients of the forwards within add up on each rank; the next step sends them."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Let ranks have different numbers of batches.

        A rank that has no more takes part in the others' steps with gradients of zero; at the end
        all take over the parameters of a rank that worked to the last.

        Args:
            divide_by_initial_world_size: divide sums of gradients by the number of all ranks, not
                of those that still work.
            enable: do nothing if False.
            throw_on_early_termination: raise on all ranks as soon as one has no more.

        Raises:
            RuntimeError: a rank has no more, and `throw_on_early_termination` is set.
        """
        with Join(
            [self],
            enable=enable,
            throw_on_early_termination=throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        ):
            yield


class Reducer:
    """Show how a module's gradients are averaged, under PyTorch's name.

    Args:
        module: the module.
    """

    def __init__(self, module: DistributedDataParallel) -> None:
        self._module = module

    def prepare_for_backward(self, outputs: list[Any]) -> None:
        """Average the gradients of the next backward pass, whether its forward was to or not.

        Args:
            outputs: where it begins; only looked at to find unused parameters. With none of them
                every parameter is waited for.
        """
        self._module._arm(outputs or None)


class _DataParallelJoinHook(JoinHook):
    """Shadow a module's steps with gradients of zero, and take over its parameters at the end."""

    def __init__(self, module: DistributedDataParallel) -> None:
        self._module = module

    def main_hook(self) -> None:
        """Take part in a forward and a backward of the others."""
        join = self._module._join
        assert join is not None
        states = join.states if join.leads(self._module) else join.exchange(NO_MORE)
        self._module._shadow_step(states, join.at_work[0])

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over what a rank has that worked to the last."""
        join = self._module._join
        if join is not None and join.at_work:
            self._module.take_over(join.at_work[0])


def _refuse(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"DistributedDataParallel: {name} is not supported here")


def _capacities(size: float | None, sizes: list[int] | None) -> list[int]:
    """Return the most bytes of the first, second, ... bucket; the last one holds for all others."""
    if sizes:
        return [int(one * (1 << 20)) for one in sizes]
    capacity = int((25 if size is None else size) * (1 << 20))
    return [min(FIRST_BUCKET, capacity), capacity]


def _leaves_of(output: Any) -> set[int]:
    """Return the identities of the leaves that the tensors within an output depend on."""
    from tangrad.utils import _pytree

    nodes = [
        tensor.grad_fn
        for tensor in _pytree.tree_leaves(output)
        if isinstance(tensor, tangrad.Tensor) and tensor.grad_fn is not None
    ]
    reached, seen = set(), set(nodes)
    while nodes:
        node = nodes.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            reached.add(id(variable))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
    return reached
