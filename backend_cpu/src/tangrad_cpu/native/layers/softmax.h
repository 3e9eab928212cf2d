/* Log-softmax for kernels of which it is a part. */
#ifndef TANGRAD_CPU_SOFTMAX_H
#define TANGRAD_CPU_SOFTMAX_H

#include "tgc.h"

/* Write the log-softmax of a tensor along a dimension to one of the same shape and dtype. Returns 0, or -1 with an
 * exception set. */
int TGC(tgc_log_softmax)(const tg_view *from, const tg_view *to, int64_t dim);

#endif
