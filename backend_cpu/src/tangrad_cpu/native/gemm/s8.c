/* int8 x int8 and uint8 x int8 with sums in int32: by AMX tiles, by the pair products of 16-bit
 * integers (VPDPWSSD, or VPMADDWD with an addition: exact, where VPMADDUBSW saturates), or by
 * 32-bit integers. */
#include "amx.h"
#include "engine.h"
#include "simd.h"

#define COLUMNS (2 * TGC_VECTOR / 4)

/* Two neighbours in k, as 16-bit integers, make one unit of a panel where pairs are multiplied;
 * else a unit is one number. */
#if defined(__AVX2__)
#define GROUP 2
#else
#define GROUP 1
#endif

static inline __attribute__((always_inline)) void pack_units(uint32_t *to, const uint8_t *from, int64_t count,
                                                             const int64_t width, int64_t k, int64_t stride,
                                                             int64_t k_stride, const int is_signed)
{
    for (int64_t p = 0; p < k; p += GROUP, to += width, from += GROUP * k_stride) {
        for (int64_t i = 0; i < count; i++) {
            const uint8_t *at = from + i * stride;
            int32_t first = is_signed ? (int8_t)at[0] : at[0];
#if GROUP == 2
            int32_t second = p + 1 == k ? 0 : is_signed ? (int8_t)at[k_stride] : at[k_stride];
            to[i] = ((uint32_t)first & 0xffff) | (uint32_t)second << 16;
#else
            to[i] = (uint32_t)first;
#endif
        }
        for (int64_t i = count; i < width; i++)
            to[i] = 0;
    }
}

static void pack_signed_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    if (k_stride == 1)
        pack_units(to, from, count, TGC_ROWS, k, stride, 1, 1);
    else
        pack_units(to, from, count, TGC_ROWS, k, stride, k_stride, 1);
}

static void pack_unsigned_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    if (k_stride == 1)
        pack_units(to, from, count, TGC_ROWS, k, stride, 1, 0);
    else
        pack_units(to, from, count, TGC_ROWS, k, stride, k_stride, 0);
}

static void pack_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    if (stride == 1)
        pack_units(to, from, count, COLUMNS, k, 1, k_stride, 1);
    else
        pack_units(to, from, count, COLUMNS, k, stride, k_stride, 1);
}

static inline __attribute__((always_inline)) tgc_vu32 unit_product(tgc_vu32 a, tgc_vu32 b, tgc_vu32 c)
{
#if TGC_VECTOR == 64
    return c + (tgc_vu32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif TGC_VECTOR == 32
    return c + (tgc_vu32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return a * b + c;
#endif
}

#define MK_NAME units
#define MK_T uint32_t
#define MK_V tgc_vu32
#define MK_FMA unit_product
#define MK_LOAD tgc_load_u32
#define MK_STORE tgc_store_u32
#define MK_PANELS_ONLY
#include "microkernel.h"

static void units_of_k(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c, int64_t c_row,
                       int accumulate, const tgc_ahead *next)
{
    units_kernel(rows, cols, (k + GROUP - 1) / GROUP, a, b, c, c_row, accumulate, next);
}

#define ST_NAME store
#define ST_T uint32_t
#define ST_C uint32_t
#define ST_LOAD(x) (x)
#define ST_ROUND(x) (x)
#define ST_SCALAR(x) ((uint32_t)(int64_t)(x))
#include "store.h"

static const tgc_engine by_units = {
    .mr = TGC_ROWS,
    .nr = COLUMNS,
    .kc = 256 * GROUP,
    .kgroup = GROUP,
    .a_size = 1,
    .b_size = 1,
    .c_size = 4,
    .packed_size = 4 / GROUP,
    .tile_size = 4,
    .in_place = 1,
    .one_sided = 1,
    .pack_a = pack_signed_a,
    .pack_b = pack_b,
    .kernel = units_of_k,
    .store = store,
};

#if TGC_VECTOR == 64
#pragma GCC push_options
#pragma GCC target("avx512vnni")
static inline __attribute__((always_inline)) tgc_vu32 vnni_product(tgc_vu32 a, tgc_vu32 b, tgc_vu32 c)
{
    return (tgc_vu32)_mm512_dpwssd_epi32((__m512i)c, (__m512i)a, (__m512i)b);
}

#define MK_NAME vnni
#define MK_T uint32_t
#define MK_V tgc_vu32
#define MK_FMA vnni_product
#define MK_LOAD tgc_load_u32
#define MK_STORE tgc_store_u32
#define MK_PANELS_ONLY
#include "microkernel.h"

static void vnni_of_k(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c, int64_t c_row,
                      int accumulate, const tgc_ahead *next)
{
    vnni_kernel(rows, cols, (k + 1) / 2, a, b, c, c_row, accumulate, next);
}
#pragma GCC pop_options

static void pack_tiles_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    tgc_amx_pack_a(to, from, count, k, stride, k_stride, 1);
}

static void pack_tiles_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    tgc_amx_pack_b(to, from, count, k, stride, k_stride, 1);
}

TGC_AMX_KERNEL(tiles_signed, int32_t, _tile_dpbssd, 64)
TGC_AMX_KERNEL(tiles_unsigned, int32_t, _tile_dpbusd, 64)

static const tgc_engine by_tiles = {
    .mr = 32,
    .nr = 32,
    .kc = 1024,
    .kgroup = 64,
    .a_size = 1,
    .b_size = 1,
    .c_size = 4,
    .packed_size = 1,
    .tile_size = 4,
    .in_place = 1,
    .one_sided = 1,
    .pack_a = pack_tiles_a,
    .pack_b = pack_tiles_b,
    .kernel = tiles_signed,
    .enter = tgc_amx_enter,
    .leave = tgc_amx_leave,
    .store = store,
};
#endif

static tgc_engine best(int a_is_signed)
{
    tgc_engine engine = by_units;
    if (!a_is_signed)
        engine.pack_a = pack_unsigned_a;
#if TGC_VECTOR == 64
    if (tgc_amx_usable(TGC_AMX_INT8)) {
        engine = by_tiles;
        if (!a_is_signed)
            engine.kernel = tiles_unsigned;
    } else if (__builtin_cpu_supports("avx512vnni")) {
        engine.kernel = vnni_of_k;
    }
#endif
    return engine;
}

int TGC(tgc_gemm_s8)(const tgc_gemm *g)
{
    tgc_engine engine = best(1);
    return TGC(tgc_gemm_engine)(&engine, g, "product of int8 matrices");
}

int TGC(tgc_gemm_u8s8)(const tgc_gemm *g)
{
    tgc_engine engine = best(0);
    return TGC(tgc_gemm_engine)(&engine, g, "product of uint8 and int8 matrices");
}
