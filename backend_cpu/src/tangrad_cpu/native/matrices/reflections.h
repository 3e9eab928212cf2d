/* Householder reflections of one row-major matrix, a block of columns at a time: I - V T V^T
 * (Schreiber and Van Loan, "A Storage-Efficient WY Representation for Products of Householder
 * Transformations", 1989). A template: define
 *   RF_T (element), RF_V (vector), RF_I (unsigned integer of an element's width), RF_FMA, RF_SQRT,
 *   RF_PRODUCT (of gemm.h), RF_LEAST (smallest normal number), RF_MOST (the largest), RF_LOW and
 *   RF_HIGH (between which squares neither vanish nor overflow), RF(name)
 * and include. The columns of V are contiguous, `apart` elements apart, and begin with the row of
 * their block; they end in zeros up to a whole vector. T is held negated and transposed. */
#include "gemm/gemm.h"
#include "gemm/simd.h"

#define RF_LANES ((int64_t)(TGC_VECTOR / sizeof(RF_T)))
#define RF_READ(p) ((RF_V)*(const RF(unaligned) *)(p))

typedef RF_T RF(unaligned) __attribute__((vector_size(TGC_VECTOR), aligned(1), may_alias));
typedef RF_I RF(bits) __attribute__((may_alias));

static inline RF_T RF(sum)(RF_V x)
{
    RF_T total = 0;
    for (int i = 0; i < RF_LANES; i++)
        total += x[i];
    return total;
}

/* Reflect columns of at most COLUMNS at once: y -= tau v (v^T y) from element `first` on. */
static inline __attribute__((always_inline)) void RF(reflect)(const int columns, const RF_T *v, RF_T *y, int64_t apart,
                                                              int64_t first, int64_t end, RF_T tau)
{
    RF_V sum[2 * COLUMNS];
#pragma GCC unroll 8
    for (int q = 0; q < 2 * columns; q++)
        sum[q] = (RF_V){0};
    int64_t i = first;
    for (; i + 2 * RF_LANES <= end; i += 2 * RF_LANES)
#pragma GCC unroll 4
        for (int q = 0; q < columns; q++) {
            sum[q] = RF_FMA(RF_READ(v + i), RF_READ(y + q * apart + i), sum[q]);
            sum[columns + q] = RF_FMA(RF_READ(v + i + RF_LANES), RF_READ(y + q * apart + i + RF_LANES), sum[columns + q]);
        }
    for (; i < end; i += RF_LANES)
#pragma GCC unroll 4
        for (int q = 0; q < columns; q++)
            sum[q] = RF_FMA(RF_READ(v + i), RF_READ(y + q * apart + i), sum[q]);
    RF_V factor[COLUMNS];
#pragma GCC unroll 4
    for (int q = 0; q < columns; q++)
        factor[q] = -tau * RF(sum)(sum[q] + sum[columns + q]) - (RF_V){0};
    for (i = first; i < end; i += RF_LANES)
#pragma GCC unroll 4
        for (int q = 0; q < columns; q++) {
            RF_V moved = RF_FMA(factor[q], RF_READ(v + i), RF_READ(y + q * apart + i));
            *(RF(unaligned) *)(y + q * apart + i) = moved;
        }
}

/* The Euclidean norm of n elements, whatever their size. */
static RF_T RF(norm)(const RF_T *x, int64_t n)
{
    enum { SUMS = 64 / sizeof(RF_T) };
    const RF(bits) *bits = (const RF(bits) *)x;
    RF_T most, total = 0, sums[SUMS] = {0};
    RF_I largest = 0; /* magnitudes are ordered as integers, NaN above all */
    for (int64_t i = 0; i < n; i++) {
        RF_I size = bits[i] & ((RF_I)-1 >> 1);
        largest = size > largest ? size : largest;
    }
    memcpy(&most, &largest, sizeof most);
    if (!(most > 0) || most > RF_MOST)
        return most;
    const RF_T scale = most > RF_LOW && most < RF_HIGH ? 1 : most;
    int64_t i = 0;
    if (scale == 1)
        for (; i + SUMS <= n; i += SUMS)
            for (int k = 0; k < SUMS; k++)
                sums[k] += x[i + k] * x[i + k];
    for (; i < n; i++)
        total += (x[i] / scale) * (x[i] / scale);
    for (int k = 0; k < SUMS; k++)
        total += sums[k];
    return scale * RF_SQRT(total);
}

