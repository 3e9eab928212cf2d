/* Half types as 16 bits of memory and float32 in registers; conversions that GCC vectorises. */
#ifndef TGC_HALF_H
#define TGC_HALF_H

#include <stdint.h>
#include <string.h>

static inline float tgc_load_bfloat16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t tgc_store_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(value != value ? 0x7fc0u : rounded);
}

/* A half's bits, moved to those of a float, are its value times 2^-112, also if it is subnormal;
 * the largest exponent is infinity or nan and stays the largest. */
static inline float tgc_load_float16(uint16_t bits)
{
    uint32_t wide = (uint32_t)(bits & 0x7fff) << 13, result;
    float value;
    memcpy(&value, &wide, sizeof value);
    value *= 0x1p112f;
    memcpy(&result, &value, sizeof result);
    result = wide >= 0x0f800000u ? wide | 0x7f800000u : result;
    result |= (uint32_t)(bits & 0x8000) << 16;
    memcpy(&value, &result, sizeof value);
    return value;
}

/* Rounds to nearest even by adding: in the subnormal range 0.5, whose last bit is theirs. */
static inline uint16_t tgc_store_float16(float value)
{
    uint32_t bits, small;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    memcpy(&value, &size, sizeof value);
    value += 0.5f;
    memcpy(&small, &value, sizeof small);
    uint32_t normal = (size + 0xfffu + (size >> 13 & 1) - 0x38000000u) >> 13;
    uint32_t result = size < 0x38800000u ? small - 0x3f000000u : normal;
    result = size >= 0x477ff000u ? 0x7c00u : result;
    result = size > 0x7f800000u ? 0x7e00u : result;
    return (uint16_t)(sign | result);
}

#endif
