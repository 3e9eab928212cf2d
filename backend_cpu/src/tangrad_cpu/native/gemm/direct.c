/* Products whose A is read where it lies, so that it is read from memory once and written nowhere:
 * it has few columns, and those of the result are few, or all is small. B is read where it lies too
 * if its rows are close together; else a task packs the panels that it is about to use, into its
 * stack. Everything is cut by size alone: the number of threads changes nothing. */
#include "engine.h"

#define TASK_PRODUCTS (1 << 20) /* least multiplications of a task worth handing to a thread */
#define MOST_TASKS 16           /* of one matrix */
#define MOST_COLUMNS 256        /* of a large product: A is read again for every panel of B */
#define PACKING_ROWS 48         /* of A, from which packing B pays */
#define ROWS_AGAIN 224          /* of A, from which packing B again for another task costs little */
#define CLOSE_BYTES 65536       /* that rows of B may lie apart, first to last, to be read where they lie */
#define SET_BYTES 1024          /* of lines so far apart four times as many share a set of the first-level cache */
#define BLOCK_BYTES 262144      /* of A that stay in the second-level cache while columns pass */
#define FAR_BYTES (1 << 20)     /* of both operands, from which they come from beyond that cache */
#define MOST_SHARING 128        /* of k, if rows of A do */
#define MOST_FAR 64             /* of k, if columns of A lie further apart than BLOCK_BYTES in all */

typedef struct job {
    const tgc_engine *e;
    const tgc_gemm *g;
    int packs, fetches;
    int64_t row_blocks, column_blocks, tasks;
} job;

/* What a task works on at a time: a part of the result of one matrix of the batch. */
typedef struct block {
    const char *a, *b; /* the matrices' first elements */
    char *c;
    int64_t first_row, end_row, first_column, end_column;
    int64_t parts, height, higher; /* panels of rows, their least height, how many are one higher */
} block;

/* Memory to be fetched line by line. */
typedef struct stream {
    const char *at, *end;
} stream;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t panels(int64_t n, int64_t width)
{
    return (n + width - 1) / width;
}

/* The lines that one tile fetches, one for each element of k. */
static tgc_ahead take(stream *soon, stream *later, int64_t k, const char *otherwise)
{
    stream *from = soon->at < soon->end ? soon : later;
    if (from->at >= from->end)
        return (tgc_ahead){otherwise, 0};
    const char *at = from->at;
    from->at += 64 * k;
    return (tgc_ahead){at, 64};
}

static stream panel_of_a(const job *w, const block *at, int64_t row)
{
    const tgc_gemm *g = w->g;
    if (at == NULL || row >= at->end_row || g->a_col != 1 || g->a_row != g->k)
        return (stream){NULL, NULL};
    const char *from = at->a + row * g->a_row * w->e->a_size;
    return (stream){from, from + w->e->mr * g->a_row * w->e->a_size};
}

static stream other_b(const job *w, const block *at, const block *next)
{
    const tgc_gemm *g = w->g;
    if (next == NULL || next->b == at->b || g->b_col != 1 || g->b_row != g->n)
        return (stream){NULL, NULL};
    return (stream){next->b, next->b + g->k * g->n * w->e->b_size};
}

static void multiply_block(const job *w, const block *at, const block *next)
{
    const tgc_engine *e = w->e;
    const tgc_gemm *g = w->g;
    _Alignas(64) char packed[TGC_PANEL_BYTES + TGC_PANEL_SLACK];
    _Alignas(64) char tile[TGC_TILE_BYTES];
    const int plain = tgc_is_plain(e, g);
    stream later = w->fetches ? other_b(w, at, next) : (stream){NULL, NULL};
    for (int64_t j = at->first_column; j < at->end_column; j += e->nr) {
        const int64_t cols = smaller(at->end_column - j, e->nr);
        const char *b = at->b + j * g->b_col * e->b_size;
        int64_t b_row = g->b_row;
        if (w->packs) {
            e->pack_b(packed, b, cols, g->k, g->b_col, g->b_row);
            b = packed;
            b_row = e->nr;
        }
        for (int64_t part = 0, i = at->first_row, rows; part < at->parts; part++, i += rows) {
            /* Panels of equal height: the last one is not left with too few rows to keep busy. */
            rows = at->height + (part < at->higher);
            stream soon = {NULL, NULL};
            if (w->fetches && j == at->first_column)
                soon = part + 1 < at->parts ? panel_of_a(w, at, i + rows) : panel_of_a(w, next, next ? next->first_row : 0);
            const char *a = at->a + i * g->a_row * e->a_size;
            const tgc_ahead ahead = take(&soon, &later, g->k, a);
            e->direct(rows, cols, g->k, a, g->a_row, g->a_col, b, b_row,
                      plain ? at->c + (i * g->c_row + j) * e->c_size : tile, plain ? g->c_row : e->nr,
                      plain && g->beta != 0, &ahead);
            if (!plain)
                e->store(g, at->c, i, j, rows, cols, tile, e->nr);
        }
    }
}

