"""Marks in a recording of where calls of the modules inside begin and end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tangrad.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from tangrad_jit.scripting.recording.splitting import Mark

__all__ = ["module_calls"]


@contextmanager
def module_calls(recording: Any) -> Iterator[None]:
    """Mark the calls of modules that this thread makes.

    Args:
        recording: gets the marks among its statements, and says which modules have methods.
    """
    thread = threading.get_ident()
    under_way: list[Any] = []

    def begin(module: Any, args: Any) -> None:
        owner = recording.owner_of(module) if threading.get_ident() == thread else None
        if owner is not None:
            under_way.append(module)
            recording.body.append(Mark(recording.place(), owner, True))

    def end(module: Any, args: Any, result: Any) -> None:
        if threading.get_ident() != thread or not under_way or under_way[-1] is not module:
            return
        owner = recording.owner_of(module)
        if owner is not None:
            under_way.pop()
            names = recording.names_of(result)
            recording.body.append(Mark(recording.place(), owner, False, names))

    handles = [register_module_forward_pre_hook(begin), register_module_forward_hook(end)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
