/* What the functions of vmath share: bit casts, contraction, rounding and powers of two.
 *
 * Everything here vectorises from plain loops: selects of values already computed, casts that keep
 * the width, shifts of that width. Arithmetic right shifts of 64 bits are missing before AVX-512
 * and are not used; integers come out of the low bits of a float to which a large constant was
 * added (Muller, Elementary Functions, 3rd ed., section 11.1). */
#ifndef TGC_VMATH_BITS_H
#define TGC_VMATH_BITS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define TGC_INLINE static inline __attribute__((always_inline))

#if defined(__FMA__) || defined(__aarch64__)
#define TGC_HAS_FMA 1
#define TGC_FMAF(a, b, c) __builtin_fmaf((a), (b), (c))
#define TGC_FMA(a, b, c) __builtin_fma((a), (b), (c))
#else
#define TGC_HAS_FMA 0
#define TGC_FMAF(a, b, c) ((a) * (b) + (c))
#define TGC_FMA(a, b, c) ((a) * (b) + (c))
#endif

TGC_INLINE uint32_t tgc_bits_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TGC_INLINE float tgc_float_f32(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TGC_INLINE uint64_t tgc_bits_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TGC_INLINE double tgc_float_f64(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Added to a number below 2^22 (2^51), these round it to an integer, which is then in the low
 * bits; subtracting them again leaves the integer as a float. */
#define TGC_ROUND_F32 0x1.8p23f
#define TGC_ROUND_F64 0x1.8p52

/* 2^n of the integer in the low bits of rounded = n + TGC_ROUND; -126 <= n <= 127 (-1022, 1023). */
TGC_INLINE float tgc_power_of_two_f32(float rounded) {
    return tgc_float_f32((tgc_bits_f32(rounded) << 23) + 0x3f800000u);
}

TGC_INLINE double tgc_power_of_two_f64(double rounded) {
    return tgc_float_f64((tgc_bits_f64(rounded) << 52) + 0x3ff0000000000000u);
}

/* p * 2^n with one rounding, even if the result is denormal or 2^n out of range: the first of two
 * factors is exact. n is an integer. */
TGC_INLINE float tgc_scale_f32(float p, float n) {
    float half = n * 0.5f + TGC_ROUND_F32;
    float rest = (n - (half - TGC_ROUND_F32)) + TGC_ROUND_F32;
    return p * tgc_power_of_two_f32(half) * tgc_power_of_two_f32(rest);
}

TGC_INLINE double tgc_scale_f64(double p, double n) {
    double half = n * 0.5 + TGC_ROUND_F64;
    double rest = (n - (half - TGC_ROUND_F64)) + TGC_ROUND_F64;
    return p * tgc_power_of_two_f64(half) * tgc_power_of_two_f64(rest);
}

/* The magnitude of x with the sign of s: the macros of the C library's names vectorise. */
TGC_INLINE float tgc_copysign_f32(float x, float s) { return __builtin_copysignf(x, s); }
TGC_INLINE double tgc_copysign_f64(double x, double s) { return __builtin_copysign(x, s); }

#endif
