/* Remainders of division, and rounding to integers where the machine has no instruction for it. */
#ifndef TGC_VMATH_DIVIDE_H
#define TGC_VMATH_DIVIDE_H

#include "vmath_bits.h"

/* The quotient is rounded to an integer and its product with y subtracted, exactly: the integer is
 * right or 1 too large. Only for |x| < 2^28 |y|, with float64 twice as long as float32. */
TGC_INLINE float tgc_fmod_fast_f32(float x, float y) {
    double a = __builtin_fabsf(x), b = __builtin_fabsf(y);
    double q = (a / b + TGC_ROUND_F64) - TGC_ROUND_F64, r = a - q * b;
    r = r < 0.0 ? r + b : r;
    return __builtin_fabsf(y) == INFINITY ? x : __builtin_copysignf((float)r, x);
}

TGC_INLINE double tgc_fmod_fast_f64(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y), low;
    double q = (a / b + TGC_ROUND_F64) - TGC_ROUND_F64, product = tgc_two_product_f64(q, b, &low);
    double r = (a - product) - low;
    r = r < 0.0 ? r + b : r;
    return b == INFINITY ? x : __builtin_copysign(r, x);
}

/* Rounds to minus infinity, like Python's and PyTorch's: NumPy's npy_floor_divide without its
 * branches. mod is fmod(a, b). */
#define TGC_FLOOR_DIVIDE(T, suffix, f)                                                             \
    TGC_INLINE T tgc_floor_divide_##suffix(T a, T b, T mod) {                                      \
        T quotient = a / b, div = (a - mod) / b;                                                   \
        div = mod != 0 && (b < 0) != (mod < 0) ? div - 1 : div;                                    \
        T down = tgc_floor_##suffix(div);                                                          \
        down = div - down > (T)0.5 ? down + 1 : down;                                              \
        down = div == 0 ? __builtin_copysign##f((T)0, quotient) : down;                            \
        return b == 0 ? quotient : down;                                                           \
    }

#if defined(__SSE4_1__) || !defined(__SSE2__)
#define TGC_ROUNDING(T, suffix, f, whole)                                                          \
    TGC_INLINE T tgc_rint_##suffix(T x) { return __builtin_rint##f(x); }                           \
    TGC_INLINE T tgc_trunc_##suffix(T x) { return __builtin_trunc##f(x); }                         \
    TGC_INLINE T tgc_floor_##suffix(T x) { return __builtin_floor##f(x); }                         \
    TGC_INLINE T tgc_ceil_##suffix(T x) { return __builtin_ceil##f(x); }
#else
/* Adding 2^23 (2^52) to a magnitude below it rounds; larger ones are integers. */
#define TGC_ROUNDING(T, suffix, f, whole)                                                          \
    TGC_INLINE T tgc_rint_##suffix(T x) {                                                          \
        T a = __builtin_fabs##f(x), r = (a + whole) - whole;                                       \
        return a < whole ? __builtin_copysign##f(r, x) : x;                                        \
    }                                                                                              \
    TGC_INLINE T tgc_trunc_##suffix(T x) {                                                         \
        T a = __builtin_fabs##f(x), r = (a + whole) - whole;                                       \
        return a < whole ? __builtin_copysign##f(r > a ? r - 1 : r, x) : x;                        \
    }                                                                                              \
    TGC_INLINE T tgc_floor_##suffix(T x) {                                                         \
        T r = tgc_rint_##suffix(x);                                                                \
        return r > x ? r - 1 : r;                                                                  \
    }                                                                                              \
    TGC_INLINE T tgc_ceil_##suffix(T x) {                                                          \
        T r = tgc_rint_##suffix(x);                                                                \
        return __builtin_copysign##f(r < x ? r + 1 : r, x);                                        \
    }
#endif
TGC_ROUNDING(float, f32, f, 0x1p23f)
TGC_ROUNDING(double, f64, , 0x1p52)
TGC_FLOOR_DIVIDE(float, f32, f)
TGC_FLOOR_DIVIDE(double, f64, )

#endif
