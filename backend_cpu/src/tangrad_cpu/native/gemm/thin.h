/* Products with few rows, which read B once from memory and do little with it: matrix times
 * vector, linear layers of small batches, dot. Nothing is packed; tasks are pieces of B. A
 * template: define
 *   TH_NAME, TH_S (type in memory), TH_T (of sums), TH_V (a vector of these), TH_FMA, TH_READ (a
 *   vector from memory), TH_READ_PART (its first n lanes), TH_CONVERT (one element), TH_TRANSPOSE,
 *   TH_STORE (of store.h)
 * and include. It gives TH_NAME(g, op, handled). */
#include "engine.h"
#include "simd.h"

#define TH_JOIN_(a, b) a##b
#define TH_JOIN(a, b) TH_JOIN_(a, b)
#define TH_LANES ((int64_t)(TGC_VECTOR / sizeof(TH_T)))
#define TH_U TH_JOIN(TH_V, _unaligned)
#define TH_MOST_ROWS 8
/* Where columns of a large B are contiguous, packing it takes so long that more rows are worth it. */
#define TH_MOST_FAR_ROWS 24
#define TH_FAR_BYTES ((int64_t)8 << 20)
#define TH_TASK_BYTES 131072 /* of B, at least, in one task */
#define TH_STRIP 1024        /* columns whose sums stay in the first-level cache */
#define TH_RUN 16384         /* elements of one task of dot */

typedef struct TH_JOIN(TH_NAME, _job) {
    const tgc_gemm *g;
    const TH_T *a; /* rows are contiguous */
    int64_t a_row;
    const TH_S *b;
    void *c;
    int64_t tasks, align;
    TH_T *partial;
} TH_JOIN(TH_NAME, _job);

/* Columns of B are contiguous: rows x columns inner products at once, as many as a vector has
 * lanes, so that one transposition sums all of them. */
