#include "pointwise_tile.h"

#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

typedef struct pair {
    uint64_t low, high;
} pair;

/* Elements of an operand may lie at any byte. */
#define ANYWHERE __attribute__((aligned(1)))
typedef uint8_t uint8_t_anywhere ANYWHERE;
typedef uint16_t uint16_t_anywhere ANYWHERE;
typedef uint32_t uint32_t_anywhere ANYWHERE;
typedef uint64_t uint64_t_anywhere ANYWHERE;
typedef pair pair_anywhere ANYWHERE;

/* --- half precision --------------------------------------------------------------------------- */

typedef union word {
    float value;
    uint32_t bits;
} word;

static inline float widen_bfloat16(uint16_t bits)
{
    word w = {.bits = (uint32_t)bits << 16};
    return w.value;
}

static inline uint16_t round_to_bfloat16(float value)
{
    word w = {.value = value};
    uint32_t rounded = (w.bits + 0x7fff + (w.bits >> 16 & 1)) >> 16;
    return (uint16_t)(value != value ? 0x7fc0 : rounded);
}

#ifndef __F16C__
static inline float widen_float16(uint16_t bits)
{
    /* A subnormal half is an integer times 2^-24. */
    uint32_t sign = (uint32_t)(bits >> 15) << 31, exponent = bits >> 10 & 31, fraction = bits & 1023;
    word small = {.value = (float)fraction * 0x1p-24f}, w;
    small.bits |= sign;
    w.bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    return exponent == 0 ? small.value : w.value;
}

static inline uint16_t round_to_float16(float value)
{
    word w = {.value = value}, small;
    uint32_t sign = w.bits >> 16 & 0x8000, size = w.bits & 0x7fffffff;
    uint32_t normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    /* Adding 0.5 moves a subnormal's last bit to the float's last bit, and rounds. */
    small.bits = size;
    small.value += 0.5f;
    uint32_t result = size < 0x38800000 ? small.bits - 0x3f000000 : normal;
    result = size >= 0x477ff000 ? 0x7c00 : result;
    return (uint16_t)(sign | (size > 0x7f800000 ? 0x7e00 : result));
}
#endif

static void widen(float *to, const uint16_t_anywhere *from, int64_t n, int dtype)
{
    if (dtype == TGC_BFLOAT16) {
        for (int64_t i = 0; i < n; i++)
            to[i] = widen_bfloat16(from[i]);
        return;
    }
#ifdef __F16C__
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + i))));
#endif
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
    for (; i < n; i++)
        to[i] = _cvtsh_ss(from[i]);
#else
    for (int64_t i = 0; i < n; i++)
        to[i] = widen_float16(from[i]);
#endif
}

static void narrow(uint16_t_anywhere *to, const float *from, int64_t n, int dtype)
{
    if (dtype == TGC_BFLOAT16) {
        for (int64_t i = 0; i < n; i++)
            to[i] = round_to_bfloat16(from[i]);
        return;
    }
#ifdef __F16C__
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        to[i] = _cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT);
#else
    for (int64_t i = 0; i < n; i++)
        to[i] = round_to_float16(from[i]);
#endif
}

/* --- the same dtype ---------------------------------------------------------------------------- */

/* Along the dimension in which the operand's elements are closer, so that a cache line is used up
 * before it is left. */
