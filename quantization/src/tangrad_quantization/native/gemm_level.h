/* The product of bytes for one instruction-set level: included once per level, with LEVEL(name)
 * and WITH_VNNI (with WITH_AMX or without), WITH_AVX2 or neither defined. All levels give the same bits: sums are
 * integers modulo 2^32, and the steps in float32 are the same in the same order. */

#if defined(WITH_VNNI)

#if defined(WITH_AMX)
#define ROWS 128
#else
#define ROWS 6
#endif

/* By hand: GCC 12 copies every sum around the intrinsic, which halves the speed. */
static inline __attribute__((always_inline)) __m512i LEVEL(dot)(__m512i sum, __m512i x, __m512i w)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}

static inline __attribute__((always_inline)) void LEVEL(block)(
    const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int64_t stride, int32_t *acc,
    int rows, int blocks)
{
    __m512i sum[6][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < blocks; j++)
            sum[i][j] = _mm512_setzero_si512();
    for (int64_t k = 0; k < quads; k++) {
        __m512i w[4];
        for (int j = 0; j < blocks; j++)
            w[j] = _mm512_loadu_si512(b + j * stride + k * 64);
        for (int i = 0; i < rows; i++) {
            int32_t four;
            memcpy(&four, a + i * lda + k * 4, 4);
            __m512i x = _mm512_set1_epi32(four);
            for (int j = 0; j < blocks; j++)
                sum[i][j] = LEVEL(dot)(sum[i][j], x, w[j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < blocks; j++)
            _mm512_storeu_si512(acc + i * 64 + j * 16, sum[i][j]);
}

/* One row: two steps of k at once, or the latency of a sum would stand still. */
static void LEVEL(single)(const uint8_t *a, const int8_t *b, int64_t quads, int64_t stride, int32_t *acc)
{
    __m512i even[4], odd[4];
    for (int j = 0; j < 4; j++)
        even[j] = odd[j] = _mm512_setzero_si512();
    int64_t k = 0;
    for (; k + 2 <= quads; k += 2) {
        int32_t first, second;
        memcpy(&first, a + k * 4, 4);
        memcpy(&second, a + k * 4 + 4, 4);
        __m512i x = _mm512_set1_epi32(first), y = _mm512_set1_epi32(second);
        for (int j = 0; j < 4; j++) {
            even[j] = LEVEL(dot)(even[j], x, _mm512_loadu_si512(b + j * stride + k * 64));
            odd[j] = LEVEL(dot)(odd[j], y, _mm512_loadu_si512(b + j * stride + k * 64 + 64));
        }
    }
    if (k < quads) {
        int32_t first;
        memcpy(&first, a + k * 4, 4);
        for (int j = 0; j < 4; j++)
            even[j] = LEVEL(dot)(even[j], _mm512_set1_epi32(first),
                                          _mm512_loadu_si512(b + j * stride + k * 64));
    }
    for (int j = 0; j < 4; j++)
        _mm512_storeu_si512(acc + j * 16, _mm512_add_epi32(even[j], odd[j]));
}

/* At most six rows. */
static void LEVEL(few)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads,
                       int64_t stride, int32_t *acc, int rows, int blocks)
{
    if (blocks == 4 && rows == 1) {
        LEVEL(single)(a, b, quads, stride, acc);
        return;
    }
    if (blocks == 4) {
        switch (rows) {
        case 2: LEVEL(block)(a, lda, b, quads, stride, acc, 2, 4); return;
        case 3: LEVEL(block)(a, lda, b, quads, stride, acc, 3, 4); return;
        case 4: LEVEL(block)(a, lda, b, quads, stride, acc, 4, 4); return;
        case 5: LEVEL(block)(a, lda, b, quads, stride, acc, 5, 4); return;
        default: LEVEL(block)(a, lda, b, quads, stride, acc, 6, 4); return;
        }
    }
    for (int j = 0; j < blocks; j++)
        switch (rows) {
        case 1: LEVEL(block)(a, lda, b + j * stride, quads, stride, acc + j * 16, 1, 1); break;
        case 2: LEVEL(block)(a, lda, b + j * stride, quads, stride, acc + j * 16, 2, 1); break;
        case 3: LEVEL(block)(a, lda, b + j * stride, quads, stride, acc + j * 16, 3, 1); break;
        case 4: LEVEL(block)(a, lda, b + j * stride, quads, stride, acc + j * 16, 4, 1); break;
        case 5: LEVEL(block)(a, lda, b + j * stride, quads, stride, acc + j * 16, 5, 1); break;
        default: LEVEL(block)(a, lda, b + j * stride, quads, stride, acc + j * 16, 6, 1); break;
        }
}

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

#define ROWS 8

/* Products of bytes are made in 16 bits and added in pairs to 32 (vpmaddwd): the shorter way,
 * vpmaddubsw, saturates at 2^15, which 2 * 255 * 127 exceeds. */
static inline __attribute__((always_inline)) void LEVEL(block)(
    const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int32_t *acc, int rows)
{
    __m256i sum[2][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 4; j++)
            sum[i][j] = _mm256_setzero_si256();
    for (int64_t k = 0; k < quads; k++) {
        __m256i w[4];
        for (int j = 0; j < 4; j++)
            w[j] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + k * 64 + j * 16)));
        for (int i = 0; i < rows; i++) {
            int32_t four;
            memcpy(&four, a + i * lda + k * 4, 4);
            __m256i x = _mm256_cvtepu8_epi16(_mm_set1_epi32(four));
            for (int j = 0; j < 4; j++)
                sum[i][j] = _mm256_add_epi32(sum[i][j], _mm256_madd_epi16(x, w[j]));
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 4; j += 2) {
            __m256i pairs = _mm256_hadd_epi32(sum[i][j], sum[i][j + 1]);
            pairs = _mm256_permute4x64_epi64(pairs, 0xD8);
            _mm256_storeu_si256((__m256i *)(acc + i * 64 + j * 4), pairs);
        }
}

