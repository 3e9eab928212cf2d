/* Parts of the ops whose result's size depends on data; _dynamic.pxi puts them together. */
#ifndef TANGRAD_CPU_MASKED_H
#define TANGRAD_CPU_MASKED_H

#include "tgc.h"

/* Elements of a mask that are counted together, so that threads know where theirs go. */
#define TGC_MASK_CHUNK 16384

typedef struct tgc_masked {
    /* Count the true bytes of each chunk. */
    void (*count)(const uint8_t *mask, int64_t n, int64_t *counts);
    /* Copy the elements where the mask is true, in order; starts[c] is the first that chunk c writes. */
    void (*select)(const uint8_t *mask, int64_t n, const int64_t *starts, const char *from, char *to, int itemsize);
    /* Write the coordinates of the `total` true bytes of a packed mask, a column for each. */
    void (*places)(const uint8_t *mask, int64_t n, const int64_t *starts, int ndim, const int64_t *shape,
                   int64_t total, int64_t *to);
    /* Least and largest of n > 0 numbers. */
    void (*range)(const int64_t *numbers, int64_t n, int64_t *least, int64_t *most);
    /* Count each number, or add up its weights. */
    void (*histogram)(const int64_t *numbers, int64_t n, const double *weights, int64_t *counts, double *sums);
} tgc_masked;

#endif
