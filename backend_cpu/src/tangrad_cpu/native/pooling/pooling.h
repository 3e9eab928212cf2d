/* Max pooling with positions, as other kernels use it. */
#ifndef TANGRAD_CPU_POOLING_H
#define TANGRAD_CPU_POOLING_H

#include "tgc.h"

/* Write the greatest of every window to outs[0] and its flat position to outs[1]; 0, or -1 with an
 * exception. The windows are given by one number for each of the last `spatial` dimensions. */
int TGC(tgc_max_pool)(const tg_view *input, const tg_view *outs, int spatial, const int64_t *kernel,
                      const int64_t *stride, const int64_t *padding, const int64_t *dilation);

/* The same where windows have one element along the last dimension, whose elements are neighbours: 1 with the
 * status, or 0 if it is not that case. `places` may be NULL. */
int TGC(tgc_max_pool_lanes)(const tg_view *input, const tg_view *values, const tg_view *places, int spatial,
                            const int64_t *kernel, const int64_t *stride, const int64_t *padding,
                            const int64_t *dilation, int *status);

#endif