/* Inputs below 128 allow the shorter way, for 2 * 127 * 128 fits in 16 bits. */
static inline __attribute__((always_inline)) void LEVEL(narrow_block)(
    const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int32_t *acc, int rows)
{
    __m256i sum[4][2], ones = _mm256_set1_epi16(1);
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (int64_t k = 0; k < quads; k++) {
        __m256i low = _mm256_loadu_si256((const __m256i *)(b + k * 64));
        __m256i high = _mm256_loadu_si256((const __m256i *)(b + k * 64 + 32));
        for (int i = 0; i < rows; i++) {
            int32_t four;
            memcpy(&four, a + i * lda + k * 4, 4);
            __m256i x = _mm256_set1_epi32(four);
            __m256i first = _mm256_madd_epi16(_mm256_maddubs_epi16(x, low), ones);
            __m256i second = _mm256_madd_epi16(_mm256_maddubs_epi16(x, high), ones);
            sum[i][0] = _mm256_add_epi32(sum[i][0], first);
            sum[i][1] = _mm256_add_epi32(sum[i][1], second);
        }
    }
    for (int i = 0; i < rows; i++) {
        _mm256_storeu_si256((__m256i *)(acc + i * 64), sum[i][0]);
        _mm256_storeu_si256((__m256i *)(acc + i * 64 + 8), sum[i][1]);
    }
}

static void LEVEL(narrow)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int32_t *acc, int rows)
{
    switch (rows) {
    case 1: LEVEL(narrow_block)(a, lda, b, quads, acc, 1); return;
    case 2: LEVEL(narrow_block)(a, lda, b, quads, acc, 2); return;
    case 3: LEVEL(narrow_block)(a, lda, b, quads, acc, 3); return;
    default: LEVEL(narrow_block)(a, lda, b, quads, acc, 4); return;
    }
}

static void LEVEL(product)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads,
                           int64_t stride, int32_t *acc, int rows, int blocks, int narrow)
{
    for (int j = 0; j < blocks; j++) {
        int i = 0;
        for (; narrow && i < rows; i += 4)
            LEVEL(narrow)(a + i * lda, lda, b + j * stride, quads, acc + i * 64 + j * 16,
                          rows - i < 4 ? rows - i : 4);
        for (; i + 2 <= rows; i += 2)
            LEVEL(block)(a + i * lda, lda, b + j * stride, quads, acc + i * 64 + j * 16, 2);
        if (i < rows)
            LEVEL(block)(a + i * lda, lda, b + j * stride, quads, acc + i * 64 + j * 16, 1);
    }
}

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

#if defined(WITH_VNNI)

/* What zero points add to the sums of some rows, and then numbers of the sums: the steps of the other
 * levels, sixteen columns at a time; the conversion to integers rounds half to even. What bytes could
 * alias is read before the first is written. */
