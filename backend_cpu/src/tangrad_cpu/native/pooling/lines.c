/* Sums of neighbours along a dimension, each result with weights of its own: resampling. Dimensions after it
 * are the vectors' lanes where they have enough elements; else lines are, side by side in working memory. */
#include "copies/copying.h"

#include <stdatomic.h>
#include <string.h>

#define LINE 64       /* bytes of what is computed at a time: so many lines, or the least run of elements */
#define SHORT 1024    /* bytes of a line up to which it is summed vector by vector */
#define TOGETHER 64   /* results whose elements are turned at once */
#define GRAIN 16384   /* products worth a thread of their own */
#define MOST_TASKS 64

#define WL_T float
#define WL(name) name##_f32
#include "lines_rows.h"
#define WL_T double
#define WL(name) name##_f64
#include "lines_rows.h"

typedef struct {
    void (*fold)(void *, const void *, int64_t, const void *, int64_t, int64_t);
    void (*lanes)(void *, const void *, int64_t, const void *, int64_t);
    const char *x;
    char *to;
    const char *weights; /* `most` in a row, packed */
    const int64_t *starts, *counts;
    int64_t item, outer, size, results, inner, most;
    int64_t lines, blocks, pieces, span; /* lines side by side; of them and of results so many runs; elements of one */
    int64_t tasks;
    atomic_int failed;
} summing;

static const char *weights_of(const summing *s, int64_t result)
{
    return s->weights + result * s->most * s->item;
}

static void direct_task(int64_t task, void *context)
{
    const summing *s = context;
    const int64_t all = s->outer * s->results, end = tgc_begin(all, s->tasks, task + 1, 1), row = s->inner * s->item;
    for (int64_t i = tgc_begin(all, s->tasks, task, 1); i < end; i++) {
        const int64_t block = i / s->results, result = i % s->results;
        /* Short lines are as few vectors, whose sums stay in registers. */
        if (row % LINE == 0 && row <= SHORT) {
            s->lanes(s->to + i * row, s->x + (block * s->size + s->starts[result]) * row, row / LINE,
                     weights_of(s, result), s->counts[result]);
            continue;
        }
        s->fold(s->to + i * row, s->x + (block * s->size + s->starts[result]) * row, s->inner, weights_of(s, result),
                s->counts[result], s->inner);
    }
}

/* The elements that some results look at: from *first on, so many. */
static int64_t span_of(const summing *s, int64_t begin, int64_t end, int64_t *first)
{
    int64_t least = s->size, last = 0;
    for (int64_t i = begin; i < end; i++)
        if (s->counts[i] > 0) {
            const int64_t past = s->starts[i] + s->counts[i];
            least = s->starts[i] < least ? s->starts[i] : least;
            last = past > last ? past : last;
        }
    *first = least < last ? least : 0;
    return least < last ? last - least : 0;
}

static void turned_task(int64_t task, void *context)
{
    summing *s = context;
    const int64_t all = s->blocks * s->pieces, end = tgc_begin(all, s->tasks, task + 1, 1), element = s->inner * LINE;
    const int64_t row = s->size * s->inner * s->item, out_row = s->results * s->inner * s->item;
    char *elements = tgc_scratch((size_t)((s->span + TOGETHER) * element));
    if (elements == NULL) {
        atomic_store(&s->failed, 1);
        return;
    }
    char *sums = elements + s->span * element;
    /* Lanes without a line are computed, too. */
    memset(elements, 0, (size_t)(s->span * element));
    for (int64_t i = tgc_begin(all, s->tasks, task, 1); i < end; i++) {
        const int64_t line = i / s->pieces * s->lines, begin = i % s->pieces * TOGETHER;
        const int64_t lines = s->outer - line < s->lines ? s->outer - line : s->lines;
        const int64_t stop = begin + TOGETHER < s->results ? begin + TOGETHER : s->results;
        int64_t first;
        const int64_t span = span_of(s, begin, stop, &first);
        TGC(tgc_transpose)(elements, LINE, s->x + line * row + first * s->inner * s->item, row, span * s->inner, lines,
                           (int)s->item);
        for (int64_t r = begin; r < stop; r++)
            s->lanes(sums + (r - begin) * element, elements + (s->counts[r] > 0 ? s->starts[r] - first : 0) * element,
                     s->inner, weights_of(s, r), s->counts[r]);
        TGC(tgc_transpose)(s->to + line * out_row + begin * s->inner * s->item, out_row, sums, LINE, lines,
                           (stop - begin) * s->inner, (int)s->item);
    }
    tgc_scratch_free(elements);
}

/* Whether elements lie one after the other, dimensions in an order. */
static int dense(const tg_view *view, const int *order)
{
    int64_t step = 1;
    for (int k = view->ndim - 1; k >= 0; k--) {
        const int d = order[k];
        if (view->shape[d] != 1 && view->strides[d] != step)
            return 0;
        step *= view->shape[d];
    }
    return 1;
}

