/* Packing into panels: `width` lines side by side, one run of k after the other, so that the
 * microkernel reads memory in order. A template: define
 *   PK_NAME, PK_S (type in memory), PK_T (type in the panel), PK_CONVERT (one element),
 *   PK_LOAD (a vector of elements), PK_BITS (32 or 64, of PK_T; 0: no square to transpose)
 * and include. It gives PK_NAME(to, from, count, width, k, stride, k_stride). */
#include "simd.h"

#define PK_JOIN_(a, b) a##b
#define PK_JOIN(a, b) PK_JOIN_(a, b)
#define PK_LANES ((int64_t)(TGC_VECTOR / sizeof(PK_T)))

/* Lines lie side by side in memory already. */
static inline void PK_JOIN(PK_NAME, _rows)(PK_T *to, const PK_S *from, int64_t count, int64_t width, int64_t k,
                                           int64_t k_stride)
{
    for (int64_t p = 0; p < k; p++, to += width, from += k_stride) {
        int64_t i = 0;
        if (count == width) {
            for (; i + PK_LANES <= width; i += PK_LANES) {
                PK_V v = PK_LOAD(from + i);
                memcpy(to + i, &v, sizeof v);
            }
        }
        for (; i < count; i++)
            to[i] = PK_CONVERT(from[i]);
        for (; i < width; i++)
            to[i] = 0;
    }
}

static inline void PK_JOIN(PK_NAME, _any)(PK_T *to, const PK_S *from, int64_t count, int64_t width, int64_t k,
                                          int64_t stride, int64_t k_stride)
{
    for (int64_t p = 0; p < k; p++, to += width, from += k_stride) {
        for (int64_t i = 0; i < count; i++)
            to[i] = PK_CONVERT(from[i * stride]);
        for (int64_t i = count; i < width; i++)
            to[i] = 0;
    }
}

#if PK_BITS
/* Every line is contiguous: transpose squares in registers. A square's lines beyond the panel's
 * width spill into what is written later, or into the slack: hence from the last to the first. */
static inline void PK_JOIN(PK_NAME, _lines)(PK_T *to, const PK_S *from, int64_t count, int64_t width, int64_t k,
                                            int64_t stride)
{
    int64_t p = 0;
    for (; p + PK_LANES <= k; p += PK_LANES) {
        for (int64_t first = (width - 1) / PK_LANES * PK_LANES; first >= 0; first -= PK_LANES) {
            PK_V square[PK_LANES];
            const PK_S *line = from + first * stride + p;
            if (first + PK_LANES <= count) {
#pragma GCC unroll 16
                for (int i = 0; i < PK_LANES; i++)
                    square[i] = PK_LOAD(line + i * stride);
            } else {
                for (int i = 0; i < PK_LANES; i++) {
                    square[i] = (PK_V){0};
                    if (first + i < count)
                        square[i] = PK_LOAD(line + i * stride);
                }
            }
            PK_JOIN(tgc_transpose, PK_BITS)((void *)square);
            PK_T *out = to + p * width + first;
#pragma GCC unroll 16
            for (int i = 0; i < PK_LANES; i++)
                memcpy(out + i * width, &square[i], sizeof(PK_V));
        }
    }
    PK_JOIN(PK_NAME, _any)(to + p * width, from + p, count, width, k - p, stride, 1);
}
#endif

static inline __attribute__((always_inline)) void PK_NAME(void *to, const void *from, int64_t count, const int64_t width,
                                                          int64_t k, int64_t stride, int64_t k_stride)
{
    if (stride == 1)
        PK_JOIN(PK_NAME, _rows)(to, from, count, width, k, k_stride);
#if PK_BITS
    else if (k_stride == 1)
        PK_JOIN(PK_NAME, _lines)(to, from, count, width, k, stride);
#endif
    else
        PK_JOIN(PK_NAME, _any)(to, from, count, width, k, stride, k_stride);
}

#undef PK_JOIN
#undef PK_JOIN_
#undef PK_LANES
#undef PK_NAME
#undef PK_S
#undef PK_T
#undef PK_V
#undef PK_CONVERT
#undef PK_LOAD
#undef PK_BITS
