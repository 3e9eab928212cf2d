/* bfloat16 and float16 as vectors and numbers of float32. */
#ifndef TANGRAD_CPU_GEMM_HALF_H
#define TANGRAD_CPU_GEMM_HALF_H

#include "simd.h"

static inline float tgc_bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t tgc_f32_to_bf16(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, 4);
    uint32_t rounded = (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
    return (uint16_t)(value != value ? wide >> 16 | 0x40 : rounded);
}

static inline float tgc_f16_to_f32(uint16_t bits)
{
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (float)half;
}

static inline uint16_t tgc_f32_to_f16(float value)
{
    _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return bits;
}

#if TGC_VECTOR == 64
static inline tgc_vf tgc_read_bf16(const uint16_t *from)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from));
    return (tgc_vf)_mm512_slli_epi32(wide, 16);
}
static inline tgc_vf tgc_read_f16(const uint16_t *from)
{
    return (tgc_vf)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}
#elif TGC_VECTOR == 32
static inline tgc_vf tgc_read_bf16(const uint16_t *from)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)from));
    return (tgc_vf)_mm256_slli_epi32(wide, 16);
}
static inline tgc_vf tgc_read_f16(const uint16_t *from)
{
    return (tgc_vf)_mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}
#else
static inline tgc_vf tgc_read_bf16(const uint16_t *from)
{
    tgc_vf wide;
    for (int i = 0; i < TGC_VECTOR / 4; i++)
        wide[i] = tgc_bf16_to_f32(from[i]);
    return wide;
}
static inline tgc_vf tgc_read_f16(const uint16_t *from)
{
    tgc_vf wide;
    for (int i = 0; i < TGC_VECTOR / 4; i++)
        wide[i] = tgc_f16_to_f32(from[i]);
    return wide;
}
#endif

static inline tgc_vf tgc_read_bf16_part(const uint16_t *from, int64_t n)
{
    uint16_t whole[TGC_VECTOR / 4] = {0};
    memcpy(whole, from, (size_t)n * 2);
    return tgc_read_bf16(whole);
}

static inline tgc_vf tgc_read_f16_part(const uint16_t *from, int64_t n)
{
    uint16_t whole[TGC_VECTOR / 4] = {0};
    memcpy(whole, from, (size_t)n * 2);
    return tgc_read_f16(whole);
}

#endif
