"""Settings of cuDNN: `tangrad.backends.cudnn`.

`enabled` is the switch: False until a program sets it, for no GPU has shown yet that cuDNN's
convolutions are right here and faster. The library is opened by the first convolution after that.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import tangrad
from tangrad.plugin import availability, find_op, opened_drivers, register_kernel

__all__ = [
    "allow_tf32",
    "benchmark",
    "benchmark_limit",
    "deterministic",
    "enabled",
    "flags",
    "fp32_precision",
    "is_acceptable",
    "is_available",
    "set_flags",
    "version",
]

enabled: bool
benchmark: bool = False
benchmark_limit: int = 10
deterministic: bool = False
allow_tf32: bool = False
fp32_precision: str = "none"

_FLAGS = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
_enabled = False
_warned = False


class _Settings(ModuleType):
    """This module, whose switch takes effect on a device that is in use already."""

    @property
    def enabled(self) -> bool:
        """Whether cuDNN computes the convolutions that it takes."""
        return _enabled

    @enabled.setter
    def enabled(self, chosen: bool) -> None:
        global _enabled
        before, _enabled = _enabled, bool(chosen)
        if before == _enabled:
            return
        for driver in opened_drivers():
            if driver.name == "cuda":
                _choose(driver)


def _choose(driver: Any) -> None:
    """Let convolutions be computed by what the switch says, on a device that is in use."""
    from tangrad_cuda import cudnn_library

    for name in cudnn_library.OPS:
        for dtype in cudnn_library.TYPES:
            kernel = driver.kernel_for(find_op(name), getattr(tangrad, dtype))
            register_kernel(name, kernel, device="cuda", dtypes=[dtype])


sys.modules[__name__].__class__ = _Settings


def version() -> int | None:
    """Return cuDNN's version, such as 91300; None where it cannot be loaded."""
    from tangrad_cuda import cudnn_library

    return int(cudnn_library.library().cudnnGetVersion()) if is_available() else None


def is_available(*, warn: bool = False) -> bool:
    """Return whether there are a GPU and cuDNN; this opens the library.

    Args:
        warn: tell once why the library cannot be loaded.
    """
    global _warned
    if availability("cuda")[1] != "available":
        return False
    from tangrad_cuda import cudnn_library

    try:
        cudnn_library.library()
    except RuntimeError as error:
        if warn and not _warned:
            _warned = True
            warnings.warn(f"{error}; the kernels of tangrad-cuda convolve", UserWarning, 2)
        return False
    return True


def is_acceptable(tensor: Any) -> bool:
    """Return whether cuDNN would take a tensor: it is chosen and there, and takes the dtype."""
    from tangrad_cuda import cudnn_library

    fits = tensor.device.type == "cuda" and tensor.dtype.name in cudnn_library.TYPES
    return _enabled and fits and is_available()


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str | None = None,
) -> tuple[Any, ...]:
    """Set those that are not None; return what all were."""
    module = sys.modules[__name__]
    before = tuple(getattr(module, name) for name in _FLAGS)
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32)
    for name, value in zip(_FLAGS, given, strict=True):
        if value is not None:
            setattr(module, name, value)
    return before


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """Set flags for a `with` block."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)
