/* Walks the dimensions of a reduction and cuts its work.
 *
 * Lanes run along the dimension of unit stride. If that dimension is kept, each lane is a result;
 * if it is reduced, the row is cut into lanes of a fixed number, and the lanes are folded by
 * halves in the end; short rows are transposed instead. Long folds pass through a second block of states after every STEP rows, so
 * that the error of a sum grows with the depth and not with the length. */
#include "reduction_loop.h"

#include "copies/copying.h"

#include <string.h>

#define MOST_DIMS TG_MAX_DIMS
/* Bytes of the lanes into which a contiguous reduced row is cut. A fold reads four rows of lanes at
 * once: so short they are one stream for the prefetcher, which streams a kilobyte apart defeat. */
#define ROW_BYTES 256
/* What comes from memory is read faster as four streams, each in pages of its own, than as short rows
 * of lanes: rows so long, of tensors beyond the second-level cache, folded with those FAR_ROWS further
 * on. A fold by `line` keeps its lanes in registers and reads in order, which is faster still. */
#define FAR_ROW_BYTES 4096
#define FAR_ROWS 16
#define FAR_BYTES ((int64_t)16 << 20)
/* Rows before the states are handed on; fewer where the fold may be over early. */
#define STEP 512
#define STEP_SETTLING 32
/* Bytes that are worth a task, and most tasks of a fold that is cut along what it reduces. */
#define GRAIN ((int64_t)128 << 10)
#define MOST_PARTS 64
#define MOST_TASKS 1024
/* Few elements per result are folded with lanes across results. */
#define FEW 16
/* Rows of a kept dimension so narrow are folded several at a time. */
#define NARROW 64
/* Contiguous rows of so few bytes are transposed, BESIDE at a time, so that each is a lane: to fold the
 * lanes of every row by halves would take longer than to read it. */
#define SHORT_BYTES 1024
#define BESIDE 128

typedef struct dims {
    int count;
    int64_t total;
    int64_t shape[MOST_DIMS];
    int64_t in[MOST_DIMS];
    int64_t out[TGC_FOLD_OUTS][MOST_DIMS];
} dims;

typedef struct plan {
    const tgc_fold *fold;
    const tg_scalar *params;
    const char *x;
    char *out[TGC_FOLD_OUTS];
    int64_t n;
    dims kept, reduced;
    int64_t lane_stride, lane_total, lane_out[TGC_FOLD_OUTS]; /* the lanes, where they are results */
    int64_t width;                                            /* lanes of a tile */
    int64_t results;                                          /* lanes that remain of a tile; 0: as many as it has */
    int64_t rows, row_stride, tail;                           /* the innermost reduced dimension */
    int far;                                                  /* whether its rows are FAR_ROW_BYTES long */
    int lines;                                                /* whether its rows are folded by `line` */
    int64_t outer_index, row_index, lane_index;
    int64_t tiles, units, length; /* tiles of the lanes; tiles of all; rows of a unit */
    int64_t parts, tasks;
    char *partial;
} plan;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t magnitude(int64_t a)
{
    return a < 0 ? -a : a;
}

/* Take dimensions [from, to) of the loop without those of size one, sorted by stride if their
 * order does not matter, and merge those that are one in memory. */
