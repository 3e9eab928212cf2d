/* The blocked product that all types share: panels of A and B are packed once, in parallel; then
 * tasks, each one block of C, walk over k in runs whose panel of B stays in the first-level cache
 * and whose panels of A stay in the second (Goto & van de Geijn, 2008; Van Zee & van de Geijn,
 * 2015). What only one row or column of blocks needs is packed by the task that needs it, into its
 * stack, so that it is read from memory once and written nowhere. Everything is cut by size alone:
 * the number of threads changes nothing. */
#include "engine.h"

#include <stdatomic.h>

#define ROW_PANELS 20   /* of A in one block: about half of a small second-level cache */
#define LONG_PANELS 20480 /* elements of k of all of them where sums stay with a task */
#define FEW_PANELS 4
#define COLUMN_PANELS 16
#define OWN_COLUMN_PANELS 4 /* as many panels of B suit the second-level cache over a run of k */
#define BATCH_AT_ONCE 8
#define TASK_PRODUCTS (1 << 20) /* least multiplications of a task worth handing to a thread */
#define MOST_TASKS 16           /* when cutting further for the sake of balance alone */
#define PACK_GRAIN (1 << 15)
#define PACK_DEPTH 16 /* of k that a panel takes at once from lines side by side */
#define MOST_ROW_BYTES 32768 /* of B: to fetch from rows further apart takes longer than the product */
#define PACKED_BYTES ((int64_t)32 << 20) /* of panels held at once */
#define KEPT_BYTES ((int64_t)15 << 20)   /* of these that are not given back to the system each time */
#define LONGEST_RUN 16384       /* over k, of panels held at once */
#define SHORTEST_RUN 1024       /* when cutting k to keep them few */
#define BLOCK_SIDE 2048         /* of C worked on at once */

/* The packed panels of one operand. Sizes are kept, since a division takes some processors as long as
 * fifty multiplications of vectors, and a tile asks for several. */
typedef struct side {
    char *packed;
    int64_t count;       /* panels side by side */
    int64_t bytes, rest; /* of a panel over kc elements of k, and over those left at the end of the run */
} side;

typedef struct job {
    const tgc_engine *e;
    const tgc_gemm *g;
    const char *a, *b; /* of the batch's current matrix */
    char *c;
    int64_t i0, j0, rows, cols; /* the part of C worked on */
    int64_t p0, run;            /* the part of k whose panels are held */
    int first, last;            /* whether that part begins, ends k */
    int64_t whole;              /* how often that part has kc elements */
    int own_a, own_b;           /* packed by each task */
    side of_a, of_b;
    int task_sums;              /* accumulators stay with the task */
    char *sums;                 /* accumulators of the part of C; NULL: C itself, or one tile */
    int64_t row_blocks, column_blocks;
    int64_t pack_tasks;
} job;

