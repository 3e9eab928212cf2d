"""Compute the polynomials of ``native/vmath/vmath_polynomials.h``: minimax by Remez's exchange.

``python minimax.py`` prints the header; ``python minimax.py --report`` prints the error of each
polynomial, in bits, with its coefficients rounded to their type. A polynomial ``P(x)`` stands for
``target(x)`` on an interval; what is made small everywhere is ``|weight(x) * (P(x) - target(x))|``,
where the weight turns the error of ``P`` into the relative error of the function it serves.

Method: E. Remez, 1934, as in J.-M. Muller, Elementary Functions, 3rd ed., section 3.3. The
coefficients are rounded to nearest afterwards: the leading terms of the functions (such as
``1 + r`` of ``exp``) are not part of the polynomials, so that rounding costs them little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mp, mpf

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Polynomial:
    """Describe one polynomial to be found.

    Attributes:
        name: The C function is ``tgc_poly_<name>``.
        dtype: ``float32`` or ``float64``, the type of coefficients and arguments.
        degree: Its degree.
        low, high: The interval.
        target: What it approximates.
        weight: By what its error is multiplied.
        comment: The formula it belongs to.
        split: Whether the last step of Horner's scheme is exact and the two lowest coefficients
            in two parts: the result and what rounding it lost.
        paired: Whether the scheme takes two coefficients at a time, which are multiplied by the
            square of the argument: as many steps, but only half of them wait for each other.
    """

    name: str
    dtype: str
    degree: int
    low: mpf
    high: mpf
    target: Function
    weight: Function
    comment: str
    split: bool = False
    paired: bool = False


def _round(value: mpf, dtype: str) -> mpf:
    if dtype == "float64":
        return mpf(float(value))
    # From mpf to float32 by way of float64: rounding twice moves a coefficient by no more than
    # half a unit of float64.
    return mpf(float(np.float32(float(value))))


def _grid(low: mpf, high: mpf, count: int) -> list[mpf]:
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mpmath.cos(mpmath.pi * k / (count - 1)) for k in range(count)]


def _horner(coefficients: list[mpf], x: mpf) -> mpf:
    total = mpf(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def _remez(points: list[mpf], values: list[mpf], weights: list[mpf], count: int) -> list[mpf]:
    """Return the ``count`` coefficients with the least weighted error on ``points``."""
    # Only with a positive weight does the error of the best polynomial alternate.
    weights = [abs(weight) for weight in weights]
    # Where the weight vanishes nothing is asked of the polynomial.
    least = max(weights) * mpf("1e-9")
    inner = [k for k in range(len(points)) if weights[k] > least and points[k] != 0]
    points, values, weights = ([row[k] for k in inner] for row in (points, values, weights))
    step = (len(points) - 1) / count
    chosen = [round(k * step) for k in range(count + 1)]
    best, best_error = [], mpf("inf")
    for _ in range(40):
        matrix = mpmath.matrix(count + 1, count + 1)
        right = mpmath.matrix(count + 1, 1)
        for row, k in enumerate(chosen):
            for column in range(count):
                matrix[row, column] = points[k] ** column
            matrix[row, count] = (-1) ** row / weights[k]
            right[row] = values[k]
        solution = mpmath.lu_solve(matrix, right)
        found, level = list(solution[:count]), abs(solution[count])
        errors = [
            weight * (_horner(found, x) - value)
            for x, value, weight in zip(points, values, weights, strict=True)
        ]
        largest = max(abs(error) for error in errors)
        if largest < best_error:
            best, best_error = found, largest
        if largest <= level * mpf("1.001"):
            break
        chosen = _exchange(errors, count + 1) or chosen
    return best


def _exchange(errors: list[mpf], count: int) -> list[int] | None:
    """Return ``count`` indices where the error alternates and is locally largest."""
    extrema: list[int] = []
    for k, error in enumerate(errors):
        if error == 0:
            continue
        if extrema and (errors[extrema[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[extrema[-1]]):
                extrema[-1] = k
        else:
            extrema.append(k)
    while len(extrema) > count:
        # Of what is too much, drop the smaller end.
        extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
    return extrema if len(extrema) == count else None


def fit(poly: Polynomial) -> tuple[list[mpf], mpf]:
    """Return the rounded coefficients, lowest first, and the largest weighted error.

    Those of a split polynomial come after what rounding the two lowest lost.
    """
    points = _grid(poly.low, poly.high, 24 * (poly.degree + 2) + 1)
    values = [poly.target(x) for x in points]
    weights = [poly.weight(x) for x in points]
    found = _remez(points, values, weights, poly.degree + 1)
    rounded = [_round(value, poly.dtype) for value in found]
    effective = list(rounded)
    if poly.split:
        lost = [_round(found[k] - rounded[k], poly.dtype) for k in (0, 1)]
        effective[:2] = [effective[k] + lost[k] for k in (0, 1)]
        rounded = lost + rounded
    error = max(
        abs(w * (_horner(effective, x) - v))
        for x, v, w in zip(points, values, weights, strict=True)
    )
    return rounded, error


def _literal(value: mpf, dtype: str) -> str:
    return float(value).hex() + ("f" if dtype == "float32" else "")


def render(poly: Polynomial, coefficients: list[mpf]) -> str:
    """Return the C function that evaluates the polynomial by Horner's scheme, or by pairs."""
    if poly.paired:
        return _render_paired(poly, coefficients)
    kind, fma = ("float", "TGC_FMAF") if poly.dtype == "float32" else ("double", "TGC_FMA")
    parameters = f"{kind} x" + f", {kind} *low" * poly.split
    lines = [
        f"/* {poly.comment} */",
        f"TGC_INLINE {kind} tgc_poly_{poly.name}({parameters}) {{",
        f"    {kind} p = {_literal(coefficients[-1], poly.dtype)};",
    ]
    last, rest = (coefficients[:3], coefficients[3:]) if poly.split else ([], coefficients)
    for value in rest[-2::-1]:
        lines.append(f"    p = {fma}(p, x, {_literal(value, poly.dtype)});")
    if poly.split:
        low, next_low, value = (_literal(part, poly.dtype) for part in last)
        lines += [
            f"    {kind} lost, product = tgc_two_product_f64(p, x, &lost);",
            f"    p = tgc_two_sum_f64({value}, product, low);",
            f"    *low += lost + {fma}({next_low}, x, {low});",
        ]
    return "\n".join([*lines, "    return p;", "}"])


