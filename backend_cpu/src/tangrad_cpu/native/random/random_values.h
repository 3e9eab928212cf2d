/* From words of the Philox stream to numbers, as the core's tangrad/random/philox.py defines them:
 * every function makes values first .. first + n - 1 of a stream, where `first` is a multiple of 4.
 *
 * Bits of uniform numbers and integers are those of the definition. It computes normal and
 * exponential numbers in double and rounds once; here those of single precision are computed in
 * single precision, within 3 units in the last place. */
#ifndef TGC_RANDOM_VALUES_H
#define TGC_RANDOM_VALUES_H

#include <math.h>

#include "philox.h"

/* Values made at a time: their words stay in the first-level cache. */
#define TGC_PIECE 1024

#if defined(__FMA__) || defined(__aarch64__)
#define TGC_MULADD(a, b, c) __builtin_fmaf((a), (b), (c))
#else
#define TGC_MULADD(a, b, c) ((a) * (b) + (c))
#endif

typedef struct {
    tgc_philox_keys keys;
    uint64_t offset;
    double a, b; /* uniform: factor, shift; normal: std, mean; exponential: rate */
    int dropped; /* low bits of a word that a uniform number in single precision leaves out */
} tgc_stream;

static inline uint64_t tgc_blocks_of(int64_t words)
{
    return (uint64_t)(words + 3) / 4;
}

static inline void tgc_uniform_f32(const tgc_stream *stream, int64_t first, int64_t n, float *out)
{
    uint32_t words[TGC_PIECE + TGC_PHILOX_SLACK];
    const float factor = (float)stream->a, shift = (float)stream->b;
    const int dropped = stream->dropped;
    const float unit = 1.0f / (float)(1u << (32 - dropped));
    tgc_philox_words(&stream->keys, stream->offset + (uint64_t)first / 4, (int64_t)tgc_blocks_of(n), words);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(int32_t)(words[i] >> dropped) * unit * factor + shift;
}

/* n 64-bit integers of the stream. */
static inline void tgc_integers(const tgc_stream *stream, int64_t first, int64_t n, uint64_t *out)
{
    uint32_t words[2 * TGC_PIECE + TGC_PHILOX_SLACK];
    tgc_philox_words(&stream->keys, stream->offset + (uint64_t)first / 2, (int64_t)tgc_blocks_of(2 * n), words);
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint64_t)words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
}

static inline void tgc_uniform_f64(const tgc_stream *stream, int64_t first, int64_t n, double *out)
{
    uint64_t integers[TGC_PIECE];
    tgc_integers(stream, first, n, integers);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)(int64_t)(integers[i] >> 11) * 0x1p-53 * stream->a + stream->b;
}

/* log(count * 2^-24) for 0 < count <= 2^24. The mantissa is brought to [sqrt(1/2), sqrt(2)), where
 * log(1 + f) = f - f^2/2 + f^3 p(f); p is the polynomial of degree 8 at Chebyshev's points,
 * |error| < 3e-8. The product with log(2) is exact: the constant's high part has 9 bits. */
static inline float tgc_log_of_fraction(uint32_t count)
{
    float x = (float)(int32_t)count, f, square, p, exponent;
    uint32_t bits;
    int32_t power;
    memcpy(&bits, &x, sizeof bits);
    power = (int32_t)(bits - 0x3f3504f3u) >> 23;
    bits -= (uint32_t)power << 23;
    memcpy(&f, &bits, sizeof f);
    f -= 1.0f;
    exponent = (float)(power - 24);
    square = f * f;
    p = 0.06971611f;
    p = TGC_MULADD(p, f, -0.11479734f);
    p = TGC_MULADD(p, f, 0.1168542f);
    p = TGC_MULADD(p, f, -0.12425687f);
    p = TGC_MULADD(p, f, 0.14249058f);
    p = TGC_MULADD(p, f, -0.16667802f);
    p = TGC_MULADD(p, f, 0.20000716f);
    p = TGC_MULADD(p, f, -0.24999997f);
    p = TGC_MULADD(p, f, 0.33333331f);
    p = TGC_MULADD(p * f, square, exponent * -2.12194440e-4f);
    p = TGC_MULADD(-0.5f * f, f, p);
    /* What the first sum rounds off is added to the small part: one rounding is left. */
    float high = exponent * 0.693359375f, sum = high + f;
    return sum + ((f - (sum - high)) + p);
}

