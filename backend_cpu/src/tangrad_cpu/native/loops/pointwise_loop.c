/* Drive the inner loop of a pointwise kernel over any operands: contiguous ones directly, all
 * others through tiles that stay in the first-level cache. A tile is a contiguous piece of an
 * operand in the kernel's dtype: a number is filled in once, strided elements and those that are
 * not aligned are gathered, half precision is widened, and results go back the same way. */
#include "pointwise_loop.h"

#include "pointwise_tile.h"
#include "stream.h"

#include <stdatomic.h>

/* All tiles of a loop together: with what is read directly they fit the first-level cache. */
#define TILES_BYTES 24576
/* Tiles that hold nothing but a number each, which are read again for every block: they have to stay in the
 * first-level cache while what is read directly streams through it. */
#define NUMBERS_BYTES 8192
/* Elements, times their cost in additions, that are worth a task of their own. */
#define TASK_WORK 131072
#define TASK_LEAST 4096
#define TASKS_MOST 4096
/* Fewer elements than this per row are handled several rows at a time. */
#define ROW_SHORT 64
#define JOINED_MOST 512
/* From this length on a row is worth a call of the loop that takes its number. */
#define NUMBER_ROW 64
/* What is contiguous along another dimension is read in blocks of this many columns. */
#define TURN_COLUMNS 128
#define TURN_LEAST 4
#define LINE_BYTES 64

enum { DIRECT, TILE, NUMBER };

/* The loop in the order it runs. A block is `rows` of dimension split-1 (one, unless operands are
 * turned) by `length` of dimension `split` by all of the dimensions after it. */
typedef struct plan {
    const tgc_pointwise_kernel *kernel;
    tgc_pointwise_inner compute;
    void (*run)(struct plan *, int64_t first, int64_t last); /* of the blocks */
    const tg_loop *loop;
    int rank, count, split, turned;
    int64_t inner;        /* elements of the dimensions after `split` */
    int64_t rows, length; /* of a full block */
    int64_t row_blocks, length_blocks, blocks, tasks;
    _Atomic int32_t failed;
    int32_t offsets[TG_MAX_OPERANDS];  /* of the tiles, in bytes */
    uint8_t mode[TG_MAX_OPERANDS];
    uint8_t constant[TG_MAX_OPERANDS]; /* a tile that is the same in every block */
    int64_t shape[TG_MAX_DIMS];
    int64_t strides[TG_MAX_OPERANDS][TG_MAX_DIMS];
} plan;

static inline int64_t width_of(const plan *p, int i)
{
    return tgc_itemsize[p->kernel->dtypes[i]];
}

/* Whether an inner loop can take an operand's elements as they are. */
static inline int is_ready(const tg_operand *operand, int dtype)
{
    return operand->dtype == dtype && ((uintptr_t)operand->data & tgc_past_alignment[dtype]) == 0;
}

static int divided_by_zero(const tgc_pointwise_kernel *kernel)
{
    return tgc_error("RuntimeError", "ZeroDivisionError: %s of integers by zero", kernel->title);
}

/* The loop that takes the most of these operands for numbers and no other one; NULL if there is none. */
static inline const tgc_pointwise_numbers *numbers_among(const tgc_pointwise_kernel *kernel, uint32_t operands)
{
    const tgc_pointwise_numbers *numbers = kernel->numbers;
    if (numbers == NULL || operands == 0)
        return NULL;
    while (numbers->inner != NULL && (numbers->operands & ~operands) != 0)
        numbers++;
    return numbers->inner == NULL ? NULL : numbers;
}

/* --- contiguous operands ---------------------------------------------------------------------- */

typedef struct plain_run {
    const tgc_pointwise_kernel *kernel;
    tgc_pointwise_inner compute;
    const tg_scalar *params;
    char *data[TG_MAX_OPERANDS];
    int32_t steps[TG_MAX_OPERANDS]; /* in bytes: zero for a number */
    int64_t n, tasks;
    int streamed;
    _Atomic int32_t failed;
} plain_run;

