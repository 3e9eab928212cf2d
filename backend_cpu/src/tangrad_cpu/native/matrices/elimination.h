/* Gaussian elimination with partial pivoting, triangular solves and Cholesky factors for one row-major
 * matrix, over the matrix product's microkernel. A template: define
 *   EL_T (element), EL_V (vector), EL_I (unsigned integer of an element's width), EL_FMA, EL_READ,
 *   EL_LOAD and EL_STORE (the first n lanes), EL_ENGINE, EL_LEAST (smallest normal number),
 *   EL_BITS, EL(name)
 * and include. Matrices are pointers and the distance between rows, in elements; pivots count from
 * zero while they are worked with.
 *
 * Columns are taken BLOCK at a time (right-looking; Golub & Van Loan, "Matrix Computations", 3.4).
 * In a block, LEAF columns first catch up with those before them, then are factored where columns
 * are contiguous, so that the search for a pivot and the elimination run along vectors. What is to
 * the right of a block is cut into panels of the microkernel's width: each exchanges its rows,
 * solves with the block's triangle, and keeps the negated solution packed as the microkernel reads
 * it for what lies below. Panels do not meet, so that they are tasks. */
#include <math.h>

#include "gemm/engine.h"
#include "gemm/simd.h"

#define EL_LANES ((int64_t)(TGC_VECTOR / sizeof(EL_T)))
#define EL_WIDTH (2 * EL_LANES) /* of a panel */
#define EL_U EL(unaligned)

typedef EL_T EL_U __attribute__((vector_size(TGC_VECTOR), aligned(1), may_alias));
typedef EL_I EL(bits) __attribute__((may_alias));

#define PK_NAME EL(packed_lines)
#define PK_S EL_T
#define PK_T EL_T
#define PK_V EL_V
#define PK_CONVERT(x) (x)
#define PK_LOAD(p) ((EL_V)*(const EL_U *)(p))
#define PK_BITS EL_BITS
#include "gemm/pack.h"

static inline int64_t EL(least)(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void EL(exchange)(EL_T *restrict a, EL_T *restrict b, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        EL_T kept = a[j];
        a[j] = b[j];
        b[j] = kept;
    }
}

/* Exchange row i with row pivots[i], for i from `first` to `end`, in `cols` columns from `a` on. */
static void EL(exchange_rows)(EL_T *a, int64_t row, int64_t cols, const int32_t *pivots, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        if (pivots[i] != i)
            EL(exchange)(a + i * row, a + pivots[i] * row, cols);
}

/* --- leaves ------------------------------------------------------------------------------------- */

/* The largest magnitude so far in each lane, and the number of its block. As integers: NaN is above
 * all numbers, so that a matrix with NaN does not pass for a singular one. */
typedef struct EL(largest) {
    EL_I size[EL_WIDTH], block[EL_WIDTH];
} EL(largest);

static inline __attribute__((always_inline)) void EL(search)(EL(largest) *found, const EL_T *column, int64_t block,
                                                             const int head, int64_t done)
{
    const EL(bits) *bits = (const EL(bits) *)column;
    for (int64_t i = 0; i < EL_WIDTH; i++) {
        EL_I size = bits[i] & ((EL_I)-1 >> 1);
        int larger = size > found->size[i] && (!head || i > done);
        found->size[i] = larger ? size : found->size[i];
        found->block[i] = larger ? (EL_I)block : found->block[i];
    }
}

/* The row with the largest magnitude, the first of equals; -1: all are zero. */
static int64_t EL(pivot)(const EL(largest) *found)
{
    EL_I size = 0, at = (EL_I)-1;
    for (int64_t i = 0; i < EL_WIDTH; i++)
        size = found->size[i] > size ? found->size[i] : size;
    if (size == 0)
        return -1;
    for (int64_t i = 0; i < EL_WIDTH; i++) {
        EL_I here = found->block[i] * (EL_I)EL_WIDTH + (EL_I)i;
        at = found->size[i] == size && here < at ? here : at;
    }
    return (int64_t)at;
}

