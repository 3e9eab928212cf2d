/* Convolutions whose results have neighbouring channels. */
#ifndef TANGRAD_CPU_CONVOLUTION_LAST_H
#define TANGRAD_CPU_CONVOLUTION_LAST_H

#include "tgc.h"

/* Whether a call of `convolution_input` with such a result has a kernel of its own; and that, for shapes that
 * belong to one convolution. */
int TGC(tgc_convolution_last_serves)(const tg_call *call);
int TGC(tgc_convolution_last_input)(const tg_call *call);

/* Have a result made plane by plane, in other memory, and turn it. */
int TGC(tgc_turn_result)(const tg_call *call, const char *op, int (*in_planes)(const tg_call *, const tg_view *));

#endif
