"""Let a tool see by what each op of a device is computed: a kernel, a decomposition, the host.

The answer to "which kernel" is kept in the op's table, so a watcher that wraps kernels must stand
before the device opens; what a compiled backend enters into the table is told, but not wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KERNEL, DECOMPOSITION, HOST = "kernel", "decomposition", "host"

_watchers: dict[str, Callable[..., Any]] = {}


class watched_kernels:
    """Context manager: a function is told of every kernel that a device's ops are given.

    Args:
        device: device type, which must not have been opened yet if kernels are to be wrapped.
        watch: called as `watch(op, dtype, how, kernel)` with the op's name, the dtype's name,
            "kernel", "decomposition" or "host" (the reference, with copies both ways), and the
            callable; it returns the callable to use.

    Raises:
        RuntimeError: the device is watched already.
    """

    def __init__(self, device: str, watch: Callable[[str, str, str, Any], Any]) -> None:
        self.device, self.watch = device, watch

    def __enter__(self) -> watched_kernels:
        if self.device in _watchers:
            raise RuntimeError(f"watched_kernels: device '{self.device}' is watched already")
        _watchers[self.device] = self.watch
        return self

    def __exit__(self, *exc: object) -> None:
        del _watchers[self.device]


def watched(op: str, device: str, dtype: str, how: str, kernel: Any) -> Any:
    """Return the kernel, or what the device's watcher puts in its place."""
    watch = _watchers.get(device)
    return kernel if watch is None else watch(op, dtype, how, kernel)


def is_watched(device: str) -> bool:
    """Tell whether a device has a watcher."""
    return device in _watchers
