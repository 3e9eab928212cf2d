/* Products of bytes by AVX-512 VNNI, sixty-four columns at a time: included by gemm_level.h. */

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
