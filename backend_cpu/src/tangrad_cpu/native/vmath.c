/* The vector versions of the functions declared in vmath_clones.h, and the bounds of arguments. */
#define TGC_VMATH_DEFINES_CLONES
#include "vmath_clones.h"
#include "vmath_divide.h"
#include "vmath_trig_f32.h"
#include "vmath_trig_f64.h"

const tgc_bounds_f32 TGC_LIMITS_F32 = {
    .exp_low = -104.0f, .exp_high = 89.0f, .exp2_low = -151.0f, .exp2_high = 129.0f,
    .expm1_low = -18.0f, .sigmoid_high = 60.0f, .tanh_high = 9.1f, .erf_high = 3.95f,
    .erfc_high = 10.1f};

/* Scalar version: also what a loop that does not vectorise calls. */
#define TGC_SCALAR_1(T, name, fast, outside, rare)                                                 \
    T name(T x) { return outside ? rare(x) : fast(x); }
#define TGC_SCALAR_2(T, name, fast, outside, rare)                                                 \
    T name(T x, T y) { return outside ? rare(x, y) : fast(x, y); }

/* Vector version; the lanes are fixed, so that the loops become straight vector code. */
#define TGC_VECTOR_1(T, lanes, symbol, fast, outside, rare)                                        \
    typedef T symbol##_type __attribute__((vector_size(sizeof(T) * lanes)));                       \
    __attribute__((visibility("hidden"))) symbol##_type symbol(symbol##_type argument);            \
    symbol##_type symbol(symbol##_type argument) {                                                 \
        T xs[lanes], results[lanes];                                                               \
        symbol##_type result;                                                                      \
        int far = 0;                                                                               \
        memcpy(xs, &argument, sizeof xs);                                                          \
        for (int k = 0; k < lanes; ++k) {                                                          \
            T x = xs[k];                                                                           \
            results[k] = fast(x);                                                                  \
            far |= outside;                                                                        \
        }                                                                                          \
        if (__builtin_expect(far, 0)) {                                                            \
            for (int k = 0; k < lanes; ++k) {                                                      \
                T x = xs[k];                                                                       \
                if (outside) results[k] = rare(x);                                                 \
            }                                                                                      \
        }                                                                                          \
        memcpy(&result, results, sizeof result);                                                   \
        return result;                                                                             \
    }
#define TGC_VECTOR_2(T, lanes, symbol, fast, outside, rare)                                        \
    typedef T symbol##_type __attribute__((vector_size(sizeof(T) * lanes)));                       \
    __attribute__((visibility("hidden"))) symbol##_type symbol(symbol##_type a, symbol##_type b);  \
    symbol##_type symbol(symbol##_type a, symbol##_type b) {                                       \
        T xs[lanes], ys[lanes], results[lanes];                                                    \
        symbol##_type result;                                                                      \
        int far = 0;                                                                               \
        memcpy(xs, &a, sizeof xs);                                                                 \
        memcpy(ys, &b, sizeof ys);                                                                 \
        for (int k = 0; k < lanes; ++k) {                                                          \
            T x = xs[k], y = ys[k];                                                                \
            results[k] = fast(x, y);                                                               \
            far |= outside;                                                                        \
        }                                                                                          \
        if (__builtin_expect(far, 0)) {                                                            \
            for (int k = 0; k < lanes; ++k) {                                                      \
                T x = xs[k], y = ys[k];                                                            \
                if (outside) results[k] = rare(x, y);                                              \
            }                                                                                      \
        }                                                                                          \
        memcpy(&result, results, sizeof result);                                                   \
        return result;                                                                             \
    }

#define TGC_SYMBOL3(prefix, name, level) prefix##name##_##level
#define TGC_SYMBOL2(prefix, name, level) TGC_SYMBOL3(prefix, name, level)
#define TGC_SYMBOL(prefix, name) TGC_SYMBOL2(prefix, name, TGC_LEVEL)

