/* The sum of VALUE, an expression in `at`, over the places of a row: partial sums in lanes, which are
 * folded pairwise and handed on to the float64 `total` after each block. */
#ifndef TANGRAD_CPU_ROW_SUM_H
#define TANGRAD_CPU_ROW_SUM_H

#include <stdint.h>

#define TGC_ROW_SUM(TYPE, LANES_, BLOCK_, total, n, VALUE)                                                             \
    for (int64_t begin = 0; begin < (n); begin += (BLOCK_)) {                                                          \
        const int64_t end = begin + (BLOCK_) < (n) ? begin + (BLOCK_) : (n);                                           \
        TYPE lane[LANES_] = {0};                                                                                       \
        int64_t i = begin;                                                                                             \
        for (; i + (LANES_) <= end; i += (LANES_))                                                                     \
            for (int k = 0; k < (LANES_); k++) {                                                                       \
                const int64_t at = i + k;                                                                              \
                lane[k] += (VALUE);                                                                                    \
            }                                                                                                          \
        const int64_t rest = end - i;                                                                                  \
        for (int k = 0; k < rest; k++) {                                                                               \
            const int64_t at = i + k;                                                                                  \
            lane[k] += (VALUE);                                                                                        \
        }                                                                                                              \
        _Pragma("GCC unroll 8") for (int half = (LANES_) / 2; half; half /= 2)                                        \
            for (int k = 0; k < half; k++)                                                                             \
                lane[k] += lane[k + half];                                                                             \
        total += (double)lane[0];                                                                                      \
    }

#endif