/* Eliminate column c from the rest of one block of rows: `u` is the negated pivot row. The head is
 * the block of the pivot row, whose rows up to `done` are finished. */
static inline __attribute__((always_inline)) void EL(eliminate)(EL_T *block, int64_t c, int64_t cols, EL_T scale,
                                                                const EL_T *u, const int head, int64_t done,
                                                                EL(largest) *found, int64_t number)
{
    EL_T *low = block + c * EL_WIDTH;
    if (head) {
        for (int64_t i = 0; i < EL_WIDTH; i++)
            low[i] = i > done ? low[i] * scale : low[i];
    } else {
        for (int64_t i = 0; i < EL_WIDTH; i++)
            low[i] *= scale;
    }
    EL_V l[2] = {EL_READ(low), EL_READ(low + EL_LANES)};
    for (int64_t q = c + 1; q < cols; q++) {
        EL_T *x = block + q * EL_WIDTH;
        EL_V factor = u[q] - (EL_V){0};
        EL_V y[2] = {EL_FMA(factor, l[0], EL_READ(x)), EL_FMA(factor, l[1], EL_READ(x + EL_LANES))};
        if (head) {
            const EL_T *values = (const EL_T *)y;
            for (int64_t i = 0; i < EL_WIDTH; i++)
                x[i] = i > done ? values[i] : x[i];
        } else {
            *(EL_U *)x = y[0];
            *(EL_U *)(x + EL_LANES) = y[1];
        }
    }
    if (c + 1 < cols)
        EL(search)(found, low + EL_WIDTH, number, head, done);
}

/* Factor `cols` columns of at least as many rows. Columns lie in blocks of EL_WIDTH rows meanwhile.
 * Returns 0 or the number, from one, of the first pivot that is zero. */
static int64_t EL(leaf)(EL_T *a, int64_t row, int64_t rows, int64_t cols, int32_t *pivots, EL_T *blocks)
{
    const int64_t count = (rows + EL_WIDTH - 1) / EL_WIDTH;
    int64_t zero = 0;
    EL_T u[LEAF];
    EL(largest) found = {0};
    for (int64_t b = 0; b < count; b++) {
        EL_T *block = blocks + b * EL_WIDTH * cols;
        EL(packed_lines)(block, a + b * EL_WIDTH * row, EL(least)(rows - b * EL_WIDTH, EL_WIDTH), EL_WIDTH, cols, row, 1);
        EL(search)(&found, block, b, 0, 0);
    }
    for (int64_t c = 0; c < cols; c++) {
        int64_t first = c / EL_WIDTH, done = c % EL_WIDTH, p = EL(pivot)(&found);
        EL_T *mine = blocks + first * EL_WIDTH * cols + done;
        memset(&found, 0, sizeof found);
        pivots[c] = (int32_t)(p < 0 ? c : p);
        if (p < 0) {
            zero = zero ? zero : c + 1;
            for (int64_t b = first; b < count && c + 1 < cols; b++)
                EL(search)(&found, blocks + (b * cols + c + 1) * EL_WIDTH, b, b == first, done);
            continue;
        }
        EL_T *other = blocks + p / EL_WIDTH * EL_WIDTH * cols + p % EL_WIDTH;
        for (int64_t q = 0; q < cols; q++) {
            EL_T value = other[q * EL_WIDTH];
            other[q * EL_WIDTH] = mine[q * EL_WIDTH];
            mine[q * EL_WIDTH] = value;
            u[q] = -value;
        }
        EL_T value = -u[c], scale = 1 / value;
        if (value < EL_LEAST && value > -EL_LEAST) {
            /* Its reciprocal may be infinite. */
            for (int64_t i = c + 1; i < count * EL_WIDTH; i++)
                blocks[(i / EL_WIDTH * cols + c) * EL_WIDTH + i % EL_WIDTH] /= value;
            scale = 1;
        }
        EL(eliminate)(mine - done, c, cols, scale, u, 1, done, &found, first);
        for (int64_t b = first + 1; b < count; b++)
            EL(eliminate)(blocks + b * EL_WIDTH * cols, c, cols, scale, u, 0, 0, &found, b);
    }
    for (int64_t b = 0; b < count; b++) {
        EL_T lines[EL_WIDTH * LEAF];
        EL(packed_lines)(lines, blocks + b * EL_WIDTH * cols, cols, LEAF, EL_WIDTH, EL_WIDTH, 1);
        for (int64_t i = 0; i < EL(least)(rows - b * EL_WIDTH, EL_WIDTH); i++)
            memcpy(a + (b * EL_WIDTH + i) * row, lines + i * LEAF, (size_t)cols * sizeof(EL_T));
    }
    return zero;
}