def _render_paired(poly: Polynomial, coefficients: list[mpf]) -> str:
    kind, fma = ("float", "TGC_FMAF") if poly.dtype == "float32" else ("double", "TGC_FMA")
    values = [_literal(value, poly.dtype) for value in coefficients]
    pairs = [
        f"{fma}({values[k + 1]}, x, {values[k]})" if k + 1 < len(values) else values[k]
        for k in range(0, len(values), 2)
    ]
    lines = [
        f"/* {poly.comment} */",
        f"TGC_INLINE {kind} tgc_poly_{poly.name}({kind} x) {{",
        f"    {kind} z = x * x, p = {pairs[-1]};",
    ]
    lines += [f"    p = {fma}(p, z, {pair});" for pair in pairs[-2::-1]]
    return "\n".join([*lines, "    return p;", "}"])


def _closed(closed: Function) -> Function:
    """Return a function whose closed form cancels near 0, with digits to spare."""

    def value(x: mpf) -> mpf:
        with mp.workdps(mp.dps * 4):
            return +closed(x if x != 0 else mpf(10) ** (-mp.dps))

    return value


def _of_square(function: Function) -> Function:
    """Return a function of ``z`` that is ``function`` at the root of ``z``."""
    return _closed(lambda z: function(mpmath.sqrt(z)))


mp.dps = 40
_LN2 = mpmath.log(2)
_HALF_LN2 = _LN2 / 2 * mpf("1.001")
_ROOT_LOW, _ROOT_HIGH = mpmath.sqrt(mpf(1) / 2) - 1, mpmath.sqrt(2) - 1
_QUARTER_PI = (mpmath.pi / 4) * mpf("1.01")
_ROOT_PI = mpmath.sqrt(mpmath.pi)


def _exp(
    name: str, dtype: str, degree: int, served: Function = mpmath.exp, paired: bool = False
) -> Polynomial:
    return Polynomial(
        name, dtype, degree, -_HALF_LN2, _HALF_LN2,
        _closed(lambda r: (mpmath.expm1(r) - r) / r**2),
        _closed(lambda r: r**2 / served(r)),
        "exp(r) = 1 + r + r^2 P(r)", paired=paired,
    )  # fmt: skip


