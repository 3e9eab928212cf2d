/* Group normalization and its gradient: all that is known of a group of channels in one visit. */
#include "copies/copying.h"
#include "group_norm_last.h"
#include "row_sum.h"

#include <math.h>

#define LANES 64
#define BLOCK 4096
#define GRAIN 16384
#define MOST_TASKS 64

/* Groups are rows of `inside` channels of `area` elements each. */
typedef struct job {
    const void *x, *g, *weight, *bias;
    void *out;
    const void *mean, *rstd; /* written by the forward pass */
    double *by_weight, *by_bias; /* of each channel of each sample */
    double eps;
    int64_t rows, groups, inside, area, tasks;
} job;

#define GN_T float
#define GN(name) name##_f32
#include "group_norm_rows.h"
#define GN_T double
#define GN(name) name##_f64
#include "group_norm_rows.h"

static const char forward_name[] = "fused_group_norm", backward_name[] = "fused_group_norm_backward";

static int64_t groups_of(const tg_argument *argument)
{
    return argument->value.i;
}

static void lay_out(job *j, const tg_view *x, int64_t groups)
{
    int64_t channels = x->shape[1];
    j->groups = groups;
    j->inside = channels / groups;
    j->rows = x->shape[0] * groups;
    j->area = x->numel / (x->shape[0] * channels);
    j->tasks = tgc_tasks(x->numel, GRAIN, j->rows < MOST_TASKS ? j->rows : MOST_TASKS);
}

/* The elements of a tensor in order, or NULL of one that is not given. */
static int take(const char *op, const tg_argument *argument, const void **data, void **memory)
{
    *memory = NULL;
    *data = NULL;
    if (argument->kind != TG_ARG_TENSOR)
        return 0;
    *data = tgc_in_order(op, argument->value.tensors, memory, TGC(tgc_move_region));
    return *data == NULL ? -1 : 0;
}

/* The same shape with channels as the last dimension; its arrays are the caller's. */
static tg_view channels_behind(const tg_view *view, int64_t *shape, int64_t *strides)
{
    tg_view turned = *view;
    for (int d = 0; d < view->ndim; d++) {
        const int from = d == 0 ? 0 : d + 1 < view->ndim ? d + 1 : 1;
        shape[d] = view->shape[from];
        strides[d] = view->strides[from];
    }
    turned.shape = shape;
    turned.strides = strides;
    return turned;
}

/* Whether a result lies channels last, and not in order too. */
static int lies_last(const tg_view *out)
{
    int64_t shape[TG_MAX_DIMS], strides[TG_MAX_DIMS], step = 1;
    if (out->ndim < 3 || out->shape[1] == 1)
        return 0;
    channels_behind(out, shape, strides);
    for (int d = out->ndim - 1; d >= 0; d--) {
        if (shape[d] != 1 && strides[d] != step)
            return 0;
        step *= shape[d];
    }
    return out->numel != out->shape[0] * out->shape[1];
}

/* As take, of a tensor with channels behind. */
static int take_last(const char *op, const tg_argument *argument, const void **data, void **memory)
{
    int64_t shape[TG_MAX_DIMS], strides[TG_MAX_DIMS];
    const tg_view turned = channels_behind(argument->value.tensors, shape, strides);
    *data = tgc_in_order(op, &turned, memory, TGC(tgc_move_region));
    return *data == NULL ? -1 : 0;
}

static int run_forward(const tg_call *call, void *context)
{
    const tg_view *x = call->args[0].value.tensors;
    void *memory[3] = {NULL, NULL, NULL};
    job j = {.out = call->outs[0].data, .mean = call->outs[1].data, .rstd = call->outs[2].data};
    (void)context;
    if (x->numel == 0)
        return 0;
    lay_out(&j, x, groups_of(&call->args[3]));
    j.eps = call->args[4].kind == TG_ARG_INT ? (double)call->args[4].value.i : call->args[4].value.f;
    const int last = lies_last(call->outs);
    int status = (last ? take_last : take)(forward_name, &call->args[0], &j.x, &memory[0]) < 0 ||
                 take(forward_name, &call->args[1], &j.weight, &memory[1]) < 0 ||
                 take(forward_name, &call->args[2], &j.bias, &memory[2]) < 0;
    if (!status && last)
        status = TGC(tgc_group_norm_last)(call, j.x, j.weight, j.bias, j.eps);
    else if (!status)
        tgc_parallel(j.tasks, x->dtype == TGC_FLOAT64 ? forward_f64 : forward_f32, &j);
    for (int i = 0; i < 3; i++)
        tgc_scratch_free(memory[i]);
    return status ? -1 : 0;
}

static void write_sums(const tg_view *out, const double *sums, int64_t samples)
{
    int64_t channels = out->numel;
    for (int64_t c = 0; c < channels; c++) {
        double total = 0;
        for (int64_t n = 0; n < samples; n++)
            total += sums[n * channels + c];
        if (out->dtype == TGC_FLOAT64)
            ((double *)out->data)[c] = total;
        else
            ((float *)out->data)[c] = (float)total;
    }
}

static int run_backward(const tg_call *call, void *context)
{
    const tg_view *x = call->args[1].value.tensors;
    void *memory[6] = {NULL};
    job j = {.out = call->outs[0].data};
    (void)context;
    int64_t cells = x->shape[0] * x->shape[1];
    size_t bytes = (size_t)(2 * cells + 1) * sizeof(double);
    double *sums = tgc_scratch(bytes);
    if (sums == NULL)
        return tgc_no_memory(backward_name, bytes);
    j.by_weight = sums;
    j.by_bias = sums + cells;
    int status = 0;
    if (x->numel > 0) {
        const void **targets[] = {&j.g, &j.x, &j.mean, &j.rstd, &j.weight};
        lay_out(&j, x, groups_of(&call->args[5]));
        const int last = lies_last(call->outs);
        for (int i = 0; i < 5 && !status; i++)
            status = (last && i < 2 ? take_last : take)(backward_name, &call->args[i], targets[i], &memory[i]) < 0;
        if (!status && last)
            status = TGC(tgc_group_norm_last_backward)(
                call, (const void *const[]){j.g, j.x, j.mean, j.rstd, j.weight}, j.by_weight, j.by_bias);
        else if (!status)
            tgc_parallel(j.tasks, x->dtype == TGC_FLOAT64 ? backward_f64 : backward_f32, &j);
    } else {
        for (int64_t i = 0; i < 2 * cells; i++)
            sums[i] = 0;
    }
    if (!status) {
        write_sums(&call->outs[1], j.by_weight, x->shape[0]);
        write_sums(&call->outs[2], j.by_bias, x->shape[0]);
    }
    for (int i = 0; i < 5; i++)
        tgc_scratch_free(memory[i]);
    tgc_scratch_free(sums);
    return status ? -1 : 0;
}

const tgc_kernel TGC(tgc_table_group_norm)[] = {
    {"fused_group_norm", "float32", TGC_CALL, run_forward, NULL},
    {"fused_group_norm", "float64", TGC_CALL, run_forward, NULL},
    {"fused_group_norm_backward", "float32", TGC_CALL, run_backward, NULL},
    {"fused_group_norm_backward", "float64", TGC_CALL, run_backward, NULL},
    {0}};