/* --- panels ------------------------------------------------------------------------------------- */

/* What is done to columns beside a diagonal block: exchange rows, solve with the block's triangle,
 * and take the solution times `rest` from other rows. */
typedef struct EL(step) {
    const EL_T *triangle, *rest, *packed; /* packed: `rest` as panels; NULL: it is read where it lies */
    int64_t row, size, rest_rows;
    int upper, unit, symmetric; /* symmetric: only what is below the diagonal is wanted of the rest */
    const int32_t *pivots;      /* of rows counted from the triangle's first; NULL: none */
    /* Columns of two matrices: the rows of the block, and those of the rest. */
    EL_T *x[2], *other[2];
    int64_t x_row[2], cols[2];
    int64_t tasks;
} EL(step);

/* Solve with at most TGC_ROWS rows of a triangle; the negated solution goes to `negative`, too. */
static inline __attribute__((always_inline)) void EL(substitute)(const int vectors, const EL_T *t, int64_t row,
                                                                 int64_t rows, int64_t tail, int upper, int unit,
                                                                 EL_T *x, int64_t x_row, EL_T *negative)
{
    for (int64_t s = 0; s < rows; s++) {
        int64_t i = upper ? rows - 1 - s : s, first = upper ? i + 1 : 0, end = upper ? rows : i;
        EL_V y[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            y[v] = v + 1 < vectors || tail == EL_LANES ? EL_READ(x + i * x_row + v * EL_LANES)
                                                       : EL_LOAD(x + i * x_row + v * EL_LANES, tail);
        for (int64_t p = first; p < end; p++) {
            EL_V factor = t[i * row + p] - (EL_V){0};
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                y[v] = EL_FMA(factor, EL_READ(negative + p * EL_WIDTH + v * EL_LANES), y[v]);
        }
        EL_T value = unit ? 1 : t[i * row + i];
        int tiny = value < EL_LEAST && value > -EL_LEAST;
        EL_V scale = (tiny ? value : 1 / value) - (EL_V){0};
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            if (!unit)
                y[v] = tiny ? y[v] / scale : y[v] * scale;
            if (v + 1 < vectors || tail == EL_LANES)
                *(EL_U *)(x + i * x_row + v * EL_LANES) = y[v];
            else
                EL_STORE(x + i * x_row + v * EL_LANES, y[v], tail);
            *(EL_U *)(negative + i * EL_WIDTH + v * EL_LANES) = -y[v];
        }
    }
}

