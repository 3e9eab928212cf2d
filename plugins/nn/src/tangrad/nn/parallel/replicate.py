"""The same module on several devices, whose gradients come together in the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.nn.modules.module import Module

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """Return a replica of a module for each device.

    The parameters of a replica are copies that gradients flow through; on the device where they
    lie already they are the parameters themselves, and so are the buffers.

    Args:
        network: the module, on the first device.
        devices: devices, one for each replica.
        detach: let no gradient flow back.
    """
    return [_replica(network, device, detach, {}) for device in devices]


def _replica(module: Module, device: Any, detach: bool, made: dict[int, Any]) -> Any:
    """Return a replica of a module and of all below; one that stands twice stays one."""
    if id(module) in made:
        return made[id(module)]
    replica = made[id(module)] = module.__class__.__new__(module.__class__)
    replica.__dict__.update(module.__dict__)
    replica._modules = {
        name: None if child is None else _replica(child, device, detach, made)
        for name, child in module._modules.items()
    }
    replica._buffers = {
        name: None if buffer is None else _moved(buffer, device, made).detach()
        for name, buffer in module._buffers.items()
    }
    # No parameters, or nobody could assign tensors that are no leaves.
    replica._parameters = {}
    for name, parameter in module._parameters.items():
        moved = None if parameter is None else _moved(parameter, device, made)
        replica.__dict__[name] = moved.detach() if detach and moved is not None else moved
    return replica


def _moved(tensor: Any, device: Any, made: dict[int, Any]) -> Any:
    if id(tensor) not in made:
        made[id(tensor)] = tensor if tensor.device == tangrad.device(device) else tensor.to(device)
    return made[id(tensor)]
