"""The sequential engine: the numbers that PyTorch's CPU draws, bit for bit.

Matsumoto and Nishimura, "Mersenne Twister" (1998), 32-bit words; NumPy steps the twister. How
values are made of words is PyTorch's: said at each function. Unlike the counter-based engine
(`tangrad.random.philox`), each value depends on all that were drawn before it.

Where PyTorch's own numbers depend on the processor, these are the ones of a processor with AVX2
that is not Intel's: on Intel's, PyTorch draws `bernoulli_(p)` and `exponential_` by MKL.
"""

from __future__ import annotations

import math
import struct
from threading import Lock
from typing import TYPE_CHECKING, Any

from tangrad.random.box_muller import blocks, multiply_add

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

__all__ = ["STATE_BYTES", "MersenneTwister"]

_WORDS = 624
# Seed, words left, seeded, next word, the words, three doubles and a flag of an older format (of
# which one holds a normal number kept for the next call), and the same as a float.
_LAYOUT = struct.Struct(f"<QiiQ{_WORDS}Q3di4xf?3x")
STATE_BYTES = _LAYOUT.size
# From this many possible values on, an integer takes two words.
_WIDE_RANGE = 2**28
# From this many elements on, a contiguous tensor takes its normal numbers in blocks.
_BLOCK = 16
# A permutation of more elements than this would take two words each.
_LONGEST_PERMUTATION = (2**32 - 1) // 20


