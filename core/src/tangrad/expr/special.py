"""NumPy code for the primitives that NumPy lacks or computes differently from PyTorch."""

from __future__ import annotations

import numpy as np

from tangrad.expr.gamma import digamma, lgamma, polygamma, trigamma, zeta
from tangrad.expr.gaussian import erf, erfc, erfinv

__all__ = ["digamma", "erf", "erfc", "erfinv", "lgamma", "polygamma", "trigamma", "zeta"]

Array = np.ndarray


# --- integers ---------------------------------------------------------------------------------


def _check_divisor(b: Array) -> None:
    if np.any(np.equal(b, 0)):
        raise ZeroDivisionError("integer division by zero")


def integer_floor_divide(a: Array, b: Array) -> Array:
    """Divide integers towards minus infinity; raise ZeroDivisionError for a zero divisor."""
    _check_divisor(b)
    return np.floor_divide(a, b)


def integer_remainder(a: Array, b: Array) -> Array:
    """Return the remainder with the divisor's sign; raise for a zero divisor."""
    _check_divisor(b)
    return np.remainder(a, b)


def integer_fmod(a: Array, b: Array) -> Array:
    """Return the remainder with the dividend's sign; raise for a zero divisor."""
    _check_divisor(b)
    return np.fmod(a, b)


def integer_trunc_divide(a: Array, b: Array) -> Array:
    """Divide integers towards zero; raise ZeroDivisionError for a zero divisor."""
    _check_divisor(b)
    # The difference is a multiple of b, so its quotient needs no rounding.
    return np.floor_divide(np.subtract(a, np.fmod(a, b)), b)


def complex_power(a: Array, b: Array) -> Array:
    """Raise to a complex power; a negative power of zero is infinite, of unknown direction."""
    result = np.power(a, b)
    zero = (a == 0) & (b != 0)
    if not zero.any():
        return result
    unbounded = np.full(np.shape(b), complex(np.nan, np.nan))
    unbounded.real[b.real < 0] = np.inf
    return np.where(zero, np.where(b.real > 0, 0, unbounded), result).astype(result.dtype)


def integer_power(a: Array, b: Array) -> Array:
    """Raise to an integer power with wraparound; below 0 only 1 and -1 have a result but 0."""
    a, b = np.asarray(a), np.asarray(b)
    if not np.any(b < 0):
        return np.power(a, b)
    parity = np.where(b % 2 == 0, a.dtype.type(1), a)
    unit = np.where((a == 1) | (a == -1), parity, a.dtype.type(0))
    return np.where(b < 0, unit, np.power(a, np.maximum(b, 0)))


def left_shift(a: Array, b: Array) -> Array:
    """Shift left; a count out of range gives 0."""
    a, b = np.asarray(a), np.asarray(b)
    inside = (b >= 0) & (b < 8 * a.dtype.itemsize)
    return np.where(inside, np.left_shift(a, np.where(inside, b, b.dtype.type(0))), a.dtype.type(0))


def right_shift(a: Array, b: Array) -> Array:
    """Shift right; a count out of range shifts everything but the sign out."""
    a, b = np.asarray(a), np.asarray(b)
    bits = 8 * a.dtype.itemsize
    inside = (b >= 0) & (b < bits)
    if a.dtype.kind == "u":
        shifted = np.right_shift(a, np.where(inside, b, b.dtype.type(0)))
        return np.where(inside, shifted, a.dtype.type(0))
    return np.right_shift(a, np.where(inside, b, b.dtype.type(bits - 1)))


# --- floating point ---------------------------------------------------------------------------


def remainder(a: Array, b: Array) -> Array:
    """Return the remainder with the divisor's sign; a zero keeps the dividend's sign."""
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def sign(a: Array) -> Array:
    """Return -1, 0 or 1; 0 for nan, as PyTorch does."""
    a = np.asarray(a)
    return (a > 0).astype(a.dtype) - (a < 0).astype(a.dtype)


def complex_sign(a: Array) -> Array:
    """Return z / abs(z), 0 for 0."""
    a = np.asarray(a)
    size = np.abs(a)
    return np.where(size == 0, a.dtype.type(0), make_complex(a.real / size, a.imag / size))


def real_angle(a: Array) -> Array:
    """Return pi for negative numbers, 0 for others, nan for nan."""
    a = np.asarray(a)
    half_turn = np.where(a < 0, a.dtype.type(np.pi), a.dtype.type(0))
    return np.where(np.isnan(a), a, half_turn)


def make_complex(real: Array, imag: Array) -> Array:
    """Join real and imaginary parts without arithmetic, which would mix inf into nan."""
    real, imag = np.broadcast_arrays(real, imag)
    joined = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    joined.real, joined.imag = real, imag
    return joined


def complex_log1p(a: Array) -> Array:
    """Return log(1 + z) without cancellation for small z."""
    a = np.asarray(a)
    x, y = a.real, a.imag
    small = make_complex(np.log1p(x * (2 + x) + y * y) / 2, np.arctan2(y, 1 + x))
    return np.where(np.maximum(np.abs(x), np.abs(y)) > 0.5, np.log(a.dtype.type(1) + a), small)


def no(a: Array) -> Array:
    """Return False everywhere."""
    return np.zeros(np.shape(a), np.bool_)


