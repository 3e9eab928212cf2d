/* Log-softmax and its gradient for kernels of which they are a part. */
#ifndef TANGRAD_CPU_SOFTMAX_H
#define TANGRAD_CPU_SOFTMAX_H

#include "tgc.h"

/* Write the log-softmax of a tensor along a dimension to one of the same shape and dtype. Returns 0, or -1 with an
 * exception set. */
int TGC(tgc_log_softmax)(const tg_view *from, const tg_view *to, int64_t dim);

/* Write the gradient of the scores of which each row's class owes `grad`, to the bit as the gradient of log-softmax
 * gives it for a matrix that is 0 elsewhere. `logs` and `out` are contiguous matrices of one dtype, float32 or
 * float64, `grad` is a vector of it, `target` one of int64; rows of the class `ignored` owe nothing. */
int TGC(tgc_class_gradient)(const tg_view *grad, const tg_view *logs, const tg_view *target, int64_t ignored,
                            const tg_view *out);

#endif