static void gather_dims(dims *d, const tg_loop *loop, int from, int to, int sorted)
{
    int nout = loop->nout, order[MOST_DIMS], n = 0;
    const int64_t *in = loop->operands[nout].strides;
    d->count = 0;
    d->total = 1;
    for (int k = from; k < to; k++) {
        d->total *= loop->shape[k];
        if (loop->shape[k] == 1)
            continue;
        int at = n++;
        while (sorted && at > 0 && magnitude(in[order[at - 1]]) < magnitude(in[k])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = k;
    }
    for (int i = 0; i < n; i++) {
        int k = order[i], last = d->count - 1, merges = last >= 0;
        int64_t size = loop->shape[k];
        if (merges) {
            merges = d->in[last] == in[k] * size;
            for (int o = 0; o < nout; o++)
                merges &= d->out[o][last] == loop->operands[o].strides[k] * size;
        }
        int at = merges ? last : d->count++;
        d->shape[at] = merges ? d->shape[at] * size : size;
        d->in[at] = in[k];
        for (int o = 0; o < nout; o++)
            d->out[o][at] = loop->operands[o].strides[k];
    }
}

static void drop_last(dims *d)
{
    d->count--;
    d->total = 1;
    for (int k = 0; k < d->count; k++)
        d->total *= d->shape[k];
}

static int64_t offset_of(const dims *d, const int64_t *strides, int64_t position)
{
    int64_t offset = 0;
    for (int k = d->count - 1; k >= 0 && position; k--) {
        offset += position % d->shape[k] * strides[k];
        position /= d->shape[k];
    }
    return offset;
}

/* How many lanes a contiguous reduced row of n elements is cut into. */
static int64_t row_lanes(plan *p, int64_t n)
{
    const int64_t item = p->fold->itemsize, lanes = FAR_ROW_BYTES / item;
    p->far = p->n * p->kept.total * item >= FAR_BYTES && n >= 4 * FAR_ROWS * lanes && lanes <= p->fold->lanes
             && !p->fold->indexed && p->fold->line == NULL;
    return p->far ? lanes : least(ROW_BYTES / item, p->fold->lanes);
}

/* Decide along which dimension lanes run; the last reduced dimension becomes the rows. */
static void lay_out(plan *p)
{
    const tgc_fold *fold = p->fold;
    dims *kept = &p->kept, *reduced = &p->reduced;
    int64_t item = fold->itemsize;
    int last_kept = kept->count - 1, last = reduced->count - 1;
    int across = last < 0; /* lanes across results */
    int64_t most = fold->lanes;
    if (!across && last_kept >= 0) {
        int64_t by_kept = magnitude(kept->in[last_kept]), by_reduced = magnitude(reduced->in[last]);
        across = by_reduced != item && (by_kept == item || by_kept <= by_reduced);
        int transposed = by_reduced == item && reduced->count == 1 && p->n * item <= SHORT_BYTES
                         && (fold->line == NULL || p->n * item < TGC_LINE_BYTES);
        across |= (p->n <= FEW || transposed) && kept->shape[last_kept] >= NARROW;
        most = across && by_reduced == item ? BESIDE : most;
    }
    p->tail = 0;
    p->far = p->lines = 0;
    if (across && last_kept >= 0) {
        p->lane_total = kept->shape[last_kept];
        p->lane_stride = kept->in[last_kept];
        for (int o = 0; o < fold->nout; o++)
            p->lane_out[o] = kept->out[o][last_kept];
        drop_last(kept);
        p->width = least(p->lane_total, least(most, fold->lanes));
        p->results = 0;
        p->lane_index = 0;
    } else {
        p->lane_total = last < 0 ? 1 : reduced->shape[last];
        p->lane_stride = last < 0 ? item : reduced->in[last];
        p->width = least(p->lane_total, row_lanes(p, p->lane_total));
        p->results = 1;
        p->lane_index = 1;
        p->lines = fold->line != NULL && !p->far && p->lane_stride == item && p->lane_total * item >= TGC_LINE_BYTES;
        if (p->lines) {
            p->rows = p->lane_total * item / TGC_LINE_BYTES;
            p->row_stride = TGC_LINE_BYTES;
            p->tail = p->lane_total % (TGC_LINE_BYTES / item);
            drop_last(reduced);
            p->lane_total = p->width = p->tiles = 1;
            return;
        }
        if (last >= 0 && p->lane_total > p->width) {
            p->rows = p->lane_total / p->width;
            p->row_stride = p->width * p->lane_stride;
            p->tail = p->lane_total % p->width;
            p->row_index = p->width;
            p->outer_index = p->lane_total;
            drop_last(reduced);
            p->lane_total = p->width;
            p->tiles = 1;
            return;
        }
        if (last >= 0)
            drop_last(reduced);
    }
    last = reduced->count - 1;
    p->rows = last < 0 ? 1 : reduced->shape[last];
    p->row_stride = last < 0 ? 0 : reduced->in[last];
    p->row_index = p->results ? p->lane_total : 1;
    p->outer_index = p->row_index * p->rows;
    if (last >= 0)
        drop_last(reduced);
    p->tiles = (p->lane_total + p->width - 1) / p->width;
    if (!p->results && p->lane_total <= NARROW && p->lane_stride == item && !fold->indexed
        && p->row_stride == p->lane_total * item && p->rows >= 8) {
        int64_t together = 1;
        while (together * 2 * p->lane_total * item <= ROW_BYTES && together * 2 <= p->rows)
            together *= 2;
        p->results = p->lane_total;
        p->width = p->lane_total * together;
        p->tail = p->rows % together * p->lane_total;
        p->rows /= together;
        p->row_stride = p->width * item;
    }
}

/* Copy rows of elements that are not contiguous into ones that are. */
#define GATHER(type)                                                                                                   \
    for (int64_t r = 0; r < rows; r++) {                                                                               \
        const char *row = x + r * row_stride;                                                                          \
        type *to = (type *)target + r * cols;                                                                          \
        for (int64_t k = 0; k < cols; k++)                                                                             \
            to[k] = *(const type *)(row + k * stride);                                                                 \
    }

typedef struct pair {
    uint64_t a, b;
} pair;

static void gather(char *target, const char *x, int64_t rows, int64_t row_stride, int64_t cols, int64_t stride,
                   int32_t item)
{
    if (item == 1) {
        GATHER(uint8_t)
    } else if (item == 2) {
        GATHER(uint16_t)
    } else if (item == 4) {
        GATHER(uint32_t)
    } else if (item == 8) {
        GATHER(uint64_t)
    } else {
        GATHER(pair)
    }
}

static void add_tile(const plan *p, const char *x, int64_t rows, int64_t cols, int64_t index, char *states, int fresh)
{
    const tgc_fold *fold = p->fold;
    tgc_tile tile = {rows, cols, p->row_stride, index, p->row_index, p->lane_index};
    if (p->lane_stride == fold->itemsize || cols == 1) {
        if (p->far) {
            tile.rows = 4;
            tile.row_stride = FAR_ROWS * p->row_stride;
            for (; rows >= 4 * FAR_ROWS; rows -= 4 * FAR_ROWS, x += 4 * FAR_ROWS * p->row_stride)
                for (int64_t r = 0; r < FAR_ROWS; r++, fresh = 0)
                    fold->tile(x + r * p->row_stride, &tile, p->params, states, fresh);
            if (rows == 0)
                return;
            tile.rows = rows;
            tile.row_stride = p->row_stride;
        }
        fold->tile(x, &tile, p->params, states, fresh);
        return;
    }
    _Alignas(64) char copy[TGC_MOST_LANES * 16]; /* a row at least */
    int64_t most = (int64_t)sizeof copy / (cols * fold->itemsize);
    tile.row_stride = cols * fold->itemsize;
    for (int64_t r = 0; r < rows; r += most) {
        tile.rows = least(most, rows - r);
        tile.index = index + r * p->row_index;
        const char *from = x + r * p->row_stride;
        if (p->row_stride == fold->itemsize)
            TGC(tgc_transpose)(copy, tile.row_stride, from, p->lane_stride, tile.rows, cols, fold->itemsize);
        else
            gather(copy, from, tile.rows, p->row_stride, cols, p->lane_stride, fold->itemsize);
        fold->tile(copy, &tile, p->params, states, fresh && r == 0);
    }
}

/* Fold rows [lo, hi) of a unit into lanes of `first` or of `second`; return which. */
static char *fold_unit(const plan *p, const char *x, int64_t cols, int64_t lo, int64_t hi, char *first, char *second)
{
    const tgc_fold *fold = p->fold;
    char *work = first, *total = NULL;
    int64_t step = fold->settled != NULL ? STEP_SETTLING : STEP, filled = 0;
    int fresh = 1;
    for (int64_t at = lo; at < hi;) {
        int64_t outer = at / p->rows, row = at % p->rows;
        int64_t take = least(least(p->rows - row, hi - at), step - filled);
        const char *base = x + offset_of(&p->reduced, p->reduced.in, outer);
        int64_t index = outer * p->outer_index;
        const int ends = row + take == p->rows;
        if (p->lines)
            fold->line(base + row * p->row_stride, take * (TGC_LINE_BYTES / fold->itemsize) + (ends ? p->tail : 0), p->params,
                       work, 0, fresh);
        else
            add_tile(p, base + row * p->row_stride, take, cols, index + row * p->row_index, work, fresh);
        if (p->tail && ends && !p->lines)
            add_tile(p, base + p->rows * p->row_stride, 1, p->tail, index + p->rows * p->row_index, work, 0);
        fresh = 0;
        filled += take;
        at += take;
        if (filled < step)
            continue;
        if (fold->settled != NULL && fold->settled(work, cols, p->results != 1)) {
            total = NULL;
            break;
        }
        if (total != NULL) {
            fold->merge(total, 0, work, 0, cols, p->params);
        } else {
            total = work;
            work = second;
        }
        fresh = 1;
        filled = 0;
    }
    if (total != NULL && !fresh)
        fold->merge(total, 0, work, 0, cols, p->params);
    char *states = total != NULL ? total : work;
    for (int64_t have = cols; p->results && have > p->results;) {
        int64_t half = (have + 1) / 2;
        fold->merge(states, 0, states, half, have - half, p->params);
        have = half;
    }
    return states;
}

static int64_t unit_lanes(const plan *p, int64_t unit, int64_t *lane)
{
    *lane = unit % p->tiles * p->width;
    return p->results > 1 ? p->width : least(p->width, p->lane_total - *lane);
}

static void finish_unit(const plan *p, int64_t unit, int64_t cols, const char *states)
{
    char *outs[TGC_FOLD_OUTS];
    int64_t kept = unit / p->tiles, lane = unit % p->tiles * p->width;
    for (int o = 0; o < p->fold->nout; o++)
        outs[o] = p->out[o] + offset_of(&p->kept, p->kept.out[o], kept) + (p->results == 1 ? 0 : lane * p->lane_out[o]);
    p->fold->finish(states, p->results ? p->results : cols, p->n, p->params, outs, p->lane_out);
}

/* Fold rows begin .. end of a tensor, each of one call, into neighbouring lanes. */
static void reduce_rows(const plan *p, int64_t begin, int64_t end, int runs, char *states)
{
    const tgc_fold *fold = p->fold;
    const dims *kept = &p->kept;
    const int64_t step = kept->count ? kept->in[0] : 0;
    for (int64_t row = begin; row < end; row += fold->lanes) {
        const int64_t count = least(end - row, fold->lanes);
        const char *x = p->x + row * step;
        char *outs[TGC_FOLD_OUTS];
        int64_t strides[TGC_FOLD_OUTS] = {0};
        for (int o = 0; o < fold->nout; o++) {
            strides[o] = kept->count ? kept->out[o][0] : 0;
            outs[o] = p->out[o] + row * strides[o];
        }
        for (int64_t k = 0; k < count; k++, x += step) {
            if (runs)
                fold->run(x, p->n, p->lane_stride, p->params, states, k);
            else
                fold->line(x, p->n, p->params, states, k, 1);
        }
        fold->finish(states, count, p->n, p->params, outs, strides);
    }
}

/* One task: a range of units, or a part of one. */
static void reduce_task(int64_t task, void *context)
{
    const plan *p = context;
    const tgc_fold *fold = p->fold;
    _Alignas(64) char first[TGC_STATES_BYTES], second[TGC_STATES_BYTES];
    int64_t lane;
    if (p->parts > 1) {
        int64_t unit = task / p->parts, part = task % p->parts;
        int64_t cols = unit_lanes(p, unit, &lane);
        const char *x = p->x + offset_of(&p->kept, p->kept.in, unit / p->tiles) + lane * p->lane_stride;
        char *slot = p->partial + task * TGC_STATES_BYTES;
        char *states = fold_unit(p, x, cols, p->length * part / p->parts, p->length * (part + 1) / p->parts, slot,
                                 second);
        if (states != slot)
            memcpy(slot, states, TGC_STATES_BYTES);
        return;
    }
    int64_t begin = p->units * task / p->tasks, end = p->units * (task + 1) / p->tasks;
    const int runs = p->results == 1 && p->length == 1 && p->n <= fold->run_most;
    const int lines = p->lines && p->length == p->rows && p->rows <= STEP;
    if ((runs || lines) && p->kept.count <= 1) {
        reduce_rows(p, begin, end, runs, first);
        return;
    }
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t cols = unit_lanes(p, unit, &lane);
        const char *x = p->x + offset_of(&p->kept, p->kept.in, unit / p->tiles) + lane * p->lane_stride;
        char *states = first;
        if (runs)
            fold->run(x, p->n, p->lane_stride, p->params, first, 0);
        else
            states = fold_unit(p, x, cols, 0, p->length, first, second);
        finish_unit(p, unit, cols, states);
    }
}

