/* What a rendered pointwise kernel says of itself to the driver of its loop. */
#ifndef TANGRAD_CPU_POINTWISE_LOOP_H
#define TANGRAD_CPU_POINTWISE_LOOP_H

#include "tgc.h"

/* n contiguous elements of each operand, outputs first, each of the kernel's dtype; an output may
 * be an input's own memory. `index` is the first element's, in row-major order: kernels that use
 * it are called with loops in that order only. Sets bit 0 of *err where an integer was divided by zero. */
typedef void (*tgc_pointwise_inner)(int64_t n, char *const *data, const tg_scalar *params, int64_t index,
                                    int32_t *err);

/* An inner loop that takes some operands for numbers: the first element of each is read before the loop. */
typedef struct tgc_pointwise_numbers {
    tgc_pointwise_inner inner;
    uint32_t operands; /* a bit for each of these */
} tgc_pointwise_numbers;

typedef struct tgc_pointwise_kernel {
    tgc_pointwise_inner inner;
    const char *title; /* of the op, for messages */
    uint8_t nout, nin;
    uint8_t ordered; /* uses the index */
    uint16_t cost; /* of an element, in additions */
    uint8_t dtypes[TG_MAX_OPERANDS];
    /* The kernel in the type that is computed in, where this one's operands are stored in another:
     * it serves operands of mixed types, such as numbers, which are not rounded first. */
    const struct tgc_pointwise_kernel *wide;
    const tgc_pointwise_numbers *numbers; /* NULL if there are none; the last has no function */
} tgc_pointwise_kernel;

/* The loop kernel of all pointwise ops; the context is a tgc_pointwise_kernel. */
int TGC(tgc_pointwise)(const tg_loop *loop, void *context);

#endif