static void LEVEL(finish)(const tq_product *p, const int32_t *acc, int64_t row, int rows, int64_t column,
                          int64_t count, const uint32_t *row_sums)
{
    const __m512i input_zero = _mm512_set1_epi32(p->input_zero), zero = _mm512_set1_epi32(p->zero);
    const __m512 low = _mm512_set1_ps((float)(p->low - p->zero)), high = _mm512_set1_ps((float)(p->high - p->zero));
    const __m512 least = _mm512_set1_ps(p->least);
    const uint32_t of_depth = (uint32_t)p->input_zero * (uint32_t)p->depth;
    const int64_t stride = p->row_stride;
    const int32_t *zeros = p->weight_zeros;
    const int biased = p->bias != NULL;
    for (int64_t n = 0; n < count; n += 16) {
        __mmask16 within = count - n < 16 ? (__mmask16)(0xFFFF >> (16 - (count - n))) : 0xFFFF;
        __m512i of_zero = _mm512_mullo_epi32(input_zero, _mm512_maskz_loadu_epi32(within, p->sums + column + n));
        __m512i weight_zero = _mm512_setzero_si512();
        __m512 scale = _mm512_maskz_loadu_ps(within, p->scales + column + n), bias = _mm512_setzero_ps();
        if (zeros != NULL)
            weight_zero = _mm512_maskz_loadu_epi32(within, zeros + column + n);
        if (biased)
            bias = _mm512_maskz_loadu_ps(within, p->bias + column + n);
        float *floats = p->floats == NULL ? NULL : p->floats + row * stride + column + n;
        uint8_t *bytes = p->bytes + row * stride + column + n;
        for (int i = 0; i < rows; i++, bytes += stride) {
            __m512i sum = _mm512_sub_epi32(_mm512_loadu_si512(acc + i * 64 + n), of_zero);
            if (zeros != NULL) {
                __m512i rest = _mm512_set1_epi32((int32_t)(row_sums[i] - of_depth));
                sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(rest, weight_zero));
            }
            __m512 value = _mm512_cvtepi32_ps(sum);
            if (floats != NULL) {
                value = _mm512_mul_ps(value, scale);
                value = biased ? _mm512_add_ps(value, bias) : value;
                _mm512_mask_storeu_ps(floats + i * stride, within, _mm512_max_ps(value, least));
                continue;
            }
            value = biased ? _mm512_add_ps(value, bias) : value;
            value = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(value, scale), low), high);
            __m128i made = _mm512_cvtepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32(value), zero));
            if (within == 0xFFFF)
                _mm_storeu_si128((__m128i *)bytes, made);
            else
                _mm_mask_storeu_epi8(bytes, within, made);
        }
    }
}

#else

/* Bytes alias everything unless it is said that they do not: else nothing here is vectorised. */
static void LEVEL(to_bytes)(const tq_product *p, const uint32_t *restrict sums,
                            const float *restrict scale, const float *restrict bias,
                            uint8_t *restrict out, int64_t count)
{
    const int32_t zero = p->zero;
    const float low = (float)(p->low - zero), high = (float)(p->high - zero);
    float values[64];
    if (bias != NULL)
        for (int64_t n = 0; n < count; n++)
            values[n] = ((float)(int32_t)sums[n] + bias[n]) * scale[n];
    else
        for (int64_t n = 0; n < count; n++)
            values[n] = (float)(int32_t)sums[n] * scale[n];
    for (int64_t n = 0; n < count; n++) {
        float value = values[n];
        value = value > low ? value : low;
        value = value < high ? value : high;
        /* Within 2^22, adding and taking away 1.5 * 2^23 rounds half to even. */
        value = (value + 12582912.0f) - 12582912.0f;
        out[n] = (uint8_t)((int32_t)value + zero);
    }
}

/* What zero points add to the sums of one row, and then numbers of the sums. */
static void LEVEL(finish_row)(const tq_product *p, const int32_t *acc, int64_t row, int64_t column,
                              int64_t count, uint32_t row_sum)
{
    uint32_t shifted[64];
    uint32_t zero = (uint32_t)p->input_zero;
    const int32_t *sums = p->sums + column;
    for (int64_t n = 0; n < count; n++)
        shifted[n] = (uint32_t)acc[n] - zero * (uint32_t)sums[n];
    if (p->weight_zeros != NULL) {
        uint32_t rest = row_sum - zero * (uint32_t)p->depth;
        for (int64_t n = 0; n < count; n++)
            shifted[n] -= (uint32_t)p->weight_zeros[column + n] * rest;
    }
    const float *scale = p->scales + column;
    const float *bias = p->bias == NULL ? NULL : p->bias + column;
    if (p->floats != NULL) {
        float *out = p->floats + row * p->row_stride + column;
        for (int64_t n = 0; n < count; n++) {
            float value = (float)(int32_t)shifted[n] * scale[n];
            if (bias != NULL)
                value = value + bias[n];
            out[n] = value > p->least ? value : p->least;
        }
        return;
    }
    LEVEL(to_bytes)(p, shifted, scale, bias, p->bytes + row * p->row_stride + column, count);
}

