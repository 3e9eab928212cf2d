"""The base class of all optimizers."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import chain
from typing import Any

import tangrad
from tangrad.plugin import number_of, own_copy, phase, phase_is_watched
from tangrad.utils.hooks import RemovableHandle

__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "required",
    "swap_in_optimizer_params_and_state",
]

_global_optimizer_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()


ParamsT = Iterable[Any]
StateDict = dict[str, Any]


class _Required:
    """Stand for the default of an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(optimizer, args, kwargs)` before each `step` of every optimizer."""
    return _add(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(optimizer, args, kwargs)` after each `step` of every optimizer."""
    return _add(_global_optimizer_post_hooks, hook)


def _add(registry: Any, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(registry)
    registry[handle.id] = hook
    if prepend:
        registry.move_to_end(handle.id, last=False)
    return handle


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return `step` surrounded by the optimizer's hooks and those of all optimizers."""

    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "_optimizer_step_pre_hooks" not in self.__dict__:
            # It wraps another optimizer, whose step has the hooks, and skipped __init__.
            return step(self, *args, **kwargs)
        before = (*_global_optimizer_pre_hooks.values(), *self._optimizer_step_pre_hooks.values())
        for hook in before:
            replacement = hook(self, (self, *args), kwargs)
            if replacement is None:
                continue
            if not (isinstance(replacement, tuple) and len(replacement) == 2):
                raise RuntimeError(
                    f"{step} must return None or a tuple of (new_args, new_kwargs), "
                    f"but got {replacement}."
                )
            (self, *args), kwargs = replacement
        result = step(self, *args, **kwargs)
        self._opt_called = True  # Read by the schedulers, which are to step after the optimizer.
        for hook in (
            *self._optimizer_step_post_hooks.values(),
            *_global_optimizer_post_hooks.values(),
        ):
            hook(self, (self, *args), kwargs)
        return result

    hooked.__name__ = step.__name__
    hooked.__qualname__ = step.__qualname__
    hooked.__doc__ = step.__doc__
    hooked.__wrapped__ = step  # type: ignore[attr-defined]
    hooked.hooked = True  # type: ignore[attr-defined]
    return hooked


