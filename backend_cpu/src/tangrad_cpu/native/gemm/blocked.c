/* The blocked product that all types share: panels of A and B are packed once, in parallel; then
 * tasks, each one block of C, walk over k in runs whose panel of B stays in the first-level cache
 * and whose panels of A stay in the second (Goto & van de Geijn, 2008; Van Zee & van de Geijn,
 * 2015). What only one row or column of blocks needs is packed by the task that needs it, into its
 * stack, so that it is read from memory once and written nowhere. Everything is cut by size alone:
 * the number of threads changes nothing. */
#include "engine.h"

#include <stdatomic.h>

#define ROW_PANELS 20   /* of A in one block: about half of a small second-level cache */
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

typedef struct job {
    const tgc_engine *e;
    const tgc_gemm *g;
    const char *a, *b; /* of the batch's current matrix */
    char *c;
    int64_t i0, j0, rows, cols; /* the part of C worked on */
    int64_t p0, run;            /* the part of k whose panels are held */
    int first, last;            /* whether that part begins, ends k */
    int own_a, own_b;           /* packed by each task */
    char *packed_a, *packed_b;  /* if not */
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

/* C may hold partial sums: its elements are accumulators, and its first value is not needed again. */
static int sums_in_place(const tgc_engine *e, const tgc_gemm *g)
{
    return e->in_place && g->c_col == 1 && (g->beta == 0 || (g->beta == 1 && g->alpha == 1));
}

static int is_plain(const tgc_engine *e, const tgc_gemm *g)
{
    return sums_in_place(e, g) && g->alpha == 1 && g->bias == NULL && g->activation == NULL;
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
static char *panel_at(const job *w, int of_a, int64_t panel, int64_t p)
{
    const tgc_engine *e = w->e;
    int64_t width = of_a ? e->mr : e->nr, count = panels(of_a ? w->rows : w->cols, width);
    return (of_a ? w->packed_a : w->packed_b) + p / e->kc * count * panel_bytes(e, width, e->kc) +
           panel * panel_bytes(e, width, smaller(w->run - p, e->kc));
}

/* Where lines lie side by side in memory, each of their pages holds a little of every panel: all
 * panels take a few elements of k before any takes the next. */
static void pack_panels(const job *w, int of_a, int64_t first, int64_t end)
{
    const tgc_engine *e = w->e;
    const tgc_gemm *g = w->g;
    int64_t width = of_a ? e->mr : e->nr, lines = of_a ? w->rows : w->cols;
    int64_t chunk = (of_a ? g->a_row : g->b_col) == 1 ? grouped(e, PACK_DEPTH) : e->kc;
    for (int64_t p = 0, k; p < w->run; p += k) {
        k = smaller(chunk, smaller(e->kc - p % e->kc, w->run - p));
        for (int64_t panel = first; panel < end; panel++) {
            int64_t at = panel * width, count = smaller(lines - at, width);
            char *to = panel_at(w, of_a, panel, p / e->kc * e->kc) + p % e->kc * width * e->packed_size;
            if (of_a)
                e->pack_a(to, a_at(w, w->i0 + at, w->p0 + p), count, k, g->a_row, g->a_col);
            else
                e->pack_b(to, b_at(w, w->p0 + p, w->j0 + at), count, k, g->b_col, g->b_row);
        }
    }
}

static void pack_task(int64_t index, void *context)
{
    const job *w = context;
    int64_t of_a = w->own_a ? 0 : panels(w->rows, w->e->mr);
    int64_t of_b = w->own_b ? 0 : panels(w->cols, w->e->nr);
    int64_t first = tgc_begin(of_a + of_b, w->pack_tasks, index, 1);
    int64_t end = tgc_begin(of_a + of_b, w->pack_tasks, index + 1, 1);
    pack_panels(w, 1, first, smaller(end, of_a));
    pack_panels(w, 0, first > of_a ? first - of_a : 0, end - of_a);
}

/* One tile over one run of k, to where its sums go, and on to C when they are complete. */
static void finish_tile(const job *w, int64_t i, int64_t j, int64_t rows, int64_t cols, int64_t p, int64_t k,
                        const char *a, const char *b, const tgc_ahead *next, char *own_sums, int plain)
{
    const tgc_engine *e = w->e;
    const tgc_gemm *g = w->g;
    _Alignas(64) char tile[TGC_TILE_BYTES];
    int begins = w->first && p == 0, ends = w->last && p + k >= w->run;
    char *sums = tile;
    int64_t sums_row = e->nr;
    int add = !begins;
    if (own_sums != NULL) {
        sums = own_sums;
    } else if (w->sums != NULL) {
        /* Tile after tile: rows of a wide matrix lie a power of two apart and share sets of the cache. */
        int64_t tile_number = i / e->mr * panels(w->cols, e->nr) + j / e->nr;
        sums = w->sums + tile_number * e->mr * e->nr * e->tile_size;
    } else if (plain || !(begins && ends)) {
        sums_row = g->c_row;
        sums = w->c + ((w->i0 + i) * g->c_row + w->j0 + j) * e->c_size;
        add = !begins || g->beta != 0;
    }
    e->kernel(rows, cols, k, a, b, sums, sums_row, add, next);
    if (!ends || plain)
        return;
    tgc_gemm rest = *g;
    if (sums != tile && w->sums == NULL && own_sums == NULL)
        rest.beta = 0; /* already inside */
    e->store(&rest, w->c, w->i0 + i, w->j0 + j, rows, cols, sums, sums_row);
}

/* What the tile in row panel `number` fetches for the panel of B after that at `panel`: packed, two
 * panels at most, or the rows that it will be packed from. */
static tgc_ahead ahead(const job *w, int64_t number, int64_t j, int64_t p, const char *panel)
{
    const tgc_engine *e = w->e;
    int64_t k = smaller(w->run - p, e->kc), bytes = panel_bytes(e, e->nr, k);
    if (!w->own_b)
        return (tgc_ahead){panel + bytes + smaller(number * k * 32, 2 * bytes), 64};
    int64_t row = w->g->b_row * e->b_size;
    if (e->kgroup != 1 || w->g->b_col != 1 || number / 2 * 64 >= e->nr * e->b_size || row > MOST_ROW_BYTES || row < 0)
        return (tgc_ahead){panel, 0};
    return (tgc_ahead){b_at(w, w->p0 + p + number % 2 * (k / 2), w->j0 + j + e->nr) + number / 2 * 64, row};
}

/* Columns panel by panel, each over the whole of k, so that partial sums do not leave the cache. */
static void multiply_columns(const job *w, int64_t i_begin, int64_t i_end, int64_t j_begin, int64_t j_end, char *own)
{
    const tgc_engine *e = w->e;
    _Alignas(64) char sums[ROW_PANELS * TGC_TILE_BYTES];
    for (int64_t j = j_begin; j < j_end; j += e->nr) {
        int64_t cols = smaller(j_end - j, e->nr);
        for (int64_t p = 0; p < w->run; p += e->kc) {
            int64_t k = smaller(w->run - p, e->kc);
            const char *panel = own;
            if (w->own_b)
                e->pack_b(own, b_at(w, p, w->j0 + j), cols, k, w->g->b_col, w->g->b_row);
            else
                panel = panel_at(w, 0, j / e->nr, p);
            for (int64_t i = i_begin; i < i_end; i += e->mr)
                finish_tile(w, i, j, smaller(i_end - i, e->mr), cols, p, k, panel_at(w, 1, i / e->mr, p), panel,
                            &(tgc_ahead){panel, 0}, sums + (i - i_begin) / e->mr * TGC_TILE_BYTES, 0);
        }
    }
}

/* One run over k of the microkernel's tiles. */
static void multiply_tiles(const job *w, int64_t i_begin, int64_t i_end, int64_t j_begin, int64_t j_end, int64_t p,
                           char *own)
{
    const tgc_engine *e = w->e;
    const tgc_gemm *g = w->g;
    int plain = is_plain(e, g);
    int64_t k = smaller(w->run - p, e->kc);
    if (w->own_a) {
        for (int64_t i = i_begin; i < i_end; i += e->mr) {
            int64_t rows = smaller(i_end - i, e->mr);
            e->pack_a(own, a_at(w, w->i0 + i, w->p0 + p), rows, k, g->a_row, g->a_col);
            for (int64_t j = j_begin; j < j_end; j += e->nr)
                finish_tile(w, i, j, rows, smaller(j_end - j, e->nr), p, k, own, panel_at(w, 0, j / e->nr, p),
                            &(tgc_ahead){own, 0}, NULL, plain);
        }
        return;
    }
    for (int64_t j = j_begin; j < j_end; j += e->nr) {
        int64_t cols = smaller(j_end - j, e->nr);
        const char *panel = own;
        if (w->own_b)
            e->pack_b(own, b_at(w, w->p0 + p, w->j0 + j), cols, k, g->b_col, g->b_row);
        else
            panel = panel_at(w, 0, j / e->nr, p);
        for (int64_t i = i_begin; i < i_end; i += e->mr) {
            tgc_ahead next = ahead(w, (i - i_begin) / e->mr, j, p, panel);
            finish_tile(w, i, j, smaller(i_end - i, e->mr), cols, p, k, panel_at(w, 1, i / e->mr, p), panel, &next,
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
    int64_t i_begin = tgc_begin(w->rows, w->row_blocks, rb, e->mr);
    int64_t i_end = tgc_begin(w->rows, w->row_blocks, rb + 1, e->mr);
    int64_t j_begin = tgc_begin(w->cols, w->column_blocks, cb, e->nr);
    int64_t j_end = tgc_begin(w->cols, w->column_blocks, cb + 1, e->nr);
    int64_t p = 0;
    if (e->enter != NULL)
        e->enter();
    if (w->task_sums)
        multiply_columns(w, i_begin, i_end, j_begin, j_end, own);
    else
        do
            multiply_tiles(w, i_begin, i_end, j_begin, j_end, p, own);
        while ((p += e->kc) < w->run);
    if (e->leave != NULL)
        e->leave();
}

/* Cut into blocks that suit the caches, then further while there is work for more tasks. */
static void choose_blocks(job *w)
{
    int64_t row_panels = panels(w->rows, w->e->mr), column_panels = panels(w->cols, w->e->nr);
    int64_t rb = w->own_b ? 1 : panels(row_panels, ROW_PANELS);
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
    if (sums_in_place(e, g) && element * (double)g->k > (double)KEPT_BYTES)
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
    int partial_sums = g->k > e->kc && !sums_in_place(e, g);
    if (partial_sums && side > BLOCK_SIDE)
        side = BLOCK_SIDE;
    w->rows = limited(g->m, e->mr, side);
    w->cols = limited(g->n, e->nr, side);
    int64_t row_panels = panels(w->rows, e->mr), column_panels = panels(w->cols, e->nr);
    w->own_a = column_panels <= OWN_COLUMN_PANELS && w->rows > w->cols;
    w->own_b = row_panels <= ROW_PANELS && !w->own_a;
    size_t used = 0;
    w->packed_a = memory;
    if (!w->own_a)
        used += packed_bytes(e, w->rows, e->mr, w->run);
    w->packed_b = memory + used;
    if (!w->own_b)
        used += packed_bytes(e, w->cols, e->nr, w->run);
    w->task_sums = partial_sums && g->k <= e->task_run && !w->own_a;
    if (partial_sums && !w->task_sums) {
        w->sums = memory + used;
        used += (size_t)(row_panels * e->mr * column_panels * e->nr * e->tile_size);
    }
    return used;
}

static void multiply_part(job *w)
{
    const int64_t run = w->run;
    w->p0 = 0;
    do {
        w->run = smaller(run, w->g->k - w->p0);
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

/* Small: A is read where it lies, B too if its rows are contiguous. */
static void multiply_small(const tgc_engine *e, const tgc_gemm *g, int64_t matrix)
{
    _Alignas(64) char own[TGC_PANEL_BYTES + TGC_PANEL_SLACK];
    _Alignas(64) char tile[TGC_TILE_BYTES];
    const char *a = (const char *)g->a + matrix * g->a_batch * e->a_size;
    const char *b = (const char *)g->b + matrix * g->b_batch * e->b_size;
    char *c = (char *)g->c + matrix * g->c_batch * e->c_size;
    int plain = is_plain(e, g);
    int64_t row_panels = panels(g->m, e->mr);
    for (int64_t j = 0; j < g->n; j += e->nr) {
        int64_t cols = smaller(g->n - j, e->nr), b_row = g->b_row;
        const char *panel = b + j * g->b_col * e->b_size;
        if (g->b_col != 1) {
            e->pack_b(own, panel, cols, g->k, g->b_col, g->b_row);
            panel = own;
            b_row = e->nr;
        }
        /* Panels of equal height: the last one is not left with too few rows to keep busy. */
        for (int64_t part = 0, i = 0; part < row_panels; part++) {
            int64_t rows = g->m * (part + 1) / row_panels - i;
            char *to = plain ? c + (i * g->c_row + j) * e->c_size : tile;
            e->direct(rows, cols, g->k, a + i * g->a_row * e->a_size, g->a_row, g->a_col, panel, b_row, to,
                      plain ? g->c_row : e->nr, plain && g->beta != 0);
            if (!plain)
                e->store(g, c, i, j, rows, cols, tile, e->nr);
            i += rows;
        }
    }
}

static int is_small(const tgc_engine *e, const tgc_gemm *g)
{
    if (e->direct == NULL || g->k > e->kc)
        return 0;
    return (double)g->m * (double)g->n * (double)g->k <= (double)e->direct_limit;
}

/* A batch of matrices too small to be cut: tasks take several. Each blocked one in progress needs
 * panels of its own, so there is a place for every thread. */
typedef struct batch_job {
    const tgc_engine *e;
    const tgc_gemm *g;
    int64_t tasks;
    size_t place_bytes; /* 0: the matrices are small, nothing is packed */
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
    if (w->place_bytes == 0) {
        for (int64_t matrix = first; matrix < end; matrix++)
            multiply_small(w->e, w->g, matrix);
        return;
    }
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
    if (place_bytes > 0) {
        size_t places = (size_t)tgc_threads(), bytes = places * place_bytes + places;
        w.memory = tgc_scratch(bytes);
        if (w.memory == NULL)
            return tgc_no_memory(op, bytes);
        w.taken = (_Atomic char *)(w.memory + places * place_bytes);
        for (size_t place = 0; place < places; place++)
            atomic_init(&w.taken[place], 0);
    }
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
    if (is_small(e, g)) {
        if (g->batch > 1)
            return multiply_batch(e, g, 0, op);
        multiply_small(e, g, 0);
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
