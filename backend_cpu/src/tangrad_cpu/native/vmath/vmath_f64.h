/* Elementary functions of float64 by exponentials and logarithms.
 *
 * A result of at most 2 ulp leaves little room for compositions: what rounding lost is carried in
 * a second number where several errors would add up (Dekker, Numer. Math. 18, 1971). */
#ifndef TGC_VMATH_F64_H
#define TGC_VMATH_F64_H

#include "vmath_bits.h"
#include "vmath_polynomials.h"

/* ln 2 in two parts; the first has 38 bits, so that its product with an exponent is exact. */
#define TGC_LOG2E_F64 0x1.71547652b82fep+0
#define TGC_LN2_HIGH_F64 0x1.62e42fefap-1
#define TGC_LN2_LOW_F64 0x1.cf79abc9e3b3ap-40

/* --- exponential ------------------------------------------------------------------------------ */

/* x + x_low - n ln 2 = result + *low, and n */
TGC_INLINE double tgc_exp_reduce_f64(double x, double x_low, double *n, double *low) {
    *n = TGC_FMA(x, TGC_LOG2E_F64, TGC_ROUND_F64) - TGC_ROUND_F64;
    double a = TGC_FMA(*n, -TGC_LN2_HIGH_F64, x), b = TGC_FMA(*n, TGC_LN2_LOW_F64, -x_low);
    double r = a - b;
    *low = (a - r) - b;
    return r;
}

/* exp(r + low) - 1 - r */
TGC_INLINE double tgc_exp_tail_f64(double r, double low) {
    return TGC_FMA(r * r, tgc_poly_exp_f64(r), TGC_FMA(r, low, low));
}

/* exp(r + low) = result + *rest */
TGC_INLINE double tgc_exp_reduced_f64(double r, double low, double *rest) {
    double sum = tgc_fast_two_sum_f64(1.0, r, rest);
    *rest += tgc_exp_tail_f64(r, low);
    return sum;
}

/* exp(x + low), |low| far below |x| */
TGC_INLINE double tgc_exp_sum_f64(double x, double low) {
    /* Beyond these bounds the result is 0 or infinite all the same; nan passes. */
    double a = x < -746.0 ? -746.0 : x, n, r, rest;
    a = a > 710.0 ? 710.0 : a;
    r = tgc_exp_reduce_f64(a, a == x ? low : 0.0, &n, &rest);
    double sum = tgc_exp_reduced_f64(r, rest, &rest);
    return tgc_scale_f64(sum + rest, n);
}

TGC_INLINE double tgc_exp_f64(double x) { return tgc_exp_sum_f64(x, 0.0); }

TGC_INLINE double tgc_exp2_f64(double x) {
    double a = x < -1080.0 ? -1080.0 : x, low, rest;
    a = a > 1025.0 ? 1025.0 : a;
    double n = (a + TGC_ROUND_F64) - TGC_ROUND_F64;
    /* (x - n) ln 2 in two parts */
    double r = tgc_two_product_f64(a - n, 0x1.62e42fefa39efp-1, &low);
    low = TGC_FMA(a - n, 0x1.abc9e3b39803fp-56, low);
    double sum = tgc_exp_reduced_f64(r, low, &rest);
    return tgc_scale_f64(sum + rest, n);
}

/* exp(x) - 1 = result + *low, for -40 <= x <= 709.7 */
TGC_INLINE double tgc_expm1_parts_f64(double x, double *low) {
    double n, rest, r = tgc_exp_reduce_f64(x, 0.0, &n, &rest);
    double tail = tgc_exp_tail_f64(r, rest), half = tgc_power_of_two_f64((n - 1.0) + TGC_ROUND_F64);
    /* (2^n - 1) + 2^n r, halved: 2^1024 is out of range. */
    double sum = tgc_fast_two_sum_f64(half - 0.5, half * r, &rest);
    *low = n == 0.0 ? tail : 2.0 * (rest + half * tail);
    return n == 0.0 ? r : 2.0 * sum;
}

