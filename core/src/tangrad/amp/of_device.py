"""The older names of mixed precision, which have the device in them: `torch.<device>.amp`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tangrad
from tangrad.amp import autocast_mode
from tangrad.discovery.namespaces import is_listed, resolve

__all__ = ["names", "show"]

SCALER = "amp.grad_scaler.of_device"


def _warn(old: str, new: str, device: str) -> None:
    warnings.warn(
        f"`torch.{device}.amp.{old}(args...)` is deprecated. Please use "
        f"`torch.amp.{new}('{device}', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


def names(device: str) -> dict[str, Any]:
    """Return what a device's module of that kind holds.

    Args:
        device: the device type that the names stand for.
    """
    usual = tangrad.bfloat16 if device == "cpu" else tangrad.float16

    class autocast(autocast_mode.autocast):
        """Run a region in mixed precision on this device; the older form of `amp.autocast`."""

        def __init__(
            self, enabled: bool = True, dtype: Any = usual, cache_enabled: bool = True
        ) -> None:
            _warn("autocast", "autocast", device)
            super().__init__(device, dtype, enabled, cache_enabled)

    @functools.wraps(autocast_mode.custom_fwd)
    def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Callable[..., Any]:
        _warn("custom_fwd", "custom_fwd", device)
        return autocast_mode.custom_fwd(fwd, device_type=device, cast_inputs=cast_inputs)

    @functools.wraps(autocast_mode.custom_bwd)
    def custom_bwd(bwd: Any = None) -> Callable[..., Any]:
        _warn("custom_bwd", "custom_bwd", device)
        return autocast_mode.custom_bwd(bwd, device_type=device)

    return {
        "autocast": autocast,
        "custom_bwd": custom_bwd,
        "custom_fwd": custom_fwd,
    }


def show(module: ModuleType, device: str) -> None:
    """Put the names into a module."""
    found = names(device)
    if is_listed(SCALER):
        found["GradScaler"] = resolve(SCALER)(device)
    for thing in found.values():
        thing.__module__ = module.__name__
    vars(module).update(found, __all__=sorted(found))
