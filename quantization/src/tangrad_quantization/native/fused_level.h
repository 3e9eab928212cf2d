/* Products of bytes by AVX-512 VNNI whose sums become numbers without leaving the registers, and whose
 * rows may lie in pieces: included by gemm_level.h. */

/* What becomes of the sums of sixty-four columns. A bias of -0 changes no number, not even a zero. */
typedef struct LEVEL(channels) {
    __m512i start[4]; /* of the sums: what the input's zero point takes away */
    __m512 scale[4], bias[4];
    __m512 high, least;
    __m512i shift, low, flip, order;
    __mmask64 within;
} LEVEL(channels);

static inline __attribute__((always_inline)) __m512i LEVEL(four_lanes)(__m512i a, __m512i b, int high)
{
    return high ? _mm512_shuffle_i32x4(a, b, 0xEE) : _mm512_shuffle_i32x4(a, b, 0x44);
}

/* The lanes of four vectors, transposed. */
static inline __attribute__((always_inline)) void LEVEL(transpose)(__m512i *v)
{
    __m512i first = LEVEL(four_lanes)(v[0], v[1], 0), second = LEVEL(four_lanes)(v[2], v[3], 0);
    __m512i third = LEVEL(four_lanes)(v[0], v[1], 1), fourth = LEVEL(four_lanes)(v[2], v[3], 1);
    v[0] = _mm512_shuffle_i32x4(first, second, 0x88);
    v[1] = _mm512_shuffle_i32x4(first, second, 0xDD);
    v[2] = _mm512_shuffle_i32x4(third, fourth, 0x88);
    v[3] = _mm512_shuffle_i32x4(third, fourth, 0xDD);
}

/* Of at most sixty-four columns from `column` on. Bytes are made 128 higher than they are where they
 * have a sign, for the instruction that narrows them knows none. */
static void LEVEL(read_channels)(const tq_product *p, int64_t column, int64_t count, LEVEL(channels) *c)
{
    const __m512i less_zero = _mm512_set1_epi32(-p->input_zero);
    const int flip = p->low < 0 ? 128 : 0;
    for (int64_t j = 0; j < 4; j++) {
        int64_t left = count - j * 16, at = column + j * 16;
        __mmask16 within = left >= 16 ? 0xFFFF : left <= 0 ? 0 : (__mmask16)(0xFFFF >> (16 - left));
        c->start[j] = _mm512_mullo_epi32(less_zero, _mm512_maskz_loadu_epi32(within, p->sums + at));
        c->scale[j] = _mm512_maskz_loadu_ps(within, p->scales + at);
        c->bias[j] = _mm512_set1_ps(-0.0f);
        if (p->bias != NULL)
            c->bias[j] = _mm512_maskz_loadu_ps(within, p->bias + at);
    }
    c->high = _mm512_set1_ps((float)(p->high - p->zero));
    c->least = _mm512_set1_ps(p->least);
    c->shift = _mm512_set1_epi16((int16_t)(p->zero + flip));
    c->low = _mm512_set1_epi8((char)(p->low + flip));
    c->flip = _mm512_set1_epi8((char)flip);
    c->order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    c->within = count >= 64 ? ~0ull : ~0ull >> (64 - count);
}

/* The steps of the other levels: the sum becomes float32, bias, scale, one rounding, the zero point.
 * What is too low stays so when integers of 16 bits saturate, and is lifted at the end. */
static inline __attribute__((always_inline)) __m512i LEVEL(integers)(const LEVEL(channels) *c, __m512i sum, int j)
{
    __m512 value = _mm512_cvtepi32_ps(sum);
    value = _mm512_mul_ps(_mm512_add_ps(value, c->bias[j]), c->scale[j]);
    return _mm512_cvtps_epi32(_mm512_min_ps(c->high, value));
}

/* Bytes of sixty-four sums: of each lane of sixteen bytes four of every vector. */
static inline __attribute__((always_inline)) __m512i LEVEL(narrowed)(const LEVEL(channels) *c, const __m512i *sum,
                                                                     int blocks)
{
    __m512i made[4];
    for (int j = 0; j < 4; j++)
        made[j] = j < blocks ? LEVEL(integers)(c, sum[j], j) : _mm512_setzero_si512();
    __m512i first = _mm512_adds_epi16(_mm512_packs_epi32(made[0], made[1]), c->shift);
    __m512i second = _mm512_adds_epi16(_mm512_packs_epi32(made[2], made[3]), c->shift);
    return _mm512_xor_si512(_mm512_max_epu8(_mm512_packus_epi16(first, second), c->low), c->flip);
}

#if !defined(WITH_AMX)

static inline __attribute__((always_inline)) void LEVEL(put)(const tq_product *p, const LEVEL(channels) *c,
                                                             const __m512i *sum, int blocks, int64_t row,
                                                             int64_t column)
{
    if (p->floats == NULL) {
        __m512i made = _mm512_permutexvar_epi32(c->order, LEVEL(narrowed)(c, sum, blocks));
        _mm512_mask_storeu_epi8(p->bytes + row * p->row_stride + column, c->within, made);
        return;
    }
    float *to = p->floats + row * p->row_stride + column;
    for (int j = 0; j < blocks; j++) {
        __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[j]), c->scale[j]);
        value = _mm512_max_ps(_mm512_add_ps(value, c->bias[j]), c->least);
        _mm512_mask_storeu_ps(to + j * 16, (__mmask16)(c->within >> (j * 16)), value);
    }
}