/* Solve with the triangle of a step in at most EL_WIDTH columns. */
static void EL(solve_panel)(const EL(step) *s, EL_T *x, int64_t x_row, int64_t cols, EL_T *negative)
{
    const int64_t last = (s->size - 1) / TGC_ROWS;
    for (int64_t part = 0; part <= last; part++) {
        int64_t i = (s->upper ? last - part : part) * TGC_ROWS, rows = EL(least)(s->size - i, TGC_ROWS);
        int64_t known = s->upper ? i + rows : 0, count = s->upper ? s->size - known : i;
        const EL_T *t = s->triangle + i * s->row;
        EL_T *to = x + i * x_row;
        if (count > 0)
            EL_ENGINE.direct(rows, cols, count, t + known, s->row, 1, negative + known * EL_WIDTH, EL_WIDTH, to, x_row, 1,
                             NULL);
        if (cols > EL_LANES)
            EL(substitute)(2, t + i, s->row, rows, cols - EL_LANES, s->upper, s->unit, to, x_row, negative + i * EL_WIDTH);
        else
            EL(substitute)(1, t + i, s->row, rows, cols, s->upper, s->unit, to, x_row, negative + i * EL_WIDTH);
    }
}

static void EL(panel)(const EL(step) *s, int which, int64_t j)
{
    _Alignas(64) EL_T negative[BLOCK * EL_WIDTH];
    const int64_t x_row = s->x_row[which], cols = EL(least)(s->cols[which] - j, EL_WIDTH);
    EL_T *x = s->x[which] + j, *other = s->other[which] + j;
    if (s->pivots != NULL)
        EL(exchange_rows)(x, x_row, cols, s->pivots, 0, s->size);
    EL(solve_panel)(s, x, x_row, cols, negative);
    for (int64_t i = s->symmetric ? j / TGC_ROWS * TGC_ROWS : 0; i < s->rest_rows; i += TGC_ROWS) {
        int64_t rows = EL(least)(s->rest_rows - i, TGC_ROWS);
        if (s->packed != NULL)
            EL_ENGINE.kernel(rows, cols, s->size, s->packed + i * s->size, negative, other + i * x_row, x_row, 1,
                             &(tgc_ahead){(const char *)negative, 0});
        else
            EL_ENGINE.direct(rows, cols, s->size, s->rest + i * s->row, s->row, 1, negative, EL_WIDTH,
                             other + i * x_row, x_row, 1, NULL);
    }
}

static void EL(panel_task)(int64_t index, void *context)
{
    const EL(step) *s = context;
    int64_t first = (s->cols[0] + EL_WIDTH - 1) / EL_WIDTH, all = first + (s->cols[1] + EL_WIDTH - 1) / EL_WIDTH;
    int64_t end = tgc_begin(all, s->tasks, index + 1, 1);
    for (int64_t p = tgc_begin(all, s->tasks, index, 1); p < end; p++)
        EL(panel)(s, p >= first, (p < first ? p : p - first) * EL_WIDTH);
}

static void EL(run)(EL(step) *s, EL_T *work)
{
    int64_t panels = (s->cols[0] + EL_WIDTH - 1) / EL_WIDTH + (s->cols[1] + EL_WIDTH - 1) / EL_WIDTH;
    if (panels == 0)
        return;
    if (panels >= PACKING_PAYS && s->rest_rows > 0) {
        for (int64_t i = 0; i < s->rest_rows; i += TGC_ROWS)
            EL_ENGINE.pack_a(work + i * s->size, s->rest + i * s->row, EL(least)(s->rest_rows - i, TGC_ROWS), s->size,
                             s->row, 1);
        s->packed = work;
    }
    s->tasks = tgc_tasks((s->cols[0] + s->cols[1]) * s->size * (s->rest_rows + s->size / 2), TASK_PRODUCTS, panels);
    tgc_parallel(s->tasks, EL(panel_task), s);
}

/* --- matrices ----------------------------------------------------------------------------------- */

/* Elements of working memory for matrices with this many rows. */
static int64_t EL(working)(int64_t rows)
{
    return (rows + TGC_ROWS + EL_WIDTH) * BLOCK + EL_WIDTH;
}

