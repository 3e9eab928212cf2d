/* Averages of windows in one call, and their adjoint: sums along one dimension after the other, in the order
 * in which `_weighted_lines` adds them, so that both give the same bits. Small volumes are what it is for. */
#include "copies/copying.h"

#include <stdatomic.h>
#include <string.h>

#define GRAIN 16384
#define MOST_TASKS 64
#define SPATIAL 3
#define WITH_PADDING 0

typedef struct {
    int64_t outer, size, results, inner; /* of a plane's elements */
    const int64_t *starts, *counts;
} axis_sums;

#define AV_T float
#define AV(name) name##_f32
#include "averages_rows.h"
#define AV_T double
#define AV(name) name##_f64
#include "averages_rows.h"

typedef struct {
    void (*sum)(void *, const void *, const axis_sums *);
    void (*divide)(void *, const void *, const int64_t *, const int64_t *const *, double);
    const char *x;
    char *to;
    int adjoint;
    int64_t item, planes, tasks, steps, buffer; /* elements of the largest intermediate result */
    int64_t from_area, to_area, outs[SPATIAL];
    axis_sums along[SPATIAL]; /* in the order in which they are taken */
    const int64_t *elements[SPATIAL];
    double divisor;
    atomic_int failed;
} averaging;

static void planes_task(int64_t task, void *context)
{
    averaging *job = context;
    const int64_t end = tgc_begin(job->planes, job->tasks, task + 1, 1), buffer = job->buffer * job->item;
    char *memory = tgc_scratch((size_t)(2 * buffer + 1));
    if (memory == NULL) {
        atomic_store(&job->failed, 1);
        return;
    }
    for (int64_t p = tgc_begin(job->planes, job->tasks, task, 1); p < end; p++) {
        const char *x = job->x + p * job->from_area * job->item;
        char *result = job->to + p * job->to_area * job->item;
        int other = 0;
        if (job->adjoint) {
            char *shares = job->steps ? memory : result;
            job->divide(shares, x, job->outs, job->elements, job->divisor);
            x = shares;
            other = 1;
        }
        for (int64_t s = 0; s < job->steps; s++, other = !other) {
            char *to = s + 1 < job->steps ? memory + other * buffer : result;
            job->sum(to, x, &job->along[s]);
            x = to;
        }
        if (!job->adjoint)
            job->divide(result, x, job->outs, job->elements, job->divisor);
    }
    tgc_scratch_free(memory);
}

/* Where the windows of a dimension begin, how many elements they have inside, and how many they count. */
static void lay(int64_t n, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t divisor,
                int64_t *starts, int64_t *counts, int64_t *elements)
{
    for (int64_t i = 0; i < out; i++) {
        int64_t begin = i * stride - padding, end = begin + kernel, past = n + padding, inside;
        if (kernel == 0) {
            begin = i * n / out;
            end = past = ((i + 1) * n + out - 1) / out;
        }
        end = end < past ? end : past;
        elements[i] = end - begin;
        starts[i] = begin > 0 ? begin : 0;
        inside = (end < n ? end : n) - starts[i];
        counts[i] = inside > 0 ? inside : 0;
        if (counts[i] == 0)
            starts[i] = 0;
        if (kernel != 0 && divisor != WITH_PADDING)
            elements[i] = inside;
    }
}

/* The windows that hold each of n elements: the same matrix, transposed. */
static void turn(int64_t n, int64_t out, const int64_t *starts, const int64_t *counts, int64_t *first, int64_t *many)
{
    memset(first, 0, (size_t)n * sizeof *first);
    memset(many, 0, (size_t)n * sizeof *many);
    for (int64_t i = 0; i < out; i++)
        for (int64_t k = 0; k < counts[i]; k++) {
            const int64_t j = starts[i] + k;
            if (many[j]++ == 0)
                first[j] = i;
        }
}

/* Whether each result is the element in its place. */
static int nothing_moves(const axis_sums *a)
{
    if (a->size != a->results)
        return 0;
    for (int64_t i = 0; i < a->results; i++)
        if (a->counts[i] != 1 || a->starts[i] != i)
            return 0;
    return 1;
}

/* The number that all sums are divided by; 0 where windows have different numbers of elements. */
static double common_divisor(const averaging *job, int64_t given)
{
    double product = 1;
    if (given > 0)
        return (double)given;
    for (int d = 0; d < SPATIAL; d++) {
        for (int64_t i = 1; i < job->outs[d]; i++)
            if (job->elements[d][i] != job->elements[d][0])
                return 0;
        product *= (double)job->elements[d][0];
    }
    return product;
}

