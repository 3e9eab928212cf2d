/* Arrays of float16 and bfloat16 to and from float32, rounding to nearest even. Plain C is branch-free
 * for the vectoriser; hardware instructions where the level has them, except for bfloat16, whose
 * instruction flushes subnormal numbers to zero. */
#ifndef TANGRAD_CPU_HALF_H
#define TANGRAD_CPU_HALF_H

#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline float tgc_bits_to_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t tgc_float_to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float tgc_bf16_to_float(uint16_t h)
{
    return tgc_bits_to_float((uint32_t)h << 16);
}

static inline uint16_t tgc_float_to_bf16(float f)
{
    uint32_t bits = tgc_float_to_bits(f);
    uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

/* The conversions of F. Giesen, "float->half variants" (2012): the exponent is moved by integer
 * arithmetic, and the floating-point unit itself normalises or rounds what is subnormal. */
static inline float tgc_f16_to_float(uint16_t h)
{
    uint32_t shifted = (uint32_t)(h & 0x7FFF) << 13, exponent = shifted & 0x0F800000u;
    uint32_t normal = shifted + ((127u - 15) << 23);
    uint32_t special = normal + ((128u - 16) << 23);
    uint32_t subnormal = tgc_float_to_bits(tgc_bits_to_float(normal + (1u << 23)) - tgc_bits_to_float(113u << 23));
    uint32_t bits = exponent == 0x0F800000u ? special : exponent == 0 ? subnormal : normal;
    return tgc_bits_to_float(bits | (uint32_t)(h & 0x8000) << 16);
}

static inline uint16_t tgc_float_to_f16(float f)
{
    const uint32_t magic = ((127u - 15) + (23 - 10) + 1) << 23;
    uint32_t bits = tgc_float_to_bits(f), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
    uint32_t special = size > 0x7F800000 ? 0x7E00 : 0x7C00;
    uint32_t subnormal = tgc_float_to_bits(tgc_bits_to_float(size) + tgc_bits_to_float(magic)) - magic;
    uint32_t normal = (size - ((127u - 15) << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
    uint32_t half = size >= (127u + 16) << 23 ? special : size < 113u << 23 ? subnormal : normal;
    return (uint16_t)(half | sign);
}

/* Elements may lie at any address: NumPy's packed records have such. */
typedef float tgc_float_anywhere __attribute__((aligned(1)));
typedef uint16_t tgc_half_anywhere __attribute__((aligned(1)));

static inline void tgc_bf16_to_floats(tgc_float_anywhere *restrict to, const tgc_half_anywhere *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = tgc_bf16_to_float(from[i]);
}

static inline void tgc_floats_to_bf16(tgc_half_anywhere *restrict to, const tgc_float_anywhere *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = tgc_float_to_bf16(from[i]);
}

static inline void tgc_f16_to_floats(tgc_float_anywhere *restrict to, const tgc_half_anywhere *restrict from, int64_t n)
{
    int64_t i = 0;
    /* Of a constant number of whole vectors GCC then sees that nothing is left. */
#if defined(__AVX512F__)
    for (; i < (n & ~(int64_t)15); i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + i))));
#elif defined(__F16C__)
    for (; i < (n & ~(int64_t)7); i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#endif
    for (; i < n; i++)
        to[i] = tgc_f16_to_float(from[i]);
}

static inline void tgc_floats_to_f16(tgc_half_anywhere *restrict to, const tgc_float_anywhere *restrict from, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        to[i] = tgc_float_to_f16(from[i]);
}

#endif