/* Make the reflection that takes a column to a multiple of its first element; returns that, and
 * leaves the vector, whose first element is one, in its place (LAPACK's larfg). */
static RF_T RF(reflection)(RF_T *x, int64_t n, RF_T *tau)
{
    const RF_T alpha = x[0], rest = RF(norm)(x + 1, n - 1);
    x[0] = 1;
    *tau = 0;
    if (rest == 0)
        return alpha;
    const RF_T both[2] = {alpha, rest}, size = RF(norm)(both, 2), beta = alpha < 0 ? size : -size;
    const RF_T by = alpha - beta;
    *tau = (beta - alpha) / beta;
    if (by < RF_LEAST && by > -RF_LEAST)
        for (int64_t i = 1; i < n; i++)
            x[i] /= by;
    else
        for (int64_t i = 1; i < n; i++)
            x[i] *= 1 / by;
    return beta;
}

/* Factor a block whose columns lie in `v`, `rows` long; R goes to the matrix at `a`. */
static void RF(factor_block)(RF_T *a, int64_t row, int64_t rows, int64_t cols, RF_T *v, int64_t apart, RF_T *tau)
{
    const int64_t end = (rows + RF_LANES - 1) / RF_LANES * RF_LANES;
    for (int64_t c = 0; c < cols; c++) {
        RF_T *x = v + c * apart;
        for (int64_t i = 0; i < c; i++) {
            a[i * row + c] = x[i];
            x[i] = 0;
        }
        a[c * row + c] = RF(reflection)(x + c, rows - c, tau + c);
        if (tau[c] == 0)
            continue;
        int64_t q = c + 1, first = c / RF_LANES * RF_LANES;
        for (; q + COLUMNS <= cols; q += COLUMNS)
            RF(reflect)(COLUMNS, x, v + q * apart, apart, first, end, tau[c]);
        for (; q < cols; q++)
            RF(reflect)(1, x, v + q * apart, apart, first, end, tau[c]);
    }
}

/* -T of a block, transposed, rows WIDTH apart; `s` has room for WIDTH x WIDTH. */
static int RF(triangle)(const RF_T *v, int64_t apart, int64_t rows, int64_t cols, const RF_T *tau, RF_T *t, RF_T *s)
{
    tgc_gemm g = {.m = cols, .n = cols, .k = rows, .batch = 1, .alpha = 1, .a = v, .a_row = apart, .a_col = 1};
    g.b = v, g.b_row = 1, g.b_col = apart, g.c = s, g.c_row = WIDTH, g.c_col = 1;
    if (RF_PRODUCT(&g) < 0)
        return -1;
    for (int64_t j = 0; j < cols; j++) {
        RF_T sum[WIDTH] = {0};
        for (int64_t p = 0; p < j; p++)
            for (int64_t i = 0; i < WIDTH; i++)
                sum[i] += t[p * WIDTH + i] * s[j * WIDTH + p];
        for (int64_t i = 0; i < WIDTH; i++)
            t[j * WIDTH + i] = i < j ? -tau[j] * sum[i] : 0;
        t[j * WIDTH + j] = -tau[j];
    }
    return 0;
}