static int64_t panels(int64_t n, int64_t width)
{
    return (n + width - 1) / width;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t grouped(const tgc_engine *e, int64_t k)
{
    return panels(k, e->kgroup) * e->kgroup;
}

static const char *a_at(const job *w, int64_t i, int64_t p)
{
    return w->a + (i * w->g->a_row + p * w->g->a_col) * w->e->a_size;
}

static const char *b_at(const job *w, int64_t p, int64_t j)
{
    return w->b + (p * w->g->b_row + j * w->g->b_col) * w->e->b_size;
}

/* The bytes of a panel over k elements of a run. */
static int64_t panel_bytes(const tgc_engine *e, int64_t width, int64_t k)
{
    return (grouped(e, k) * width * e->packed_size + TGC_PANEL_SLACK + 63) / 64 * 64;
}

/* Panels lie in the order in which tasks read them: run after run over k, in each all panels. */
static char *panel_at(const job *w, const side *of, int64_t panel, int64_t run)
{
    return of->packed + run * of->count * of->bytes + panel * (run < w->whole ? of->bytes : of->rest);
}

/* Where lines lie side by side in memory, each of their pages holds a little of every panel: all
 * panels take a few elements of k before any takes the next. */
static void pack_panels(const job *w, int of_a, int64_t first, int64_t end)
{
    const tgc_engine *e = w->e;
    const tgc_gemm *g = w->g;
    int64_t width = of_a ? e->mr : e->nr, lines = of_a ? w->rows : w->cols;
    int64_t chunk = (of_a ? g->a_row : g->b_col) == 1 ? grouped(e, PACK_DEPTH) : e->kc;
    for (int64_t run = 0; run * e->kc < w->run; run++) {
        int64_t begin = run * e->kc, depth = smaller(e->kc, w->run - begin);
        for (int64_t p = 0; p < depth; p += chunk) {
            int64_t k = smaller(chunk, depth - p), at = w->p0 + begin + p;
            for (int64_t panel = first; panel < end; panel++) {
                int64_t line = panel * width, count = smaller(lines - line, width);
                char *to = panel_at(w, of_a ? &w->of_a : &w->of_b, panel, run) + p * width * e->packed_size;
                if (of_a)
                    e->pack_a(to, a_at(w, w->i0 + line, at), count, k, g->a_row, g->a_col);
                else
                    e->pack_b(to, b_at(w, at, w->j0 + line), count, k, g->b_col, g->b_row);
            }
        }
    }
}

static void pack_task(int64_t index, void *context)
{
    const job *w = context;
    int64_t of_a = w->own_a ? 0 : w->of_a.count;
    int64_t of_b = w->own_b ? 0 : w->of_b.count;
    int64_t first = tgc_begin(of_a + of_b, w->pack_tasks, index, 1);
    int64_t end = tgc_begin(of_a + of_b, w->pack_tasks, index + 1, 1);
    pack_panels(w, 1, first, smaller(end, of_a));
    pack_panels(w, 0, first > of_a ? first - of_a : 0, end - of_a);
}

/* One tile over one run of k, to where its sums go, and on to C when they are complete. */
static void finish_tile(const job *w, int64_t row_panel, int64_t column_panel, int64_t rows, int64_t cols, int64_t p,
                        int64_t k, const char *a, const char *b, const tgc_ahead *next, char *own_sums, int plain)
{
    const tgc_engine *e = w->e;
    const tgc_gemm *g = w->g;
    _Alignas(64) char tile[TGC_TILE_BYTES];
    int64_t i = w->i0 + row_panel * e->mr, j = w->j0 + column_panel * e->nr;
    int begins = w->first && p == 0, ends = w->last && p + k >= w->run;
    char *sums = tile;
    int64_t sums_row = e->nr;
    int add = !begins;
    if (own_sums != NULL) {
        sums = own_sums;
    } else if (w->sums != NULL) {
        /* Tile after tile: rows of a wide matrix lie a power of two apart and share sets of the cache. */
        sums = w->sums + (row_panel * w->of_b.count + column_panel) * e->mr * e->nr * e->tile_size;
    } else if (plain || !(begins && ends)) {
        sums_row = g->c_row;
        sums = w->c + (i * g->c_row + j) * e->c_size;
        add = !begins || g->beta != 0;
    }
    e->kernel(rows, cols, k, a, b, sums, sums_row, add, next);
    if (!ends || plain)
        return;
    tgc_gemm rest = *g;
    if (sums != tile && w->sums == NULL && own_sums == NULL)
        rest.beta = 0; /* already inside */
    e->store(&rest, w->c, i, j, rows, cols, sums, sums_row);
}

/* What the tile in row panel `number` fetches for the panel of B after that at `panel`: packed, two
 * panels at most, or the rows that it will be packed from. */
static tgc_ahead ahead(const job *w, int64_t number, int64_t j, int64_t p, int64_t k, const char *panel, int64_t bytes)
{
    const tgc_engine *e = w->e;
    if (!w->own_b)
        return (tgc_ahead){panel + bytes + smaller(number * k * 32, 2 * bytes), 64};
    int64_t row = w->g->b_row * e->b_size;
    if (e->kgroup != 1 || w->g->b_col != 1 || number / 2 * 64 >= e->nr * e->b_size || row > MOST_ROW_BYTES || row < 0)
        return (tgc_ahead){panel, 0};
    return (tgc_ahead){b_at(w, w->p0 + p + number % 2 * (k / 2), w->j0 + j + e->nr) + number / 2 * 64, row};
}

/* Panels of rows and of columns that a task works on. */
typedef struct block {
    int64_t first_row, end_row, first_column, end_column;
} block;

static int64_t rows_of(const job *w, int64_t panel)
{
    return smaller(w->rows - panel * w->e->mr, w->e->mr);
}

static int64_t columns_of(const job *w, int64_t panel)
{
    return smaller(w->cols - panel * w->e->nr, w->e->nr);
}

/* Columns panel by panel, each over the whole of k, so that partial sums do not leave the cache. */
static void multiply_columns(const job *w, const block *at, char *own)
{
    const tgc_engine *e = w->e;
    _Alignas(64) char sums[ROW_PANELS * TGC_TILE_BYTES];
    for (int64_t column = at->first_column; column < at->end_column; column++) {
        int64_t cols = columns_of(w, column);
        for (int64_t run = 0; run * e->kc < w->run; run++) {
            int64_t p = run * e->kc, k = smaller(w->run - p, e->kc);
            const char *panel = own;
            if (w->own_b)
                e->pack_b(own, b_at(w, p, w->j0 + column * e->nr), cols, k, w->g->b_col, w->g->b_row);
            else
                panel = panel_at(w, &w->of_b, column, run);
            for (int64_t row = at->first_row; row < at->end_row; row++)
                finish_tile(w, row, column, rows_of(w, row), cols, p, k, panel_at(w, &w->of_a, row, run), panel,
                            &(tgc_ahead){panel, 0}, sums + (row - at->first_row) * TGC_TILE_BYTES, 0);
        }
    }
}

/* One run over k of the microkernel's tiles. */
static void multiply_tiles(const job *w, const block *at, int64_t run, char *own)
{
    const tgc_engine *e = w->e;
    const tgc_gemm *g = w->g;
    int plain = tgc_is_plain(e, g);
    int64_t p = run * e->kc, k = smaller(w->run - p, e->kc);
    if (w->own_a) {
        for (int64_t row = at->first_row; row < at->end_row; row++) {
            int64_t rows = rows_of(w, row);
            e->pack_a(own, a_at(w, w->i0 + row * e->mr, w->p0 + p), rows, k, g->a_row, g->a_col);
            for (int64_t column = at->first_column; column < at->end_column; column++)
                finish_tile(w, row, column, rows, columns_of(w, column), p, k, own,
                            panel_at(w, &w->of_b, column, run), &(tgc_ahead){own, 0}, NULL, plain);
        }
        return;
    }
    int64_t bytes = run < w->whole ? w->of_b.bytes : w->of_b.rest;
    for (int64_t column = at->first_column; column < at->end_column; column++) {
        int64_t cols = columns_of(w, column), j = column * e->nr;
        const char *panel = own;
        if (w->own_b)
            e->pack_b(own, b_at(w, w->p0 + p, w->j0 + j), cols, k, g->b_col, g->b_row);
        else
            panel = panel_at(w, &w->of_b, column, run);
        for (int64_t row = at->first_row; row < at->end_row; row++) {
            tgc_ahead next = ahead(w, row - at->first_row, j, p, k, panel, bytes);
            finish_tile(w, row, column, rows_of(w, row), cols, p, k, panel_at(w, &w->of_a, row, run), panel, &next,
                        NULL, plain);
        }
    }
}

static void block_task(int64_t index, void *context)
{
    const job *w = context;
    const tgc_engine *e = w->e;
    _Alignas(64) char own[TGC_PANEL_BYTES + TGC_PANEL_SLACK];
    /* Neighbours in time share their panels of A, which may still be in the cache. */
    int64_t cb = index % w->column_blocks, rb = index / w->column_blocks;
    block at = {.first_row = tgc_begin(w->of_a.count, w->row_blocks, rb, 1),
                .end_row = tgc_begin(w->of_a.count, w->row_blocks, rb + 1, 1),
                .first_column = tgc_begin(w->of_b.count, w->column_blocks, cb, 1),
                .end_column = tgc_begin(w->of_b.count, w->column_blocks, cb + 1, 1)};
    int64_t run = 0;
    if (e->enter != NULL)
        e->enter();
    if (w->task_sums)
        multiply_columns(w, &at, own);
    else
        do
            multiply_tiles(w, &at, run, own);
        while (++run * e->kc < w->run);
    if (e->leave != NULL)
        e->leave();
}

/* How many panels of A, over the whole of the run where sums stay with a task, the second-level cache keeps. */
static int64_t near_panels(const job *w)
{
    int64_t count = w->task_sums ? LONG_PANELS / w->run : ROW_PANELS;
    return count < FEW_PANELS ? FEW_PANELS : smaller(count, ROW_PANELS);
}

/* Cut into blocks that suit the caches, then further while there is work for more tasks. */
static void choose_blocks(job *w)
{
    int64_t row_panels = w->of_a.count, column_panels = w->of_b.count;
    int64_t rb = w->own_b ? 1 : panels(row_panels, near_panels(w));
    int64_t cb = w->own_a ? 1 : panels(column_panels, COLUMN_PANELS);
    double products = (double)w->rows * (double)w->cols * (double)w->run;
    double wanted = products / TASK_PRODUCTS;
    if (wanted > MOST_TASKS)
        wanted = MOST_TASKS;
    while ((double)(rb * cb) < wanted) {
        int rows_can = rb < row_panels && !w->own_b, columns_can = cb < column_panels && !w->own_a;
        if (!rows_can && !columns_can)
            break;
        if (rows_can && (!columns_can || w->rows / rb >= w->cols / cb))
            rb = smaller(2 * rb, row_panels);
        else
            cb = smaller(2 * cb, column_panels);
    }
    w->row_blocks = rb;
    w->column_blocks = cb;
}

/* The most of n, in whole panels, that `most` allows. */
static int64_t limited(int64_t n, int64_t width, int64_t most)
{
    int64_t held = most / width * width;
    return n <= held ? n : held < width ? width : held;
}

static size_t packed_bytes(const tgc_engine *e, int64_t lines, int64_t width, int64_t run)
{
    int64_t whole = run / e->kc, rest = run % e->kc;
    return (size_t)(panels(lines, width) * (whole * panel_bytes(e, width, e->kc) + panel_bytes(e, width, rest)));
}

/* C that holds partial sums is read again by each run, which costs less than new pages for panels. */
static int64_t longest_run(const tgc_engine *e, const tgc_gemm *g)
{
    int64_t most = LONGEST_RUN;
    double element = (double)(g->m + g->n) * e->packed_size;
    if (tgc_sums_in_place(e, g) && element * (double)g->k > (double)KEPT_BYTES)
        most = (int64_t)((double)KEPT_BYTES / element);
    most = (most < SHORTEST_RUN ? SHORTEST_RUN : most) / e->kc * e->kc;
    return smaller(g->k, most);
}

/* Decide which part of C and of k is worked on at once, and lay its panels out in `memory`.
 * Returns the bytes this takes. */
static size_t plan(job *w, char *memory)
{
    const tgc_engine *e = w->e;
    const tgc_gemm *g = w->g;
    w->run = longest_run(e, g);
    int64_t line = grouped(e, w->run) * e->packed_size;
    int64_t side = line > 0 ? PACKED_BYTES / 2 / line : BLOCK_SIDE;
    side = side < 256 ? 256 : side > 4 * BLOCK_SIDE ? 4 * BLOCK_SIDE : side;
    int partial_sums = g->k > e->kc && !tgc_sums_in_place(e, g);
    if (partial_sums && side > BLOCK_SIDE)
        side = BLOCK_SIDE;
    w->rows = limited(g->m, e->mr, side);
    w->cols = limited(g->n, e->nr, side);
    int64_t row_panels = panels(w->rows, e->mr), column_panels = panels(w->cols, e->nr);
    w->own_a = column_panels <= OWN_COLUMN_PANELS && w->rows > w->cols;
    w->task_sums = partial_sums && g->k <= e->task_run && !w->own_a;
    w->own_b = row_panels <= near_panels(w) && !w->own_a;
    size_t used = 0;
    w->of_a.packed = memory;
    if (!w->own_a)
        used += packed_bytes(e, w->rows, e->mr, w->run);
    w->of_b.packed = memory + used;
    if (!w->own_b)
        used += packed_bytes(e, w->cols, e->nr, w->run);
    if (partial_sums && !w->task_sums) {
        w->sums = memory + used;
        used += (size_t)(row_panels * e->mr * column_panels * e->nr * e->tile_size);
    }
    return used;
}

static void measure(const job *w, side *of, int64_t lines, int64_t width)
{
    of->count = panels(lines, width);
    of->bytes = panel_bytes(w->e, width, w->e->kc);
    of->rest = panel_bytes(w->e, width, w->run - w->whole * w->e->kc);
}

static void multiply_part(job *w)
{
    const int64_t run = w->run;
    w->p0 = 0;
    do {
        w->run = smaller(run, w->g->k - w->p0);
        w->whole = w->run / w->e->kc;
        measure(w, &w->of_a, w->rows, w->e->mr);
        measure(w, &w->of_b, w->cols, w->e->nr);
        w->first = w->p0 == 0;
        w->last = w->p0 + run >= w->g->k;
        int64_t packed = (w->own_a ? 0 : w->rows) + (w->own_b ? 0 : w->cols);
        w->pack_tasks = tgc_tasks(packed * w->run, PACK_GRAIN, MOST_TASKS);
        tgc_parallel(w->pack_tasks, pack_task, w);
        choose_blocks(w);
        tgc_parallel(w->row_blocks * w->column_blocks, block_task, w);
        w->p0 += run;
    } while (w->p0 < w->g->k);
    w->run = run;
}

static void multiply(const job *planned, int64_t matrix)
{
    job w = *planned;
    const tgc_gemm *g = w.g;
    w.a += matrix * g->a_batch * w.e->a_size;
    w.b += matrix * g->b_batch * w.e->b_size;
    w.c += matrix * g->c_batch * w.e->c_size;
    for (w.i0 = 0; w.i0 < g->m; w.i0 += planned->rows) {
        for (w.j0 = 0; w.j0 < g->n; w.j0 += planned->cols) {
            w.rows = smaller(planned->rows, g->m - w.i0);
            w.cols = smaller(planned->cols, g->n - w.j0);
            multiply_part(&w);
        }
    }
}

/* A batch of matrices too small to be cut: tasks take several. Each blocked one in progress needs
 * panels of its own, so there is a place for every thread. */
typedef struct batch_job {
    const tgc_engine *e;
    const tgc_gemm *g;
    int64_t tasks;
    size_t place_bytes;
    char *memory;
    _Atomic char *taken; /* one per place */
} batch_job;

static void begin(job *w, const tgc_engine *e, const tgc_gemm *g)
{
    *w = (job){.e = e, .g = g, .a = g->a, .b = g->b, .c = g->c};
}

static void batch_task(int64_t index, void *context)
{
    const batch_job *w = context;
    int64_t first = tgc_begin(w->g->batch, w->tasks, index, 1), end = tgc_begin(w->g->batch, w->tasks, index + 1, 1);
    int64_t place = 0;
    while (atomic_exchange(&w->taken[place], 1))
        place++; /* as many places as threads: one is free */
    job planned;
    begin(&planned, w->e, w->g);
    plan(&planned, w->memory + (size_t)place * w->place_bytes);
    for (int64_t matrix = first; matrix < end; matrix++)
        multiply(&planned, matrix);
    atomic_store(&w->taken[place], 0);
}

static int multiply_batch(const tgc_engine *e, const tgc_gemm *g, size_t place_bytes, const char *op)
{
    double products = (double)g->m * (double)g->n * (double)g->k;
    double together = products > 0 ? TASK_PRODUCTS / 4 / products : (double)g->batch;
    batch_job w = {.e = e, .g = g, .place_bytes = place_bytes};
    w.tasks = tgc_tasks(g->batch, together < 1 ? 1 : (int64_t)together, 4 * MOST_TASKS);
    size_t places = (size_t)tgc_threads(), bytes = places * place_bytes + places;
    w.memory = tgc_scratch(bytes);
    if (w.memory == NULL)
        return tgc_no_memory(op, bytes);
    w.taken = (_Atomic char *)(w.memory + places * place_bytes);
    for (size_t place = 0; place < places; place++)
        atomic_init(&w.taken[place], 0);
    tgc_parallel(w.tasks, batch_task, &w);
    tgc_scratch_free(w.memory);
    return 0;
}

/* One tall product instead of many with the same B. */
static int batch_is_tall(const tgc_gemm *g)
{
    return g->b_batch == 0 && g->a_batch == g->m * g->a_row && g->c_batch == g->m * g->c_row &&
           (g->bias == NULL || g->bias_row == 0);
}

int TGC(tgc_gemm_engine)(const tgc_engine *e, const tgc_gemm *given, const char *op)
{
    int by_columns = !e->one_sided && given->c_row == 1 && given->c_col != 1;
    tgc_gemm product = by_columns ? tgc_transposed(given) : *given;
    const tgc_gemm *g = &product;
    if (g->m <= 0 || g->n <= 0 || g->batch <= 0)
        return 0;
    if (g->batch > 1 && batch_is_tall(g)) {
        product.m *= product.batch;
        product.batch = 1;
    }
    if (TGC(tgc_gemm_is_direct)(e, g)) {
        TGC(tgc_gemm_direct)(e, g);
        return 0;
    }
    job planned;
    begin(&planned, e, g);
    size_t bytes = plan(&planned, NULL);
    if (g->batch >= BATCH_AT_ONCE && (double)g->m * (double)g->n * (double)g->k <= 64.0 * TASK_PRODUCTS)
        return multiply_batch(e, g, bytes, op);
    char *memory = tgc_scratch(bytes);
    if (memory == NULL)
        return tgc_no_memory(op, bytes);
    begin(&planned, e, g);
    plan(&planned, memory);
    for (int64_t matrix = 0; matrix < g->batch; matrix++)
        multiply(&planned, matrix);
    tgc_scratch_free(memory);
    return 0;
}
