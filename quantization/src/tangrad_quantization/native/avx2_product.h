/* Products of bytes by AVX2, which multiplies words: included by gemm_level.h. */

#define ROWS 8
#define STRETCH 256 /* quads whose inputs are widened at once */

/* Inputs of some rows in words: of each quad the first and third number, and the second and fourth. */
typedef struct LEVEL(words) {
    int32_t even[ROWS][STRETCH], odd[ROWS][STRETCH];
} LEVEL(words);

static inline __attribute__((always_inline)) void LEVEL(begin)(__m256i sum[][2], const int32_t *acc, int rows, int more)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++)
            sum[i][j] = more ? _mm256_loadu_si256((const __m256i *)(acc + i * 64 + j * 8)) : _mm256_setzero_si256();
}

static inline __attribute__((always_inline)) void LEVEL(end)(__m256i sum[][2], int32_t *acc, int rows)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++)
            _mm256_storeu_si256((__m256i *)(acc + i * 64 + j * 8), sum[i][j]);
}

/* Products are made in 16 bits and added in pairs to 32 (vpmaddwd): the shorter way, vpmaddubsw,
 * saturates at 2^15, which 2 * 255 * 127 exceeds. Words of a quad that lie two apart are added, for
 * bytes become such words by shifts, which every port does, and a lane is one column's. */
static inline __attribute__((always_inline)) void LEVEL(block)(
    const LEVEL(words) *x, int row, const int8_t *b, int64_t quads, int32_t *acc, int rows, int more)
{
    __m256i sum[4][2];
    LEVEL(begin)(sum, acc, rows, more);
    for (int64_t k = 0; k < quads; k++) {
        __m256i low = _mm256_loadu_si256((const __m256i *)(b + k * 64));
        __m256i high = _mm256_loadu_si256((const __m256i *)(b + k * 64 + 32));
        __m256i low_odd = _mm256_srai_epi16(low, 8), low_even = _mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8);
        __m256i high_odd = _mm256_srai_epi16(high, 8), high_even = _mm256_srai_epi16(_mm256_slli_epi16(high, 8), 8);
        for (int i = 0; i < rows; i++) {
            __m256i even = _mm256_set1_epi32(x->even[row + i][k]), odd = _mm256_set1_epi32(x->odd[row + i][k]);
            sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(even, low_even));
            sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(even, high_even));
            sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(odd, low_odd));
            sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(odd, high_odd));
        }
    }
    LEVEL(end)(sum, acc, rows);
}

/* Inputs below 128 allow the shorter way, for 2 * 127 * 128 fits in 16 bits. */
static inline __attribute__((always_inline)) void LEVEL(narrow_block)(
    const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int32_t *acc, int rows, int more)
{
    __m256i sum[4][2], ones = _mm256_set1_epi16(1);
    LEVEL(begin)(sum, acc, rows, more);
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
    LEVEL(end)(sum, acc, rows);
}

static void LEVEL(wide)(const LEVEL(words) *x, int row, const int8_t *b, int64_t quads, int32_t *acc, int rows, int more)
{
    switch (rows) {
    case 1: LEVEL(block)(x, row, b, quads, acc, 1, more); return;
    case 2: LEVEL(block)(x, row, b, quads, acc, 2, more); return;
    case 3: LEVEL(block)(x, row, b, quads, acc, 3, more); return;
    default: LEVEL(block)(x, row, b, quads, acc, 4, more); return;
    }
}

static void LEVEL(narrow)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int32_t *acc, int rows,
                          int more)
{
    switch (rows) {
    case 1: LEVEL(narrow_block)(a, lda, b, quads, acc, 1, more); return;
    case 2: LEVEL(narrow_block)(a, lda, b, quads, acc, 2, more); return;
    case 3: LEVEL(narrow_block)(a, lda, b, quads, acc, 3, more); return;
    default: LEVEL(narrow_block)(a, lda, b, quads, acc, 4, more); return;
    }
}

/* Write rows as words; return whether all of them are below 128, as after a configuration that
 * leaves one bit unused. */
static int LEVEL(widen)(const uint8_t *a, int64_t lda, int64_t quads, int rows, LEVEL(words) *x)
{
    const __m256i mask = _mm256_set1_epi16(255);
    __m256i seen = _mm256_setzero_si256();
    int32_t rest = 0;
    for (int i = 0; i < rows; i++, a += lda) {
        int64_t k = 0;
        for (; k + 8 <= quads; k += 8) {
            __m256i bytes = _mm256_loadu_si256((const __m256i *)(a + k * 4));
            seen = _mm256_or_si256(seen, bytes);
            _mm256_storeu_si256((__m256i *)(x->even[i] + k), _mm256_and_si256(bytes, mask));
            _mm256_storeu_si256((__m256i *)(x->odd[i] + k), _mm256_srli_epi16(bytes, 8));
        }
        for (; k < quads; k++) {
            uint32_t four;
            memcpy(&four, a + k * 4, 4);
            rest |= (int32_t)four;
            x->even[i][k] = (int32_t)(four & 0x00FF00FF);
            x->odd[i][k] = (int32_t)(four >> 8 & 0x00FF00FF);
        }
    }
    return _mm256_movemask_epi8(seen) == 0 && (rest & (int32_t)0x80808080) == 0;
}

static void LEVEL(product)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads,
                           int64_t stride, int32_t *acc, int rows, int blocks, int narrow)
{
    LEVEL(words) x;
    for (int64_t k = 0; k < quads; k += STRETCH) {
        int64_t some = quads - k < STRETCH ? quads - k : STRETCH;
        int below = narrow || LEVEL(widen)(a + k * 4, lda, some, rows, &x);
        for (int j = 0; j < blocks; j++)
            for (int i = 0; i < rows; i += 4) {
                int four = rows - i < 4 ? rows - i : 4;
                const int8_t *from = b + j * stride + k * 64;
                int32_t *to = acc + i * 64 + j * 16;
                if (below)
                    LEVEL(narrow)(a + i * lda + k * 4, lda, from, some, to, four, k > 0);
                else
                    LEVEL(wide)(&x, i, from, some, to, four, k > 0);
            }
    }
    if (quads == 0)
        memset(acc, 0, ROWS * 64 * sizeof *acc);
}

#undef STRETCH
