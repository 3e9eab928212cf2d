/* The vector versions of the functions declared in vmath_clones.h. */
#define TGC_VMATH_DEFINES_CLONES
#include "vmath_clones.h"
#include "vmath_trig_f32.h"

/* Scalar version: also what a loop that does not vectorise calls. */
#define TGC_SCALAR_1(T, name, fast, outside, rare)                                                 \
    T name(T x) { return outside ? rare(x) : fast(x); }

/* Vector version; the lanes are fixed, so that the loops become straight vector code. */
#define TGC_VECTOR_1(T, lanes, symbol, fast, outside, rare)                                        \
    typedef T symbol##_type __attribute__((vector_size(sizeof(T) * lanes)));                       \
    __attribute__((visibility("hidden"))) symbol##_type symbol(symbol##_type argument);            \
    symbol##_type symbol(symbol##_type argument) {                                                 \
        T xs[lanes], ys[lanes];                                                                    \
        symbol##_type result;                                                                      \
        int far = 0;                                                                               \
        memcpy(xs, &argument, sizeof xs);                                                          \
        for (int k = 0; k < lanes; ++k) {                                                          \
            T x = xs[k];                                                                           \
            ys[k] = fast(x);                                                                       \
            far |= outside;                                                                        \
        }                                                                                          \
        if (__builtin_expect(far, 0)) {                                                            \
            for (int k = 0; k < lanes; ++k) {                                                      \
                T x = xs[k];                                                                       \
                if (outside) ys[k] = rare(x);                                                      \
            }                                                                                      \
        }                                                                                          \
        memcpy(&result, ys, sizeof result);                                                        \
        return result;                                                                             \
    }

#define TGC_SYMBOL3(prefix, name, level) prefix##name##_##level
#define TGC_SYMBOL2(prefix, name, level) TGC_SYMBOL3(prefix, name, level)
#define TGC_SYMBOL(prefix, name) TGC_SYMBOL2(prefix, name, TGC_LEVEL)

#if TGC_HAS_CLONES && defined(__AVX512F__)
#define TGC_VECTOR_512(T, n, ...) TGC_VECTOR_1(T, n, __VA_ARGS__)
#else
#define TGC_VECTOR_512(...)
#endif
#if TGC_HAS_CLONES && defined(__AVX2__)
#define TGC_VECTOR_256(T, n, ...) TGC_VECTOR_1(T, n, __VA_ARGS__)
#else
#define TGC_VECTOR_256(...)
#endif
#if TGC_HAS_CLONES
#define TGC_VECTOR_128(T, n, ...) TGC_VECTOR_1(T, n, __VA_ARGS__)
#else
#define TGC_VECTOR_128(...)
#endif

#define TGC_FUNCTION_F32(name, fast, outside, rare)                                                \
    TGC_SCALAR_1(float, TGC_VMATH_JOIN(name, TGC_LEVEL), fast, outside, rare)                      \
    TGC_VECTOR_128(float, 4, TGC_SYMBOL(_ZGVbN4v_, name), fast, outside, rare)                     \
    TGC_VECTOR_256(float, 8, TGC_SYMBOL(_ZGVdN8v_, name), fast, outside, rare)                     \
    TGC_VECTOR_512(float, 16, TGC_SYMBOL(_ZGVeN16v_, name), fast, outside, rare)

#undef tgc_sin_f32
#undef tgc_cos_f32
TGC_FUNCTION_F32(tgc_sin_f32, tgc_sin_fast_f32, !(__builtin_fabsf(x) <= TGC_TRIG_LIMIT_F32), sinf)
TGC_FUNCTION_F32(tgc_cos_f32, tgc_cos_fast_f32, !(__builtin_fabsf(x) <= TGC_TRIG_LIMIT_F32), cosf)
