"""Compute the polynomials of ``native/vmath/vmath_polynomials_special.h``, as ``minimax.py`` does.

``python minimax_special.py`` prints the header, with ``--report`` the errors.
"""

from __future__ import annotations

import sys

import minimax
import mpmath
from minimax import Function, Polynomial
from mpmath import mp, mpf

_TINY = mpf("1e-18")
# Where the Bessel functions leave their power series for Hankel's expansion.
_BREAK = 8


def _zeros(order: int) -> list[mpf]:
    """Return the squares of the zeros of J of that order below the break."""
    return [mpmath.besseljzero(order, k) ** 2 for k in (1, 2)]


def _square(t: mpf, zeros: list[mpf]) -> mpf:
    """Return x^2 of t = x^2 / 32 - 1, beside zeros of the function and of x."""
    z = 32 * (t + 1)
    for zero in zeros:
        z = zero + _TINY if abs(z - zero) < _TINY else z
    return max(z, mpf("1e-24"))


def _first_kind(order: int) -> Polynomial:
    zeros = _zeros(order)

    def target(t: mpf) -> mpf:
        z = _square(t, zeros)
        x = mpmath.sqrt(z)
        return mpmath.besselj(order, x) / x**order / ((z - zeros[0]) * (z - zeros[1]))

    return Polynomial(
        f"j{order}_d32", "float64", 10, mpf(-1), mpf(1), target, lambda t: 1 / target(t),
        f"J{order}(x) = {'x ' * order}(x^2 - z1) (x^2 - z2) P(x^2 / 32 - 1), |x| <= 8",
    )  # fmt: skip


def _second_kind(order: int) -> Polynomial:
    def target(t: mpf) -> mpf:
        x = mpmath.sqrt(_square(t, []))
        pole = 1 / x if order else mpf(0)
        known = 2 / mpmath.pi * (mpmath.log(x) * mpmath.besselj(order, x) - pole)
        return (mpmath.bessely(order, x) - known) / x**order

    pole = " - 1 / x" * order
    return Polynomial(
        f"y{order}_d32", "float64", 12, mpf(-1), mpf(1), target, lambda t: mpf(_BREAK**order),
        f"Y{order}(x) = 2 / pi (log(x) J{order}(x){pole}) + {'x ' * order}P(x^2 / 32 - 1), x <= 8",
    )  # fmt: skip


def _hankel(order: int, part: str) -> Polynomial:
    """Describe P, or x Q, of Hankel's expansion by w = 64 / x^2."""

    def target(w: mpf) -> mpf:
        x = _BREAK / mpmath.sqrt(max(w, mpf("1e-10")))
        size = mpmath.sqrt(mpmath.pi * x / 2)
        first, second = mpmath.besselj(order, x) * size, mpmath.bessely(order, x) * size
        phase = x - mpmath.pi / 4 - order * mpmath.pi / 2
        cos, sin = mpmath.cos(phase), mpmath.sin(phase)
        return first * cos + second * sin if part == "p" else (second * cos - first * sin) * x

    return Polynomial(
        f"hankel_{part}{order}_d32", "float64", 4, mpf(0), mpf(1), target,
        lambda w: mpf(1) if part == "p" else mpf(1) / _BREAK,
        f"{'P' if part == 'p' else 'x Q'} of Hankel's expansion of order {order}, x >= 8,"
        " in 64 / x^2",
    )  # fmt: skip


def _i1_small(t: mpf) -> mpf:
    x = mpmath.sqrt(_square(t, []))
    return mpmath.besseli(1, x) / x


def _i1_large(t: mpf) -> mpf:
    x = _BREAK / max(t, mpf("1e-12"))
    return mpmath.besseli(1, x) * mpmath.exp(-x) * mpmath.sqrt(x)


_ROOT = mpmath.findroot(mpmath.digamma, mpf("1.4616321449683622"))


def _digamma(t: mpf) -> mpf:
    x = t + 2
    x = _ROOT + _TINY if abs(x - _ROOT) < _TINY else x
    return mpmath.digamma(x) / (x - _ROOT)


