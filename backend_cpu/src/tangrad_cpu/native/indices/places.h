/* Places in a tensor ("the table") that index tensors name, and what lies at each: a picked place
 * is an affine position plus the indices times strides; the rest of the table's dimensions are
 * walked whole at each place. The other side (result or source) is affine in both.
 * Gathering, selecting and advanced indexing differ only in how they fill this in. */
#ifndef TANGRAD_CPU_PLACES_H
#define TANGRAD_CPU_PLACES_H

#include "copies/copying.h"

#define TGC_PLACES_BLOCK 512

typedef struct {
    const char *data;
    int dtype;
    int dim;      /* of the table, for messages */
    int64_t size; /* of that dimension */
    int64_t step; /* bytes of the table per index */
    int64_t strides[TG_MAX_DIMS];
} tgc_index;

typedef struct {
    const char *op;
    const char *error; /* type of the exception for an index out of range */
    int wraps;         /* negative indices count from the end */
    char *table, *other;
    int itemsize;
    int npicked, nrest, nindices;
    struct {
        int64_t shape, table, other; /* strides in bytes */
        int lane;                    /* no place of one index of this dimension is one of another */
    } picked[TG_MAX_DIMS], rest[TG_MAX_DIMS];
    tgc_index indices[TG_MAX_DIMS];
} tgc_places;

/* Part of the places: all, cut along one dimension. */
typedef struct {
    const tgc_places *places;
    int dim; /* below npicked: of picked, else of rest; -1: not cut */
    int64_t first, count;
} tgc_places_part;

/* Fill in the places of an op; `table` is the tensor that is indexed. Those that write need the
 * order of equal places, so broadcast indices stay among the picked dimensions. */
void TGC(tgc_places_along)(tgc_places *places, const tg_view *table, const tg_view *other, int dim,
                           const tg_view *index, int writes);
void TGC(tgc_places_listed)(tgc_places *places, const tg_view *table, const tg_view *other, int dim,
                            const tg_view *index, int writes);
int TGC(tgc_places_indexed)(tgc_places *places, const tg_view *table, const tg_view *other, const tg_view *indices,
                            int count, int writes);

/* Raise for an index out of range; 0 where all are in range. */
int TGC(tgc_places_check)(const tgc_places *places);
int TGC(tgc_places_raise)(const tgc_places *places);

/* Call `block` for blocks of picked places: their positions in the table (bytes, the part's start
 * included), the other side's first position and its stride. Returns -1 at an index out of range. */
typedef void (*tgc_places_block)(const tgc_places_part *part, const int64_t *positions, int64_t other,
                                 int64_t other_stride, int64_t n, const void *context);
int TGC(tgc_places_walk)(const tgc_places_part *part, tgc_places_block block, const void *context);

/* Cut along a dimension that threads may share, and run task on each part. */
typedef int (*tgc_places_task)(const tgc_places_part *part, const void *context);
int TGC(tgc_places_run)(const tgc_places *places, int writes, tgc_places_task task, const void *context);

/* What is walked at each place: rows along the last of the rest dimensions. */
static inline int64_t tgc_rest_shape(const tgc_places_part *part, int d)
{
    return part->dim == part->places->npicked + d ? part->count : part->places->rest[d].shape;
}

static inline int64_t tgc_rest_rows(const tgc_places_part *part)
{
    int64_t rows = 1;
    for (int d = 0; d < part->places->nrest - 1; d++)
        rows *= tgc_rest_shape(part, d);
    return rows;
}

static inline void tgc_rest_row(const tgc_places_part *part, int64_t row, int64_t *table, int64_t *other)
{
    *table = *other = 0;
    for (int d = part->places->nrest - 2; d >= 0; d--) {
        int64_t shape = tgc_rest_shape(part, d), i = row % shape;
        row /= shape;
        *table += i * part->places->rest[d].table;
        *other += i * part->places->rest[d].other;
    }
}

#endif
