"""Settings of cuDNN, which is not called yet: `tangrad.backends.cudnn`.

The place for it is here: `enabled` is False until a GPU has shown its kernels right and faster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

API = 1

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

enabled: bool = False
benchmark: bool = False
benchmark_limit: int = 10
deterministic: bool = False
allow_tf32: bool = False
fp32_precision: str = "none"

_FLAGS = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")


def version() -> int | None:
    """Return cuDNN's version: None, for it is not called."""
    return None


def is_available() -> bool:
    """Return whether cuDNN computes anything: it does not."""
    return False


def is_acceptable(tensor: Any) -> bool:
    """Return whether cuDNN would take a tensor: it would not."""
    return False


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str | None = None,
) -> tuple[Any, ...]:
    """Set those that are not None; return what all were."""
    before = tuple(globals()[name] for name in _FLAGS)
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32)
    globals().update({n: v for n, v in zip(_FLAGS, given, strict=True) if v is not None})
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