/* Elements begin .. end, whose result is stored past the caches; `data` is at the first. */
static void stream_piece(const plain_run *run, char **data, int64_t begin, int64_t end, int32_t *failed)
{
    const tgc_pointwise_kernel *kernel = run->kernel;
    const int64_t width = tgc_itemsize[kernel->dtypes[0]], step = TGC_STREAM_TILE / width;
    _Alignas(64) char tile[TGC_STREAM_TILE];
    char *to = data[0];
    data[0] = tile;
    for (int64_t at = begin; at < end; at += step, to += TGC_STREAM_TILE) {
        const int64_t n = end - at < step ? end - at : step;
        run->compute(n, data, run->params, at, failed);
        tgc_stream(to, tile, n * width);
        for (int i = 1; i <= kernel->nin; i++)
            data[i] += n * run->steps[i];
    }
    tgc_stream_end();
}

static void plain_task(int64_t index, void *context)
{
    plain_run *run = context;
    const tgc_pointwise_kernel *kernel = run->kernel;
    int64_t begin = tgc_begin(run->n, run->tasks, index, 64), end = tgc_begin(run->n, run->tasks, index + 1, 64);
    char *data[TG_MAX_OPERANDS];
    int32_t failed = 0;
    for (int i = 0; i < kernel->nout + kernel->nin; i++)
        data[i] = run->data[i] + begin * run->steps[i];
    if (run->streamed)
        stream_piece(run, data, begin, end, &failed);
    else
        run->compute(end - begin, data, run->params, begin, &failed);
    if (failed)
        atomic_store_explicit(&run->failed, failed, memory_order_relaxed);
}

static inline int64_t task_grain(const tgc_pointwise_kernel *kernel)
{
    int64_t grain = TASK_WORK / (kernel->cost + 3);
    return grain < TASK_LEAST ? TASK_LEAST : grain;
}

static __attribute__((noinline)) int run_plain(const tgc_pointwise_kernel *kernel, const tgc_pointwise_numbers *numbers,
                                               const tg_scalar *params, char *const *data, int64_t n)
{
    plain_run run = {.kernel = kernel, .params = params, .n = n};
    run.compute = numbers != NULL ? numbers->inner : kernel->inner;
    run.streamed = kernel->nout == 1 && tgc_streams(data[0], n * tgc_itemsize[kernel->dtypes[0]]);
    for (int i = 0; i < kernel->nout + kernel->nin; i++) {
        run.data[i] = data[i];
        run.steps[i] = numbers != NULL && (numbers->operands >> i & 1) ? 0 : tgc_itemsize[kernel->dtypes[i]];
        run.streamed &= i == 0 || data[i] != data[0]; /* what is written in place is in the cache */
    }
    run.tasks = tgc_tasks(n, task_grain(kernel), TASKS_MOST);
    tgc_parallel(run.tasks, plain_task, &run);
    return atomic_load_explicit(&run.failed, memory_order_relaxed) ? divided_by_zero(kernel) : 0;
}

/* --- the plan of any other loop --------------------------------------------------------------- */

static void move_dim(int64_t *values, int from, int to)
{
    int64_t moved = values[from];
    for (; from < to; from++)
        values[from] = values[from + 1];
    values[to] = moved;
}

/* Whether the block's elements of an operand lie one after the other. */
static int is_flat(const plan *p, int i)
{
    int64_t step = width_of(p, i);
    if (!is_ready(&p->loop->operands[i], p->kernel->dtypes[i]))
        return 0;
    for (int d = p->rank - 1; d >= p->split; d--) {
        if (p->shape[d] != 1 && p->strides[i][d] != step)
            return 0;
        step *= p->shape[d];
    }
    return 1;
}

