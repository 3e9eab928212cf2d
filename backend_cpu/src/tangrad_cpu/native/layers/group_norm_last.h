/* Group normalization of images whose channels lie last, as their results do. */
#ifndef TANGRAD_CPU_GROUP_NORM_LAST_H
#define TANGRAD_CPU_GROUP_NORM_LAST_H

#include "tgc.h"

/* What `fused_group_norm` computes of an input in that order, of which there are elements. */
int TGC(tgc_group_norm_last)(const tg_call *call, const void *x, const void *weight, const void *bias, double eps);

/* Its gradient by the input, and the sums of g x^ and g over the places of each channel of each
 * sample; `given` are g, x, mean, rstd and weight. */
int TGC(tgc_group_norm_last_backward)(const tg_call *call, const void *const *given, double *by_weight,
                                      double *by_bias);

#endif
