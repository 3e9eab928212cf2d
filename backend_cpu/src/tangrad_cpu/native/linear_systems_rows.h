/* Elimination and triangular systems of one row-major matrix, by recursion, so that nearly all work
 * is matrix products (Toledo, "Locality of Reference in LU Decomposition with Partial Pivoting",
 * 1997). A template: define
 *   LS_NAME, LS_T (element), LS_ABS, LS_PRODUCT (of gemm.h)
 * and include. Elements off the diagonal of triangles are held negated, so that products are added.
 * Functions return 0, or -1 where a product finds no memory. */

#define LS_JOIN_(a, b) a##b
#define LS_JOIN(a, b) LS_JOIN_(a, b)
#define LS(name) LS_JOIN(LS_NAME, name)

#ifndef LS_LEAF
#define LS_LEAF 8      /* rows of a triangle, columns of a panel */
#define LS_STRIP 256   /* columns whose rows of a leaf stay in the first-level cache */
#define LS_LANES 16

/* The larger power of two into which a side is cut first: parts are whole leaves. */
static int64_t ls_half(int64_t n)
{
    int64_t half = LS_LEAF;
    while (2 * half < n)
        half *= 2;
    return half;
}
#endif

/* C += A B. */
static int LS(_add_product)(int64_t m, int64_t n, int64_t k, const LS_T *a, int64_t a_row, const LS_T *b, int64_t b_row,
                            LS_T *c, int64_t c_row)
{
    tgc_gemm g = {.m = m, .n = n, .k = k, .batch = 1, .alpha = 1, .beta = 1};
    g.a = a, g.a_row = a_row, g.a_col = 1;
    g.b = b, g.b_row = b_row, g.b_col = 1;
    g.c = c, g.c_row = c_row, g.c_col = 1;
    return LS_PRODUCT(&g);
}

static void LS(_substitute)(int64_t n, int forward, int unit, const LS_T *t, int64_t t_row, LS_T *restrict x,
                            int64_t x_row, int64_t cols)
{
    for (int64_t from = 0; from < cols; from += LS_STRIP) {
        const int64_t width = cols - from < LS_STRIP ? cols - from : LS_STRIP;
        for (int64_t step = 0; step < n; step++) {
            const int64_t i = forward ? step : n - 1 - step;
            LS_T *restrict row = x + i * x_row + from;
            for (int64_t done = 0; done < step; done++) {
                const int64_t k = forward ? done : n - 1 - done;
                const LS_T factor = t[i * t_row + k], *known = x + k * x_row + from;
                for (int64_t c = 0; c < width; c++)
                    row[c] += factor * known[c];
            }
            if (!unit)
                for (int64_t c = 0; c < width; c++)
                    row[c] /= t[i * t_row + i];
        }
    }
}

/* X = inv(T) X for a lower (`forward`) or upper triangle with n rows. */
static int LS(_solve)(int64_t n, int forward, int unit, const LS_T *t, int64_t t_row, LS_T *x, int64_t x_row,
                      int64_t cols)
{
    if (n <= LS_LEAF) {
        LS(_substitute)(n, forward, unit, t, t_row, x, x_row, cols);
        return 0;
    }
    const int64_t half = ls_half(n), count = forward ? half : n - half, rest = n - count;
    const int64_t first = forward ? 0 : half, second = forward ? half : 0;
    if (LS(_solve)(count, forward, unit, t + first * (t_row + 1), t_row, x + first * x_row, x_row, cols) < 0 ||
        LS(_add_product)(rest, cols, count, t + second * t_row + first, t_row, x + first * x_row, x_row,
                         x + second * x_row, x_row) < 0)
        return -1;
    return LS(_solve)(rest, forward, unit, t + second * (t_row + 1), t_row, x + second * x_row, x_row, cols);
}

/* Write the inverse of a lower triangle with ones on its diagonal into the lower triangle of x, which
 * is zero elsewhere. */
static int LS(_invert_unit)(int64_t n, const LS_T *t, int64_t t_row, LS_T *x, int64_t x_row)
{
    if (n <= LS_LEAF) {
        for (int64_t i = 0; i < n; i++)
            x[i * x_row + i] = 1;
        LS(_substitute)(n, 1, 1, t, t_row, x, x_row, n);
        return 0;
    }
    const int64_t half = ls_half(n), rest = n - half;
    const LS_T *below = t + half * t_row;
    LS_T *corner = x + half * x_row;
    if (LS(_invert_unit)(half, t, t_row, x, x_row) < 0 ||
        LS(_add_product)(rest, half, half, below, t_row, x, x_row, corner, x_row) < 0 ||
        LS(_solve)(rest, 1, 1, below + half, t_row, corner, x_row, half) < 0)
        return -1;
    return LS(_invert_unit)(rest, below + half, t_row, corner + half, x_row);
}

