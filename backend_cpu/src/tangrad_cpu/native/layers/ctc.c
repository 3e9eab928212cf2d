/* The loss of label sequences of unknown alignment, and its gradient (Graves et al., 2006): for each
 * sample, the logarithms of the forward and backward variables, a step of all places at once. The
 * gradient computes the forward variables again, so that no more than the loss is kept. */
#include "copies/copying.h"
#include "vmath/vmath.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* The logarithm of what is impossible: finite, so that differences of such are no NaN. */
#define NEVER (-1e30)
#define MARGIN 2 /* places beyond either end, where nothing is possible */

typedef struct job {
    const char *logs;   /* (T, N, C) */
    int64_t strides[3]; /* in elements */
    const int64_t *targets, *ends, *counts; /* (N, S), (N), (N) */
    const void *grad; /* of the loss, or NULL: the loss is asked for */
    char *out;
    int64_t steps, samples, labels, longest, blank, places;
    atomic_int failed;
    _Atomic int64_t outside; /* one more than a sample whose lengths or labels are out of range */
} job;

#define CTC_T float
#define CTC(name) name##_f32
#define CTC_EXP tgc_exp_f32
#define CTC_LOG tgc_log_f32
#include "ctc_rows.h"
#define CTC_T double
#define CTC(name) name##_f64
#define CTC_EXP tgc_exp_f64
#define CTC_LOG tgc_log_f64
#include "ctc_rows.h"

static const char name[] = "_ctc_loss";

/* Operands from `first` on: log-probabilities, targets, ends, counts, blank. */
static int run(const tg_call *call, int first, job *j)
{
    const tg_view *logs = call->args[first].value.tensors, *targets = call->args[first + 1].value.tensors;
    void *memory[3] = {NULL, NULL, NULL};
    const void *taken[3];
    int status = 0;
    for (int i = 0; i < 3 && !status; i++) {
        taken[i] = tgc_in_order(name, call->args[first + 1 + i].value.tensors, &memory[i], TGC(tgc_move_region));
        status = taken[i] == NULL && call->args[first + 1 + i].value.tensors->numel > 0;
    }
    if (!status) {
        j->targets = taken[0], j->ends = taken[1], j->counts = taken[2];
        j->logs = logs->data;
        for (int d = 0; d < 3; d++)
            j->strides[d] = logs->strides[d];
        j->steps = logs->shape[0], j->samples = logs->shape[1], j->labels = logs->shape[2];
        j->longest = targets->shape[1];
        j->blank = call->args[first + 4].value.i;
        j->places = 2 * j->longest + 1;
        tgc_parallel(j->samples, logs->dtype == TGC_FLOAT64 ? sample_f64 : sample_f32, j);
        if (atomic_load(&j->outside))
            status = 1, tgc_error("RuntimeError",
                                  "ctc_loss: sample %lld has lengths beyond %lld steps and %lld targets, or a label "
                                  "that is none of the %lld of log_probs",
                                  (long long)atomic_load(&j->outside) - 1, (long long)j->steps, (long long)j->longest,
                                  (long long)j->labels);
        else if (atomic_load(&j->failed))
            status = 1, tgc_no_memory(name, (size_t)(j->steps * j->places) * sizeof(double));
    }
    for (int i = 0; i < 3; i++)
        tgc_scratch_free(memory[i]);
    return status ? -1 : 0;
}

static int loss(const tg_call *call, void *context)
{
    job j = {.out = call->outs[0].data};
    (void)context;
    return call->outs[0].numel == 0 ? 0 : run(call, 0, &j);
}

static int gradient(const tg_call *call, void *context)
{
    const tg_view *out = &call->outs[0];
    void *memory = NULL;
    (void)context;
    if (out->numel == 0)
        return 0;
    memset(out->data, 0, (size_t)(out->numel * tgc_itemsize[out->dtype]));
    job j = {.out = out->data, .grad = tgc_in_order(name, call->args[0].value.tensors, &memory, TGC(tgc_move_region))};
    int status = j.grad == NULL ? -1 : run(call, 1, &j);
    tgc_scratch_free(memory);
    return status;
}

const tgc_kernel TGC(tgc_table_ctc)[] = {
    {"_ctc_loss", "float32", TGC_CALL, loss, NULL},
    {"_ctc_loss", "float64", TGC_CALL, loss, NULL},
    {"_ctc_loss_backward", "float32", TGC_CALL, gradient, NULL},
    {"_ctc_loss_backward", "float64", TGC_CALL, gradient, NULL},
    {0}};
