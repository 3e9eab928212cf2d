/* Functions by the vector function ABI: a scalar version, and one for each width of vectors that the
 * level has, under the names that loops over them call (vmath_clones.h). */
#ifndef TGC_VMATH_LANES_H
#define TGC_VMATH_LANES_H

#include "vmath_clones.h"

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

/* The same where `fast` is for few arguments, such as small ones: if any lane is `outside`, all go
 * through `next` too, and those that are `far` through `rare`. */
#define TGC_SCALAR_STEPS(T, name, fast, outside, next, far, rare)                                  \
    T name(T x) { return outside ? (far ? rare(x) : next(x)) : fast(x); }
#define TGC_VECTOR_STEPS(T, lanes, symbol, fast, outside, next, far, rare)                         \
    typedef T symbol##_type __attribute__((vector_size(sizeof(T) * lanes)));                       \
    __attribute__((visibility("hidden"))) symbol##_type symbol(symbol##_type argument);            \
    symbol##_type symbol(symbol##_type argument) {                                                 \
        T xs[lanes], results[lanes];                                                               \
        symbol##_type result;                                                                      \
        int beyond = 0, distant = 0;                                                               \
        memcpy(xs, &argument, sizeof xs);                                                          \
        for (int k = 0; k < lanes; ++k) {                                                          \
            T x = xs[k];                                                                           \
            results[k] = fast(x);                                                                  \
            beyond |= outside;                                                                     \
            distant |= far;                                                                        \
        }                                                                                          \
        if (beyond) {                                                                              \
            for (int k = 0; k < lanes; ++k) {                                                      \
                T x = xs[k], y = next(x);                                                          \
                results[k] = outside ? y : results[k];                                             \
            }                                                                                      \
        }                                                                                          \
        if (__builtin_expect(distant, 0)) {                                                        \
            for (int k = 0; k < lanes; ++k) {                                                      \
                T x = xs[k];                                                                       \
                if (far) results[k] = rare(x);                                                     \
            }                                                                                      \
        }                                                                                          \
        memcpy(&result, results, sizeof result);                                                   \
        return result;                                                                             \
    }

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

#endif
