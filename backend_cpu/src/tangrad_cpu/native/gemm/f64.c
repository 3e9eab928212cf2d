/* float64. */
#include "engine.h"

#define MK_NAME f64
#define MK_T double
#define MK_V tgc_vd
#define MK_FMA tgc_fma_d
#ifdef __AVX512F__
#define MK_FMA_FROM tgc_fma_from_d
#endif
#define MK_LOAD tgc_load_d
#define MK_STORE tgc_store_d
#include "microkernel.h"

#define READ(p) ((tgc_vd)*(const tgc_vd_unaligned *)(p))

#define PK_NAME pack_f64
#define PK_S double
#define PK_T double
#define PK_V tgc_vd
#define PK_CONVERT(x) (x)
#define PK_LOAD READ
#define PK_BITS 64
#include "pack.h"

#define COLUMNS (2 * TGC_VECTOR / 8)

static void pack_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_f64(to, from, count, TGC_ROWS, k, stride, k_stride);
}

static void pack_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_f64(to, from, count, COLUMNS, k, stride, k_stride);
}

#define ST_NAME store_f64
#define ST_T double
#define ST_C double
#define ST_LOAD(x) (x)
#define ST_ROUND(x) (x)
#include "store.h"

#define TH_NAME thin_f64
#define TH_S double
#define TH_T double
#define TH_V tgc_vd
#define TH_FMA tgc_fma_d
#define TH_READ READ
#define TH_READ_PART tgc_load_d
#define TH_CONVERT(x) (x)
#define TH_TRANSPOSE tgc_transpose64
#define TH_STORE store_f64
#include "thin.h"

const tgc_engine TGC(tgc_engine_f64) = {
    .mr = TGC_ROWS,
    .nr = COLUMNS,
    .kc = 256,
    .kgroup = 1,
    .a_size = 8,
    .b_size = 8,
    .c_size = 8,
    .packed_size = 8,
    .tile_size = 8,
    .in_place = 1,
    .direct_limit = 1 << 18,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .kernel = f64_kernel,
    .direct = f64_direct,
    .store = store_f64,
};

int TGC(tgc_gemm_f64)(const tgc_gemm *g)
{
    static const char op[] = "product of float64 matrices";
    int handled, status = thin_f64(g, op, &handled);
    return handled ? status : TGC(tgc_gemm_engine)(&TGC(tgc_engine_f64), g, op);
}
