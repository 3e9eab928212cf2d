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
    k0, k1 = key
    mask, half = np.uint64(_MASK32), np.uint64(32)
    m0, m1 = (np.uint64(m) for m in _MULTIPLIERS)
    for _ in range(rounds):
        product0, product1 = c0 * m0, c2 * m1
        c0 = (product1 >> half) ^ c1 ^ np.uint64(k0)
        c1 = product1 & mask
        c2 = (product0 >> half) ^ c3 ^ np.uint64(k1)
        c3 = product0 & mask
        k0 = (k0 + _KEY_STEPS[0]) & _MASK32
        k1 = (k1 + _KEY_STEPS[1]) & _MASK32
    return tuple(part.astype(np.uint32) for part in (c0, c1, c2, c3))  # type: ignore[return-value]


def counters_for(words: int) -> int:
    """Return how many counters a call that draws this many words consumes."""
    return (words + 3) // 4


def words_for(kind: str, n: int) -> int:
    """Return how many words n values take.

    Args:
        kind: "uniform", "bernoulli", "exponential" and "normal" in "float32" and "float64", as
            in "normal float64"; "randint"; "randperm".
        n: number of values.
    """
    return n * _WORDS_PER_VALUE[kind]


_WORDS_PER_VALUE = {
    "uniform float32": 1,
    "uniform float64": 2,
    "bernoulli float32": 1,
    "bernoulli float64": 2,
    "exponential float32": 1,
    "exponential float64": 2,
    "normal float32": 2,
    "normal float64": 4,
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

    blocks = counters_for(n)
    counters = np.arange(blocks, dtype=np.uint64) + np.uint64(offset & _MASK64)
    low = counters.astype(np.uint32)
    high = (counters >> np.uint64(32)).astype(np.uint32)
    zero = np.zeros(blocks, np.uint32)
    lanes = philox4x32((low, high, zero, zero), (seed & _MASK32, (seed >> 32) & _MASK32))
    return np.stack(lanes, axis=1).reshape(-1)[:n]


def random_uint64(seed: int, offset: int, n: int) -> Array:
    """Return n 64-bit integers: word 2 i is the low half of the i-th, word 2 i + 1 the high.

    Returns:
        uint64 array of shape (n,).
    """
    import numpy as np

    words = random_uint32(seed, offset, 2 * n).astype(np.uint64).reshape(n, 2)
    return words[:, 0] | (words[:, 1] << np.uint64(32))


def uniform(seed: int, offset: int, n: int, dtype: str = "float32") -> Array:
    """Return n numbers uniform on [0, 1).

    float32: ``(word >> 8) * 2**-24``. float64: ``(integer >> 11) * 2**-53`` of the i-th 64-bit
    integer. Both are exact, so 1 is never reached.

    Args:
        seed, offset: the stream.
        n: number of values.
        dtype: "float32" (one word per value) or "float64" (two). Other floating-point dtypes
            round the float32 value toward zero.

    Returns:
        Array of shape (n,) and that dtype.
    """
    import numpy as np

    if dtype == "float64":
        return (random_uint64(seed, offset, n) >> np.uint64(11)) * 2.0**-53
    words = random_uint32(seed, offset, n) >> np.uint32(8)
    return words.astype(np.float32) * np.float32(2.0**-24)


def _open_uniform(seed: int, offset: int, n: int, dtype: str) -> Array:
    """Return numbers uniform on (0, 1]: one minus `uniform`, which is exact too."""
    values = uniform(seed, offset, n, dtype)
    return values.dtype.type(1) - values


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
        dtype: "float32" (two words per value) or "float64" (four).

    Returns:
        Array of shape (n,) and that dtype.
    """
    import numpy as np

    pairs = uniform(seed, offset, 2 * n, dtype).astype(np.float64).reshape(n, 2)
    radius = np.sqrt(-2.0 * np.log(1.0 - pairs[:, 0]))
    return (radius * np.cos(2.0 * np.pi * pairs[:, 1])).astype(dtype)


def exponential(
    seed: int, offset: int, n: int, rate: float = 1.0, dtype: str = "float32"
) -> Array:
    """Return n numbers of the exponential distribution: ``-log(u) / rate``, u on (0, 1].

    Computed in float64 and rounded once to dtype.

    Args:
        seed, offset: the stream.
        n: number of values.
        rate: inverse of the mean.
        dtype: "float32" or "float64"; decides the words per value as in `uniform`.

    Returns:
        Array of shape (n,) and that dtype.
    """
    import numpy as np

    values = _open_uniform(seed, offset, n, dtype).astype(np.float64)
    # abs: -log(1) is a negative zero.
    return np.abs(np.log(values) / rate).astype(dtype)


def bernoulli(seed: int, offset: int, p: Any, n: int, dtype: str = "float32") -> Array:
    """Return n truth values, each true with probability p: ``uniform < p``.

    Args:
        seed, offset: the stream.
        p: a probability, or an array of shape (n,).
        n: number of values.
        dtype: of the uniform number; the comparison is made in float64.

    Returns:
        bool array of shape (n,).
    """
    import numpy as np

    return uniform(seed, offset, n, dtype).astype(np.float64) < p


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
        RuntimeError: the interval is empty or too wide.
    """
    import numpy as np

    if not 0 < high - low <= 2**64:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', got from={low} >= to={high}"
            if high <= low
            else f"randint: the range [{low}, {high}) has more than 2**64 values"
        )
    integers = random_uint64(seed, offset, n)
    shift = np.uint64(low & _MASK64)
    wrapped = integers + shift if high - low == 2**64 else _high_product(integers, high - low) + shift
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