static int is_constant(const plan *p, int i)
{
    if (i < p->kernel->nout)
        return 0;
    for (int d = 0; d < p->split; d++)
        if (p->shape[d] != 1 && p->strides[i][d] != 0)
            return 0;
    return p->strides[i][p->split] == 0 || p->length == p->shape[p->split];
}

/* Find a dimension along which an operand is contiguous that is not so along the last: its
 * elements are read a cache line at a time, for as many rows as a line holds. */
static void turn_if_worth(plan *p)
{
    int last = p->rank - 1;
    if (p->shape[last] < ROW_SHORT)
        return;
    for (int i = 0; i < p->count; i++) {
        int64_t width = tgc_itemsize[p->loop->operands[i].dtype], along = p->strides[i][last];
        if (along == 0 || along == width)
            continue;
        for (int d = last - 1; d >= 0; d--)
            if (p->strides[i][d] == width && p->shape[d] >= TURN_LEAST) {
                move_dim(p->shape, d, last - 1);
                for (int k = 0; k < p->count; k++)
                    move_dim(p->strides[k], d, last - 1);
                p->rows = LINE_BYTES / width;
                p->turned = 1;
                return;
            }
    }
}

/* Elements of a block whose tiles of so many bytes an element fit in TILES_BYTES. */
static inline int64_t elements_that_fit(int64_t bytes)
{
    return TILES_BYTES / bytes & ~(int64_t)15;
}

/* Whether all elements of an operand from a dimension on are one. */
static int is_number(const plan *p, int i, int from)
{
    int64_t strides = 0;
    for (int d = from; d < p->rank; d++)
        strides |= p->shape[d] == 1 ? 0 : p->strides[i][d];
    return i >= p->kernel->nout && strides == 0;
}

/* The inner loop for the operands that are numbers from a dimension on; NULL if there is none. */
static const tgc_pointwise_numbers *numbers_from(const plan *p, int from)
{
    uint32_t operands = 0;
    if (p->kernel->numbers == NULL)
        return NULL;
    for (int i = p->kernel->nout; i < p->count; i++)
        if (is_number(p, i, from) && is_ready(&p->loop->operands[i], p->kernel->dtypes[i]))
            operands |= 1u << i;
    return numbers_among(p->kernel, operands);
}

/* Whether a further dimension may join the block and no operand loses by it: what was contiguous
 * stays so, or is the same for every block, so that its tile is filled only once; and rows that are
 * long enough keep the number that they take each. A joined
 * dimension is not divided, so its tiles must fit even if every operand needs one. */
static int joins(plan *p)
{
    const int64_t elements = p->inner * p->shape[p->split];
    int64_t bytes = 0;
    for (int i = 0; i < p->count; i++)
        bytes += width_of(p, i);
    int joined = elements <= JOINED_MOST && elements <= elements_that_fit(bytes);
    if (elements >= NUMBER_ROW && numbers_from(p, p->split) != numbers_from(p, p->split - 1))
        return 0;
    for (int i = 0; i < p->count && joined; i++) {
        if (!is_flat(p, i))
            continue;
        int same = i >= p->kernel->nout;
        for (int d = 0; d < p->split; d++)
            same &= p->shape[d] == 1 || p->strides[i][d] == 0;
        p->split--;
        joined = same || is_flat(p, i);
        p->split++;
    }
    return joined;
}

/* Choose the inner loop, and with it the operands that are read where they lie and as numbers. */
static void choose_modes(plan *p)
{
    const tgc_pointwise_numbers *numbers = numbers_from(p, p->split);
    p->compute = numbers != NULL ? numbers->inner : p->kernel->inner;
    for (int i = 0; i < p->count; i++)
        p->mode[i] = numbers != NULL && (numbers->operands >> i & 1) ? NUMBER : is_flat(p, i) ? DIRECT : TILE;
}