/* Divisions are left out where there is nothing to divide: they would take a tenth of a small product. */
static block block_at(const job *w, int64_t matrix, int64_t number)
{
    const tgc_gemm *g = w->g;
    block at = {.a = (const char *)g->a + matrix * g->a_batch * w->e->a_size,
                .b = (const char *)g->b + matrix * g->b_batch * w->e->b_size,
                .c = (char *)g->c + matrix * g->c_batch * w->e->c_size,
                .end_row = g->m,
                .end_column = g->n};
    if (w->row_blocks * w->column_blocks > 1) {
        const int64_t row = number / w->column_blocks, column = number % w->column_blocks;
        at.first_row = tgc_begin(g->m, w->row_blocks, row, w->e->mr);
        at.end_row = tgc_begin(g->m, w->row_blocks, row + 1, w->e->mr);
        at.first_column = tgc_begin(g->n, w->column_blocks, column, w->e->nr);
        at.end_column = tgc_begin(g->n, w->column_blocks, column + 1, w->e->nr);
    }
    const int64_t rows = at.end_row - at.first_row;
    at.parts = panels(rows, w->e->mr);
    at.height = rows / at.parts;
    at.higher = rows - at.height * at.parts;
    return at;
}

static void task(int64_t index, void *context)
{
    const job *w = context;
    const tgc_gemm *g = w->g;
    const int64_t blocks = w->row_blocks * w->column_blocks;
    int64_t number = 0, left = g->batch * blocks, matrix = 0;
    if (w->tasks > 1) {
        number = tgc_begin(g->batch * blocks, w->tasks, index, 1);
        left = tgc_begin(g->batch * blocks, w->tasks, index + 1, 1) - number;
        matrix = number / blocks;
        number -= matrix * blocks;
    }
    block at = block_at(w, matrix, number);
    while (--left > 0) {
        block next = at;
        if (blocks > 1) {
            if (++number == blocks)
                number = 0, matrix++;
            next = block_at(w, matrix, number);
        } else {
            next.a += g->a_batch * w->e->a_size;
            next.b += g->b_batch * w->e->b_size;
            next.c += g->c_batch * w->e->c_size;
        }
        multiply_block(w, &at, &next);
        at = next;
    }
    multiply_block(w, &at, NULL);
}

int TGC(tgc_gemm_is_direct)(const tgc_engine *e, const tgc_gemm *g)
{
    if (e->direct == NULL || g->k > e->kc)
        return 0;
    if ((double)g->m * (double)g->n * (double)g->k <= (double)e->direct_limit)
        return 1;
    if (g->n > MOST_COLUMNS)
        return 0;
    if (g->a_col == 1)
        return g->k <= MOST_SHARING || g->a_row * e->a_size % SET_BYTES != 0;
    return g->k <= MOST_FAR || g->a_col * g->k * e->a_size <= BLOCK_BYTES;
}

void TGC(tgc_gemm_direct)(const tgc_engine *e, const tgc_gemm *g)
{
    job w = {.e = e, .g = g, .row_blocks = 1, .column_blocks = 1, .tasks = 1};
    const int64_t apart = (g->b_row < 0 ? -g->b_row : g->b_row) * g->k * e->b_size;
    w.packs = g->b_col != 1 || (apart > CLOSE_BYTES && g->m > PACKING_ROWS);
    w.fetches = (double)(g->m + g->n) * (double)g->k * (double)g->batch * e->a_size > FAR_BYTES;
    const double products = (double)g->m * (double)g->n * (double)g->k;
    const double tasks = products * (double)g->batch / TASK_PRODUCTS;
    if (tasks >= 2) {
        const double wanted = tasks < MOST_TASKS ? tasks : MOST_TASKS;
        const int64_t row_panels = panels(g->m, e->mr), column_panels = panels(g->n, e->nr);
        const int64_t most = w.packs ? 1 + g->m / ROWS_AGAIN : row_panels;
        w.row_blocks = smaller(row_panels, 1 + g->m * g->k * e->a_size / BLOCK_BYTES);
        while ((double)(w.row_blocks * w.column_blocks * g->batch) < wanted) {
            if (w.column_blocks < column_panels)
                w.column_blocks = smaller(2 * w.column_blocks, column_panels);
            else if (2 * w.row_blocks <= most)
                w.row_blocks *= 2;
            else
                break;
        }
        const int64_t blocks = g->batch * w.row_blocks * w.column_blocks;
        w.tasks = (double)blocks < tasks ? blocks : tasks < 4 * MOST_TASKS ? (int64_t)tasks : 4 * MOST_TASKS;
    }
    tgc_parallel(w.tasks, task, &w);
}
