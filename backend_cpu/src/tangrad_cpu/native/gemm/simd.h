/* Vectors of the level's width, by GCC's vector types; intrinsics where those have no word. */
#ifndef TANGRAD_CPU_GEMM_SIMD_H
#define TANGRAD_CPU_GEMM_SIMD_H

#include <stdint.h>
#include <string.h>

#include "vector_bytes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Registers decide the microkernel's shape: 14 x 2 accumulators of 32, or 6 x 2 of 16. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define TGC_ROWS 14
#else
#define TGC_ROWS 6
#endif

#define TGC_VECTOR_TYPE(type, name)                                        \
    typedef type name __attribute__((vector_size(TGC_VECTOR)));            \
    typedef type name##_unaligned __attribute__((vector_size(TGC_VECTOR), \
                                                 aligned(1), may_alias));

TGC_VECTOR_TYPE(float, tgc_vf)
TGC_VECTOR_TYPE(double, tgc_vd)
TGC_VECTOR_TYPE(uint16_t, tgc_vu16)
TGC_VECTOR_TYPE(uint32_t, tgc_vu32)
TGC_VECTOR_TYPE(uint64_t, tgc_vu64)

/* The first n lanes; the rest zero. 0 < n <= lanes. */
#if defined(__AVX512F__)
#define TGC_PARTIAL(V, T, suffix, epi, mask_type)                                                   \
    static inline V tgc_load_##suffix(const T *from, int64_t n)                                     \
    {                                                                                               \
        return (V)_mm512_maskz_loadu_##epi((mask_type)(~0ull >> (64 - n)), from);                   \
    }                                                                                               \
    static inline void tgc_store_##suffix(T *to, V v, int64_t n)                                    \
    {                                                                                               \
        _mm512_mask_storeu_##epi(to, (mask_type)(~0ull >> (64 - n)), (__m512i)v);                   \
    }
TGC_PARTIAL(tgc_vf, float, f, epi32, __mmask16)
TGC_PARTIAL(tgc_vd, double, d, epi64, __mmask8)
TGC_PARTIAL(tgc_vu16, uint16_t, u16, epi16, __mmask32)
TGC_PARTIAL(tgc_vu32, uint32_t, u32, epi32, __mmask16)
TGC_PARTIAL(tgc_vu64, uint64_t, u64, epi64, __mmask8)
#else
#define TGC_PARTIAL(V, T, suffix)                                                                   \
    static inline V tgc_load_##suffix(const T *from, int64_t n)                                     \
    {                                                                                               \
        V v = {0};                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                             \
            v[i] = from[i];                                                                         \
        return v;                                                                                   \
    }                                                                                               \
    static inline void tgc_store_##suffix(T *to, V v, int64_t n)                                    \
    {                                                                                               \
        for (int64_t i = 0; i < n; i++)                                                             \
            to[i] = v[i];                                                                           \
    }
TGC_PARTIAL(tgc_vu16, uint16_t, u16)
#if defined(__AVX2__)
#define TGC_MASKED(V, T, suffix, ps, epi, lane, I)                                                  \
    static inline V tgc_load_##suffix(const T *from, int64_t n)                                     \
    {                                                                                               \
        return (V)_mm256_maskload_##ps((const void *)from, (__m256i)(lane < (I)n - (lane ^ lane))); \
    }                                                                                               \
    static inline void tgc_store_##suffix(T *to, V v, int64_t n)                                    \
    {                                                                                               \
        _mm256_maskstore_##ps((void *)to, (__m256i)(lane < (I)n - (lane ^ lane)), (epi)v);          \
    }
typedef int32_t tgc_vi32 __attribute__((vector_size(32)));
typedef int64_t tgc_vi64 __attribute__((vector_size(32)));
#define TGC_LANES32 ((tgc_vi32){0, 1, 2, 3, 4, 5, 6, 7})
#define TGC_LANES64 ((tgc_vi64){0, 1, 2, 3})
TGC_MASKED(tgc_vf, float, f, epi32, __m256i, TGC_LANES32, int32_t)
TGC_MASKED(tgc_vu32, uint32_t, u32, epi32, __m256i, TGC_LANES32, int32_t)
TGC_MASKED(tgc_vd, double, d, epi64, __m256i, TGC_LANES64, int64_t)
TGC_MASKED(tgc_vu64, uint64_t, u64, epi64, __m256i, TGC_LANES64, int64_t)
#else
TGC_PARTIAL(tgc_vf, float, f)
TGC_PARTIAL(tgc_vd, double, d)
TGC_PARTIAL(tgc_vu32, uint32_t, u32)
TGC_PARTIAL(tgc_vu64, uint64_t, u64)
#endif
#endif

