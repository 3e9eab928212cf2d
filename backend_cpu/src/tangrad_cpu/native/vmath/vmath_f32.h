/* Elementary functions of float32 in float32: those that models spend their time in.
 *
 * Argument reduction follows Cody and Waite, Software Manual for the Elementary Functions, 1980;
 * the polynomials are minimax, from render/minimax.py. The errors, measured over all float32, are
 * in docs/cpu.md. */
#ifndef TGC_VMATH_F32_H
#define TGC_VMATH_F32_H

#include <float.h>

#include "vmath_bits.h"
#include "vmath_polynomials.h"

/* ln 2 in two parts; the first has 16 bits, so that its product with an exponent is exact. */
#define TGC_LOG2E_F32 0x1.715476p+0f
#define TGC_LN2_HIGH_F32 0x1.62e4p-1f
#define TGC_LN2_LOW_F32 0x1.7f7d1cp-20f

/* exp(r) for |r| <= ln(2) / 2 */
TGC_INLINE float tgc_exp_reduced_f32(float r) {
    return TGC_FMAF(r, TGC_FMAF(r, tgc_poly_exp_f32(r), 1.0f), 1.0f);
}

/* x - n ln 2, where rounded = n + TGC_ROUND_F32 + bias, for x within the bounds of what does not
 * overflow twice */
TGC_INLINE float tgc_exp_reduce_f32(float x, float bias, float *rounded) {
    *rounded = TGC_FMAF(x, TGC_LOG2E_F32, TGC_ROUND_F32 + bias);
    float n = *rounded - (TGC_ROUND_F32 + bias);
    return TGC_FMAF(n, -TGC_LN2_LOW_F32, TGC_FMAF(n, -TGC_LN2_HIGH_F32, x));
}

/* The same where n is so small that what one constant lacks of n ln 2 is lost in the result. */
TGC_INLINE float tgc_exp_reduce_short_f32(float x, float bias, float *rounded) {
#if TGC_HAS_FMA
    *rounded = TGC_FMAF(x, TGC_LOG2E_F32, TGC_ROUND_F32 + bias);
    return TGC_FMAF(*rounded - (TGC_ROUND_F32 + bias), -0x1.62e43p-1f, x);
#else
    return tgc_exp_reduce_f32(x, bias, rounded);
#endif
}

TGC_INLINE float tgc_exp_f32(float x) {
    /* Beyond these bounds the result is 0 or infinite all the same; nan passes. */
    float a = tgc_at_least_f32(x, TGC_LIMITS_F32.exp_low), rounded;
    a = tgc_at_most_f32(a, TGC_LIMITS_F32.exp_high);
    float r = tgc_exp_reduce_f32(a, TGC_SCALE_BIAS_F32, &rounded);
    return tgc_scale_f32(tgc_exp_reduced_f32(r), rounded);
}

TGC_INLINE float tgc_exp2_f32(float x) {
    float a = tgc_at_least_f32(x, TGC_LIMITS_F32.exp2_low);
    a = tgc_at_most_f32(a, TGC_LIMITS_F32.exp2_high);
    float rounded = a + (TGC_ROUND_F32 + TGC_SCALE_BIAS_F32);
    float n = rounded - (TGC_ROUND_F32 + TGC_SCALE_BIAS_F32);
    return tgc_scale_f32(tgc_exp_reduced_f32((a - n) * 0x1.62e43p-1f), rounded);
}

TGC_INLINE float tgc_expm1_f32(float x) {
    float a = tgc_at_least_f32(x, TGC_LIMITS_F32.expm1_low), rounded;
    a = tgc_at_most_f32(a, TGC_LIMITS_F32.exp_high);
    float r = tgc_exp_reduce_f32(a, 0.0f, &rounded);
    float n = rounded - TGC_ROUND_F32;
    float q = TGC_FMAF(r * r, tgc_poly_expm1_f32(r), r);
    /* 2^n - 1 + 2^n q, halved: 2^128 is out of range. */
    float half = tgc_power_of_two_f32((n - 1.0f) + TGC_ROUND_F32);
    float y = 2.0f * TGC_FMAF(q, half, half - 0.5f);
    y = n == 0.0f ? q : y;
    return x == 0.0f ? x : y;
}

