"""States of models and optimizers by the names of parameters, whatever wraps the model.

Optimizers number parameters; here their states go by the parameters' names, so that another number
of ranks, another optimizer that holds parts, or another order of groups can load them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn.modules.module import _IncompatibleKeys
from tangrad_distributed.checkpoint.state_dict_saver import staged
from tangrad_distributed.communication.objects import all_gather_object, broadcast_object_list
from tangrad_distributed.training.data_parallel import DistributedDataParallel
from tangrad_distributed.training.sharded_optimizer import ZeroRedundancyOptimizer
from tangrad_distributed.world import get_rank, is_initialized

FQNS_T = set[str]
PrimitiveType = Any
ValueType = Any
DictValueType = dict[str, Any]
ListDictValueType = list[dict[str, Any]]
OptimizerStateType = dict[str, Any]


@dataclass
class StateDictOptions:
    """Say how states are given and taken.

    Attributes:
        full_state_dict: whole tensors, also of an optimizer whose ranks hold parts; with
            `cpu_offload`, on rank 0 alone.
        cpu_offload: copies on the host.
        ignore_frozen_params: leave out parameters that require no gradient.
        keep_submodule_prefixes: names of submodules' states begin with where the submodule is.
        strict: every key has to be there, and no other.
        broadcast_from_rank0: rank 0 gives all ranks the state that is set.
        flatten_optimizer_state_dict: flat keys for the optimizer's state.
        dsd_fqn_modifiers: changes nothing.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


@dataclass
class _Named:
    """Hold the parameters of a model by the names that they have without wrappers."""

    model: Any
    names: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            self.names.setdefault(id(parameter), []).append(_plain(self.model, name))

    def of(self, parameter: Any) -> str:
        return self.all_of(parameter)[0]

    def all_of(self, parameter: Any) -> list[str]:
        """Return the names of a parameter, of which a tied one has several."""
        try:
            return self.names[id(parameter)]
        except KeyError:
            raise KeyError(
                f"a parameter of shape {list(parameter.shape)} of the optimizer is not in the model"
            ) from None


def _plain(model: Any, name: str) -> str:
    """Return a name without the parts that wrappers of data parallelism put in."""
    kept, here = [], model
    for part in name.split("."):
        wraps = isinstance(here, (DistributedDataParallel, nn.DataParallel)) and part == "module"
        kept += [] if wraps else [part]
        here = getattr(here, part, None) if isinstance(here, nn.Module) else None
    return ".".join(kept)


def _options(options: StateDictOptions | None) -> StateDictOptions:
    found = StateDictOptions() if options is None else options
    if found.broadcast_from_rank0 and not found.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return found


