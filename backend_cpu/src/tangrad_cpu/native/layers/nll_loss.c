/* The negative log-likelihood of each sample's class, and the weight it counts with. */
#include "nll_loss.h"
#include "half.h"
#include "tgc.h"

#include <stdatomic.h>

#define GRAIN 32768

typedef struct job {
    const tg_view *logs, *target, *weight, *loss, *scale; /* weight: NULL where there is none */
    int64_t ignored, samples, tasks;
    _Atomic int64_t wrong; /* a class that does not exist; the ignored one while all are right */
} job;

static int64_t class_at(const tg_view *view, int64_t offset)
{
    const char *at = (const char *)view->data + offset * tgc_itemsize[view->dtype];
    switch (view->dtype) {
    case TGC_UINT8: return *(const uint8_t *)at;
    case TGC_INT32: return *(const int32_t *)at;
    default: return *(const int64_t *)at;
    }
}

static double get(const tg_view *view, int64_t offset)
{
    const char *at = (const char *)view->data + offset * tgc_itemsize[view->dtype];
    switch (view->dtype) {
    case TGC_FLOAT32: return *(const float *)at;
    case TGC_FLOAT64: return *(const double *)at;
    case TGC_FLOAT16: return tgc_f16_to_float(*(const uint16_t *)at);
    default: return tgc_bf16_to_float(*(const uint16_t *)at);
    }
}

static void put(const tg_view *view, int64_t offset, double value)
{
    char *at = (char *)view->data + offset * tgc_itemsize[view->dtype];
    switch (view->dtype) {
    case TGC_FLOAT32: *(float *)at = (float)value; break;
    case TGC_FLOAT64: *(double *)at = value; break;
    case TGC_FLOAT16: *(uint16_t *)at = tgc_float_to_f16((float)value); break;
    default: *(uint16_t *)at = tgc_float_to_bf16((float)value);
    }
}

/* One class for each row of float32, as a classifier has it. */
static void rows_f32(job *j, int64_t begin, int64_t end)
{
    const tg_view *weight = j->weight;
    const int64_t row = j->logs->strides[0], along = j->logs->strides[1], classes = j->logs->shape[1];
    const int64_t to_loss = j->loss->strides[0], to_scale = j->scale->strides[0];
    const int64_t *target = j->target->data;
    const float *logs = j->logs->data;
    float *losses = j->loss->data, *scales = j->scale->data;
    for (int64_t sample = begin; sample < end; sample++) {
        const int64_t class = target[sample * j->target->strides[0]];
        float scale = 0, loss = 0;
        if (class != j->ignored) {
            if (class >= 0 && class < classes) {
                scale = weight == NULL ? 1 : ((const float *)weight->data)[class * weight->strides[0]];
                loss = -logs[sample * row + class * along] * scale;
            } else
                atomic_store(&j->wrong, class);
        }
        losses[sample * to_loss] = loss;
        scales[sample * to_scale] = scale;
    }
}

static void nll_task(int64_t task, void *context)
{
    job *j = context;
    const tg_view *logs = j->logs, *target = j->target;
    int64_t begin = tgc_begin(j->samples, j->tasks, task, 1), end = tgc_begin(j->samples, j->tasks, task + 1, 1);
    if (target->ndim == 1 && target->dtype == TGC_INT64 && logs->dtype == TGC_FLOAT32) {
        rows_f32(j, begin, end);
        return;
    }
    for (int64_t sample = begin; sample < end; sample++) {
        int64_t at_logs = 0, at_target = 0, at_loss = 0, at_scale = 0, rest = sample;
        for (int d = target->ndim - 1; d >= 0; d--) {
            int64_t k = rest % target->shape[d];
            rest /= target->shape[d];
            at_logs += k * logs->strides[d > 0 ? d + 1 : 0];
            at_target += k * target->strides[d];
            at_loss += k * j->loss->strides[d];
            at_scale += k * j->scale->strides[d];
        }
        int64_t class = class_at(target, at_target);
        double scale = 0, loss = 0;
        if (class < 0 || class >= logs->shape[1]) {
            if (class != j->ignored)
                atomic_store(&j->wrong, class);
        } else if (class != j->ignored) {
            scale = j->weight == NULL ? 1 : get(j->weight, class * j->weight->strides[0]);
            loss = -get(logs, at_logs + class * logs->strides[1]) * scale;
        }
        put(j->loss, at_loss, loss);
        put(j->scale, at_scale, scale);
    }
}

int TGC(tgc_nll_loss)(const tg_view *logs, const tg_view *target, const tg_view *weight, int64_t ignored,
                      const tg_view *loss, const tg_view *scale)
{
    job j = {.logs = logs, .target = target, .loss = loss, .scale = scale, .weight = weight, .ignored = ignored,
             .wrong = ignored};
    if (j.weight != NULL && j.weight->dtype != j.logs->dtype)
        return tgc_error("RuntimeError", "nll_loss: weight must have the dtype of the input; convert it with .to(dtype)");
    j.samples = j.target->numel;
    j.tasks = tgc_tasks(j.samples, GRAIN, 64);
    tgc_parallel(j.tasks, nll_task, &j);
    int64_t wrong = atomic_load(&j.wrong);
    if (wrong != j.ignored)
        return tgc_error("IndexError",
                         "Target %lld is out of bounds. (nll_loss of %lld classes: targets are 0 to %lld, or "
                         "ignore_index, %lld)",
                         (long long)wrong, (long long)j.logs->shape[1], (long long)j.logs->shape[1] - 1,
                         (long long)j.ignored);
    return 0;
}

static int nll_loss(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    const tg_view *weight = args[2].kind == TG_ARG_TENSOR ? args[2].value.tensors : NULL;
    (void)context;
    return TGC(tgc_nll_loss)(args[0].value.tensors, args[1].value.tensors, weight, args[3].value.i, &call->outs[0],
                             &call->outs[1]);
}

const tgc_kernel TGC(tgc_table_nll_loss)[] = {
    {"nll_loss_elements", "float32", TGC_CALL, nll_loss, NULL},
    {"nll_loss_elements", "float64", TGC_CALL, nll_loss, NULL},
    {"nll_loss_elements", "float16", TGC_CALL, nll_loss, NULL},
    {"nll_loss_elements", "bfloat16", TGC_CALL, nll_loss, NULL},
    {0}};
