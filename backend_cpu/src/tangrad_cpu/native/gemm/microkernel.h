/* The innermost product, for one element type: a tile of accumulators held in registers over the
 * whole run of k, after Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
 * 2008, and Van Zee & van de Geijn, "BLIS", 2015. A template: define
 *   MK_NAME, MK_T (element), MK_V (vector), MK_FMA, MK_LOAD, MK_STORE (the first n lanes)
 * and include; MK_FMA_FROM where there is a multiplication by an element in memory, MK_ADD where
 * sums are not added by +, MK_PANELS_ONLY to leave out the second. It gives MK_NAME##_kernel, over
 * packed panels, and MK_NAME##_direct. */
#include "simd.h"

#ifndef MK_ADD
#define MK_ADD(a, b) ((a) + (b))
#endif
#define MK_JOIN_(a, b) a##b
#define MK_JOIN(a, b) MK_JOIN_(a, b)
#define MK_LANES ((int64_t)(TGC_VECTOR / sizeof(MK_T)))
#define MK_U MK_JOIN(MK_V, _unaligned)

#define MK_ROW(i)                                                                                     \
    ((i < 7 ? near : far) + (i % 7 == 0   ? 0                                                         \
                             : i % 7 == 1 ? one                                                       \
                             : i % 7 == 2 ? 2 * one                                                   \
                             : i % 7 == 3 ? three                                                     \
                             : i % 7 == 4 ? 4 * one                                                   \
                             : i % 7 == 5 ? five                                                      \
                                          : 2 * three))
/* GCC would compute one from another where it is used. */
#define MK_OPAQUE(...) __asm__("" : MK_OPAQUE_(__VA_ARGS__))
#define MK_OPAQUE_(x, y, z) "+r"(x), "+r"(y), "+r"(z)

/* `rows` and `vectors` are constants in every call, so the tile lives in registers. The last of
 * the vectors has `tail` lanes that count; B is padded where it is packed. */
static inline __attribute__((always_inline)) void
MK_JOIN(MK_NAME, _tile)(const int rows, const int vectors, const int packed, int64_t k, const MK_T *a, int64_t a_row,
                        int64_t a_col, const MK_T *b, int64_t b_row, int64_t tail, MK_T *c, int64_t c_row,
                        int accumulate, const tgc_ahead *next)
{
    MK_V sum[TGC_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] = (MK_V){0};
    /* Old values of C come from far; what follows in the panels, from the second-level cache. */
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            __builtin_prefetch(c + i * c_row + j * MK_LANES, 1);
    const char *fetched = next->at;
    int64_t step = next->step;
    /* Rows of A where they lie, as one of two pointers and a multiple of one of three distances: an
     * addition per row would take as many slots of the processor's front as a multiplication. */
    const char *near = (const char *)a, *far = near + 7 * a_row * (int64_t)sizeof(MK_T);
    int64_t one = a_row * (int64_t)sizeof(MK_T), three = 3 * one, five = 5 * one;
    int64_t a_step = a_col * (int64_t)sizeof(MK_T);
    if (!packed)
        MK_OPAQUE(one, three, five);
    for (int64_t p = 0; p < k; p += 2) {
        if (packed) {
            __builtin_prefetch(fetched, 0, 2);
            fetched += step;
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            if (half && p + 1 == k)
                break;
            MK_V line[2];
            if (packed) {
                __builtin_prefetch(a + 32 * TGC_ROWS);
            } else {
                __builtin_prefetch(fetched, 0, 2);
                fetched += step;
            }
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                line[j] = packed || j + 1 < vectors ? (MK_V)*(const MK_U *)(b + j * MK_LANES)
                                                    : MK_LOAD(b + j * MK_LANES, tail);
#pragma GCC unroll 14
            for (int i = 0; i < rows; i++) {
#ifdef MK_FMA_FROM
                /* Every third row is broadcast as it is multiplied: fewer instructions pass the front,
                 * which two threads of a core share, and loads still take less time than sums. */
                if (packed && vectors == 2 && i % 3 == 1) {
#pragma GCC unroll 2
                    for (int j = 0; j < vectors; j++)
                        sum[i][j] = MK_FMA_FROM(a + i, line[j], sum[i][j]);
                    continue;
                }
#endif
                const MK_T *from = packed ? a + i : (const MK_T *)MK_ROW(i);
                MK_V factor = *from - (MK_V){0};
#pragma GCC unroll 2
                for (int j = 0; j < vectors; j++)
                    sum[i][j] = MK_FMA(factor, line[j], sum[i][j]);
            }
            a += TGC_ROWS;
            near += a_step;
            far += a_step;
            b += packed ? 2 * MK_LANES : b_row;
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            MK_T *to = c + i * c_row + j * MK_LANES;
            if (j + 1 < vectors || tail == MK_LANES) {
                MK_V old = accumulate ? (MK_V)*(const MK_U *)to : (MK_V){0};
                *(MK_U *)to = accumulate ? MK_ADD(sum[i][j], old) : sum[i][j];
            } else {
                MK_STORE(to, accumulate ? MK_ADD(sum[i][j], MK_LOAD(to, tail)) : sum[i][j], tail);
            }
        }
    }
}

