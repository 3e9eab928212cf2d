"""PyTorch's older package for transforms, `functorch`: what `func` has, and stateless modules.

`make_functional` and its kin came before `func.functional_call`, on which they stand here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad import nn
from tangrad.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

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
    ) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = param_names, buffer_names

    def forward(
        self, params: Sequence[Any], buffers: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call the module; buffers that it writes are those that were given."""
        state = dict(zip(self.param_names, params, strict=True))
        state.update(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, state, args, kwargs)


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
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    names, params = _kept(model.named_parameters(), disable_autograd_tracking)
    return FunctionalModule(_stateless(model), names), params


def make_functional_with_buffers(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """Return a function of parameters, buffers and inputs, and copies of both.

    Args:
        model: a module; it is left as it is.
        disable_autograd_tracking: give parameters that require no gradients.
    """
    names, params = _kept(model.named_parameters(), disable_autograd_tracking)
    buffer_names, buffers = _kept(model.named_buffers(), False)
    return FunctionalModuleWithBuffers(_stateless(model), names, buffer_names), params, buffers


def combine_state_for_ensemble(
    models: Sequence[nn.Module],
) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """Return one function for several modules of one kind, and their states stacked, for `vmap`.

    Raises:
        RuntimeError: there is no module, or they differ in class or in training mode.
    """
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
    made = [make_functional_with_buffers(model) for model in models]
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


def _stateless(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).to("meta")


__path__: list[str] = []  # packages show modules below it: `functorch.compile`


def __getattr__(name: str) -> Any:
    if name == "make_fx":  # of another package
        from tangrad.plugin import resolve

        return resolve("fx.experimental.proxy_tensor").make_fx
    raise AttributeError(f"module 'functorch' has no attribute '{name}'")
