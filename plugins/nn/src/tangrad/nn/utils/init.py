"""Modules without initial values."""

from __future__ import annotations

from typing import Any

from tangrad.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a module whose parameters and buffers have arbitrary values.

    Args:
        module_cls: class of the module; must take an argument `device`.
        args, kwargs: of its constructor.

    Raises:
        RuntimeError: it is no class of modules, or takes no device.
    """
    import inspect

    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=device)
