"""The 8-bit floats `float8_*`: stored, converted and saved; arithmetic is a package's business.

The formats are those of Micikevicius et al., FP8 Formats for Deep Learning (2022), and, with the
suffix `fnuz` (finite, NaN, unsigned zero), of Noune et al., 8-bit Numerical Formats for Deep
Neural Networks (2022). Codes of one sign are in the order of their values, so a number is encoded
by where it falls among the midpoints of a table.
"""

from __future__ import annotations

from typing import Any

from tangrad import _C

# Name: bits of the fraction, bias of the exponent, code of the largest finite number, code of NaN.
# The code after the largest one is what numbers beyond it become, NaN or infinity, except in
# e4m3fn, which saturates.
FORMATS = {
    "float8_e4m3fn": (3, 7, 0x7E, 0x7F),
    "float8_e4m3fnuz": (3, 8, 0x7F, 0x80),
    "float8_e5m2": (2, 15, 0x7B, 0x7F),
    "float8_e5m2fnuz": (2, 16, 0x7F, 0x80),
}


def register(name: str) -> Any:
    """Make the dtype of that name known, and return it."""
    return _C.register_dtype(
        name, 1, "foreign", "B", compute="float32", codec=_codec(*FORMATS[name])
    )


def _codec(fraction_bits: int, bias: int, last: int, nan: int) -> Any:
    import numpy as np

    codes = np.arange(last + 2)
    exponents, fractions = codes >> fraction_bits, codes & ((1 << fraction_bits) - 1)
    fractions += np.where(exponents > 0, 1 << fraction_bits, 0)
    values = fractions * 2.0 ** (np.maximum(exponents, 1) - bias - fraction_bits)
    midpoints = (values[:-1] + values[1:]) / 2
    unsigned_zero, saturates = nan == 0x80, nan == last + 1 == 0x7F

    table = np.full(256, np.nan, np.float32)
    table[: last + 1], table[0x80 : 0x81 + last] = values[:-1], -values[:-1]
    if unsigned_zero:
        table[nan] = np.nan
    elif not saturates:
        table[[last + 1, last + 0x81]] = np.inf, -np.inf

    def decode(raw: Any) -> Any:
        return table[raw]

    def encode(numbers: Any) -> Any:
        sizes = np.abs(numbers.astype(np.float64))
        code = np.searchsorted(midpoints, sizes)
        tie = sizes == midpoints[np.minimum(code, last)]
        code += tie & (code % 2 == 1)
        if saturates:
            code = np.minimum(code, last)
        code = np.where(np.isnan(sizes), nan, code)
        signed = np.signbit(numbers) & ~(unsigned_zero & ((code == 0) | (code == nan)))
        return np.where(signed, code | 0x80, code).astype(np.uint8)

    return decode, encode
