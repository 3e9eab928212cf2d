/* Blocks of Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011), several at once; the stream is defined by the core's tangrad/random/philox.py.
 *
 * A word lives in the low half of a 64-bit lane. The multiply reads low halves only, so that of its
 * product the high half is one word after a shift and the low half another as it is; what is left in
 * the high halves never matters. */
#ifndef TGC_PHILOX_H
#define TGC_PHILOX_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define TGC_PHILOX_LANES 8
#elif defined(__AVX2__)
#define TGC_PHILOX_LANES 4
#else
#define TGC_PHILOX_LANES 2
#endif

/* How far past the last word wanted the functions below may write, in words. */
#define TGC_PHILOX_SLACK (4 * TGC_PHILOX_LANES)

typedef uint64_t tgc_lanes __attribute__((vector_size(8 * TGC_PHILOX_LANES)));
typedef uint64_t tgc_lanes_at __attribute__((vector_size(8 * TGC_PHILOX_LANES), aligned(4), may_alias));

typedef struct {
    uint32_t key[10][2];
} tgc_philox_keys;

static inline void tgc_philox_schedule(tgc_philox_keys *keys, uint64_t seed)
{
    for (uint32_t round = 0; round < 10; round++) {
        keys->key[round][0] = (uint32_t)seed + round * 0x9E3779B9u;
        keys->key[round][1] = (uint32_t)(seed >> 32) + round * 0xBB67AE85u;
    }
}

static inline tgc_lanes tgc_lanes_multiply(tgc_lanes a, uint32_t factor)
{
#if defined(__AVX512F__)
    return (tgc_lanes)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64((int64_t)(uint64_t)factor));
#elif defined(__AVX2__)
    return (tgc_lanes)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x((int64_t)(uint64_t)factor));
#elif defined(__SSE2__)
    return (tgc_lanes)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x((int64_t)(uint64_t)factor));
#else
    return (a & 0xffffffffu) * (uint64_t)factor;
#endif
}

/* The low words of `low` and `high` side by side, `low` first in memory. */
static inline tgc_lanes tgc_lanes_pair(tgc_lanes low, tgc_lanes high)
{
#if defined(__AVX512F__)
    return (tgc_lanes)_mm512_mask_shuffle_epi32((__m512i)low, 0xaaaa, (__m512i)high, (_MM_PERM_ENUM)0xa0);
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (low << 32) | (high & 0xffffffffu);
#else
    return (low & 0xffffffffu) | (high << 32);
#endif
}

/* The four words of the blocks at `counter`, one block per lane. */
static inline __attribute__((always_inline)) void tgc_philox_blocks(const tgc_philox_keys *keys, tgc_lanes counter,
                                                                    tgc_lanes c[4])
{
    /* The third and fourth input words are zero, so half of the first round is. */
    tgc_lanes product = tgc_lanes_multiply(counter, 0xD2511F53u);
    c[0] = (counter >> 32) ^ (uint64_t)keys->key[0][0];
    c[1] = (tgc_lanes){0};
    c[2] = (product >> 32) ^ (uint64_t)keys->key[0][1];
    c[3] = product;
    for (int round = 1; round < 10; round++) {
        tgc_lanes first = tgc_lanes_multiply(c[0], 0xD2511F53u), second = tgc_lanes_multiply(c[2], 0xCD9E8D57u);
        c[0] = (second >> 32) ^ c[1] ^ (uint64_t)keys->key[round][0];
        c[1] = second;
        c[2] = (first >> 32) ^ c[3] ^ (uint64_t)keys->key[round][1];
        c[3] = first;
    }
}

/* Words 0 .. 4 * blocks - 1 of the stream from `counter` on, in order. */
static inline void tgc_philox_words(const tgc_philox_keys *keys, uint64_t counter, int64_t blocks, uint32_t *out)
{
    /* This order of the blocks makes the interleaved halves come out in order. */
#if TGC_PHILOX_LANES == 8
    tgc_lanes at = (tgc_lanes){0, 4, 1, 5, 2, 6, 3, 7} + counter;
#elif TGC_PHILOX_LANES == 4
    tgc_lanes at = (tgc_lanes){0, 2, 1, 3} + counter;
#else
    tgc_lanes at = (tgc_lanes){0, 1} + counter;
#endif
    for (int64_t block = 0; block < blocks; block += TGC_PHILOX_LANES) {
        tgc_lanes c[4];
        tgc_philox_blocks(keys, at, c);
        tgc_lanes a = tgc_lanes_pair(c[0], c[1]), b = tgc_lanes_pair(c[2], c[3]);
        tgc_lanes_at *to = (tgc_lanes_at *)(out + 4 * block);
#if TGC_PHILOX_LANES == 8
        to[0] = __builtin_shuffle(a, b, (tgc_lanes){0, 8, 2, 10, 4, 12, 6, 14});
        to[1] = __builtin_shuffle(a, b, (tgc_lanes){1, 9, 3, 11, 5, 13, 7, 15});
#elif TGC_PHILOX_LANES == 4
        to[0] = __builtin_shuffle(a, b, (tgc_lanes){0, 4, 2, 6});
        to[1] = __builtin_shuffle(a, b, (tgc_lanes){1, 5, 3, 7});
#else
        to[0] = __builtin_shuffle(a, b, (tgc_lanes){0, 2});
        to[1] = __builtin_shuffle(a, b, (tgc_lanes){1, 3});
#endif
        at += TGC_PHILOX_LANES;
    }
}

/* The same words, those of even and of odd position apart: value i takes even[i] and odd[i]. */
static inline void tgc_philox_pairs(const tgc_philox_keys *keys, uint64_t counter, int64_t blocks, uint32_t *even,
                                    uint32_t *odd)
{
    tgc_lanes at;
    for (int lane = 0; lane < TGC_PHILOX_LANES; lane++)
        at[lane] = counter + (uint64_t)lane;
    for (int64_t block = 0; block < blocks; block += TGC_PHILOX_LANES) {
        tgc_lanes c[4];
        tgc_philox_blocks(keys, at, c);
        *(tgc_lanes_at *)(even + 2 * block) = tgc_lanes_pair(c[0], c[2]);
        *(tgc_lanes_at *)(odd + 2 * block) = tgc_lanes_pair(c[1], c[3]);
        at += TGC_PHILOX_LANES;
    }
}

#endif
