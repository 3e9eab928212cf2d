"""Special functions written in the expression language itself, computed in float64.

A primitive that is named here has no NumPy code and no C text of its own: both follow from its
text below, evaluated in float64 and rounded to the operand's type once. Of float32 operands the
results are within 1 ulp of the exact value; what they are of float64 ones,
`core/tests/expr/test_special_functions.py` states and measures.
"""

from __future__ import annotations

from tangrad.expr import coefficients, coefficients_gamma, coefficients_special

_ROOT_HALF, _ROOT_PI = "0.7071067811865476", "1.772453850905516"


def _polynomial(table: str, t: str) -> str:
    """Write the polynomial of a table of coefficients."""
    modules = (coefficients_special, coefficients_gamma, coefficients)
    row = next(getattr(module, table) for module in modules if hasattr(module, table))
    return f"polynomial({t}, {', '.join(map(repr, row))})"


# --- modified Bessel functions --------------------------------------------------------------------
# Power series below a break, which have no cancellation, and beyond it a polynomial in 1 / x.


def _modified_first(order: int, scaled: bool) -> str:
    odd = " * a" if order else ""
    small = f"{_polynomial(f'I{order}_SMALL', 'a * a / 4')}{odd}"
    large = f"{_polynomial(f'I{order}_LARGE', '16 / maximum(x, 8) - 1')} / sqrt(x)"
    sign = " * sign(a)" if order else ""
    if scaled:
        return f"x = abs(a); where(x <= 8, exp(-x) * ({small}), {large}{sign})"
    # exp(x) overflows before the function does.
    return f"x = abs(a); half = exp(x / 2); where(x <= 8, {small}, half * ({large}) * half{sign})"


def _modified_second(order: int, scaled: bool) -> str:
    y = "x * x / 4"
    first = f"{_polynomial(f'I{order}_SMALL', y)}" + (" * x" if order else "")
    rest = _polynomial(f"K{order}_SMALL", y)
    logarithm = f"log(x / 2) * ({first})"
    small = f"{logarithm} + (1 / x + x * ({rest}))" if order else f"{rest} - {logarithm}"
    large = f"{_polynomial(f'K{order}_LARGE', '4 / maximum(x, 2) - 1')} / sqrt(x)"
    by_small, by_large = ("exp(x) * ", "") if scaled else ("", "exp(-x) * ")
    value = f"where(x <= 2, {by_small}({small}), {by_large}({large}))"
    return f"x = a; where(x > 0, {value}, where(x == 0, inf, nan))"


# --- Bessel and Airy functions --------------------------------------------------------------------
# Up to 8 (Airy's: 4.5) by a polynomial times the distances from the zeros, which are known to twice
# the digits; of Y, beside a logarithm that is zero there, too. Beyond, by modulus and phase (DLMF
# 10.18; Harrison, 2009, "Fast and accurate Bessel function computation"): the sine of what the
# phase is off a multiple of pi, to digits enough that it is right near all zeros. Multiples of pi
# are exact in parts of 28 bits, and so are products of numbers of 24 bits with those.

_PI_PARTS = (3.141592651605606, 1.9841871479187034e-09, 1.1442377452219664e-17)
_FAR = "2e7"  # up to where such a multiple is exact


def _short(x: str) -> str:
    return f"cast(cast({x}, 'float32'), 'float64')"


def _distance(x: str, zero: tuple[float, float]) -> str:
    high, low = zero
    return f"(({x} - {high!r}) - {low!r})".replace("- -", "+ ")


def _off_zeros(table: str) -> str:
    """Write the product of x^2 - z^2 over the zeros of a table."""
    zeros = coefficients_special.ZEROS[table]
    return " * ".join(f"{_distance('x', z)} * (x + {z[0]!r})" for z in zeros)


def _small_first(order: int) -> str:
    small = f"{_polynomial(f'J{order}_SMALL', 'x * x / 32 - 1')} * ({_off_zeros(f'J{order}')})"
    return f"({small})" + (" * x" if order else "")


