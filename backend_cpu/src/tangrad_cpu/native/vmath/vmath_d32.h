/* Elementary functions of float32 by way of float64.
 *
 * Half of the lanes, but no argument needs two numbers and no polynomial more than a few terms, and
 * the results are right within little more than half an ulp: compositions in float32 would have to
 * carry what rounding lost. The errors before the last rounding are below 2^-28. */
#ifndef TGC_VMATH_D32_H
#define TGC_VMATH_D32_H

#include "vmath_f64.h"

/* exp(x) for |x| <= 1000: results out of range of float32 become 0 or infinite when rounded. */
TGC_INLINE double tgc_exp_d32(double x) {
    double rounded = TGC_FMA(x, TGC_LOG2E_F64, TGC_ROUND_F64), n = rounded - TGC_ROUND_F64;
    double r = TGC_FMA(n, -0x1.62e42fefa39efp-1, x);
    double p = TGC_FMA(r * r, tgc_poly_exp_d32(r), r) + 1.0;
    return p * tgc_power_of_two_f64(rounded);
}

/* Where |x| is larger, exp(x) and its square root are out of range of float32. */
TGC_INLINE double tgc_bounded_d32(double x) {
    double a = x < -400.0 ? -400.0 : x;
    return a > 400.0 ? 400.0 : a;
}

/* log(x) for positive finite x that float64 has as normal numbers */
TGC_INLINE double tgc_log_d32(double x) {
    double k, m = tgc_split_f64(x, &k), s = (m - 1.0) / (m + 1.0), z = s * s;
    return TGC_FMA(k, 0x1.62e42fefa39efp-1, s * TGC_FMA(z, tgc_poly_log_d32(z), 2.0));
}

/* The functions that are odd take the sign of their argument; nan passes. */
TGC_INLINE float tgc_odd_d32(float x, double y) {
    return x != x ? x : __builtin_copysignf((float)y, x);
}

TGC_INLINE float tgc_sinh_f32(float x) {
    double a = __builtin_fabsf(x), z = a * a, e = tgc_exp_d32(tgc_bounded_d32(a));
    double small = TGC_FMA(a * z, tgc_poly_sinh_d32(z), a);
    return tgc_odd_d32(x, a < 1.0 ? small : 0.5 * (e - 1.0 / e));
}

TGC_INLINE float tgc_cosh_f32(float x) {
    double e = tgc_exp_d32(tgc_bounded_d32(__builtin_fabsf(x)));
    return (float)(0.5 * (e + 1.0 / e));
}

/* log1p(y) for y that is exact in float64 or carries an error of 2^-50: 1 + y keeps 29 bits of
 * the smallest y that is not its own logarithm. */
TGC_INLINE double tgc_log1p_d32(double y) {
    double u = 1.0 + y, lost = y - (u - 1.0);
    return tgc_log_d32(u) + (y < 0x1p20 ? lost : 0.0);
}

TGC_INLINE float tgc_asinh_f32(float x) {
    double a = __builtin_fabsf(x), z = a * a;
    double y = tgc_log1p_d32(a + z / (1.0 + __builtin_sqrt(1.0 + z)));
    return a == INFINITY ? x : tgc_odd_d32(x, y);
}

TGC_INLINE float tgc_acosh_f32(float x) {
    double t = (double)x - 1.0, y = tgc_log1p_d32(t + __builtin_sqrt(t * (t + 2.0)));
    float r = x == INFINITY ? x : (float)y;
    return x < 1.0f ? NAN : (x != x ? x : r);
}

TGC_INLINE float tgc_atanh_f32(float x) {
    double a = __builtin_fabsf(x);
    float y = (float)(0.5 * tgc_log1p_d32(2.0 * a / (1.0 - a)));
    y = a == 1.0 ? INFINITY : y;
    return tgc_odd_d32(x, a > 1.0 ? NAN : y);
}

/* Below 1 from y = 1 + |x|: lgamma(1 + x) - log(x) between 0 and 1, and by reflection where x is
 * negative, -lgamma(1 - x) - log(|sin(pi x)| / pi), which is infinite at integers. Near the zeros of
 * the latter, below -2, the error is 2^-28 of what cancels. */
TGC_INLINE float tgc_lgamma_f32(float x) {
    double d = x, a = __builtin_fabs(d), y = d < 1.0 ? 1.0 + a : a, u = 1.0 / y;
    double near = (y - 1.0) * (y - 2.0) * tgc_poly_lgamma_d32(y - 2.0);
    double far = TGC_FMA(y - 0.5, tgc_log_d32(y), 0x1.d67f1c864beb5p-1 - y);
    far = TGC_FMA(u, tgc_poly_stirling_d32(u * u), far);
    /* From 2^23 on all numbers are integers. */
    double b = a < 0x1p23 ? a : 0.0, r = b - ((b + TGC_ROUND_F64) - TGC_ROUND_F64);
    double sine = __builtin_fabs(r) * tgc_poly_sin_pi_d32(r * r), w = a > 1.0 ? 1.0 : a;
    w = d < 0.0 ? sine : w;
    double l = __builtin_copysign(1.0, d) * (y < 3.0 ? near : far);
    /* The zeros at 1 and 2 are positive. */
    float z = (float)(l - tgc_log_d32(w)) + 0.0f;
    z = w == 0.0 ? INFINITY : z;
    z = a == INFINITY ? INFINITY : z;
    return x != x ? x : z;
}

/* exp(y log(|x|)): an exponent of 88 times an error of 2^-33 would be 2^-27, so the logarithm is
 * the long one. The special cases are those of C99's annex F. */
TGC_INLINE float tgc_pow_f32(float x, float y) {
    double a = __builtin_fabsf(x), k, low, high = tgc_log_parts_f64(tgc_split_f64(a, &k) - 1.0, &low);
    double l = TGC_FMA(k, 0x1.62e42fefa39efp-1, high + low);
    float b = __builtin_fabsf(y), r = (float)tgc_exp_d32(tgc_bounded_d32(l * y));
    r = a == 0.0 || a == INFINITY ? ((a == 0.0) == (y < 0.0f) ? INFINITY : 0.0f) : r;
    /* Below 2^23 adding 2^23 rounds to an integer; from 2^24 on all are even. */
    float shifted = b + 0x1p23f;
    int whole = b >= 0x1p23f || shifted - 0x1p23f == b;
    uint32_t bits = b < 0x1p23f ? tgc_bits_f32(shifted) : tgc_bits_f32(b);
    int odd = whole && b < 0x1p24f && (bits & 1) != 0;
    r = x < 0.0f && a != INFINITY && !whole ? NAN : r;
    r = tgc_bits_f32(x) >> 31 != 0 && odd ? -r : r;
    r = x != x || y != y ? x + y : r;
    r = a == 1.0 && b == INFINITY ? 1.0f : r;
    return x == 1.0f || y == 0.0f ? 1.0f : r;
}

TGC_INLINE float tgc_hypot_f32(float x, float y) {
    double a = x, b = y;
    float r = (float)__builtin_sqrt(TGC_FMA(a, a, b * b));
    return __builtin_fabsf(x) == INFINITY || __builtin_fabsf(y) == INFINITY ? INFINITY : r;
}

#endif
