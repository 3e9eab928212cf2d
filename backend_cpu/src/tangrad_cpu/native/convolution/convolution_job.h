/* What a convolution is at work on, shared by its products and its direct loops. */
#ifndef TANGRAD_CPU_CONVOLUTION_JOB_H
#define TANGRAD_CPU_CONVOLUTION_JOB_H

#include "convolution.h"
#include "gemm/engine.h"

#include <stdatomic.h>

#define TGC_LONGEST 256  /* run over k of one tile, and windows of one piece */
#define TGC_JOINED 1024  /* windows of several rows at once */
#define TGC_TAPS_AT_ONCE 32

typedef struct tgc_convolution_loops {
    const tgc_engine *engine;
    void (*gather)(void *, int64_t, const void *, const int64_t *, int64_t, const tgc_run *, int, int64_t);
    void (*scatter)(void *, const int64_t *, int64_t, const void *, int64_t, const tgc_run *, int, int64_t);
    void (*correlate)(void *, const void *, const int64_t *, const void *, int64_t, const tgc_run *, int, int64_t);
    void (*spread)(void *, const int64_t *, const void *, int64_t, const void *, const tgc_run *, int, int64_t);
    double (*inner)(const void *, const void *, const tgc_run *, int, int64_t);
    void (*sum)(void *, const void *, int64_t, int64_t);
} tgc_convolution_loops;

typedef struct tgc_convolution {
    const tgc_convolution_loops *of;
    tgc_windows w;
    tgc_operand input, weight, grad; /* those that the face has */
    char *out, *bias;                /* bias: in the type computed in, by map; NULL: none */
    int64_t item, step;
    int64_t rows, depth;             /* channels / groups * taps, maps / groups */
    int64_t *places;
    int64_t pitch; /* windows of one row start this much after those of the row before; 0: unused */
    char *packed, *sums;
    int64_t segments, segment_rows;  /* of packed weights */
    int64_t units, tasks, blocks, parts, block_channels;
    atomic_int failed;
} tgc_convolution;

static inline int64_t tgc_panels(int64_t n, int64_t width)
{
    return (n + width - 1) / width;
}

static inline int64_t tgc_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Add the bias of maps from `map` on to rows of their complete sums, `row` elements apart. */
static inline void tgc_add_bias(const tgc_convolution *j, char *out, int64_t map, int64_t rows, int64_t cols, int64_t row)
{
    if (j->bias == NULL)
        return;
    for (int64_t i = 0; i < rows; i++)
        if (j->item == 8) {
            double *to = (double *)out + i * row, bias = ((const double *)j->bias)[map + i];
            for (int64_t k = 0; k < cols; k++)
                to[k] += bias;
        } else {
            float *to = (float *)out + i * row, bias = ((const float *)j->bias)[map + i];
            for (int64_t k = 0; k < cols; k++)
                to[k] += bias;
        }
}

/* Memory for the grown planes of some channels, or where they go if nothing is padded; NULL: none,
 * and the convolution has failed. `end` copies the inside to where it goes. */
char *TGC(tgc_planes_begin)(tgc_convolution *j, int64_t channels, char *to);
void TGC(tgc_planes_end)(const tgc_convolution *j, int64_t channels, char *to, char *target);

/* Where the result has the input's size: returns 1 with the status of the whole, or 0 if it is not
 * that case. The weight is taken already. */
int TGC(tgc_convolution_same)(tgc_convolution *j, const tg_view *input, const tg_view *out, int *status);

/* The tasks of groups with one channel and few maps. */
void TGC(tgc_thin_forward)(int64_t task, void *context);
void TGC(tgc_thin_adjoint)(int64_t task, void *context);
void TGC(tgc_thin_weight)(int64_t task, void *context);

#endif
