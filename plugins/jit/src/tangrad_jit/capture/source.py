"""Where in the program's own code, and in which of its modules, a call is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import tangrad
from tangrad_jit import _guards
from tangrad_jit.graph.ir import Where, line_at

__all__ = ["frame_of_program", "line_of_program", "module_of_program", "place_of_program"]

_OURS = tuple(
    os.path.dirname(path) + os.sep
    for path in (tangrad.__file__, os.path.dirname(__file__))
    if path is not None
)
_known: dict[str, bool] = {}  # by names of files, as code is slow to hash


def place_of_program() -> Where:
    """Return where the innermost frame is that is not the library's, as nodes have it, or ""."""
    return _guards.place_of_program(_known, _is_ours)


def frame_of_program() -> Any:
    """Return the innermost frame that is not the library's, or None."""
    frame = sys._getframe(1)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return frame


def line_of_program() -> str:
    """Return "file:line" of that frame, or ""."""
    place = place_of_program()
    return place if isinstance(place, str) else line_at(*place)


def _is_ours(name: str) -> bool:
    return name.startswith(_OURS) or name.startswith("<")


def module_of_program(names: Mapping[Any, str]) -> str:
    """Return the name of the innermost module whose `forward` is running, or "".

    Args:
        names: the modules that are looked for, with their names.
    """
    frame = sys._getframe(1) if names else None
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward" and code.co_argcount:
            owner = frame.f_locals.get(code.co_varnames[0])
            name = names.get(owner) if isinstance(owner, tangrad.nn.Module) else None
            if name is not None:
                return name
        frame = frame.f_back
    return ""
