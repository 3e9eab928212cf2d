/* Where the first NaN of a row of numbers is, -1 where there is none, and whether all are finite.
 * Blocks are looked through without branches, which compilers turn into vector code. */
#ifndef TANGRAD_NOT_A_NUMBER_H
#define TANGRAD_NOT_A_NUMBER_H
#include <stdint.h>

#define TG_FIRST_NAN(NAME, TYPE, BITS)                                      \
    __attribute__((optimize("O3"))) static int64_t NAME(const TYPE *x, int64_t n) \
    {                                                                       \
        for (int64_t begin = 0; begin < n; begin += 4096) {                 \
            int64_t end = n - begin < 4096 ? n : begin + 4096;              \
            BITS found = 0;                                                 \
            for (int64_t i = begin; i < end; i++)                           \
                found |= (BITS)(x[i] != x[i]);                              \
            for (int64_t i = begin; found && i < end; i++)                  \
                if (x[i] != x[i])                                           \
                    return i;                                               \
        }                                                                   \
        return -1;                                                          \
    }
TG_FIRST_NAN(tg_first_nan_f32, float, uint32_t)
TG_FIRST_NAN(tg_first_nan_f64, double, uint64_t)

/* Bits of the exponent are all set in NaN and infinity, and in nothing else. */
#define TG_ALL_FINITE(NAME, BITS, EXPONENT)                                 \
    __attribute__((optimize("O3"))) static int NAME(const void *data, int64_t n) \
    {                                                                       \
        const BITS *x = data;                                               \
        BITS found = 0;                                                     \
        for (int64_t i = 0; i < n; i++)                                     \
            found |= (BITS)((x[i] & EXPONENT) == EXPONENT);                 \
        return !found;                                                      \
    }
TG_ALL_FINITE(tg_all_finite_f32, uint32_t, 0x7f800000u)
TG_ALL_FINITE(tg_all_finite_f64, uint64_t, 0x7ff0000000000000u)
TG_ALL_FINITE(tg_all_finite_f16, uint16_t, 0x7c00u)
TG_ALL_FINITE(tg_all_finite_bf16, uint16_t, 0x7f80u)
#endif