static int64_t EL(factor_small)(EL_T *a, int64_t row, int64_t m, int64_t n, int32_t *pivots)
{
    int64_t zero = 0;
    for (int64_t c = 0; c < EL(least)(m, n); c++) {
        EL_T *top = a + c * row;
        int64_t p = c;
        EL_I most = 0;
        for (int64_t i = c; i < m; i++) {
            EL_I size = *(const EL(bits) *)&a[i * row + c] & ((EL_I)-1 >> 1);
            p = size > most ? i : p;
            most = size > most ? size : most;
        }
        pivots[c] = (int32_t)p;
        if (most == 0) {
            zero = zero ? zero : c + 1;
            continue;
        }
        if (p != c)
            for (int64_t j = 0; j < n; j++) {
                EL_T kept = top[j];
                top[j] = a[p * row + j];
                a[p * row + j] = kept;
            }
        for (int64_t i = c + 1; i < m; i++) {
            EL_T *line = a + i * row, factor = line[c] / top[c];
            line[c] = factor;
            for (int64_t j = c + 1; j < n; j++)
                line[j] -= factor * top[j];
        }
    }
    return zero;
}

/* Factor A (m x n) in place, and where B is given, take it through the elimination as further
 * columns. Returns 0 or the number, from one, of the first pivot that is zero. */
static int64_t EL(factor)(EL_T *a, int64_t row, int64_t m, int64_t n, int32_t *pivots, EL_T *b, int64_t b_row,
                          int64_t b_cols, EL_T *work)
{
    const int64_t pivot_count = EL(least)(m, n);
    int64_t zero = 0;
    for (int64_t j0 = 0, size; j0 < pivot_count; j0 += size) {
        size = EL(least)(pivot_count - j0, BLOCK);
        EL_T *corner = a + j0 * row + j0;
        int32_t *mine = pivots + j0; /* of rows counted from j0 until the block is done */
        EL(step) s = {.triangle = corner, .row = row, .unit = 1, .pivots = mine};
        for (int64_t j = 0, cols; j < size; j += cols) {
            cols = EL(least)(size - j, LEAF);
            if (j > 0) {
                s.size = j;
                s.rest = corner + j * row;
                s.rest_rows = m - j0 - j;
                s.x[0] = corner + j, s.other[0] = corner + j * row + j, s.x_row[0] = row, s.cols[0] = cols;
                for (int64_t q = 0; q < cols; q += EL_WIDTH)
                    EL(panel)(&s, 0, q);
            }
            int64_t here = EL(leaf)(corner + j * row + j, row, m - j0 - j, cols, mine + j, work);
            zero = zero || !here ? zero : j0 + j + here;
            for (int64_t i = j; i < j + cols; i++)
                mine[i] += (int32_t)j;
            EL(exchange_rows)(corner, row, j, mine, j, j + cols);
        }
        EL(exchange_rows)(a + j0 * row, row, j0, mine, 0, size);
        s.size = size;
        s.rest = corner + size * row;
        s.rest_rows = m - j0 - size;
        s.x[0] = corner + size, s.other[0] = s.x[0] + size * row, s.cols[0] = n - j0 - size;
        s.x_row[0] = row;
        if (b != NULL)
            s.x[1] = b + j0 * b_row, s.other[1] = s.x[1] + size * b_row, s.x_row[1] = b_row, s.cols[1] = b_cols;
        EL(run)(&s, work);
        for (int64_t i = 0; i < size; i++)
            mine[i] += (int32_t)j0;
    }
    return zero;
}

/* Solve T X = B in place for a triangle of n rows. With `half`, X is wanted on and below its diagonal
 * only: above, it is zero where T is lower and B the identity, and left undefined where T is upper. */
static void EL(solve_triangle)(const EL_T *t, int64_t row, int64_t n, int upper, int unit, EL_T *x, int64_t x_row,
                               int64_t cols, int half, EL_T *work)
{
    const int64_t last = (n - 1) / BLOCK;
    for (int64_t part = 0; n > 0 && part <= last; part++) {
        int64_t j0 = (upper ? last - part : part) * BLOCK, size = EL(least)(n - j0, BLOCK);
        EL(step) s = {.triangle = t + j0 * row + j0, .row = row, .size = size, .upper = upper, .unit = unit};
        s.symmetric = upper && half;
        s.rest = upper ? t + j0 : s.triangle + size * row;
        s.rest_rows = upper ? j0 : n - j0 - size;
        s.x[0] = x + j0 * x_row;
        s.other[0] = upper ? x : s.x[0] + size * x_row;
        s.x_row[0] = x_row;
        s.cols[0] = half ? j0 + size : cols;
        EL(run)(&s, work);
    }
}

