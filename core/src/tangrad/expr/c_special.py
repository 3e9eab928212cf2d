"""C text of the special functions that C99 lacks, in double; the methods of ``gamma.py``."""

from __future__ import annotations

from tangrad.expr.coefficients import DIGAMMA, DIGAMMA_ROOT, DIGAMMA_TAIL, TRIGAMMA_TAIL, ZETA_TAIL

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
    "tg_zeta": f"""$fn double tg_zeta_sum(double s, double q, double unit) {{
    /* the sum of ((q + k) / unit) ** -s; exact units are powers of two */
    double far = 10 + s, x = q, power = @pow(q / unit, -s), total = 0, before;
    double lost = 0, tail, factor;
    int k;
    for (k = 1; x < far; ++k) {{
        before = total;
        total += power;
        if (total == (double)TG_INF) return total;
        lost += power - (total - before);
        /* the rest is less than 12 times its first term */
        if (s >= 2 && power <= 1e-18 * total) return total + lost;
        x = q + k;
        /* what rounding q + k lost is s times larger in the power */
        power = @pow(x / unit, -s) * (1 - s * (q - (x - k)) / x);
    }}
    /* of a huge number the power underflows before the tail does */
    tail = (power < 1e-300 ? unit * @pow(x / unit, 1 - s) : x * power) / (s - 1) + power / 2;
    factor = s * power / x;
    {_zeta_tail()}
    return total + (tail + lost);
}}
$fn double tg_zeta(double s, double q) {{
    double power, total, count;
    if (s != s || q != q || s < 1) return (double)TG_NAN;
    if (s == 1 || (q <= 0 && q == @floor(q))) return (double)TG_INF;
    if (q < 0 && s != @floor(s)) return (double)TG_NAN;
    if (q == (double)TG_INF) return 0;
    if (s == (double)TG_INF) return q < 0 ? (double)TG_NAN : q < 1 ? (double)TG_INF : q == 1;
    if (q > 0) return tg_zeta_sum(s, q, 1);
    /* the terms below 0 are a difference of two sums */
    count = -@floor(q);
    total = tg_zeta_sum(s, q + count, 1);
    if (total == (double)TG_INF) return total;
    /* in this order, because the first two may nearly cancel */
    power = @fmod(s, 2.0) == 0 ? 1 : -1;
    return (total + power * tg_zeta_sum(s, -q - (count - 1), 1)) -
           power * tg_zeta_sum(s, 1 - q, 1);
}}""",
    "tg_polygamma": f"""$fn double tg_trigamma_above(double q) {{
    double x = q, total, z;
    int k = 0;
    while (x < 10) x = q + ++k;
    z = 1 / (x * x);
    total = 1 / x + z * (0.5 + ({_horner(TRIGAMMA_TAIL, "z")}) / x);
    for (--k; k >= 0; --k) total += 1 / ((q + k) * (q + k));
    return total;
}}
$fn double tg_polygamma_above(double n, double q) {{
    double unit = 1, factor = 1, half = @floor(n / 2), k;
    if (n == 1) return tg_trigamma_above(q);
    if (n > 170) return @exp(@lgamma(n + 1) - (n + 1) * @log(q)) * tg_zeta_sum(n + 1, q, q);
    for (k = 2; k <= n; ++k) factor *= k;
    /* neither the power nor its product with the factorial may leave the range before the other */
    while (q >= 2 * unit) unit *= 2;
    factor *= @pow(unit, -half);
    return factor * tg_zeta_sum(n + 1, q, unit) * @pow(unit, half - n - 1);
}}
$fn double tg_polygamma(double n, double a) {{
    double sign = @fmod(n, 2.0) == 0 ? -1 : 1, total, other = 0, count, r, k, t;
    if (!(n >= 0 && n < (double)TG_INF) || n != @floor(n) || a != a) return (double)TG_NAN;
    if (n == 0) return tg_digamma(a);
    if (n == 1 && a < 0) {{
        t = {_PI} / @sin({_PI} * (a - @rint(a)));
        return t * t - tg_trigamma_above(1 - a);
    }}
    if (a == (double)TG_INF || (a <= 0 && a == @floor(a))) return sign * tg_zeta(n + 1, a);
    if (a > 0) return sign * tg_polygamma_above(n, a);
    count = -@floor(a);
    total = tg_polygamma_above(n, a + count);
    r = -a - (count - 1);
    if (n <= 20 && count <= 20) {{
        for (k = 0; k < count; ++k) other += @pow(r + k, -n - 1);
        for (k = 2; k <= n; ++k) other *= k;
        return sign * total + other;
    }}
    /* the terms below 0 are a difference of two sums */
    other = sign * tg_polygamma_above(n, r);
    if (total == (double)TG_INF || @fabs(other) == (double)TG_INF)
        return sign * (a + count <= 0.5 ? total : other);
    /* in this order, because the first two may nearly cancel */
    return sign * ((total + other) - sign * tg_polygamma_above(n, 1 - a));
}}""",
}
