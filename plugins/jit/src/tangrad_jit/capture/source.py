"""Where in the program's own code, and in which of its modules, a call is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import tangrad

__all__ = ["line_of_program", "module_of_program"]

_OURS = tuple(
    os.path.dirname(path) + os.sep
    for path in (tangrad.__file__, os.path.dirname(__file__))
    if path is not None
)
_known: dict[str, bool] = {}  # by names of files, as code is slow to hash


def line_of_program() -> str:
    """Return "file:line" of the innermost frame that is not the library's, or ""."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        ours = _known.get(name)
        if ours is None:
            ours = _known[name] = name.startswith(_OURS) or name.startswith("<")
        if not ours:
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


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