static inline __attribute__((always_inline)) tgc_vf tgc_fma_f(tgc_vf a, tgc_vf b, tgc_vf c)
{
#if defined(__AVX512F__)
    return (tgc_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (tgc_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (tgc_vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

static inline __attribute__((always_inline)) tgc_vd tgc_fma_d(tgc_vd a, tgc_vd b, tgc_vd c)
{
#if defined(__AVX512F__)
    return (tgc_vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
    return (tgc_vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    return (tgc_vd)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}

#if defined(__AVX512F__)
/* With every lane of a vector the element at `a`. */
static inline __attribute__((always_inline)) tgc_vf tgc_fma_from_f(const float *a, tgc_vf b, tgc_vf c)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
}

static inline __attribute__((always_inline)) tgc_vd tgc_fma_from_d(const double *a, tgc_vd b, tgc_vd c)
{
    __asm__("vfmadd231pd %2%{1to8%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
}
#endif

static inline __attribute__((always_inline)) tgc_vu16 tgc_fma_u16(tgc_vu16 a, tgc_vu16 b, tgc_vu16 c)
{
    return a * b + c;
}

static inline __attribute__((always_inline)) tgc_vu32 tgc_fma_u32(tgc_vu32 a, tgc_vu32 b, tgc_vu32 c)
{
    return a * b + c;
}

static inline __attribute__((always_inline)) tgc_vu64 tgc_fma_u64(tgc_vu64 a, tgc_vu64 b, tgc_vu64 c)
{
    return a * b + c;
}

/* Interleave the lower, or the upper, halves of two vectors of 32- or 64-bit lanes. */
#if TGC_VECTOR == 64
#define TGC_LOW32 {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
#define TGC_HIGH32 {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
#define TGC_LOW64 {0, 8, 1, 9, 2, 10, 3, 11}
#define TGC_HIGH64 {4, 12, 5, 13, 6, 14, 7, 15}
#elif TGC_VECTOR == 32
#define TGC_LOW32 {0, 8, 1, 9, 2, 10, 3, 11}
#define TGC_HIGH32 {4, 12, 5, 13, 6, 14, 7, 15}
#define TGC_LOW64 {0, 4, 1, 5}
#define TGC_HIGH64 {2, 6, 3, 7}
#else
#define TGC_LOW32 {0, 4, 1, 5}
#define TGC_HIGH32 {2, 6, 3, 7}
#define TGC_LOW64 {0, 2}
#define TGC_HIGH64 {1, 3}
#endif

/* Transpose a square of lanes x lanes: log2(lanes) rounds of interleaving line i with line
 * i + lanes / 2, each of which moves one bit of the lane's number into that of the line. */
#define TGC_TRANSPOSE(name, V, lanes, low, high)                                   \
    static inline __attribute__((always_inline)) void name(V *lines)               \
    {                                                                              \
        V other[lanes];                                                            \
        _Pragma("GCC unroll 4") for (int round = 1; round < lanes; round *= 2)     \
        {                                                                          \
            _Pragma("GCC unroll 8") for (int i = 0; i < lanes / 2; i++)            \
            {                                                                      \
                other[2 * i] = __builtin_shuffle(lines[i], lines[i + lanes / 2], (V)low);      \
                other[2 * i + 1] = __builtin_shuffle(lines[i], lines[i + lanes / 2], (V)high); \
            }                                                                      \
            _Pragma("GCC unroll 16") for (int i = 0; i < lanes; i++) lines[i] = other[i];      \
        }                                                                          \
    }
TGC_TRANSPOSE(tgc_transpose32, tgc_vu32, TGC_VECTOR / 4, TGC_LOW32, TGC_HIGH32)
TGC_TRANSPOSE(tgc_transpose64, tgc_vu64, TGC_VECTOR / 8, TGC_LOW64, TGC_HIGH64)

#endif
