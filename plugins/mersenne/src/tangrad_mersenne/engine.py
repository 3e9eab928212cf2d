"""The sequential engine: the numbers that PyTorch's CPU draws, bit for bit.

Matsumoto and Nishimura, "Mersenne Twister" (1998), 32-bit words. How values are made of words is
PyTorch's: said at each function, and computed in `twister.c`. Unlike the counter-based engine
(`tangrad.random.philox`), each value depends on all that were drawn before it.

Where PyTorch's own numbers depend on the processor, these are the ones of a processor with AVX2
that is not Intel's: on Intel's, PyTorch draws `bernoulli_(p)` and `exponential_` by MKL.
"""

from __future__ import annotations

import struct
from threading import Lock
from typing import TYPE_CHECKING, Any

from tangrad_mersenne._twister import Twister

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

__all__ = ["MersenneTwister"]

_WORDS = 624
# Seed, words left, seeded, next word, the words, three doubles and a flag of an older format (of
# which one holds a normal number kept for the next call), and the same as a float.
_LAYOUT = struct.Struct(f"<QiiQ{_WORDS}Q3di4xf?3x")
# From this many possible values on, an integer takes two words.
_WIDE_RANGE = 2**28
# From this many elements on, a contiguous tensor takes its normal numbers in blocks.
_BLOCK = 16
# A permutation of more elements than this would take two words each.
_LONGEST_PERMUTATION = (2**32 - 1) // 20


class MersenneTwister:
    """Hold the state of a Mersenne Twister and make numbers of its words.

    Args:
        seed: of which the low 32 bits are used.

    Attributes:
        name: of the engine.
        state_bytes: the size of its states, by which they are told from those of other engines.
    """

    name = "mt19937"
    state_bytes = _LAYOUT.size

    def __init__(self, seed: int) -> None:
        self._twister: Any = Twister(seed & 0xFFFFFFFF)
        self._lock = Lock()
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start anew."""
        self._seed, self._fresh = seed, True
        self._kept_float: float | None = None
        self._twister = Twister(seed & 0xFFFFFFFF)

    # --- state

    def state(self) -> bytes:
        """Return the state in the layout of PyTorch's CPU generator."""
        words, position, kept = self._twister.state()
        fresh = self._fresh and position == _WORDS
        left, following = (1, 0) if fresh else (_WORDS + 1 - position, position)
        return _LAYOUT.pack(
            self._seed,
            left,
            1,
            following,
            *struct.unpack(f"={_WORDS}I", words),
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
        words = struct.pack(f"={_WORDS}I", *(word & 0xFFFFFFFF for word in rest[:_WORDS]))
        _, normal, _, has_normal, kept_float, has_float = rest[_WORDS:]
        if not seeded or not 0 < left <= _WORDS or not 0 <= following <= _WORDS:
            raise RuntimeError("Invalid mt19937 state: it does not come from get_state()")
        self._seed = seed
        self._fresh = left == 1 and following == 0
        self._kept_float = kept_float if has_float else None
        position = _WORDS if self._fresh else following
        self._twister.set_state(words, position, normal if has_normal else None)

    @property
    def initial_seed(self) -> int:
        """The seed it was started with."""
        return self._seed

    # --- words

    def words(self, n: int) -> Array:
        """Return the next n 32-bit words, as uint64."""
        import numpy as np

        return self._filled(np.empty(n, np.uint32), self._twister.words).astype(np.uint64)

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
        return self.uniform_between(n, 0.0, 1.0, dtype)

    def uniform_between(self, n: int, low: float, high: float, dtype: str) -> Array:
        """Return n numbers ``u * (high - low) + low``, rounded once."""
        return self._filled(_empty(n, dtype), self._twister.uniform, low, high)

    def exponential(self, n: int, rate: float) -> Array:
        """Return n exponentially distributed numbers in float64: ``-1 / rate * log1p(-u)``."""
        return self._draw("exponential", n, rate)

    def cauchy(self, n: int, median: float, sigma: float) -> Array:
        """Return n numbers ``tan(pi * (u - 0.5)) * sigma + median``, rounded once."""
        return self._draw("cauchy", n, median, sigma)

    def log_normal(self, n: int, mean: float, std: float) -> Array:
        """Return n numbers whose logarithms are normally distributed."""
        return self._draw("log_normal", n, mean, std)

    def geometric(self, n: int, p: float) -> Array:
        """Return n numbers of trials up to a success: ``ceil(log(u) / log1p(-p))``."""
        return self._draw("geometric", n, p)

    def gamma(self, alpha: Array) -> Array:
        """Return gamma distributed numbers of rate 1 with the concentrations `alpha`."""
        return self._reject("gamma", alpha, alpha)

    def poisson(self, mean: Array) -> Array:
        """Return Poisson distributed numbers.

        Raises:
            RuntimeError: a mean is negative or nan.
        """
        if not (mean >= 0).all():
            wrong = mean[~(mean >= 0)][0]
            raise RuntimeError(
                f"invalid Poisson rate, expected rate to be non-negative, got {wrong}"
            )
        return self._reject("poisson", mean, mean)

    def binomial(self, count: Array, prob: Array) -> Array:
        """Return numbers of successes among `count` trials, each of probability `prob`."""
        return self._reject("binomial", count, prob)

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
        if n < 2:  # takes no word
            return np.zeros(n, np.int64)
        return self._filled(np.empty(n, np.int64), self._twister.permutation)

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
            return self._filled(_empty(n, dtype), self._twister.blocks, mean, std, half)
        return self._draw("pairs", n, mean, std)

    # --- what fills arrays

    def _filled(self, out: Array, fill: Any, *args: Any) -> Array:
        """Return an array after a method of the twister has filled it, for one thread at a time."""
        if out.size:
            self._fresh = False
            with self._lock:
                fill(out, *args)
        return out

    def _draw(self, kind: str, n: int, *parameters: float) -> Array:
        return self._filled(_empty(n, "float64"), self._twister.draw, kind, *parameters)

    def _reject(self, kind: str, first: Array, second: Array) -> Array:
        import numpy as np

        narrow = first.dtype == np.float32
        wide = (np.ascontiguousarray(x, np.float64) for x in (first, second))
        return self._filled(
            _empty(first.size, "float64"), self._twister.reject, kind, *wide, narrow
        )


def _empty(n: int, dtype: str) -> Array:
    """Return an array of float64, or of float32 for any other dtype."""
    import numpy as np

    return np.empty(n, np.float64 if dtype == "float64" else np.float32)