def _odd(
    name: str, dtype: str, degree: int, high: mpf, function: Function, text: str
) -> Polynomial:
    """Describe an odd function with derivative 1 at 0, up to ``high``."""
    return Polynomial(
        name, dtype, degree, mpf(0), high**2,
        _of_square(lambda x: (function(x) / x - 1) / x**2),
        _of_square(lambda x: x**3 / function(x)),
        f"{text}(r) = r + r^3 P(r^2), |r| <= {mpmath.nstr(high, 4)}",
    )  # fmt: skip


def _cos(name: str, dtype: str, degree: int) -> Polynomial:
    return Polynomial(
        name, dtype, degree, mpf(0), _QUARTER_PI**2,
        _of_square(lambda x: (mpmath.cos(x) - 1 + x**2 / 2) / x**4),
        _of_square(lambda x: x**4 / mpmath.cos(x)),
        "cos(r) = 1 - r^2 / 2 + r^4 P(r^2), |r| <= pi / 4",
    )  # fmt: skip


POLYNOMIALS = [
    _exp("exp_f32", "float32", 4),
    _exp("expm1_f32", "float32", 5, mpmath.expm1, paired=True),
    Polynomial(
        "log_f32", "float32", 7, _ROOT_LOW, _ROOT_HIGH,
        _closed(lambda f: (mpmath.log1p(f) - f + f**2 / 2) / f**3),
        _closed(lambda f: f**3 / mpmath.log1p(f)),
        "log(1 + f) = f - f^2 / 2 + f^3 P(f)",
        paired=True,
    ),
    _odd("sin_f32", "float32", 3, _QUARTER_PI, mpmath.sin, "sin"),
    _cos("cos_f32", "float32", 2),
    _odd("tanh_f32", "float32", 4, mpf("0.626"), mpmath.tanh, "tanh"),
    _odd("atan_f32", "float32", 8, mpf(1), mpmath.atan, "atan"),
    _odd("asin_f32", "float32", 4, mpf("0.501"), mpmath.asin, "asin"),
    Polynomial(
        "erf_f32", "float32", 8, mpf("0.001"), mpf("3.95"),
        _closed(lambda x: -mpmath.log(mpmath.erfc(x)) / x - 1),
        _closed(lambda x: x * mpmath.erfc(x) / mpmath.erf(x)),
        "erf(x) = 1 - exp(-x - x P(x)), 0 <= x <= 3.95",
        paired=True,
    ),
]  # fmt: skip
_TAN_PI_8 = mpmath.sqrt(2) - 1
_ERFC_CENTRE = mpf(4)


def _log_quotient(name: str, degree: int) -> Polynomial:
    return Polynomial(
        name, "float64", degree, mpf(0), _TAN_PI_8**4 * mpf("1.001"),
        _of_square(lambda s: (2 * mpmath.atanh(s) / s - 2) / s**2),
        _of_square(lambda s: s**3 / mpmath.atanh(s)),
        "log(1 + f) = s (2 + s^2 P(s^2)), s = f / (2 + f)",
    )  # fmt: skip


def _erf_small(name: str, degree: int) -> Polynomial:
    return Polynomial(
        name, "float64", degree, mpf(0), mpf(1),
        _of_square(lambda x: mpmath.erf(x) / x - 1),
        _of_square(lambda x: x / mpmath.erf(x)),
        "erf(x) = x + x P(x^2), |x| <= 1",
    )  # fmt: skip


def _erfc_tail(name: str, degree: int, high: mpf, split: bool) -> Polynomial:
    """Describe erfc in the variable of Shepherd and Laframboise, Math. Comp. 36, 1981."""
    low = mpf("0.74")

    def position(t: mpf) -> mpf:
        return _ERFC_CENTRE * (1 + t) / (1 - t)

    def target(t: mpf) -> mpf:
        x = position(t)
        return mpmath.exp(x**2) * mpmath.erfc(x) * (x + _ERFC_CENTRE)

    def variable(x: mpf) -> mpf:
        return (x - _ERFC_CENTRE) / (x + _ERFC_CENTRE)

    return Polynomial(
        name, "float64", degree, variable(low), variable(high), target,
        lambda t: 1 / target(t),
        "erfc(x) = exp(-x^2) P(t) / (x + 4), t = (x - 4) / (x + 4),"
        f" 0.74 <= x <= {mpmath.nstr(high, 4)}",
        split,
    )  # fmt: skip