static void LEVEL(finish)(const tq_product *p, const int32_t *acc, int64_t row, int rows, int64_t column,
                          int64_t count, const uint32_t *row_sums)
{
    for (int i = 0; i < rows; i++)
        LEVEL(finish_row)(p, acc + i * 64, row + i, column, count, row_sums[i]);
}

#endif

/* Rows `begin` to `end` of a, whose first is `first` of the output, by columns from `left` on. */
static void LEVEL(rows)(const tq_product *p, const uint8_t *a, int64_t lda, int64_t begin,
                        int64_t end, int64_t left, int64_t right)
{
    int32_t acc[ROWS * 64];
    int64_t stride = p->quads * 64;
    BEGIN_PRODUCTS;
    for (int64_t row = begin; row < end; row += ROWS) {
        int rows = (int)(end - row < ROWS ? end - row : ROWS);
        const uint8_t *from = a + (row - begin) * lda;
        uint32_t row_sums[ROWS] = {0};
        if (p->weight_zeros != NULL)
            for (int i = 0; i < rows; i++)
                for (int64_t k = 0; k < p->depth; k++)
                    row_sums[i] += from[i * lda + k];
        for (int64_t column = left; column < right; column += 64) {
            int64_t count = right - column < 64 ? right - column : 64;
            int blocks = (int)((count + 15) / 16);
            LEVEL(product)(from, lda, p->packed + column / 16 * stride, p->quads, stride, acc, rows,
                           blocks, p->narrow);
            LEVEL(finish)(p, acc, row, rows, column, count, row_sums);
        }
    }
    END_PRODUCTS;
}

/* A convolution of each channel by itself: taps in the order of the kernel, channels innermost. */
#if defined(WITH_VNNI)

/* Weights of four taps lie together, in blocks of 64 channels, in the order that unpacking makes of
 * four taps of the input: within lanes of 16 channels first the first four of each lane. */
static int64_t LEVEL(place_of)(int64_t tap, int64_t channel, int64_t count)
{
    int64_t quads = (count + 3) / 4, within = channel % 64;
    int64_t order = within % 16 / 4 * 16 + within / 16 * 4 + within % 4;
    return ((channel / 64 * quads + tap / 4) * 64 + order) * 4 + tap % 4;
}

static inline __attribute__((always_inline)) __m512i LEVEL(four_lanes)(__m512i a, __m512i b, int high)
{
    return high ? _mm512_shuffle_i32x4(a, b, 0xEE) : _mm512_shuffle_i32x4(a, b, 0x44);
}

/* Sums of 64 channels in the order of unpacking: the lanes of four vectors, transposed. */
static inline __attribute__((always_inline)) void LEVEL(in_order)(const __m512i *sums, int32_t *to)
{
    for (int half = 0; half < 2; half++) {
        __m512i first = LEVEL(four_lanes)(sums[0], sums[1], half), second = LEVEL(four_lanes)(sums[2], sums[3], half);
        _mm512_storeu_si512(to + half * 32, _mm512_shuffle_i32x4(first, second, 0x88));
        _mm512_storeu_si512(to + half * 32 + 16, _mm512_shuffle_i32x4(first, second, 0xDD));
    }
}

static void LEVEL(depthwise)(const tq_product *p, const uint8_t *const *taps, const int8_t *weights,
                             int64_t count, int64_t channels, int64_t row)
{
    const uint32_t none = 0;
    int32_t acc[64];
    for (int64_t column = 0; column < channels; column += 64) {
        int64_t width = channels - column < 64 ? channels - column : 64;
        __mmask64 within = ~0ull >> (64 - width);
        __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                           _mm512_setzero_si512()};
        for (int64_t t = 0; t < count; t += 4, weights += 256) {
            __m512i x[4];
            for (int i = 0; i < 4; i++)
                x[i] = _mm512_maskz_loadu_epi8(t + i < count ? within : 0, taps[t + i < count ? t + i : 0] + column);
            __m512i low = _mm512_unpacklo_epi8(x[0], x[1]), high = _mm512_unpackhi_epi8(x[0], x[1]);
            __m512i next_low = _mm512_unpacklo_epi8(x[2], x[3]), next_high = _mm512_unpackhi_epi8(x[2], x[3]);
            __m512i four[4] = {
                _mm512_unpacklo_epi16(low, next_low),
                _mm512_unpackhi_epi16(low, next_low),
                _mm512_unpacklo_epi16(high, next_high),
                _mm512_unpackhi_epi16(high, next_high),
            };
            for (int i = 0; i < 4; i++)
                sums[i] = LEVEL(dot)(sums[i], four[i], _mm512_loadu_si512(weights + i * 64));
        }
        LEVEL(in_order)(sums, acc);
        LEVEL(finish)(p, acc, row, 1, column, width, &none);
    }
}