def xlogy(a: Array, b: Array) -> Array:
    """Return a * log(b); 0 where a is 0, unless b is nan."""
    product = np.where(np.equal(a, 0), np.asarray(a).dtype.type(0), a * np.log(b))
    return np.where(np.isnan(b), b, product)


def sigmoid(a: Array) -> Array:
    """Return 1 / (1 + exp(-a)) without overflow."""
    a = np.asarray(a)
    one = a.dtype.type(1)
    e = np.exp(-np.abs(a))
    return np.where(a >= 0, one, e) / (one + e)


def sigmoid_slope(a: Array) -> Array:
    """Return exp(-a) / (1 + exp(-a))^2, of numbers whose sign does not matter, without overflow."""
    a = np.asarray(a)
    e = np.exp(np.where(a.real < 0, a, -a))
    d = a.dtype.type(1) + e
    return np.true_divide(e, d * d)


def log_sigmoid(a: Array) -> Array:
    """Return log(sigmoid(a)) without overflow or cancellation."""
    a = np.asarray(a)
    return np.minimum(a, a.dtype.type(0)) - np.log1p(np.exp(-np.abs(a)))


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c rounded once.

    In float32 the product is exact in float64, and the sum's rounding error is put back by
    rounding to odd; in float64, product and sum are done in double-double arithmetic (Dekker,
    1971, "A floating-point technique for extending the available precision"), falling back to
    exact rationals where that is not enough.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    if a.dtype == np.float32:
        return _fma32(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    exact = np.frompyfunc(_exact_fma, 3, 1)
    return np.asarray(exact(a, b, c), np.float64)


def _fma32(product: Array, c: Array) -> Array:
    """Add two float64 numbers and round to float32 once (Boldo and Melquiond, 2008)."""
    total = product + c
    kept = total - product
    error = (product - (total - kept)) + (c - kept)
    bits = np.ascontiguousarray(total).view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    # Round to odd: move to the neighbour on the error's side, whose last bit is 1.
    towards = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + towards, bits).view(np.float64).astype(np.float32)


def _exact_fma(a: float, b: float, c: float) -> float:
    from fractions import Fraction

    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


# --- conversions ------------------------------------------------------------------------------


def cast(a: Array, dtype: np.dtype) -> Array:
    """Convert to ``dtype`` as C does on the machines we know.

    A complex number loses its imaginary part, bool is "not 0", and a float goes to a small integer
    type through a wide one, so that -1.0 becomes 255 in uint8 on every machine.
    """
    a = np.asarray(a)
    if a.dtype == dtype:
        return a
    if dtype.kind == "b":
        return a != 0
    if a.dtype.kind == "c" and dtype.kind != "c":
        a = a.real
    if a.dtype.kind == "f" and dtype.kind in "ui":
        return _to_integer(a, dtype)
    return a.astype(dtype)


def _to_integer(a: Array, dtype: np.dtype) -> Array:
    if dtype != np.uint64:
        wide = np.int32 if dtype.itemsize < 4 or dtype == np.int32 else np.int64
        return a.astype(wide).astype(dtype)
    half = a.dtype.type(2.0**63)
    upper = (a - half).astype(np.int64).astype(np.uint64) + np.uint64(1 << 63)
    return np.where(a >= half, upper, a.astype(np.int64).astype(np.uint64))


def bfloat16_bits(a: Array) -> Array:
    """Round float32 to bfloat16, half to even, and return the bits as uint16; nan stays nan."""
    bits = np.asarray(a, np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(
        16
    )
    return np.where(np.isnan(a), np.uint32(0x7FC0), rounded).astype(np.uint16)


def round_bfloat16(a: Array) -> Array:
    """Round float32 numbers to the nearest bfloat16, as float32."""
    return (bfloat16_bits(a).astype(np.uint32) << np.uint32(16)).view(np.float32)


# --- random bits ------------------------------------------------------------------------------


def philox_uniform(seed: Array, offset: Array, index: Array) -> Array:
    """Return uniform float32 numbers in [0, 1); see the table for the definition."""
    index = np.asarray(index, np.int64).astype(np.uint64)
    seed = np.asarray(seed).astype(np.uint64)
    block = np.asarray(offset).astype(np.uint64) + (index >> np.uint64(2))
    lanes = philox(seed, block)
    lane = index & np.uint64(3)
    word = np.choose(lane.astype(np.int64), lanes)
    return (word >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)


def philox(key: Array, counter: Array) -> list[Array]:
    """Return the four 32-bit words, as uint64, of Philox 4x32-10 for 64-bit key and counter."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    k0, k1 = key & low, key >> shift
    x0, x1 = counter & low, counter >> shift
    x2 = x3 = np.zeros_like(x0)
    for _ in range(10):
        p0, p1 = x0 * np.uint64(0xD2511F53), x2 * np.uint64(0xCD9E8D57)
        x0, x1, x2, x3 = (p1 >> shift) ^ x1 ^ k0, p1 & low, (p0 >> shift) ^ x3 ^ k1, p0 & low
        k0 = (k0 + np.uint64(0x9E3779B9)) & low
        k1 = (k1 + np.uint64(0xBB67AE85)) & low
    return [x0, x1, x2, x3]
