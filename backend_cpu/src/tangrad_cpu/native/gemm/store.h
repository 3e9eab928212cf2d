/* The way of a finished tile to C, off the microkernel's path. A template: define
 *   ST_NAME, ST_T (accumulator), ST_C (element of C), ST_LOAD (ST_C to ST_T), ST_ROUND (back)
 * and include; ST_SCALAR where a cast does not make alpha and beta accumulators. Rows are completed in the tile, where an activation sees accumulators. */

#ifndef ST_SCALAR
#define ST_SCALAR(x) ((ST_T)(x))
#endif

static void ST_NAME(const tgc_gemm *g, void *c, int64_t i, int64_t j, int64_t rows, int64_t cols, void *tile,
                    int64_t tile_row)
{
    const __auto_type alpha = ST_SCALAR(g->alpha);
    const __auto_type beta = ST_SCALAR(g->beta);
    for (int64_t r = 0; r < rows; r++) {
        ST_T *row = (ST_T *)tile + r * tile_row;
        ST_C *to = (ST_C *)c + (i + r) * g->c_row + j * g->c_col;
        if (g->alpha != 1)
            for (int64_t s = 0; s < cols; s++)
                row[s] *= alpha;
        if (g->beta != 0)
            for (int64_t s = 0; s < cols; s++)
                row[s] += beta * ST_LOAD(to[s * g->c_col]);
        if (g->bias != NULL) {
            const ST_C *bias = (const ST_C *)g->bias + (i + r) * g->bias_row + j * g->bias_col;
            if (g->bias_col == 1)
                for (int64_t s = 0; s < cols; s++)
                    row[s] += ST_LOAD(bias[s]);
            else
                for (int64_t s = 0; s < cols; s++)
                    row[s] += ST_LOAD(bias[s * g->bias_col]);
        }
        if (g->activation != NULL)
            g->activation(row, cols);
        if ((const void *)row == (const void *)to)
            continue;
        if (g->c_col == 1)
            for (int64_t s = 0; s < cols; s++)
                to[s] = ST_ROUND(row[s]);
        else
            for (int64_t s = 0; s < cols; s++)
                to[s * g->c_col] = ST_ROUND(row[s]);
    }
}

#undef ST_NAME
#undef ST_T
#undef ST_C
#undef ST_LOAD
#undef ST_ROUND
#undef ST_SCALAR
