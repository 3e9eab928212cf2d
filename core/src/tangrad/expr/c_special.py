"""C text of the special functions that C99 lacks, in double; the methods of ``gamma.py``."""

from __future__ import annotations

from tangrad.expr.coefficients import DIGAMMA, DIGAMMA_ROOT, DIGAMMA_TAIL, ZETA_TAIL

_PI, _TWO_OVER_ROOT_PI = "3.14159265358979323846", "1.12837916709551257390"


def _clenshaw(coefficients: tuple[float, ...]) -> str:
    """Return statements that leave the Chebyshev series at ``t`` in ``b0``."""
    lines = ["double b0 = 0, b1 = 0, b2 = 0;"]
    for coefficient in coefficients[:0:-1]:
        lines.append(f"b0 = 2 * t * b1 - b2 + ({coefficient!r}); b2 = b1; b1 = b0;")
    lines.append(f"b0 = t * b1 - b2 + ({coefficients[0]!r});")
    return "\n    ".join(lines)


def _horner(coefficients: tuple[float, ...], x: str) -> str:
    """Return the polynomial, lowest coefficient first, as an expression."""
    text = repr(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        text = f"({text}) * {x} + ({coefficient!r})"
    return text


def _zeta_tail() -> str:
    """Return the statements that add Euler and Maclaurin's corrections to ``tail``."""
    return "\n    ".join(
        f"tail += {coefficient!r} * factor;"
        f" factor = factor * (s + {2 * k + 1}) / x * (s + {2 * k + 2}) / x;"
        for k, coefficient in enumerate(ZETA_TAIL)
    )


SPECIAL: dict[str, str] = {
    "tg_erfinv": f"""$fn double tg_erfinv(double y) {{
    double size = @fabs(y), t, half, x, error, step;
    int k;
    if (!(size < 1)) return size == 1 ? y * TG_INF : (double)TG_NAN;
    if (size == 0) return y;
    t = @log((1 - size) * (1 + size));
    half = 2 / ({_PI} * 0.147) + t / 2;
    x = @sqrt(@sqrt(half * half - t / 0.147) - half);
    for (k = 0; k < 3; ++k) {{
        error = size < 0.5 ? @erf(x) - size : (1 - size) - @erfc(x);
        step = error / ({_TWO_OVER_ROOT_PI} * @exp(-x * x));
        x -= step / (1 + x * step);
    }}
    return @copysign(x, y);
}}""",
    "tg_digamma": f"""$fn double tg_digamma(double a) {{
    double x = a < 0 ? 1 - a : a, total = 0, t, z;
    if (a == 0) return @copysign((double)TG_INF, -a);
    if (a < 0 && a == @floor(a)) return (double)TG_NAN;
    if (a < 0) total = -{_PI} / @tan({_PI} * (a - @rint(a)));
    if (x >= 10) {{
        z = 1 / (x * x);
        return total + (@log(x) - (0.5 / x + z * ({_horner(DIGAMMA_TAIL, "z")})));
    }}
    if (x < 1) {{ total -= 1 / x; x += 1; }}
    z = 0;
    while (x > 2) {{ x -= 1; z += 1 / x; }}
    t = 2 * x - 3;
    {_clenshaw(DIGAMMA)}
    return total + (z + ((x - {DIGAMMA_ROOT[0]!r}) - {DIGAMMA_ROOT[1]!r}) * b0);
}}""",
    "tg_zeta": f"""$fn double tg_zeta_sum(double s, double q) {{
    double far = 10 + (s < 100 ? s : 100), x = q, power = @pow(q, -s), total = 0, tail, factor;
    int k;
    for (k = 1; k <= 10 || x < far; ++k) {{
        total += power;
        x = q + k;
        /* what rounding q + k lost is s times larger in the power */
        power = @pow(x, -s) * (1 - s * (q - (x - k)) / x);
    }}
    if (total == (double)TG_INF) return total;
    /* of a huge number the power underflows before the tail does */
    tail = (power < 1e-300 ? @pow(x, 1 - s) : x * power) / (s - 1) + power / 2;
    factor = s * power / x;
    {_zeta_tail()}
    return total + tail;
}}
$fn double tg_zeta(double s, double q) {{
    double power, total, count;
    if (s != s || q != q || s < 1) return (double)TG_NAN;
    if (s == 1 || (q <= 0 && q == @floor(q))) return (double)TG_INF;
    if (q < 0 && s != @floor(s)) return (double)TG_NAN;
    if (q == (double)TG_INF) return 0;
    if (s == (double)TG_INF) return q < 0 ? (double)TG_NAN : q < 1 ? (double)TG_INF : q == 1;
    if (q > 0) return tg_zeta_sum(s, q);
    /* the terms below 0 are a difference of two sums */
    count = -@floor(q);
    total = tg_zeta_sum(s, q + count);
    if (total == (double)TG_INF) return total;
    /* in this order, because the first two may nearly cancel */
    power = @fmod(s, 2.0) == 0 ? 1 : -1;
    return (total + power * tg_zeta_sum(s, -q - (count - 1))) - power * tg_zeta_sum(s, 1 - q);
}}""",
    "tg_polygamma": f"""$fn double tg_polygamma(double n, double a) {{
    double factorial = 1, k, t;
    if (!(n >= 0) || n != @floor(n)) return (double)TG_NAN;
    if (n == 0) return tg_digamma(a);
    if (n == 1 && a < 0) {{
        t = {_PI} / @sin({_PI} * (a - @rint(a)));
        return t * t - tg_zeta(2, 1 - a);
    }}
    for (k = 2; k <= n && k <= 171; ++k) factorial *= k;
    return (@fmod(n, 2.0) == 0 ? -factorial : factorial) * tg_zeta(n + 1, a);
}}""",
}
