"""Numbers that fill a cube evenly: Sobol's sequence."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_quasirandom.directions import BITS, LARGEST_DIMENSION, direction_numbers

__all__ = ["SobolEngine"]

API = 1


class SobolEngine:
    """Draw the points of Sobol's sequence in [0, 1)^dimension, scrambled if so wished.

    The sequence is that of I. M. Sobol, "On the distribution of points in a cube and the
    approximate evaluation of integrals" (1967), with the direction numbers of Joe and Kuo; points
    follow each other in the order of Gray's code. Scrambling is the random linear one of J.
    Matousek, "On the L2-discrepancy for anchored boxes" (1998), with a random shift.

    Args:
        dimension: of the cube.
        scramble: whether to scramble.
        seed: of the scrambling; by default the generator of all random numbers goes on.

    Raises:
        ValueError: there are no direction numbers for so many dimensions.

    Attributes:
        dimension, scramble, seed: the arguments.
        sobolstate: the direction numbers, int64 of shape (dimension, 30).
        shift: the first point in units of 2**-30, int64 of shape (dimension,).
        quasi: the latest point, as `shift`.
        num_generated: how many points were drawn.
    """

    MAXBIT = BITS
    MAXDIM = LARGEST_DIMENSION

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], got "
                f"{dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.sobolstate = tangrad.from_numpy(direction_numbers(dimension))
        self.shift = tangrad.zeros(dimension, dtype=tangrad.int64, device="cpu")
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """Return the next points.

        Args:
            n: how many.
            out: a tensor for the result.
            dtype: of the result, float32 or float64; by default the default dtype.

        Returns:
            A tensor of shape (n, dimension).

        Raises:
            NotImplementedError: it is another dtype.
            ValueError: n is negative, or the sequence of 2**30 points ends before.
        """
        dtype = dtype or tangrad.get_default_dtype()
        if dtype not in (tangrad.float32, tangrad.float64):
            raise NotImplementedError(
                f"SobolEngine.draw(): {dtype} is not supported; draw float32 or float64 and convert"
            )
        if n < 0:
            raise ValueError(f"SobolEngine.draw(): n must not be negative, got {n}")
        if n == 0:
            result = tangrad.empty(0, self.dimension, dtype=dtype, device="cpu")
        elif self.num_generated:
            result = self._draw(n, self.num_generated - 1, dtype)
        elif n == 1:
            result = self._first_point.to(dtype)
        else:
            first = self._first_point.to(dtype)
            result = tangrad.cat((first, self._draw(n - 1, 0, dtype)), dim=-2)
        self.num_generated += n
        if out is not None:
            return out.resize_as_(result).copy_(result)
        return result

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """Return the next 2**m points, of which together with those before there are a power of 2.

        Args:
            m: the exponent.
            out: as for `draw`.
            dtype: as for `draw`.

        Raises:
            ValueError: all points together would be another number.
        """
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Go back to the first point."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Pass over the next n points.

        Raises:
            ValueError: the sequence of 2**30 points ends before.
        """
        begin = max(self.num_generated - 1, 0)
        end = begin + (n if self.num_generated else n - 1)
        _check_end(end)
        flipped = (begin ^ begin >> 1) ^ (end ^ end >> 1)
        for bit in range(flipped.bit_length()):
            if flipped >> bit & 1:
                self.quasi ^= self.sobolstate[:, bit]
        self.num_generated += n
        return self

    def _draw(self, n: int, begin: int, dtype: Any) -> Any:
        """Return the n points that follow number `begin`, and remember the last."""
        import numpy as np

        _check_end(begin + n)
        # Point k + 1 differs from point k in the number of the lowest bit of k that is 0.
        rising = np.arange(begin + 1, begin + n + 1)
        lowest = np.log2(rising & -rising).astype(np.int64)
        steps = self.sobolstate.numpy().T.astype(np.int32)[lowest]
        steps[0] ^= self.quasi.numpy().astype(np.int32)
        np.bitwise_xor.accumulate(steps, axis=0, out=steps)
        self.quasi = tangrad.from_numpy(steps[-1].astype(np.int64))
        return tangrad.from_numpy(steps).to(dtype).mul_(2.0**-self.MAXBIT)

    def _scramble(self) -> None:
        import numpy as np

        generator = None
        if self.seed is not None:
            generator = tangrad.Generator()
            generator.manual_seed(self.seed)
        bits, kind = self.MAXBIT, {"device": "cpu", "generator": generator}
        places = 1 << np.arange(bits)
        shift = tangrad.randint(2, (self.dimension, bits), **kind).numpy()
        self.shift = tangrad.from_numpy(shift @ places)
        lower = tangrad.randint(2, (self.dimension, bits, bits), **kind).tril_().numpy()
        diagonal = np.arange(bits)
        lower[:, diagonal, diagonal] = 1
        # Each number is multiplied, as a vector of bits from the highest on, by a matrix mod 2.
        vectors = self.sobolstate.numpy()[:, None, :] >> diagonal[::-1, None] & 1
        product = (lower @ vectors) & 1
        self.sobolstate = tangrad.from_numpy(places[::-1] @ product)

    def __repr__(self) -> str:
        told = [f"dimension={self.dimension}"]
        if self.scramble:
            told.append("scramble=True")
        if self.seed is not None:
            told.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(told)})"


def _check_end(number: int) -> None:
    if number >= 2**BITS:
        raise ValueError(f"SobolEngine: the sequence has 2**{BITS} points, not {number + 1}")


# Where PyTorch has it, and where pickles look for it.
SobolEngine.__module__ = "tangrad.quasirandom"