/* Splits a positive finite number into m in [sqrt(1/2), sqrt(2)) and 2^k; returns m - 1. */
TGC_INLINE float tgc_split_f32(float x, float *k) {
    float normal = x < 0x1p-126f ? x * 0x1p24f : x;
    uint32_t root = x < 0x1p-126f ? 0x3f3504f3u + (24u << 23) : 0x3f3504f3u;
    uint32_t shifted = tgc_bits_f32(normal) - root;
    *k = (float)((int32_t)shifted >> 23);
    return tgc_float_f32((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
}

/* The results of a logarithm where its argument is not positive and finite. */
TGC_INLINE float tgc_log_specials_f32(float x, float y) {
    float special = x < 0.0f ? NAN : x;
    special = x == 0.0f ? -INFINITY : special;
    return (x > 0.0f) & (x <= FLT_MAX) ? y : special;
}

/* k ln 2 + log(1 + f), less k times the first part of ln 2 */
TGC_INLINE float tgc_log_small_f32(float k, float f) {
    float tail = TGC_FMAF(f, tgc_poly_log_f32(f), -0.5f);
    return TGC_FMAF(f * f, tail, TGC_FMAF(k, TGC_LN2_LOW_F32, f));
}

TGC_INLINE float tgc_log_reduced_f32(float k, float f) {
    return TGC_FMAF(k, TGC_LN2_HIGH_F32, tgc_log_small_f32(k, f));
}

TGC_INLINE float tgc_log_f32(float x) {
    float k, f = tgc_split_f32(x, &k);
    return tgc_log_specials_f32(x, tgc_log_reduced_f32(k, f));
}

TGC_INLINE float tgc_log1p_f32(float x) {
    float k, u = 1.0f + x;
    tgc_split_f32(u, &k);
    /* m - 1 from x itself, not from the rounded 1 + x: m = 2^-k + 2^-k x. Both factors are within
       range for every k up to 128. */
    float scale = tgc_power_of_two_f32((2.0f - k) + TGC_ROUND_F32);
    float f = x * scale * 0.25f + (scale * 0.25f - 1.0f);
    float y = tgc_log_specials_f32(u, tgc_log_reduced_f32(k, f));
    return x == 0.0f ? x : y;
}

/* log2 and log10: log(m) in two parts times the conversion factor in two parts, for where m is
   near 1 there is nothing else. */
TGC_INLINE float tgc_log_base_f32(float x, float high, float low, float k_high, float k_low) {
    float k, f = tgc_split_f32(x, &k), z = f * f;
    float tail = TGC_FMAF(-0.5f, z, z * f * tgc_poly_log_f32(f));
    /* f rounded to 12 bits has an exact product with the 12 bits of high. */
    float f_high = tgc_float_f32(tgc_bits_f32(f) & 0xfffff000u), f_low = f - f_high;
    float sum = TGC_FMAF(k, k_low, TGC_FMAF(f + tail, low, (f_low + tail) * high));
    float y = TGC_FMAF(k, k_high, f_high * high);
    float rest = (k * k_high - y) + f_high * high;
    return tgc_log_specials_f32(x, y + (rest + sum));
}

TGC_INLINE float tgc_log2_f32(float x) {
    return tgc_log_base_f32(x, 0x1.714p+0f, 0x1.47652cp-12f, 1.0f, 0.0f);
}

TGC_INLINE float tgc_log10_f32(float x) {
    return tgc_log_base_f32(x, 0x1.bcap-2f, 0x1.7b1526p-14f, 0x1.344p-2f, 0x1.3509f8p-18f);
}

/* 1 / (1 + exp(-x)), both halved 24 times so that exp(104) is within range and a denormal result
 * is rounded once, by the division. With exp(-x) = 2^n (1 + w) the sum is 2^n w + (2^n + 1), where
 * the parenthesis is exact; for large n it is (2^n w + 1) + 2^n. */
TGC_INLINE float tgc_sigmoid_f32(float x) {
    float a = tgc_at_least_f32(x, TGC_LIMITS_F32.exp_low), rounded;
    a = -tgc_at_most_f32(a, TGC_LIMITS_F32.sigmoid_high);
    float r = tgc_exp_reduce_f32(a, 127.0f - 24.0f, &rounded);
    float w = TGC_FMAF(r * r, tgc_poly_exp_f32(r), r);
    float power = tgc_float_f32(tgc_bits_f32(rounded) << 23);
    float sum = TGC_FMAF(power, w, power < 0x1p-12f ? power + 0x1p-24f : 0x1p-24f);
    return 0x1p-24f / (power < 0x1p-12f ? sum : sum + power);
}

/* -log(1 + exp(-x)), in the form that keeps what is small. */
TGC_INLINE float tgc_log_sigmoid_f32(float x) {
    float e = tgc_exp_f32(-__builtin_fabsf(x));
    float y = (x < 0.0f ? x : 0.0f) - tgc_log1p_f32(e);
    return x != x ? x : y;
}

/* 1 - 2 / (exp(2 a) + 1) with the sign of x, but for small numbers, where that cancels */
TGC_INLINE float tgc_tanh_f32(float x) {
    /* Rounds to 1 from 9.01 on. */
    float a = tgc_at_most_f32(__builtin_fabsf(x), TGC_LIMITS_F32.tanh_high), rounded;
    float z = a * a, small = TGC_FMAF(a * z, tgc_poly_tanh_f32(z), a);
    float r = tgc_exp_reduce_short_f32(2.0f * a, 127.0f, &rounded);
    float w = TGC_FMAF(r * r, tgc_poly_exp_f32(r), r);
    float power = tgc_float_f32(tgc_bits_f32(rounded) << 23);
    float large = 1.0f - 2.0f / TGC_FMAF(power, w, power + 1.0f);
    return __builtin_copysignf(a < 0.625f ? small : large, x);
}

/* pi / 2 in two parts */
#define TGC_HALF_PI_HIGH_F32 0x1.921fb6p+0f
#define TGC_HALF_PI_LOW_F32 -0x1.777a5cp-25f

/* Beyond 1 the angle is what the reciprocal's lacks of a quarter of a circle. */
TGC_INLINE float tgc_atan_f32(float x) {
    float a = __builtin_fabsf(x);
    float t = (a > 1.0f ? 1.0f : a) / (a > 1.0f ? a : 1.0f), z = t * t;
    float y = TGC_FMAF(t * z, tgc_poly_atan_f32(z), t);
    float rest = TGC_HALF_PI_HIGH_F32 - (y - TGC_HALF_PI_LOW_F32);
    return __builtin_copysignf(a > 1.0f ? rest : y, x);
}

/* The angle of (|x|, |y|) or (|y|, |x|), whichever is the smaller, then back in quarters of a circle. */
TGC_INLINE float tgc_atan2_f32(float y, float x) {
    float a = __builtin_fabsf(y), b = __builtin_fabsf(x), high = a > b ? a : b, low = a > b ? b : a;
    /* Infinite numbers have no quotient, nor have zeros. */
    float q = low / (high == 0.0f ? 1.0f : high), z, v, turns, sign;
    q = low == INFINITY ? 1.0f : q;
    z = q * q;
    v = TGC_FMAF(q * z, tgc_poly_atan_f32(z), q);
    float left = __builtin_copysignf(1.0f, x);
    turns = a > b ? 1.0f : 1.0f - left;
    sign = a > b ? -left : left;
    v = TGC_FMAF(turns, TGC_HALF_PI_HIGH_F32, TGC_FMAF(turns, TGC_HALF_PI_LOW_F32, sign * v));
    return x != x || y != y ? x + y : __builtin_copysignf(v, y);
}

/* Beyond 1/2 by the half angle: asin(a) = pi / 2 - 2 asin(s), s = sqrt((1 - a) / 2). */
TGC_INLINE float tgc_asin_f32(float x) {
    float a = __builtin_fabsf(x), half = 0.5f - 0.5f * a, z = a > 0.5f ? half : a * a;
    float root = __builtin_sqrtf(half), s = a > 0.5f ? root : a;
    float y = TGC_FMAF(s * z, tgc_poly_asin_f32(z), s);
    float rest = (TGC_HALF_PI_HIGH_F32 - 2.0f * y) + TGC_HALF_PI_LOW_F32;
    return __builtin_copysignf(a > 0.5f ? rest : y, x);
}

/* pi / 2 - asin(x), or from 1/2 on 2 asin(s), or from -1/2 on pi - 2 asin(s) */
TGC_INLINE float tgc_acos_f32(float x) {
    float a = __builtin_fabsf(x), half = 0.5f - 0.5f * a, z = a > 0.5f ? half : a * a;
    float root = __builtin_sqrtf(half), s = a > 0.5f ? root : a;
    float y = __builtin_copysignf(TGC_FMAF(s * z, tgc_poly_asin_f32(z), s), x);
    float turn = x < 0.0f ? 2.0f : 0.0f, factor = a > 0.5f ? 2.0f : -1.0f;
    turn = a > 0.5f ? turn : 1.0f;
    return TGC_FMAF(factor, y, turn * TGC_HALF_PI_LOW_F32) + turn * TGC_HALF_PI_HIGH_F32;
}

/* 1 - exp(-t) with the sign of x, where t = -log(erfc(a)) is smooth */
TGC_INLINE float tgc_erf_f32(float x) {
    float a = tgc_at_most_f32(__builtin_fabsf(x), TGC_LIMITS_F32.erf_high);
    float t = TGC_FMAF(a, tgc_poly_erf_f32(a), a);
    float rounded, r = tgc_exp_reduce_short_f32(-t, 127.0f, &rounded);
    float w = TGC_FMAF(r * r, tgc_poly_expm1_f32(r), r);
    float power = tgc_float_f32(tgc_bits_f32(rounded) << 23);
    return __builtin_copysignf(TGC_FMAF(power, w, power - 1.0f), x);
}

/* exp(-a^2 - h) where h = -log(erfc(a)) - a^2 grows slowly; a^2 in two parts, the first of them exact.
 * Near 0 by erf, which keeps what small numbers take from 1. */
TGC_INLINE float tgc_erfc_f32(float x) {
    float a = __builtin_fabsf(x), z = x * x, small = TGC_FMAF(-x, tgc_poly_erf_small_f32(z), 1.0f - x);
    /* Rounds to 0 from 10.06 on. */
    float b = tgc_at_most_f32(a, TGC_LIMITS_F32.erfc_high);
    float high = tgc_float_f32(tgc_bits_f32(b) & 0xfffff000u), low = (b - high) * (b + high);
    float h = b < 3.0f ? tgc_poly_erfc_near_f32(b - 1.75f) : tgc_poly_erfc_far_f32(b - 6.5f);
    float leading = b < 3.0f ? 1.25f : 2.5f, square = high * high;
    float rounded = TGC_FMAF(square + (leading + h), -TGC_LOG2E_F32, TGC_ROUND_F32 + TGC_SCALE_BIAS_F32);
    float n = rounded - (TGC_ROUND_F32 + TGC_SCALE_BIAS_F32);
#if TGC_HAS_FMA
    float r = (TGC_FMAF(n, -TGC_LN2_HIGH_F32, -square) - leading) - h;
    r -= TGC_FMAF(n, TGC_LN2_LOW_F32, low);
#else
    /* The polynomials round more than once a step: what is summed of them does not. */
    double taken = (double)n * (TGC_LN2_HIGH_F32 + (double)TGC_LN2_LOW_F32);
    float r = (float)(-taken - ((double)square + low) - leading - h);
#endif
    float y = tgc_scale_f32(tgc_exp_reduced_f32(r), rounded);
    y = x < 0.0f ? 2.0f - y : y;
    return a < 0.75f ? small : y;
}

/* By w = -log(1 - x^2), or by its root where it is large: 16 is the largest beside infinity. What
 * rounding w lost counts times the derivative by w, which is 0.23 to 0.25 below 5. The last sum and
 * product are of doubles: rounded, they would lose half a unit each. */
TGC_INLINE float tgc_erfinv_f32(float x) {
    float a = __builtin_fabsf(x), k, f = tgc_split_f32((1.0f - a) * (1.0f + a), &k);
    float small = tgc_log_small_f32(k, f), w = -TGC_FMAF(k, TGC_LN2_HIGH_F32, small);
    float u = __builtin_sqrtf(w), lost = small + (w + k * TGC_LN2_HIGH_F32);
    float near = tgc_poly_erfinv_f32(w - 2.5f), far = tgc_poly_erfinv_tail_f32(u - 3.0f);
    float high = w < 5.0f ? 0x1.c5bf8ap-1f : u;
    float low = w < 5.0f ? TGC_FMAF(lost, -0.24f, -0x1.c96212p-26f) : far;
    float factor = w < 5.0f ? near : 0.0f;
    float y = (float)(x * (TGC_FMA((double)factor, (double)w, (double)low) + (double)high));
    float special = a == 1.0f ? __builtin_copysignf(INFINITY, x) : NAN;
    return a < 1.0f ? y : special;
}

/* w - u^2 where u is the rounded root of w. */
TGC_INLINE float tgc_root_lacks_f32(float w, float u) {
#if TGC_HAS_FMA
    return TGC_FMAF(-u, u, w);
#else
    /* The 12 leading bits of u have exact products. */
    float high = tgc_float_f32(tgc_bits_f32(u) & 0xfffff000u), low = u - high;
    return ((w - high * high) - 2.0f * high * low) - low * low;
#endif
}

/* The root of 2 times erfinv(2 x - 1), where 1 - (2 x - 1)^2 is 4 p (1 - p) of the smaller of x and
 * 1 - x, without cancellation. The factor 1 - 2 p is exact near 1/2; elsewhere its product rounds once,
 * with what the sum before lost. */
TGC_INLINE float tgc_ndtri_f32(float x) {
    float p = x < 0.5f ? x : 1.0f - x, k, f = tgc_split_f32(4.0f * p * (1.0f - p), &k);
    float small = tgc_log_small_f32(k, f), w = -TGC_FMAF(k, TGC_LN2_HIGH_F32, small);
    /* The root of w and, for the tails, what rounding w and the root itself lost of it. */
    float u = __builtin_sqrtf(w), lacks = tgc_root_lacks_f32(w, u);
    float rest = 0.5f * (lacks - (small + (w + k * TGC_LN2_HIGH_F32))) / u;
    float near = TGC_FMAF(w, tgc_poly_ndtri_f32(w - 2.5f), -0x1.3b1f4ep-33f);
    float tail = TGC_FMAF(u, 0x1.a82798p-2f, tgc_poly_ndtri_tail_f32(u - 3.0f));
    float far = TGC_FMAF(u, 0x1.a82798p-2f, tgc_poly_ndtri_far_f32(u - 7.0f));
    float part = w < 17.3f ? tail : far, leading = w < 5.0f ? 0x1.40d932p+0f : u;
    part = w < 5.0f ? near : part;
    float quotient = leading + part, lost = part - (quotient - leading);
    lost = w < 5.0f ? lost : TGC_FMAF(rest, 0x1.6a09e6p+0f, lost);
    float y = p < 0.25f ? quotient + TGC_FMAF(-2.0f * p, quotient, lost) : (1.0f - 2.0f * p) * quotient;
    float special = x == 0.0f ? -INFINITY : NAN;
    special = x == 1.0f ? INFINITY : special;
    y = x < 0.5f ? -y : y;
    return (x > 0.0f) & (x < 1.0f) ? y : special;
}

#endif