POLYNOMIALS += [
    _exp("exp_f64", "float64", 10, mpmath.expm1, paired=True),
    _log_quotient("log_f64", 6),
    Polynomial(
        "log_tail_f64", "float64", 6, mpf(0), _TAN_PI_8**4 * mpf("1.001"),
        _of_square(lambda s: (mpmath.atanh(s) / s - 1 - s**2 / 3) / s**4),
        _of_square(lambda s: s**5 / mpmath.atanh(s)),
        "atanh(s) = s + s^3 (1 / 3 + s^2 P(s^2))", paired=True,
    ),
    _odd("sin_f64", "float64", 6, _QUARTER_PI, mpmath.sin, "sin"),
    _cos("cos_f64", "float64", 5),
    _odd("atan_f64", "float64", 12, _TAN_PI_8 * mpf("1.001"), mpmath.atan, "atan"),
    _odd("asin_f64", "float64", 12, mpf("0.501"), mpmath.asin, "asin"),
    _erf_small("erf_f64", 14),
    _erfc_tail("erfc_f64", 20, mpf("27.3"), split=True),
    # Short ones, in float64 for results in float32.
    _exp("exp_d32", "float64", 5),
    _log_quotient("log_d32", 2),
    _odd("sin_d32", "float64", 3, _QUARTER_PI, mpmath.sin, "sin"),
    _cos("cos_d32", "float64", 2),
    _odd("sinh_d32", "float64", 3, mpf("1.001"), mpmath.sinh, "sinh"),
]  # fmt: skip


def _erfc_logarithm(
    name: str, degree: int, low: str, high: str, centre: str, leading: str
) -> Polynomial:
    """Describe -log(erfc(x)) less x^2 and what is easily added."""
    middle, shift = mpf(centre), mpf(leading)

    def target(t: mpf) -> mpf:
        x = t + middle
        return -mpmath.log(mpmath.erfc(x)) - x**2 - shift

    return Polynomial(
        name, "float32", degree, mpf(low) - middle, mpf(high) - middle, target, lambda t: mpf(1),
        f"erfc(x) = exp(-x^2 - {leading} - P(x - {centre})), {low} <= x <= {high}",
    )  # fmt: skip


POLYNOMIALS += [
    Polynomial(
        "erf_small_f32", "float32", 5, mpf(0), mpf("0.563"),
        _of_square(lambda x: mpmath.erf(x) / x - 1),
        _of_square(lambda x: x / mpmath.erf(x)),
        "erf(x) = x + x P(x^2), |x| <= 0.75",
    ),
    _erfc_logarithm("erfc_near_f32", 11, "0.749", "3", "1.75", "1.25"),
    _erfc_logarithm("erfc_far_f32", 11, "3", "10.1", "6.5", "2.5"),
]  # fmt: skip


def _lgamma_quotient(t: mpf) -> mpf:
    """Return lgamma(x) / ((x - 1) (x - 2)) of t = x - 2, also at the zeros."""
    x = t + 2 + (mpf("1e-15") if min(abs(t), abs(t + 1)) < mpf("1e-15") else 0)
    return mpmath.loggamma(x) / ((x - 1) * (x - 2))


def _stirling_rest(u: mpf) -> mpf:
    """Return x times what Stirling's formula lacks of lgamma(x), of u = 1 / x^2."""
    if u == 0:
        return mpf(1) / 12
    x = 1 / mpmath.sqrt(u)
    return x * (
        mpmath.loggamma(x) - (x - mpf("0.5")) * mpmath.log(x) + x - mpmath.log(2 * mpmath.pi) / 2
    )


POLYNOMIALS += [
    Polynomial(
        "lgamma_d32", "float64", 14, mpf(-1), mpf(1),
        _lgamma_quotient, lambda t: 1 / _lgamma_quotient(t),
        "lgamma(x) = (x - 1) (x - 2) P(x - 2), 1 <= x <= 3",
    ),
    Polynomial(
        "stirling_d32", "float64", 4, mpf(0), mpf(1) / 9,
        _stirling_rest, lambda u: mpf(1),
        "lgamma(x) = (x - 1 / 2) log(x) - x + log(2 pi) / 2 + P(1 / x^2) / x, x >= 3",
    ),
    Polynomial(
        "sin_pi_d32", "float64", 5, mpf(0), mpf("0.25"),
        _of_square(lambda x: mpmath.sinpi(x) / (mpmath.pi * x)),
        _of_square(lambda x: mpmath.pi * x / mpmath.sinpi(x)),
        "sin(pi r) / pi = r P(r^2), |r| <= 1 / 2",
    ),
]  # fmt: skip