static int reduce_empty(const tg_loop *loop, plan *p)
{
    _Alignas(64) char states[TGC_STATES_BYTES];
    const tgc_fold *fold = p->fold;
    if (fold->fill == NULL)
        return tgc_error("RuntimeError", "a reduction of no elements has no result; give it a dimension that has some");
    int64_t strides[TGC_FOLD_OUTS] = {0};
    fold->fill(states, 1);
    gather_dims(&p->kept, loop, 0, loop->ndim - loop->nreduced, 0);
    for (int64_t at = 0; at < p->kept.total; at++) {
        char *outs[TGC_FOLD_OUTS];
        for (int o = 0; o < fold->nout; o++)
            outs[o] = p->out[o] + offset_of(&p->kept, p->kept.out[o], at);
        fold->finish(states, 1, 0, p->params, outs, strides);
    }
    return 0;
}

/* Whether all elements are one short run. Two lines and more are folded as the row of a matrix is. */
static int is_run(const tg_loop *loop, const tgc_fold *fold, const tg_operand *x)
{
    if (loop->numel > fold->run_most || loop->numel <= 0 || loop->ndim != loop->nreduced || loop->ndim > 1)
        return 0;
    return loop->numel * fold->itemsize < 2 * TGC_LINE_BYTES || fold->line == NULL
           || (loop->ndim && x->strides[0] != fold->itemsize);
}

