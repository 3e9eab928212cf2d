/* The product of bytes for one instruction-set level: included once per level, with LEVEL(name)
 * and WITH_VNNI (with WITH_AMX or without), WITH_AVX2 or neither defined. All levels give the same bits: sums are
 * integers modulo 2^32, and the steps in float32 are the same in the same order. */

#if defined(WITH_VNNI)

#if defined(WITH_AMX)
#define ROWS 128
#else
#define ROWS 6
#endif

#include "vnni_product.h"

#if defined(WITH_AMX)
#include "amx_product.h"
#else
static void LEVEL(product)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads,
                           int64_t stride, int32_t *acc, int rows, int blocks, int narrow)
{
    LEVEL(few)(a, lda, b, quads, stride, acc, rows, blocks);
}
#endif

#elif defined(WITH_AVX2)

#include "avx2_product.h"

#else

#define ROWS 6

static void LEVEL(product)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads,
                           int64_t stride, int32_t *acc, int rows, int blocks, int narrow)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < blocks; j++)
            for (int n = 0; n < 16; n++) {
                uint32_t sum = 0;
                for (int64_t k = 0; k < quads; k++)
                    for (int q = 0; q < 4; q++)
                        sum += (uint32_t)((int32_t)a[i * lda + k * 4 + q] *
                                          b[j * stride + k * 64 + n * 4 + q]);
                acc[i * 64 + j * 16 + n] = (int32_t)sum;
            }
}

#endif

#if !defined(BEGIN_PRODUCTS)
#define BEGIN_PRODUCTS
#define END_PRODUCTS
#endif

#include "finish_level.h"

#if defined(WITH_VNNI)
#include "fused_level.h"
#endif

/* Rows `begin` to `end` of a, whose first is `first` of the output, by columns from `left` on. All rows
 * pass before the next columns: the weights of sixty-four stay in a cache, those of all may not. */
static void LEVEL(rows)(const tq_product *p, const uint8_t *a, int64_t lda, int64_t begin,
                        int64_t end, int64_t left, int64_t right)
{
    int32_t acc[ROWS * 64];
    int64_t stride = p->quads * 64;
#if defined(WITH_VNNI) && !defined(WITH_AMX)
    if (p->weight_zeros == NULL) {
        const int64_t none = 0;
        const tq_pieces whole = {&none, 1, p->quads};
        const uint8_t *at[TQ_ROWS];
        for (int64_t row = begin; row < end; row += TQ_ROWS, a += TQ_ROWS * lda) {
            int64_t some = end - row < TQ_ROWS ? end - row : TQ_ROWS;
            for (int64_t i = 0; i < some; i++)
                at[i] = a + i * lda;
            LEVEL(pieces)(p, at, &whole, row, row + some, left, right);
        }
        return;
    }
#endif
    BEGIN_PRODUCTS;
    for (int64_t column = left; column < right; column += 64) {
        int64_t count = right - column < 64 ? right - column : 64;
        int blocks = (int)((count + 15) / 16);
        for (int64_t row = begin; row < end; row += ROWS) {
            int rows = (int)(end - row < ROWS ? end - row : ROWS);
            const uint8_t *from = a + (row - begin) * lda;
            uint32_t row_sums[ROWS] = {0};
            for (int i = 0; i < rows && p->weight_zeros != NULL; i++)
                for (int64_t k = 0; k < p->depth; k++)
                    row_sums[i] += from[i * lda + k];
            LEVEL(product)(from, lda, p->packed + column / 16 * stride, p->quads, stride, acc, rows,
                           blocks, p->narrow);
            LEVEL(finish)(p, acc, row, rows, column, count, row_sums);
        }
    }
    END_PRODUCTS;
}

#include "depthwise_level.h"

#if defined(WITH_VNNI)

/* Bytes as numbers, moved by their zero point and scaled. */
static inline __m512 LEVEL(numbers)(const uint8_t *x, __m128i flip, __m512i zero, __m512 scale)
{
    __m512i wide = _mm512_cvtepu8_epi32(_mm_xor_si128(_mm_loadu_si128((const __m128i *)x), flip));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(wide, zero)), scale);
}

/* Sixty-four at a time, by the steps of the loop below; returns how many are done. GCC 12 takes vectors
 * of half the width and converts back and forth. What is too low is lifted when it is bytes again. */
static int64_t LEVEL(add_vectors)(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t n, const tq_binary *p)
{
    const __m512 high = _mm512_set1_ps((float)(p->high - p->zero)), inverse = _mm512_set1_ps(p->inverse);
    const __m512 scale_a = _mm512_set1_ps(p->scale_a), scale_b = _mm512_set1_ps(p->scale_b);
    const __m512i zero_a = _mm512_set1_epi32(p->zero_a), zero_b = _mm512_set1_epi32(p->zero_b);
    const __m512i zero = _mm512_set1_epi16((int16_t)p->zero), low = _mm512_set1_epi8((char)p->low);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i flips = _mm512_set1_epi8((char)p->flip);
    const __m128i flip = _mm_set1_epi8((char)p->flip);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i made[4];
        for (int j = 0; j < 4; j++) {
            __m512 value = _mm512_add_ps(LEVEL(numbers)(a + i + j * 16, flip, zero_a, scale_a),
                                         LEVEL(numbers)(b + i + j * 16, flip, zero_b, scale_b));
            made[j] = _mm512_cvtps_epi32(_mm512_min_ps(high, _mm512_mul_ps(value, inverse)));
        }
        __m512i first = _mm512_adds_epi16(_mm512_packs_epi32(made[0], made[1]), zero);
        __m512i second = _mm512_adds_epi16(_mm512_packs_epi32(made[2], made[3]), zero);
        first = _mm512_xor_si512(_mm512_max_epu8(_mm512_packus_epi16(first, second), low), flips);
        _mm512_storeu_si512(out + i, _mm512_permutexvar_epi32(order, first));
    }
    return i;
}