TGC_INLINE double tgc_expm1_f64(double x) {
    double a = x < -40.0 ? -40.0 : x, low;
    double y = tgc_expm1_parts_f64(a > 709.7 ? 709.7 : a, &low) + low;
    /* Near the largest number 1 is nothing. */
    y = x > 709.7 ? tgc_exp_f64(x) : y;
    return x == 0.0 ? x : y;
}

/* Three roundings would come to more than 2 ulp: what rounding 1 + e lost is given back. */
TGC_INLINE double tgc_sigmoid_f64(double x) {
    double e = tgc_exp_f64(-__builtin_fabs(x)), d = 1.0 + e, y = (x >= 0.0 ? 1.0 : e) / d;
    /* 1.457 - d / 2 is 1 / d within 5 % */
    return TGC_FMA(y * ((d - 1.0) - e), TGC_FMA(-0.5, d, 1.457), y);
}

TGC_INLINE double tgc_tanh_f64(double x) {
    double a = __builtin_fabs(x), low, lost;
    double t = tgc_expm1_parts_f64(a > 22.0 ? 44.0 : 2.0 * a, &low);
    t = tgc_fast_two_sum_f64(t, low, &low);
    double d = tgc_two_sum_f64(t, 2.0, &lost), y = t / d;
    y += (low - y * (low + lost)) / d;
    y = __builtin_copysign(y, x);
    /* The exponential's argument has lost a denormal's bits by now, and nan its way. */
    return a < 0x1p-28 || x != x ? x : y;
}

TGC_INLINE double tgc_sinh_f64(double x) {
    double a = __builtin_fabs(x), low, lost, rest;
    double t = tgc_expm1_parts_f64(a > 40.0 ? 40.0 : a, &low);
    t = tgc_fast_two_sum_f64(t, low, &low);
    /* (t + t / (1 + t)) / 2 */
    double d = tgc_two_sum_f64(t, 1.0, &lost), q = t / d;
    double sum = tgc_fast_two_sum_f64(t, q, &rest);
    double y = 0.5 * (sum + (rest + (low + (low - q * (low + lost)) / d)));
    /* exp(a) / 2 without overflow before the result overflows */
    double n, r = tgc_exp_reduce_f64(a > 711.0 ? 711.0 : a, 0.0, &n, &rest);
    double e = tgc_exp_reduced_f64(r, rest, &rest);
    y = a > 40.0 ? tgc_scale_f64(e + rest, n - 1.0) : y;
    return a < 0x1p-28 || x != x ? x : __builtin_copysign(y, x);
}

TGC_INLINE double tgc_cosh_f64(double x) {
    double a = __builtin_fabs(x), n, rest;
    double r = tgc_exp_reduce_f64(a > 711.0 ? 711.0 : a, 0.0, &n, &rest);
    double e = tgc_exp_reduced_f64(r, rest, &rest);
    e = tgc_scale_f64(e + rest, n - 1.0);
    return e + 0.25 / e;
}

/* --- logarithm -------------------------------------------------------------------------------- */

