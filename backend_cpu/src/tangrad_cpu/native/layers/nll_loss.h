/* The likelihood of classes for kernels of which it is a part. */
#ifndef TANGRAD_CPU_NLL_LOSS_H
#define TANGRAD_CPU_NLL_LOSS_H

#include "tgc.h"

/* Write for each sample the negative logarithm at its class, and the weight of the class (1 without `weight`, NULL);
 * both are 0 at the class `ignored`. Returns 0, or -1 with an exception set. */
int TGC(tgc_nll_loss)(const tg_view *logs, const tg_view *target, const tg_view *weight, int64_t ignored,
                      const tg_view *loss, const tg_view *scale);

#endif