static inline __attribute__((always_inline)) void TH_JOIN(TH_NAME, _inner)(const int rows, int64_t k, const TH_T *a,
                                                                           int64_t a_row, const TH_S *b, int64_t b_col,
                                                                           int64_t cols, TH_T *tile)
{
    const int columns = (int)TH_LANES / rows;
    TH_V sum[TH_LANES];
    const TH_S *line[TH_LANES];
#pragma GCC unroll 16
    for (int i = 0; i < TH_LANES; i++)
        sum[i] = (TH_V){0};
#pragma GCC unroll 16
    for (int j = 0; j < columns; j++)
        line[j] = b + (j < cols ? j : cols - 1) * b_col;
    int64_t p = 0;
    for (; p + TH_LANES <= k; p += TH_LANES) {
        TH_V left[TH_MOST_ROWS];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            left[i] = *(const TH_U *)(a + i * a_row + p);
#pragma GCC unroll 16
        for (int j = 0; j < columns; j++) {
            TH_V right = TH_READ(line[j] + p);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                sum[i * columns + j] = TH_FMA(left[i], right, sum[i * columns + j]);
        }
    }
    if (p < k) {
#pragma GCC unroll 16
        for (int j = 0; j < columns; j++) {
            TH_V right = TH_READ_PART(line[j] + p, k - p);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                sum[i * columns + j] = TH_FMA(*(const TH_U *)(a + i * a_row + p), right, sum[i * columns + j]);
        }
    }
    TH_TRANSPOSE((void *)sum);
#pragma GCC unroll 4
    for (int half = (int)TH_LANES / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    memcpy(tile, sum, sizeof *sum);
}

static int64_t TH_JOIN(TH_NAME, _group)(int64_t rows)
{
    int64_t most = TH_LANES / 2 < TH_MOST_ROWS ? TH_LANES / 2 : TH_MOST_ROWS, group = 1;
    while (2 * group <= rows && 2 * group <= most)
        group *= 2;
    return group;
}

static void TH_JOIN(TH_NAME, _inner_task)(int64_t index, void *context)
{
    const TH_JOIN(TH_NAME, _job) *w = context;
    const tgc_gemm *g = w->g;
    _Alignas(64) TH_T tile[TH_LANES];
    int64_t first = tgc_begin(g->n, w->tasks, index, w->align), end = tgc_begin(g->n, w->tasks, index + 1, w->align);
    int64_t widest = TH_LANES / TH_JOIN(TH_NAME, _group)(g->m);
    /* Groups of fewer rows take more columns at once; B's second reading is from the cache. */
    for (int64_t strip = first; strip < end; strip += w->align) {
        int64_t stop = strip + w->align < end ? strip + w->align : end;
        for (int64_t i = 0, group; i < g->m; i += group) {
            group = TH_JOIN(TH_NAME, _group)(g->m - i);
            widest = TH_LANES / group;
            for (int64_t j = strip; j < stop; j += widest) {
                int64_t cols = stop - j < widest ? stop - j : widest;
                const TH_T *a = w->a + i * w->a_row;
                const TH_S *b = w->b + j * g->b_col;
                switch (group) {
                case 1: TH_JOIN(TH_NAME, _inner)(1, g->k, a, w->a_row, b, g->b_col, cols, tile); break;
                case 2: TH_JOIN(TH_NAME, _inner)(2, g->k, a, w->a_row, b, g->b_col, cols, tile); break;
#if TGC_VECTOR > 16
                case 4: TH_JOIN(TH_NAME, _inner)(4, g->k, a, w->a_row, b, g->b_col, cols, tile); break;
#endif
#if TGC_VECTOR > 32
                case 8: TH_JOIN(TH_NAME, _inner)(8, g->k, a, w->a_row, b, g->b_col, cols, tile); break;
#endif
                }
                TH_STORE(g, w->c, i, j, group, cols, tile, widest);
            }
        }
    }
}

/* Rows of B are contiguous: add multiples of several of them to a strip of sums. */
static inline __attribute__((always_inline)) void TH_JOIN(TH_NAME, _outer)(const int rows, const int depth, int64_t cols,
                                                                           const TH_T *a, int64_t a_row, const TH_S *b,
                                                                           int64_t b_row, TH_T *sums)
{
    TH_V factor[4][8];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int p = 0; p < depth; p++)
            factor[i][p] = a[i * a_row + p] - (TH_V){0};
    for (int64_t j = 0; j < cols; j += TH_LANES) {
        int64_t n = cols - j < TH_LANES ? cols - j : TH_LANES;
        TH_V sum[4];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            sum[i] = *(const TH_V *)(sums + i * TH_STRIP + j);
#pragma GCC unroll 8
        for (int p = 0; p < depth; p++) {
            TH_V line = n == TH_LANES ? TH_READ(b + p * b_row + j) : TH_READ_PART(b + p * b_row + j, n);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                sum[i] = TH_FMA(factor[i][p], line, sum[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            *(TH_V *)(sums + i * TH_STRIP + j) = sum[i];
    }
}

static void TH_JOIN(TH_NAME, _outer_task)(int64_t index, void *context)
{
    const TH_JOIN(TH_NAME, _job) *w = context;
    const tgc_gemm *g = w->g;
    _Alignas(64) TH_T sums[TH_MOST_ROWS * TH_STRIP];
    int64_t first = tgc_begin(g->n, w->tasks, index, w->align), end = tgc_begin(g->n, w->tasks, index + 1, w->align);
    for (int64_t j = first; j < end; j += TH_STRIP) {
        int64_t cols = end - j < TH_STRIP ? end - j : TH_STRIP;
        for (int64_t i = 0; i < g->m; i++)
            memset(sums + i * TH_STRIP, 0, (size_t)((cols + TH_LANES - 1) / TH_LANES) * TGC_VECTOR);
        for (int64_t p = 0, depth; p < g->k; p += depth) {
            depth = g->k - p >= 4 ? 4 : 1;
            if (g->m == 1 && g->k - p >= 8)
                depth = 8;
            for (int64_t i = 0, rows; i < g->m; i += rows) {
                const TH_T *a = w->a + i * w->a_row + p;
                const TH_S *b = w->b + p * g->b_row + j;
                TH_T *to = sums + i * TH_STRIP;
                rows = g->m - i >= 4 ? 4 : 1;
                if (rows == 4 && depth == 4)
                    TH_JOIN(TH_NAME, _outer)(4, 4, cols, a, w->a_row, b, g->b_row, to);
                else if (rows == 4)
                    TH_JOIN(TH_NAME, _outer)(4, 1, cols, a, w->a_row, b, g->b_row, to);
                else if (depth == 8)
                    TH_JOIN(TH_NAME, _outer)(1, 8, cols, a, w->a_row, b, g->b_row, to);
                else if (depth == 4)
                    TH_JOIN(TH_NAME, _outer)(1, 4, cols, a, w->a_row, b, g->b_row, to);
                else
                    TH_JOIN(TH_NAME, _outer)(1, 1, cols, a, w->a_row, b, g->b_row, to);
            }
        }
        TH_STORE(g, w->c, 0, j, g->m, cols, sums, TH_STRIP);
    }
}

/* One inner product, in runs of a fixed length whose sums are added in order. */
static void TH_JOIN(TH_NAME, _dot_task)(int64_t index, void *context)
{
    const TH_JOIN(TH_NAME, _job) *w = context;
    const tgc_gemm *g = w->g;
    const TH_S *a = g->a, *b = g->b;
    int64_t p = index * TH_RUN, end = p + TH_RUN < g->k ? p + TH_RUN : g->k;
    TH_V sum[8] = {{0}};
    TH_T total = 0;
    if (g->a_col == 1 && g->b_row == 1) {
        for (; p + 8 * TH_LANES <= end; p += 8 * TH_LANES)
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                sum[i] = TH_FMA(TH_READ(a + p + i * TH_LANES), TH_READ(b + p + i * TH_LANES), sum[i]);
    } else {
        for (; p + TH_LANES <= end; p += TH_LANES) {
            TH_V left, right;
            for (int64_t i = 0; i < TH_LANES; i++) {
                left[i] = TH_CONVERT(a[(p + i) * g->a_col]);
                right[i] = TH_CONVERT(b[(p + i) * g->b_row]);
            }
            sum[0] = TH_FMA(left, right, sum[0]);
        }
    }
    for (int half = 4; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    for (; p < end; p++)
        total += TH_CONVERT(a[p * g->a_col]) * TH_CONVERT(b[p * g->b_row]);
    for (int64_t lanes = TH_LANES / 2; lanes > 0; lanes /= 2)
        for (int64_t i = 0; i < lanes; i++)
            sum[0][i] += sum[0][i + lanes];
    w->partial[index] = total + sum[0][0];
}

static int TH_JOIN(TH_NAME, _dot)(const tgc_gemm *g, const char *op)
{
    TH_T few[64], total = 0;
    int64_t tasks = g->k / TH_RUN + (g->k % TH_RUN != 0);
    TH_JOIN(TH_NAME, _job) w = {.g = g, .partial = few};
    if (tasks > 64 && (w.partial = tgc_scratch((size_t)tasks * sizeof(TH_T))) == NULL)
        return tgc_no_memory(op, (size_t)tasks * sizeof(TH_T));
    tgc_parallel(tasks, TH_JOIN(TH_NAME, _dot_task), &w);
    for (int64_t i = 0; i < tasks; i++)
        total += w.partial[i];
    if (w.partial != few)
        tgc_scratch_free(w.partial);
    TH_STORE(g, g->c, 0, 0, 1, 1, &total, 1);
    return 0;
}

/* Compute what suits this file and say so in `handled`. */
static int TH_NAME(const tgc_gemm *given, const char *op, int *handled)
{
    tgc_gemm turned = *given;
    *handled = 0;
    if (given->batch != 1 || given->m <= 0 || given->n <= 0)
        return 0;
    if (given->n < given->m)
        turned = tgc_transposed(given);
    const tgc_gemm *g = &turned;
    int inner = g->b_row == 1;
    int far = inner && sizeof(TH_S) == sizeof(TH_T) && g->n * g->k * (int64_t)sizeof(TH_S) >= TH_FAR_BYTES;
    if (g->m > (far ? TH_MOST_FAR_ROWS : TH_MOST_ROWS))
        return 0;
    if (g->m == 1 && g->n == 1) {
        *handled = 1;
        return TH_JOIN(TH_NAME, _dot)(g, op);
    }
    if ((!inner && g->b_col != 1) || g->n * g->k < 1024 || (inner && g->k < 4 * TH_LANES))
        return 0;
    *handled = 1;
    TH_JOIN(TH_NAME, _job) w = {.g = g, .b = g->b, .c = g->c};
    /* A is small: a copy in the sums' type, its rows padded to whole vectors, keeps loops plain. */
    w.a_row = (g->k + TH_LANES - 1) / TH_LANES * TH_LANES;
    size_t bytes = (size_t)(g->m * w.a_row) * sizeof(TH_T);
    TH_T *copy = tgc_scratch(bytes);
    if (copy == NULL)
        return tgc_no_memory(op, bytes);
    for (int64_t i = 0; i < g->m; i++) {
        const TH_S *from = (const TH_S *)g->a + i * g->a_row;
        TH_T *to = copy + i * w.a_row;
        if (g->a_col == 1)
            for (int64_t p = 0; p < g->k; p++)
                to[p] = TH_CONVERT(from[p]);
        else
            for (int64_t p = 0; p < g->k; p++)
                to[p] = TH_CONVERT(from[p * g->a_col]);
        for (int64_t p = g->k; p < w.a_row; p++)
            to[p] = 0;
    }
    w.a = copy;
    w.align = inner ? TH_LANES : 256;
    w.tasks = tgc_tasks(g->n * g->k, TH_TASK_BYTES / (int64_t)sizeof(TH_S), 64);
    if (w.tasks > (g->n + w.align - 1) / w.align)
        w.tasks = (g->n + w.align - 1) / w.align;
    tgc_parallel(w.tasks, inner ? TH_JOIN(TH_NAME, _inner_task) : TH_JOIN(TH_NAME, _outer_task), &w);
    tgc_scratch_free(copy);
    return 0;
}

#undef TH_JOIN
#undef TH_JOIN_
#undef TH_LANES
#undef TH_U
#undef TH_MOST_ROWS
#undef TH_MOST_FAR_ROWS
#undef TH_FAR_BYTES
#undef TH_TASK_BYTES
#undef TH_STRIP
#undef TH_RUN
