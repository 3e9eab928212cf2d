"""PyTorch's older package for transforms, `functorch`: what `func` has, and stateless modules.

`make_functional` and its kin came before `func.functional_call`, on which they stand here.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad import nn
from tangrad.func import functional_call

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "make_functional",
    "make_functional_with_buffers",
    "vjp",
    "vmap",
]


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(
        f"`functorch.{name}` is deprecated. Please use `torch.{instead}` instead.",
        FutureWarning,
        stacklevel=3,
    )


def _moved(name: str) -> Callable[..., Any]:
    """Return a function of `func` that tells that its place is there."""
    function = getattr(tangrad.func, name)

    @functools.wraps(function)
    def moved(*args: Any, **kwargs: Any) -> Any:
        _deprecated(name, "vmap" if name == "vmap" else f"func.{name}")
        return function(*args, **kwargs)

    return moved


functionalize = _moved("functionalize")
grad = _moved("grad")
grad_and_value = _moved("grad_and_value")
hessian = _moved("hessian")
jacfwd = _moved("jacfwd")
jacrev = _moved("jacrev")
jvp = _moved("jvp")
vjp = _moved("vjp")
vmap = _moved("vmap")


class FunctionalModuleWithBuffers(nn.Module):
    """Call a module with parameters and buffers given as arguments.

    Attributes:
        stateless_model: a copy of the module, on `meta`.
        param_names: names of the parameters, in the order in which they are given.
        buffer_names: names of the buffers.
    """

    def __init__(
        self,
        stateless_model: nn.Module,
        param_names: tuple[str, ...],
        buffer_names: tuple[str, ...] = (),
        tied: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = param_names, buffer_names
        self._tied = tied or {}

    def forward(
        self, params: Sequence[Any], buffers: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call the module; buffers that it writes are those that were given."""
        state = dict(zip(self.param_names, params, strict=True))
        state.update(zip(self.buffer_names, buffers, strict=True))
        for name, first in self._tied.items():
            state[name] = state[first]
        return functional_call(self.stateless_model, state, args, kwargs, tie_weights=False)


class FunctionalModule(FunctionalModuleWithBuffers):
    """Call a module without buffers with parameters given as arguments."""

    def forward(self, params: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return super().forward(params, (), *args, **kwargs)


def make_functional(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Any, ...]]:
    """Return a function of parameters and inputs that computes as a module does, and the former.

    Args:
        model: a module without buffers; it is left as it is.
        disable_autograd_tracking: give parameters that require no gradients.

    Raises:
        RuntimeError: the module has buffers.
    """
    _deprecated("make_functional", "func.functional_call")
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    names, params = _kept(model.named_parameters(), disable_autograd_tracking)
    return FunctionalModule(_stateless(model), names, (), _tied_names(model, {*names})), params


def make_functional_with_buffers(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """Return a function of parameters, buffers and inputs, and copies of both.

    Args:
        model: a module; it is left as it is.
        disable_autograd_tracking: give parameters that require no gradients.
    """
    _deprecated("make_functional_with_buffers", "func.functional_call")
    return _with_buffers(model, disable_autograd_tracking)


def _with_buffers(
    model: nn.Module, detached: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    names, params = _kept(model.named_parameters(), detached)
    buffer_names, buffers = _kept(model.named_buffers(), False)
    tied = _tied_names(model, {*names, *buffer_names})
    function = FunctionalModuleWithBuffers(_stateless(model), names, buffer_names, tied)
    return function, params, buffers


def combine_state_for_ensemble(
    models: Sequence[nn.Module],
) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """Return one function for several modules of one kind, and their states stacked, for `vmap`.

    Raises:
        RuntimeError: there is no module, or they differ in class or in training mode.
    """
    _deprecated("combine_state_for_ensemble", "func.stack_module_state")
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to have the same training/eval mode."
        )
    if len({type(model) for model in models}) > 1:
        raise RuntimeError(
            "combine_state_for_ensemble: Expected all models to be of the same class."
        )
    made = [_with_buffers(model) for model in models]
    params, buffers = (
        tuple(tangrad.stack(parts).detach() for parts in zip(*(m[k] for m in made), strict=True))
        for k in (1, 2)
    )
    for param in params:
        param.requires_grad_()
    return made[0][0], params, buffers


def _kept(named: Any, detached: bool) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    pairs = list(named)
    values = (copy.deepcopy(value) for _, value in pairs)
    kept = tuple(value.detach() if detached else value for value in values)
    return tuple(name for name, _ in pairs), kept


def _tied_names(model: nn.Module, given: set[str]) -> dict[str, str]:
    """Return the name that is given, by every other name of the same parameter or buffer."""
    named = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    firsts = {id(value): name for name, value in named if name in given}
    return {name: firsts[id(value)] for name, value in named if name not in given}


def _stateless(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).to("meta")


__path__: list[str] = []  # type: ignore[no-redef]  # packages show modules below it: `functorch.compile`


def __getattr__(name: str) -> Any:
    if name == "make_fx":  # of another package
        from tangrad.plugin import resolve

        return resolve("fx.experimental.proxy_tensor").make_fx
    raise AttributeError(f"module 'functorch' has no attribute '{name}'")