/* The first row from `from` on whose element has the largest absolute value, NaN left aside. */
static int64_t LS(_pivot)(const LS_T *column, int64_t from, int64_t m)
{
    LS_T best[LS_LANES], most = -1;
    for (int k = 0; k < LS_LANES; k++)
        best[k] = -1;
    int64_t i = from;
    for (; i + LS_LANES <= m; i += LS_LANES)
        for (int k = 0; k < LS_LANES; k++) {
            const LS_T size = LS_ABS(column[i + k]);
            best[k] = size > best[k] ? size : best[k];
        }
    for (; i < m; i++)
        if (LS_ABS(column[i]) > most)
            most = LS_ABS(column[i]);
    for (int k = 0; k < LS_LANES; k++)
        if (best[k] > most)
            most = best[k];
    for (i = from; i < m; i++)
        if (LS_ABS(column[i]) == most)
            return i;
    return from;
}

static void LS(_swap_rows)(LS_T *a, int64_t a_row, int64_t cols, const int64_t *pivots, int64_t count)
{
    for (int64_t j = 0; j < count; j++) {
        if (pivots[j] == j)
            continue;
        LS_T *one = a + j * a_row, *other = a + pivots[j] * a_row;
        for (int64_t c = 0; c < cols; c++) {
            const LS_T kept = one[c];
            one[c] = other[c];
            other[c] = kept;
        }
    }
}

/* Factor m rows of few columns, in a copy column by column. Returns the first zero pivot, from 1. */
static int64_t LS(_factor_panel)(int64_t m, int64_t n, LS_T *a, int64_t a_row, int64_t *pivots, LS_T *panel)
{
    int64_t zero = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            panel[j * m + i] = a[i * a_row + j];
    for (int64_t j = 0; j < n; j++) {
        LS_T *restrict column = panel + j * m;
        const int64_t p = LS(_pivot)(column, j, m);
        pivots[j] = p;
        for (int64_t c = 0; p != j && c < n; c++) {
            const LS_T kept = panel[c * m + j];
            panel[c * m + j] = panel[c * m + p];
            panel[c * m + p] = kept;
        }
        if (column[j] == 0) {
            zero = zero ? zero : j + 1;
            continue;
        }
        const LS_T pivot = column[j];
        for (int64_t i = j + 1; i < m; i++)
            column[i] /= -pivot;
        for (int64_t c = j + 1; c < n; c++) {
            LS_T *restrict other = panel + c * m;
            const LS_T factor = other[j];
            for (int64_t i = j + 1; i < m; i++)
                other[i] += factor * column[i];
        }
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            a[i * a_row + j] = panel[j * m + i];
    return zero;
}

/* Factor m x n elements (m >= n) with partial pivoting: L, negated, below its ones, U above. Pivots
 * count rows from 0. `panel` has room for LS_LEAF columns; *zero is the first pivot that is zero,
 * from 1, or 0. */
static int LS(_factor)(int64_t m, int64_t n, LS_T *a, int64_t a_row, int64_t *pivots, LS_T *panel, int64_t *zero)
{
    if (n <= LS_LEAF) {
        *zero = LS(_factor_panel)(m, n, a, a_row, pivots, panel);
        return 0;
    }
    const int64_t half = ls_half(n), rest = n - half;
    LS_T *right = a + half, *below = a + half * a_row;
    int64_t later;
    if (LS(_factor)(m, half, a, a_row, pivots, panel, zero) < 0)
        return -1;
    LS(_swap_rows)(right, a_row, rest, pivots, half);
    if (LS(_solve)(half, 1, 1, a, a_row, right, a_row, rest) < 0 ||
        LS(_add_product)(m - half, rest, half, below, a_row, right, a_row, below + half, a_row) < 0 ||
        LS(_factor)(m - half, rest, below + half, a_row, pivots + half, panel, &later) < 0)
        return -1;
    LS(_swap_rows)(below, a_row, half, pivots + half, rest);
    for (int64_t j = half; j < n; j++)
        pivots[j] += half;
    if (*zero == 0 && later != 0)
        *zero = later + half;
    return 0;
}

/* Negate a triangle off its diagonal. */
static void LS(_negate)(int64_t n, int upper, LS_T *a)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = upper ? i + 1 : 0, end = upper ? n : i; j < end; j++)
            a[i * n + j] = -a[i * n + j];
}

#undef LS
#undef LS_JOIN
#undef LS_JOIN_
#undef LS_NAME
#undef LS_T
#undef LS_ABS
#undef LS_PRODUCT
