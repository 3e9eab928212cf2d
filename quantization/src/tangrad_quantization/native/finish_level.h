/* What becomes of sums of products, for one instruction-set level: included by gemm_level.h. */

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

#if defined(WITH_AVX2)

/* The steps of a row, eight columns of several rows at a time: of whole eights; returns how many
 * columns they are. */
static int64_t LEVEL(finish_eights)(const tq_product *p, const int32_t *acc, int64_t row, int rows, int64_t column,
                                    int64_t count, const uint32_t *row_sums)
{
    const __m256i input_zero = _mm256_set1_epi32(p->input_zero), zero = _mm256_set1_epi32(p->zero);
    const __m256 low = _mm256_set1_ps((float)(p->low - p->zero)), high = _mm256_set1_ps((float)(p->high - p->zero));
    const __m256 least = _mm256_set1_ps(p->least);
    const __m256i firsts = _mm256_set1_epi32(0x0C080400), ends = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
    const uint32_t of_depth = (uint32_t)p->input_zero * (uint32_t)p->depth;
    const int64_t stride = p->row_stride;
    const int32_t *zeros = p->weight_zeros;
    const int biased = p->bias != NULL;
    int64_t n = 0;
    for (; n + 8 <= count; n += 8) {
        __m256i of_zero = _mm256_loadu_si256((const __m256i *)(p->sums + column + n)), weight_zero = zero;
        of_zero = _mm256_mullo_epi32(input_zero, of_zero);
        __m256 scale = _mm256_loadu_ps(p->scales + column + n), bias = least;
        if (zeros != NULL)
            weight_zero = _mm256_loadu_si256((const __m256i *)(zeros + column + n));
        if (biased)
            bias = _mm256_loadu_ps(p->bias + column + n);
        float *floats = p->floats == NULL ? NULL : p->floats + row * stride + column + n;
        uint8_t *bytes = p->bytes + row * stride + column + n;
        for (int i = 0; i < rows; i++, bytes += stride) {
            __m256i sum = _mm256_loadu_si256((const __m256i *)(acc + i * 64 + n));
            sum = _mm256_sub_epi32(sum, of_zero);
            if (zeros != NULL) {
                __m256i rest = _mm256_set1_epi32((int32_t)(row_sums[i] - of_depth));
                sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(rest, weight_zero));
            }
            __m256 value = _mm256_cvtepi32_ps(sum);
            if (floats != NULL) {
                value = _mm256_mul_ps(value, scale);
                value = biased ? _mm256_add_ps(value, bias) : value;
                _mm256_storeu_ps(floats + i * stride, _mm256_max_ps(value, least));
                continue;
            }
            value = biased ? _mm256_add_ps(value, bias) : value;
            value = _mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(value, scale), low), high);
            __m256i made = _mm256_add_epi32(_mm256_cvtps_epi32(value), zero);
            made = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(made, firsts), ends);
            _mm_storel_epi64((__m128i *)bytes, _mm256_castsi256_si128(made));
        }
    }
    return n;
}

#endif

static void LEVEL(finish)(const tq_product *p, const int32_t *acc, int64_t row, int rows, int64_t column,
                          int64_t count, const uint32_t *row_sums)
{
    int64_t done = 0;
#if defined(WITH_AVX2)
    done = LEVEL(finish_eights)(p, acc, row, rows, column, count, row_sums);
#endif
    for (int i = 0; i < rows && done < count; i++)
        LEVEL(finish_row)(p, acc + i * 64 + done, row + i, column + done, count - done, row_sums[i]);
}

#endif