/* The elements in an order of dimensions, copied where they lie otherwise; NULL with an exception. */
static const char *in_order_of(const tg_view *view, const int *order, void **memory)
{
    if (dense(view, order))
        return view->data;
    const int64_t item = tgc_itemsize[view->dtype];
    int64_t shape[TG_MAX_DIMS], to[TG_MAX_DIMS], from[TG_MAX_DIMS], step = item;
    for (int k = view->ndim - 1; k >= 0; k--) {
        shape[k] = view->shape[order[k]];
        from[k] = view->strides[order[k]] * item;
        to[k] = step;
        step *= shape[k];
    }
    *memory = tgc_scratch((size_t)(view->numel * item));
    if (*memory == NULL)
        tgc_no_memory("_weighted_lines", (size_t)(view->numel * item));
    else
        TGC(tgc_move_region)(view->ndim, shape, *memory, to, view->data, from, (int)item);
    return *memory;
}

/* Check the runs, and find how many elements a piece of results looks at at most. */
static int measure(summing *s)
{
    for (int64_t i = 0; i < s->results; i++)
        if (s->counts[i] < 0 || s->counts[i] > s->most
            || (s->counts[i] > 0 && (s->starts[i] < 0 || s->starts[i] > s->size - s->counts[i])))
            return tgc_error("IndexError", "_weighted_lines: result %lld looks at %lld elements from %lld on, of %lld",
                             (long long)i, (long long)s->counts[i], (long long)s->starts[i], (long long)s->size);
    for (int64_t begin = 0; begin < s->results; begin += TOGETHER) {
        int64_t first, end = begin + TOGETHER < s->results ? begin + TOGETHER : s->results;
        const int64_t span = span_of(s, begin, end, &first);
        s->span = span > s->span ? span : s->span;
    }
    return 0;
}

static int sum_lines(summing *s)
{
    const int64_t products = s->outer * s->results * s->inner * (s->most + 1);
    if (s->inner * s->item >= LINE) {
        const int64_t all = s->outer * s->results;
        s->tasks = tgc_tasks(products, GRAIN, all < MOST_TASKS ? all : MOST_TASKS);
        tgc_parallel(s->tasks, direct_task, s);
        return 0;
    }
    s->lines = LINE / s->item;
    s->blocks = (s->outer + s->lines - 1) / s->lines;
    s->pieces = (s->results + TOGETHER - 1) / TOGETHER;
    const int64_t all = s->blocks * s->pieces;
    s->tasks = tgc_tasks(products, GRAIN, all < MOST_TASKS ? all : MOST_TASKS);
    tgc_parallel(s->tasks, turned_task, s);
    return atomic_load(&s->failed) ? tgc_no_memory("_weighted_lines", (size_t)(s->span * s->inner * LINE)) : 0;
}

static int weighted_lines(const tg_call *call, void *context)
{
    static const int plain[3] = {0, 1, 2};
    const tg_view *x = call->args[0].value.tensors, *runs = call->args[1].value.tensors,
                  *weights = call->args[2].value.tensors, *out = call->outs;
    const int64_t dim = call->args[5].value.i;
    int order[TG_MAX_DIMS];
    void *memory[3] = {NULL, NULL, NULL};
    (void)context;
    if (out->numel == 0)
        return 0;
    for (int d = 0; d < x->ndim; d++)
        order[d] = d;
    if (!dense(out, order)) {
        const int last[4] = {0, 2, 3, 1};
        if (x->ndim != 4)
            return TG_DECLINED;
        memcpy(order, last, sizeof last);
        if (!dense(out, order))
            return TG_DECLINED;
    }
    const int wide = x->dtype == TGC_FLOAT64;
    summing s = {.fold = wide ? fold_f64 : fold_f32, .lanes = wide ? lanes_f64 : lanes_f32, .item = wide ? 8 : 4};
    s.to = out->data;
    s.outer = s.inner = 1;
    s.size = x->shape[dim];
    s.results = out->shape[dim];
    s.most = weights->shape[1];
    for (int k = 0, before = 1; k < x->ndim; k++) {
        if (order[k] == dim)
            before = 0;
        else if (before)
            s.outer *= x->shape[order[k]];
        else
            s.inner *= x->shape[order[k]];
    }
    int result = -1;
    s.x = x->data;
    s.weights = weights->data;
    s.starts = (const int64_t *)in_order_of(runs, plain, &memory[1]);
    if (s.starts != NULL && (x->numel == 0 || (s.x = in_order_of(x, order, &memory[0])) != NULL)
        && (weights->numel == 0 || (s.weights = in_order_of(weights, plain, &memory[2])) != NULL)) {
        s.counts = s.starts + s.results;
        result = measure(&s);
        if (result == 0)
            result = sum_lines(&s);
    }
    for (int i = 0; i < 3; i++)
        if (memory[i] != NULL)
            tgc_scratch_free(memory[i]);
    return result;
}

const tgc_kernel TGC(tgc_table_lines)[] = {
    {"_weighted_lines", "float32", TGC_CALL, weighted_lines, NULL},
    {"_weighted_lines", "float64", TGC_CALL, weighted_lines, NULL},
    {0}};
