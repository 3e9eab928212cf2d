"""Dtypes of the standard: their kinds, how they promote, their limits.

PyTorch lets a zero-dimensional tensor give way to one with dimensions and has no promotion between
signed and unsigned integers wider than a byte. The standard promotes by dtype alone, so its lattice
is here.
"""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import tangrad

bool = tangrad.bool
int8, int16, int32, int64 = tangrad.int8, tangrad.int16, tangrad.int32, tangrad.int64
uint8, uint16, uint32, uint64 = tangrad.uint8, tangrad.uint16, tangrad.uint32, tangrad.uint64
float32, float64 = tangrad.float32, tangrad.float64
complex64, complex128 = tangrad.complex64, tangrad.complex128

SIGNED = {8: int8, 16: int16, 32: int32, 64: int64}
UNSIGNED = {8: uint8, 16: uint16, 32: uint32, 64: uint64}
NAMED = {
    "bool": (bool,),
    "signed integer": tuple(SIGNED.values()),
    "unsigned integer": tuple(UNSIGNED.values()),
    "integral": (*SIGNED.values(), *UNSIGNED.values()),
    "real floating": (float32, float64),
    "complex floating": (complex64, complex128),
    "numeric": (
        *SIGNED.values(),
        *UNSIGNED.values(),
        float32,
        float64,
        complex64,
        complex128,
    ),
}
NAMES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
).split()

# The kinds of dtype that a function takes, by the words of the standard.
ACCEPTED = {
    "any": frozenset("bool signed unsigned real complex".split()),
    "numeric": frozenset("signed unsigned real complex".split()),
    "real numeric": frozenset("signed unsigned real".split()),
    "floating": frozenset("real complex".split()),
    "real floating": frozenset(["real"]),
    "complex": frozenset(["complex"]),
    "integer": frozenset("signed unsigned".split()),
    "integer or boolean": frozenset("bool signed unsigned".split()),
    "boolean": frozenset(["bool"]),
}


def kind_of(dtype: Any) -> str:
    """Return "bool", "signed", "unsigned", "real" or "complex"."""
    if dtype == bool:
        return "bool"
    if dtype.is_complex:
        return "complex"
    if dtype.is_floating_point:
        return "real"
    return "signed" if dtype.is_signed else "unsigned"


def require(name: str, accepted: str, *operands: Any) -> None:
    """Refuse what is no array, and dtypes that the standard does not give a function.

    Raises:
        TypeError: If one is neither an array nor a dtype, or its dtype is not of the kinds.
    """
    for each in operands:
        dtype = each if isinstance(each, tangrad.dtype) else None
        if dtype is None:
            if not hasattr(each, "tensor"):
                raise TypeError(
                    f"{name}: takes arrays of this namespace, got {type(each).__name__}"
                )
            dtype = each.dtype
        if kind_of(dtype) not in ACCEPTED[accepted]:
            raise TypeError(f"{name}: takes arrays of {accepted} dtype, got {dtype}; use astype")


def promote(first: Any, second: Any) -> Any:
    """Return the dtype that both promote to.

    Raises:
        TypeError: If the standard defines none, as for an integer with a floating dtype.
    """
    if first == second:
        return first
    one, two = kind_of(first), kind_of(second)
    if {one, two} <= {"real", "complex"}:
        return tangrad.promote_types(first, second)
    if {one, two} <= {"signed", "unsigned"}:
        bits, others = first.itemsize * 8, second.itemsize * 8
        if one == two:
            return first if bits > others else second
        signed, unsigned = (bits, others) if one == "signed" else (others, bits)
        wide = signed if signed > unsigned else 2 * unsigned
        if wide in SIGNED:
            return SIGNED[wide]
    raise TypeError(
        f"the array API standard defines no promotion of {first} with {second}; use astype on one"
    )


def scalar_dtype(value: Any, dtype: Any) -> Any:
    """Return the dtype that a Python scalar takes beside an array of that dtype.

    Raises:
        TypeError: If the scalar is of a higher kind than the array.
    """
    kind = kind_of(dtype)
    if isinstance(value, builtins.bool):
        fits = kind == "bool"
    elif isinstance(value, int):
        fits = kind != "bool"
    elif isinstance(value, float):
        fits = kind in ("real", "complex")
    elif isinstance(value, complex):
        fits = kind in ("real", "complex")
        if kind == "real":
            return dtype.to_complex()
    else:
        fits = False
    if not fits:
        raise TypeError(
            f"a Python {type(value).__name__} does not combine with an array of {dtype}; "
            "use astype on the array"
        )
    return dtype


SCALARS = (builtins.bool, int, float, complex)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """Return the dtype that arrays, dtypes and Python scalars promote to.

    Raises:
        ValueError: If there is neither an array nor a dtype.
        TypeError: If the standard defines no promotion of them.
    """
    found: Any = None
    for each in arrays_and_dtypes:
        if not isinstance(each, SCALARS):
            require("result_type", "any", each)
            dtype = each if isinstance(each, tangrad.dtype) else each.dtype
            found = dtype if found is None else promote(found, dtype)
    if found is None:
        raise ValueError("result_type: needs at least one array or dtype")
    for each in arrays_and_dtypes:
        if isinstance(each, SCALARS):
            found = promote(found, scalar_dtype(each, found))
    return found


def can_cast(from_: Any, to: Any, /) -> Any:
    """Tell whether promotion leads from a dtype, or an array's, to another."""
    require("can_cast", "any", from_)
    dtype = from_ if isinstance(from_, tangrad.dtype) else from_.dtype
    try:
        return promote(dtype, to) == to
    except TypeError:
        return False


def isdtype(dtype: Any, kind: Any) -> Any:
    """Tell whether a dtype is of a kind: a dtype, the name of a kind, or a tuple of them.

    Raises:
        ValueError: If no kind has that name.
        TypeError: If the kind is none of these.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str):
        if kind not in NAMED:
            raise ValueError(f"isdtype: kinds are {', '.join(NAMED)}, got {kind!r}")
        return dtype in NAMED[kind]
    if isinstance(kind, tangrad.dtype):
        return dtype == kind
    raise TypeError(f"isdtype: kind is a dtype, a name or a tuple of them, got {kind!r}")


class FloatInfo(NamedTuple):
    """Limits of a floating dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class IntegerInfo(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: Any


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a floating dtype, or of an array's.

    Raises:
        TypeError: If the dtype is not floating.
    """
    require("finfo", "floating", type)
    dtype = type if isinstance(type, tangrad.dtype) else type.dtype
    real = dtype.to_real()
    known = tangrad.finfo(real)
    return FloatInfo(known.bits, known.eps, known.max, known.min, known.smallest_normal, real)


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer dtype, or of an array's.

    Raises:
        TypeError: If the dtype is not an integer's.
    """
    require("iinfo", "integer", type)
    dtype = type if isinstance(type, tangrad.dtype) else type.dtype
    known = tangrad.iinfo(dtype)
    return IntegerInfo(known.bits, known.max, known.min, dtype)
