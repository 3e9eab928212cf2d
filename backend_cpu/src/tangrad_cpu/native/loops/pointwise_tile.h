/* Moving a block of an operand between its own place and a tile: contiguous elements, row by row,
 * in the dtype that a kernel computes in. */
#ifndef TANGRAD_CPU_POINTWISE_TILE_H
#define TANGRAD_CPU_POINTWISE_TILE_H

#include "tgc.h"

typedef struct tgc_tile {
    char *tile;
    char *data;
    int wanted; /* dtype of the tile */
    int dtype;  /* of the operand: `wanted`, a half that is widened to it, or that of a number */
    int store;  /* whether the tile goes to the operand */
    int64_t rows, columns;
    int64_t row_stride, column_stride; /* of the operand, in bytes */
} tgc_tile;

/* A block has at most TGC_TILE_MOST elements where its dtypes differ. */
#define TGC_TILE_MOST 2048
void TGC(tgc_tile_move)(const tgc_tile *t);

#endif