#else

static int64_t LEVEL(place_of)(int64_t tap, int64_t channel, int64_t count)
{
    return (channel / 64 * count + tap) * 64 + channel % 64;
}

static void LEVEL(depthwise)(const tq_product *p, const uint8_t *const *taps, const int8_t *weights,
                             int64_t count, int64_t channels, int64_t row)
{
    const uint32_t none = 0;
    int32_t acc[64];
    for (int64_t column = 0; column < channels; column += 64, weights += count * 64) {
        int64_t width = channels - column < 64 ? channels - column : 64;
        int64_t n = 0;
#if defined(WITH_AVX2)
        /* In 32-bit lanes a byte leaves the upper half of its lane zero, so that the sum of both
         * products that vpmaddwd makes is the product of the lane, in one step. */
        for (; n + 8 <= width; n += 8) {
            __m256i sum = _mm256_setzero_si256();
            for (int64_t t = 0; t < count; t++) {
                const uint8_t *from = taps[t] + column + n;
                const int8_t *with = weights + t * 64 + n;
                __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
                __m256i w = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)with));
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
            }
            _mm256_storeu_si256((__m256i *)(acc + n), sum);
        }
#endif
        for (int64_t i = n; i < width; i++)
            acc[i] = 0;
        for (int64_t t = 0; t < count && n < width; t++) {
            const uint8_t *restrict x = taps[t] + column;
            const int8_t *restrict w = weights + t * 64;
            for (int64_t i = n; i < width; i++)
                acc[i] += (int16_t)((int16_t)x[i] * w[i]);
        }
        LEVEL(finish)(p, acc, row, 1, column, width, &none);
    }
}

#endif

#if defined(WITH_VNNI)

/* Bytes as numbers, moved by their zero point and scaled. */
static inline __m512 LEVEL(numbers)(const uint8_t *x, __m128i flip, __m512i zero, __m512 scale)
{
    __m512i wide = _mm512_cvtepu8_epi32(_mm_xor_si128(_mm_loadu_si128((const __m128i *)x), flip));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(wide, zero)), scale);
}

/* Sixteen at a time, by the steps of the loop below; returns how many are done. GCC 12 takes vectors
 * of half the width and converts back and forth: 1.8 times as long. */
static int64_t LEVEL(add_vectors)(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t n, const tq_binary *p)
{
    const __m512 low = _mm512_set1_ps((float)(p->low - p->zero)), high = _mm512_set1_ps((float)(p->high - p->zero));
    const __m512 scale_a = _mm512_set1_ps(p->scale_a), scale_b = _mm512_set1_ps(p->scale_b);
    const __m512 inverse = _mm512_set1_ps(p->inverse), whole = _mm512_set1_ps(12582912.0f);
    const __m512i zero_a = _mm512_set1_epi32(p->zero_a), zero_b = _mm512_set1_epi32(p->zero_b);
    const __m512i zero = _mm512_set1_epi32(p->zero);
    const __m128i flip = _mm_set1_epi8((char)p->flip);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 value = _mm512_add_ps(LEVEL(numbers)(a + i, flip, zero_a, scale_a),
                                     LEVEL(numbers)(b + i, flip, zero_b, scale_b));
        value = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(value, inverse), low), high);
        /* The lowest byte of what was rounded so is that of the integer. */
        __m512i bits = _mm512_add_epi32(_mm512_castps_si512(_mm512_add_ps(value, whole)), zero);
        _mm_storeu_si128((__m128i *)(out + i), _mm_xor_si128(_mm512_cvtepi32_epi8(bits), flip));
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
    ROWS == 128 ? ROWS : 48, LEVEL(rows), LEVEL(place_of), LEVEL(depthwise), LEVEL(add), LEVEL(mul), LEVEL(quantize),
    LEVEL(dequantize), LEVEL(range), LEVEL(prepare), LEVEL(grouped),
};

#undef ROWS
#undef BEGIN_PRODUCTS
#undef END_PRODUCTS