def _digamma_tail(u: mpf) -> mpf:
    x = 1 / mpmath.sqrt(u) if u else mpf(0)
    return (mpmath.log(x) - 1 / (2 * x) - mpmath.digamma(x)) / u if u else mpf(1) / 12


def _trigamma(t: mpf) -> mpf:
    return mpmath.polygamma(1, t + 2)


def _trigamma_tail(u: mpf) -> mpf:
    x = 1 / mpmath.sqrt(u) if u else mpf(0)
    return (mpmath.polygamma(1, x) - 1 / x - u / 2) * x**3 if u else mpf(1) / 6


def _erfcx(t: mpf) -> mpf:
    """Return (1 + 2x) exp(x^2) erfc(x) of t = (x - 4) / (x + 4)."""
    x = 4 * (1 + t) / (1 - t)
    if x > 1000:
        y = 1 / (2 * x * x)
        return (1 / x + 2) / mpmath.sqrt(mpmath.pi) * (1 - y + 3 * y**2 - 15 * y**3 + 105 * y**4)
    return (1 + 2 * x) * mpmath.exp(x * x) * mpmath.erfc(x)


def _relative(
    name: str, degree: int, low: mpf, high: mpf, target: Function, comment: str
) -> Polynomial:
    return Polynomial(name, "float64", degree, low, high, target, lambda x: 1 / target(x), comment)


mp.dps = 40
POLYNOMIALS = [
    _first_kind(0), _first_kind(1), _second_kind(0), _second_kind(1),
    *(_hankel(order, part) for order in (0, 1) for part in "pq"),
    _relative("i1_d32", 10, mpf(-1), mpf(1), _i1_small, "I1(x) = x P(x^2 / 32 - 1), |x| <= 8"),
    _relative("i1_large_d32", 7, mpf(0), mpf(1), _i1_large,
              "I1(x) = exp(x) P(8 / x) / sqrt(x), x >= 8"),
    _relative("digamma_d32", 16, mpf(-1), mpf(1), _digamma,
              "digamma(x) = (x - root) P(x - 2), 1 <= x <= 3"),
    Polynomial("digamma_tail_d32", "float64", 4, mpf(0), mpf(1) / 9, _digamma_tail,
               lambda u: mpf(1) / 9,
               "digamma(x) = log(x) - 1 / (2 x) - P(1 / x^2) / x^2, x >= 3"),
    _relative("trigamma_d32", 18, mpf(-1), mpf(1), _trigamma,
              "trigamma(x) = P(x - 2), 1 <= x <= 3"),
    Polynomial("trigamma_tail_d32", "float64", 5, mpf(0), mpf(1) / 9, _trigamma_tail,
               lambda u: mpf(1) / 9,
               "trigamma(x) = 1 / x + 1 / (2 x^2) + P(1 / x^2) / x^3, x >= 3"),
    Polynomial("cos_pi_d32", "float64", 5, mpf(0), mpf("0.25"),
               lambda z: mpmath.cospi(mpmath.sqrt(z)), lambda z: mpf(1),
               "cos(pi r) = P(r^2), |r| <= 1 / 2"),
    _relative("erfcx_d32", 14, mpf(-1), mpf(1) - mpf("1e-30"), _erfcx,
              "(1 + 2 x) exp(x^2) erfc(x) = P((x - 4) / (x + 4)), x >= 0"),
]  # fmt: skip

_HEADER = """\
/* Minimax polynomials of vmath_special.c: written by render/minimax_special.py. */
#ifndef TGC_VMATH_POLYNOMIALS_SPECIAL_H
#define TGC_VMATH_POLYNOMIALS_SPECIAL_H

#include "vmath_bits.h"
"""

if __name__ == "__main__":
    minimax.POLYNOMIALS[:] = POLYNOMIALS
    minimax._HEADER = _HEADER
    minimax.main(sys.argv[1:])
