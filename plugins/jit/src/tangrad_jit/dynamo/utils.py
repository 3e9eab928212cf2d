"""`tangrad._dynamo.utils`: what libraries take from PyTorch's utilities of its front end."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import tangrad

__all__ = ["is_compile_supported", "preserve_rng_state", "warn_once"]


@cache
def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warn of something once in a process.

    Args:
        msg: the text.
        stacklevel: whose line the warning names, 1 is the caller's.
    """
    warnings.warn(msg, stacklevel=stacklevel + 1)


def is_compile_supported(device_type: str) -> bool:
    """Return whether functions can be compiled for a type of device: for each that is usable."""
    try:
        tangrad.empty(0, device=device_type)
    except RuntimeError:
        return False
    return True


@contextmanager
def preserve_rng_state() -> Iterator[None]:
    """Let the body leave the host's random numbers as they were."""
    state = tangrad.get_rng_state()
    try:
        yield
    finally:
        tangrad.set_rng_state(state)
