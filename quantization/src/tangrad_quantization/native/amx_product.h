/* Products of bytes by AMX tiles: sixteen rows by sixteen columns by sixty-four of the depth in one
 * instruction. Packed weights lie as tiles want them: sixteen quads of sixteen columns are one tile.
 * What is left of rows and of the depth goes by VNNI. */

typedef struct tq_tiles {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tq_tiles;

/* All tiles are whole, sixteen rows of sixty-four bytes. */
static const tq_tiles LEVEL(shape) __attribute__((aligned(64))) = {
    .palette = 1,
    .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

#define BEGIN_PRODUCTS _tile_loadconfig(&LEVEL(shape))
#define END_PRODUCTS _tile_release()

/* Thirty-two rows by thirty-two columns: tiles 0 to 3 hold sums, 4 and 5 inputs, 6 and 7 weights.
 * Meanwhile `lines` lines per step of both blocks at `ahead` are fetched to the second-level cache. */
static void LEVEL(square)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int64_t stride, int32_t *acc,
                          int more, const int8_t *ahead, int64_t lines)
{
    if (more) {
        _tile_loadd(0, acc, 256);
        _tile_loadd(1, acc + 16, 256);
        _tile_loadd(2, acc + 16 * 64, 256);
        _tile_loadd(3, acc + 16 * 64 + 16, 256);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < quads; k += 16) {
        _tile_loadd(4, a + k * 4, lda);
        _tile_loadd(6, b + k * 64, 64);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, b + stride + k * 64, 64);
        _tile_dpbusd(1, 4, 7);
        _tile_loadd(5, a + 16 * lda + k * 4, lda);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
        for (int64_t line = 0; line < lines; line++, ahead += 64) {
            _mm_prefetch(ahead, _MM_HINT_T1);
            _mm_prefetch(ahead + stride, _MM_HINT_T1);
        }
    }
    _tile_stored(0, acc, 256);
    _tile_stored(1, acc + 16, 256);
    _tile_stored(2, acc + 16 * 64, 256);
    _tile_stored(3, acc + 16 * 64 + 16, 256);
}

/* Quads of a stretch of the depth, of about 128: the weights of a square, 16 KiB, stay in the
 * first-level cache while all rows pass. */
static int64_t LEVEL(stretch)(int64_t quads)
{
    int64_t count = (quads + 64) / 128;
    return count < 2 ? quads : (quads + count * 16 - 1) / (count * 16) * 16;
}

/* Whole squares, a stretch of the depth after the other. */
static void LEVEL(squares)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int64_t stride, int32_t *acc,
                           int rows, int blocks)
{
    int64_t stretch = LEVEL(stretch)(quads);
    for (int j = 0; j + 2 <= blocks; j += 2, b += 2 * stride)
        for (int64_t k = 0; k < quads; k += stretch) {
            int64_t some = quads - k < stretch ? quads - k : stretch;
            const int8_t *next = k + some < quads ? b + (k + some) * 64 : b + 2 * stride;
            int64_t lines = rows < 128 ? 0 : 4; /* few rows of a convolution find the same weights again */
            for (int i = 0; i < rows; i += 32, next += lines * some * 4)
                LEVEL(square)(a + i * lda + k * 4, lda, b + k * 64, some, stride, acc + i * 64 + j * 16, k > 0, next,
                              lines);
        }
}

/* Sixteen rows by sixty-four columns: four sums, so that none waits for its last step. */
static void LEVEL(strip)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads,
                         int64_t stride, int32_t *acc)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < quads; k += 16) {
        _tile_loadd(4, a + k * 4, lda);
        _tile_loadd(5, b + k * 64, 64);
        _tile_loadd(6, b + stride + k * 64, 64);
        _tile_dpbusd(0, 4, 5);
        _tile_dpbusd(1, 4, 6);
        _tile_loadd(5, b + 2 * stride + k * 64, 64);
        _tile_loadd(6, b + 3 * stride + k * 64, 64);
        _tile_dpbusd(2, 4, 5);
        _tile_dpbusd(3, 4, 6);
    }
    _tile_stored(0, acc, 256);
    _tile_stored(1, acc + 16, 256);
    _tile_stored(2, acc + 32, 256);
    _tile_stored(3, acc + 48, 256);
}

static void LEVEL(tile)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int32_t *acc)
{
    _tile_zero(0);
    for (int64_t k = 0; k < quads; k += 16) {
        _tile_loadd(4, a + k * 4, lda);
        _tile_loadd(6, b + k * 64, 64);
        _tile_dpbusd(0, 4, 6);
    }
    _tile_stored(0, acc, 256);
}

/* Add the products of the last quads to the sums of sixteen columns. */
static void LEVEL(more)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads, int32_t *acc, int rows)
{
    for (int i = 0; i < rows; i++) {
        __m512i sum = _mm512_loadu_si512(acc + i * 64);
        for (int64_t k = 0; k < quads; k++) {
            int32_t four;
            memcpy(&four, a + i * lda + k * 4, 4);
            sum = LEVEL(dot)(sum, _mm512_set1_epi32(four), _mm512_loadu_si512(b + k * 64));
        }
        _mm512_storeu_si512(acc + i * 64, sum);
    }
}

static void LEVEL(product)(const uint8_t *a, int64_t lda, const int8_t *b, int64_t quads,
                           int64_t stride, int32_t *acc, int rows, int blocks, int narrow)
{
    int64_t whole = quads / 16 * 16;
    int tiled = whole > 0 ? rows / 16 * 16 : 0, squared = tiled / 32 * 32, paired = blocks / 2 * 2;
    if (squared > 0)
        LEVEL(squares)(a, lda, b, whole, stride, acc, squared, blocks);
    for (int i = 0; i < squared && paired < blocks; i += 16)
        LEVEL(tile)(a + i * lda, lda, b + paired * stride, whole, acc + i * 64 + paired * 16);
    if (tiled > squared && blocks == 4)
        LEVEL(strip)(a + squared * lda, lda, b, whole, stride, acc + squared * 64);
    for (int j = 0; j < blocks && tiled > squared && blocks < 4; j++)
        LEVEL(tile)(a + squared * lda, lda, b + j * stride, whole, acc + squared * 64 + j * 16);
    for (int j = 0; j < blocks && tiled > 0 && whole < quads; j++)
        LEVEL(more)(a + whole * 4, lda, b + j * stride + whole * 64, quads - whole, acc + j * 16, tiled);
    for (int i = tiled; i < rows; i += 6)
        LEVEL(few)(a + i * lda, lda, b, quads, stride, acc + i * 64, rows - i < 6 ? rows - i : 6, blocks);
}
