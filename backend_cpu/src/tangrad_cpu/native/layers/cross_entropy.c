/* The cross entropy of scores and class numbers, sample by sample, and its gradient by the scores: what log-softmax, the
 * likelihood of classes and their gradients give, to the bit, without a matrix in which each row has one number. */
#include "nll_loss.h"
#include "softmax.h"

static int cross_entropy(const tg_call *call, void *context)
{
    const tg_view *scores = call->args[0].value.tensors, *target = call->args[1].value.tensors, *logs = &call->outs[2];
    (void)context;
    if (scores->ndim != 2 || target->dtype != TGC_INT64)
        return TG_DECLINED;
    if (TGC(tgc_log_softmax)(scores, logs, 1) < 0)
        return -1;
    return TGC(tgc_nll_loss)(logs, target, NULL, call->args[2].value.i, &call->outs[0], &call->outs[1]);
}

static int cross_entropy_gradient(const tg_call *call, void *context)
{
    const tg_view *grad = call->args[0].value.tensors, *logs = call->args[1].value.tensors;
    const tg_view *target = call->args[2].value.tensors, *out = &call->outs[0];
    (void)context;
    if (logs->ndim != 2 || grad->ndim != 1 || target->ndim != 1 || target->dtype != TGC_INT64 ||
        grad->dtype != logs->dtype || grad->shape[0] != logs->shape[0] || target->shape[0] != logs->shape[0] ||
        !tgc_is_contiguous(logs, 0) || !tgc_is_contiguous(out, 0))
        return TG_DECLINED;
    return TGC(tgc_class_gradient)(grad, logs, target, call->args[3].value.i, out);
}

const tgc_kernel TGC(tgc_table_cross_entropy)[] = {
    {"cross_entropy_elements", "float32", TGC_CALL, cross_entropy, NULL},
    {"cross_entropy_elements", "float64", TGC_CALL, cross_entropy, NULL},
    {"cross_entropy_elements_backward", "float32", TGC_CALL, cross_entropy_gradient, NULL},
    {"cross_entropy_elements_backward", "float64", TGC_CALL, cross_entropy_gradient, NULL},
    {0}};
