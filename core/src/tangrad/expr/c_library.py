"""C text that the table of primitives calls: complex library, special functions, random bits.

The text is the part of C that C99, CUDA C and OpenCL C share, in the notation of the table
(``$T``, ``@exp``) plus ``$fn`` for the qualifiers of a function and ``$i64``, ``$u32`` and so on
for the integer types. Each function is emitted only when used.
"""

from __future__ import annotations

# Functions of a complex number, written by its parts: enough where there is no <complex.h>.
PORTABLE_COMPLEX: dict[str, str] = {
    "cexp": "{ $R e = @exp(a.re); return a.im == 0 ? tg_make_$s(e, a.im)"
    " : tg_make_$s(e * @cos(a.im), e * @sin(a.im)); }",
    "clog": "tg_make_$s(@log(@hypot(a.re, a.im)), @atan2(a.im, a.re))",
    "csqrt": """{
    /* the half-angle formulas, on the side where no digits cancel */
    $R r = @hypot(a.re, a.im), t = @sqrt((r + @fabs(a.re)) / 2);
    if (t == 0) return tg_make_$s(0, a.im);
    return a.re >= 0 ? tg_make_$s(t, a.im / (2 * t))
                     : tg_make_$s(@fabs(a.im) / (2 * t), @copysign(t, a.im));
}""",
    "csin": "tg_make_$s(@sin(a.re) * @cosh(a.im), @cos(a.re) * @sinh(a.im))",
    "ccos": "tg_make_$s(@cos(a.re) * @cosh(a.im), -@sin(a.re) * @sinh(a.im))",
    "csinh": "tg_make_$s(@sinh(a.re) * @cos(a.im), @cosh(a.re) * @sin(a.im))",
    "ccosh": "tg_make_$s(@cosh(a.re) * @cos(a.im), @sinh(a.re) * @sin(a.im))",
    "ctanh": """{
    /* tanh(x + iy) = (t s^2 + i tan y) / (1 + tan^2 y t^2), t = tanh x; saturated for large x */
    if (@fabs(a.re) > 20) return tg_make_$s(@copysign(($R)1, a.re), 0);
    $R t = @tanh(a.re), u = @tan(a.im), d = 1 + t * t * u * u;
    return tg_make_$s(t * (1 + u * u) / d, u * (1 - t * t) / d);
}""",
    "ctan": "{ $T t = tg_ctanh_$s(tg_make_$s(-a.im, a.re)); return tg_make_$s(t.im, -t.re); }",
    "casin": "{ $T t = tg_casinh_$s(tg_make_$s(-a.im, a.re)); return tg_make_$s(t.im, -t.re); }",
    "cacos": """{
    $T t = tg_casin_$s(a);
    return tg_make_$s(($R)1.57079632679489661923 - t.re, -t.im);
}""",
    "catan": "{ $T t = tg_catanh_$s(tg_make_$s(-a.im, a.re)); return tg_make_$s(t.im, -t.re); }",
    "casinh": """{
    $T r = tg_csqrt_$s(tg_make_$s(1 + (a.re - a.im) * (a.re + a.im), 2 * a.re * a.im));
    /* a + r = 1 / (r - a), of which one cancels */
    if (a.re * r.re + a.im * r.im < 0) {
        $T t = tg_clog_$s(tg_make_$s(r.re - a.re, r.im - a.im));
        return tg_make_$s(-t.re, -t.im);
    }
    return tg_clog_$s(tg_make_$s(a.re + r.re, a.im + r.im));
}""",
    "cacosh": """{
    $T p = tg_csqrt_$s(tg_make_$s(a.re + 1, a.im)), m = tg_csqrt_$s(tg_make_$s(a.re - 1, a.im));
    $T r = tg_mul_$s(p, m);
    return tg_clog_$s(tg_make_$s(a.re + r.re, a.im + r.im));
}""",
    "catanh": """{
    $R up = (1 + a.re) * (1 + a.re) + a.im * a.im, down = (1 - a.re) * (1 - a.re) + a.im * a.im;
    return tg_make_$s((@log(up) - @log(down)) / 4,
                      @atan2(2 * a.im, (1 - a.re) * (1 + a.re) - a.im * a.im) / 2);
}""",
}
# 0 ** 0 is 1 and 0 to a power with positive real part is 0.
COMPLEX_POWER = """{
    if (a.re == 0 && a.im == 0) {
        if (b.re > 0 || (b.re == 0 && b.im == 0)) return tg_make_$s(b.re > 0 ? 0 : 1, 0);
        return tg_make_$s(b.re < 0 ? ($R)TG_INF : ($R)TG_NAN, ($R)TG_NAN);
    }
    return tg_cexp_$s(tg_mul_$s(b, tg_clog_$s(a)));
}"""