def _erfinv_quotient(w: mpf) -> mpf:
    """Return erfinv(x) / x of w = -log(1 - x^2)."""
    with mp.workdps(4 * mp.dps):
        if w < mpf(10) ** -30:
            return _ROOT_PI / 2
        x = mpmath.sqrt(-mpmath.expm1(-w))
        rest = mpmath.exp(-w) / (1 + x)  # 1 - x
        y = mpmath.sqrt(w)
        while True:  # Newton's iteration on log(erfc(y))
            tail = mpmath.erfc(y)
            step = mpmath.log(tail / rest) * tail * _ROOT_PI / 2 * mpmath.exp(y * y)
            y += step
            if abs(step) < mpf(10) ** -40:
                return y / x


def _erfinv(name: str, degree: int, factor: mpf) -> Polynomial:
    """Describe factor erfinv(x) / x in w = -log(1 - x^2), less its value at 0, by w."""
    centre = mpf("2.5")

    def target(t: mpf) -> mpf:
        w = t + centre
        return factor * (_erfinv_quotient(w) - _ROOT_PI / 2) / w

    return Polynomial(
        name, "float32", degree, mpf("1e-8") - centre, mpf("5.05") - centre,
        target, lambda t: (t + centre) / (factor * _erfinv_quotient(t + centre)),
        f"{mpmath.nstr(factor, 5)} erfinv(x) / x = c + w P(w - 2.5), w = -log(1 - x^2) <= 5.05",
        paired=True,
    )  # fmt: skip


def _erfinv_tail(
    name: str, degree: int, low: str, high: str, middle: str, factor: mpf
) -> Polynomial:
    """Describe factor erfinv(x) / x in the root of w, less the rounded factor times that."""
    centre = mpf(middle)

    def quotient(t: mpf) -> mpf:
        return factor * _erfinv_quotient((t + centre) ** 2)

    return Polynomial(
        name, "float32", degree, mpf(low) - centre, mpf(high) - centre,
        lambda t: quotient(t) - _round(factor, "float32") * (t + centre),
        lambda t: 1 / quotient(t),
        f"{mpmath.nstr(factor, 5)} (erfinv(x) / x - u) = P(u - {middle}), u = sqrt(w),"
        f" {low} <= u <= {high}",
        paired=True,
    )  # fmt: skip


_ROOT_2 = mpmath.sqrt(2)
POLYNOMIALS += [
    _erfinv("erfinv_f32", 8, mpf(1)),
    _erfinv_tail("erfinv_tail_f32", 9, "2.2", "4.2", "3", mpf(1)),
    _erfinv("ndtri_f32", 9, _ROOT_2),
    _erfinv_tail("ndtri_tail_f32", 9, "2.2", "4.2", "3", _ROOT_2),
    _erfinv_tail("ndtri_far_f32", 8, "4.15", "10.2", "7", _ROOT_2),
]

_HEADER = """\
/* Minimax polynomials of vmath: written by render/minimax.py, which documents them. */
#ifndef TGC_VMATH_POLYNOMIALS_H
#define TGC_VMATH_POLYNOMIALS_H

#include "vmath_bits.h"
"""


def main(arguments: list[str]) -> None:
    """Print the header, or with ``--report`` the errors."""
    names = [name for name in arguments if not name.startswith("-")]
    if "--report" in arguments:
        for poly in POLYNOMIALS:
            if not names or poly.name in names:
                _, error = fit(poly)
                bits = mpmath.nstr(mpmath.log(error, 2), 4)
                print(f"{poly.name:20} degree {poly.degree:2}  error 2^{bits}", flush=True)
        return
    print(_HEADER)
    for poly in POLYNOMIALS:
        print(render(poly, fit(poly)[0]) + "\n")
    print("#endif")


if __name__ == "__main__":
    main(sys.argv[1:])
