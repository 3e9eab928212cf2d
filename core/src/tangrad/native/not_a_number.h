/* Where the first NaN of a row of numbers is, -1 where there is none. Blocks are looked through
 * without branches, which compilers turn into vector code. */
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
#endif
