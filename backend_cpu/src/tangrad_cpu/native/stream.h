/* Stores past the caches, for results that are larger than these: an ordinary store reads the line
 * first, and puts out what the next kernel might have found there. */
#ifndef TGC_STREAM_H
#define TGC_STREAM_H

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

/* From so many bytes on no result is expected to stay in a cache. */
#define TGC_STREAM_LEAST ((int64_t)32 << 20)
/* What is computed before it is stored: so little that reading and storing overlap. */
#define TGC_STREAM_TILE 2048

static inline int tgc_streams(const void *to, int64_t nbytes)
{
    return nbytes >= TGC_STREAM_LEAST && ((uintptr_t)to & 63) == 0;
}

/* Both addresses are aligned to 64 bytes. */
static inline void tgc_stream(void *to, const void *from, int64_t nbytes)
{
    int64_t lines = 0;
#if defined(__AVX512F__)
    for (lines = 0; lines < nbytes / 64; lines++)
        _mm512_stream_si512((__m512i *)to + lines, _mm512_load_si512((const __m512i *)from + lines));
#elif defined(__SSE2__)
    for (lines = 0; lines < nbytes / 64; lines++)
        for (int k = 0; k < 4; k++)
            _mm_stream_si128((__m128i *)to + 4 * lines + k, _mm_load_si128((const __m128i *)from + 4 * lines + k));
#endif
    memcpy((char *)to + 64 * lines, (const char *)from + 64 * lines, (size_t)(nbytes - 64 * lines));
}

/* To be called before another thread may read what was streamed. */
static inline void tgc_stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

#endif
