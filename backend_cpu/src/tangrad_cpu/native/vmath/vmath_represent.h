/* Half precision and the parts of floating-point numbers, by their bits. */
#ifndef TGC_VMATH_REPRESENT_H
#define TGC_VMATH_REPRESENT_H

#include "vmath_bits.h"

/* An exponent of 112 more, twice that for infinities and nan; a denormal is an integer times
 * 2^-24. */
TGC_INLINE float tgc_from_float16_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fffu;
    uint32_t bits = (rest << 13) + 0x38000000u;
    bits = rest >= 0x7c00u ? bits + 0x38000000u : bits;
    bits = rest < 0x0400u ? tgc_bits_f32((float)(int32_t)rest * 0x1p-24f) : bits;
    return tgc_float_f32(bits | sign);
}

/* To nearest, ties to even: by the carry of an integer, and for denormals by the addition of 1/2,
 * whose last place is 2^-24. */
TGC_INLINE uint16_t tgc_float16_f32(float x) {
    uint32_t all = tgc_bits_f32(x), sign = all >> 16 & 0x8000u, bits = all & 0x7fffffffu;
    uint32_t normal = (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1)) >> 13;
    uint32_t small = tgc_bits_f32(tgc_float_f32(bits) + 0.5f) - 0x3f000000u;
    uint32_t half = bits < 0x38800000u ? small : normal;
    half = bits >= 0x477ff000u ? 0x7c00u : half;
    half = bits > 0x7f800000u ? 0x7e00u : half;
    return (uint16_t)(half | sign);
}

TGC_INLINE uint16_t tgc_bfloat16_f32(float x) {
    uint32_t bits = tgc_bits_f32(x), rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(x != x ? 0x7fc0u : rounded);
}

/* x = mantissa 2^exponent with |mantissa| in [1/2, 1); zero, infinities and nan have exponent 0. */
#define TGC_FREXP(T, U, suffix, f, digits, bias, least, up, up_bits, keep, half)                   \
    TGC_INLINE T tgc_frexp_mantissa_##suffix(T x) {                                                \
        T a = __builtin_fabs##f(x), normal = a < least ? x * up : x;                               \
        T m = tgc_float_##suffix((tgc_bits_##suffix(normal) & keep) | half);                       \
        return (a < (T)INFINITY) & (a != 0) ? m : x;                                               \
    }                                                                                              \
    TGC_INLINE T tgc_frexp_exponent_##suffix(T x) {                                                \
        T a = __builtin_fabs##f(x), normal = a < least ? a * up : a;                               \
        /* the exponent in the low bits of 2^digits, subtracted again */                           \
        U shifted = tgc_bits_##suffix(normal) >> digits | tgc_bits_##suffix((T)((U)1 << digits));  \
        T e = (tgc_float_##suffix(shifted) - (T)((U)1 << digits)) - bias;                          \
        e = a < least ? e - up_bits : e;                                                           \
        return (a < (T)INFINITY) & (a != 0) ? e : (T)0;                                            \
    }
TGC_FREXP(float, uint32_t, f32, f, 23, 126, 0x1p-126f, 0x1p24f, 24, 0x807fffffu, 0x3f000000u)
TGC_FREXP(double, uint64_t, f64, , 52, 1022, 0x1p-1022, 0x1p54, 54, 0x800fffffffffffffu,
          0x3fe0000000000000u)

/* The neighbour of x towards y: numbers of one sign are ordered like their bits. */
#define TGC_NEXTAFTER(T, U, suffix, f)                                                             \
    TGC_INLINE T tgc_nextafter_##suffix(T x, T y) {                                                \
        U bits = tgc_bits_##suffix(x), up = (y > x) == (x > 0) ? bits + 1 : bits - 1;              \
        T r = tgc_float_##suffix(up);                                                              \
        r = x == 0 ? __builtin_copysign##f(tgc_float_##suffix(1), y) : r;                          \
        r = x == y ? y : r;                                                                        \
        return x != x || y != y ? x + y : r;                                                       \
    }
TGC_NEXTAFTER(float, uint32_t, f32, f)
TGC_NEXTAFTER(double, uint64_t, f64, )

#endif