static void lay_tiles(plan *p)
{
    int64_t bytes = 0, most;
    int numbers = 1;
    int32_t at = 0;
    choose_modes(p);
    for (int i = 0; i < p->count; i++)
        if (p->mode[i] == TILE) {
            bytes += width_of(p, i);
            numbers &= is_number(p, i, 0);
        }
    most = bytes == 0 ? TASK_WORK : numbers ? NUMBERS_BYTES / bytes & ~(int64_t)15 : elements_that_fit(bytes);
    if (bytes != 0 && most > TGC_TILE_MOST)
        most = TGC_TILE_MOST;
    p->length = most / p->inner;
    if (p->turned) {
        p->length = TURN_COLUMNS;
        while (p->rows * p->length > most)
            p->length /= 2;
    }
    if (p->length > p->shape[p->split])
        p->length = p->shape[p->split];
    if (p->length < 1)
        p->length = 1;
    for (int i = 0; i < p->count; i++) {
        p->offsets[i] = at;
        if (p->mode[i] == TILE)
            at += (int32_t)((p->rows * p->length * p->inner * width_of(p, i) + 63) & ~(int64_t)63);
        p->constant[i] = p->mode[i] == TILE && is_constant(p, i);
    }
}

static int has_tiles(const plan *p)
{
    int tiles = 0;
    for (int i = 0; i < p->count; i++)
        tiles |= p->mode[i] == TILE;
    return tiles;
}