#if TGC_HAS_CLONES && defined(__AVX512F__)
#define TGC_VECTOR_512(define, ...) define(__VA_ARGS__)
#else
#define TGC_VECTOR_512(...)
#endif
#if TGC_HAS_CLONES && defined(__AVX2__)
#define TGC_VECTOR_256(define, ...) define(__VA_ARGS__)
#else
#define TGC_VECTOR_256(...)
#endif
#if TGC_HAS_CLONES
#define TGC_VECTOR_128(define, ...) define(__VA_ARGS__)
#else
#define TGC_VECTOR_128(...)
#endif

/* In the names of the vector ABI, v stands for each argument. */
#define TGC_FUNCTION_F32(n, v, name, ...)                                                          \
    TGC_SCALAR_##n(float, TGC_VMATH_JOIN(name, TGC_LEVEL), __VA_ARGS__)                            \
    TGC_VECTOR_128(TGC_VECTOR_##n, float, 4, TGC_SYMBOL(_ZGVbN4##v##_, name), __VA_ARGS__)         \
    TGC_VECTOR_256(TGC_VECTOR_##n, float, 8, TGC_SYMBOL(_ZGVdN8##v##_, name), __VA_ARGS__)         \
    TGC_VECTOR_512(TGC_VECTOR_##n, float, 16, TGC_SYMBOL(_ZGVeN16##v##_, name), __VA_ARGS__)
#define TGC_FUNCTION_F64(n, v, name, ...)                                                          \
    TGC_SCALAR_##n(double, TGC_VMATH_JOIN(name, TGC_LEVEL), __VA_ARGS__)                           \
    TGC_VECTOR_128(TGC_VECTOR_##n, double, 2, TGC_SYMBOL(_ZGVbN2##v##_, name), __VA_ARGS__)        \
    TGC_VECTOR_256(TGC_VECTOR_##n, double, 4, TGC_SYMBOL(_ZGVdN4##v##_, name), __VA_ARGS__)        \
    TGC_VECTOR_512(TGC_VECTOR_##n, double, 8, TGC_SYMBOL(_ZGVeN8##v##_, name), __VA_ARGS__)

#define TGC_FAR_F32 !(__builtin_fabsf(x) <= TGC_TRIG_LIMIT_F32)
#define TGC_FAR_F64 !(__builtin_fabs(x) <= TGC_TRIG_LIMIT_F64)
/* Where the quotient is not far below the number of bits; nan, infinite x and zero y are too. */
#define TGC_UNEVEN_F32 !(__builtin_fabsf(x) < __builtin_fabsf(y) * 0x1p28f)
#define TGC_UNEVEN_F64                                                                             \
    (!(__builtin_fabs(x) < __builtin_fabs(y) * 0x1p50) | (__builtin_fabs(x) > 0x1p1020))

#undef tgc_sin_f32
#undef tgc_cos_f32
#undef tgc_tan_f32
#undef tgc_sin_f64
#undef tgc_cos_f64
#undef tgc_tan_f64
#undef tgc_fmod_f32
#undef tgc_fmod_f64
TGC_FUNCTION_F32(1, v, tgc_sin_f32, tgc_sin_fast_f32, TGC_FAR_F32, sinf)
TGC_FUNCTION_F32(1, v, tgc_cos_f32, tgc_cos_fast_f32, TGC_FAR_F32, cosf)
TGC_FUNCTION_F32(1, v, tgc_tan_f32, tgc_tan_fast_f32, TGC_FAR_F32, tanf)
TGC_FUNCTION_F64(1, v, tgc_sin_f64, tgc_sin_fast_f64, TGC_FAR_F64, sin)
TGC_FUNCTION_F64(1, v, tgc_cos_f64, tgc_cos_fast_f64, TGC_FAR_F64, cos)
TGC_FUNCTION_F64(1, v, tgc_tan_f64, tgc_tan_fast_f64, TGC_FAR_F64, tan)
TGC_FUNCTION_F32(2, vv, tgc_fmod_f32, tgc_fmod_fast_f32, TGC_UNEVEN_F32, fmodf)
TGC_FUNCTION_F64(2, vv, tgc_fmod_f64, tgc_fmod_fast_f64, TGC_UNEVEN_F64, fmod)
