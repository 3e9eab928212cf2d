"""What the package tells tangrad: its ops, and their kernels for a device."""

from __future__ import annotations

from tangrad.plugin import hookimpl

API = 1


@hookimpl
def tangrad_register_ops() -> None:
    """Define the ops."""
    from tangrad_vision import boxes, deform, regions  # noqa: F401


@hookimpl
def tangrad_register_kernels(device: str) -> None:
    """Register the compiled kernels for the CPU."""
    if device != "cpu":
        return
    from tangrad_vision import _kernels, boxes, deform, regions  # noqa: F401

    _kernels.register(device)
