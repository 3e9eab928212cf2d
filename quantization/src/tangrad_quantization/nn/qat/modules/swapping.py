"""What modules for training with fake quantization share: how they are made of float ones."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn.utils.parametrize import (
    is_parametrized,
    transfer_parametrizations_and_params,
    type_before_parametrizations,
)


def require_float(cls: Any, module: Any) -> None:
    """Refuse a module that is not what `cls` is made of, or has no configuration.

    Raises:
        AssertionError: it is so.
    """
    kind = type_before_parametrizations(module)
    if kind is not cls._FLOAT_MODULE:
        raise AssertionError(
            f"qat.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}, got "
            f"{kind.__name__}"
        )
    if not hasattr(module, "qconfig"):
        raise AssertionError(
            f"Input float module must have qconfig defined: {kind.__name__} has none; set "
            f"model.qconfig, or call prepare_qat, which does it"
        )
    if not module.qconfig:
        raise AssertionError("Input float module must have a valid qconfig")


def require_qconfig(qconfig: Any) -> None:
    """Refuse to make a module without a configuration.

    Raises:
        AssertionError: there is none.
    """
    if not qconfig:
        raise AssertionError("qconfig must be provided for QAT module")


def take_over(module: Any, source: Any, *names: str) -> None:
    """Give a module the parameters of another, with what parametrizes them."""
    for name in names:
        if is_parametrized(source, name):
            transfer_parametrizations_and_params(source, module, name)
        else:
            setattr(module, name, getattr(source, name))


def with_parameters_of(source: Any, made: Any) -> Any:
    """Return a float module with the memory of a module's weight and bias, in its mode."""
    made.weight = nn.Parameter(source.weight.detach())
    if getattr(source, "bias", None) is not None:
        made.bias = nn.Parameter(source.bias.detach())
    return made.train(source.training)
