/* What the ways to convolve bytes share. */
#ifndef TQ_CONVOLUTION_H
#define TQ_CONVOLUTION_H

#include "call.h"

typedef struct conv_work {
    const tq_product *p;
    const uint8_t *input;
    const int64_t *size, *kernel, *stride, *padding, *dilation, *out; /* out: N, D, H, W, C */
    int64_t channels, groups, taps, places;
    int64_t first[3], last[3]; /* output places between these read no padding */
    int64_t rows_of_task;
    const int8_t *by_channel; /* depthwise: weights in the level's order, else NULL */
    const uint8_t *end; /* of the input */
    uint8_t *rows;            /* where all rows are gathered before the first product, else NULL */
    int failed;
} conv_work;

/* One place of the output, and the next. */
typedef struct cursor {
    int64_t n, z, y, x;
} cursor;

static inline cursor cursor_at(const conv_work *w, int64_t place)
{
    int64_t plane = w->out[2] * w->out[3];
    cursor c = {place / (plane * w->out[1]), place / plane % w->out[1], place / w->out[3] % w->out[2],
                place % w->out[3]};
    return c;
}

static inline void advance(const conv_work *w, cursor *c)
{
    if (++c->x < w->out[3])
        return;
    c->x = 0;
    if (++c->y < w->out[2])
        return;
    c->y = 0;
    if (++c->z == w->out[1]) {
        c->z = 0;
        c->n++;
    }
}

/* Convolve from the input as it lies, for levels that can: 1, or 0 where they cannot, or -1 with an
 * exception. */
int tq_directly(const conv_work *w);
int tq_depthwise_directly(const conv_work *w, const int8_t *weights);

#endif