class Optimizer:
    """Hold parameters in groups, with options for each group and state for each parameter.

    A subclass defines `step`. Its parameters with their gradients are in `param_groups`.

    Args:
        params: parameters, (name, parameter) pairs, or dictionaries: each a group, with its
            parameters under ``"params"`` and options that differ from `defaults`.
        defaults: options of groups that do not give them.

    Raises:
        TypeError: if `params` is a tensor, or contains something else than leaf tensors.
        ValueError: if `params` is empty, or a parameter is in two groups.

    Attributes:
        param_groups: list of dictionaries, one for each group.
        state: for each parameter, a dictionary of the optimizer's own.
        defaults: the options above.
    """

    _opt_called: bool
    _step_when_scheduled: Any
    _optimizer_step_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_step_post_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if callable(step) and not getattr(step, "hooked", False):
            cls.step = _with_hooks(step)  # type: ignore[method-assign]

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._set_hooks()
        if isinstance(params, tangrad.Tensor) or not hasattr(params, "__iter__"):
            advice = "; pass its parameters()" if hasattr(params, "parameters") else ""
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {type(params).__module__}.{type(params).__qualname__}{advice}"
            )
        self.state: Any = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _patch_step_function(self) -> None:
        """Do nothing: hooks surround `step` from the making of the class on.

        Classes that hold another optimizer, and do not call `__init__`, call it.
        """

    def _set_hooks(self) -> None:
        for name in _HOOK_REGISTRIES:
            self.__dict__.setdefault(name, OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_hooks()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for position, group in enumerate(self.param_groups):
            text += f"\nParameter Group {position}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    # --- hooks ----------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(optimizer, args, kwargs)` before each step; it may return new ones."""
        return _add(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(optimizer, args, kwargs)` after each step."""
        return _add(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(optimizer)` before `state_dict`."""
        return _add(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(optimizer, state_dict)` after `state_dict`; it may return another one."""
        return _add(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(optimizer, state_dict)` before loading; it may return another one."""
        return _add(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(optimizer)` after loading."""
        return _add(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # --- state ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return state and options, with parameters replaced by their positions.

        Returns:
            A dictionary of ``"state"``, from position to the parameter's state, and
            ``"param_groups"``, the groups with positions under ``"params"``.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        positions: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            for parameter in group["params"]:
                positions.setdefault(id(parameter), len(positions))
            packed["params"] = [positions[id(parameter)] for parameter in group["params"]]
            groups.append(packed)
        state = {
            positions[id(key)] if isinstance(key, tangrad.Tensor) else key: value
            for key, value in self.state.items()
        }
        result = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            replacement = hook(self, result)
            if replacement is not None:
                result = replacement
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take state and options from what `state_dict` returned.

        Parameters are matched by their position; state is converted to their dtype and device.

        Raises:
            ValueError: if the groups differ in number or size.
        """
        from copy import deepcopy

        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replacement = hook(self, state_dict)
            if replacement is not None:
                state_dict = replacement
        saved = deepcopy(state_dict["param_groups"])
        groups = self.param_groups
        _check_same_sizes(groups, saved)
        parameters = dict(
            zip(
                chain.from_iterable(group["params"] for group in saved),
                chain.from_iterable(group["params"] for group in groups),
                strict=True,
            )
        )
        state: Any = defaultdict(dict)
        for key, value in state_dict["state"].items():
            parameter = parameters.get(key)
            if parameter is None:
                state[key] = own_copy(value)
            else:
                state[parameter] = _fitted(value, parameter)
        for group, new in zip(groups, saved, strict=True):
            new["params"] = group["params"]
            if "param_names" in group and "param_names" not in new:
                new["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # --- parameters -----------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        if phase_is_watched():
            with phase(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"):
                self._drop_gradients(set_to_none)
        else:
            self._drop_gradients(set_to_none)

    def _drop_gradients(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            if not set_to_none:
                _zero_gradients(group["params"])
                continue
            for parameter in group["params"]:
                parameter.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once.

        Args:
            closure: evaluates the model again and returns the loss.

        Returns:
            The loss of the closure, or None.

        Raises:
            NotImplementedError: unless overridden.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters.

        Args:
            param_group: the parameters under ``"params"``, and options.

        Raises:
            TypeError: if the group is no dictionary, or a parameter no tensor.
            ValueError: if a parameter is no leaf, is in a group already, or an option is missing.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        param_group["params"] = _parameter_list(param_group["params"])
        _take_names(param_group)
        for parameter in param_group["params"]:
            _check_leaf(parameter, self.defaults)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        self._check_new(param_group)
        self.param_groups.append(param_group)

    def _check_new(self, param_group: dict[str, Any]) -> None:
        params = param_group["params"]
        ids = {id(parameter) for parameter in params}
        if len(ids) != len(params):
            import warnings

            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error",
                stacklevel=4,
            )
        for group in self.param_groups:
            if ("param_names" in group) != ("param_names" in param_group):
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param "
                    "group with names to the optimizer without names, or the reverse"
                )
            if not ids.isdisjoint(id(parameter) for parameter in group["params"]):
                raise ValueError("some parameters appear in more than one parameter group")


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer,
    swapin_parameters: dict[str, Any],
    swapin_optim_state: dict[str, Any],
) -> Iterator[None]:
    """Let an optimizer act on other parameters and another state inside a `with` block.

    Args:
        optimizer: the optimizer.
        swapin_parameters: {name: tensor}, in the order of the optimizer's parameters.
        swapin_optim_state: laid out as by `state_dict`. Its tensors are used as they are; what
            the optimizer sets anew is lost when the block ends.

    Raises:
        ValueError: the number of parameters or groups is not the optimizer's.
    """
    groups, state = optimizer.param_groups, optimizer.state
    packed = swapin_optim_state["param_groups"]
    given = list(swapin_parameters.values())
    _check_same_sizes(groups, packed)
    if len(given) != sum(len(group["params"]) for group in groups):
        raise ValueError(
            f"expected {sum(len(group['params']) for group in groups)} parameters, as the "
            f"optimizer has, but got {len(given)}"
        )
    positions = chain.from_iterable(group["params"] for group in packed)
    by_position = dict(zip(positions, given, strict=True))
    optimizer.param_groups = [
        {**group, "params": [by_position[position] for position in group["params"]]}
        for group in packed
    ]
    optimizer.state = defaultdict(dict)
    for key, held in swapin_optim_state["state"].items():
        optimizer.state[by_position.get(key, key)] = dict(held)
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = groups, state


_HOOK_REGISTRIES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


def _parameter_list(params: Any) -> list[Any]:
    if isinstance(params, tangrad.Tensor):
        return [params]
    if isinstance(params, (set, frozenset)):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering "
            "of tensors in sets will change between runs. Please use a list instead."
        )
    return list(params)


def _take_names(group: dict[str, Any]) -> None:
    """Split (name, parameter) pairs into two lists."""
    pairs = [isinstance(item, tuple) for item in group["params"]]
    if not any(pairs):
        return
    if not all(pairs):
        raise ValueError(
            "all optimizer params should be with/without names. Some param names are missing"
        )
    group["param_names"] = [name for name, _ in group["params"]]
    group["params"] = [parameter for _, parameter in group["params"]]


def _check_leaf(parameter: Any, defaults: dict[str, Any]) -> None:
    if not isinstance(parameter, tangrad.Tensor):
        kind = type(parameter)
        name = kind.__qualname__
        if kind.__module__ != "builtins":
            name = f"{kind.__module__}.{name}"
        raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {name}")
    if not defaults.get("differentiable") and not (parameter.is_leaf or parameter.retains_grad):
        raise ValueError("can't optimize a non-leaf Tensor")


def _check_same_sizes(groups: list[dict[str, Any]], saved: list[dict[str, Any]]) -> None:
    if len(groups) != len(saved):
        raise ValueError("loaded state dict has a different number of parameter groups")
    sizes = ([len(group["params"]) for group in side] for side in (groups, saved))
    if len(set(map(tuple, sizes))) != 1:
        raise ValueError(
            "loaded state dict contains a parameter group that doesn't match the size of "
            "optimizer's group"
        )


def _fitted(value: Any, parameter: Any, key: Any = None) -> Any:
    """Return a copy of saved state, its tensors on the parameter's device and in its dtype."""
    if isinstance(value, tangrad.Tensor):
        if key == "step":
            made = value.to(dtype=tangrad.float32)
        elif parameter.is_floating_point():
            made = value.to(dtype=parameter.dtype, device=parameter.device)
        else:
            made = value.to(device=parameter.device)
        return value.clone() if made is value else made
    if isinstance(value, dict):
        return {key: _fitted(item, parameter, key) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return type(value)(_fitted(item, parameter) for item in value)  # type: ignore[call-arg]
    return own_copy(value)


def _zero_gradients(params: list[Any]) -> None:
    """Cut gradients from their graphs and fill them with zeros, those of one device at once."""
    by_device: dict[Any, list[Any]] = {}
    for parameter in params:
        grad = parameter.grad
        if grad is None:
            continue
        if grad.grad_fn is not None:
            grad.detach_()
        else:
            grad.requires_grad_(False)
        by_device.setdefault(grad.device, []).append(grad)
    for grads in by_device.values():
        tangrad._foreach_zero_(grads)


def _with_grads(params: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the parameters that have a gradient, and the gradients."""
    grads = [parameter.grad for parameter in params]
    given = [grad for grad in grads if grad is not None]
    if len(given) == len(grads):
        return params, grads
    pairs = zip(params, grads, strict=True)
    return [parameter for parameter, grad in pairs if grad is not None], given


def _at_once(
    params: list[Any], foreach: bool | None, fused: bool | None, differentiable: bool
) -> bool:
    """Tell whether one op updates all parameters: not if recorded or on several devices.

    The op that updates lists is its tensor code on a device without a kernel, so there is no
    difference between `foreach` and `fused`.
    """
    if (
        differentiable
        or not params
        or not (foreach or fused or (foreach is None and fused is None))
    ):
        return False
    device = params[0].device
    return all(parameter.device == device for parameter in params)


def _evaluate(closure: Callable[[], Any] | None) -> Any:
    """Return the closure's loss, computed with gradients; None without a closure."""
    if closure is None:
        return None
    with tangrad.enable_grad():
        return closure()


def _default_to_fused_or_foreach(
    params: Any, differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Return which of two ways PyTorch would choose on a CPU: neither. Steps are fused here."""
    return False, False


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """Have a step, which others write, record what it does if its optimizer is differentiable."""

    @wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with tangrad.set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    return step


def _value(number: Any) -> Any:
    """Return a hyperparameter, given as a number or a tensor of one, as a number."""
    return number_of(number) if isinstance(number, tangrad.Tensor) else number


def _step_number() -> Any:
    # A tensor, as in PyTorch's state dicts; float32 counts exactly up to 2**24.
    return tangrad.tensor(0.0, dtype=tangrad.float32, device="cpu")


def _refuse_tensor_lr(lr: Any) -> None:
    if isinstance(lr, tangrad.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")


def _check_kernels(foreach: bool | None, fused: bool | None, differentiable: bool) -> None:
    """Check the arguments that choose how, not what, is computed."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