# The same functions through C99's <complex.h>.
C99_COMPLEX = """{
    union { $T pair; $R _Complex number; } x, y;
    x.pair = a;
    y.number = @NAME(x.number);
    return y.pair;
}"""

FUNCTIONS: dict[str, str] = {
    "tg_load_float16": """$fn float tg_load_float16($u16 bits) {
    /* a subnormal half is an integer times 2 ** -24 */
    $u32 sign = ($u32)(bits >> 15) << 31, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    union { $u32 bits; float value; } u;
    if (exponent == 0) { u.value = (float)fraction * 5.9604644775390625e-8f; u.bits |= sign; }
    else u.bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    return u.value;
}""",
    "tg_store_float16": """$fn $u16 tg_store_float16(float value) {
    union { float value; $u32 bits; } u, magic;
    u.value = value;
    $u32 sign = (u.bits >> 16) & 0x8000u, size = u.bits & 0x7fffffffu;
    if (size > 0x7f800000u) return ($u16)(sign | 0x7e00u);
    if (size >= 0x477ff000u) return ($u16)(sign | 0x7c00u);
    if (size < 0x38800000u) {
        /* adding 0.5 moves the subnormal's last bit to the float's last bit, and rounds */
        u.bits = size;
        magic.value = u.value + 0.5f;
        return ($u16)(sign | (magic.bits - 0x3f000000u));
    }
    return ($u16)(sign | ((size + 0xfffu + ((size >> 13) & 1) - 0x38000000u) >> 13));
}""",
    "tg_load_bfloat16": """$fn float tg_load_bfloat16($u16 bits) {
    union { $u32 bits; float value; } u;
    u.bits = ($u32)bits << 16;
    return u.value;
}""",
    "tg_store_bfloat16": """$fn $u16 tg_store_bfloat16(float value) {
    union { float value; $u32 bits; } u;
    u.value = value;
    if (value != value) return 0x7fc0;
    return ($u16)((u.bits + 0x7fffu + ((u.bits >> 16) & 1)) >> 16);
}""",
    "tg_philox_uniform": """$fn float tg_philox_uniform($i64 seed, $i64 offset, $i64 index) {
    $u64 counter = ($u64)offset + (($u64)index >> 2);
    $u32 k0 = ($u32)seed, k1 = ($u32)(($u64)seed >> 32), x[4];
    int round;
    x[0] = ($u32)counter; x[1] = ($u32)(counter >> 32); x[2] = 0; x[3] = 0;
    for (round = 0; round < 10; ++round) {
        $u64 p0 = ($u64)x[0] * 0xD2511F53u, p1 = ($u64)x[2] * 0xCD9E8D57u;
        x[0] = ($u32)(p1 >> 32) ^ x[1] ^ k0; x[1] = ($u32)p1;
        x[2] = ($u32)(p0 >> 32) ^ x[3] ^ k1; x[3] = ($u32)p0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    return (float)(x[index & 3] >> 8) * 5.9604644775390625e-8f;
}""",
}
