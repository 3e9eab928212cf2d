"""Direction numbers of Sobol's sequence: those of S. Joe and F. Y. Kuo, "Constructing Sobol
sequences with better two-dimensional projections", SIAM J. Sci. Comput. 30 (2008), criterion D(6).

The primitive polynomials that belong to the dimensions are all there are, in their order, so they
are found anew. What the authors searched for, the first numbers of each dimension, is kept in
`initial_numbers.bin`: number i of a dimension is odd and below 2**(i + 1), so i bits tell it. The
bits are random and cannot be packed further; those of degree 17 and 18, the last dimensions of the
21,201 published, would take 280 KB more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

BITS = 30
LARGEST_DEGREE = 16
LARGEST_DIMENSION = 5715


def _times_power_of_x(polynomials: Any, degree: int, power: int) -> Any:
    """Return x**power modulo each polynomial over GF(2), the coefficients as bits."""
    import numpy as np

    remainder = np.ones_like(polynomials)
    for bit in f"{power:b}":
        square = np.zeros_like(polynomials)
        factor = remainder
        for place in range(degree):
            square ^= np.where(remainder >> place & 1, factor, 0)
            factor = _reduced(factor << 1, polynomials, degree)
        remainder = _reduced(square << 1, polynomials, degree) if bit == "1" else square
    return remainder


def _reduced(values: Any, polynomials: Any, degree: int) -> Any:
    return values ^ (values >> degree & 1) * polynomials


def _prime_factors(number: int) -> list[int]:
    found, candidate = [], 2
    while number > 1:
        if number % candidate == 0:
            found.append(candidate)
        while number % candidate == 0:
            number //= candidate
        candidate += 1
    return found


def primitive_polynomials(degree: int) -> Any:
    """Return all primitive polynomials of a degree over GF(2), ascending: an array of int64.

    A polynomial is primitive where the order of x modulo it is 2**degree - 1.
    """
    import numpy as np

    found = np.arange((1 << degree) + 1, 1 << degree + 1, 2, dtype=np.int64)
    order = (1 << degree) - 1
    found = found[_times_power_of_x(found, degree, order) == 1]
    for factor in _prime_factors(order):
        found = found[_times_power_of_x(found, degree, order // factor) != 1]
    return found


def _initial_numbers(bits: Any, degree: int) -> Any:
    """Unpack rows of bits into the `degree` first numbers of as many dimensions."""
    import numpy as np

    numbers = np.ones((len(bits), degree), np.int64)
    at = 0
    for i in range(1, degree):
        places = 1 << np.arange(1, i + 1)
        numbers[:, i] += bits[:, at : at + i] @ places
        at += i
    return numbers


def direction_numbers(dimension: int) -> Any:
    """Return the direction numbers of the first dimensions, as PyTorch scales them.

    Args:
        dimension: how many, at most `LARGEST_DIMENSION`.

    Returns:
        An array of int64, (dimension, 30); number i is a multiple of 2**(29 - i).
    """
    import numpy as np

    packed = np.frombuffer((Path(__file__).parent / "initial_numbers.bin").read_bytes(), np.uint8)
    bits, at = np.unpackbits(packed), 0
    numbers = np.ones((dimension, BITS), np.int64)  # the first dimension is van der Corput's
    done, degree = 1, 1
    while done < dimension:
        polynomials = primitive_polynomials(degree)[: dimension - done]
        rows, width = len(polynomials), degree * (degree - 1) // 2
        part = numbers[done : done + rows]
        own = bits[at : at + rows * width].reshape(rows, width).astype(np.int64)
        part[:, :degree] = _initial_numbers(own, degree)
        for i in range(degree, BITS):
            part[:, i] = part[:, i - degree]
            for k in range(1, degree + 1):
                part[:, i] ^= (polynomials >> degree - k & 1) * part[:, i - k] << k
        done, degree, at = done + rows, degree + 1, at + rows * width
    return numbers << np.arange(BITS - 1, -1, -1)
