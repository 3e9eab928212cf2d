/* Products of one 16-bit floating type by float32 panels. A template: define
 *   HP_TYPE (bf16 or f16) and HP_ROUND, and include. It gives pack_a, pack_b, stores to HP_TYPE
 *   and float32, and thin products to both. */
#include "engine.h"
#include "half.h"

#define HP_JOIN_(a, b) a##b
#define HP_JOIN(a, b) HP_JOIN_(a, b)
#define HP_READ HP_JOIN(tgc_read_, HP_TYPE)
#define HP_PART HP_JOIN(HP_JOIN(tgc_read_, HP_TYPE), _part)
#define HP_CONVERT HP_JOIN(HP_JOIN(tgc_, HP_TYPE), _to_f32)
#define HP_COLUMNS (2 * TGC_VECTOR / 4)

#define PK_NAME pack_half
#define PK_S uint16_t
#define PK_T float
#define PK_V tgc_vf
#define PK_CONVERT HP_CONVERT
#define PK_LOAD HP_READ
#define PK_BITS 32
#include "pack.h"

static void pack_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_half(to, from, count, TGC_ROWS, k, stride, k_stride);
}

static void pack_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_half(to, from, count, HP_COLUMNS, k, stride, k_stride);
}

#define ST_NAME store_half
#define ST_T float
#define ST_C uint16_t
#define ST_LOAD HP_CONVERT
#define ST_ROUND HP_ROUND
#include "store.h"

#define ST_NAME store_float
#define ST_T float
#define ST_C float
#define ST_LOAD(x) (x)
#define ST_ROUND(x) (x)
#include "store.h"

static void store(const tgc_gemm *g, void *c, int64_t i, int64_t j, int64_t rows, int64_t cols, void *tile,
                  int64_t tile_row)
{
    if (g->c_dtype == TGC_FLOAT32)
        store_float(g, c, i, j, rows, cols, tile, tile_row);
    else
        store_half(g, c, i, j, rows, cols, tile, tile_row);
}

#define TH_NAME thin_half
#define TH_S uint16_t
#define TH_T float
#define TH_V tgc_vf
#define TH_FMA tgc_fma_f
#define TH_READ HP_READ
#define TH_READ_PART HP_PART
#define TH_CONVERT HP_CONVERT
#define TH_TRANSPOSE tgc_transpose32
#define TH_STORE store
#include "thin.h"

static const tgc_engine widening = {
    .mr = TGC_ROWS,
    .nr = HP_COLUMNS,
    .kc = 256,
    .kgroup = 1,
    .a_size = 2,
    .b_size = 2,
    .c_size = 2,
    .packed_size = 4,
    .tile_size = 4,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .kernel = TGC(tgc_kernel_f32),
    .store = store,
};

/* The engine for C as it is: float32 elements can hold partial sums. */
static tgc_engine fitted(const tgc_engine *engine, const tgc_gemm *g)
{
    tgc_engine own = *engine;
    own.in_place = g->c_dtype == TGC_FLOAT32;
    own.c_size = own.in_place ? 4 : 2;
    return own;
}