/* Splits a positive finite number into m in [sqrt(1/2), sqrt(2)) and 2^k; returns m. */
TGC_INLINE double tgc_split_f64(double x, double *k) {
    double normal = x < 0x1p-1022 ? x * 0x1p54 : x, offset = x < 0x1p-1022 ? 1077.0 : 1023.0;
    /* The exponent, biased and counted from sqrt(1/2), becomes the low bits of 2^52 + exponent. */
    uint64_t shifted = tgc_bits_f64(normal) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
    *k = (tgc_float_f64(shifted >> 52 | 0x4330000000000000u) - 0x1p52) - offset;
    return tgc_float_f64((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
}

/* log(1 + f) = result + *low for 1 + f in [sqrt(1/2), sqrt(2)): with s = f / (2 + f) it is
 * f - f^2 / 2 + s (f^2 / 2 + s^2 P(s^2)). */
TGC_INLINE double tgc_log_parts_f64(double f, double *low) {
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double tail = s * TGC_FMA(z, tgc_poly_log_f64(z), half);
    double sum = f - half;
    *low = ((f - sum) - half) + tail;
    return sum;
}

/* The results of a logarithm where its argument is not positive and finite. */
TGC_INLINE double tgc_log_specials_f64(double x, double y) {
    y = x == INFINITY ? x : y;
    y = x == 0.0 ? -INFINITY : y;
    y = x < 0.0 ? NAN : y;
    return x != x ? x : y;
}

/* k ln 2 + high + low */
TGC_INLINE double tgc_log_sum_f64(double k, double high, double low) {
    double rest, sum = tgc_fast_two_sum_f64(k * TGC_LN2_HIGH_F64, high, &rest);
    return sum + (rest + TGC_FMA(k, TGC_LN2_LOW_F64, low));
}

TGC_INLINE double tgc_log_f64(double x) {
    double k, low, high = tgc_log_parts_f64(tgc_split_f64(x, &k) - 1.0, &low);
    return tgc_log_specials_f64(x, tgc_log_sum_f64(k, high, low));
}

/* log(m) times a factor in two parts, the first of 26 bits, plus k times another. */
TGC_INLINE double tgc_log_base_f64(double x, double high, double low, double k_high, double k_low) {
    double k, rest, lost, log_high = tgc_log_parts_f64(tgc_split_f64(x, &k) - 1.0, &rest);
    double cut = tgc_float_f64(tgc_bits_f64(log_high) & 0xfffffffff8000000u);
    rest += log_high - cut;
    double sum = tgc_fast_two_sum_f64(k * k_high, cut * high, &lost);
    lost += TGC_FMA(k, k_low, TGC_FMA(cut, low, rest * (high + low)));
    return tgc_log_specials_f64(x, sum + lost);
}

TGC_INLINE double tgc_log2_f64(double x) {
    return tgc_log_base_f64(x, 0x1.715476p+0, 0x1.4ae0bf85ddf44p-26, 1.0, 0.0);
}

TGC_INLINE double tgc_log10_f64(double x) {
    return tgc_log_base_f64(x, 0x1.bcb7b1p-2, 0x1.49b9438ca9aaep-28, 0x1.34413509fp-2,
                            0x1.e7fbcc47c4acdp-40);
}

/* log(1 + x + low) + extra ln 2 for finite x > -1 */
TGC_INLINE double tgc_log1p_sum_f64(double x, double low, double extra) {
    double k, u = 1.0 + x, lost;
    tgc_split_f64(u, &k);
    /* m - 1 from x itself, not from the rounded 1 + x: m = 2^-k + 2^-k x. Both factors are within
       range for every k up to 1024. */
    double scale = tgc_power_of_two_f64((2.0 - k) + TGC_ROUND_F64);
    double f = tgc_two_sum_f64(x * scale * 0.25, scale * 0.25 - 1.0, &lost);
    lost += low * scale * 0.25;
    double rest, high = tgc_log_parts_f64(f, &rest);
    /* 1 - f + f^2 is 1 / (1 + f) as closely as a correction needs. */
    rest += lost * TGC_FMA(f, f, 1.0 - f);
    return tgc_log_sum_f64(k + extra, high, rest);
}

TGC_INLINE double tgc_log1p_f64(double x) {
    double y = tgc_log_specials_f64(1.0 + x, tgc_log1p_sum_f64(x, 0.0, 0.0));
    return __builtin_fabs(x) < 0x1p-54 ? x : y;
}

TGC_INLINE double tgc_log_sigmoid_f64(double x) {
    double y = (x < 0.0 ? x : 0.0) - tgc_log1p_f64(tgc_exp_f64(-__builtin_fabs(x)));
    return x != x ? x : y;
}

/* log1p(a + a^2 / (1 + sqrt(1 + a^2))); log(2 a) where the square would overflow. */
TGC_INLINE double tgc_asinh_f64(double x) {
    double a = __builtin_fabs(x), low;
    int large = a > 0x1p60;
    double b = large ? 1.0 : a, square = b * b;
    double sum = tgc_two_sum_f64(b, square / (1.0 + __builtin_sqrt(1.0 + square)), &low);
    double y = tgc_log1p_sum_f64(large ? a : sum, large ? 0.0 : low, large ? 1.0 : 0.0);
    y = a == INFINITY ? a : y;
    return a < 0x1p-28 || x != x ? x : __builtin_copysign(y, x);
}

/* log1p(t + sqrt(2 t + t^2)), t = x - 1 */
TGC_INLINE double tgc_acosh_f64(double x) {
    double t = x - 1.0, low;
    int large = x > 0x1p60;
    double b = large ? 1.0 : t;
    double sum = tgc_two_sum_f64(b, __builtin_sqrt(b * (b + 2.0)), &low);
    double y = tgc_log1p_sum_f64(large ? x : sum, large ? 0.0 : low, large ? 1.0 : 0.0);
    y = x == INFINITY ? x : y;
    return x < 1.0 ? NAN : (x != x ? x : y);
}

/* log1p(2 a / (1 - a)) / 2 */
TGC_INLINE double tgc_atanh_f64(double x) {
    double a = __builtin_fabs(x), b = a < 1.0 ? a : 0.5;
    double d = 1.0 - b, lost = (1.0 - d) - b, q = 2.0 * b / d;
    /* Something is lost only for b < 1/2, and there 1 / d is 2.914 - 2 d within 9 %. */
    double y = 0.5 * tgc_log1p_sum_f64(q, -q * lost * TGC_FMA(-2.0, d, 2.914), 0.0);
    y = a == 1.0 ? INFINITY : y;
    y = a > 1.0 ? NAN : y;
    return a < 0x1p-28 || x != x ? x : __builtin_copysign(y, x);
}

/* --- error function --------------------------------------------------------------------------- */

/* erfc(a) for 0.74 <= a <= 27.3: exp(-a^2) P(t) / (a + 4), t = (a - 4) / (a + 4) */
TGC_INLINE double tgc_erfc_tail_f64(double a) {
    double low, n, rest, d_lost, t_lost, d = tgc_two_sum_f64(a, 4.0, &d_lost);
    double t = tgc_two_sum_f64(a, -4.0, &t_lost) / d, p_low;
    double p = tgc_poly_erfc_f64(t, &p_low), q = p / d, product = tgc_two_product_f64(q, d, &low);
    p_low += (p - product) - low;
    double square = tgc_two_product_f64(a, a, &low);
    double r = tgc_exp_reduce_f64(-square, -low, &n, &rest);
    double e = tgc_exp_reduced_f64(r, rest, &rest);
    /* What rounding a + 4 and a - 4 lost, in t as well: P'(t) / P(t) is nearly 0.82 t - 0.89. */
    p_low += ((t_lost - t * d_lost) * TGC_FMA(0.82, t, -0.89) - d_lost) * q;
    double y = tgc_two_product_f64(e, q, &low);
    return tgc_scale_f64(y + (low + TGC_FMA(rest, q, e * (p_low / d))), n);
}

TGC_INLINE double tgc_erf_f64(double x) {
    double a = __builtin_fabs(x), b = a < 0.75 ? 0.75 : a;
    double small = TGC_FMA(x, tgc_poly_erf_f64(x * x), x);
    double large = __builtin_copysign(1.0 - tgc_erfc_tail_f64(b > 6.0 ? 6.0 : b), x);
    double y = a < 0.75 ? small : large;
    return x == 0.0 || x != x ? x : y;
}

/* 1 - erf(x) near 0: 1 - x - x P(x^2), which cancels little. */
TGC_INLINE double tgc_erfc_f64(double x) {
    double a = __builtin_fabs(x), b = a < 0.75 ? 0.75 : a, low;
    double y = tgc_erfc_tail_f64(b > 27.3 ? 27.3 : b);
    y = x < 0.0 ? 2.0 - y : y;
    double sum = tgc_fast_two_sum_f64(1.0, -x, &low);
    y = a < 0.75 ? sum + (low - x * tgc_poly_erf_f64(x * x)) : y;
    return x != x ? x : y;
}

#endif