#else
#define NO_VECTORS_OF_BYTES
#endif

static void LEVEL(add)(const uint8_t *restrict a, const uint8_t *restrict b, uint8_t *restrict out,
                       int64_t n, const tq_binary *p)
{
    const float low = (float)(p->low - p->zero), high = (float)(p->high - p->zero);
    const float scale_a = p->scale_a, scale_b = p->scale_b, inverse = p->inverse;
    const int32_t zero_a = p->zero_a, zero_b = p->zero_b, zero = p->zero, flip = p->flip;
#if defined(NO_VECTORS_OF_BYTES)
    int64_t i = 0;
#else
    int64_t i = LEVEL(add_vectors)(a, b, out, n, p);
#endif
    for (; i < n; i++) {
        int32_t x = ((int32_t)a[i] ^ flip) - zero_a, y = ((int32_t)b[i] ^ flip) - zero_b;
        float value = ((float)x * scale_a + (float)y * scale_b) * inverse;
        value = value > low ? value : low;
        value = value < high ? value : high;
        value = (value + 12582912.0f) - 12582912.0f;
        out[i] = (uint8_t)(((int32_t)value + zero) ^ flip);
    }
}

static void LEVEL(mul)(const uint8_t *restrict a, const uint8_t *restrict b, uint8_t *restrict out,
                       int64_t n, const tq_binary *p)
{
    const float low = (float)(p->low - p->zero), high = (float)(p->high - p->zero);
    const float inverse = p->inverse;
    const int32_t zero_a = p->zero_a, zero_b = p->zero_b, zero = p->zero, flip = p->flip;
    for (int64_t i = 0; i < n; i++) {
        int32_t x = ((int32_t)a[i] ^ flip) - zero_a, y = ((int32_t)b[i] ^ flip) - zero_b;
        float value = (float)(x * y) * inverse;
        value = value > low ? value : low;
        value = value < high ? value : high;
        value = (value + 12582912.0f) - 12582912.0f;
        out[i] = (uint8_t)(((int32_t)value + zero) ^ flip);
    }
}

static void LEVEL(quantize)(const float *restrict x, uint8_t *restrict out, int64_t n, float inverse,
                            int zero, int low_level, int high_level)
{
    const float low = (float)low_level, high = (float)high_level, middle = (float)zero;
    for (int64_t i = 0; i < n; i++) {
        float value = x[i] * inverse + middle;
        value = value > low ? value : low;
        value = value < high ? value : high;
        value = (value + 12582912.0f) - 12582912.0f;
        out[i] = (uint8_t)(int32_t)value;
    }
}

static void LEVEL(dequantize)(const uint8_t *restrict x, float *restrict out, int64_t n, float scale,
                              int zero, int flip)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(((int32_t)x[i] ^ flip) - zero) * scale;
}

/* Vectors of the level, by hand: GCC 12 makes no vectors of a loop that keeps the least of lanes. */
#if defined(WITH_VNNI)
#define LANES 16
#define V_FLOAT __m512
#define V_OF(name) _mm512_##name
#elif defined(WITH_AVX2)
#define LANES 8
#define V_FLOAT __m256
#define V_OF(name) _mm256_##name
#endif

static void LEVEL(range)(const float *x, int64_t n, float *low, float *high, int *finite)
{
    float least = n > 0 ? x[0] : 0.0f, most = least, bad = 0.0f; /* NaN after what is not finite */
    int64_t i = 0;
#if defined(LANES)
    V_FLOAT lows[4], highs[4], bads[4];
    for (int j = 0; j < 4; j++) {
        lows[j] = highs[j] = V_OF(set1_ps)(least);
        bads[j] = V_OF(setzero_ps)();
    }
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int j = 0; j < 4; j++) {
            V_FLOAT v = V_OF(loadu_ps)(x + i + j * LANES);
            lows[j] = V_OF(min_ps)(v, lows[j]);
            highs[j] = V_OF(max_ps)(v, highs[j]);
            bads[j] = V_OF(add_ps)(bads[j], V_OF(sub_ps)(v, v));
        }
    for (int j = 0; j < 4; j++) {
        float ends[3][LANES];
        V_OF(storeu_ps)(ends[0], lows[j]);
        V_OF(storeu_ps)(ends[1], highs[j]);
        V_OF(storeu_ps)(ends[2], bads[j]);
        for (int lane = 0; lane < LANES; lane++) {
            least = ends[0][lane] < least ? ends[0][lane] : least;
            most = ends[1][lane] > most ? ends[1][lane] : most;
            bad += ends[2][lane];
        }
    }
#endif
    for (; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        bad += x[i] - x[i];
    }
    *low = least;
    *high = most;
    *finite = bad == 0.0f;
}

#undef NO_VECTORS_OF_BYTES
#undef LANES
#undef V_FLOAT
#undef V_OF

#include "groups_level.h"

static const tq_level LEVEL(table) = {
    ROWS == 128 ? ROWS : 48, LEVEL(rows), LEVEL(order), LEVEL(depthwise), LEVEL(add), LEVEL(mul), LEVEL(quantize),
    LEVEL(dequantize), LEVEL(range), LEVEL(prepare), LEVEL(grouped),
#if defined(WITH_VNNI) && !defined(WITH_AMX)
    .pieces = LEVEL(pieces),
#endif
#if defined(WITH_VNNI)
    .line = LEVEL(line),
#endif
};

#undef ROWS
#undef BEGIN_PRODUCTS
#undef END_PRODUCTS
