/* Distances of one row to those behind it. A template: D_T, D_VECTOR and D_BITS (lanes of it, and of
 * signed integers as wide), D_MASK (all bits but the sign), D_LEAST (sums of squares below it, or
 * infinite ones, are computed again), D(name). */

#define D_LANES ((int64_t)(sizeof(D_VECTOR) / sizeof(D_T)))
#define D_BLOCK (4 * D_LANES)

static inline __attribute__((always_inline)) D_VECTOR D(step)(D_VECTOR state, D_VECTOR difference, int kind)
{
    /* As integers, magnitudes have the same order, and nan is above all. */
    const D_BITS size = (D_BITS)difference & D_MASK, greater = (D_BITS)state > size;
    switch (kind) {
    case ABSOLUTE: return state + (D_VECTOR)size;
    case SQUARES: return state + difference * difference;
    case NUMBER: {
        /* Where infinities are subtracted, nothing is known. */
        const D_VECTOR one = (D_VECTOR){0} + 1;
        const D_BITS counted = (D_BITS)one & (difference != 0), unknown = difference != difference;
        return state + (D_VECTOR)((counted & ~unknown) | ((D_BITS)difference & unknown));
    }
    default: return (D_VECTOR)(((D_BITS)state & greater) | (size & ~greater));
    }
}

/* What the differences of a row to some vectors of others come to; the others are columns of `table`. */
static inline __attribute__((always_inline)) void D(fold)(const D_T *row, const D_T *table, const job *j, int kind,
                                                          int vectors, double *found)
{
    for (int64_t l = 0; l < vectors * D_LANES; l++)
        found[l] = 0;
    for (int64_t first = 0; first < j->width; first += PIECE) {
        const int64_t end = j->width - first < PIECE ? j->width : first + PIECE;
        D_VECTOR state[4] = {{0}}, x[4];
        D_T sums[D_BLOCK];
        for (int64_t k = first; k < end; k++) {
            const D_T *at = table + k * j->padded;
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                memcpy(&x[v], at + v * D_LANES, sizeof *x);
                state[v] = D(step)(state[v], row[k] - x[v], kind);
            }
        }
        memcpy(sums, state, (size_t)vectors * sizeof *state);
        for (int64_t l = 0; l < vectors * D_LANES; l++) {
            const double larger = found[l] > sums[l] || found[l] != found[l] ? found[l] : sums[l];
            found[l] = kind == LARGEST ? larger : found[l] + sums[l];
        }
    }
}

/* Of squares that are out of the type's range: scaled by the largest difference. */
static double D(euclidean)(const D_T *a, const D_T *b, int64_t n)
{
    double largest = 0, total = 0;
    for (int64_t k = 0; k < n; k++) {
        const double size = fabs((double)a[k] - (double)b[k]);
        largest = largest > size || largest != largest ? largest : size;
    }
    if (!(largest > 0 && largest < INFINITY))
        return largest;
    for (int64_t k = 0; k < n; k++) {
        const double part = ((double)a[k] - (double)b[k]) / largest;
        total += part * part;
    }
    return largest * sqrt(total);
}

/* Transpose, with zeros behind the last row's column. */
static void D(tabulate)(const job *j)
{
    const D_T *x = (const D_T *)j->x;
    D_T *table = (D_T *)j->table;
    TGC(tgc_transpose)((char *)table, j->padded * (int64_t)sizeof(D_T), (const char *)x,
                       j->width * (int64_t)sizeof(D_T), j->width, j->rows, sizeof(D_T));
    for (int64_t k = 0; k < j->width; k++)
        for (int64_t i = j->rows; i < j->padded; i++)
            table[k * j->padded + i] = 0;
}

static inline __attribute__((always_inline)) void D(row_by)(const job *j, int64_t i, int kind)
{
    const D_T *x = (const D_T *)j->x, *row = x + i * j->width;
    D_T *out = (D_T *)j->out + i * (2 * j->rows - i - 1) / 2;
    double found[D_BLOCK];
    for (int64_t first = i + 1; first < j->rows; first += D_BLOCK) {
        const int64_t count = j->rows - first < D_BLOCK ? j->rows - first : D_BLOCK;
        const D_T *others = (const D_T *)j->table + first;
        int wide = 0;
        /* Of few others the columns behind them are not worth a look. */
        if (count <= D_LANES)
            D(fold)(row, others, j, kind, 1, found);
        else if (count <= 2 * D_LANES)
            D(fold)(row, others, j, kind, 2, found);
        else
            D(fold)(row, others, j, kind, 4, found);
        for (int64_t l = 0; l < count && kind == SQUARES; l++) {
            wide |= !((found[l] >= D_LEAST) & (found[l] < INFINITY));
            found[l] = sqrt(found[l]);
        }
        for (int64_t l = 0; l < count && wide; l++)
            if (!(found[l] * found[l] >= 2 * D_LEAST && found[l] < INFINITY))
                found[l] = D(euclidean)(row, x + (first + l) * j->width, j->width);
        for (int64_t l = 0; l < count; l++)
            *out++ = (D_T)found[l];
    }
}

static void D(row)(const job *j, int64_t i)
{
    switch (j->kind) {
    case ABSOLUTE: D(row_by)(j, i, ABSOLUTE); break;
    case SQUARES: D(row_by)(j, i, SQUARES); break;
    case NUMBER: D(row_by)(j, i, NUMBER); break;
    default: D(row_by)(j, i, LARGEST);
    }
}

#undef D
#undef D_BITS
#undef D_BLOCK
#undef D_LANES
#undef D_LEAST
#undef D_MASK
#undef D_T
#undef D_VECTOR
