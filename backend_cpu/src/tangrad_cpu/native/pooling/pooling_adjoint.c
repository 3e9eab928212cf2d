/* The gradient of max pooling: each gradient is added where the greatest element of its window was. A task
 * has whole planes, so a place that several windows chose gets its sum in their order. */
#include "copies/copying.h"

#include <stdatomic.h>
#include <string.h>

#define GRAIN 16384
#define MOST_TASKS 64

typedef struct {
    const char *grad;
    const int64_t *places;
    char *out;
    int64_t planes, area, windows, tasks;
    int wide;
    _Atomic int outside;
} adjoint;

#define ADD(T, suffix)                                                                                         \
    static int add_##suffix(T *restrict to, const T *restrict grad, const int64_t *restrict places, int64_t n, \
                            int64_t area)                                                                      \
    {                                                                                                          \
        memset(to, 0, (size_t)area * sizeof(T));                                                               \
        for (int64_t i = 0; i < n; i++) {                                                                      \
            if ((uint64_t)places[i] >= (uint64_t)area)                                                         \
                return -1;                                                                                     \
            to[places[i]] += grad[i];                                                                          \
        }                                                                                                      \
        return 0;                                                                                              \
    }
ADD(float, f32)
ADD(double, f64)

static void planes_task(int64_t task, void *context)
{
    adjoint *job = context;
    const int64_t end = tgc_begin(job->planes, job->tasks, task + 1, 1), n = job->windows, area = job->area;
    for (int64_t p = tgc_begin(job->planes, job->tasks, task, 1); p < end; p++) {
        const int64_t *places = job->places + p * n;
        if (job->wide ? add_f64((double *)job->out + p * area, (const double *)job->grad + p * n, places, n, area)
                      : add_f32((float *)job->out + p * area, (const float *)job->grad + p * n, places, n, area))
            atomic_store(&job->outside, 1);
    }
}

/* (grad, indices, shape, kernel_size, stride, padding, dilation): as many strides as dimensions of a plane. */
static int max_pool_backward(const tg_call *call, void *context)
{
    static const char op[] = "max_pool_backward";
    const tg_view *out = call->outs, *grad = call->args[0].value.tensors, *indices = call->args[1].value.tensors;
    const int lead = out->ndim - call->args[4].count;
    void *memory[2] = {NULL, NULL};
    adjoint job = {.out = out->data, .planes = 1, .area = 1, .windows = 1, .wide = out->dtype == TGC_FLOAT64};
    int64_t expected = 1;
    (void)context;
    if (lead < 0 || grad->ndim != out->ndim || indices->ndim != out->ndim)
        return TG_DECLINED;
    for (int d = out->ndim - 1; d >= 0; d--) {
        if (indices->shape[d] != grad->shape[d] || (d < lead && grad->shape[d] != out->shape[d])
            || (out->shape[d] != 1 && out->strides[d] != expected))
            return TG_DECLINED;
        expected *= out->shape[d];
        job.planes *= d < lead ? out->shape[d] : 1;
        job.area *= d < lead ? 1 : out->shape[d];
        job.windows *= d < lead ? 1 : grad->shape[d];
    }
    if (out->numel == 0)
        return 0;
    job.grad = tgc_in_order(op, grad, &memory[0], TGC(tgc_move_region));
    job.places = job.grad || !grad->numel ? tgc_in_order(op, indices, &memory[1], TGC(tgc_move_region)) : NULL;
    const int failed = grad->numel > 0 && (job.grad == NULL || job.places == NULL);
    if (!failed) {
        job.tasks = tgc_tasks(job.planes * (job.area + job.windows), GRAIN, job.planes < MOST_TASKS ? job.planes : MOST_TASKS);
        tgc_parallel(job.tasks, planes_task, &job);
    }
    tgc_scratch_free(memory[1]);
    tgc_scratch_free(memory[0]);
    if (failed)
        return -1;
    if (atomic_load(&job.outside))
        return tgc_error("IndexError", "%s: an index is none of the %lld elements of a plane", op, (long long)job.area);
    return 0;
}

const tgc_kernel TGC(tgc_table_pooling_adjoint)[] = {
    {"max_pool_backward", "float32", TGC_CALL, max_pool_backward, NULL},
    {"max_pool_backward", "float64", TGC_CALL, max_pool_backward, NULL},
    {0}};