int TGC(tgc_reduce)(const tg_loop *loop, void *context)
{
    const tgc_fold *fold = context;
    const tg_operand *x = &loop->operands[loop->nout];
    if (is_run(loop, fold, x)) {
        /* The smallest reductions are all overhead. */
        _Alignas(64) char states[TGC_STATES_BYTES];
        char *outs[TGC_FOLD_OUTS];
        int64_t strides[TGC_FOLD_OUTS] = {0};
        for (int o = 0; o < fold->nout; o++)
            outs[o] = loop->operands[o].data;
        fold->run(x->data, loop->numel, loop->ndim ? x->strides[0] : 0, loop->params, states, 0);
        fold->finish(states, 1, loop->numel, loop->params, outs, strides);
        return 0;
    }
    plan p;
    p.fold = fold;
    p.params = loop->params;
    p.x = x->data;
    for (int o = 0; o < fold->nout; o++)
        p.out[o] = loop->operands[o].data;
    int first = loop->ndim - loop->nreduced;
    gather_dims(&p.reduced, loop, first, loop->ndim, !fold->indexed);
    p.n = p.reduced.total;
    if (p.n == 0)
        return reduce_empty(loop, &p);
    gather_dims(&p.kept, loop, 0, first, 1);
    if (p.kept.total == 0)
        return 0;
    lay_out(&p);
    p.units = p.kept.total * p.tiles;
    p.length = p.rows * p.reduced.total;
    int64_t worth = tgc_tasks(loop->numel * fold->itemsize, GRAIN, MOST_TASKS);
    p.parts = 1;
    p.tasks = least(worth, p.units);
    p.partial = NULL;
    if (worth > p.units && p.units < MOST_PARTS / 4) {
        int64_t fits = p.length / 8 > 0 ? p.length / 8 : 1;
        p.parts = least(least(worth, MOST_PARTS) / p.units, fits);
        p.parts = p.parts < 1 ? 1 : p.parts;
    }
    if (p.parts == 1) {
        tgc_parallel(p.tasks, reduce_task, &p);
        return 0;
    }
    p.tasks = p.units * p.parts;
    size_t bytes = (size_t)p.tasks * TGC_STATES_BYTES;
    p.partial = tgc_scratch(bytes);
    if (p.partial == NULL)
        return tgc_no_memory("reduction", bytes);
    tgc_parallel(p.tasks, reduce_task, &p);
    for (int64_t unit = 0; unit < p.units; unit++) {
        int64_t lane, cols = unit_lanes(&p, unit, &lane);
        char *states = p.partial + unit * p.parts * TGC_STATES_BYTES;
        for (int64_t half = 1; half < p.parts; half *= 2)
            for (int64_t part = 0; part + half < p.parts; part += 2 * half)
                fold->merge(states + part * TGC_STATES_BYTES, 0, states + (part + half) * TGC_STATES_BYTES, 0,
                            p.results ? p.results : cols, p.params);
        finish_unit(&p, unit, cols, states);
    }
    tgc_scratch_free(p.partial);
    return 0;
}
