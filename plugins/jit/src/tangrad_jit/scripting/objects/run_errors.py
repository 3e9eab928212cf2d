"""Errors of scripted code that runs, told by the lines of the program."""

from __future__ import annotations

import re
from types import TracebackType
from typing import NoReturn

from tangrad_jit.scripting.program.retelling import MARK
from tangrad_jit.scripting.program.values import Raised
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.tracing.annotations import Error

__all__ = ["raise_told"]

_FAILED = "The following operation failed in the TorchScript interpreter.\n"
_TRACE, _LAST = "Traceback", "(most recent call last):\n"
_HEAD = f"{_FAILED}{_TRACE} of TorchScript {_LAST}"


def raise_told(error: Exception) -> NoReturn:
    """Raise an error of scripted code anew, with the traceback of the script.

    Raises:
        Error: the script has raised it.
        RuntimeError: what it called has.
        UnicodeDecodeError: a text is no UTF-8: PyTorch's scripts find it where Python gets it.
    """
    if getattr(error, "is_told", False) or isinstance(error, UnicodeDecodeError):
        raise error
    places = _places(error.__traceback__)
    head, shown = _HEAD, _listed(places)
    if any(place.source.origins is not None for place in places):
        originals = [place.original() or place for place in places]
        head = f"{_FAILED}{_TRACE} of TorchScript, serialized code {_LAST}"
        shown += f"{_TRACE} of TorchScript, original code {_LAST}{_listed(originals)}"
    made: Exception
    if isinstance(error, Raised):
        last = f"{error.name or 'RuntimeError'}: {error.message}"
        made = Error(head + shown + last + "\n")
    else:
        made = RuntimeError(head + shown + f"RuntimeError: {_message(error)}\n")
    made.is_told = True  # type: ignore[attr-defined]
    raise made from (None if isinstance(error, Raised) else error)


def _listed(places: list[Place]) -> str:
    return "".join(place.heading(function=True) + place.highlighted() for place in places)


def _places(traceback: TracebackType | None) -> list[Place]:
    found = []
    while traceback is not None:
        unit = traceback.tb_frame.f_globals.get(MARK)
        if unit is not None and traceback.tb_frame.f_code.co_name == unit.node.name:
            positions = list(traceback.tb_frame.f_code.co_positions())
            line, last_line, column, last_column = positions[traceback.tb_lasti // 2]
            first = unit.source.first
            line = line or traceback.tb_lineno
            found.append(
                Place(
                    unit.source,
                    line - first,
                    column or 0,
                    (last_line or line) - first,
                    last_column or 0,
                    unit.name,
                )
            )
        traceback = traceback.tb_next
    return found


_BEYOND = re.compile(r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)")
# What Python says -> what scripts say.
_SAID = {"slice step cannot be zero": "slice() should have non-zero step"}


def _message(error: Exception) -> str:
    if isinstance(error, KeyError) and error.args:
        return f"KeyError: {error.args[0]}"
    if isinstance(error, ZeroDivisionError) and not str(error).startswith("ZeroDivisionError"):
        return "division by 0"
    beyond = _BEYOND.fullmatch(str(error)) if isinstance(error, IndexError) else None
    if beyond is not None:
        index, dim, size = beyond.groups()
        return f"index {index} out of range for tensor of size {size} at dimension {dim}"
    if str(error) in _SAID:
        return _SAID[str(error)]
    if isinstance(error, ValueError) and str(error).startswith("expected sequence of length"):
        return f"E{str(error)[1:]}"
    if isinstance(error, TypeError) and str(error) == "iteration over a 0-d tensor":
        return "len() of a 0-d tensor: iteration over a 0-d tensor"
    return str(error)
