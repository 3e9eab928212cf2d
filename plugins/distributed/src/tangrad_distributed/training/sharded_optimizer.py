"""ZeRO, stage 1: each rank holds the optimizer's state of a part of the parameters.

After its part has stepped, each rank sends the others its parameters (Rajbhandari et al. 2019,
arXiv:1910.02054).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_distributed.communication.objects import broadcast_object_list, gather_object
from tangrad_distributed.training.join import Join, Joinable, JoinHook
from tangrad_distributed.world import default_group


class _StepWithoutBatch(JoinHook):
    """Step the part of a rank that has no batches: the others need its parameters."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        """Step, by the gradients that data parallelism averaged."""
        self._optimizer._step_and_share(None)


class ZeroRedundancyOptimizer(tangrad.optim.Optimizer, Joinable):
    """Divide an optimizer's state among ranks.

    Parameters are dealt out by size, the largest first, to the rank that has least: each rank
    makes the same division. Optimizers that treat every parameter by itself give the same bits as
    they do alone.

    Args:
        params: parameters or groups, the same on all ranks.
        optimizer_class: of the optimizer of each part.
        process_group: None for all ranks.
        parameters_as_bucket_view: lay the parameters of a rank one behind the other, which spares
            a copy when they are sent.
        overlap_with_ddp: not supported.
        **defaults: for the optimizer.

    Raises:
        TypeError: the parameters are no tensors.
        ValueError: there is none, or one is not dense.
        NotImplementedError: `overlap_with_ddp` is asked for.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: Callable[..., Any],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not supported")
        self.process_group = (
            default_group("ZeroRedundancyOptimizer") if process_group is None else process_group
        )
        self._make, self._options = optimizer_class, defaults
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._gathered: list[Any] | None = None
        self._flat: list[Any] = []
        self._ready = False
        tangrad.optim.Optimizer.__init__(self, _checked(params), defaults)
        self._ready = True
        self._divide()

    # Parts ------------------------------------------------------------------------------------

    def _divide(self) -> None:
        """Deal out the parameters, and make the optimizer of this rank's part."""
        groups = [group["params"] for group in self.param_groups]
        self._order = [parameter for group in groups for parameter in group]
        owners = _owners(self._order, self.process_group.size())
        self._owner = {id(p): rank for p, rank in zip(self._order, owners, strict=True)}
        self.optim = self._make([self._own_part(group) for group in self.param_groups])
        self._take_options()
        self._parts = self._buffers()
        if self.parameters_as_bucket_view:
            self._lay_out()

    def _own_part(self, group: dict[str, Any]) -> dict[str, Any]:
        own = [p for p in group["params"] if self._owner[id(p)] == self.process_group.rank()]
        return {**self._options, **group, "params": own}

    def _take_options(self) -> None:
        """Show the options that the optimizer adds to those given."""
        for whole, own in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in own.items():
                whole.setdefault(name, value)
        self.defaults = {**self.optim.defaults, **self._options}

    def _buffers(self) -> list[tuple[int, list[Any]]]:
        """Return (rank, parameters that are sent at once) for each rank, dtype and device."""
        parts: dict[tuple[int, Any, Any], list[Any]] = {}
        for p in self._order:
            parts.setdefault((self._owner[id(p)], p.dtype, p.device), []).append(p)
        return [(key[0], listed) for key, listed in sorted(parts.items(), key=lambda x: x[0][0])]

    def _lay_out(self) -> None:
        """Let the parameters of each part be views of one vector, which is sent as it is."""
        self._flat = [_as_one(listed) for _, listed in self._parts]
        for buffer, (_, listed) in zip(self._flat, self._parts, strict=True):
            parts = buffer.split([parameter.numel() for parameter in listed])
            for parameter, part in zip(listed, parts, strict=True):
                parameter.data = part.view_as(parameter)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, and deal all out anew; states of those that move are lost.

        Raises:
            RuntimeError: the optimizer has stepped, and a parameter would move to another rank.
        """
        if not self._ready:
            super().add_param_group(param_group)
            return
        before, states = dict(self._owner), dict(self.optim.state)
        super().add_param_group(param_group)
        self._divide()
        if states and any(self._owner[key] != rank for key, rank in before.items()):
            raise RuntimeError(
                "ZeroRedundancyOptimizer: the new group would move parameters that have a state "
                "to other ranks; add groups before the first step"
            )
        self.optim.state.update(states)

    # Steps ------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Step this rank's part, and exchange parameters.

        Args:
            closure: computes the loss again, where the optimizer asks for it.
            **kwargs: for the optimizer.
        """
        Join.notify_join_context(self)
        return self._step_and_share(closure, **kwargs)

    def _step_and_share(self, closure: Any, **kwargs: Any) -> Any:
        self.pass_options(self.param_groups, self.optim.param_groups)
        if closure is None:
            loss = self.optim.step(**kwargs)
        else:
            loss = self.optim.step(closure=closure, **kwargs)
        self.pass_options(self.optim.param_groups, self.param_groups)
        self._share()
        return loss

    @staticmethod
    def pass_options(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
        """Copy the options of groups, which schedulers and the optimizer itself change."""
        for given, taken in zip(source, target, strict=True):
            taken.update({name: value for name, value in given.items() if name != "params"})

    def _share(self) -> None:
        """Send each rank's parameters to all others."""
        rank = self.process_group.rank()
        with tangrad.no_grad():
            for at, (owner, listed) in enumerate(self._parts):
                if self.parameters_as_bucket_view:
                    self.process_group.broadcast([self._flat[at]], owner)
                    continue
                buffer = _as_one(listed, rank == owner)
                self.process_group.broadcast([buffer], owner)
                if rank != owner:
                    parts = buffer.split([parameter.numel() for parameter in listed])
                    for parameter, part in zip(listed, parts, strict=True):
                        parameter.copy_(part.view_as(parameter))

    # For ranks that have no more batches ------------------------------------------------------

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what a rank without batches does: its part steps on."""
        return _StepWithoutBatch(self)

    @property
    def join_device(self) -> Any:
        """Return the device of its parameters."""
        return self._order[0].device

    @property
    def join_process_group(self) -> Any:
        """Return its group."""
        return self.process_group

    # State ------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring all parts' states to one rank, where `state_dict` then returns them; all call it.

        Args:
            to: rank in the group.
        """
        mine = self.process_group.rank() == to
        gathered: list[Any] | None = [None] * self.process_group.size() if mine else None
        gather_object(_on_host(self._own_state()), gathered, group=self.process_group, group_dst=to)
        self._gathered = gathered

    def own_parameters(self) -> list[Any]:
        """Return the parameters whose state this rank holds."""
        rank = self.process_group.rank()
        return [p for p in self._order if self._owner[id(p)] == rank]

    def _own_state(self) -> dict[int, Any]:
        """Return the state of each parameter of this rank, by its place among all."""
        place = {id(p): at for at, p in enumerate(self._order)}
        return {place[id(p)]: state for p, state in self.optim.state.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, as the optimizer alone would.

        Raises:
            RuntimeError: `consolidate_state_dict` did not bring it here.
        """
        if self._gathered is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.process_group.rank()})` on all ranks "
                "beforehand if you meant to save the global state."
            )
        state: dict[int, Any] = {}
        for part in self._gathered:
            state.update(part)
        place = {id(p): at for at, p in enumerate(self._order)}
        groups = [
            {**group, "params": [place[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the own part of a whole state, of any number of ranks.

        Raises:
            ValueError: it is of other groups.
        """
        groups = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in groups]
        if sizes != [len(group["params"]) for group in self.param_groups]:
            raise ValueError(
                "loaded state dict has a different number of parameter groups, or of parameters "
                f"in a group: {sizes}"
            )
        saved = [index for group in groups for index in group["params"]]
        states = dict(zip((id(p) for p in self._order), saved, strict=True))
        own: dict[str, Any] = {"state": {}, "param_groups": []}
        count = 0
        for group, part in zip(groups, self.optim.param_groups, strict=True):
            places = list(range(count, count + len(part["params"])))
            count += len(places)
            own["param_groups"].append({**group, "params": places})
            for at, parameter in zip(places, part["params"], strict=True):
                if states[id(parameter)] in state_dict["state"]:
                    own["state"][at] = state_dict["state"][states[id(parameter)]]
        self.optim.load_state_dict(own)
        self.pass_options(self.optim.param_groups, self.param_groups)

    def broadcast_state_dict(self, source: int = 0) -> None:
        """Give all ranks the whole state that one rank consolidated; all call it.

        Args:
            source: that rank, in the group.
        """
        held = [self._gathered if self.process_group.rank() == source else None]
        broadcast_object_list(held, group=self.process_group, group_src=source)
        self._gathered = held[0]


def _checked(params: Any) -> list[Any]:
    """Return parameters or groups as a list, all dense."""
    if isinstance(params, tangrad.Tensor):
        raise TypeError(
            "`params` argument should be an iterable of Tensors, but got a tensor; "
            "give model.parameters()"
        )
    listed = list(params)
    if not listed:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    for group in listed:
        for one in group["params"] if isinstance(group, dict) else [group]:
            found = one[1] if isinstance(one, tuple) else one
            if isinstance(found, tangrad.Tensor) and found.layout != tangrad.strided:
                raise ValueError("ZeroRedundancyOptimizer: parameters must be dense")
    return listed


def _owners(parameters: list[Any], size: int) -> list[int]:
    """Return which rank has each parameter: the largest go first, to who has least."""
    load, owners = [0] * size, [0] * len(parameters)
    by_size = sorted(range(len(parameters)), key=lambda at: (-parameters[at].numel(), at))
    for at in by_size:
        owners[at] = load.index(min(load))
        load[owners[at]] += parameters[at].numel()
    return owners


def _as_one(parameters: list[Any], filled: bool = True) -> Any:
    """Return the parameters' elements in one vector; room for them if not `filled`."""
    if filled:
        return tangrad.cat([parameter.detach().reshape(-1) for parameter in parameters])
    total = sum(parameter.numel() for parameter in parameters)
    return parameters[0].detach().new_empty(total)


def _on_host(value: Any) -> Any:
    from tangrad.utils import _pytree

    return _pytree.tree_map(lambda x: x.cpu() if isinstance(x, tangrad.Tensor) else x, value)
