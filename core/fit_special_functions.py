"""Compute the polynomials of the special functions for ``tangrad/expr``.

``python core/fit_special_functions.py`` writes ``coefficients_special.py`` and, of the incomplete
gamma functions, ``coefficients_gamma.py``; it needs mpmath and takes a minute.

A function that is smooth over a mapped interval t in [-1, 1] is interpolated at Chebyshev's nodes
with 50 digits, its Chebyshev series is cut where the terms no longer count, and the polynomial is
written by powers of t. That costs no digits as long as the terms fall faster than the polynomials'
coefficients grow; ``--report`` prints the sum of the coefficients' sizes beside the least value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from mpmath import mp, mpf

mp.dps = 50
NODES = 72
FOLDER = Path(__file__).parent / "src" / "tangrad" / "expr"
OF_GAMMA = ("TEMME_", "LOG1P_")


def fit(function: Callable[[mpf], mpf], cut: float = 2e-18) -> list[mpf]:
    """Return the coefficients by powers of t of the cut Chebyshev series of ``function``."""
    angles = [mp.pi * (2 * k + 1) / (2 * NODES) for k in range(NODES)]
    values = [function(mp.cos(angle)) for angle in angles]
    size = max(abs(value) for value in values)
    series = [
        2 * mp.fsum(v * mp.cos(n * a) for v, a in zip(values, angles, strict=True)) / NODES
        for n in range(NODES)
    ]
    series[0] /= 2
    degree = max(n for n, c in enumerate(series) if abs(c) > cut * size)
    powers = [mpf(0)] * (degree + 1)
    before, now = [mpf(0)] * (degree + 1), [mpf(1)] + [mpf(0)] * degree
    for n in range(degree + 1):
        for k in range(degree + 1):
            powers[k] += series[n] * now[k]
        factor = 1 if n == 0 else 2
        after = [factor * c for c in [mpf(0), *now[:-1]]]
        before, now = now, [a - (b if n else 0) for a, b in zip(after, before, strict=True)]
    return powers


def beyond(start: float, function: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """Map x >= start to t = 2 start / x - 1; at infinity a large number stands for the limit."""
    return lambda t: function(2 * mpf(start) / (t + 1))


def between(low: float, high: float, function: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """Map low <= x <= high to t linearly."""
    return lambda t: function((mpf(high) + mpf(low) + (mpf(high) - mpf(low)) * t) / 2)


def of_square(end: float, function: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """Map 0 <= x <= end to t = 2 (x / end)^2 - 1."""
    return lambda t: function(mpf(end) * mp.sqrt((t + 1) / 2))


def beyond_by_square(start: float, function: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    """Map x >= start to t = 2 (start / x)^2 - 1."""
    return lambda t: function(mpf(start) / mp.sqrt((t + 1) / 2))


def hankel(order: int, x: mpf) -> mpf:
    """Return P + iQ: the Hankel function without its wave and its decay."""
    wave = mp.exp(-1j * (x - mp.pi * (2 * order + 1) / 4))
    return mp.hankel1(order, x) * mp.sqrt(mp.pi * x / 2) * wave


def modulus(order: int, x: mpf) -> mpf:
    """Return M of J = sqrt(2 / (pi x)) M cos(chi - alpha); Y has the sine (DLMF 10.18)."""
    return abs(hankel(order, x))


def phase(order: int, x: mpf) -> mpf:
    """Return (x alpha - c) x^2 of the same, where c / x is the first term of alpha: 1/8 or -3/8."""
    return (-mp.arg(hankel(order, x)) * x - (mpf(1) / 8 if order == 0 else -mpf(3) / 8)) * x * x


ZEROS = {
    "J0": [mp.besseljzero(0, k) for k in (1, 2)],
    "J1": [mp.besseljzero(1, k) for k in (1, 2)],
    "Y0": [mp.besselyzero(0, k) for k in (1, 2, 3)],
    "Y1": [mp.besselyzero(1, k) for k in (1, 2)],
    "AIRY": [mp.airyaizero(k) for k in (1, 2)],
}


def without_zeros(function: Callable[[mpf], mpf], zeros: list[mpf]) -> Callable[[mpf], mpf]:
    """Return a function of x^2 divided by x^2 - z^2 for each of the zeros."""

    def rest(x: mpf) -> mpf:
        return function(x) / mp.fprod(x * x - z * z for z in zeros)

    return rest


def beside_logarithm(order: int, x: mpf) -> mpf:
    """Return Y - 2 / pi log(x / z) J for the first zero z, times x^order, divided by x^2 - z^2."""
    z = ZEROS[f"Y{order}"][0]
    known = 2 / mp.pi * mp.log(x / z) * mp.besselj(order, x)
    return (mp.bessely(order, x) - known) * x**order / (x * x - z * z)


def airy_parts(x: mpf) -> tuple[mpf, mpf, mpf]:
    """Return F, G and zeta: Ai(-x) sqrt(pi) x^(1/4) = F sin(zeta + pi/4) - G cos(zeta + pi/4)."""
    zeta = 2 * x ** mpf("1.5") / 3
    size = mp.sqrt(mp.pi) * x**0.25
    ai, bi = mp.airyai(-x) * size, mp.airybi(-x) * size
    sine, cosine = mp.sin(zeta + mp.pi / 4), mp.cos(zeta + mp.pi / 4)
    return ai * sine + bi * cosine, bi * sine - ai * cosine, zeta


def airy_wave(part: int) -> Callable[[mpf], mpf]:
    """Return M, or (zeta beta - 5/72) zeta^2, over t = 2 (zeta_0 / zeta)^2 - 1 for x >= 4.5.

    F = M cos(beta) and G = M sin(beta): the sine of zeta + pi/4 - beta has the zeros.
    """
    start = 2 * mpf("4.5") ** mpf("1.5") / 3

    def function(t: mpf) -> mpf:
        zeta = start / mp.sqrt((t + 1) / 2)
        f, g, zeta = airy_parts((1.5 * zeta) ** (mpf(2) / 3))
        if part:
            return (mp.atan2(g, f) * zeta - mpf(5) / 72) * zeta * zeta
        return mp.hypot(f, g)

    return function


def airy_decay(t: mpf) -> mpf:
    """Return Ai(x) exp(zeta) sqrt(pi) 2 x^(1/4) over t = 2 zeta_0 / zeta - 1 for x >= 2.5."""
    zeta = 2 * (2 * mpf("2.5") ** mpf("1.5") / 3) / (t + 1)
    x = (1.5 * zeta) ** (mpf(2) / 3)
    return mp.airyai(x) * mp.exp(zeta) * 2 * mp.sqrt(mp.pi) * x**0.25


def temme(orders: int, degree: int) -> list[list[Fraction]]:
    """Return the Taylor coefficients of c_k(eta), k < orders, of DLMF 8.12.8 to 8.12.12.

    mu mu' = eta (1 + mu) gives mu = lambda - 1 as a series in eta; c_0 = 1 / mu - 1 / eta, and
    c_k = c_{k-1}' / eta + const / mu, where the constant removes the pole.
    """
    count = degree + 2 * orders + 4
    mu = [Fraction(0), Fraction(1)]
    for n in range(2, count):
        rest = sum((mu[i] * (n + 1 - i) * mu[n + 1 - i] for i in range(2, n)), Fraction(0))
        mu.append((mu[n - 1] - rest) / (n + 1))
    inverse = [Fraction(1)]  # eta / mu
    for n in range(1, count - 1):
        inverse.append(-sum((mu[i + 1] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    c = [inverse[1:]]
    for _ in range(1, orders):
        derivative = [n * value for n, value in enumerate(c[-1])][1:]  # of c', times eta^0
        pole = -derivative[0]
        c.append(
            [derivative[n + 1] + pole * inverse[n + 1] for n in range(len(derivative) - 1)]
        )  # fmt: skip
    return [row[: max(3, degree + 1 - 2 * k)] for k, row in enumerate(c)]


def tables() -> dict[str, tuple[str, list[mpf]]]:
    """Return name -> (comment, coefficients)."""
    factorial, psi = mp.factorial, mp.digamma
    found: dict[str, tuple[str, list[mpf]]] = {
        "ERFCX_POWERS": (
            "(1 + 2x) erfcx(x), x >= 0, by t = (x - 3.75) / (x + 3.75)",
            fit(lambda t: _erfcx(mpf("3.75") * (1 + t) / (1 - t))),
        ),
        "ERFCX_SLOPE": (
            "-(1 + 2x)^2 erfcx'(x), x >= 0, by t = (x - 3.75) / (x + 3.75)",
            fit(lambda t: _erfcx_slope(mpf("3.75") * (1 + t) / (1 - t))),
        ),
        "NDTRI_MIDDLE": (
            "ndtri(0.5 + y) / y, y <= 0.25, by t = 32 y^2 - 1",
            fit(of_square(0.25, lambda y: mp.sqrt(2) * mp.erfinv(2 * y) / y)),
        ),
        "I0_SMALL": ("I0(x), x <= 8, by x^2 / 4", [1 / factorial(k) ** 2 for k in range(27)]),
        "I1_SMALL": (
            "I1(x) / x, x <= 8, by x^2 / 4",
            [1 / factorial(k) / factorial(k + 1) / 2 for k in range(27)],
        ),
        "I0_LARGE": (
            "I0(x) exp(-x) sqrt(x), x >= 8, by t = 16 / x - 1",
            fit(beyond(8, lambda x: mp.besseli(0, x) * mp.exp(-x) * mp.sqrt(x))),
        ),
        "I1_LARGE": (
            "I1(x) exp(-x) sqrt(x), x >= 8, by t = 16 / x - 1",
            fit(beyond(8, lambda x: mp.besseli(1, x) * mp.exp(-x) * mp.sqrt(x))),
        ),
        "I_DIFFERENCE": (
            "(I0(x) - I1(x)) exp(-x) sqrt(x) x, x >= 8, by t = 16 / x - 1",
            fit(beyond(8, _bessel_difference)),
        ),
        "I_DIFFERENCE_SMALL": (
            "(I0(x) - I1(x)) exp(-x), 0 <= x <= 8, by t = x / 4 - 1",
            fit(between(0, 8, lambda x: _bessel_difference(x) / (mp.sqrt(x) * x))),
        ),
        "K0_SMALL": (
            "K0(x) + log(x / 2) I0(x), x <= 2, by x^2 / 4",
            [psi(k + 1) / factorial(k) ** 2 for k in range(13)],
        ),
        "K1_SMALL": (
            "(K1(x) - 1 / x - log(x / 2) I1(x)) / x, x <= 2, by x^2 / 4",
            [-(psi(k + 1) + psi(k + 2)) / (4 * factorial(k) * factorial(k + 1)) for k in range(13)],
        ),
        "K0_LARGE": (
            "K0(x) exp(x) sqrt(x), x >= 2, by t = 4 / x - 1",
            fit(beyond(2, lambda x: mp.besselk(0, x) * mp.exp(x) * mp.sqrt(x))),
        ),
        "K1_LARGE": (
            "K1(x) exp(x) sqrt(x), x >= 2, by t = 4 / x - 1",
            fit(beyond(2, lambda x: mp.besselk(1, x) * mp.exp(x) * mp.sqrt(x))),
        ),
        "J0_SMALL": (
            "J0(x) / ((x^2 - z^2) ...) for the zeros below 8, x <= 8, by t = x^2 / 32 - 1",
            fit(of_square(8, without_zeros(mp.j0, ZEROS["J0"]))),
        ),
        "J1_SMALL": (
            "J1(x) / x / ((x^2 - z^2) ...) likewise",
            fit(of_square(8, without_zeros(lambda x: mp.j1(x) / x, ZEROS["J1"]))),
        ),
        "Y0_SMALL": (
            "(Y0(x) - 2 / pi log(x / z) J0(x)) / (x^2 - z^2), x <= 2.5, by t = x^2 / 3.125 - 1",
            fit(of_square(2.5, lambda x: beside_logarithm(0, x))),
        ),
        "Y1_SMALL": (
            "(Y1(x) - 2 / pi log(x / z) J1(x)) x / (x^2 - z^2), x <= 4, by t = x^2 / 8 - 1",
            fit(of_square(4, lambda x: beside_logarithm(1, x))),
        ),
        "Y0_SECOND": (
            "Y0(x) / (x - z), 2.5 <= x <= 5.5, by t = (x - 4) / 1.5",
            fit(between(2.5, 5.5, lambda x: mp.bessely(0, x) / (x - ZEROS["Y0"][1]))),
        ),
        "Y0_THIRD": (
            "Y0(x) / (x - z), 5.5 <= x <= 8, by t = (x - 6.75) / 1.25",
            fit(between(5.5, 8, lambda x: mp.bessely(0, x) / (x - ZEROS["Y0"][2]))),
        ),
        "Y1_SECOND": (
            "Y1(x) / (x - z), 4 <= x <= 8, by t = (x - 6) / 2",
            fit(between(4, 8, lambda x: mp.bessely(1, x) / (x - ZEROS["Y1"][1]))),
        ),
        "AIRY_NEGATIVE": (
            "Ai(x) / ((x - z) ...) for the zeros above -4.5, -4.5 <= x <= 0, by t = x / 2.25 + 1",
            fit(between(-4.5, 0, lambda x: mp.airyai(x) / mp.fprod(x - z for z in ZEROS["AIRY"]))),
        ),
        "AIRY_SMALL": (
            "Ai(x) exp(x), 0 <= x <= 2.5, by t = x / 1.25 - 1",
            fit(between(0, 2.5, lambda x: mp.airyai(x) * mp.exp(x))),
        ),
        "AIRY_LARGE": (
            "Ai(x) exp(z) sqrt(pi) 2 x^(1/4), x >= 2.5, z = 2/3 x^(3/2), by t = 2 z(2.5) / z - 1",
            fit(airy_decay),
        ),
        "AIRY_MODULUS": (
            "M: Ai(-x) sqrt(pi) x^(1/4) = M sin(z + pi/4 - beta), x >= 4.5,"
            " t = 2 (z(4.5) / z)^2 - 1",
            fit(airy_wave(0)),
        ),
        "AIRY_PHASE": ("(z beta - 5/72) z^2 of the same", fit(airy_wave(1))),
    }
    for order in (0, 1):
        found[f"MODULUS{order}"] = (
            f"M: J{order}(x) = sqrt(2 / (pi x)) M cos(x - ... - alpha), x >= 8, t = 128 / x^2 - 1",
            fit(beyond_by_square(8, lambda x, n=order: modulus(n, x))),
        )
        found[f"PHASE{order}"] = (
            f"(x alpha - {'1/8' if order == 0 else '(-3/8)'}) x^2 of the same",
            fit(beyond_by_square(8, lambda x, n=order: phase(n, x))),
        )
    for k, row in enumerate(temme(7, 17)):
        found[f"TEMME_{k}"] = (
            f"c_{k}(eta) of the incomplete gamma functions (DLMF 8.12.8), by eta",
            [mpf(c.numerator) / c.denominator for c in row],
        )
    found["LOG1P_TAIL"] = (
        "(log(1 + x) - 2s) / (2 s^3), s = x / (2 + x), by s^2",
        [mpf(1) / (2 * k + 3) for k in range(18)],
    )
    return found


def _erfcx(x: mpf) -> mpf:
    value = mp.exp(x * x) * mp.erfc(x) if x < 300 else _erfcx_tail(x)
    return (1 + 2 * x) * value


def _erfcx_tail(x: mpf) -> mpf:
    terms, term = mpf(0), mpf(1)
    for k in range(24):
        terms += term
        term *= -(2 * k + 1) / (2 * x * x)
    return terms / (x * mp.sqrt(mp.pi))


def _erfcx_slope(x: mpf) -> mpf:
    # Its two parts cancel, of 1 / x^2 of their size.
    return (1 + 2 * x) ** 2 * (2 / mp.sqrt(mp.pi) - 2 * x * _erfcx(x) / (1 + 2 * x))


def _bessel_difference(x: mpf) -> mpf:
    scale = mp.exp(-x) * mp.sqrt(x) * x
    return (mp.besseli(0, x) - mp.besseli(1, x)) * scale


_HEAD = '''"""Coefficients of the {functions}, lowest first.