static void make_plan(plan *p, const tg_loop *loop, const tgc_pointwise_kernel *kernel)
{
    p->kernel = kernel;
    p->loop = loop;
    p->rank = loop->ndim > 0 ? loop->ndim : 1;
    p->count = kernel->nout + kernel->nin;
    p->turned = 0;
    p->shape[0] = 1;
    for (int d = 0; d < loop->ndim; d++)
        p->shape[d] = loop->shape[d];
    for (int i = 0; i < p->count; i++) {
        p->strides[i][0] = 0;
        for (int d = 0; d < loop->ndim; d++)
            p->strides[i][d] = loop->operands[i].strides[d];
    }
    p->split = p->rank - 1;
    p->inner = 1;
    p->rows = 1;
    if (p->rank > 1 && !kernel->ordered)
        turn_if_worth(p);
    while (!p->turned && p->split > 0 && (p->inner * p->shape[p->split] < ROW_SHORT || joins(p))) {
        p->inner *= p->shape[p->split];
        p->split--;
    }
    lay_tiles(p);
    p->length_blocks = (p->shape[p->split] + p->length - 1) / p->length;
    p->row_blocks = p->turned ? (p->shape[p->split - 1] + p->rows - 1) / p->rows : 1;
    p->blocks = p->length_blocks * p->row_blocks;
    for (int d = 0; d < p->split - p->turned; d++)
        p->blocks *= p->shape[d];
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Bring an operand's block into its tile or back: `rows` by `length` by the inner dimensions. */
static void move_tile(const plan *p, int i, char *data, char *tile, int64_t rows, int64_t length, int store)
{
    const int last = p->rank - 1;
    const int64_t *stride = p->strides[i];
    tgc_tile t = {.tile = tile, .wanted = p->kernel->dtypes[i], .data = data,
                  .dtype = p->loop->operands[i].dtype, .store = store, .rows = rows, .columns = length,
                  .row_stride = p->turned ? stride[last - 1] : 0, .column_stride = stride[last]};
    if (p->split == last) {
        TGC(tgc_tile_move)(&t);
        return;
    }
    /* The two innermost dimensions at a time. */
    int64_t at[TG_MAX_DIMS] = {0}, planes = p->split < last - 1 ? length : 1;
    t.rows = p->split < last - 1 ? p->shape[last - 1] : length;
    t.columns = p->shape[last];
    t.row_stride = stride[last - 1];
    for (int d = p->split + 1; d < last - 1; d++)
        planes *= p->shape[d];
    while (planes-- > 0) {
        TGC(tgc_tile_move)(&t);
        t.tile += t.rows * t.columns * width_of(p, i);
        for (int d = last - 2; d >= p->split; d--) {
            t.data += stride[d];
            if (++at[d] < p->shape[d] || d == p->split)
                break;
            t.data -= at[d] * stride[d];
            at[d] = 0;
        }
    }
}

static void run_block(const plan *p, char *const *data, char *tiles, int64_t rows, int64_t length, int64_t filled,
                      int64_t index, int32_t *failed)
{
    const tgc_pointwise_kernel *kernel = p->kernel;
    const int64_t n = length * p->inner;
    char *at[TG_MAX_OPERANDS];
    for (int i = 0; i < p->count; i++) {
        at[i] = p->mode[i] == TILE ? tiles + p->offsets[i] : data[i];
        if (p->mode[i] == TILE && i >= kernel->nout && !(p->constant[i] && filled >= rows * n))
            move_tile(p, i, data[i], at[i], rows, length, 0);
    }
    for (int64_t row = 0; row < rows; row++) {
        p->compute(n, at, p->loop->params, index, failed);
        for (int i = 0; i < p->count; i++)
            at[i] += p->mode[i] == TILE ? n * width_of(p, i) : p->turned ? p->strides[i][p->split - 1] : 0;
    }
    for (int i = 0; i < kernel->nout; i++)
        if (p->mode[i] == TILE)
            move_tile(p, i, data[i], tiles + p->offsets[i], rows, length, 1);
}

/* Run blocks first .. last-1, in row-major order of (outer dimensions, row blocks, length blocks). */
static void run_blocks(plan *p, int64_t first, int64_t last)
{
    _Alignas(64) char tiles[TILES_BYTES + 64 * TG_MAX_OPERANDS];
    const int outer = p->split - p->turned;
    const int64_t width = p->shape[p->split], height = p->turned ? p->shape[p->split - 1] : 1;
    int64_t at[TG_MAX_DIMS], rest = first, filled = 0, index;
    char *base[TG_MAX_OPERANDS], *data[TG_MAX_OPERANDS];
    int32_t failed = 0;
    int64_t part = rest % p->length_blocks;
    rest /= p->length_blocks;
    index = (rest * width + part * p->length) * p->inner; /* nothing is turned where it matters */
    int64_t band = rest % p->row_blocks;
    rest /= p->row_blocks;
    for (int i = 0; i < p->count; i++)
        base[i] = p->loop->operands[i].data;
    for (int d = outer - 1; d >= 0; d--) {
        at[d] = rest % p->shape[d];
        rest /= p->shape[d];
        for (int i = 0; i < p->count; i++)
            base[i] += at[d] * p->strides[i][d];
    }
    for (int64_t block = first; block < last; block++) {
        const int64_t column = part * p->length, row = band * p->rows;
        const int64_t length = width - column < p->length ? width - column : p->length;
        const int64_t rows = height - row < p->rows ? height - row : p->rows;
        for (int i = 0; i < p->count; i++) {
            data[i] = base[i] + column * p->strides[i][p->split];
            if (p->turned)
                data[i] += row * p->strides[i][p->split - 1];
        }
        run_block(p, data, tiles, rows, length, filled, index, &failed);
        index += length * p->inner;
        if (rows * length * p->inner > filled)
            filled = rows * length * p->inner;
        if (++part < p->length_blocks)
            continue;
        part = 0;
        if (++band < p->row_blocks)
            continue;
        band = 0;
        for (int d = outer - 1; d >= 0; d--) {
            const int64_t back = ++at[d] < p->shape[d] ? 0 : p->shape[d];
            for (int i = 0; i < p->count; i++)
                base[i] += (1 - back) * p->strides[i][d];
            if (back == 0)
                break;
            at[d] = 0;
        }
    }
    if (failed)
        atomic_store_explicit(&p->failed, failed, memory_order_relaxed);
}

/* Run rows first .. last-1, where a block is a row and nothing goes through a tile. */
static void run_rows(plan *p, int64_t first, int64_t last)
{
    const int count = p->count, along = p->split - 1;
    const int64_t n = p->length * p->inner, height = p->shape[along];
    char *data[TG_MAX_OPERANDS];
    int64_t steps[TG_MAX_OPERANDS];
    int32_t failed = 0;
    for (int i = 0; i < count; i++)
        steps[i] = p->strides[i][along];
    for (int64_t row = first; row < last;) {
        const int64_t start = row % height, left = last - row;
        const int64_t end = row + (left < height - start ? left : height - start);
        int64_t rest = row / height;
        for (int i = 0; i < count; i++)
            data[i] = (char *)p->loop->operands[i].data + start * steps[i];
        for (int d = along - 1; d >= 0; rest /= p->shape[d], d--)
            for (int i = 0; i < count; i++)
                data[i] += rest % p->shape[d] * p->strides[i][d];
        for (; row < end; row++) {
            p->compute(n, data, p->loop->params, row * n, &failed);
            for (int i = 0; i < count; i++)
                data[i] += steps[i];
        }
    }
    if (failed)
        atomic_store_explicit(&p->failed, failed, memory_order_relaxed);
}

static void blocks_task(int64_t index, void *context)
{
    plan *p = context;
    p->run(p, tgc_begin(p->blocks, p->tasks, index, 1), tgc_begin(p->blocks, p->tasks, index + 1, 1));
}

static __attribute__((noinline)) int run_planned(const tg_loop *loop, const tgc_pointwise_kernel *kernel)
{
    plan p;
    atomic_init(&p.failed, 0);
    make_plan(&p, loop, kernel);
    p.tasks = tgc_tasks(loop->numel, task_grain(kernel), TASKS_MOST);
    if (p.tasks > p.blocks)
        p.tasks = p.blocks;
    p.run = run_blocks;
    if (p.split > 0 && !p.turned && p.length_blocks == 1 && !has_tiles(&p))
        p.run = run_rows;
    if (p.tasks == 1)
        p.run(&p, 0, p.blocks);
    else
        tgc_parallel(p.tasks, blocks_task, &p);
    return atomic_load_explicit(&p.failed, memory_order_relaxed) ? divided_by_zero(kernel) : 0;
}

int TGC(tgc_pointwise)(const tg_loop *loop, void *context)
{
    const tgc_pointwise_kernel *kernel = context;
    const int count = kernel->nout + kernel->nin;
    const int64_t n = loop->numel;
    char *data[TG_MAX_OPERANDS];
    int32_t failed = 0;
    if (kernel->wide != NULL)
        for (int i = 0; i < count; i++)
            if (loop->operands[i].dtype != kernel->dtypes[i]) {
                kernel = kernel->wide;
                break;
            }
    if (loop->ndim > 1)
        return run_planned(loop, kernel);
    uint32_t constant = 0;
    for (int i = 0; i < count; i++) {
        const tg_operand *operand = &loop->operands[i];
        data[i] = operand->data;
        if (!is_ready(operand, kernel->dtypes[i]))
            return run_planned(loop, kernel);
        if (n > 1 && operand->strides[0] != tgc_itemsize[operand->dtype]) {
            if (i < kernel->nout || operand->strides[0] != 0)
                return run_planned(loop, kernel);
            constant |= 1u << i;
        }
    }
    const tgc_pointwise_numbers *numbers = numbers_among(kernel, constant);
    if (constant != (numbers != NULL ? numbers->operands : 0))
        return run_planned(loop, kernel);
    if (n >= 2 * TASK_LEAST)
        return run_plain(kernel, numbers, loop->params, data, n);
    (numbers != NULL ? numbers->inner : kernel->inner)(n, data, loop->params, 0, &failed);
    return failed ? divided_by_zero(kernel) : 0;
}
