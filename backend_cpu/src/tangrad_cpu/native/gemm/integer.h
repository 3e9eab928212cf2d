/* Products of integers of one type, modulo 2^bits; signed and unsigned ones are the same then. A
 * template: define
 *   IN_NAME (i8, ...), IN_C (element), IN_T (element of panels), IN_V, IN_SUFFIX, IN_SIZE (bytes
 *   of IN_C), IN_BITS (of squares to transpose, or 0), IN_LOAD
 * and include. */
#include "engine.h"

#define IN_JOIN_(a, b) a##b
#define IN_JOIN(a, b) IN_JOIN_(a, b)
#define IN_COLUMNS (2 * TGC_VECTOR / (int64_t)sizeof(IN_T))

#define MK_NAME IN_NAME
#define MK_T IN_T
#define MK_V IN_V
#define MK_FMA IN_JOIN(tgc_fma_, IN_SUFFIX)
#define MK_LOAD IN_JOIN(tgc_load_, IN_SUFFIX)
#define MK_STORE IN_JOIN(tgc_store_, IN_SUFFIX)
#define MK_PANELS_ONLY
#include "microkernel.h"

#define PK_NAME pack
#define PK_S IN_C
#define PK_T IN_T
#define PK_V IN_V
#define PK_CONVERT(x) (x)
#define PK_LOAD IN_LOAD
#define PK_BITS IN_BITS
#include "pack.h"

static void pack_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack(to, from, count, TGC_ROWS, k, stride, k_stride);
}

static void pack_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack(to, from, count, IN_COLUMNS, k, stride, k_stride);
}

#define ST_NAME store
#define ST_T IN_T
#define ST_C IN_C
#define ST_LOAD(x) ((IN_T)(x))
#define ST_ROUND(x) ((IN_C)(x))
#define ST_SCALAR(x) ((IN_T)(int64_t)(x) + 0u) /* at least unsigned int: products wrap */
#include "store.h"

static const tgc_engine engine = {
    .mr = TGC_ROWS,
    .nr = IN_COLUMNS,
    .kc = 256,
    .kgroup = 1,
    .a_size = IN_SIZE,
    .b_size = IN_SIZE,
    .c_size = IN_SIZE,
    .packed_size = sizeof(IN_T),
    .tile_size = sizeof(IN_T),
    .in_place = sizeof(IN_T) == IN_SIZE,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .kernel = IN_JOIN(IN_NAME, _kernel),
    .store = store,
};

int TGC(IN_JOIN(tgc_gemm_, IN_NAME))(const tgc_gemm *g)
{
    return TGC(tgc_gemm_engine)(&engine, g, "product of integer matrices");
}
