"""Random numbers as functions of (seed, offset, index): Philox4x32-10.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

This file defines what every device computes. A **word** is an unsigned 32-bit integer; a call
that starts at `offset` draws words 0, 1, 2, ...:

- the key of the cipher is the seed: its low 32 bits, then its high 32 bits;
- word i is lane ``i % 4`` of the block at counter ``offset + i // 4`` (modulo 2**64), whose low
  32 bits are the cipher's first input word, high 32 bits the second, and the others are zero;
- n words consume ``ceil(n / 4)`` counters, by which the generator's offset then advances.

How values are made of words is said at each function. Where a value takes two words, value i
takes words 2 i and 2 i + 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

__all__ = [
    "bernoulli",
    "counters_for",
    "exponential",
    "normal",
    "philox4x32",
    "randint",
    "random_uint32",
    "random_uint64",
    "randperm",
    "uniform",
    "words_for",
]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
# The cipher's temporaries then stay in a second-level cache: four times as fast as all at once.
_BLOCKS_AT_ONCE = 8192
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF


def philox4x32(
    counter: tuple[Array, Array, Array, Array], key: tuple[int, int], rounds: int = _ROUNDS
) -> tuple[Array, Array, Array, Array]:
    """Encrypt counters.

    Args:
        counter: four uint32 arrays of one shape.
        key: two 32-bit integers.
        rounds: number of rounds of the cipher.

    Returns:
        Four uint32 arrays of that shape.
    """
    import numpy as np

    c0, c1, c2, c3 = (part.astype(np.uint64) for part in counter)
    first, second = np.empty_like(c0), np.empty_like(c0)
    k0, k1 = key
    mask, half = np.uint64(_MASK32), np.uint64(32)
    m0, m1 = (np.uint64(m) for m in _MULTIPLIERS)
    for _ in range(rounds):
        np.multiply(c0, m0, out=first)
        np.multiply(c2, m1, out=second)
        _mix(second >> half, c1, np.uint64(k0), c0)
        _mix(first >> half, c3, np.uint64(k1), c2)
        np.bitwise_and(second, mask, out=c1)
        np.bitwise_and(first, mask, out=c3)
        k0 = (k0 + _KEY_STEPS[0]) & _MASK32
        k1 = (k1 + _KEY_STEPS[1]) & _MASK32
    return tuple(part.astype(np.uint32) for part in (c0, c1, c2, c3))  # type: ignore[return-value]


def _mix(high: Array, neighbour: Array, key: Any, out: Array) -> None:
    high ^= neighbour
    high ^= key
    out[...] = high


def counters_for(words: int) -> int:
    """Return how many counters a call that draws this many words consumes."""
    return (words + 3) // 4


def words_for(kind: str, n: int) -> int:
    """Return how many words n values take.

    Args:
        kind: "uniform", "bernoulli", "exponential" or "normal" with a floating-point dtype, as
            in "normal float64"; "randint"; "randperm".
        n: number of values.
    """
    name, _, dtype = kind.partition(" ")
    return n * _WORDS_PER_VALUE[name] * (2 if dtype == "float64" else 1)


_WORDS_PER_VALUE = {
    "uniform": 1,
    "bernoulli": 1,
    "exponential": 1,
    "normal": 2,
    "randint": 2,
    "randperm": 2,
}


def random_uint32(seed: int, offset: int, n: int) -> Array:
    """Return words 0 to n - 1 of the stream (seed, offset).

    Args:
        seed: 64-bit seed; a negative one counts modulo 2**64.
        offset: first counter.
        n: number of words.

    Returns:
        uint32 array of shape (n,).
    """
    import numpy as np

    words = np.empty((counters_for(n), 4), np.uint32)
    for first in range(0, len(words), _BLOCKS_AT_ONCE):
        part = words[first : first + _BLOCKS_AT_ONCE]
        counters = np.arange(len(part), dtype=np.uint64) + np.uint64((offset + first) & _MASK64)
        low, high = counters.astype(np.uint32), (counters >> np.uint64(32)).astype(np.uint32)
        zero = np.zeros(len(part), np.uint32)
        lanes = philox4x32((low, high, zero, zero), (seed & _MASK32, (seed >> 32) & _MASK32))
        for lane, drawn in enumerate(lanes):
            part[:, lane] = drawn
    return words.reshape(-1)[:n]


def random_uint64(seed: int, offset: int, n: int) -> Array:
    """Return n 64-bit integers: word 2 i is the low half of the i-th, word 2 i + 1 the high.

    Returns:
        uint64 array of shape (n,).
    """
    import numpy as np

    words = random_uint32(seed, offset, 2 * n).astype(np.uint64).reshape(n, 2)
    return words[:, 0] | (words[:, 1] << np.uint64(32))


# Bits of a uniform number, as many as the dtype's significand holds: more would round up to 1.
_UNIFORM_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}


def uniform(seed: int, offset: int, n: int, dtype: str = "float32") -> Array:
    """Return n numbers uniform on [0, 1).

    With one word per value ``(word >> (32 - b)) * 2**-b``, where b is 24 for float32, 11 for
    float16 and 8 for bfloat16; for float64 ``(integer >> 11) * 2**-53`` of the i-th 64-bit
    integer. All are exact, so 1 is never reached.

    Args:
        seed, offset: the stream.
        n: number of values.
        dtype: "float16", "bfloat16", "float32" or "float64".

    Returns:
        Array of shape (n,) and that dtype; float32 for bfloat16, which NumPy lacks.
    """
    import numpy as np

    if dtype == "float64":
        return (random_uint64(seed, offset, n) >> np.uint64(11)) * 2.0**-53
    bits = _UNIFORM_BITS[dtype]
    words = random_uint32(seed, offset, n) >> np.uint32(32 - bits)
    return (words.astype(np.float32) * np.float32(2.0**-bits)).astype(_held_as(dtype), copy=False)


def _held_as(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype


def _source_uniform(seed: int, offset: int, n: int, dtype: str) -> Array:
    """Return the uniform numbers that others are computed from: float64 holding 24 or 53 bits."""
    return uniform(seed, offset, n, "float64" if dtype == "float64" else "float32").astype(
        "float64", copy=False
    )


def normal(seed: int, offset: int, n: int, dtype: str = "float32") -> Array:
    """Return n standard normal numbers.

    Box and Muller's transform ("A note on the generation of random normal deviates", 1958) of
    the uniforms u (0, 1] and v [0, 1) made of the value's own words, u first; value i is
    ``sqrt(-2 log u) * cos(2 pi v)``. The sine is not used: a value then depends on its own
    words only, and any part of a tensor can be computed alone. It is computed in float64 and
    rounded once to dtype.

    Args:
        seed, offset: the stream.
        n: number of values.
        dtype: as for `uniform`.

    Returns:
        As `uniform`.
    """
    import numpy as np

    pairs = _source_uniform(seed, offset, 2 * n, dtype).reshape(n, 2)
    radius = np.sqrt(-2.0 * np.log(1.0 - pairs[:, 0]))
    return (radius * np.cos(2.0 * np.pi * pairs[:, 1])).astype(_held_as(dtype))


def exponential(seed: int, offset: int, n: int, rate: float = 1.0, dtype: str = "float32") -> Array:
    """Return n numbers of the exponential distribution: ``-log(1 - u) / rate``.

    u and the rounding are as for `normal`.

    Args:
        seed, offset: the stream.
        n: number of values.
        rate: inverse of the mean.
        dtype: as for `uniform`.

    Returns:
        As `uniform`.
    """
    import numpy as np

    values = np.log(1.0 - _source_uniform(seed, offset, n, dtype))
    # abs: the negative of log(1) is a negative zero.
    return np.abs(values / rate).astype(_held_as(dtype))


def bernoulli(seed: int, offset: int, p: Any, n: int, dtype: str = "float32") -> Array:
    """Return n truth values, each true with probability p: ``u < p``, compared in float64.

    Args:
        seed, offset: the stream.
        p: a probability, or an array of shape (n,).
        n: number of values.
        dtype: float64 compares a u of 53 bits, every other dtype one of 24.

    Returns:
        bool array of shape (n,).
    """
    return _source_uniform(seed, offset, n, dtype) < p


def randint(seed: int, offset: int, n: int, low: int, high: int) -> Array:
    """Return n integers uniform on [low, high).

    Value i is ``low + floor(r_i * (high - low) / 2**64)`` for the i-th 64-bit integer r_i: the
    high half of a 128-bit product. Nothing is redrawn, so each value takes two words on every
    device; no value is more probable than another by more than 2**-64.

    Args:
        seed, offset: the stream.
        n: number of values.
        low: smallest value.
        high: one past the largest; ``low < high <= low + 2**64``.

    Returns:
        int64 array of shape (n,), or uint64 if high is past 2**63.

    Raises:
        RuntimeError: the interval is empty, or no 64-bit dtype holds all of it.
    """
    import numpy as np

    if low < -(2**63) or high > 2**64 or (low < 0 and high > 2**63):
        raise RuntimeError(f"randint: no 64-bit dtype holds all of [{low}, {high})")
    if low >= high:
        raise RuntimeError(
            f"randint expects 'from' to be less than 'to', got from={low} >= to={high}"
        )
    integers = random_uint64(seed, offset, n)
    shift = np.uint64(low & _MASK64)
    wrapped = (
        integers + shift if high - low == 2**64 else _high_product(integers, high - low) + shift
    )
    return wrapped if high > 2**63 else wrapped.view(np.int64)


def _high_product(integers: Array, factor: int) -> Array:
    """Return the high 64 bits of the 128-bit products."""
    import numpy as np

    mask, half = np.uint64(_MASK32), np.uint64(32)
    low, high = integers & mask, integers >> half
    factor_low, factor_high = np.uint64(factor & _MASK32), np.uint64(factor >> 32)
    middle = (low * factor_low >> half) + high * factor_low
    carry = (middle & mask) + low * factor_high
    return high * factor_high + (middle >> half) + (carry >> half)


def randperm(seed: int, offset: int, n: int) -> Array:
    """Return a random permutation of 0 to n - 1.

    It sorts 0 to n - 1 by the i-th 64-bit integer of the stream as key, equal keys in order of
    i: any stable sort gives the same permutation.

    Returns:
        int64 array of shape (n,).
    """
    import numpy as np

    return np.argsort(random_uint64(seed, offset, n), kind="stable").astype(np.int64, copy=False)