#define MOVERS(type) \
    static void load_##type(const tgc_tile *t) \
    { \
        type *to = (type *)t->tile; \
        const int64_t rows = t->rows, columns = t->columns, down = t->row_stride, along = t->column_stride; \
        if (along == 0) { \
            for (int64_t r = 0; r < rows; r++) { \
                const type value = *(const type##_anywhere *)(t->data + r * down); \
                for (int64_t c = 0; c < columns; c++) \
                    to[r * columns + c] = value; \
            } \
        } else if (down == sizeof(type) && rows > 1) { \
            for (int64_t c = 0; c < columns; c++) { \
                const type##_anywhere *from = (const type##_anywhere *)(t->data + c * along); \
                for (int64_t r = 0; r < rows; r++) \
                    to[r * columns + c] = from[r]; \
            } \
        } else { \
            for (int64_t r = 0; r < rows; r++) { \
                const char *from = t->data + r * down; \
                for (int64_t c = 0; c < columns; c++) \
                    to[r * columns + c] = *(const type##_anywhere *)(from + c * along); \
            } \
        } \
    } \
    static void store_##type(const tgc_tile *t) \
    { \
        const type *from = (const type *)t->tile; \
        const int64_t rows = t->rows, columns = t->columns, down = t->row_stride, along = t->column_stride; \
        if (down == sizeof(type) && rows > 1) { \
            for (int64_t c = 0; c < columns; c++) { \
                type##_anywhere *to = (type##_anywhere *)(t->data + c * along); \
                for (int64_t r = 0; r < rows; r++) \
                    to[r] = from[r * columns + c]; \
            } \
        } else { \
            for (int64_t r = 0; r < rows; r++) { \
                char *to = t->data + r * down; \
                for (int64_t c = 0; c < columns; c++) \
                    *(type##_anywhere *)(to + c * along) = from[r * columns + c]; \
            } \
        } \
    }

MOVERS(uint8_t)
MOVERS(uint16_t)
MOVERS(uint32_t)
MOVERS(uint64_t)
MOVERS(pair)

static void move_same(const tgc_tile *t)
{
    const int64_t width = tgc_itemsize[t->dtype], row = t->columns * width;
    if (t->column_stride == width || t->columns == 1) {
        const int64_t rows = t->row_stride == row ? 1 : t->rows, bytes = t->row_stride == row ? t->rows * row : row;
        for (int64_t r = 0; r < rows; r++) {
            if (t->store)
                memcpy(t->data + r * t->row_stride, t->tile + r * row, (size_t)bytes);
            else
                memcpy(t->tile + r * row, t->data + r * t->row_stride, (size_t)bytes);
        }
        return;
    }
    switch (width) {
    case 1:
        (t->store ? store_uint8_t : load_uint8_t)(t);
        break;
    case 2:
        (t->store ? store_uint16_t : load_uint16_t)(t);
        break;
    case 4:
        (t->store ? store_uint32_t : load_uint32_t)(t);
        break;
    case 8:
        (t->store ? store_uint64_t : load_uint64_t)(t);
        break;
    default:
        (t->store ? store_pair : load_pair)(t);
    }
}

/* --- other dtypes ------------------------------------------------------------------------------ */

/* A number comes in the type that the op computes in, an input of a fixed dtype wants its own. */
static void fill_number(const tgc_tile *t)
{
    _Alignas(16) char number[16] = {0};
    double value = 0;
    int64_t whole = 0;
    switch (t->dtype) {
    case TGC_BOOL:
    case TGC_UINT8:
        whole = *(const uint8_t *)t->data;
        break;
    case TGC_INT8:
        whole = *(const int8_t *)t->data;
        break;
    case TGC_UINT16:
        whole = *(const uint16_t *)t->data;
        break;
    case TGC_INT16:
        whole = *(const int16_t *)t->data;
        break;
    case TGC_UINT32:
        whole = *(const uint32_t *)t->data;
        break;
    case TGC_INT32:
        whole = *(const int32_t *)t->data;
        break;
    case TGC_UINT64:
    case TGC_INT64:
        whole = *(const int64_t *)t->data;
        break;
    case TGC_FLOAT32:
    case TGC_COMPLEX64:
        value = *(const float *)t->data;
        break;
    default:
        value = *(const double *)t->data;
    }
    const int floating = t->dtype >= TGC_FLOAT32;
    if (!floating)
        value = (double)whole;
    if (t->wanted == TGC_BOOL)
        *(uint8_t *)number = value != 0;
    else if (t->wanted == TGC_FLOAT32)
        *(float *)number = (float)value;
    else if (t->wanted == TGC_FLOAT64)
        *(double *)number = value;
    else
        *(int64_t *)number = floating ? (int64_t)value : whole;
    tgc_tile filled = *t;
    filled.data = number;
    filled.dtype = t->wanted;
    filled.row_stride = filled.column_stride = 0;
    move_same(&filled);
}

/* Halves are moved as they are, and converted where they are contiguous. */
static void move_half(const tgc_tile *t)
{
    uint16_t raw[TGC_TILE_MOST];
    const int64_t n = t->rows * t->columns;
    const int flat = t->column_stride == 2 && (t->rows == 1 || t->row_stride == 2 * t->columns);
    uint16_t_anywhere *halves = flat ? (uint16_t_anywhere *)t->data : raw;
    tgc_tile moved = *t;
    moved.tile = (char *)raw;
    moved.wanted = t->dtype;
    if (!t->store) {
        if (!flat)
            move_same(&moved);
        widen((float *)t->tile, halves, n, t->dtype);
        return;
    }
    narrow(halves, (const float *)t->tile, n, t->dtype);
    if (!flat)
        move_same(&moved);
}

void TGC(tgc_tile_move)(const tgc_tile *t)
{
    if (t->dtype == t->wanted)
        move_same(t);
    else if (t->dtype == TGC_FLOAT16 || t->dtype == TGC_BFLOAT16)
        move_half(t);
    else
        fill_number(t);
}
