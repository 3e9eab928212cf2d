/* Group normalization and its gradient with channels last: rows are the channels of a place, as often
 * as fill vectors, and a sample's places are cut in pieces. */
#include "group_norm_last.h"

#include <math.h>
#include <string.h>

#include "copies/copying.h"

/* Elements of a piece, and rows that are added up in their own type. */
#define PIECE 32768
#define BLOCK_ROWS 64
/* Elements that a row has at least. */
#define WIDTH 64

enum { OF_X, OF_SQUARES, OF_G, OF_PRODUCTS };

typedef struct {
    const void *x, *g, *weight, *bias, *mean, *rstd;
    void *out, *centers, *tables; /* the last two of columns: of pieces, and of samples */
    double *sums, *moments;       /* of pieces */
    double *by_weight, *by_bias;  /* of each channel of each sample */
    double eps;
    int64_t samples, channels, groups, inside, area, width, pieces;
} last_job;

typedef float floats __attribute__((vector_size(64)));
typedef double doubles __attribute__((vector_size(64)));

#define GN_T float
#define GN_V floats
#define GN(name) name##_f32
#include "group_norm_last_rows.h"

#define GN_T double
#define GN_V doubles
#define GN(name) name##_f64
#include "group_norm_last_rows.h"

static last_job laid_out(const tg_view *x, int64_t groups)
{
    last_job j = {.samples = x->shape[0], .channels = x->shape[1], .groups = groups};
    j.inside = j.channels / groups;
    j.area = x->numel / (j.samples * j.channels);
    j.width = (WIDTH + j.channels - 1) / j.channels * j.channels;
    const int64_t most = j.area * j.channels / (PIECE > 16 * j.width ? PIECE : 16 * j.width);
    j.pieces = most < 1 ? 1 : most < j.area ? most : j.area;
    return j;
}

int TGC(tgc_group_norm_last)(const tg_call *call, const void *x, const void *weight, const void *bias, double eps)
{
    const tg_view *view = call->args[0].value.tensors;
    const size_t item = (size_t)tgc_itemsize[view->dtype];
    last_job j = laid_out(view, call->args[3].value.i);
    const size_t tasks = (size_t)(j.samples * j.pieces), width = (size_t)j.width;
    const size_t doubles = tasks * (width + (size_t)(j.channels + 2 * j.groups));
    const size_t bytes = doubles * sizeof(double) + (tasks + 3 * (size_t)j.samples) * width * item;
    j.x = x, j.weight = weight, j.bias = bias, j.eps = eps;
    j.out = call->outs[0].data, j.mean = call->outs[1].data, j.rstd = call->outs[2].data;
    j.sums = tgc_scratch(bytes);
    if (j.sums == NULL)
        return tgc_no_memory("fused_group_norm", bytes);
    j.moments = j.sums + tasks * (width + (size_t)j.channels);
    j.centers = j.sums + doubles;
    j.tables = (char *)j.centers + tasks * width * item;
    const int single = view->dtype == TGC_FLOAT32;
    tgc_parallel((int64_t)tasks, single ? moments_last_f32 : moments_last_f64, &j);
    for (int64_t sample = 0; sample < j.samples; sample++)
        (single ? settle_last_f32 : settle_last_f64)(&j, sample);
    tgc_parallel((int64_t)tasks, single ? write_last_f32 : write_last_f64, &j);
    tgc_scratch_free(j.sums);
    return 0;
}

int TGC(tgc_group_norm_last_backward)(const tg_call *call, const void *const *given, double *by_weight,
                                      double *by_bias)
{
    const tg_view *view = call->args[1].value.tensors;
    const size_t item = (size_t)tgc_itemsize[view->dtype];
    last_job j = laid_out(view, call->args[5].value.i);
    const size_t tasks = (size_t)(j.samples * j.pieces), width = (size_t)j.width;
    const size_t doubles = tasks * (width + 2 * (size_t)j.channels);
    const size_t bytes = doubles * sizeof(double) + 5 * (size_t)j.samples * width * item;
    j.g = given[0], j.x = given[1], j.mean = given[2], j.rstd = given[3], j.weight = given[4];
    j.out = call->outs[0].data, j.by_weight = by_weight, j.by_bias = by_bias;
    j.sums = tgc_scratch(bytes);
    if (j.sums == NULL)
        return tgc_no_memory("fused_group_norm_backward", bytes);
    j.tables = j.sums + doubles;
    const int single = view->dtype == TGC_FLOAT32;
    for (int64_t sample = 0; sample < j.samples; sample++)
        (single ? center_last_f32 : center_last_f64)(&j, sample);
    tgc_parallel((int64_t)tasks, single ? sums_last_f32 : sums_last_f64, &j);
    for (int64_t sample = 0; sample < j.samples; sample++)
        (single ? slopes_last_f32 : slopes_last_f64)(&j, sample);
    tgc_parallel((int64_t)tasks, single ? write_slopes_last_f32 : write_slopes_last_f64, &j);
    tgc_scratch_free(j.sums);
    return 0;
}