def _exponential(x: float) -> float:
    """Return exp(x), infinite where it is too large."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


class MersenneTwister:
    """Hold the state of a Mersenne Twister and make numbers of its words.

    Args:
        seed: of which the low 32 bits are used.
    """

    def __init__(self, seed: int) -> None:
        import numpy as np

        self._bits: Any = np.random.MT19937()
        self._lock = Lock()  # NumPy's generator has its own; this is for the number that is kept
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start anew."""
        self._seed, self._fresh = seed, True
        self._kept_normal: float | None = None
        self._kept_float: float | None = None
        word, words = seed & 0xFFFFFFFF, []
        for i in range(_WORDS):
            words.append(word)
            word = (1812433253 * (word ^ (word >> 30)) + i + 1) & 0xFFFFFFFF
        self._set_words(words, _WORDS)

    def _set_words(self, words: Any, position: int) -> None:
        import numpy as np

        key = np.array(words, dtype=np.uint32)
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}

    # --- state

    def state(self) -> bytes:
        """Return the state in the layout of PyTorch's CPU generator."""
        inner = self._bits.state["state"]
        position = int(inner["pos"])
        fresh = self._fresh and position == _WORDS
        left, following = (1, 0) if fresh else (_WORDS + 1 - position, position)
        kept = self._kept_normal
        return _LAYOUT.pack(
            self._seed,
            left,
            1,
            following,
            *map(int, inner["key"]),
            0.0,
            0.0 if kept is None else kept,
            0.0,
            kept is not None,
            0.0 if self._kept_float is None else self._kept_float,
            self._kept_float is not None,
        )

    def set_state(self, state: bytes) -> None:
        """Continue from what `state`, or PyTorch's `get_rng_state`, returned.

        Raises:
            RuntimeError: it is no such state.
        """
        seed, left, seeded, following, *rest = _LAYOUT.unpack(state)
        words = rest[:_WORDS]
        _, normal, _, has_normal, kept_float, has_float = rest[_WORDS:]
        if not seeded or not 0 < left <= _WORDS or not 0 <= following <= _WORDS:
            raise RuntimeError("Invalid mt19937 state: it does not come from get_state()")
        self._seed = seed
        self._fresh = left == 1 and following == 0
        self._kept_normal = normal if has_normal else None
        self._kept_float = kept_float if has_float else None
        self._set_words([w & 0xFFFFFFFF for w in words], _WORDS if self._fresh else following)

    @property
    def initial_seed(self) -> int:
        """The seed it was started with."""
        return self._seed

    # --- words

    def words(self, n: int) -> Array:
        """Return the next n 32-bit words, as uint64."""
        if n:
            self._fresh = False
        found: Array = self._bits.random_raw(n)
        return found

    def wide_words(self, n: int) -> Array:
        """Return the next n 64-bit integers; of the two words of each the first is the high one."""
        import numpy as np

        pairs = self.words(2 * n).reshape(n, 2)
        return (pairs[:, 0] << np.uint64(32)) | pairs[:, 1]

    # --- values

    def uniform(self, n: int, dtype: str = "float32") -> Array:
        """Return n numbers uniform on [0, 1): the low 24 bits of a word, or 53 of an integer.

        Args:
            n: number of values.
            dtype: "float64"; any other makes float32.
        """
        import numpy as np

        if dtype == "float64":
            return (self.wide_words(n) & np.uint64(2**53 - 1)) * 2.0**-53
        low = self.words(n) & np.uint64(2**24 - 1)
        return low.astype(np.float32) * np.float32(2.0**-24)

    def uniform_between(self, n: int, low: float, high: float, dtype: str) -> Array:
        """Return n numbers ``u * (high - low) + low``, rounded once."""
        import numpy as np

        values = self.uniform(n, dtype)
        if dtype == "float64":
            return multiply_add(values, high - low, low)
        start, end = np.float32(low), np.float32(high)
        return multiply_add(values, end - start, start)

    def exponential(self, n: int, rate: float) -> Array:
        """Return n exponentially distributed numbers in float64: ``-1 / rate * log1p(-u)``."""
        import numpy as np

        uniform = self.uniform(n, "float64")
        return np.array([-1.0 / rate * math.log1p(-u) for u in uniform.tolist()], np.float64)

    def cauchy(self, n: int, median: float, sigma: float) -> Array:
        """Return n numbers ``tan(pi * (u - 0.5)) * sigma + median``, rounded once."""
        import numpy as np

        uniform = self.uniform(n, "float64").tolist()
        tangents = np.array([math.tan(math.pi * (u - 0.5)) for u in uniform], np.float64)
        return multiply_add(tangents, sigma, median)

    def log_normal(self, n: int, mean: float, std: float) -> Array:
        """Return n numbers whose logarithms are normally distributed."""
        import numpy as np

        normal = self.normal(n, mean, std, "float64", in_blocks=False).tolist()
        return np.array([_exponential(x) for x in normal], np.float64)

    def geometric(self, n: int, p: float) -> Array:
        """Return n numbers of trials up to a success: ``ceil(log(u) / log1p(-p))``."""
        import numpy as np

        uniform = self.uniform(n, "float64").tolist()
        failure = math.log1p(-p)
        return np.array(
            [math.ceil(math.log(u) / failure) if u else math.inf for u in uniform], np.float64
        )

    def bernoulli(self, p: Any, n: int, dtype: str = "float64") -> Array:
        """Return n truth values ``u < p``; u has 53 bits for float64, else 24."""
        found: Array = self.uniform(n, dtype) < p
        return found

    def integers(self, n: int, low: int, high: int) -> Array:
        """Return n integers ``word % (high - low) + low`` as int64.

        Words of 64 bits are used for ranges of 2**28 values and more.
        """
        import numpy as np

        size = high - low
        words = self.wide_words(n) if size >= _WIDE_RANGE else self.words(n)
        if size < 2**64:
            words = words % np.uint64(size)
        return (words + np.uint64(low % 2**64)).view(np.int64)

    def one_uniform(self) -> float:
        """Return a number uniform on [0, 1) in double precision."""
        return float(self.uniform(1, "float64")[0])

    def one_normal(self) -> float:
        """Return a standard normal number in double precision."""
        return float(self._pairs(1)[0])

    def whole_range(self, n: int, size: int, wide: bool) -> Array:
        """Return n integers below `size`, of 64-bit words where `wide`."""
        import numpy as np

        words = self.wide_words(n) if wide else self.words(n)
        return (words % np.uint64(size)).view(np.int64)

    def permutation(self, n: int) -> Array:
        """Return a random permutation of 0 to n - 1.

        Place i is exchanged with one of those from i on, chosen by the i-th word (Fisher and
        Yates).

        Raises:
            NotImplementedError: n is so large that a word is too short.
        """
        import numpy as np

        if n >= _LONGEST_PERMUTATION:
            raise NotImplementedError(f"randperm of {n} elements by mt19937")
        places = list(range(n))
        for i, word in enumerate(self.words(max(n - 1, 0)).tolist()):
            j = i + word % (n - i)
            places[i], places[j] = places[j], places[i]
        return np.array(places, dtype=np.int64)

    def normal(
        self,
        n: int,
        mean: float,
        std: float,
        dtype: str,
        *,
        in_blocks: bool = True,
        half: bool = False,
    ) -> Array:
        """Return n normally distributed numbers by Box and Muller's transform.

        Args:
            n: number of values.
            mean, std: of the distribution.
            dtype: "float32" or "float64", in which a block is computed.
            in_blocks: whether the tensor is contiguous: from 16 elements on, blocks of 16 are
                then made of 16 uniform numbers each, and the last 16 elements anew if some are
                left over. Otherwise pairs of float64 are made one after the other.
            half: whether they are for a half precision: then no uniform numbers are drawn for
                what is left over, in place of which the last block comes.
        """
        if in_blocks and n >= _BLOCK:
            return self._blocks(n, mean, std, dtype, half)
        return multiply_add(self._pairs(n), std, mean)

    def _blocks(self, n: int, mean: float, std: float, dtype: str, half: bool) -> Array:
        import numpy as np

        whole = n - n % _BLOCK
        uniform = self.uniform(whole if half else n, dtype)
        values = np.empty(n, uniform.dtype)
        values[:whole] = blocks(uniform[:whole], mean, std)
        if whole < n:
            values[n - _BLOCK :] = blocks(self.uniform(_BLOCK, dtype), mean, std)
        return values

    def _pairs(self, n: int) -> Array:
        import numpy as np

        with self._lock:
            return np.array(self._next_pairs(n), dtype=np.float64)

    def _next_pairs(self, n: int) -> list[float]:
        values: list[float] = []
        if n and self._kept_normal is not None:
            values.append(self._kept_normal)
            self._kept_normal = None
        missing = n - len(values)
        uniform = self.uniform(2 * ((missing + 1) // 2), "float64").tolist()
        for u, v in zip(uniform[0::2], uniform[1::2], strict=True):
            radius, angle = math.sqrt(-2.0 * math.log1p(-v)), 2.0 * math.pi * u
            values += [radius * math.cos(angle), radius * math.sin(angle)]
        if len(values) > n:
            self._kept_normal = values.pop()
        return values