/* Solve A X = B in place of B; A is left as its factors. */
static int64_t EL(solve)(EL_T *a, int64_t row, int64_t n, EL_T *x, int64_t x_row, int64_t cols, int32_t *pivots,
                         EL_T *work)
{
    if (n <= SMALL && cols <= SMALL) {
        int64_t zero = EL(factor_small)(a, row, n, n, pivots);
        if (zero)
            return zero;
        for (int64_t i = 0; i < n; i++) {
            EL_T *line = x + i * x_row, *other = x + pivots[i] * x_row;
            for (int64_t j = 0; j < cols; j++) {
                EL_T kept = line[j];
                line[j] = other[j];
                other[j] = kept;
            }
        }
        for (int64_t i = 1; i < n; i++)
            for (int64_t p = 0; p < i; p++)
                for (int64_t j = 0; j < cols; j++)
                    x[i * x_row + j] -= a[i * row + p] * x[p * x_row + j];
        for (int64_t i = n - 1; i >= 0; i--) {
            for (int64_t p = i + 1; p < n; p++)
                for (int64_t j = 0; j < cols; j++)
                    x[i * x_row + j] -= a[i * row + p] * x[p * x_row + j];
            for (int64_t j = 0; j < cols; j++)
                x[i * x_row + j] /= a[i * row + i];
        }
        return 0;
    }
    int64_t zero = EL(factor)(a, row, n, n, pivots, x, x_row, cols, work);
    if (!zero)
        EL(solve_triangle)(a, row, n, 1, 0, x, x_row, cols, 0, work);
    return zero;
}

/* Invert A: its factors stay in `a`. With P A = L U the inverse is inv(U) inv(L) P; inv(L) P itself
 * would have its zeros anywhere. `x` has room for n x n elements beside the result. */
static int64_t EL(invert)(EL_T *a, int64_t row, int64_t n, EL_T *out, int64_t out_row, EL_T *x, int64_t x_row,
                          int32_t *pivots, int32_t *from, EL_T *work)
{
    if (n <= SMALL) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                out[i * out_row + j] = i == j;
        return EL(solve)(a, row, n, out, out_row, n, pivots, work);
    }
    int64_t zero = EL(factor)(a, row, n, n, pivots, NULL, 0, 0, work);
    if (zero)
        return zero;
    for (int64_t i = 0; i < n; i++) {
        memset(x + i * x_row, 0, (size_t)n * sizeof(EL_T));
        x[i * x_row + i] = 1;
        from[i] = (int32_t)i;
    }
    EL(solve_triangle)(a, row, n, 0, 1, x, x_row, n, 1, work);
    EL(solve_triangle)(a, row, n, 1, 0, x, x_row, n, 0, work);
    for (int64_t i = n - 1; i >= 0; i--) {
        int32_t kept = from[i];
        from[i] = from[pivots[i]];
        from[pivots[i]] = kept;
    }
    for (int64_t i = 0; i < n; i++) {
        const EL_T *line = x + i * x_row;
        EL_T *to = out + i * out_row;
        for (int64_t j = 0; j < n; j++)
            to[j] = line[from[j]];
    }
    return 0;
}

/* --- Cholesky ----------------------------------------------------------------------------------- */

/* U of A = U^T U in place of the upper triangle of at most LEAF rows. Returns 0 or the number, from
 * one, of the first pivot that is not positive. */
