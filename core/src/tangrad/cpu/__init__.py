"""The host as a device: `torch.cpu`."""

from __future__ import annotations

from typing import Any

from tangrad.devices.streams import Event as Event
from tangrad.devices.streams import Stream as Stream

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "device_count",
    "get_capabilities",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]

StreamContext = Stream


def is_available() -> bool:
    """Return whether there is a CPU: there is."""
    return True


def is_initialized() -> bool:
    """Return whether it is ready: it is."""
    return True


def device_count() -> int:
    """Return how many host devices there are: one."""
    return 1


def current_device() -> str:
    """Return the name of the current host device."""
    return "cpu"


def set_device(device: Any) -> None:
    """Choose the current host device; there is only one."""


def synchronize(device: Any = None) -> None:
    """Wait for all work; it is done when its call returns."""


def current_stream(device: Any = None) -> Stream:
    """Return the host's stream."""
    return Stream("cpu")


def stream(stream: Stream) -> Stream:
    """Return a context in which a stream is the current one."""
    return stream


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "get_capabilities":
        return import_module("tangrad.cpu.capabilities").get_capabilities
    if name != "amp":
        raise AttributeError(f"module 'tangrad.cpu' has no attribute '{name}'")
    return import_module("tangrad.cpu.amp")
