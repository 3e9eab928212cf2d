/* CRC-32 as zip files have it (polynomial 0x04C11DB7, bits reversed), by carry-less products.
 *
 * Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction"
 * (Intel, 2009): four 128-bit remainders are carried 64 bytes ahead at a time, then folded to one,
 * and Barrett's reduction ends. Where four such products are one instruction, the remainders have
 * 512 bits, and 256 bytes are one step. The constants are powers of x modulo the polynomial, as the
 * paper lists them: to carry n bits ahead, x^(n+32) and x^(n-32) with their bits reversed. Heads
 * and tails, and processors without the instruction, take a table. */
#include "crc32.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define CARRYLESS __attribute__((target("pclmul,sse4.1")))
#define WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

static inline CARRYLESS __m128i fold(__m128i remainder, __m128i constants, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(remainder, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(remainder, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* The constants that carry a remainder that many bits ahead. */
#define AHEAD_2048 0x01322d1430, 0x011542778a
#define AHEAD_512 0x01c6e41596, 0x0154442bd4
#define AHEAD_128 0x00ccaa009e, 0x01751997d0

/* The checksum of what left a remainder, followed by a multiple of 16 bytes. */
static CARRYLESS uint32_t reduced(__m128i a, const __m128i *at, size_t count)
{
    const __m128i by_128 = _mm_set_epi64x(AHEAD_128);
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_half = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i b;
    for (; count; count -= 16, at++)
        a = fold(a, by_128, _mm_loadu_si128(at));
    /* 128 bits to 64, 64 to 32. */
    b = _mm_clmulepi64_si128(a, by_128, 0x10);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), b);
    b = _mm_srli_si128(a, 4);
    a = _mm_clmulepi64_si128(_mm_and_si128(a, low_half), by_64, 0x00);
    a = _mm_xor_si128(a, b);
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low_half), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_half), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}

/* The checksum of at least 64 bytes, a multiple of 16. */
static CARRYLESS uint32_t by_products(uint32_t crc, const unsigned char *data, size_t count)
{
    const __m128i by_512 = _mm_set_epi64x(AHEAD_512);
    const __m128i by_128 = _mm_set_epi64x(AHEAD_128);
    const __m128i *at = (const __m128i *)data;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128((int)crc));
    __m128i b = _mm_loadu_si128(at + 1), c = _mm_loadu_si128(at + 2), d = _mm_loadu_si128(at + 3);
    at += 4;
    count -= 64;
    for (; count >= 64; count -= 64, at += 4) {
        a = fold(a, by_512, _mm_loadu_si128(at));
        b = fold(b, by_512, _mm_loadu_si128(at + 1));
        c = fold(c, by_512, _mm_loadu_si128(at + 2));
        d = fold(d, by_512, _mm_loadu_si128(at + 3));
    }
    a = fold(a, by_128, b);
    a = fold(a, by_128, c);
    a = fold(a, by_128, d);
    return reduced(a, at, count);
}

static inline WIDE __m512i fold_wide(__m512i remainder, __m512i constants, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(remainder, constants, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(remainder, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

/* The checksum of at least 256 bytes, a multiple of 16. */
static WIDE uint32_t by_wide_products(uint32_t crc, const unsigned char *data, size_t count)
{
    const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(AHEAD_2048));
    const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(AHEAD_512));
    const __m128i by_128 = _mm_set_epi64x(AHEAD_128);
    const unsigned char *at = data;
    __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 64);
    __m512i c = _mm512_loadu_si512(at + 128), d = _mm512_loadu_si512(at + 192);
    __m128i narrow;
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    at += 256;
    count -= 256;
    for (; count >= 256; count -= 256, at += 256) {
        a = fold_wide(a, by_2048, _mm512_loadu_si512(at));
        b = fold_wide(b, by_2048, _mm512_loadu_si512(at + 64));
        c = fold_wide(c, by_2048, _mm512_loadu_si512(at + 128));
        d = fold_wide(d, by_2048, _mm512_loadu_si512(at + 192));
    }
    a = fold_wide(a, by_512, b);
    a = fold_wide(a, by_512, c);
    a = fold_wide(a, by_512, d);
    narrow = fold(_mm512_castsi512_si128(a), by_128, _mm512_extracti32x4_epi32(a, 1));
    narrow = fold(narrow, by_128, _mm512_extracti32x4_epi32(a, 2));
    narrow = fold(narrow, by_128, _mm512_extracti32x4_epi32(a, 3));
    return reduced(narrow, (const __m128i *)at, count);
}

static int has_wide_products(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
           __builtin_cpu_supports("pclmul");
}

static int has_products(void)
{
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
static uint32_t by_products(uint32_t crc, const unsigned char *data, size_t count)
{
    (void)data, (void)count;
    return crc;
}

#define by_wide_products by_products

static int has_wide_products(void)
{
    return 0;
}

static int has_products(void)
{
    return 0;
}
#endif

static uint32_t table[256], table_c[256];

static void fill(uint32_t *entries, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ polynomial : value >> 1;
        entries[byte] = value;
    }
}

void tg_crc32_prepare(void)
{
    fill(table, 0xEDB88320u);
    fill(table_c, 0x82F63B78u);
}

uint32_t tg_crc32(uint32_t crc, const unsigned char *data, size_t count)
{
    crc = ~crc;
    if (count >= 64 && has_products()) {
        size_t whole = count & ~(size_t)15;
        crc = whole >= 256 && has_wide_products() ? by_wide_products(crc, data, whole)
                                                  : by_products(crc, data, whole);
        data += whole;
        count -= whole;
    }
    for (; count; count--)
        crc = crc >> 8 ^ table[(crc ^ *data++) & 255];
    return ~crc;
}

uint32_t tg_crc32c(const unsigned char *data, size_t count)
{
    uint32_t crc = ~0u;
    for (; count; count--)
        crc = crc >> 8 ^ table_c[(crc ^ *data++) & 255];
    return ~crc;
}
