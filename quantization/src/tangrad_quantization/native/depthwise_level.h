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
        LEVEL(transpose)(sums);
        for (int j = 0; j < 4; j++)
            _mm512_storeu_si512(acc + j * 16, sums[j]);
        LEVEL(finish)(p, acc, row, 1, column, width, &none);
    }
}

/* Bytes of four lines side by side, for all places of the input that some of the output read. */
static inline __attribute__((always_inline)) void LEVEL(interleave)(const tq_line *g, int64_t column,
                                                                    __mmask64 within, __m512i padding,
                                                                    int64_t steps, __m512i *room)
{
    for (int64_t i = 0; i < steps; i++)
        for (int64_t first = 0; first < g->count; first += 4, room += 4) {
            int64_t at = g->start + i;
            __m512i x[4];
            for (int64_t l = 0; l < 4; l++) {
                const uint8_t *line = first + l < g->count ? g->lines[first + l] : NULL;
                x[l] = padding;
                if (line != NULL && at >= 0 && at < g->width)
                    x[l] = _mm512_maskz_loadu_epi8(within, line + at * g->channels + column);
            }
            __m512i low = _mm512_unpacklo_epi8(x[0], x[1]), high = _mm512_unpackhi_epi8(x[0], x[1]);
            __m512i next_low = _mm512_unpacklo_epi8(x[2], x[3]), next_high = _mm512_unpackhi_epi8(x[2], x[3]);
            room[0] = _mm512_unpacklo_epi16(low, next_low);
            room[1] = _mm512_unpackhi_epi16(low, next_low);
            room[2] = _mm512_unpacklo_epi16(high, next_high);
            room[3] = _mm512_unpackhi_epi16(high, next_high);
        }
}

/* Sums of sixty-four channels in the order of unpacking, of `quads` fours of lines. */
static inline __attribute__((always_inline)) void LEVEL(places_of_line)(const tq_product *p,
                                                                        const LEVEL(channels) *c, const tq_line *g,
                                                                        const __m512i *room, const __m512i *w,
                                                                        int64_t column, int64_t row, int64_t taps,
                                                                        int64_t quads)
{
    uint8_t *to = p->bytes + row * p->row_stride + column;
    for (int64_t o = 0; o < g->places; o++, to += p->row_stride) {
        const __m512i *x = room + o * g->stride * quads * 4;
        __m512i sums[4] = {c->start[0], c->start[1], c->start[2], c->start[3]};
        for (int64_t k = 0; k < taps; k++)
            for (int64_t q = 0; q < quads; q++)
                for (int i = 0; i < 4; i++)
                    sums[i] = LEVEL(dot)(sums[i], x[(k * g->dilation * quads + q) * 4 + i], w[(k * quads + q) * 4 + i]);
        _mm512_mask_storeu_epi8(to, c->within, LEVEL(narrowed)(c, sums, 4));
    }
}

static void LEVEL(line)(const tq_product *p, const tq_line *g, const int8_t *weights, int64_t left, int64_t right,
                        int64_t row)
{
    const int64_t quads = (g->count + 3) / 4, steps = (g->places - 1) * g->stride + (g->taps - 1) * g->dilation + 1;
    const __m512i padding = _mm512_set1_epi8((char)p->input_zero);
    __m512i room[TQ_STEPS * 4];
    LEVEL(channels) c;
    for (int64_t column = left; column < right; column += 64) {
        const int8_t *from = weights + column * quads * g->taps * 4;
        LEVEL(read_channels)(p, column, right - column, &c);
        LEVEL(transpose)(c.start);
        LEVEL(transpose)((__m512i *)c.scale);
        LEVEL(transpose)((__m512i *)c.bias);
        LEVEL(interleave)(g, column, c.within, padding, steps, room);
        if (g->taps == 3 && quads == 1) {
            __m512i w[12];
            for (int i = 0; i < 12; i++)
                w[i] = _mm512_loadu_si512(from + i * 64);
            LEVEL(places_of_line)(p, &c, g, room, w, column, row, 3, 1);
            continue;
        }
        LEVEL(places_of_line)(p, &c, g, room, (const __m512i *)from, column, row, g->taps, quads);
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
