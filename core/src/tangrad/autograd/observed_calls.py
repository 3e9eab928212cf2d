"""What observers of a program's calls share: its line, the tensors of a call, and being unseen."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from tangrad import _C

# Given a watch, these have it told of modules, by `enter_module` and `leave_module`; what they
# return has `remove`. `nn` is above this and says so when it is loaded.
of_modules: list[Callable[[Any], Any]] = []

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def program_line() -> str:
    """Return "file:line" of the innermost frame outside of our packages, "" if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        of_a_package = str(frame.f_globals.get("__name__", "")).startswith("tangrad_")
        if not of_a_package and not frame.f_code.co_filename.startswith(_PACKAGE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def tensors_in(values: Any) -> list[Any]:
    """Return the tensors in nested lists, tuples and dicts."""
    if isinstance(values, _C.Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        return [t for v in values for t in tensors_in(v)]
    return []


class _Depth(threading.local):
    value = 0


_depth = _Depth()


class silent:
    """Context manager: nothing is recorded, and observers that ask `is_silent` look away."""

    def __enter__(self) -> None:
        _depth.value += 1
        self._before = _C._set_grad_enabled(False)

    def __exit__(self, *exc: object) -> None:
        _C._set_grad_enabled(self._before)
        _depth.value -= 1


def is_silent() -> bool:
    """Return whether this thread is in a `silent` block."""
    return _depth.value > 0