#define MK_CASE(r)                                                                                       \
    case r:                                                                                              \
        MK_JOIN(MK_NAME, _tile)(r, MK_VECTORS, MK_PACKED, k, a, a_row, a_col, b, b_row, tail, c, c_row, \
                                accumulate, next);                                                             \
        return;
#if TGC_ROWS == 14
#define MK_CASES MK_CASE(1) MK_CASE(2) MK_CASE(3) MK_CASE(4) MK_CASE(5) MK_CASE(6) MK_CASE(7) MK_CASE(8) \
    MK_CASE(9) MK_CASE(10) MK_CASE(11) MK_CASE(12) MK_CASE(13) MK_CASE(14)
#else
#define MK_CASES MK_CASE(1) MK_CASE(2) MK_CASE(3) MK_CASE(4) MK_CASE(5) MK_CASE(6)
#endif
#define MK_VARIANT(name)                                                                                   \
    static __attribute__((noinline)) void name(int64_t rows, int64_t k, const MK_T *a, int64_t a_row,      \
                                               int64_t a_col, const MK_T *b, int64_t b_row, int64_t tail,  \
                                               MK_T *c, int64_t c_row, int accumulate, const tgc_ahead *next)   \
    {                                                                                                      \
        switch (rows) {                                                                                    \
            MK_CASES                                                                                       \
        }                                                                                                  \
    }

#define MK_PACKED 1
#define MK_VECTORS 1
MK_VARIANT(MK_JOIN(MK_NAME, _packed1))
#undef MK_VECTORS
#define MK_VECTORS 2
MK_VARIANT(MK_JOIN(MK_NAME, _packed2))
#undef MK_PACKED
#ifndef MK_PANELS_ONLY
#define MK_PACKED 0
MK_VARIANT(MK_JOIN(MK_NAME, _direct2))
#undef MK_VECTORS
#define MK_VECTORS 1
MK_VARIANT(MK_JOIN(MK_NAME, _direct1))
#undef MK_PACKED
#endif
#undef MK_VECTORS

static void MK_JOIN(MK_NAME, _kernel)(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c,
                                      int64_t c_row, int accumulate, const tgc_ahead *next)
{
    if (cols > MK_LANES)
        MK_JOIN(MK_NAME, _packed2)(rows, k, a, 1, TGC_ROWS, b, 2 * MK_LANES, cols - MK_LANES, c, c_row, accumulate,
                                    next);
    else
        MK_JOIN(MK_NAME, _packed1)(rows, k, a, 1, TGC_ROWS, b, 2 * MK_LANES, cols, c, c_row, accumulate,
                                    next);
}

#ifndef MK_PANELS_ONLY
static void MK_JOIN(MK_NAME, _direct)(int64_t rows, int64_t cols, int64_t k, const void *a, int64_t a_row,
                                      int64_t a_col, const void *b, int64_t b_row, void *c, int64_t c_row,
                                      int accumulate, const tgc_ahead *next)
{
    const tgc_ahead nothing = {b, 0};
    if (next == NULL)
        next = &nothing;
    if (cols > MK_LANES)
        MK_JOIN(MK_NAME, _direct2)(rows, k, a, a_row, a_col, b, b_row, cols - MK_LANES, c, c_row, accumulate,
                                    next);
    else
        MK_JOIN(MK_NAME, _direct1)(rows, k, a, a_row, a_col, b, b_row, cols, c, c_row, accumulate,
                                    next);
}
#endif

#undef MK_CASE
#undef MK_CASES
#undef MK_VARIANT
#undef MK_LANES
#undef MK_U
#undef MK_ROW
#undef MK_OPAQUE
#undef MK_OPAQUE_
#undef MK_JOIN
#undef MK_JOIN_
#undef MK_NAME
#undef MK_T
#undef MK_V
#undef MK_FMA
#undef MK_FMA_FROM
#undef MK_ADD
#undef MK_LOAD
#undef MK_STORE
#undef MK_PANELS_ONLY
