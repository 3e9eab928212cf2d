"""How a camera was held, as EXIF tells it, and a picture turned to be upright."""

from __future__ import annotations

from typing import Any

import numpy as np

_ORIENTATION = 0x0112
_ENTRY = 12  # bytes of an entry of a directory
# Orientation -> whether rows and columns change places, and which dimensions then run backwards.
_TURNS: dict[int, tuple[bool, tuple[int, ...]]] = {
    2: (False, (1,)),
    3: (False, (0, 1)),
    4: (False, (0,)),
    5: (True, ()),
    6: (True, (1,)),
    7: (True, (0, 1)),
    8: (True, (0,)),
}


def found(exif: bytes) -> int:
    """Return the orientation that a block of EXIF names, 0 where it names none or is broken."""
    if exif[:2] == b"II":
        order = "little"
    elif exif[:2] == b"MM":
        order = "big"
    else:
        return 0

    def number(at: int, size: int) -> int:
        return int.from_bytes(exif[at : at + size], order)  # type: ignore[arg-type]

    if number(2, 2) != 42:
        return 0
    start = number(4, 4)
    for k in range(number(start, 2)):
        at = start + 2 + k * _ENTRY
        if at + _ENTRY > len(exif):
            return 0
        if number(at, 2) == _ORIENTATION:
            return number(at + 8, 2)
    return 0


def applied(pixels: Any, orientation: int) -> Any:
    """Return pixels (height, width, channels) upright; of no known orientation as it is."""
    if orientation not in _TURNS:
        return pixels
    swapped, backwards = _TURNS[orientation]
    if swapped:
        pixels = pixels.swapaxes(0, 1)
    return np.ascontiguousarray(np.flip(pixels, backwards))
