"""Data parallelism: a module on every rank, whose gradients are averaged while backward runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import tangrad
from tangrad import nn
from tangrad_distributed.training.communication_hooks import BUILT_IN, check_hook
from tangrad_distributed.training.gradient_buckets import GradBucket
from tangrad_distributed.training.join import LOCAL, NO_MORE, SYNCED, Join, Joinable, JoinHook
from tangrad_distributed.training.reducer import Reducer
from tangrad_distributed.world import default_group

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
        ValueError: there is no default group, or there are several `device_ids`.
        RuntimeError: no parameter requires a gradient, one is not initialized, or both a group and
            a mesh are given.
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
        self.process_group = _group_of(process_group, device_mesh)
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        self.module, self.device_ids, self.dim = module, device_ids, dim
        if broadcast_buffers is not None:
            _tell_deprecated(forward_sync_buffers is not None)
        given = (forward_sync_buffers, broadcast_buffers)
        self.forward_sync_buffers = next((one for one in given if one is not None), True)
        buffers_too = forward_sync_buffers is not None or broadcast_buffers is not False
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = False
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._check()
        if init_sync:
            self._check_same_model()
            self._synchronize(self._states(buffers_too))
        self._bucket_sizes = _capacities(bucket_cap_mb, bucket_cap_mb_list)
        self._prepare(static_graph)

    # Setting up -------------------------------------------------------------------------------

    def _prepare(self, static_graph: bool) -> None:
        """Make what only this process has."""
        self._join: Any = None
        self._join_divides_by_all = True
        self._has_hook = False
        self.reducer = Reducer(
            self._trained(),
            self.process_group,
            self._bucket_sizes,
            self.find_unused_parameters,
            self.gradient_as_bucket_view,
        )
        if static_graph:
            self._set_static_graph()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle has; its group is the default one where it is made."""
        if self.process_group is not default_group("a copy of DistributedDataParallel"):
            raise RuntimeError(
                "DDP Pickling/Unpickling are only supported when using DDP with the default "
                "process group: this module was given another one"
            )
        made_anew = ("process_group", "reducer", "_join")
        return {name: one for name, one in self.__dict__.items() if name not in made_anew}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group = default_group("a copy of DistributedDataParallel")
        static_graph, self.static_graph = self.static_graph, False
        self._prepare(static_graph)

    def _kept(self, named: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Return names and tensors without those to be ignored."""
        # Programs that put a module's name before each parameter write ".name" for its own.
        ignored = self.parameters_to_ignore
        return [one for one in named if one[0] not in ignored and f".{one[0]}" not in ignored]

    def _trained(self) -> list[tuple[str, Any]]:
        """Return what is averaged; a tied parameter that is ignored by one name goes by another."""
        named = self._kept(self.module.named_parameters(remove_duplicate=False))
        first = {id(one[1]): one for one in reversed(named)}
        return [one for one in named if first[id(one[1])] is one and one[1].requires_grad]

    def _check(self) -> None:
        if not self._trained():
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        for name, parameter in self._kept(self.module.named_parameters()):
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise RuntimeError(
                    f"DistributedDataParallel: {name} is not initialized. Modules with "
                    "uninitialized parameters can't be used with `DistributedDataParallel`. "
                    "Run a dummy forward pass to initialize the module first."
                )

    def _check_same_model(self) -> None:
        """See that all ranks have the same parameters.

        Raises:
            RuntimeError: they have not; names the first that differs.
        """
        from tangrad_distributed.communication.objects import all_gather_object

        named = self._kept(self.module.named_parameters())
        mine = [(n, tuple(p.shape), str(p.dtype), p.requires_grad) for n, p in named]
        everyone: list[Any] = [None] * self.process_group.size()
        all_gather_object(everyone, mine, self.process_group)
        for rank, theirs in enumerate(everyone):
            if theirs != mine:
                pairs = zip(mine, theirs, strict=False)
                differ = next((pair for pair in pairs if pair[0] != pair[1]), None)
                raise RuntimeError(
                    "DDP expects same model across all ranks: rank "
                    f"{self.process_group.rank()} has {len(mine)} params, rank {rank} has "
                    f"{len(theirs)}; first difference (name, shape, dtype, requires_grad): {differ}"
                )

    def _states(self, buffers_too: bool) -> list[Any]:
        """Return what ranks have alike: parameters, the frozen ones too, and buffers."""
        parameters = [one for _, one in self._kept(self.module.named_parameters())]
        return parameters + (self._buffers_to_send() if buffers_too else [])

    def _buffers_to_send(self) -> list[Any]:
        return [buffer for _, buffer in self._kept(self.module.named_buffers())]

    def _synchronize(self, tensors: list[Any], source: int = 0) -> None:
        if tensors:
            self.process_group.broadcast(tensors, source)

    def _set_static_graph(self) -> None:
        """Take all steps for the same, before the first one; see `static_graph`."""
        if self.static_graph:
            warnings.warn(
                "You've set static_graph to be True, no need to set it again.", stacklevel=2
            )
            return
        self.static_graph = True
        self.reducer.learn_from_the_first_step()

    def _check_reducer_finalized(self) -> None:
        """See that the last backward pass has reached every parameter.

        Raises:
            RuntimeError: it has not; names those that it left out.
        """
        self.reducer.check_finished()

    def _remove_autograd_hooks(self) -> None:
        """Average no gradients any more."""
        self.reducer.remove_hooks()

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Any, names: Any) -> None:
        """Say, before a module is wrapped, which parameters and buffers each rank keeps for itself.

        Args:
            module: the module.
            names: as `named_parameters` and `named_buffers` of the module give them.
        """
        module._ddp_params_and_buffers_to_ignore = names
        for name, one in chain(module.named_parameters(), module.named_buffers()):
            if name in names:
                one._ddp_ignored = True

    @staticmethod
    def _get_data_parallel_params(module: Any, named_params: bool = False) -> Iterator[Any]:
        """Return the parameters of a module, with names if asked for, that ranks have alike."""
        for name, one in module.named_parameters():
            if not hasattr(one, "_ddp_ignored"):
                yield (name, one) if named_params else one

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Let a hook average the gradients.

        Args:
            state: its first argument.
            hook: is given the state and a `GradBucket`, and returns a future of the bucket's
                averaged gradients.

        Raises:
            TypeError: it cannot be called.
            ValueError: it says that it takes or returns something else.
            RuntimeError: there is a hook already.
        """
        check_hook(hook)
        if self._has_hook:
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        self._has_hook = True
        self.reducer.hook, self.reducer.hook_state = hook, state

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self.register_comm_hook(self.process_group, BUILT_IN[comm_hook_type])

    # A step -----------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the module; afterwards backward averages its gradients.

        Raises:
            RuntimeError: the backward pass of the last forward has left out parameters.
        """
        records = tangrad.is_grad_enabled()
        if records:
            self.reducer.check_finished()
        syncs = self.require_backward_grad_sync and records
        source = 0 if self._join is None else self._join_step(SYNCED if syncs else LOCAL)
        self._renew_buffers(source, syncs)
        output = self.module(*inputs, **kwargs)
        if syncs:
            self.reducer.prepare_for_backward(output)
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
        return self.reducer.parameters[0].device

    @property
    def join_process_group(self) -> Any:
        """Return its group."""
        return self.process_group

    def _join_step(self, state: int) -> int:
        """Tell what this rank does in a step that begins; return the last rank that works."""
        join = self._join
        assert join is not None
        if join.leads(self):
            join.begin_step(self, state)
        else:
            join.exchange(state)
        self._weigh()
        return join.at_work[-1]

    def _weigh(self) -> None:
        """Say what means over all ranks are multiplied by to be means over those that work."""
        at_work = len(self._join.at_work)
        by_all = self._join_divides_by_all
        self.reducer.scale = 1.0 if by_all else self.process_group.size() / at_work

    def _shadow_step(self, states: list[int], source: int) -> None:
        """Take part in a step of the others, with gradients of zero."""
        self.reducer.check_finished()
        self._renew_buffers(source, SYNCED in states)
        if SYNCED in states:
            self._weigh()
            self.reducer.shadow()

    def take_over(self, source: int) -> None:
        """Take over the parameters and buffers of a rank that worked to the last."""
        self.reducer.scale = 1.0
        self._synchronize(self._states(self.forward_sync_buffers), source)

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


class _DataParallelJoinHook(JoinHook):
    """Shadow a module's steps with gradients of zero, and take over its parameters at the end."""

    def __init__(self, module: DistributedDataParallel) -> None:
        self._module = module

    def main_hook(self) -> None:
        """Take part in a forward and a backward of the others."""
        join = self._module._join
        assert join is not None
        states = join.states if join.leads(self._module) else join.exchange(NO_MORE)
        self._module._shadow_step(states, join.at_work[-1])

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over what a rank has that worked to the last."""
        join = self._module._join
        if join is not None and join.at_work:
            self._module.take_over(join.at_work[-1])


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


def _group_of(process_group: Any, device_mesh: Any) -> Any:
    """Return the group that averages gradients.

    Raises:
        RuntimeError: both are given, or the mesh has more than one dimension.
    """
    if device_mesh is None:
        return default_group("DistributedDataParallel") if process_group is None else process_group
    if process_group is not None:
        raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
    if device_mesh.ndim != 1:
        raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
    return device_mesh.get_group()
