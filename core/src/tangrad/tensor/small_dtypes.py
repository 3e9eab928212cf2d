"""Dtypes that store numbers and compute none: integers below a byte, scales, raw bits.

`int1` to `int7` and `uint1` to `uint7` take a byte per element, as in PyTorch, and keep its low
bits. `float8_e8m0fnu` is a power of two, 2 to the code minus 127, and 255 is NaN (Open Compute
Project, Microscaling Formats, 2023). An element of `float4_e2m1fn_x2` is two numbers in one byte,
one of `bits*` is nothing but bits: they are converted by `view`.
"""

from __future__ import annotations

from typing import Any

from tangrad import _C

INTEGERS = {f"{sign}int{n}": (n, sign == "") for sign in ("", "u") for n in range(1, 8)}
BITS = {"bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2}
NAMES = (*INTEGERS, *BITS, "float4_e2m1fn_x2", "float8_e8m0fnu")


def register(name: str) -> Any:
    """Make the dtype of that name known, and return it."""
    if name in INTEGERS:
        bits, signed = INTEGERS[name]
        return _C.register_dtype(
            name,
            1,
            "foreign",
            "B",
            compute="int8" if signed else "uint8",
            codec=_integers(bits, signed),
            arithmetic=False,
        )
    if name == "float8_e8m0fnu":
        limits = {
            "bits": 8,
            "eps": 1.0,
            "max": 2.0**127,
            "min": 2.0**-127,
            "smallest_normal": 2.0**-127,
            "resolution": 1.0,
        }
        return _C.register_dtype(
            name,
            1,
            "foreign",
            "B",
            compute="float32",
            codec=_powers(),
            finfo=limits,
            arithmetic=False,
        )
    size = BITS.get(name, 1)
    compute = "float32" if name.startswith("float") else f"uint{8 * size}"
    return _C.register_dtype(
        name,
        size,
        "foreign",
        "H" if size == 2 else "B",
        compute=compute,
        codec=_opaque(name, size),
        arithmetic=False,
    )


def _integers(bits: int, signed: bool) -> Any:
    import numpy as np

    mask, half = (1 << bits) - 1, 1 << (bits - 1)

    def decode(raw: Any) -> Any:
        low = raw & mask
        return ((low ^ half).astype(np.int8) - np.int8(half)) if signed else low.astype(np.uint8)

    def encode(numbers: Any) -> Any:
        return (np.asarray(numbers).real.astype(np.int64) & mask).astype(np.uint8)

    return decode, encode


def _powers() -> Any:
    import numpy as np

    def decode(raw: Any) -> Any:
        values = np.ldexp(np.float32(1), raw.astype(np.int32) - 127).astype(np.float32)
        return np.where(raw == 255, np.float32(np.nan), values)

    def encode(numbers: Any) -> Any:
        # The exponent of a float32, one more from the half on, ties to the even code.
        bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32).reshape(np.shape(numbers))
        exponent, fraction = (bits >> 23) & 255, bits & 0x7FFFFF
        up = (fraction > 0x400000) | ((fraction == 0x400000) & (exponent > 0))
        subnormal = (exponent == 0) & (fraction > 0x400000)
        rounded = np.where(exponent == 0, subnormal, exponent + up)
        return np.where(exponent == 255, 255, np.minimum(rounded, 255)).astype(np.uint8)

    return decode, encode


def _opaque(name: str, size: int) -> Any:
    def refuse(raw: Any) -> Any:
        raise NotImplementedError(
            f"an element of {name} is no number, so it is not converted to or from one; see the "
            f"bits with .view(tangrad.uint{8 * size}) and back with .view(tangrad.{name})"
        )

    return refuse, _zeros_only(refuse, size)


def _zeros_only(refuse: Any, size: int) -> Any:
    import numpy as np

    def encode(numbers: Any) -> Any:
        if np.any(numbers):
            refuse(numbers)
        return np.zeros(np.shape(numbers), f"u{size}")

    return encode
