"""What a dtype or layout says of itself, checked when it is registered."""

from __future__ import annotations

import sys
from typing import Any

from tangrad import _C

KINDS = ("bool", "uint", "int", "float", "complex", "foreign")
LIMITS = {"bits", "eps", "max", "min", "resolution", "smallest_normal"}


def check(
    name: str,
    itemsize: int,
    kind: str,
    format: str,
    aliases: Any,
    compute: Any,
    codec: Any,
    promotes: Any,
    finfo: Any,
    arithmetic: bool,
) -> None:
    """Refuse a dtype that cannot be, as `register_dtype` says."""
    if any(dtype.name == name for dtype in _C.registered_dtypes()):
        raise ValueError(f"a dtype named '{name}' is already registered: choose another name")
    names = {name, *aliases}
    for label in names:
        check_name("register_dtype", "a dtype's", label)
    promotes = promotes or {}
    for label in {*promotes, *promotes.values()} - names:
        _C.dtype_by_name(label)
    reason = _wrong(itemsize, kind, format, compute, codec, finfo)
    # Without NumPy the codec is not tried: the first to need it loads that.
    if not reason and codec is not None and arithmetic and "numpy" in sys.modules:
        reason = _wrong_codec(itemsize, codec)
    if reason:
        raise ValueError(f"dtype '{name}'{reason}")


def check_name(caller: str, whose: str, name: Any) -> None:
    """Refuse a name that `tangrad.<name>` cannot be, or is already."""
    from keyword import iskeyword

    if not (isinstance(name, str) and name.isidentifier()) or name[0] == "_" or iskeyword(name):
        raise ValueError(
            f"{caller}: {whose} name is an identifier without a leading underscore, not {name!r}"
        )
    if _C.is_public(name):
        raise ValueError(
            f"{caller}: 'tangrad.{name}' is something else already; choose another name"
        )


def _wrong(itemsize: int, kind: str, format: str, compute: Any, codec: Any, finfo: Any) -> str:
    """Return what is wrong with a declaration, to go on after the name, or nothing."""
    if kind not in KINDS:
        return f": kind must be one of {', '.join(KINDS)}, got '{kind}'"
    if finfo is not None and (not isinstance(finfo, dict) or set(finfo) - LIMITS):
        return f": finfo is a dict of {', '.join(sorted(LIMITS))}, got {finfo!r}"
    for key, value in (finfo or {}).items():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return f": finfo's {key} is a number, got {value!r}"
    if compute is not None and _C.dtype_by_name(compute).codec is not None:
        return f": compute='{compute}' is a type that is computed in another itself"
    if codec is None and kind != "foreign":
        right = itemsize in (1, 2, 4, 8, 16)
        return "" if right else f": an element has 1, 2, 4, 8 or 16 bytes, got {itemsize}"
    if codec is None or compute is None:
        return (
            " is foreign: it needs codec=(decode, encode) and compute=, the name of the dtype that "
            "it is decoded to"
        )
    if itemsize not in (1, 2, 4, 8):
        return f": a type with a codec has 1, 2, 4 or 8 bytes, got {itemsize}"
    letters = {1: "bB", 2: "hH", 4: "iI", 8: "qQ"}[itemsize]
    if format not in tuple(letters):
        return f": format is '{letters[0]}' or '{letters[1]}' for {itemsize} bytes, got {format!r}"
    if not isinstance(codec, tuple) or len(codec) != 2 or not all(map(callable, codec)):
        return f": codec is (decode, encode), two functions, got {codec!r}"
    return ""


def _wrong_codec(itemsize: int, codec: Any) -> str:
    import numpy as np

    values = np.zeros((3, 2), f"u{itemsize}")
    for function, name, kinds in zip(codec, ("decode", "encode"), ("biufc", "biu"), strict=True):
        try:
            values = np.asarray(function(values))
        except Exception as error:
            return f": {name} raised {type(error).__name__}: {error}"
        if values.shape != (3, 2) or values.dtype.kind not in kinds:
            return (
                f": {name} is to give {'numbers' if 'f' in kinds else 'raw integers'} and keep the "
                f"shape; from shape (3, 2) it made {values.dtype}, shape {values.shape}"
            )
    return ""
