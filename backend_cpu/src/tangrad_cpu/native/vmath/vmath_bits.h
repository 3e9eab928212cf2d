/* What the functions of vmath share: bit casts, contraction, rounding, powers of two, exact sums.
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

#ifndef TGC_LEVEL
#define TGC_LEVEL baseline
#endif
#define TGC_VMATH_JOIN2(name, level) name##_##level
#define TGC_VMATH_JOIN(name, level) TGC_VMATH_JOIN2(name, level)
#define TGC_LIMITS_F32 TGC_VMATH_JOIN(tgc_limits_f32, TGC_LEVEL)

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

/* Bounds of arguments. GCC turns `x < -104 ? -104 : x` into a comparison and a select, and two of
 * them into branches joined by masks; of numbers that it cannot see, into max and min. */
typedef struct tgc_bounds_f32 {
    float exp_low, exp_high, exp2_low, exp2_high, expm1_low, sigmoid_high, tanh_high, erf_high, erfc_high;
} tgc_bounds_f32;
extern const tgc_bounds_f32 TGC_LIMITS_F32 __attribute__((visibility("hidden")));

/* The larger and the smaller of a number and a bound; nan passes. */
TGC_INLINE float tgc_at_least_f32(float x, float bound) { return bound > x ? bound : x; }

TGC_INLINE float tgc_at_most_f32(float x, float bound) { return bound < x ? bound : x; }

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
 * factors is exact. In float32 rounded = n + TGC_ROUND + TGC_SCALE_BIAS, -254 <= n <= 256, which
 * halves give two biased exponents; in float64 n is an integer. */
#define TGC_SCALE_BIAS_F32 254.0f
TGC_INLINE float tgc_scale_f32(float p, float rounded) {
    uint32_t both = tgc_bits_f32(rounded), half = both >> 1;
    return p * tgc_float_f32(half << 23) * tgc_float_f32((both - half) << 23);
}

TGC_INLINE double tgc_scale_f64(double p, double n) {
    double half = n * 0.5 + TGC_ROUND_F64;
    double rest = (n - (half - TGC_ROUND_F64)) + TGC_ROUND_F64;
    return p * tgc_power_of_two_f64(half) * tgc_power_of_two_f64(rest);
}

/* a + b = result + *low, exactly */
TGC_INLINE double tgc_two_sum_f64(double a, double b, double *low) {
    double sum = a + b, part = sum - a;
    *low = (a - (sum - part)) + (b - part);
    return sum;
}

/* The same for |a| >= |b| or a == 0 */
TGC_INLINE double tgc_fast_two_sum_f64(double a, double b, double *low) {
    double sum = a + b;
    *low = (a - sum) + b;
    return sum;
}

/* a b = result + *low, exactly, unless something overflows or underflows */
TGC_INLINE double tgc_two_product_f64(double a, double b, double *low) {
    double product = a * b;
#if TGC_HAS_FMA
    *low = __builtin_fma(a, b, -product);
#else
    /* Veltkamp's splitting, by masks: halves of 26 and 27 bits */
    double ah = tgc_float_f64(tgc_bits_f64(a) & 0xfffffffff8000000u), al = a - ah;
    double bh = tgc_float_f64(tgc_bits_f64(b) & 0xfffffffff8000000u), bl = b - bh;
    *low = ((ah * bh - product) + ah * bl + al * bh) + al * bl;
#endif
    return product;
}

#endif