/* Fill in the sums of a plane of `sizes`, whose windows make `outs`; tables hold 5 numbers of each place. */
static void plan(averaging *job, const int64_t *sizes, const tg_argument *args, int lead, int64_t *tables)
{
    axis_sums dims[SPATIAL];
    for (int d = 0; d < SPATIAL; d++) {
        const int64_t n = sizes[d], out = job->outs[d];
        const int real = d >= lead, k = d - lead;
        int64_t *starts = tables, *counts = starts + out, *elements = counts + out, *first = elements + out,
                *many = first + n;
        tables = many + n;
        lay(n, out, !real ? 1 : args[2].count ? args[2].value.ints[k] : 0, real ? args[3].value.ints[k] : 1,
            real ? args[4].value.ints[k] : 0, args[5].value.i, starts, counts, elements);
        job->elements[d] = elements;
        dims[d] = (axis_sums){.size = n, .results = out, .starts = starts, .counts = counts};
        if (job->adjoint) {
            turn(n, out, starts, counts, first, many);
            dims[d] = (axis_sums){.size = out, .results = n, .starts = first, .counts = many};
        }
    }
    int64_t shape[SPATIAL];
    for (int d = 0; d < SPATIAL; d++)
        shape[d] = dims[d].size;
    job->buffer = job->adjoint ? job->from_area : 0;
    for (int s = 0; s < SPATIAL; s++) {
        const int d = job->adjoint ? SPATIAL - 1 - s : s;
        axis_sums a = dims[d];
        if (nothing_moves(&a))
            continue;
        a.outer = a.inner = 1;
        for (int e = 0; e < SPATIAL; e++)
            *(e < d ? &a.outer : &a.inner) *= e == d ? 1 : shape[e];
        shape[d] = a.results;
        job->along[job->steps++] = a;
        const int64_t elements = a.outer * a.results * a.inner;
        job->buffer = elements > job->buffer ? elements : job->buffer;
    }
    job->divisor = common_divisor(job, args[5].value.i);
}

/* (self, sizes, kernel_size, stride, padding, divisor): as many sizes as dimensions of a plane. */
static int windows(const tg_call *call, int adjoint)
{
    const char *op = adjoint ? "window_average_backward" : "window_average";
    const tg_argument *args = call->args;
    const tg_view *x = args[0].value.tensors, *out = call->outs;
    const int spatial = (int)args[1].count, lead = SPATIAL - spatial, first = out->ndim - spatial;
    averaging job = {.sum = sum_f32, .divide = divide_f32, .item = 4, .to = out->data, .adjoint = adjoint};
    int64_t sizes[SPATIAL] = {1, 1, 1}, places = 0;
    if (spatial < 1 || spatial > SPATIAL || first < 0 || args[3].count != spatial || args[4].count != spatial
        || (args[2].count != spatial && args[2].count != 0))
        return tgc_error("RuntimeError", "%s: windows have a size or none, a stride and a padding in each of 1 to 3 "
                         "dimensions, got sizes of %d, kernels of %d, strides of %d and paddings of %d", op, spatial,
                         (int)args[2].count, (int)args[3].count, (int)args[4].count);
    if (out->numel == 0)
        return 0;
    if (out->dtype == TGC_FLOAT64)
        job.sum = sum_f64, job.divide = divide_f64, job.item = 8;
    job.planes = job.from_area = job.to_area = 1;
    for (int d = 0; d < first; d++)
        job.planes *= out->shape[d];
    for (int d = 0; d < SPATIAL; d++) {
        const int64_t from = d < lead ? 1 : x->shape[first + d - lead], to = d < lead ? 1 : out->shape[first + d - lead];
        job.from_area *= from;
        job.to_area *= to;
        sizes[d] = adjoint ? to : from;
        job.outs[d] = adjoint ? from : to;
        places += 3 * job.outs[d] + 2 * sizes[d];
    }
    void *memory = NULL;
    int64_t *tables = tgc_scratch((size_t)places * sizeof *tables);
    if (tables == NULL)
        return tgc_no_memory(op, (size_t)places * sizeof *tables);
    plan(&job, sizes, args, lead, tables);
    job.x = x->numel ? tgc_in_order(op, x, &memory, TGC(tgc_move_region)) : (const void *)tables;
    if (job.x != NULL) {
        job.tasks = tgc_tasks(job.planes * (job.from_area + job.to_area) * 2, GRAIN,
                              job.planes < MOST_TASKS ? job.planes : MOST_TASKS);
        tgc_parallel(job.tasks, planes_task, &job);
    }
    tgc_scratch_free(memory);
    tgc_scratch_free(tables);
    if (job.x == NULL)
        return -1;
    return atomic_load(&job.failed) ? tgc_no_memory(op, (size_t)(2 * job.buffer * job.item)) : 0;
}

static int window_average(const tg_call *call, void *context)
{
    (void)context;
    return windows(call, 0);
}

static int window_average_backward(const tg_call *call, void *context)
{
    (void)context;
    return windows(call, 1);
}

const tgc_kernel TGC(tgc_table_averages)[] = {
    {"window_average", "float32", TGC_CALL, window_average, NULL},
    {"window_average", "float64", TGC_CALL, window_average, NULL},
    {"window_average_backward", "float32", TGC_CALL, window_average_backward, NULL},
    {"window_average_backward", "float64", TGC_CALL, window_average_backward, NULL},
    {0}};
