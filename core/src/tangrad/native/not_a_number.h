/* Whether all of a row of numbers are finite, and where its first NaN is, -1 where there is none.
 * Bits of the exponent are all set in NaN and infinity, and in nothing else. Blocks are looked
 * through without branches, by vectors. */
#ifndef TANGRAD_NOT_A_NUMBER_H
#define TANGRAD_NOT_A_NUMBER_H
#include <stdint.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define TG_ALL_FINITE(NAME, BITS, BYTES, TARGET)                                        \
    TARGET static int NAME(const void *data, int64_t n, BITS exponent)                  \
    {                                                                                   \
        typedef BITS scalar __attribute__((may_alias));                                 \
        typedef BITS vector __attribute__((vector_size(BYTES), aligned(1), may_alias)); \
        const scalar *x = data;                                                         \
        enum { LANES = BYTES / sizeof(BITS), BLOCK = 4 * LANES };                       \
        vector all = {0}, found = {0};                                                  \
        BITS bad = 0;                                                                   \
        int64_t i = 0;                                                                  \
        all |= exponent;                                                                \
        for (; i + BLOCK <= n; i += BLOCK) {                                            \
            const vector *v = (const vector *)(x + i);                                  \
            found |= (vector)((v[0] & all) == all) | (vector)((v[1] & all) == all) |    \
                     (vector)((v[2] & all) == all) | (vector)((v[3] & all) == all);     \
        }                                                                               \
        for (int k = 0; k < LANES; k++)                                                 \
            bad |= found[k];                                                            \
        for (; i < n && !bad; i++)                                                      \
            bad = (x[i] & exponent) == exponent;                                        \
        return !bad;                                                                    \
    }
TG_ALL_FINITE(tg_all_finite_16, uint16_t, 16, )
TG_ALL_FINITE(tg_all_finite_32, uint32_t, 16, )
TG_ALL_FINITE(tg_all_finite_64, uint64_t, 16, )
#if defined(__x86_64__)
/* A third of the instructions: this is most of what looking at every gradient costs. */
#define TG_WIDE __attribute__((target("avx2")))
TG_ALL_FINITE(tg_all_finite_wide_32, uint32_t, 32, TG_WIDE)
TG_ALL_FINITE(tg_all_finite_wide_64, uint64_t, 32, TG_WIDE)

/* Whether processor and system have AVX2; __builtin_cpu_supports would bring 4 KB of code. */
static int tg_is_wide(void)
{
    static int known = -1;
    unsigned a, b, c, d, low, high;
    if (known < 0) {
        known = 0;
        if (__get_cpuid(1, &a, &b, &c, &d) && c & bit_OSXSAVE) {
            __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
            if ((low & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d))
                known = (b & bit_AVX2) != 0;
        }
    }
    return known;
}
#define TG_WIDEST(BITS, data, n, exponent)                           \
    (tg_is_wide() ? tg_all_finite_wide_##BITS(data, n, exponent)     \
                  : tg_all_finite_##BITS(data, n, exponent))
#else
#define TG_WIDEST(BITS, data, n, exponent) tg_all_finite_##BITS(data, n, exponent)
#endif

static inline int tg_all_finite_f32(const void *x, int64_t n) { return TG_WIDEST(32, x, n, 0x7f800000u); }
static inline int tg_all_finite_f64(const void *x, int64_t n) { return TG_WIDEST(64, x, n, 0x7ff0000000000000u); }
static inline int tg_all_finite_f16(const void *x, int64_t n) { return tg_all_finite_16(x, n, 0x7c00u); }
static inline int tg_all_finite_bf16(const void *x, int64_t n) { return tg_all_finite_16(x, n, 0x7f80u); }

#define TG_FIRST_NAN(NAME, TYPE)                                                        \
    static int64_t NAME(const TYPE *x, int64_t n)                                       \
    {                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                 \
            if (x[i] != x[i])                                                           \
                return i;                                                               \
        return -1;                                                                      \
    }
TG_FIRST_NAN(tg_first_nan_f32, float)
TG_FIRST_NAN(tg_first_nan_f64, double)
#endif