def _off_multiple(place: str, shift: float, parts: tuple[float, ...]) -> str:
    """Write w + e, what `place` is off m times the sum of parts, m = n + shift the nearest."""
    first, second, _ = parts
    return (
        f" n = round({place} / {first + second!r} - {shift}); m = n + {shift};"
        f" u = {place} - m * {first!r}; v = m * {second!r}; w = u - v; d = w - u;"
        " e = (u - (w - d)) - (v + d);"
    )


def _wave(order: int, second: bool) -> str:
    """Write `wave` of z >= 8."""
    leading = -0.375 if order else 0.125
    shift = 0.75 if order == second else 0.25
    sign = "1 - 2 * odd" if order or second else "2 * odd - 1"
    # Of a z whose multiple of pi is not exact sine and cosine are, and the phase has one term.
    cosine, sine = ("s - c", "-(s + c)") if order else ("c + s", "s - c")
    far = f"({sine}) - q * ({cosine})" if second else f"({cosine}) + q * ({sine})"
    return (
        f"{_off_multiple('z', shift, _PI_PARTS)} odd = n - 2 * floor(n / 2);"
        f" q = {_short(f'{leading} / z')}; h = {_short('z')}; y = 128 / (z * z) - 1;"
        f" r = (({leading} - q * h) - q * (z - h)) / z;"
        f" phase = (w - q) + (e - r - {_polynomial(f'PHASE{order}', 'y')} / (z * z * z)"
        f" - m * {_PI_PARTS[2]!r}); s = sin(z); c = cos(z);"
        f" wave = {_polynomial(f'MODULUS{order}', 'y')} * sqrt(0.6366197723675814 / z)"
        f" * where(z <= {_FAR}, ({sign}) * sin(phase), ({far}) * {_ROOT_HALF});"
    )


def _bessel_first(order: int) -> str:
    sign = " * where(a < 0, -1, 1)" if order else ""
    return (
        f"x = abs(a); z = maximum(x, 8);{_wave(order, False)}"
        f" where(x <= 8, {_small_first(order)}, wave){sign}"
    )


def _bessel_second(order: int) -> str:
    first, *rest = coefficients_special.ZEROS[f"Y{order}"]
    distance = _distance("x", first)
    low, square = (4, 8) if order else (2.5, 3.125)
    logarithm = f"where(x < 0.5, log(x / {first[0]!r}), log1p({distance} / {first[0]!r}))"
    smooth = _polynomial(f"Y{order}_SMALL", f"x * x / {square} - 1")
    small = (
        f"0.6366197723675814 * {logarithm} * {_small_first(order)}"
        f" + {distance} * (x + {first[0]!r}) * {smooth}" + (" / x" if order else "")
    )
    if order:
        middle = f"{_distance('x', rest[0])} * {_polynomial('Y1_SECOND', '(x - 6) / 2')}"
    else:
        middle = (
            f"where(x <= 5.5, {_distance('x', rest[0])}"
            f" * {_polynomial('Y0_SECOND', '(x - 4) / 1.5')}, {_distance('x', rest[1])}"
            f" * {_polynomial('Y0_THIRD', '(x - 6.75) / 1.25')})"
        )
    return (
        f"x = a; z = maximum(x, 8);{_wave(order, True)}"
        f" where(x > 0, where(x <= {low}, {small}, where(x <= 8, {middle}, wave)),"
        " where(x == 0, -inf, nan))"
    )