/* C -= V T V^T C, or with the transposed T. `w` has room for 2 x WIDTH x n elements. */
static int RF(apply)(const RF_T *v, int64_t apart, int64_t rows, int64_t cols, const RF_T *t, int transposed, RF_T *c,
                     int64_t row, int64_t n, RF_T *w)
{
    if (n <= 0)
        return 0;
    RF_T *moved = w + WIDTH * n;
    tgc_gemm g = {.m = cols, .n = n, .k = rows, .batch = 1, .alpha = 1, .a = v, .a_row = apart, .a_col = 1};
    g.b = c, g.b_row = row, g.b_col = 1, g.c = w, g.c_row = n, g.c_col = 1;
    tgc_gemm h = {.m = cols, .n = n, .k = cols, .batch = 1, .alpha = 1, .a = t};
    h.a_row = transposed ? WIDTH : 1, h.a_col = transposed ? 1 : WIDTH;
    h.b = w, h.b_row = n, h.b_col = 1, h.c = moved, h.c_row = n, h.c_col = 1;
    tgc_gemm u = {.m = rows, .n = n, .k = cols, .batch = 1, .alpha = 1, .beta = 1, .a = v, .a_row = 1, .a_col = apart};
    u.b = moved, u.b_row = n, u.b_col = 1, u.c = c, u.c_row = row, u.c_col = 1;
    return RF_PRODUCT(&g) < 0 || RF_PRODUCT(&h) < 0 || RF_PRODUCT(&u) < 0 ? -1 : 0;
}

/* Factor A (m x n): R on and above the diagonal of `a`, block by block V and T (the last T if it
 * `is_needed` for Q). */
static int RF(factor)(RF_T *a, int64_t row, int64_t m, int64_t n, RF_T *v, int64_t apart, RF_T *t, RF_T *tau, RF_T *w,
                      int is_needed)
{
    const int64_t count = m < n ? m : n;
    for (int64_t j = 0, cols; j < count; j += cols) {
        RF_T *corner = a + j * row + j, *block = v + j * apart, *triangle = t + j * WIDTH;
        const int64_t rows = m - j;
        cols = count - j < WIDTH ? count - j : WIDTH;
        move((char *)block, apart, 1, (const char *)corner, 1, row, cols, rows, sizeof(RF_T));
        for (int64_t c = 0; c < cols; c++)
            memset(block + c * apart + rows, 0, (size_t)((rows + RF_LANES - 1) / RF_LANES * RF_LANES - rows) * sizeof(RF_T));
        RF(factor_block)(corner, row, rows, cols, block, apart, tau + j);
        if (n == j + cols && !is_needed)
            break;
        if (RF(triangle)(block, apart, rows, cols, tau + j, triangle, w) < 0 ||
            RF(apply)(block, apart, rows, cols, triangle, 1, corner + cols, row, n - j - cols, w) < 0)
            return -1;
    }
    return 0;
}

/* Write the first `cols` columns of Q (m x m), for k reflections. */
static int RF(generate)(RF_T *q, int64_t row, int64_t m, int64_t cols, int64_t k, const RF_T *v, int64_t apart,
                        const RF_T *t, RF_T *w)
{
    for (int64_t i = 0; i < m; i++) {
        memset(q + i * row, 0, (size_t)cols * sizeof(RF_T));
        if (i < cols)
            q[i * row + i] = 1;
    }
    for (int64_t j = (k - 1) / WIDTH * WIDTH; k > 0 && j >= 0; j -= WIDTH)
        if (RF(apply)(v + j * apart, apart, m - j, k - j < WIDTH ? k - j : WIDTH, t + j * WIDTH, 0, q + j * row + j, row,
                      cols - j, w) < 0)
            return -1;
    return 0;
}

#undef RF_T
#undef RF_V
#undef RF_I
#undef RF_FMA
#undef RF_READ
#undef RF_SQRT
#undef RF_PRODUCT
#undef RF_LEAST
#undef RF_MOST
#undef RF_LOW
#undef RF_HIGH
#undef RF_LANES
#undef RF
