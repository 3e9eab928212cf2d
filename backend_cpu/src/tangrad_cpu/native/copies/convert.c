/* Conversion of packed elements between dtypes. Numbers of 13 real dtypes convert directly where
 * it pays and through a block of float32 where a half-width float takes part; complex numbers
 * convert as pairs. */
#include "copying.h"
#include "half.h"

#define BLOCK 512

/* Elements may lie at any address: NumPy's packed records have such. */
#define ANYWHERE __attribute__((aligned(1)))

typedef void (*converter)(void *, const void *, int64_t);

#define PLAIN(D, S, dtype, stype, value)                                              \
    static void D##_from_##S(void *restrict to, const void *restrict from, int64_t n) \
    {                                                                                 \
        typedef dtype written ANYWHERE;                                               \
        typedef stype seen ANYWHERE;                                                  \
        written *restrict d = to;                                                     \
        const seen *restrict s = from;                                                \
        for (int64_t i = 0; i < n; i++) {                                             \
            stype x = s[i];                                                           \
            d[i] = (dtype)(value);                                                    \
        }                                                                             \
    }

/* Unsigned 64 bits hold what int64 does not; written so that all levels agree on what overflows. */
#define TOP 9223372036854775808.0
#define TO_U64(x) ((x) >= TOP ? (uint64_t)(int64_t)((x) - TOP) ^ ((uint64_t)1 << 63) : (uint64_t)(int64_t)(x))

#define FROM_INTEGER(S, stype)                  \
    PLAIN(b, S, uint8_t, stype, x != 0)         \
    PLAIN(w1, S, uint8_t, stype, x)             \
    PLAIN(w2, S, uint16_t, stype, x)            \
    PLAIN(w4, S, uint32_t, stype, x)            \
    PLAIN(w8, S, uint64_t, stype, x)            \
    PLAIN(f4, S, float, stype, x)               \
    PLAIN(f8, S, double, stype, x)
/* Narrow integers and int32 by way of int32, uint32 by way of int64, as in the core. */
#define FROM_FLOAT(S, stype)                        \
    PLAIN(b, S, uint8_t, stype, x != 0)             \
    PLAIN(w1, S, uint8_t, stype, (int32_t)x)        \
    PLAIN(w2, S, uint16_t, stype, (int32_t)x)       \
    PLAIN(w4, S, int32_t, stype, x)                 \
    PLAIN(u4, S, uint32_t, stype, (int64_t)x)       \
    PLAIN(w8, S, int64_t, stype, x)                 \
    PLAIN(u8, S, uint64_t, stype, TO_U64(x))        \
    PLAIN(f4, S, float, stype, x)                   \
    PLAIN(f8, S, double, stype, x)

/* Memory that is viewed as bool may hold other bytes than 0 and 1. */
#define FROM_BOOL(S, stype)                     \
    PLAIN(b, S, uint8_t, stype, x != 0)         \
    PLAIN(w1, S, uint8_t, stype, x != 0)        \
    PLAIN(w2, S, uint16_t, stype, x != 0)       \
    PLAIN(w4, S, uint32_t, stype, x != 0)       \
    PLAIN(w8, S, uint64_t, stype, x != 0)       \
    PLAIN(f4, S, float, stype, x != 0)          \
    PLAIN(f8, S, double, stype, x != 0)

FROM_BOOL(truth, uint8_t)
FROM_INTEGER(uint8, uint8_t)
FROM_INTEGER(int8, int8_t)
FROM_INTEGER(uint16, uint16_t)
FROM_INTEGER(int16, int16_t)
FROM_INTEGER(uint32, uint32_t)
FROM_INTEGER(int32, int32_t)
FROM_INTEGER(uint64, uint64_t)
FROM_INTEGER(int64, int64_t)
FROM_FLOAT(float32, float)
FROM_FLOAT(float64, double)

static void f4_from_bfloat16(void *restrict to, const void *restrict from, int64_t n)
{
    tgc_bf16_to_floats(to, from, n);
}

static void bfloat16_from_f4(void *restrict to, const void *restrict from, int64_t n)
{
    tgc_floats_to_bf16(to, from, n);
}

static void f4_from_float16(void *restrict to, const void *restrict from, int64_t n)
{
    tgc_f16_to_floats(to, from, n);
}

static void float16_from_f4(void *restrict to, const void *restrict from, int64_t n)
{
    tgc_floats_to_f16(to, from, n);
}

#define INTEGERS(S, four, eight)                                                                        \
    [TGC_BOOL] = b_from_##S, [TGC_UINT8] = w1_from_##S, [TGC_INT8] = w1_from_##S, [TGC_UINT16] = w2_from_##S, \
    [TGC_INT16] = w2_from_##S, [TGC_UINT32] = four##_from_##S, [TGC_INT32] = w4_from_##S,               \
    [TGC_UINT64] = eight##_from_##S, [TGC_INT64] = w8_from_##S, [TGC_FLOAT32] = f4_from_##S,            \
    [TGC_FLOAT64] = f8_from_##S

