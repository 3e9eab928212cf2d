/* A convolution of each channel by itself, for one instruction-set level: taps in the order of the
 * kernel, channels innermost. Included by gemm_level.h. */

#if defined(WITH_VNNI)

/* Weights of four taps lie together, in blocks of 64 channels, in the order that unpacking makes of
 * four taps of the input: within lanes of 16 channels first the first four of each lane. */
static void LEVEL(order)(const int8_t *weights, int64_t taps, int64_t channels, int8_t *to)
{
    int64_t quads = (taps + 3) / 4;
    for (int64_t c = 0; c < channels; c++) {
        int64_t within = c % 64, place = within % 16 / 4 * 16 + within / 16 * 4 + within % 4;
        int8_t *channel = to + (c / 64 * quads * 64 + place) * 4;
        for (int64_t t = 0; t < taps; t++)
            channel[t / 4 * 256 + t % 4] = weights[t * channels + c];
    }
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

#if defined(WITH_AVX2)

/* Words: those of two taps side by side, in blocks of 64 channels. */
static void LEVEL(order)(const int8_t *weights, int64_t taps, int64_t channels, int8_t *to)
{
    int64_t pairs = (taps + 1) / 2;
    for (int64_t c = 0; c < channels; c++) {
        int16_t *channel = (int16_t *)to + (c / 64 * pairs * 64 + c % 64) * 2;
        for (int64_t t = 0; t < taps; t++)
            channel[t / 2 * 128 + t % 2] = weights[t * channels + c];
    }
}

static void LEVEL(depthwise)(const tq_product *p, const uint8_t *const *taps, const int8_t *weights,
                             int64_t count, int64_t channels, int64_t row)
{
    const uint32_t none = 0;
    int32_t acc[64];
    const int16_t *words = (const int16_t *)weights;
    for (int64_t column = 0; column < channels; column += 64, words += (count + 1) / 2 * 128) {
        int64_t width = channels - column < 64 ? channels - column : 64, n = 0;
        for (; n + 16 <= width; n += 16) {
            __m256i low = _mm256_setzero_si256(), high = low;
            for (int64_t t = 0; t < count; t += 2) {
                /* The last tap may be alone; then its neighbour's weights are zero. */
                const uint8_t *second = taps[t + 1 < count ? t + 1 : t] + column + n;
                __m128i x = _mm_loadu_si128((const __m128i *)(taps[t] + column + n));
                __m128i y = _mm_loadu_si128((const __m128i *)second);
                const __m256i *w = (const __m256i *)(words + t * 64 + n * 2);
                __m256i left = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(x, y));
                __m256i right = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(x, y));
                low = _mm256_add_epi32(low, _mm256_madd_epi16(left, _mm256_loadu_si256(w)));
                high = _mm256_add_epi32(high, _mm256_madd_epi16(right, _mm256_loadu_si256(w + 1)));
            }
            _mm256_storeu_si256((__m256i *)(acc + n), low);
            _mm256_storeu_si256((__m256i *)(acc + n + 8), high);
        }
        for (; n < width; n++) {
            acc[n] = 0;
            for (int64_t t = 0; t < count; t++)
                acc[n] += taps[t][column + n] * words[t / 2 * 128 + n * 2 + t % 2];
        }
        LEVEL(finish)(p, acc, row, 1, column, width, &none);
    }
}

#else

static void LEVEL(order)(const int8_t *weights, int64_t taps, int64_t channels, int8_t *to)
{
    for (int64_t c = 0; c < channels; c++)
        for (int64_t t = 0; t < taps; t++)
            to[(c / 64 * taps + t) * 64 + c % 64] = weights[t * channels + c];
}

static void LEVEL(depthwise)(const tq_product *p, const uint8_t *const *taps, const int8_t *weights,
                             int64_t count, int64_t channels, int64_t row)
{
    const uint32_t none = 0;
    for (int64_t column = 0; column < channels; column += 64, weights += count * 64) {
        int64_t width = channels - column < 64 ? channels - column : 64;
        int32_t acc[64] = {0};
        for (int64_t t = 0; t < count; t++) {
            const uint8_t *restrict x = taps[t] + column;
            const int8_t *restrict w = weights + t * 64;
            for (int64_t i = 0; i < width; i++)
                acc[i] += (int16_t)((int16_t)x[i] * w[i]);
        }
        LEVEL(finish)(p, acc, row, 1, column, width, &none);
    }
}

#endif

#endif