Written by ``core/fit_special_functions.py``, which computes them with mpmath to 50 digits.
"""

from __future__ import annotations

# fmt: off
'''


def main() -> None:
    """Write the files; with ``--report`` print how the polynomials are conditioned."""
    found = tables()
    if "--report" in sys.argv:
        for name, (_, row) in found.items():
            size = sum(abs(c) for c in row)
            least = min(
                abs(mp.polyval(row[::-1], mpf(k) / 100)) for k in range(-100, 101, 5)
            )  # fmt: skip
            print(f"{name:16} {len(row):3} terms, sizes {mp.nstr(size, 3)}, {mp.nstr(least, 3)}")
    lines = [_HEAD.format(functions="Bessel, Airy and error functions")]
    lines += ["# Zeros, and what their float64 lacks of them", "ZEROS = {"]
    for name, zeros in ZEROS.items():
        lines.append(f'    "{name}": (')
        lines += [f"        ({float(z)!r}, {float(z - mpf(float(z)))!r})," for z in zeros]
        lines.append("    ),")
    lines.append("}\n")
    gamma = [_HEAD.format(functions="incomplete gamma functions")]
    for name, (comment, row) in found.items():
        into = gamma if name.startswith(OF_GAMMA) else lines
        into += [f"# {comment}", f"{name} = (", *(f"    {float(c)!r}," for c in row), ")\n"]
    (FOLDER / "coefficients_special.py").write_text("\n".join(lines))
    (FOLDER / "coefficients_gamma.py").write_text("\n".join(gamma))


if __name__ == "__main__":
    main()
