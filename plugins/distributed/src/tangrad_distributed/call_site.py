"""Find the line of a program that asked for a collective."""

from __future__ import annotations

import sys
from types import CodeType

_OURS = "tangrad_distributed"
# Whether a code object is of this package, and the line of a place in one: code objects are
# looked up by identity, since hashing one takes longer than all the rest, and held, so that
# identities stay unique.
_ours: dict[int, tuple[bool, CodeType]] = {}
_known: dict[tuple[int, int], tuple[str, CodeType]] = {}


def call_site() -> str:
    """Return "file:line" of the innermost frame that is not of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        code = frame.f_code
        found = _ours.get(id(code))
        if found is None:
            ours = frame.f_globals.get("__name__", "").startswith(_OURS)
            found = _kept(_ours, id(code), (ours, code))
        if not found[0]:
            break
        frame = frame.f_back
    key = (id(frame.f_code), frame.f_lasti)
    line = _known.get(key)
    if line is None:
        text = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        line = _kept(_known, key, (text, frame.f_code))
    return line[0]


def _kept(table: dict, key: object, value: tuple) -> tuple:
    if len(table) > 10_000:
        table.clear()
    table[key] = value
    return value
