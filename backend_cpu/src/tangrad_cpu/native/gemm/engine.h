/* What the blocked product needs to know of one combination of types: sizes, how panels are
 * packed, the microkernel, and how finished tiles reach C. */
#ifndef TANGRAD_CPU_GEMM_ENGINE_H
#define TANGRAD_CPU_GEMM_ENGINE_H

#include "gemm.h"

/* Panels are packed into stack buffers where they serve one task only. */
#define TGC_PANEL_BYTES 65536
/* Packing may write one vector beyond a panel. */
#define TGC_PANEL_SLACK 64
/* Bytes of the largest accumulator tile of any engine. */
#define TGC_TILE_BYTES 4096

/* What a microkernel fetches to the second-level cache meanwhile: 64 bytes at `at`, and with
 * every second element of k `step` bytes further. */
typedef struct tgc_ahead {
    const char *at;
    int64_t step;
} tgc_ahead;

typedef struct tgc_engine {
    int32_t mr, nr;      /* rows and columns of the microkernel's tile */
    int32_t kc;          /* longest run over k of one tile; a multiple of kgroup */
    int32_t kgroup;      /* panels are padded with zeros to a multiple of this in k */
    int32_t a_size, b_size, c_size; /* bytes of an element in memory */
    int32_t packed_size; /* bytes of an element of a panel */
    int32_t tile_size;   /* bytes of an accumulator */
    int32_t in_place;    /* accumulators are elements of C */
    int32_t one_sided; /* A and B differ in type: their places cannot be exchanged */
    int64_t task_run;     /* longest k for which a task may walk columns panel by panel; 0: none */
    int64_t direct_limit; /* m * n * k up to which packing A does not pay */
    /* Pack `count` lines (rows of A, columns of B) with k elements each into one panel. */
    void (*pack_a)(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride);
    void (*pack_b)(void *to, const void *from, int64_t count, int64_t k, int64_t stride, int64_t k_stride);
    /* Write, or add, the product of two panels to the tile at c. */
    void (*kernel)(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c, int64_t c_row,
                   int accumulate, const tgc_ahead *next);
    /* The same with A where it lies and columns of B contiguous; NULL: none. It fetches with every
     * element of k; `next` may be NULL. */
    void (*direct)(int64_t rows, int64_t cols, int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b,
                   int64_t b_row, void *c, int64_t c_row, int accumulate, const tgc_ahead *next);
    /* Around the kernel's calls in one task; NULL: nothing to prepare. */
    void (*enter)(void);
    void (*leave)(void);
    /* C[i.., j..] = activation(alpha * tile + beta * C + bias); `c` is C's first element. The tile
     * may lie in C. */
    void (*store)(const tgc_gemm *g, void *c, int64_t i, int64_t j, int64_t rows, int64_t cols, void *tile,
                  int64_t tile_row);
} tgc_engine;

/* The microkernel of float32, for types that become float32 in their panels. */
void TGC(tgc_kernel_f32)(int64_t rows, int64_t cols, int64_t k, const void *a, const void *b, void *c, int64_t c_row,
                         int accumulate, const tgc_ahead *next);

/* For kernels that fill panels themselves. */
extern const tgc_engine TGC(tgc_engine_f32), TGC(tgc_engine_f64);

/* Multiply with packing, in parallel. `op` names the caller in errors. */
int TGC(tgc_gemm_engine)(const tgc_engine *engine, const tgc_gemm *g, const char *op);

/* C may hold partial sums: its elements are accumulators, and its first value is not needed again. */
static inline int tgc_sums_in_place(const tgc_engine *e, const tgc_gemm *g)
{
    return e->in_place && g->c_col == 1 && (g->beta == 0 || (g->beta == 1 && g->alpha == 1));
}

static inline int tgc_is_plain(const tgc_engine *e, const tgc_gemm *g)
{
    return tgc_sums_in_place(e, g) && g->alpha == 1 && g->bias == NULL && g->activation == NULL;
}

/* Whether A is better read where it lies, and the product then, in parallel. */
int TGC(tgc_gemm_is_direct)(const tgc_engine *engine, const tgc_gemm *g);
void TGC(tgc_gemm_direct)(const tgc_engine *engine, const tgc_gemm *g);

/* The same product of transposes: C' = B' A'. */
static inline tgc_gemm tgc_transposed(const tgc_gemm *g)
{
    tgc_gemm t = *g;
    t.m = g->n, t.n = g->m;
    t.a = g->b, t.a_row = g->b_col, t.a_col = g->b_row, t.a_batch = g->b_batch;
    t.b = g->a, t.b_row = g->a_col, t.b_col = g->a_row, t.b_batch = g->a_batch;
    t.c_row = g->c_col, t.c_col = g->c_row;
    t.bias_row = g->bias_col, t.bias_col = g->bias_row;
    return t;
}

#endif