/* [source][destination]; what is absent goes through a block. */
static const converter direct[TGC_DTYPES][TGC_DTYPES] = {
    [TGC_BOOL] = {INTEGERS(truth, w4, w8)},
    [TGC_UINT8] = {INTEGERS(uint8, w4, w8)},
    [TGC_INT8] = {INTEGERS(int8, w4, w8)},
    [TGC_UINT16] = {INTEGERS(uint16, w4, w8)},
    [TGC_INT16] = {INTEGERS(int16, w4, w8)},
    [TGC_UINT32] = {INTEGERS(uint32, w4, w8)},
    [TGC_INT32] = {INTEGERS(int32, w4, w8)},
    [TGC_UINT64] = {INTEGERS(uint64, w4, w8)},
    [TGC_INT64] = {INTEGERS(int64, w4, w8)},
    [TGC_FLOAT32] = {INTEGERS(float32, u4, u8), [TGC_FLOAT16] = float16_from_f4,
                     [TGC_BFLOAT16] = bfloat16_from_f4},
    [TGC_FLOAT64] = {INTEGERS(float64, u4, u8)},
    [TGC_FLOAT16] = {[TGC_FLOAT32] = f4_from_float16},
    [TGC_BFLOAT16] = {[TGC_FLOAT32] = f4_from_bfloat16},
};

static int is_complex(int dtype)
{
    return dtype == TGC_COMPLEX64 || dtype == TGC_COMPLEX128;
}

static int part_of(int dtype)
{
    return dtype == TGC_COMPLEX64 ? TGC_FLOAT32 : TGC_FLOAT64;
}

/* One block, at most BLOCK elements, between dtypes that need an intermediate. */
static void convert_block(char *to, int to_dtype, const char *from, int from_dtype, int64_t n)
{
    _Alignas(64) char block[BLOCK * 16];
    if (is_complex(from_dtype) && to_dtype == TGC_BOOL) {
        TGC(tgc_convert)(block, TGC_BOOL, from, part_of(from_dtype), 2 * n);
        for (int64_t i = 0; i < n; i++)
            to[i] = block[2 * i] | block[2 * i + 1];
    } else if (from_dtype == TGC_COMPLEX64) {
        for (int64_t i = 0; i < n; i++)
            memcpy(block + 4 * i, from + 8 * i, 4);
        TGC(tgc_convert)(to, to_dtype, block, TGC_FLOAT32, n);
    } else if (from_dtype == TGC_COMPLEX128) {
        for (int64_t i = 0; i < n; i++)
            memcpy(block + 8 * i, from + 16 * i, 8);
        TGC(tgc_convert)(to, to_dtype, block, TGC_FLOAT64, n);
    } else if (to_dtype == TGC_COMPLEX64) {
        TGC(tgc_convert)(block, TGC_FLOAT32, from, from_dtype, n);
        for (int64_t i = 0; i < n; i++) {
            memcpy(to + 8 * i, block + 4 * i, 4);
            memset(to + 8 * i + 4, 0, 4);
        }
    } else if (to_dtype == TGC_COMPLEX128) {
        TGC(tgc_convert)(block, TGC_FLOAT64, from, from_dtype, n);
        for (int64_t i = 0; i < n; i++) {
            memcpy(to + 16 * i, block + 8 * i, 8);
            memset(to + 16 * i + 8, 0, 8);
        }
    } else {
        TGC(tgc_convert)(block, TGC_FLOAT32, from, from_dtype, n);
        TGC(tgc_convert)(to, to_dtype, block, TGC_FLOAT32, n);
    }
}

void TGC(tgc_convert)(void *to, int to_dtype, const void *from, int from_dtype, int64_t n)
{
    if (tgc_same_bits(to_dtype, from_dtype)) {
        memcpy(to, from, (size_t)n * (size_t)tgc_itemsize[to_dtype]);
        return;
    }
    if (is_complex(to_dtype) && is_complex(from_dtype)) {
        to_dtype = part_of(to_dtype);
        from_dtype = part_of(from_dtype);
        n *= 2;
    }
    converter convert = direct[from_dtype][to_dtype];
    if (convert != NULL) {
        convert(to, from, n);
        return;
    }
    for (int64_t first = 0; first < n; first += BLOCK)
        convert_block((char *)to + first * tgc_itemsize[to_dtype], to_dtype,
                      (const char *)from + first * tgc_itemsize[from_dtype], from_dtype,
                      n - first < BLOCK ? n - first : BLOCK);
}
