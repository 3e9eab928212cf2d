/* A row of a weight in groups, times a vector of floats: included by gemm_level.h, once per level.
 *
 * Not exact, but to rounding: a group's sums stay in lanes, are scaled there, and the lanes are
 * added once per row, for a sum across lanes takes longer than the products of a whole group. */

#if defined(WITH_VNNI)

static float LEVEL(groups8)(const float *x, const int8_t *w, const float *scales, int64_t groups, int64_t group)
{
    __m512 all = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        __m512 a = _mm512_setzero_ps(), b = a;
        for (int64_t k = 0; k < group; k += 32, x += 32, w += 32) {
            __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)w));
            __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(w + 16)));
            a = _mm512_fmadd_ps(_mm512_loadu_ps(x), _mm512_cvtepi32_ps(low), a);
            b = _mm512_fmadd_ps(_mm512_loadu_ps(x + 16), _mm512_cvtepi32_ps(high), b);
        }
        all = _mm512_fmadd_ps(_mm512_add_ps(a, b), _mm512_set1_ps(scales[g]), all);
    }
    return _mm512_reduce_add_ps(all);
}

/* Sixteen bytes hold thirty-two weights: the first sixteen in the low halves. A half picks its
 * number from a table of sixteen, for which a lane's lowest four bits count alone. */
static float LEVEL(groups4)(const float *x, const uint8_t *w, const float *scales, int64_t groups, int64_t group,
                            float middle)
{
    __m512i counted = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512 table = _mm512_sub_ps(_mm512_cvtepi32_ps(counted), _mm512_set1_ps(middle));
    __m512 all = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        __m512 a = _mm512_setzero_ps(), b = a;
        for (int64_t k = 0; k < group; k += 32, x += 32, w += 16) {
            __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)w));
            a = _mm512_fmadd_ps(_mm512_loadu_ps(x), _mm512_permutexvar_ps(both, table), a);
            b = _mm512_fmadd_ps(_mm512_loadu_ps(x + 16), _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), table), b);
        }
        all = _mm512_fmadd_ps(_mm512_add_ps(a, b), _mm512_set1_ps(scales[g]), all);
    }
    return _mm512_reduce_add_ps(all);
}

#elif defined(WITH_AVX2)

static inline float LEVEL(total)(__m256 sums)
{
    float parts[8], all = 0.0f;
    _mm256_storeu_ps(parts, sums);
    for (int j = 0; j < 8; j++)
        all += parts[j];
    return all;
}

static inline __m256 LEVEL(step)(__m256 sum, const float *x, __m256i w)
{
    return _mm256_fmadd_ps(_mm256_loadu_ps(x), _mm256_cvtepi32_ps(w), sum);
}

static inline __m256 LEVEL(scaled)(__m256 a, __m256 b, __m256 c, __m256 d, float scale, __m256 all)
{
    __m256 part = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d));
    return _mm256_fmadd_ps(part, _mm256_set1_ps(scale), all);
}

static float LEVEL(groups8)(const float *x, const int8_t *w, const float *scales, int64_t groups, int64_t group)
{
    __m256 all = _mm256_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
        for (int64_t k = 0; k < group; k += 32, x += 32, w += 32) {
            a = LEVEL(step)(a, x, _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)w)));
            b = LEVEL(step)(b, x + 8, _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(w + 8))));
            c = LEVEL(step)(c, x + 16, _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(w + 16))));
            d = LEVEL(step)(d, x + 24, _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(w + 24))));
        }
        all = LEVEL(scaled)(a, b, c, d, scales[g], all);
    }
    return LEVEL(total)(all);
}

/* Sixteen bytes hold thirty-two weights: the first sixteen in the low halves. */
static float LEVEL(groups4)(const float *x, const uint8_t *w, const float *scales, int64_t groups, int64_t group,
                            float middle)
{
    const __m128i mask = _mm_set1_epi8(15), off = _mm_set1_epi8((char)middle);
    __m256 all = _mm256_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
        for (int64_t k = 0; k < group; k += 32, x += 32, w += 16) {
            __m128i both = _mm_loadu_si128((const __m128i *)w);
            __m128i low = _mm_sub_epi8(_mm_and_si128(both, mask), off);
            __m128i high = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(both, 4), mask), off);
            a = LEVEL(step)(a, x, _mm256_cvtepi8_epi32(low));
            b = LEVEL(step)(b, x + 8, _mm256_cvtepi8_epi32(_mm_srli_si128(low, 8)));
            c = LEVEL(step)(c, x + 16, _mm256_cvtepi8_epi32(high));
            d = LEVEL(step)(d, x + 24, _mm256_cvtepi8_epi32(_mm_srli_si128(high, 8)));
        }
        all = LEVEL(scaled)(a, b, c, d, scales[g], all);
    }
    return LEVEL(total)(all);
}

#else

static float LEVEL(groups8)(const float *x, const int8_t *w, const float *scales, int64_t groups, int64_t group)
{
    float all = 0.0f;
    for (int64_t g = 0; g < groups; g++) {
        float sum[16] = {0};
        for (int64_t k = 0; k < group; k += 16, x += 16, w += 16)
            for (int j = 0; j < 16; j++)
                sum[j] += x[j] * (float)w[j];
        for (int j = 0; j < 16; j++)
            all += sum[j] * scales[g];
    }
    return all;
}

/* Sixteen bytes hold thirty-two weights: the first sixteen in the low halves. */
static float LEVEL(groups4)(const float *x, const uint8_t *w, const float *scales, int64_t groups, int64_t group,
                            float middle)
{
    float all = 0.0f;
    for (int64_t g = 0; g < groups; g++) {
        float sum[16] = {0};
        for (int64_t k = 0; k < group; k += 32, x += 32, w += 16)
            for (int j = 0; j < 16; j++) {
                sum[j] += x[j] * ((float)(w[j] & 15) - middle);
                sum[j] += x[16 + j] * ((float)(w[j] >> 4) - middle);
            }
        for (int j = 0; j < 16; j++)
            all += sum[j] * scales[g];
    }
    return all;
}

#endif