static int64_t EL(definite_leaf)(EL_T *a, int64_t row, int64_t n)
{
    _Alignas(64) EL_T u[LEAF * LEAF] = {0};
    int64_t failed = 0;
    for (int64_t i = 0; i < n; i++)
        memcpy(u + i * LEAF, a + i * row, (size_t)n * sizeof(EL_T));
    for (int64_t c = 0; c < n && !failed; c++) {
        EL_T *top = u + c * LEAF, pivot = top[c];
        if (!(pivot > 0)) {
            failed = c + 1;
            break;
        }
        pivot = (EL_T)sqrt((double)pivot);
        for (int64_t j = 0; j < LEAF; j++)
            top[j] /= pivot;
        top[c] = pivot;
        for (int64_t i = c + 1; i < n; i++)
            for (int64_t j = 0; j < LEAF; j++)
                u[i * LEAF + j] -= top[i] * top[j];
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(a + i * row + i, u + i * LEAF + i, (size_t)(n - i) * sizeof(EL_T));
    return failed;
}

/* Take X^T X from the upper triangle of what is below X, in some panels of columns. */
static void EL(definite_task)(int64_t index, void *context)
{
    const EL(step) *s = context;
    const EL_T *x = s->x[0];
    int64_t all = (s->cols[0] + EL_WIDTH - 1) / EL_WIDTH, end = tgc_begin(all, s->tasks, index + 1, 1);
    for (int64_t p = tgc_begin(all, s->tasks, index, 1); p < end; p++) {
        _Alignas(64) EL_T negative[BLOCK * EL_WIDTH];
        int64_t j = p * EL_WIDTH, cols = EL(least)(s->cols[0] - j, EL_WIDTH);
        for (int64_t k = 0; k < s->size; k++)
            for (int64_t q = 0; q < EL_WIDTH; q++)
                negative[k * EL_WIDTH + q] = q < cols ? -x[k * s->row + j + q] : 0;
        for (int64_t i = 0; i < j + cols; i += TGC_ROWS)
            EL_ENGINE.direct(EL(least)(j + cols - i, TGC_ROWS), cols, s->size, x + i, 1, s->row, negative, EL_WIDTH,
                             s->other[0] + i * s->row + j, s->row, 1, NULL);
    }
}

/* U of A = U^T U in place of the upper triangle; what is below it is lost. `block` rows are factored
 * at once, by LEAF if that is less (right-looking; Golub & Van Loan, 4.2). Returns 0 or the number,
 * from one, of the first pivot that is not positive. */
static int64_t EL(definite)(EL_T *a, int64_t row, int64_t n, int64_t block)
{
    for (int64_t j0 = 0; j0 < n; j0 += block) {
        int64_t size = EL(least)(n - j0, block), rest = n - j0 - size;
        EL_T *corner = a + j0 * row + j0;
        int64_t failed =
            block > LEAF ? EL(definite)(corner, row, size, LEAF) : EL(definite_leaf)(corner, row, size);
        if (failed)
            return j0 + failed;
        if (rest == 0)
            break;
        for (int64_t i = 1; i < size; i++)
            for (int64_t j = 0; j < i; j++)
                corner[i * row + j] = corner[j * row + i];
        EL(step) s = {.triangle = corner, .row = row, .size = size};
        s.x[0] = corner + size, s.other[0] = s.x[0] + size * row, s.x_row[0] = row, s.cols[0] = rest;
        EL(run)(&s, NULL);
        s.tasks = tgc_tasks(rest * rest / 2 * size, TASK_PRODUCTS, (rest + EL_WIDTH - 1) / EL_WIDTH);
        tgc_parallel(s.tasks, EL(definite_task), &s);
    }
    return 0;
}

#undef EL_T
#undef EL_V
#undef EL_I
#undef EL_FMA
#undef EL_READ
#undef EL_LOAD
#undef EL_STORE
#undef EL_ENGINE
#undef EL_LEAST
#undef EL_BITS
#undef EL
#undef EL_LANES
#undef EL_WIDTH
#undef EL_U