/* cos(2 pi count 2^-24) for 0 <= count < 2^24, from the nearest quarter turn: what is left, z in
 * [-1/8, 1/8], is exact. The polynomials are those at Chebyshev's points of (sin(2 pi z) / z - 2 pi) / z^2
 * and (cos(2 pi z) - 1) / z^2 in z^2; 2 pi is added in two parts. */
static inline float tgc_cos_of_turn(uint32_t count)
{
    uint32_t quarter = (count + (1u << 21)) >> 22, bits;
    float z = (float)((int32_t)count - (int32_t)(quarter << 22)) * 0x1p-24f, square = z * z, sine, cosine;
    sine = 41.589542f;
    sine = TGC_MULADD(sine, square, -76.70129f);
    sine = TGC_MULADD(sine, square, 81.60523f);
    sine = TGC_MULADD(sine, square, -41.3417f);
    sine = TGC_MULADD(sine, square, -1.7484556e-7f);
    sine = TGC_MULADD(z, 6.2831855f, z * sine);
    cosine = 59.424107f;
    cosine = TGC_MULADD(cosine, square, -85.44882f);
    cosine = TGC_MULADD(cosine, square, 64.93937f);
    cosine = TGC_MULADD(cosine, square, -19.739208f);
    cosine = TGC_MULADD(cosine, square, 1.0f);
    cosine = quarter & 1 ? sine : cosine;
    memcpy(&bits, &cosine, sizeof bits);
    bits ^= ((quarter + 1) & 2) << 30;
    memcpy(&cosine, &bits, sizeof cosine);
    return cosine;
}

/* Box and Muller's transform. */
static inline void tgc_normal_f32(const tgc_stream *stream, int64_t first, int64_t n, float *out)
{
    uint32_t u[TGC_PIECE + TGC_PHILOX_SLACK], v[TGC_PIECE + TGC_PHILOX_SLACK];
    const float std = (float)stream->a, mean = (float)stream->b;
    tgc_philox_pairs(&stream->keys, stream->offset + (uint64_t)first / 2, (int64_t)tgc_blocks_of(2 * n), u, v);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float radius = __builtin_sqrtf(-2.0f * tgc_log_of_fraction((1u << 24) - (u[i] >> 8)));
        out[i] = radius * tgc_cos_of_turn(v[i] >> 8);
    }
    if (std != 1.0f || mean != 0.0f)
        for (int64_t i = 0; i < n; i++)
            out[i] = out[i] * std + mean;
}

static inline void tgc_normal_f64(const tgc_stream *stream, int64_t first, int64_t n, double *out)
{
    uint64_t integers[2 * TGC_PIECE];
    for (int64_t half = 0; half < n; half += TGC_PIECE / 2) {
        int64_t count = n - half < TGC_PIECE / 2 ? n - half : TGC_PIECE / 2;
        tgc_integers(stream, 2 * (first + half), 2 * count, integers);
        for (int64_t i = 0; i < count; i++) {
            double u = (double)(int64_t)(integers[2 * i] >> 11) * 0x1p-53;
            double v = (double)(int64_t)(integers[2 * i + 1] >> 11) * 0x1p-53;
            double value = sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * v);
            out[half + i] = value * stream->a + stream->b;
        }
    }
}

static inline void tgc_exponential_f32(const tgc_stream *stream, int64_t first, int64_t n, float *out)
{
    uint32_t words[TGC_PIECE + TGC_PHILOX_SLACK];
    const double rate = stream->a;
    tgc_philox_words(&stream->keys, stream->offset + (uint64_t)first / 4, (int64_t)tgc_blocks_of(n), words);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        out[i] = tgc_log_of_fraction((1u << 24) - (words[i] >> 8));
    /* The absolute value: the negative of log(1) is a negative zero. */
    for (int64_t i = 0; i < n; i++)
        out[i] = __builtin_fabsf((float)((double)out[i] / rate));
}

static inline void tgc_exponential_f64(const tgc_stream *stream, int64_t first, int64_t n, double *out)
{
    uint64_t integers[TGC_PIECE];
    tgc_integers(stream, first, n, integers);
    for (int64_t i = 0; i < n; i++)
        out[i] = fabs(log(1.0 - (double)(int64_t)(integers[i] >> 11) * 0x1p-53) / stream->a);
}

/* How many of the 2^24 values of a uniform number lie below p: u < p is then a comparison of integers. */
static inline uint32_t tgc_threshold(double p)
{
    double count = ceil(p * 0x1p24);
    return count <= 0 ? 0 : count >= 0x1p24 ? 1u << 24 : (uint32_t)count;
}

#endif