# zeta = 2/3 t^(3/2) with more digits than its phase takes: all is multiplied by 3/2.
_THREE_HALVES_PI = (4.712388962507248, 1.787744186021456e-08, 7.267471740958733e-17)
_AIRY = (
    f"t = maximum(-a, 4.5); j = {_short('sqrt(t)')}; k = (t - j * j) / (j * j);"
    f" l = j * k * (0.5 - k * (0.125 - 0.0625 * k)); h = {_short('t')}; p = h * j;"
    " o = (t - h) * j + t * l;"
    f"{_off_multiple('p', -0.25, _THREE_HALVES_PI)} g = w + o; d = g - w;"
    " f = (w - (g - d)) + (o - d);"
    f" i = p + o; q = {_short('0.15625 / i')}; b1 = {_short('p')}; b2 = (p - b1) + o;"
    " r = ((0.15625 - q * b1) - q * b2) / i; u = 2 * i / 3;"
    " y = 2 * (6.363961030678928 / u) ** 2 - 1;"
    f" phase = ((g - q) + (e + f - r - 1.5 * {_polynomial('AIRY_PHASE', 'y')} / (u * u * u)"
    f" - m * {_THREE_HALVES_PI[2]!r})) / 1.5; s = sin(u); c = cos(u);"
    f" wave = {_polynomial('AIRY_MODULUS', 'y')} / sqrt(pi * sqrt(t))"
    f" * where(p <= {_FAR}, (1 - 2 * (n - 2 * floor(n / 2))) * sin(phase),"
    f" ((s + c) - q / 1.5 * (c - s)) * {_ROOT_HALF});"
    " x = maximum(a, 2.5); z = 2 * x * sqrt(x) / 3;"
    f" decay = exp(-z) * {_polynomial('AIRY_LARGE', '2 * 2.6352313834736494 / z - 1')}"
    f" / (2 * {_ROOT_PI} * sqrt(sqrt(x)));"
    f" middle = where(a < 0, {_polynomial('AIRY_NEGATIVE', 'a / 2.25 + 1')}"
    f" * {' * '.join(_distance('a', z) for z in coefficients_special.ZEROS['AIRY'])},"
    f" exp(-a) * {_polynomial('AIRY_SMALL', 'a / 1.25 - 1')});"
    " where(isinf(a), nan, where(a < -4.5, wave, where(a > 2.5, decay, middle)))"
)

# --- error functions ------------------------------------------------------------------------------

# The square of 24 bits is exact, so the large exponent is not rounded.
_ERFCX = (
    "x = abs(a); m = maximum(a, -30); h = cast(cast(m, 'float32'), 'float64');"
    f" p = {_polynomial('ERFCX_POWERS', '1 - 7.5 / (x + 3.75)')} / (1 + 2 * x);"
    " where(a < 0, 2 * exp(h * h) * exp((m - h) * (m + h)) - p, p)"
)

# Near 1/2 by a polynomial; in the tails by two steps of Halley's iteration on the logarithm
# of the distribution, from a rational function (Abramowitz and Stegun 26.2.23).
_STEP = (
    f"e = erfcx(-x * {_ROOT_HALF}); h = 0.7978845608028654 / e;"
    " d = (log(e / 2) - x * x / 2 - q) / h; x = x - d / (1 + d * (x + h) / 2);"
)
_NDTRI = (
    "low = minimum(a, 1 - a); q = log(low); t = sqrt(-2 * q);"
    " x = (2.515517 + t * (0.802853 + t * 0.010328))"
    f" / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t; {_STEP} {_STEP}"
    " tail = where(a < 0.5, x, -x);"
    f" y = a - 0.5; where(low > 0.25, y * {_polynomial('NDTRI_MIDDLE', '32 * y * y - 1')},"
    " where(low > 0, tail, where(a == 0, -inf, where(a == 1, inf, nan))))"
)

_LOG_NDTR = (
    f"t = a * -{_ROOT_HALF}; where(a < -1, log(erfcx(t) / 2) - a * a / 2, log1p(erfc(-t) / -2))"
)

# --- incomplete gamma functions -------------------------------------------------------------------
# Where a is large and x near it by the uniform expansion of Temme, 1979, "The asymptotic expansion
# of the incomplete gamma functions"; else by the power series of P, the continued fraction of Q
# (Legendre's, by Lentz's method) or, for small x, the series of 1 - Q that keeps the digits of Q.
# A loop that is not wanted starts where it ends.