/* Some rows by sixteen columns in each block; what they will write is fetched first. Of one row or two every other step has sums of its own,
 * or their latency would stand still. */
static inline __attribute__((always_inline)) void LEVEL(fused)(
    const tq_product *p, const LEVEL(channels) *c, const uint8_t *const *from, const tq_pieces *pieces,
    int64_t row, int64_t column, int rows, int blocks)
{
    const int64_t stride = p->quads * 64;
    const int8_t *b = p->packed + column / 16 * stride;
    __m512i sum[6][4], odd[2][4];
    for (int i = 0; i < rows; i++) {
        int64_t place = (row + i) * p->row_stride + column;
        if (p->floats == NULL)
            __builtin_prefetch(p->bytes + place, 1);
        else
            for (int j = 0; j < blocks; j++)
                __builtin_prefetch(p->floats + place + j * 16, 1);
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < blocks; j++) {
            sum[i][j] = c->start[j];
            odd[i & 1][j] = _mm512_setzero_si512();
        }
    for (int64_t s = 0; s < pieces->count; s++) {
        const uint8_t *a[6];
        for (int i = 0; i < rows; i++)
            a[i] = from[i] + pieces->offsets[s];
        int64_t k = 0;
        if (rows <= 2)
            for (; k + 2 <= pieces->quads; k += 2, b += 128)
                for (int i = 0; i < rows; i++) {
                    int32_t four, next;
                    memcpy(&four, a[i] + k * 4, 4);
                    memcpy(&next, a[i] + k * 4 + 4, 4);
                    __m512i x = _mm512_set1_epi32(four), y = _mm512_set1_epi32(next);
                    for (int j = 0; j < blocks; j++) {
                        sum[i][j] = LEVEL(dot)(sum[i][j], x, _mm512_loadu_si512(b + j * stride));
                        odd[i][j] = LEVEL(dot)(odd[i][j], y, _mm512_loadu_si512(b + j * stride + 64));
                    }
                }
        for (; k < pieces->quads; k++, b += 64) {
            __m512i w[4];
            for (int j = 0; j < blocks; j++)
                w[j] = _mm512_loadu_si512(b + j * stride);
            for (int i = 0; i < rows; i++) {
                int32_t four;
                memcpy(&four, a[i] + k * 4, 4);
                __m512i x = _mm512_set1_epi32(four);
                for (int j = 0; j < blocks; j++)
                    sum[i][j] = LEVEL(dot)(sum[i][j], x, w[j]);
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < blocks && rows <= 2; j++)
            sum[i][j] = _mm512_add_epi32(sum[i][j], odd[i & 1][j]);
        LEVEL(put)(p, c, sum[i], blocks, row + i, column);
    }
}

#define OF_ROWS(blocks)                                                                                         \
    switch (rows) {                                                                                             \
    case 1: LEVEL(fused)(p, c, from, pieces, row, column, 1, blocks); return;                                   \
    case 2: LEVEL(fused)(p, c, from, pieces, row, column, 2, blocks); return;                                   \
    case 3: LEVEL(fused)(p, c, from, pieces, row, column, 3, blocks); return;                                   \
    case 4: LEVEL(fused)(p, c, from, pieces, row, column, 4, blocks); return;                                   \
    case 5: LEVEL(fused)(p, c, from, pieces, row, column, 5, blocks); return;                                   \
    default: LEVEL(fused)(p, c, from, pieces, row, column, 6, blocks); return;                                  \
    }

static void LEVEL(four_blocks)(const tq_product *p, const LEVEL(channels) *c, const uint8_t *const *from,
                               const tq_pieces *pieces, int64_t row, int64_t column, int rows)
{
    OF_ROWS(4)
}

static void LEVEL(two_blocks)(const tq_product *p, const LEVEL(channels) *c, const uint8_t *const *from,
                              const tq_pieces *pieces, int64_t row, int64_t column, int rows)
{
    OF_ROWS(2)
}

static void LEVEL(one_block)(const tq_product *p, const LEVEL(channels) *c, const uint8_t *const *from,
                             const tq_pieces *pieces, int64_t row, int64_t column, int rows)
{
    OF_ROWS(1)
}

#undef OF_ROWS

/* Rows `begin` to `end` of the output by columns from `left` on, each row at its place in memory. */
static void LEVEL(pieces)(const tq_product *p, const uint8_t *const *at, const tq_pieces *pieces, int64_t begin,
                          int64_t end, int64_t left, int64_t right)
{
    LEVEL(channels) c;
    for (int64_t column = left, width; column < right; column += width) {
        int64_t count = right - column;
        width = count > 48 ? 64 : count > 16 ? 32 : 16;
        LEVEL(read_channels)(p, column, count < width ? count : width, &c);
        for (int64_t row = begin; row < end; row += 6) {
            int rows = (int)(end - row < 6 ? end - row : 6);
            const uint8_t *const *from = at + (row - begin);
            if (width == 64)
                LEVEL(four_blocks)(p, &c, from, pieces, row, column, rows);
            else if (width == 32)
                LEVEL(two_blocks)(p, &c, from, pieces, row, column, rows);
            else
                LEVEL(one_block)(p, &c, from, pieces, row, column, rows);
        }
    }
}

#endif
