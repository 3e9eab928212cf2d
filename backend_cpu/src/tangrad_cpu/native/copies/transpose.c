/* Transposition of matrices of moved elements. Tiles are transposed in registers: vectors of
 * 128-bit lanes are loaded so that interleaving within lanes, repeated, gives the transpose; with
 * 512 bits whole vectors are interleaved, which costs one instruction there. A tile spans a cache
 * line wherever the vectors allow, so that lines are read and written whole whatever the strides. */
#include "copying.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef uint8_t v16u8 __attribute__((vector_size(16)));
typedef uint16_t v8u16 __attribute__((vector_size(16)));
typedef uint32_t v4u32 __attribute__((vector_size(16)));
typedef uint64_t v2u64 __attribute__((vector_size(16)));

INLINE v16u8 low_u8(v16u8 a, v16u8 b)
{
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE v16u8 high_u8(v16u8 a, v16u8 b)
{
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
INLINE v8u16 low_u16(v8u16 a, v8u16 b)
{
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
INLINE v8u16 high_u16(v8u16 a, v8u16 b)
{
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/* log2(N) rounds of interleaving the first half of the rows with the second transpose N x N. */
#define ROUND(x, y, N, low, high)             \
    _Pragma("GCC unroll 16")                  \
    for (int k = 0; k < N / 2; k++) {         \
        y[2 * k] = low(x[k], x[k + N / 2]);   \
        y[2 * k + 1] = high(x[k], x[k + N / 2]); \
    }
#define LOAD(x, N)              \
    _Pragma("GCC unroll 16")    \
    for (int k = 0; k < N; k++) \
        memcpy(&x[k], from + k * from_stride, sizeof x[k]);
#define STORE(x, N)             \
    _Pragma("GCC unroll 16")    \
    for (int k = 0; k < N; k++) \
        memcpy(to + k * to_stride, &x[k], sizeof x[k]);
#define TILE(name) INLINE void name(char *to, int64_t to_stride, const char *from, int64_t from_stride)

#define EDGE1 16
TILE(tile1)
{
    v16u8 a[16], b[16];
    LOAD(a, 16)
    ROUND(a, b, 16, low_u8, high_u8)
    ROUND(b, a, 16, low_u8, high_u8)
    ROUND(a, b, 16, low_u8, high_u8)
    ROUND(b, a, 16, low_u8, high_u8)
    STORE(a, 16)
}

#define EDGE2 8
TILE(tile2)
{
    v8u16 a[8], b[8];
    LOAD(a, 8)
    ROUND(a, b, 8, low_u16, high_u16)
    ROUND(b, a, 8, low_u16, high_u16)
    ROUND(a, b, 8, low_u16, high_u16)
    STORE(b, 8)
}

/* Tiles of 128-bit vectors, for what is narrower than the tiles of a level. */
#define SMALL4 4
TILE(small4)
{
    v4u32 a[4], b[4];
    LOAD(a, 4)
#define LOW(x, y) __builtin_shufflevector(x, y, 0, 4, 1, 5)
#define HIGH(x, y) __builtin_shufflevector(x, y, 2, 6, 3, 7)
    ROUND(a, b, 4, LOW, HIGH)
    ROUND(b, a, 4, LOW, HIGH)
#undef HIGH
#undef LOW
    STORE(a, 4)
}

#define SMALL8 2
TILE(small8)
{
    v2u64 a[2], b[2];
    LOAD(a, 2)
    b[0] = __builtin_shufflevector(a[0], a[1], 0, 2);
    b[1] = __builtin_shufflevector(a[0], a[1], 1, 3);
    STORE(b, 2)
}

#define SMALL1 EDGE1
#define small1 tile1
#define SMALL2 EDGE2
#define small2 tile2

#if defined(__AVX512F__)

typedef uint32_t v16u32 __attribute__((vector_size(64)));
typedef uint64_t v8u64 __attribute__((vector_size(64)));

INLINE v16u32 low_u32(v16u32 a, v16u32 b)
{
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE v16u32 high_u32(v16u32 a, v16u32 b)
{
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
INLINE v8u64 low_u64(v8u64 a, v8u64 b)
{
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
INLINE v8u64 high_u64(v8u64 a, v8u64 b)
{
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

#define EDGE4 16
TILE(tile4)
{
    v16u32 a[16], b[16];
    LOAD(a, 16)
    ROUND(a, b, 16, low_u32, high_u32)
    ROUND(b, a, 16, low_u32, high_u32)
    ROUND(a, b, 16, low_u32, high_u32)
    ROUND(b, a, 16, low_u32, high_u32)
    STORE(a, 16)
}

#define EDGE8 8
TILE(tile8)
{
    v8u64 a[8], b[8];
    LOAD(a, 8)
    ROUND(a, b, 8, low_u64, high_u64)
    ROUND(b, a, 8, low_u64, high_u64)
    ROUND(a, b, 8, low_u64, high_u64)
    STORE(b, 8)
}

#elif defined(__AVX__)

typedef uint32_t v8u32 __attribute__((vector_size(32)));
typedef uint64_t v4u64 __attribute__((vector_size(32)));

INLINE v8u32 low_u32(v8u32 a, v8u32 b)
{
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
}
INLINE v8u32 high_u32(v8u32 a, v8u32 b)
{
    return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
INLINE v4u64 low_u64(v4u64 a, v4u64 b)
{
    return __builtin_shufflevector(a, b, 0, 4, 2, 6);
}
INLINE v4u64 high_u64(v4u64 a, v4u64 b)
{
    return __builtin_shufflevector(a, b, 1, 5, 3, 7);
}

#define EDGE4 8
TILE(tile4)
{
    _Pragma("GCC unroll 2")
    for (int half = 0; half < 2; half++, from += 16, to += 4 * to_stride) {
        v8u32 a[4], b[4];
        _Pragma("GCC unroll 4")
        for (int k = 0; k < 4; k++) {
            v4u32 top, bottom;
            memcpy(&top, from + k * from_stride, 16);
            memcpy(&bottom, from + (k + 4) * from_stride, 16);
            a[k] = __builtin_shufflevector(top, bottom, 0, 1, 2, 3, 4, 5, 6, 7);
        }
        ROUND(a, b, 4, low_u32, high_u32)
        ROUND(b, a, 4, low_u32, high_u32)
        STORE(a, 4)
    }
}

#define EDGE8 4
TILE(tile8)
{
    _Pragma("GCC unroll 2")
    for (int half = 0; half < 2; half++, from += 16, to += 2 * to_stride) {
        v4u64 a[2], b[2];
        _Pragma("GCC unroll 2")
        for (int k = 0; k < 2; k++) {
            v2u64 top, bottom;
            memcpy(&top, from + k * from_stride, 16);
            memcpy(&bottom, from + (k + 2) * from_stride, 16);
            a[k] = __builtin_shufflevector(top, bottom, 0, 1, 2, 3);
        }
        ROUND(a, b, 2, low_u64, high_u64)
        STORE(b, 2)
    }
}

#else

#define EDGE4 SMALL4
#define tile4 small4
#define EDGE8 SMALL8
#define tile8 small8

#endif

#define SMALL16 1
#define small16 tile16
#define EDGE16 1
TILE(tile16)
{
    (void)to_stride;
    (void)from_stride;
    memcpy(to, from, 16);
}

/* Columns from the `first` one on, in small tiles. */
#define EDGES(S)                                                                                                  \
    INLINE void edges##S(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,        \
                         int64_t first, int64_t columns)                                                          \
    {                                                                                                             \
        const int64_t whole_rows = rows - rows % SMALL##S, whole = columns - (columns - first) % SMALL##S;        \
        for (int64_t i = 0; i < whole_rows; i += SMALL##S)                                                        \
            for (int64_t j = first; j < whole; j += SMALL##S)                                                     \
                small##S(to + i * to_stride + j * S, to_stride, from + j * from_stride + i * S, from_stride);     \
        for (int64_t i = 0; i < rows; i++)                                                                        \
            for (int64_t j = i < whole_rows ? whole : first; j < columns; j++)                                    \
                memcpy(to + i * to_stride + j * S, from + j * from_stride + i * S, S);                            \
    }

EDGES(1)
EDGES(2)
EDGES(4)
EDGES(8)
EDGES(16)

/* Blocks a cache line wide. Elements of four bytes and more take four lines of `from` side by side
 * and prefetch further columns, since no prefetcher of the hardware follows strides of pages; that
 * made 1024 x 1024 float32 a quarter faster, and smaller elements slower. */
#define AHEAD 32
#define TRANSPOSE(S)                                                                                              \
    static void transpose##S(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,    \
                             int64_t columns)                                                                     \
    {                                                                                                             \
        enum { LINE = EDGE##S * S < 64 ? 64 / S : EDGE##S, BAND = S < 4 ? LINE : 4 * LINE };                      \
        int64_t whole_rows = rows - rows % EDGE##S, whole_columns = columns - columns % EDGE##S;                  \
        for (int64_t i0 = 0; i0 < whole_rows; i0 += BAND) {                                                       \
            int64_t i1 = i0 + BAND < whole_rows ? i0 + BAND : whole_rows;                                         \
            for (int64_t j0 = 0; j0 < whole_columns; j0 += LINE) {                                                \
                int64_t j1 = j0 + LINE < whole_columns ? j0 + LINE : whole_columns;                               \
                if (S >= 4 && j1 + AHEAD <= whole_columns)                                                        \
                    for (int64_t j = j0 + AHEAD; j < j1 + AHEAD; j++)                                             \
                        for (int64_t i = i0; i < i1; i += LINE)                                                   \
                            __builtin_prefetch(from + j * from_stride + i * S);                                   \
                for (int64_t i = i0; i < i1; i += EDGE##S)                                                        \
                    for (int64_t j = j0; j < j1; j += EDGE##S)                                                    \
                        tile##S(to + i * to_stride + j * S, to_stride, from + j * from_stride + i * S, from_stride); \
            }                                                                                                     \
        }                                                                                                         \
        edges##S(to, to_stride, from, from_stride, whole_rows, whole_columns, columns);                           \
        edges##S(to + whole_rows * to_stride, to_stride, from + whole_rows * S, from_stride, rows - whole_rows, 0, \
                 columns);                                                                                        \
    }                                                                                                             \
    static void each##S(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,            \
                        int64_t to_stride, int64_t from_stride, int64_t rows, int64_t columns)                    \
    {                                                                                                             \
        for (int64_t k = 0; k < count; k++)                                                                       \
            edges##S(to + k * to_step, to_stride, from + k * from_step, from_stride, rows, 0, columns);           \
    }

TRANSPOSE(1)
TRANSPOSE(2)
TRANSPOSE(4)
TRANSPOSE(8)
TRANSPOSE(16)

void TGC(tgc_transpose)(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,
                        int64_t columns, int itemsize)
{
    switch (itemsize) {
    case 1: transpose1(to, to_stride, from, from_stride, rows, columns); return;
    case 2: transpose2(to, to_stride, from, from_stride, rows, columns); return;
    case 4: transpose4(to, to_stride, from, from_stride, rows, columns); return;
    case 8: transpose8(to, to_stride, from, from_stride, rows, columns); return;
    default: transpose16(to, to_stride, from, from_stride, rows, columns);
    }
}

void TGC(tgc_transpose_each)(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,
                             int64_t to_stride, int64_t from_stride, int64_t rows, int64_t columns, int itemsize)
{
    switch (itemsize) {
    case 1: each1(to, to_step, from, from_step, count, to_stride, from_stride, rows, columns); return;
    case 2: each2(to, to_step, from, from_step, count, to_stride, from_stride, rows, columns); return;
    case 4: each4(to, to_step, from, from_step, count, to_stride, from_stride, rows, columns); return;
    case 8: each8(to, to_step, from, from_step, count, to_stride, from_stride, rows, columns); return;
    default: each16(to, to_step, from, from_step, count, to_stride, from_stride, rows, columns);
    }
}