_GAMMA_POWER = (
    "m = (b - a) / a; s = m / (2 + m); near = abs(m) < 0.5;"
    # log(1 + m) - m without cancellation
    f" series = 2 * s * s * s * {_polynomial('LOG1P_TAIL', 's * s')} - s * m;"
    " lpm = where(near, series, log(b / a) - m);"
    # x^a exp(-x) / gamma(a + 1): by Stirling's series where a is large
    f" stirling = {_polynomial('STIRLING', '1 / (a * a)')} / a;"
)
_GAMMA_PARTS = (
    f"{_GAMMA_POWER}"
    " front = where(a >= 10, exp(a * lpm - stirling) / sqrt(2 * pi * a),"
    " exp(a * log(b) - b - lgamma(a + 1)));"
    " uniform = (a >= 100) & (abs(m) < 0.3);"
    " valid = (a > 0) & (b > 0) & ~isinf(a) & ~isinf(b) & ~uniform;"
    " eta = where(m < 0, -1, 1) * sqrt(maximum(-2 * lpm, 0)); w = 1 / a;"
    " rest = exp(a * lpm) / sqrt(2 * pi * a) * polynomial(w, "
    + ", ".join(_polynomial(f"TEMME_{k}", "eta") for k in range(7))
    + ");"
)
_GAMMA_DENSITY = (
    f"{_GAMMA_POWER} where((a >= 10) & (b > 0), exp(a * lpm - stirling) * sqrt(a / (2 * pi)) / b,"
    " exp((a - 1) * log(b) - b - lgamma(a)))"
)
_P_SERIES = (
    "iterate(2000, 't > 1e-17 * s; s + t; t * b / (a + k + 2)', s=where({when}, 1, 0),"
    " t=where({when}, b / (a + 1), 0))"
)
_Q_FRACTION = (
    "iterate(2000, 'n = (k + 1) * (a - k - 1); m = b - a + 2 * k + 3; e = 1 / (n * d + m);"
    " g = m + n / c; abs(r - 1) > 1.2e-16; h * (g * e); g; e; g * e',"
    " h=1 / (b + 1 - a), c=1e300, d=1 / (b + 1 - a), r=where({when}, 2, 1))"
)
_IGAMMA = (
    f"{_GAMMA_PARTS} upper = valid & (b > 1.1) & (b >= a);"
    f" p = front * {_P_SERIES.format(when='valid & ~upper')};"
    f" q = front * a * {_Q_FRACTION.format(when='upper')};"
    f" value = where(uniform, 0.5 * erfc(-eta * sqrt(a / 2)) - rest, where(upper, 1 - q, p));"
    " where((a < 0) | (b < 0) | isnan(a) | isnan(b), nan,"
    " where(a == 0, where(b > 0, 1, nan), where(b == 0, 0,"
    " where(isinf(a), where(isinf(b), nan, 0), where(isinf(b), 1, value)))))"
)
_IGAMMAC = (
    f"{_GAMMA_PARTS} upper = valid & (b > 1.1) & (b >= a);"
    " direct = where(b > 1.1, b < a, where(b <= 0.5, -0.4 / log(b) < a, 1.1 * b < a));"
    " small = valid & ~upper & ~direct;"
    f" p = front * {_P_SERIES.format(when='valid & ~upper & direct')};"
    f" q = front * a * {_Q_FRACTION.format(when='upper')};"
    " z = minimum(a, 0.5);"
    f" gamma = where(a < 0.5, z * {_polynomial('LGAMMA_AT_2', 'z')} - log1p(z), lgamma(a + 1));"
    " power = a * log(b) - gamma;"
    " sum = iterate(200, 'abs(t) > 1e-17 * abs(s); s + t * a / (a + k + 1); -t * b / (k + 2)',"
    " s=0.0, t=where(small, -b, 0));"
    " value = where(uniform, 0.5 * erfc(eta * sqrt(a / 2)) + rest,"
    " where(upper, q, where(small, -expm1(power) - exp(power) * sum, 1 - p)));"
    " where((a < 0) | (b < 0) | isnan(a) | isnan(b), nan,"
    " where(a == 0, where(b > 0, 0, nan), where(b == 0, 1,"
    " where(isinf(a), where(isinf(b), nan, 1), where(isinf(b), 0, value)))))"
)

# --- orthogonal polynomials -----------------------------------------------------------------------
# By the recurrence over the degree, which is b truncated; of a negative degree they are 0.

_LONGEST = 100_000


def _recurrence(first: str, following: str, bound: int = _LONGEST) -> str:
    """Write a three-term recurrence from 1 and ``first``; ``p, q`` are the latest two values."""
    loop = (
        f"iterate({bound}, '(k < n) & ~(isnan(p) & (k > 1)); q; {following}',"
        f" p=1.0, q={first}, n=where(degree > {bound}, 0, degree))"
    )
    return f"where(degree >= 0, where(degree > {bound}, nan, {loop}), 0)"


