/* The gradient of the distances of pairs by one row. A template: D_T, D_VECTOR and D_BITS (lanes of
 * it, and of signed integers as wide), D_SIGN (the bit of the sign), D_LEAST and D_MOST (magnitudes
 * between which factors keep their precision), D(name).
 *
 * Lanes are the other rows. A row's own lane, and those behind the last, are masked. */

#define D_LANES ((int64_t)(sizeof(D_VECTOR) / sizeof(D_T)))

/* The factor of each pair, beside what its differences tell. Returns 0 where a factor is out of range
 * though its products may not be. */
static int D(factors)(const gradient *j)
{
    const D_T *g = (const D_T *)j->g, *distance = (const D_T *)j->distance;
    D_T *factor = (D_T *)j->factors; /* its own memory here */
    int in_range = 1;
    for (int64_t i = 0; i < j->pairs; i++) {
        const D_T d = distance[i], f = g[i] / d, size = f < 0 ? -f : f, given = g[i] < 0 ? -g[i] : g[i];
        const int fits = (size >= D_LEAST) & (size <= D_MOST), zero = d == 0, same = d == (D_T)INFINITY;
        in_range &= fits | zero | same | (d != d) | !(given > 0 && given <= D_MOST);
        factor[i] = zero ? g[i] * 0 : f;
    }
    return in_range;
}

/* What row i shares with the other rows, as a vector: values[pair of i and k] at k. */
static void D(of_row)(const gradient *j, int64_t i, const D_T *values, D_T *row)
{
    const int64_t n = j->rows;
    for (int64_t k = 0, at = i - 1; k < i; at += n - 2 - k, k++)
        row[k] = values[at];
    row[i] = 0;
    memcpy(row + i + 1, values + i * (2 * n - i - 1) / 2, (size_t)(n - i - 1) * sizeof *row);
    memset(row + n, 0, (size_t)(j->padded - n) * sizeof *row);
}

static inline __attribute__((always_inline)) D_VECTOR D(load)(const D_T *at)
{
    D_VECTOR x;
    memcpy(&x, at, sizeof x);
    return x;
}

static inline __attribute__((always_inline)) D_BITS D(sign)(D_VECTOR x)
{
    const D_VECTOR ones = (D_VECTOR){0} + 1;
    return ((D_BITS)ones | ((D_BITS)x & D_SIGN)) & ((D_BITS)(x < 0) | (D_BITS)(x > 0));
}

static inline __attribute__((always_inline)) D_VECTOR D(slope)(D_VECTOR difference, D_VECTOR distance, int kind)
{
    switch (kind) {
    case ABSOLUTE: return (D_VECTOR)D(sign)(difference);
    case SQUARES: return difference;
    default: return (D_VECTOR)(D(sign)(difference) & (D_BITS)((D_VECTOR)((D_BITS)difference & ~D_SIGN) == distance));
    }
}

/* Factors of largest differences: as many as are the largest share the gradient. */
static void D(share)(const gradient *j, int64_t i, D_T *factor, const D_T *distance, const D_BITS *mask)
{
    const D_T *table = (const D_T *)j->table;
    for (int64_t k = 0; k < j->padded; k += D_LANES) {
        const D_VECTOR d = D(load)(distance + k);
        D_BITS count = {0};
        for (int64_t c = 0; c < j->width; c++) {
            const D_VECTOR difference = table[c * j->padded + i] - D(load)(table + c * j->padded + k);
            count -= (D_BITS)((D_VECTOR)((D_BITS)difference & ~D_SIGN) == d);
        }
        for (int64_t l = 0; l < D_LANES; l++)
            factor[k + l] = count[l] ? factor[k + l] / (D_T)count[l] : (D_T)NAN;
        const D_VECTOR kept = (D_VECTOR)((D_BITS)D(load)(factor + k) & mask[k / D_LANES]);
        memcpy(factor + k, &kept, sizeof kept);
    }
}

static inline __attribute__((always_inline)) void D(gradient_by)(const gradient *j, int64_t i, char *memory, int kind)
{
    enum { AT_ONCE = 4 };
    D_T *factor = (D_T *)memory, *distance = factor + j->padded, *out = (D_T *)j->out + i * j->width;
    D_BITS *mask = (D_BITS *)(distance + j->padded);
    const D_T *table = (const D_T *)j->table;
    D_T *bits = (D_T *)mask;
    const D_VECTOR none = {0};
    const D_BITS all = (D_BITS)(none == none);
    for (int64_t k = 0; k < j->padded; k++)
        memcpy(bits + k, k == i || k >= j->rows ? (const void *)&none : (const void *)&all, sizeof *bits);
    D(of_row)(j, i, (const D_T *)j->factors, factor);
    if (kind == LARGEST) {
        D(of_row)(j, i, (const D_T *)j->distance, distance);
        D(share)(j, i, factor, distance, mask);
    }
    for (int64_t c = 0; c < j->width; c += AT_ONCE) {
        const int64_t columns = j->width - c < AT_ONCE ? j->width - c : AT_ONCE;
        const D_T *at[AT_ONCE];
        D_VECTOR sums[AT_ONCE] = {{0}};
        /* Columns past the last are the last again. */
        for (int q = 0; q < AT_ONCE; q++)
            at[q] = table + (c + (q < columns ? q : columns - 1)) * j->padded;
        for (int64_t k = 0; k < j->padded; k += D_LANES) {
            const D_VECTOR f = D(load)(factor + k), d = kind == LARGEST ? D(load)(distance + k) : f;
            const D_BITS wanted = mask[k / D_LANES];
#pragma GCC unroll 4
            for (int q = 0; q < AT_ONCE; q++) {
                const D_VECTOR difference = (D_VECTOR)((D_BITS)(at[q][i] - D(load)(at[q] + k)) & wanted);
                sums[q] += f * D(slope)(difference, d, kind);
            }
        }
        for (int64_t q = 0; q < columns; q++) {
            D_T lanes[sizeof(D_VECTOR) / sizeof(D_T)];
            memcpy(lanes, &sums[q], sizeof lanes);
            for (int64_t half = D_LANES / 2; half; half /= 2)
                for (int64_t l = 0; l < half; l++)
                    lanes[l] += lanes[l + half];
            out[c + q] = lanes[0];
        }
    }
}

static void D(gradient_of)(const gradient *j, int64_t i, char *memory)
{
    switch (j->kind) {
    case ABSOLUTE: D(gradient_by)(j, i, memory, ABSOLUTE); break;
    case SQUARES: D(gradient_by)(j, i, memory, SQUARES); break;
    default: D(gradient_by)(j, i, memory, LARGEST);
    }
}

#undef D
#undef D_BITS
#undef D_LANES
#undef D_LEAST
#undef D_MOST
#undef D_SIGN
#undef D_T
#undef D_VECTOR
