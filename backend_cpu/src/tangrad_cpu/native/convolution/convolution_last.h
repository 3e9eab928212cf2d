/* Convolutions whose results have neighbouring channels. */
#ifndef TANGRAD_CPU_CONVOLUTION_LAST_H
#define TANGRAD_CPU_CONVOLUTION_LAST_H

#include "convolution_job.h"

/* Whether a call of `convolution_input` with such a result has a kernel of its own; and that, for shapes that
 * belong to one convolution. */
int TGC(tgc_convolution_last_serves)(const tg_call *call);
int TGC(tgc_convolution_last_input)(const tg_call *call);

/* What the gradient by the input costs, of one tap of one image: as a convolution with the padded gradient, and
 * as sums of products. Products of an element of grad, or of the result, and a weight are counted, and what it
 * costs to gather a window's element, or to add a sum to its place, in as many; measured on Zen 4. */
double TGC(tgc_cost_as_convolution)(const tgc_convolution *j);
double TGC(tgc_cost_of_sums)(const tgc_convolution *j);

/* Whether planes are better turned to pixels and back; and that. */
int TGC(tgc_pays_by_pixels)(const tgc_convolution *j, const tg_call *call, int may_be_convolution);
int TGC(tgc_convolution_by_pixels)(const tg_call *call);

/* Have a result made plane by plane, in other memory, and turn it. */
int TGC(tgc_turn_result)(const tg_call *call, const char *op, int (*in_planes)(const tg_call *, const tg_view *));

#endif
