/* Rows of a weight in groups, times a vector of floats: included by gemm_level.h, once per level.
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

static inline __m256 LEVEL(scaled)(__m256 a, __m256 b, __m256 c, __m256 d, __m256 scale, __m256 all)
{
    return _mm256_fmadd_ps(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)), scale, all);
}

static inline __m256 LEVEL(both_lanes)(float low, float high)
{
    return _mm256_insertf128_ps(_mm256_set1_ps(low), _mm_set1_ps(high), 1);
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
        all = LEVEL(scaled)(a, b, c, d, _mm256_set1_ps(scales[g]), all);
    }
    return LEVEL(total)(all);
}

/* Four bits n become the float 1 + n / 16 by setting its second byte: the first is the same for all.
 * Two neighbouring bytes share a lane. The float of the second is the lane as it is, whose lower half
 * adds (0x3f80 + 8 m) / 2^23, with m the first one's bits. That is linear in m, so it is taken off the
 * number that m is multiplied by, and no step is spent on a mask. */
#define PART_OF_NEXT 0x1p-16f
#define SECOND_ONE (1.0 + 0x3f80 * 0x1p-23)

/* Elements whose sums are scaled together: a group, or 64, whose two lanes are of two groups then. */
static int64_t LEVEL(run)(const tq_groups *g)
{
    return g->group % 64 == 0 ? g->group : 64;
}

/* Write x in the order in which `decoded` meets it, then two vectors of each run: what the ones in
 * its numbers add, negative, and what a zero point of 1 takes off. Return 0 where these overflow. */
static int LEVEL(prepare4)(const tq_groups *g, const float *x, float *to)
{
    int64_t depth = g->groups * g->group, run = LEVEL(run)(g);
    for (int64_t block = 0; block < depth; block += 64, to += 64)
        for (int64_t part = 0; part < 4; part++)
            for (int64_t j = 0; j < 8; j++) {
                int64_t k = block + j / 4 * 32 + part * 8 + j % 4 * 2;
                to[part * 16 + j] = k < depth ? x[k] - x[k + 1] * PART_OF_NEXT : 0.0f;
                to[part * 16 + 8 + j] = k < depth ? x[k + 1] : 0.0f;
            }
    for (int64_t begin = 0; begin < depth; begin += run, to += 16) {
        double ones[2] = {0.0, 0.0}, sums[2] = {0.0, 0.0};
        for (int64_t k = begin; k < begin + run && k < depth; k += 2) {
            int lane = k % 64 >= 32;
            ones[lane] += (x[k] - x[k + 1] * PART_OF_NEXT) + x[k + 1] * SECOND_ONE;
            sums[lane] += (double)x[k] + x[k + 1];
        }
        memset(to, 0, 16 * sizeof *to);
        for (int lane = 0; lane < 2; lane++) {
            to[lane * 4] = (float)-ones[lane];
            to[8 + lane * 4] = (float)(sums[lane] / -16.0);
            if (!(fabsf(to[lane * 4]) <= FLT_MAX))
                return 0;
        }
    }
    return 1;
}

static inline __attribute__((always_inline)) void LEVEL(decoded)(__m256 *sums, const float *x, __m256i halves)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_set_epi8(-8, -16, -24, -32, -40, -48, -56, -64, -72, -80, -88, -96, -104, -112, -120, -128));
    __m256i bytes = _mm256_shuffle_epi8(table, halves), start = _mm256_set1_epi8(0x3f);
    __m256i low = _mm256_unpacklo_epi8(bytes, start), high = _mm256_unpackhi_epi8(bytes, start);
    sums[0] = _mm256_fmadd_ps(_mm256_loadu_ps(x), _mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), sums[0]);
    sums[1] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8), _mm256_castsi256_ps(low), sums[1]);
    sums[2] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 16), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16)), sums[2]);
    sums[3] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 24), _mm256_castsi256_ps(high), sums[3]);
}

/* Two columns at once, so that no sum waits for its last step. `whole`: runs are groups; no division
 * says then which group a lane is of, for one takes as long as the products of a run. */
