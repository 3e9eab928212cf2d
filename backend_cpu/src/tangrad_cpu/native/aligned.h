/* Kernels that want each element at a multiple of its alignment, called with operands at any byte.
 * `context` is the kernel's entry in its table. */
#ifndef TANGRAD_CPU_ALIGNED_H
#define TANGRAD_CPU_ALIGNED_H

#include "tgc.h"

int tgc_loop_aligned(const tg_loop *loop, void *context);
int tgc_call_aligned(const tg_call *call, void *context);

#endif
