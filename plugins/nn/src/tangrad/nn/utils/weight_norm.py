"""Weights as direction and length, recomputed before each forward (an older form)."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter, UninitializedParameter

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


def norms_except(v: Any, dim: int) -> Any:
    """Return the norms over all dimensions but one, which are kept; -1 stands for the whole."""
    if dim == -1:
        return v.norm(2)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    # A vector's entries are each a row of their own.
    return v.norm(2, others, keepdim=True) if others else v.abs()


def with_norms(v: Any, g: Any, dim: int) -> Any:
    """Return `v` scaled to have the norms `g`."""
    return v * (g / norms_except(v, dim))


class WeightNorm:
    """The hook of `weight_norm`.

    Args:
        name: name of the weight.
        dim: the dimension that keeps norms of its own; None for one norm.
    """

    name: str
    dim: int

    def __init__(self, name: str, dim: int | None) -> None:
        """Remember what to compute."""
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Any:
        """Return the weight of its direction and length."""
        return with_norms(
            getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g"), self.dim
        )

    @staticmethod
    def apply(module: Any, name: str, dim: int | None) -> WeightNorm:
        """Split a weight in two parameters, and compute it anew before each forward.

        Raises:
            RuntimeError: this has been done already.
            ValueError: the weight has no shape yet.
        """
        warnings.warn(
            "`nn.utils.weight_norm` is deprecated in favor of "
            "`nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two weight_norm hooks on the same parameter {name}"
                )
        made = WeightNorm(name, dim)
        weight = getattr(module, name)
        if isinstance(weight, UninitializedParameter):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. "
                "Make sure to run the dummy forward before applying weight normalization"
            )
        del module._parameters[name]
        norms = norms_except(weight.detach(), made.dim)
        module.register_parameter(f"{name}_g", Parameter(norms))
        module.register_parameter(f"{name}_v", Parameter(weight.data))
        setattr(module, name, made.compute_weight(module))
        module.register_forward_pre_hook(made)
        return made

    def remove(self, module: Any) -> None:
        """Make the weight one parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[f"{self.name}_g"]
        del module._parameters[f"{self.name}_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Any, inputs: Any) -> None:
        """Compute the weight, before the forward of the module."""
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: M, name: str = "weight", dim: int = 0) -> M:
    """Express a weight as g * v / norm(v) (Salimans, Kingma 2016, arXiv:1602.07868).

    Deprecated: see `nn.utils.parametrizations.weight_norm`.

    Args:
        module: the module.
        name: name of the weight; its parameters are then `name_g` and `name_v`.
        dim: the dimension that keeps norms of its own; None for one norm.

    Returns:
        The module.

    Raises:
        RuntimeError: this has been done already.
        ValueError: the weight has no shape yet.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make a weight that `weight_norm` has split one parameter again.

    Raises:
        ValueError: it has not been split.
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
