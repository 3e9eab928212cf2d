"""Fusing modules of a model that follow each other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tangrad import nn
from tangrad.nn.utils.parametrize import type_before_parametrizations
from tangrad_quantization.fuser_method_mappings import get_fuser_method
from tangrad_quantization.layers.hooks import (
    clear_after,
    hooks_after,
    hooks_before,
    register_after,
    register_before,
    without_hooks_before,
)

# Used here by programs, too, because PyTorch's file imports them.
from tangrad_quantization.fuser_method_mappings import (  # isort: skip
    fuse_conv_bn as fuse_conv_bn,
    fuse_conv_bn_relu as fuse_conv_bn_relu,
)

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]


def fuse_known_modules(
    mod_list: list[Any], is_qat: bool, additional_fuser_method_mapping: Any = None
) -> list[Any]:
    """Return a fused module, and identities for the rest of the modules.

    Args:
        mod_list: modules that follow each other.
        is_qat: whether the model is to be trained.
        additional_fuser_method_mapping: types of modules to a function that fuses them.

    Raises:
        AssertionError: modules of these types cannot be fused.
    """
    kinds = tuple(type_before_parametrizations(module) for module in mod_list)
    fuse = get_fuser_method(kinds, additional_fuser_method_mapping)
    before, after = hooks_before(mod_list[0]), hooks_after(mod_list[-1])
    # Off before fusing, which may copy the first module: a copied hook would run as well.
    with without_hooks_before(mod_list[0]):
        fused = fuse(is_qat, *mod_list)
    clear_after(mod_list[-1])
    register_before(fused, before)
    register_after(fused, after)
    return [fused, *(nn.Identity().train(mod_list[0].training) for _ in mod_list[1:])]


def _fuse(
    model: Any,
    names: Any,
    is_qat: bool,
    inplace: bool,
    fuser_func: Callable[..., Any],
    custom: Any,
) -> Any:
    additional = (custom or {}).get("additional_fuser_method_mapping", {})
    model = model if inplace else copy.deepcopy(model)
    chains = [names] if all(isinstance(name, str) for name in names) else names
    for chain in chains:
        modules = fuser_func([model.get_submodule(name) for name in chain], is_qat, additional)
        for name, module in zip(chain, modules, strict=True):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, module)
    return model


def fuse_modules(
    model: Any,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Callable[..., Any] = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """Fuse chains of modules: the first of each becomes all of it, the others identities.

    Convolutions with batch norm and ReLU, linear layers with batch norm or ReLU, batch norm with
    ReLU. The model is to be in evaluation mode; for training see `fuse_modules_qat`.

    Args:
        model: the model.
        modules_to_fuse: names of modules of one chain, or a list of chains.
        inplace: change the model itself.
        fuser_func: what fuses a list of modules.
        fuse_custom_config_dict: {"additional_fuser_method_mapping": {types: function}}.

    Returns:
        The model, or a copy.

    Raises:
        AttributeError: the model has no module of a name.
        AssertionError: modules of these types cannot be fused, or differ in mode.
    """
    return _fuse(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: Any,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Callable[..., Any] = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """Fuse chains of modules of a model that is to be trained; see `fuse_modules`."""
    return _fuse(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
