/* Complex products by real ones: panels hold real and imaginary parts apart, so that four real
 * multiplications per pair run on whole vectors. A template: define
 *   CX_NAME (c64, c128), CX_T (part), CX_V, CX_FMA
 * and include. */
#include "engine.h"
#include "simd.h"

#define CX_JOIN_(a, b) a##b
#define CX_JOIN(a, b) CX_JOIN_(a, b)
#define CX_LANES ((int64_t)(TGC_VECTOR / sizeof(CX_T)))
/* Two accumulators a row, as for a real tile of two vectors. */
#define CX_ROWS (TGC_ROWS == 14 ? 12 : 4)

/* A run of a panel is `width` real parts, then as many imaginary ones. */
static inline void pack_parts(CX_T *to, const CX_T *from, int64_t count, const int64_t width, int64_t k, int64_t stride,
                              int64_t k_stride)
{
    for (int64_t p = 0; p < k; p++, to += 2 * width) {
        for (int64_t i = 0; i < count; i++) {
            const CX_T *at = from + 2 * (i * stride + p * k_stride);
            to[i] = at[0];
            to[width + i] = at[1];
        }
        for (int64_t i = count; i < width; i++)
            to[i] = to[width + i] = 0;
    }
}

static void pack_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_parts(to, from, count, CX_ROWS, k, stride, k_stride);
}

static void pack_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    if (stride == 1)
        pack_parts(to, from, count, CX_LANES, k, 1, k_stride);
    else
        pack_parts(to, from, count, CX_LANES, k, stride, k_stride);
}

static inline __attribute__((always_inline)) void tile(const int rows, int64_t cols, int64_t k, const CX_T *a,
                                                       const CX_T *b, CX_T *c, int64_t c_row, int accumulate)
{
    CX_V real[CX_ROWS], imaginary[CX_ROWS];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
        real[i] = imaginary[i] = (CX_V){0};
    for (int64_t p = 0; p < k; p++, a += 2 * CX_ROWS, b += 2 * CX_LANES) {
        CX_V b_real = *(const CX_V *)b, b_imaginary = *(const CX_V *)(b + CX_LANES);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            CX_V a_real = a[i] - (CX_V){0}, a_imaginary = a[CX_ROWS + i] - (CX_V){0};
            real[i] = CX_FMA(a_real, b_real, real[i]);
            imaginary[i] = CX_FMA(a_real, b_imaginary, imaginary[i]);
            real[i] = CX_FMA(-a_imaginary, b_imaginary, real[i]);
            imaginary[i] = CX_FMA(a_imaginary, b_real, imaginary[i]);
        }
    }
    for (int i = 0; i < rows; i++) {
        CX_T *to = c + 2 * i * c_row;
        for (int64_t j = 0; j < cols; j++) {
            to[2 * j] = real[i][j] + (accumulate ? to[2 * j] : 0);
            to[2 * j + 1] = imaginary[i][j] + (accumulate ? to[2 * j + 1] : 0);
        }
    }
}

static void kernel(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c, int64_t c_row,
                   int accumulate, const tgc_ahead *next)
{
    (void)next;
    /* Panels are padded with zeros: a tile cut short costs what a whole one does. */
    _Alignas(64) CX_T whole[2 * CX_ROWS * CX_LANES];
    if (rows == CX_ROWS) {
        tile(CX_ROWS, cols, k, a, b, c, c_row, accumulate);
        return;
    }
    tile(CX_ROWS, cols, k, a, b, whole, CX_LANES, 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < 2 * cols; j++) {
            CX_T *to = (CX_T *)c + 2 * i * c_row + j;
            *to = whole[2 * i * CX_LANES + j] + (accumulate ? *to : 0);
        }
}

#define ST_NAME store
#define ST_T _Complex CX_T
#define ST_C _Complex CX_T
#define ST_LOAD(x) (x)
#define ST_ROUND(x) (x)
#define ST_SCALAR(x) ((CX_T)(x))
#include "store.h"

static const tgc_engine engine = {
    .mr = CX_ROWS,
    .nr = CX_LANES,
    .kc = 256,
    .kgroup = 1,
    .a_size = 2 * sizeof(CX_T),
    .b_size = 2 * sizeof(CX_T),
    .c_size = 2 * sizeof(CX_T),
    .packed_size = 2 * sizeof(CX_T),
    .tile_size = 2 * sizeof(CX_T),
    .in_place = 1,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .kernel = kernel,
    .store = store,
};

int TGC(CX_JOIN(tgc_gemm_, CX_NAME))(const tgc_gemm *g)
{
    return TGC(tgc_gemm_engine)(&engine, g, "product of complex matrices");
}
