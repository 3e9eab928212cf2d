/* bfloat16: by AMX tiles, by the pair products of AVX512_BF16, or by float32 panels. */
#define HP_TYPE bf16
#define HP_ROUND tgc_f32_to_bf16
#include "half_product.h"
#include "amx.h"

#if TGC_VECTOR == 64
#define PAIRS_RUN 512

/* Pairs of neighbours in k are the units of 32 bits that VDPBF16PS multiplies and adds. */
static void pack_pair_lines(uint32_t *to, const uint16_t *from, int64_t count, int64_t width, int64_t k, int64_t stride,
                            int64_t k_stride)
{
    for (int64_t p = 0; p < k; p += 2, to += width, from += 2 * k_stride) {
        int both = p + 1 < k;
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i * stride] | (both ? (uint32_t)from[i * stride + k_stride] << 16 : 0);
        for (int64_t i = count; i < width; i++)
            to[i] = 0;
    }
}

#define PK_NAME pack_units
#define PK_S uint32_t
#define PK_T uint32_t
#define PK_V tgc_vu32
#define PK_CONVERT(x) (x)
#define PK_LOAD(p) ((tgc_vu32)*(const tgc_vu32_unaligned *)(p))
#define PK_BITS 32
#include "pack.h"

static inline __attribute__((always_inline)) void pack_pairs(void *to, const uint16_t *from, int64_t count,
                                                             const int64_t width, int64_t k, int64_t stride,
                                                             int64_t k_stride)
{
    if (k_stride == 1 && stride % 2 == 0) {
        pack_units(to, from, count, width, k / 2, stride / 2, 1);
        int64_t done = k / 2 * 2;
        pack_pair_lines((uint32_t *)to + done / 2 * width, from + done, count, width, k - done, stride, 1);
    } else if (stride == 1) {
        pack_pair_lines(to, from, count, width, k, 1, k_stride);
    } else {
        pack_pair_lines(to, from, count, width, k, stride, k_stride);
    }
}

static void pack_pairs_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_pairs(to, from, count, TGC_ROWS, k, stride, k_stride);
}

static void pack_pairs_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    pack_pairs(to, from, count, HP_COLUMNS, k, stride, k_stride);
}

/* In assembly: around the intrinsic GCC 12 copies every accumulator, and half of them do not stay in
 * registers. */
static inline __attribute__((always_inline)) tgc_vu32 pair_product(tgc_vu32 a, tgc_vu32 b, tgc_vu32 c)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
}

#define MK_NAME pairs
#define MK_T uint32_t
#define MK_V tgc_vu32
#define MK_FMA pair_product
#define MK_ADD(a, b) ((tgc_vu32)((tgc_vf)(a) + (tgc_vf)(b)))
#define MK_LOAD tgc_load_u32
#define MK_STORE tgc_store_u32
#define MK_PANELS_ONLY
#include "microkernel.h"

static void pairs_of_k(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c, int64_t c_row,
                       int accumulate, const tgc_ahead *next)
{
    pairs_kernel(rows, cols, (k + 1) / 2, a, b, c, c_row, accumulate, next);
}

/* The instructions that multiply bfloat16 never give a subnormal sum, so that this one, which makes
 * zeros of such numbers, rounds them as tgc_f32_to_bf16 does. */
__attribute__((target("avx512bf16"))) static void round_tile(uint16_t *to, int64_t to_row, const float *tile,
                                                             int64_t tile_row, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++, to += to_row, tile += tile_row) {
        __m512bh row = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(tile + 16), _mm512_loadu_ps(tile));
        _mm512_storeu_si512(to, (__m512i)row);
    }
}

static void store_rounded(const tgc_gemm *g, void *c, int64_t i, int64_t j, int64_t rows, int64_t cols, void *tile,
                          int64_t tile_row)
{
    int as_it_is = g->alpha == 1 && g->beta == 0 && g->bias == NULL && g->activation == NULL;
    if (as_it_is && cols == 32 && g->c_col == 1 && g->c_dtype != TGC_FLOAT32)
        round_tile((uint16_t *)c + i * g->c_row + j, g->c_row, tile, tile_row, rows);
    else
        store(g, c, i, j, rows, cols, tile, tile_row);
}

/* Sums of several runs are added by ordinary instructions, which do give subnormal numbers. */
static void store_pairs(const tgc_gemm *g, void *c, int64_t i, int64_t j, int64_t rows, int64_t cols, void *tile,
                        int64_t tile_row)
{
    (g->k <= PAIRS_RUN ? store_rounded : store)(g, c, i, j, rows, cols, tile, tile_row);
}

static const tgc_engine by_pairs = {
    .mr = TGC_ROWS,
    .nr = HP_COLUMNS,
    .kc = PAIRS_RUN,
    .kgroup = 2,
    .a_size = 2,
    .b_size = 2,
    .packed_size = 2,
    .tile_size = 4,
    .pack_a = pack_pairs_a,
    .pack_b = pack_pairs_b,
    .kernel = pairs_of_k,
    .store = store_pairs,
};

static void pack_tiles_a(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    tgc_amx_pack_a(to, from, count, k, stride, k_stride, 2);
}

static void pack_tiles_b(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride)
{
    tgc_amx_pack_b(to, from, count, k, stride, k_stride, 2);
}

TGC_AMX_KERNEL(tiles_kernel, float, _tile_dpbf16ps, 32)

static const tgc_engine by_tiles = {
    .mr = 32,
    .nr = 32,
    .kc = 1024,
    .task_run = 16384,
    .kgroup = 32,
    .a_size = 2,
    .b_size = 2,
    .packed_size = 2,
    .tile_size = 4,
    .pack_a = pack_tiles_a,
    .pack_b = pack_tiles_b,
    .kernel = tiles_kernel,
    .enter = tgc_amx_enter,
    .leave = tgc_amx_leave,
    .store = store_rounded,
};
#endif

static const tgc_engine *best(void)
{
#if TGC_VECTOR == 64
    if (tgc_amx_usable(TGC_AMX_BF16) && __builtin_cpu_supports("avx512bf16"))
        return &by_tiles;
    if (__builtin_cpu_supports("avx512bf16"))
        return &by_pairs;
#endif
    return &widening;
}

int TGC(tgc_gemm_bf16)(const tgc_gemm *g)
{
    static const char op[] = "product of bfloat16 matrices";
    int handled, status = thin_half(g, op, &handled);
    if (handled)
        return status;
    tgc_engine engine = fitted(best(), g);
#if TGC_VECTOR == 64
    /* Sums that stay near are cheap to take up again: then panels of B stay nearer. */
    if (engine.task_run >= g->k && !engine.in_place)
        engine.kc = engine.kgroup * TGC_AMX_RESIDENT;
#endif
    return TGC(tgc_gemm_engine)(&engine, g, op);
}
