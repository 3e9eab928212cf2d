/* Elementary functions of float32 in float32: those that models spend their time in.
 *
 * Argument reduction follows Cody and Waite, Software Manual for the Elementary Functions, 1980;
 * the polynomials are minimax, from render/minimax.py. The errors, measured over all float32, are
 * in docs/cpu.md. */
#ifndef TGC_VMATH_F32_H
#define TGC_VMATH_F32_H

#include "vmath_bits.h"
#include "vmath_polynomials.h"

/* ln 2 in two parts; the first has 16 bits, so that its product with an exponent is exact. */
#define TGC_LOG2E_F32 0x1.715476p+0f
#define TGC_LN2_HIGH_F32 0x1.62e4p-1f
#define TGC_LN2_LOW_F32 0x1.7f7d1cp-20f

/* exp(r) for |r| <= ln(2) / 2 */
TGC_INLINE float tgc_exp_reduced_f32(float r) {
    return TGC_FMAF(r * r, tgc_poly_exp_f32(r), r) + 1.0f;
}

/* x - n ln 2 and n, for x within the bounds of what does not overflow twice */
TGC_INLINE float tgc_exp_reduce_f32(float x, float *n) {
    *n = TGC_FMAF(x, TGC_LOG2E_F32, TGC_ROUND_F32) - TGC_ROUND_F32;
    return TGC_FMAF(*n, -TGC_LN2_LOW_F32, TGC_FMAF(*n, -TGC_LN2_HIGH_F32, x));
}

TGC_INLINE float tgc_exp_f32(float x) {
    /* Beyond these bounds the result is 0 or infinite all the same; nan passes. */
    float a = x < -104.0f ? -104.0f : x, n;
    float r = tgc_exp_reduce_f32(a > 89.0f ? 89.0f : a, &n);
    return tgc_scale_f32(tgc_exp_reduced_f32(r), n);
}

TGC_INLINE float tgc_exp2_f32(float x) {
    float a = x < -151.0f ? -151.0f : x;
    a = a > 129.0f ? 129.0f : a;
    float n = (a + TGC_ROUND_F32) - TGC_ROUND_F32;
    return tgc_scale_f32(tgc_exp_reduced_f32((a - n) * 0x1.62e43p-1f), n);
}

TGC_INLINE float tgc_expm1_f32(float x) {
    float a = x < -18.0f ? -18.0f : x, n;
    float r = tgc_exp_reduce_f32(a > 89.0f ? 89.0f : a, &n);
    float q = TGC_FMAF(r * r, tgc_poly_expm1_f32(r), r);
    /* 2^n - 1 + 2^n q, halved: 2^128 is out of range. */
    float half = tgc_power_of_two_f32((n - 1.0f) + TGC_ROUND_F32);
    float y = 2.0f * TGC_FMAF(q, half, half - 0.5f);
    y = n == 0.0f ? q : y;
    return x == 0.0f ? x : y;
}

/* Splits a positive finite number into m in [sqrt(1/2), sqrt(2)) and 2^k; returns m - 1. */
TGC_INLINE float tgc_split_f32(float x, float *k) {
    float denormal = x < 0x1p-126f ? 1.0f : 0.0f;
    float normal = x < 0x1p-126f ? x * 0x1p24f : x;
    uint32_t shifted = tgc_bits_f32(normal) - 0x3f3504f3u;
    int32_t exponent = (int32_t)shifted >> 23;
    *k = (float)exponent - 24.0f * denormal;
    return tgc_float_f32((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
}

/* The results of a logarithm where its argument is not positive and finite. */
TGC_INLINE float tgc_log_specials_f32(float x, float y) {
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x != x ? x : y;
}

TGC_INLINE float tgc_log_f32(float x) {
    float k, f = tgc_split_f32(x, &k), z = f * f;
    float tail = TGC_FMAF(k, TGC_LN2_LOW_F32, z * f * tgc_poly_log_f32(f));
    float y = TGC_FMAF(-0.5f, z, tail) + f;
    return tgc_log_specials_f32(x, TGC_FMAF(k, TGC_LN2_HIGH_F32, y));
}

TGC_INLINE float tgc_log1p_f32(float x) {
    float k, u = 1.0f + x;
    tgc_split_f32(u, &k);
    /* m - 1 from x itself, not from the rounded 1 + x: m = 2^-k + 2^-k x. Both factors are within
       range for every k up to 128. */
    float scale = tgc_power_of_two_f32((2.0f - k) + TGC_ROUND_F32);
    float f = x * scale * 0.25f + (scale * 0.25f - 1.0f), z = f * f;
    float tail = TGC_FMAF(k, TGC_LN2_LOW_F32, z * f * tgc_poly_log_f32(f));
    float y = TGC_FMAF(-0.5f, z, tail) + f;
    y = tgc_log_specials_f32(u, TGC_FMAF(k, TGC_LN2_HIGH_F32, y));
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

/* Never overflows: the exponential is of a number below 0. It is computed with what rounding 1 + r
 * lost, for the sum and the quotient add errors of their own. */
TGC_INLINE float tgc_sigmoid_f32(float x) {
    float a = -__builtin_fabsf(x), n;
    float r = tgc_exp_reduce_f32(a < -104.0f ? -104.0f : a, &n);
    float sum = 1.0f + r, lost = r - (sum - 1.0f);
    float e = tgc_scale_f32(sum + TGC_FMAF(r * r, tgc_poly_exp_f32(r), lost), n);
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

/* -log(1 + exp(-x)), in the form that keeps what is small. */
TGC_INLINE float tgc_log_sigmoid_f32(float x) {
    float e = tgc_exp_f32(-__builtin_fabsf(x));
    float y = (x < 0.0f ? x : 0.0f) - tgc_log1p_f32(e);
    return x != x ? x : y;
}

TGC_INLINE float tgc_tanh_f32(float x) {
    float a = __builtin_fabsf(x), z = x * x;
    float small = TGC_FMAF(x * z, tgc_poly_tanh_f32(z), x);
    /* Rounds to 1 from 9.01 on. */
    float e = tgc_exp_f32(2.0f * a);
    float large = tgc_copysign_f32(1.0f - 2.0f / (e + 1.0f), x);
    float y = a < 0.625f ? small : large;
    return x == 0.0f ? x : y;
}

TGC_INLINE float tgc_erf_f32(float x) {
    float a = __builtin_fabsf(x), b = a > 3.95f ? 3.95f : a;
    float small = TGC_FMAF(x, tgc_poly_erf_f32(x * x), x);
    float large = tgc_copysign_f32(1.0f - tgc_exp_f32(-tgc_poly_erf_tail_f32(b)), x);
    float y = a < 0.92f ? small : large;
    return x == 0.0f ? x : y;
}

#endif