def _given(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    if not options.cpu_offload:
        return state
    if options.full_state_dict and is_initialized() and get_rank() != 0:
        return {}
    return staged(state)


def get_model_state_dict(
    model: nn.Module,
    *,
    submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """Return a model's state by the names that it has without wrappers.

    Args:
        model: wrapped or not.
        submodules: only of these.
        options: see `StateDictOptions`.
    """
    chosen = _options(options)
    frozen = {id(p) for p in model.parameters() if not p.requires_grad}
    state = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if chosen.ignore_frozen_params and id(value) in frozen:
            continue
        prefix = "" if submodules is None else _prefix_within(model, name, submodules)
        if prefix is None:
            continue
        kept = _plain(model, name)
        if not chosen.keep_submodule_prefixes:
            kept = kept.removeprefix(_plain(model, prefix))
        state[kept] = value.detach() if isinstance(value, tangrad.Tensor) else value
    return _given(state, chosen)


def _prefix_within(model: nn.Module, name: str, modules: Iterable[nn.Module]) -> str | None:
    """Return the part of a name that leads to one of some modules, None where none is on the way.

    The part ends with a dot, unless it is empty.
    """
    here: Any = model
    parts = name.split(".")
    for at, part in enumerate(parts):
        if here in modules:
            return "".join(f"{one}." for one in parts[:at])
        here = getattr(here, part, None)
    return None


def set_model_state_dict(
    model: nn.Module,
    model_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> Any:
    """Load a model's state by the names that it has without wrappers.

    Returns:
        What `load_state_dict` returns: missing and unexpected keys.

    Raises:
        RuntimeError: keys are missing or left over, and `strict`.
    """
    chosen = _options(options)
    state = _from_first(model_state_dict, chosen)
    wrapped = {_plain(model, name): name for name in model.state_dict()}
    return model.load_state_dict(
        {wrapped.get(name, name): value for name, value in state.items()}, strict=chosen.strict
    )


def _from_first(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    if not options.broadcast_from_rank0 or not is_initialized():
        return state
    held: list[Any] = [staged(state) if get_rank() == 0 else None]
    broadcast_object_list(held, 0)
    return held[0]


# Optimizers -----------------------------------------------------------------------------------


def _listed(optimizers: Any) -> list[Any]:
    """Return one optimizer, or several, as a list.

    Raises:
        RuntimeError: there is none.
    """
    one = isinstance(optimizers, tangrad.optim.Optimizer)
    listed = [optimizers] if one else list(optimizers)
    if not listed:
        raise RuntimeError("Optimizers are not passed in: give the optimizers of the model")
    return listed


def _own(optimizer: Any) -> Any:
    """Return the optimizer that holds this rank's states."""
    return optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer


def _init_optim_state(optimizer: Any) -> None:
    """Have an optimizer that has not stepped make its states, changing no parameter."""
    if optimizer.state or isinstance(optimizer, tangrad.optim.LBFGS):
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [parameter.grad for parameter in parameters]
    values = [parameter.detach().clone() for parameter in parameters]
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = tangrad.zeros_like(parameter)
    optimizer.step()
    with tangrad.no_grad():
        for parameter, gradient, value in zip(parameters, gradients, values, strict=True):
            parameter.copy_(value)
            parameter.grad = gradient


def get_optimizer_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """Return the states of optimizers by the names of parameters.

    An optimizer that has not stepped makes its states now, so that they can be loaded into. Of
    a `ZeroRedundancyOptimizer` it is the states of this rank's part, unless `full_state_dict`.

    Args:
        model: whose parameters they are.
        optimizers: one, or several.
        submodules: only of the parameters of these.
        options: see `StateDictOptions`.

    Raises:
        KeyError: a parameter of an optimizer is not the model's.
        RuntimeError: there is no optimizer.
    """
    chosen, named = _options(options), _Named(model)
    listed = _listed(optimizers)
    kept = None
    if submodules is not None:
        kept = {id(p) for module in submodules for p in module.parameters()}
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in listed:
        own = _own(optimizer)
        _init_optim_state(own)
        for parameter, held in own.state.items():
            if kept is None or id(parameter) in kept:
                state[named.of(parameter)] = dict(held)
        for group in optimizer.param_groups:
            names = [named.of(p) for p in group["params"] if kept is None or id(p) in kept]
            groups.append({**group, "params": names})
        if chosen.full_state_dict and isinstance(optimizer, ZeroRedundancyOptimizer):
            _collect(state, optimizer.process_group)
    whole: dict[str, Any] = {"state": state, "param_groups": groups}
    if chosen.flatten_optimizer_state_dict:
        whole = _flat(whole)
    return _given(whole, chosen)


def _collect(state: dict[str, Any], group: Any) -> None:
    """Add the states of the other ranks' parts."""
    parts: list[Any] = [None] * group.size()
    all_gather_object(parts, staged(state), group)
    for part in parts:
        for name, held in part.items():
            state.setdefault(name, held)


def _flat(whole: dict[str, Any]) -> dict[str, Any]:
    flat = {
        f"state.{name}.{key}": value
        for name, held in whole["state"].items()
        for key, value in held.items()
    }
    for group in whole["param_groups"]:
        options = {key: value for key, value in group.items() if key != "params"}
        for name in group["params"]:
            flat |= {f"param_groups.{name}.{key}": value for key, value in options.items()}
    return flat


def _nested(flat: dict[str, Any], optimizer: Any, named: _Named, strict: bool) -> dict[str, Any]:
    """Return the nested form of a flat state, for the parameters of one optimizer.

    Raises:
        KeyError: an option of a group is not there.
        RuntimeError: an entry of a parameter's state is missing, and `strict`.
    """
    state: dict[str, Any] = {}
    groups = []
    for group in optimizer.param_groups:
        names = []
        for parameter in group["params"]:
            name = _found(flat, named.all_of(parameter))
            names.append(name)
            held = _within_flat(flat, f"state.{name}.")
            expected = optimizer.state.get(parameter, {}) if parameter.requires_grad else {}
            missing = [entry for entry in expected if str(entry) not in held]
            if strict and missing:
                raise RuntimeError(_missing(name, f", entries {', '.join(map(str, missing))}"))
            if held:
                state[name] = {**expected, **held}
        # The first parameter speaks for its group: the others may be new to the state.
        options = [option for option in group if option != "params" and names]
        for option in options:
            if f"param_groups.{names[0]}.{option}" not in flat:
                raise KeyError(f"param_groups.{names[0]}.{option} is not in the optimizer's state")
        said = {option: flat[f"param_groups.{names[0]}.{option}"] for option in options}
        groups.append({**said, "params": names})
    return {"state": state, "param_groups": groups}


def _missing(name: str, which: str = "") -> str:
    return (
        f"Missing optimizer state for parameter '{name}' in checkpoint{which}. The parameter "
        "requires gradients; to load what there is, give StateDictOptions(strict=False)"
    )


def _found(flat: dict[str, Any], names: list[str]) -> str:
    """Return the name of a parameter, which may have several, that a flat state goes by."""
    known = (n for n in names if any(key.startswith(f"param_groups.{n}.") for key in flat))
    return next(known, names[0])


def _within_flat(flat: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the entries under a prefix; those with further dots in their names as dictionaries."""
    held: dict[str, Any] = {}
    for key, value in flat.items():
        if key.startswith(prefix):
            *outer, last = key[len(prefix) :].split(".")
            here = held
            for part in outer:
                here = here.setdefault(part, {})
            here[last] = value
    return held


def set_optimizer_state_dict(
    model: nn.Module,
    optimizers: Any,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load the states of optimizers by the names of parameters.

    Raises:
        RuntimeError: the state of a parameter is missing, or an entry of it in a flat one, and
            `strict`; or there is no state at all.
        KeyError: options of a group are missing, or a parameter is not the model's.
    """
    chosen, named = _options(options), _Named(model)
    given = _from_first(optim_state_dict, chosen)
    if not given and not (chosen.cpu_offload and chosen.full_state_dict):
        raise RuntimeError("set_optimizer_state_dict: the optim state_dict is empty")
    for optimizer in _listed(optimizers):
        own = _own(optimizer)
        _init_optim_state(own)
        whole = given if "state" in given else _nested(given, own, named, chosen.strict)
        own.load_state_dict(_numbered(own, whole, named, chosen.strict))
        if own is not optimizer:
            optimizer.pass_options(own.param_groups, optimizer.param_groups)


def _numbered(optimizer: Any, whole: dict[str, Any], named: _Named, strict: bool) -> dict[str, Any]:
    """Return a state as the optimizer numbers its parameters."""
    by_name = {name: group for group in whole["param_groups"] for name in group["params"]}
    state: dict[int, Any] = {}
    groups, count = [], 0
    for group in optimizer.param_groups:
        options = {key: value for key, value in group.items() if key != "params"}
        known = False
        for at, parameter in enumerate(group["params"], count):
            names = named.all_of(parameter)
            name = next((one for one in names if one in by_name), names[0])
            if name in whole["state"]:
                state[at] = whole["state"][name]
            elif strict and parameter.requires_grad and optimizer.state.get(parameter):
                raise RuntimeError(_missing(name))
            if name in by_name:
                known = True
                options = {key: by_name[name].get(key, value) for key, value in options.items()}
        if group["params"] and not known:
            raise KeyError(f"no group of the optimizer's state has {name} or one of its group")
        places = list(range(count, count + len(group["params"])))
        count += len(places)
        groups.append({**options, "params": places})
    return {"state": state, "param_groups": groups}


# Both -----------------------------------------------------------------------------------------


def get_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the states of a model and of its optimizers."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Load the states of a model and of its optimizers; return missing and unexpected keys.

    With no state of the model at all, only the optimizers' are loaded.
    """
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    if not model_state_dict and not _options(options).broadcast_from_rank0:
        return _IncompatibleKeys([], [])
    return set_model_state_dict(model, model_state_dict, options=options)
