/* How a reduction runs: a fold says what is done with elements and states, tgc_reduce walks the
 * tensor. Folds are rendered from the core's definitions (render/reductions.py) or written by hand
 * where the definition cannot be vectorised as it stands.
 *
 * States of many results lie side by side, one array per value of the state, so that every loop of
 * a fold runs over contiguous lanes without dependencies between them. */
#ifndef TGC_REDUCTION_LOOP_H
#define TGC_REDUCTION_LOOP_H

#include "half.h"
#include "tgc.h"
#include "vector_bytes.h"

/* The states of one tile fit the first-level cache beside the elements that enter. */
#define TGC_STATES_BYTES 16384
#define TGC_MOST_LANES 2048
/* How many lanes a state of so many bytes has. */
#define TGC_LANES(bytes)                                                                                               \
    (TGC_STATES_BYTES / (bytes) > TGC_MOST_LANES ? TGC_MOST_LANES : (TGC_STATES_BYTES / (bytes)) & ~63)
#define TGC_FOLD_OUTS 3
/* Columns of halves that are converted before they are folded. */
#define TGC_WIDENED 256
/* Results that are computed side by side before they are written. */
#define TGC_TOGETHER 128

/* How many partial results a contiguous row is folded into at once: one vector's, whose elements are
 * read in the order of memory. (Prefetchers of AMD give up on vectors that are read out of order.) */
#define TGC_LINE(item) (TGC_VECTOR / (int)(item))
#define TGC_LINE_BYTES (4 * TGC_VECTOR)

/* `rows` times `cols` elements; the lanes of a row are contiguous. */
typedef struct tgc_tile {
    int64_t rows, cols;
    int64_t row_stride;                   /* bytes */
    int64_t index, row_index, lane_index; /* the position of the first element, and steps */
} tgc_tile;

typedef struct tgc_fold {
    int32_t itemsize;
    int32_t lanes;    /* how many states one block holds */
    int32_t nout;
    int32_t indexed;  /* whether positions matter: dimensions keep their order */
    int32_t run_most; /* rows up to this long are folded by `run` */
    /* Fold a tile into the states of its lanes, which hold nothing yet if `fresh`. */
    void (*tile)(const char *x, const tgc_tile *tile, const tg_scalar *params, void *states, int fresh);
    /* Fold n elements, one after the other, into the state of lane `to`. */
    void (*run)(const char *x, int64_t n, int64_t stride, const tg_scalar *params, void *states, int64_t to);
    /* Fold n contiguous elements, TGC_LINE_BYTES at least, into the state of lane `to`, which holds
     * nothing yet if `fresh`; NULL where `tile` is as fast. */
    void (*line)(const char *x, int64_t n, const tg_scalar *params, void *states, int64_t to, int fresh);
    /* Combine lanes [at, at + cols) with lanes [from, from + cols) of `other`. */
    void (*merge)(void *states, int64_t at, const void *other, int64_t from, int64_t cols, const tg_scalar *params);
    /* Set lanes to the state of no elements; NULL where there is none. */
    void (*fill)(void *states, int64_t cols);
    /* Whether no further element can change the result; NULL if one always can. */
    int (*settled)(const void *states, int64_t cols, int every);
    /* Write the results of n elements each. */
    void (*finish)(const void *states, int64_t cols, int64_t n, const tg_scalar *params, char *const *outs,
                   const int64_t *strides);
} tgc_fold;

/* The loop kernel of every reduction; its context is the fold. */
int TGC(tgc_reduce)(const tg_loop *loop, void *fold);

#endif
