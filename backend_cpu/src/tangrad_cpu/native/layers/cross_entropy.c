/* The cross entropy of scores and class numbers, and its gradient by the scores. Log-softmax is kept for the
 * gradient, which is softmax less one at the class. */
#include "softmax.h"
#include "stream.h"
#include "vmath/vmath.h"

#include <stdatomic.h>

#define STEP 16
#define BLOCK 512       /* rows whose sum is handed on */
#define MOST_TASKS 64
#define GRAIN 32768     /* rows of a task that adds up */
#define ELEMENTS 16384  /* of a task of the gradient */

typedef struct job {
    const tg_view *logs, *target, *out;
    int64_t ignored, rows, tasks;
    int streamed;
    double owed;
    double totals[MOST_TASKS];
    int64_t counts[MOST_TASKS];
    _Atomic int64_t wrong; /* a class that does not exist; the ignored one while all are right */
} job;

#define CE_T float
#define CE(name) name##_f32
#define CE_EXP tgc_exp_f32
#include "cross_entropy_rows.h"
#define CE_T double
#define CE(name) name##_f64
#define CE_EXP tgc_exp_f64
#include "cross_entropy_rows.h"

static void total_task(int64_t task, void *context)
{
    job *j = context;
    const int64_t begin = tgc_begin(j->rows, j->tasks, task, 1), end = tgc_begin(j->rows, j->tasks, task + 1, 1);
    j->counts[task] = (j->logs->dtype == TGC_FLOAT32 ? total_f32 : total_f64)(j, begin, end, &j->totals[task]);
}

static void gradient_task(int64_t task, void *context)
{
    const job *j = context;
    const int64_t begin = tgc_begin(j->rows, j->tasks, task, 1), end = tgc_begin(j->rows, j->tasks, task + 1, 1);
    if (j->logs->dtype == TGC_FLOAT32)
        gradients_f32(j, begin, end, (float)j->owed);
    else
        gradients_f64(j, begin, end, j->owed);
    if (j->streamed)
        tgc_stream_end();
}

static double number(const tg_view *view)
{
    return view->dtype == TGC_FLOAT32 ? (double)*(const float *)view->data : *(const double *)view->data;
}

static int cross_entropy(const tg_call *call, void *context)
{
    const tg_view *scores = call->args[0].value.tensors, *target = call->args[1].value.tensors;
    const int64_t ignored = call->args[2].value.i;
    job j = {.logs = &call->outs[2], .target = target, .ignored = ignored, .rows = target->numel, .wrong = ignored};
    (void)context;
    if (scores->ndim != 2 || target->dtype != TGC_INT64)
        return TG_DECLINED;
    if (TGC(tgc_log_softmax)(scores, j.logs, 1) < 0)
        return -1;
    j.tasks = tgc_tasks(j.rows, GRAIN, MOST_TASKS);
    tgc_parallel(j.tasks, total_task, &j);
    const int64_t wrong = atomic_load(&j.wrong), classes = scores->shape[1];
    if (wrong != ignored)
        return tgc_error("IndexError",
                         "Target %lld is out of bounds. (cross_entropy of %lld classes: targets are 0 to %lld, or "
                         "ignore_index, %lld)",
                         (long long)wrong, (long long)classes, (long long)classes - 1, (long long)ignored);
    double total = 0;
    int64_t count = 0;
    for (int64_t task = 0; task < j.tasks; task++) {
        total += j.totals[task];
        count += j.counts[task];
    }
    const double loss = call->args[3].value.i ? total / (double)count : total;
    if (scores->dtype == TGC_FLOAT32)
        *(float *)call->outs[0].data = (float)loss;
    else
        *(double *)call->outs[0].data = loss;
    *(int64_t *)call->outs[1].data = count;
    return 0;
}

static int cross_entropy_gradient(const tg_call *call, void *context)
{
    const tg_view *grad = call->args[0].value.tensors, *counted = call->args[1].value.tensors;
    const tg_view *logs = call->args[2].value.tensors, *target = call->args[3].value.tensors, *out = &call->outs[0];
    job j = {.logs = logs, .target = target, .out = out, .ignored = call->args[4].value.i, .rows = target->numel};
    (void)context;
    if (logs->ndim != 2 || target->dtype != TGC_INT64 || counted->dtype != TGC_INT64 || grad->dtype != logs->dtype ||
        !tgc_is_contiguous(logs, 0) || !tgc_is_contiguous(out, 0))
        return TG_DECLINED;
    if (out->numel == 0)
        return 0;
    const int64_t count = *(const int64_t *)counted->data, row = logs->shape[1] * tgc_itemsize[out->dtype];
    j.owed = number(grad);
    /* No row owes anything where none counts. */
    if (call->args[5].value.i && logs->dtype == TGC_FLOAT32)
        j.owed = count == 0 ? 0 : (double)((float)j.owed / (float)count);
    else if (call->args[5].value.i)
        j.owed = count == 0 ? 0 : j.owed / (double)count;
    j.streamed = tgc_streams(out->data, out->numel * tgc_itemsize[out->dtype]) && row % 64 == 0;
    const int64_t tasks = tgc_tasks(out->numel, ELEMENTS, j.rows);
    j.tasks = tasks < 1 ? 1 : tasks;
    tgc_parallel(j.tasks, gradient_task, &j);
    return 0;
}

const tgc_kernel TGC(tgc_table_cross_entropy)[] = {
    {"cross_entropy_total", "float32", TGC_CALL, cross_entropy, NULL},
    {"cross_entropy_total", "float64", TGC_CALL, cross_entropy, NULL},
    {"cross_entropy_total_backward", "float32", TGC_CALL, cross_entropy_gradient, NULL},
    {"cross_entropy_total_backward", "float64", TGC_CALL, cross_entropy_gradient, NULL},
    {0}};
