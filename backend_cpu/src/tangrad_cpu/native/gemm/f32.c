/* float32. */
#include "engine.h"

#define MK_NAME f32
#define MK_T float
#define MK_V tgc_vf
#define MK_FMA tgc_fma_f
#ifdef __AVX512F__
#define MK_FMA_FROM tgc_fma_from_f
#endif
#define MK_LOAD tgc_load_f
#define MK_STORE tgc_store_f
#include "microkernel.h"

#define READ(p) ((tgc_vf)*(const tgc_vf_unaligned *)(p))

#define PK_NAME pack_f32
#define PK_S float
#define PK_T float
#define PK_V tgc_vf
#define PK_CONVERT(x) (x)
#define PK_LOAD READ
#define PK_BITS 32
#include "pack.h"

#define COLUMNS (2 * TGC_VECTOR / 4)

static void pack_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_f32(to, from, count, TGC_ROWS, k, stride, k_stride);
}

static void pack_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_f32(to, from, count, COLUMNS, k, stride, k_stride);
}

#define ST_NAME store_f32
#define ST_T float
#define ST_C float
#define ST_LOAD(x) (x)
#define ST_ROUND(x) (x)
#include "store.h"

#define TH_NAME thin_f32
#define TH_S float
#define TH_T float
#define TH_V tgc_vf
#define TH_FMA tgc_fma_f
#define TH_READ READ
#define TH_READ_PART tgc_load_f
#define TH_CONVERT(x) (x)
#define TH_TRANSPOSE tgc_transpose32
#define TH_STORE store_f32
#include "thin.h"

const tgc_engine TGC(tgc_engine_f32) = {
    .mr = TGC_ROWS,
    .nr = COLUMNS,
    .kc = 256,
    .kgroup = 1,
    .a_size = 4,
    .b_size = 4,
    .c_size = 4,
    .packed_size = 4,
    .tile_size = 4,
    .in_place = 1,
    .direct_limit = 1 << 19,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .kernel = f32_kernel,
    .direct = f32_direct,
    .store = store_f32,
};

void TGC(tgc_kernel_f32)(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c, int64_t c_row,
                         int accumulate, const tgc_ahead *next)
{
    f32_kernel(rows, cols, k, a, b, c, c_row, accumulate, next);
}

int TGC(tgc_gemm_f32)(const tgc_gemm *g)
{
    static const char op[] = "product of float32 matrices";
    int handled, status = thin_f32(g, op, &handled);
    return handled ? status : TGC(tgc_gemm_engine)(&TGC(tgc_engine_f32), g, op);
}