def _chebyshev(first: str, wave: str) -> str:
    """Write one of the four kinds: beyond degree 6 by their trigonometric form inside (-1, 1)."""
    return (
        "degree = trunc(b); inside = (abs(a) < 1) & (degree > 6); angle = acos(a);"
        f" wave = {wave}; steps = where(inside, 0, degree); degree = steps + 0;"
        f" where(inside, wave, {_recurrence(first, '2 * a * q - p')})"
    )


COMPOSED: dict[str, str] = {
    "i0": _modified_first(0, False),
    "i0e": _modified_first(0, True),
    "i1": _modified_first(1, False),
    "i1e": _modified_first(1, True),
    "modified_bessel_k0": _modified_second(0, False),
    "modified_bessel_k1": _modified_second(1, False),
    "scaled_modified_bessel_k0": _modified_second(0, True),
    "scaled_modified_bessel_k1": _modified_second(1, True),
    "bessel_j0": _bessel_first(0),
    "bessel_j1": _bessel_first(1),
    "bessel_y0": _bessel_second(0),
    "bessel_y1": _bessel_second(1),
    "airy_ai": _AIRY,
    "erfcx": _ERFCX,
    "ndtri": _NDTRI,
    "log_ndtr": _LOG_NDTR,
    "gamma_density": _GAMMA_DENSITY,
    "igamma": _IGAMMA,
    "igammac": _IGAMMAC,
    "chebyshev_polynomial_t": _chebyshev("a", "cos(degree * angle)"),
    "chebyshev_polynomial_u": _chebyshev("2 * a", "sin((degree + 1) * angle) / sin(angle)"),
    "chebyshev_polynomial_v": _chebyshev(
        "2 * a - 1", "cos((degree + 0.5) * angle) / cos(angle / 2)"
    ),
    "chebyshev_polynomial_w": _chebyshev(
        "2 * a + 1", "sin((degree + 0.5) * angle) / sin(angle / 2)"
    ),
    "hermite_polynomial_h": "degree = trunc(b); "
    + _recurrence("2 * a", "2 * a * q - 2 * (k + 1) * p", 512),
    "hermite_polynomial_he": "degree = trunc(b); " + _recurrence("a", "a * q - (k + 1) * p", 512),
    "laguerre_polynomial_l": "degree = trunc(b); "
    + _recurrence("1 - a", "((2 * k + 3 - a) * q - (k + 1) * p) / (k + 2)"),
    "legendre_polynomial_p": "degree = trunc(b); "
    + _recurrence("a", "((2 * k + 3) * a * q - (k + 1) * p) / (k + 2)"),
}

# Derivatives whose terms cancel: by polynomials of their own, which say to the digit also what is
# differentiated further.
_DIFFERENCE = f"{_polynomial('I_DIFFERENCE', '16 / x - 1')} / (x * sqrt(x))"
_DIFFERENCE_SMALL = _polynomial("I_DIFFERENCE_SMALL", "x / 4 - 1")
_I1_SLOPE = [(2 * k + 1) * c for k, c in enumerate(coefficients_special.I1_SMALL)]
_I1_SLOPE_SMALL = f"polynomial(a * a / 4, {', '.join(map(repr, _I1_SLOPE))})"

SLOPES: dict[str, str] = {
    "i0e": f"x = abs(a); where(x > 8, -sign(a) * {_DIFFERENCE},"
    f" where(x > 1, -sign(a) * {_DIFFERENCE_SMALL}, i1e(a) - sign(a) * y))",
    "i1": f"where(abs(a) <= 8, {_I1_SLOPE_SMALL}, where(isinf(y), abs(y), i0(a) - y / a))",
    "i1e": f"x = abs(a); where(x > 8, {_DIFFERENCE} - y / a,"
    f" where(x > 1, {_DIFFERENCE_SMALL} - y / a, exp(-x) * {_I1_SLOPE_SMALL} - sign(a) * y))",
    "erfcx": f"where(a > 1, -{_polynomial('ERFCX_SLOPE', '1 - 7.5 / (a + 3.75)')}"
    " / ((1 + 2 * a) * (1 + 2 * a)), 2 * a * y - 1.1283791670955126)",
}
