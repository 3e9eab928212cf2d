"""Switch NVIDIA's profilers on for a part of a program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tangrad_cuda.namespace._place import driver

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Let the profiler that runs this program record from now on."""
    driver().start_profiler()


def stop() -> None:
    """Let it stop."""
    driver().stop_profiler()


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Let it record a `with` block."""
    start()
    try:
        yield
    finally:
        stop()