static inline __attribute__((always_inline)) void LEVEL(columns4)(const tq_groups *g, const float *x, int64_t column,
                                                                  float *out, const int columns, const int whole)
{
    const __m256i mask = _mm256_set1_epi8(15);
    int64_t groups = g->groups, depth = groups * g->group, run = whole ? g->group : 64, first = 0, second = 0;
    const float *vectors = x + (depth + 63) / 64 * 64;
    const uint8_t *from = g->weight + column * (depth / 2);
    __m256 all[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t begin = 0; begin < depth; begin += run, vectors += 16, first++) {
        if (!whole) {
            first = begin / g->group;
            second = (begin + 32) / g->group;
            second = second < groups ? second : first;
        }
        __m256 sums[2][4];
        for (int c = 0; c < columns; c++) {
            const float *zeros = g->zeros + (column + c) * groups;
            __m256 zero = g->zeros == NULL ? _mm256_set1_ps(8.0f)
                          : whole          ? _mm256_broadcast_ss(zeros + first)
                                           : LEVEL(both_lanes)(zeros[first], zeros[second]);
            sums[c][0] = _mm256_fmadd_ps(zero, _mm256_loadu_ps(vectors + 8), _mm256_loadu_ps(vectors));
            sums[c][1] = sums[c][2] = sums[c][3] = _mm256_setzero_ps();
        }
        for (int64_t k = begin; k < begin + run && k < depth; k += 64, from += 32)
            for (int c = 0; c < columns; c++) {
                const uint8_t *at = from + c * (depth / 2);
                __m256i both = whole || depth - k >= 64
                                   ? _mm256_loadu_si256((const __m256i *)at)
                                   : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)at));
                LEVEL(decoded)(sums[c], x + k, _mm256_and_si256(both, mask));
                LEVEL(decoded)(sums[c], x + k + 32, _mm256_and_si256(_mm256_srli_epi16(both, 4), mask));
            }
        for (int c = 0; c < columns; c++) {
            const float *scales = g->scales + (column + c) * groups;
            __m256 scale = whole ? _mm256_broadcast_ss(scales + first)
                                 : LEVEL(both_lanes)(scales[first], scales[second]);
            all[c] = LEVEL(scaled)(sums[c][0], sums[c][1], sums[c][2], sums[c][3], scale, all[c]);
        }
    }
    for (int c = 0; c < columns; c++)
        out[column + c] = LEVEL(total)(all[c]) * 16.0f;
}

static void LEVEL(grouped4)(const tq_groups *g, const float *x, int64_t left, int64_t right, float *out)
{
    if (g->group % 64 == 0) {
        for (; left + 2 <= right; left += 2)
            LEVEL(columns4)(g, x, left, out, 2, 1);
        if (left < right)
            LEVEL(columns4)(g, x, left, out, 1, 1);
        return;
    }
    for (; left + 2 <= right; left += 2)
        LEVEL(columns4)(g, x, left, out, 2, 0);
    if (left < right)
        LEVEL(columns4)(g, x, left, out, 1, 0);
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

/* What `grouped` needs to know of a row besides its numbers: of each group, their sum. Return 0 where
 * numbers are not finite and the level needs them to be. */
static int LEVEL(prepare)(const tq_groups *g, const float *x, float *to)
{
#if defined(WITH_AVX2)
    if (g->bits == 4)
        return LEVEL(prepare4)(g, x, to);
#endif
    for (int64_t i = 0; g->zeros != NULL && i < g->groups; i++, x += g->group) {
        float sum = 0.0f;
        for (int64_t k = 0; k < g->group; k++)
            sum += x[k];
        to[i] = sum;
    }
    return 1;
}

static void LEVEL(grouped)(const tq_groups *g, const float *x, const float *prepared, int64_t left, int64_t right,
                           float *out)
{
#if defined(WITH_AVX2)
    if (g->bits == 4) {
        LEVEL(grouped4)(g, prepared, left, right, out);
        return;
    }
#endif
    int64_t bytes = g->groups * g->group * g->bits / 8;
    for (int64_t n = left; n < right; n++) {
        const uint8_t *w = g->weight + n * bytes;
        const float *scales = g->scales + n * g->groups;
        float sum;
#if !defined(WITH_AVX2)
        if (g->bits == 4)
            sum = LEVEL(groups4)(x, w, scales, g->groups, g->group, g->zeros == NULL ? 8.0f : 0.0f);
        else
#endif
            sum = LEVEL(groups8)(x, (const int8_t *)w, scales, g->groups, g->group);
        for (int64_t i = 0; g->zeros != NULL && i < g->groups; i++)
            sum -= scales[i] * g->zeros[n * g->groups + i] * prepared[i];
        out[n] = sum;
    }
}
