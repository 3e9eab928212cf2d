/* Rows of half and bfloat16 numbers to float32 and back, rounded to nearest even. */
#ifndef TGC_HALF_H
#define TGC_HALF_H

#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline float tgc_float_of_half(uint16_t bits)
{
    /* A subnormal half is an integer times 2^-24. */
    uint32_t sign = (uint32_t)(bits >> 15) << 31, exponent = (bits >> 10) & 31, fraction = bits & 1023, word;
    float small = (float)fraction * 0x1p-24f, value;
    memcpy(&word, &small, sizeof word);
    if (exponent != 0)
        word = (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    word |= sign;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline uint16_t tgc_half_of_float(float value)
{
    uint32_t word, size, moved;
    memcpy(&word, &value, sizeof word);
    uint32_t sign = (word >> 16) & 0x8000u;
    size = word & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (size >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) {
        /* Adding 0.5 brings the last bit of a subnormal half to the last bit of the float, and rounds. */
        float magnitude;
        memcpy(&magnitude, &size, sizeof magnitude);
        magnitude += 0.5f;
        memcpy(&moved, &magnitude, sizeof moved);
        return (uint16_t)(sign | (moved - 0x3f000000u));
    }
    return (uint16_t)(sign | ((size + 0xfffu + ((size >> 13) & 1) - 0x38000000u) >> 13));
}

static inline void tgc_load_f16(float *out, const uint16_t *in, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i))));
#endif
    for (; i < n; i++)
        out[i] = tgc_float_of_half(in[i]);
}

static inline void tgc_store_f16(uint16_t *out, const float *in, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        out[i] = tgc_half_of_float(in[i]);
}

static inline void tgc_load_bf16(float *out, const uint16_t *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = (uint32_t)in[i] << 16;
        memcpy(out + i, &word, sizeof word);
    }
}

static inline void tgc_store_bf16(uint16_t *out, const float *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, in + i, sizeof word);
        uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1)) >> 16;
        out[i] = (uint16_t)((word & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
    }
}

#endif
