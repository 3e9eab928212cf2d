"""Weights of convolutions in another memory format."""

from __future__ import annotations

from typing import Any, TypeVar

import tangrad
from tangrad.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

M = TypeVar("M", bound=Module)


def _converted(module: M, memory_format: Any, kinds: tuple[type, ...]) -> M:
    for layer in module.modules():
        if isinstance(layer, kinds):
            layer.weight.data = layer.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Give the weights of all `Conv2d` and `ConvTranspose2d` in a module a memory format.

    Args:
        module: the module, itself one of these or containing some; changed in place.
        memory_format: such as `tangrad.channels_last`.

    Returns:
        The module.
    """
    kinds = (tangrad.nn.Conv2d, tangrad.nn.ConvTranspose2d)
    return _converted(module, memory_format, kinds)


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Give the weights of all `Conv3d` and `ConvTranspose3d` in a module a memory format.

    Args:
        module: the module, itself one of these or containing some; changed in place.
        memory_format: such as `tangrad.channels_last_3d`.

    Returns:
        The module.
    """
    kinds = (tangrad.nn.Conv3d, tangrad.nn.ConvTranspose3d)
    return _converted(module, memory_format, kinds)
