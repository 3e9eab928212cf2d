/* Max pooling without positions, and adaptive max pooling. The rows of the input that a row of
 * windows sees are folded as wholes first, in vectors however narrow windows are; then columns. */
#include "copies/copying.h"
#include "pooling.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define PW_T float
#define PW_N int32_t
#define PW(name) name##_f32
#include "pooling_whole_rows.h"
#define PW_T double
#define PW_N int64_t
#define PW(name) name##_f64
#include "pooling_whole_rows.h"

#define GRAIN 16384
/* Adaptive windows of one size and so few elements are fixed ones, folded tap by tap. */
#define FEW_TAPS 16

typedef struct loops {
    void (*join)(void *, const void *, const void *, int64_t);
    void (*across)(void *, const void *, int64_t, int64_t, int64_t, int64_t);
    void (*edge)(void *, const void *, int64_t, int64_t);
    void (*follow)(void *, void *, const void *, int64_t, int64_t, int);
    void (*run)(void *, int64_t *, const void *, int64_t, int64_t, int64_t);
    void (*pick)(void *, int64_t *, const void *, const void *, int64_t, int64_t, int64_t);
} loops;

static const loops loops_f32 = {join_f32, across_f32, edge_f32, follow_f32, run_f32, pick_f32},
                   loops_f64 = {join_f64, across_f64, edge_f64, follow_f64, run_f64, pick_f64};

typedef struct job {
    const loops *of;
    const tg_view *input, *values, *indices;
    int lead, half, packs; /* `packs`: planes are brought to contiguous rows of the type computed in */
    int64_t item, planes, tasks, area, windows;
    /* Of volumes; pictures and signals have sizes of 1 before. */
    int64_t size[3], out[3], step[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t low, high; /* columns of windows that are inside */
    atomic_int failed;
} job;

static int64_t divide_up(int64_t a, int64_t b)
{
    return a <= 0 ? 0 : (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int prepare(job *j, const tg_call *call, int spatial)
{
    j->input = call->args[0].value.tensors;
    j->values = call->outs;
    j->indices = call->outs + 1;
    j->lead = j->input->ndim - spatial;
    if (spatial > 3)
        return TG_DECLINED;
    const int wide = j->input->dtype == TGC_FLOAT64;
    j->of = wide ? &loops_f64 : &loops_f32;
    j->item = wide ? 8 : 4;
    j->half = !wide && j->input->dtype != TGC_FLOAT32;
    j->packs = j->half || j->input->strides[j->input->ndim - 1] != 1;
    j->planes = j->area = j->windows = 1;
    for (int d = 0; d < j->lead; d++)
        j->planes *= j->input->shape[d];
    for (int d = 2; d >= 0; d--) {
        const int from = d - 3 + spatial;
        j->size[d] = from < 0 ? 1 : j->input->shape[j->lead + from];
        j->out[d] = from < 0 ? 1 : j->values->shape[j->lead + from];
        j->step[d] = from < 0 || j->packs ? j->area : j->input->strides[j->lead + from];
        j->kernel[d] = j->stride[d] = j->dilation[d] = 1;
        j->area *= j->size[d];
        j->windows *= j->out[d];
    }
    return 0;
}

/* Memory of one task: a packed plane, folded rows with their numbers, results before rounding. */
typedef struct memory {
    char *block, *plane, *best, *chosen, *rounded;
} memory;

static int take_memory(job *j, memory *m)
{
    const int64_t row = j->size[2] * j->item, plane = j->packs ? j->area * j->item : 0;
    m->block = tgc_scratch((size_t)(plane + 2 * row + (j->half ? j->windows * j->item : 0)));
    m->plane = m->block;
    m->best = m->block + plane;
    m->chosen = m->best + row;
    m->rounded = m->chosen + row;
    if (m->block == NULL)
        atomic_store(&j->failed, 1);
    return m->block != NULL;
}

static const char *plane_of(const job *j, int64_t plane, const memory *m)
{
    int64_t offset = 0, to[TG_MAX_DIMS], from[TG_MAX_DIMS], below = j->item;
    for (int d = j->lead - 1; d >= 0; d--) {
        offset += plane % j->input->shape[d] * j->input->strides[d];
        plane /= j->input->shape[d];
    }
    const char *x = (const char *)j->input->data + offset * tgc_itemsize[j->input->dtype];
    if (!j->packs)
        return x;
    const int spatial = j->input->ndim - j->lead;
    tgc_byte_strides(j->input, from);
    for (int d = spatial - 1; d >= 0; d--) {
        to[d] = below;
        below *= j->input->shape[j->lead + d];
    }
    TGC(tgc_copy_region)(spatial, j->input->shape + j->lead, m->plane, to, j->half ? TGC_FLOAT32 : j->input->dtype, x,
                         from + j->lead, j->input->dtype);
    return m->plane;
}

/* Where the values of a plane go, and how they come into the tensor. */
static char *values_of(const job *j, int64_t plane, const memory *m)
{
    return j->half ? m->rounded : (char *)j->values->data + plane * j->windows * j->item;
}

static void round_values(const job *j, int64_t plane, const memory *m)
{
    if (j->half)
        TGC(tgc_convert)((char *)j->values->data + plane * j->windows * 2, j->values->dtype, m->rounded, TGC_FLOAT32,
                         j->windows);
}

static int finish(const job *j, int64_t tasks, tgc_task task)
{
    tgc_parallel(tasks, task, (void *)j);
    return atomic_load(&j->failed) ? tgc_no_memory("max_pool", (size_t)(j->area * j->item)) : 0;
}

/* --- values alone ------------------------------------------------------------------------------ */

/* The taps of window `at` of one dimension that are inside. */
static void taps_inside(const job *j, int d, int64_t at, int64_t *low, int64_t *high)
{
    const int64_t first = at * j->stride[d] - j->padding[d];
    if (first >= 0 && first + (j->kernel[d] - 1) * j->dilation[d] < j->size[d]) {
        /* The usual case, without a division. */
        *low = 0;
        *high = j->kernel[d];
        return;
    }
    *low = divide_up(-first, j->dilation[d]);
    *high = least(j->kernel[d], divide_up(j->size[d] - first, j->dilation[d]));
}

static void row_of_windows(const job *j, const char *row, char *to)
{
    const int64_t step = j->stride[2], apart = j->dilation[2], start = -j->padding[2];
    if (j->low < j->high)
        j->of->across(to + j->low * j->item, row + (start + j->low * step) * j->item, j->high - j->low, step, apart,
                      j->kernel[2]);
    for (int64_t i = 0; i < j->out[2]; i++) {
        int64_t from, end;
        if (i == j->low)
            i = j->high;
        if (i == j->out[2])
            break;
        taps_inside(j, 2, i, &from, &end);
        j->of->edge(to + i * j->item, row + (start + i * step + from * apart) * j->item, apart, end - from);
    }
}

static void values_task(int64_t task, void *context)
{
    job *j = context;
    memory m;
    if (!take_memory(j, &m))
        return;
    const int64_t end = tgc_begin(j->planes, j->tasks, task + 1, 1), row = j->item * j->out[2];
    for (int64_t plane = tgc_begin(j->planes, j->tasks, task, 1); plane < end; plane++) {
        const char *x = plane_of(j, plane, &m);
        char *to = values_of(j, plane, &m);
        for (int64_t a = 0; a < j->out[0]; a++)
            for (int64_t b = 0; b < j->out[1]; b++, to += row) {
                int64_t low0, high0, low1, high1;
                const char *folded = NULL;
                taps_inside(j, 0, a, &low0, &high0);
                taps_inside(j, 1, b, &low1, &high1);
                for (int64_t t = low0; t < high0; t++)
                    for (int64_t u = low1; u < high1; u++) {
                        const int64_t z = a * j->stride[0] - j->padding[0] + t * j->dilation[0];
                        const int64_t y = b * j->stride[1] - j->padding[1] + u * j->dilation[1];
                        const char *next = x + (z * j->step[0] + y * j->step[1]) * j->item;
                        if (folded == NULL) {
                            folded = next;
                            continue;
                        }
                        j->of->join(m.best, folded, next, j->size[2]);
                        folded = m.best;
                    }
                if (folded != NULL)
                    row_of_windows(j, folded, to);
                else
                    for (int64_t i = 0; i < j->out[2]; i++)
                        j->of->edge(to + i * j->item, x, 1, 0);
            }
        round_values(j, plane, &m);
    }
    tgc_scratch_free(m.block);
}

static int max_pool_values(const tg_call *call, void *context)
{
    const int spatial = call->args[1].count;
    const tg_argument *args = call->args;
    job j = {0};
    int status;
    (void)context;
    if (call->outs->numel == 0)
        return 0;
    if (TGC(tgc_max_pool_lanes)(args[0].value.tensors, call->outs, NULL, spatial, args[1].value.ints, args[2].value.ints,
                                args[3].value.ints, args[4].value.ints, &status))
        return status;
    if (prepare(&j, call, spatial) != 0)
        return TG_DECLINED;
    for (int d = 0; d < spatial; d++) {
        const int at = d + 3 - spatial;
        j.kernel[at] = call->args[1].value.ints[d];
        j.stride[at] = call->args[2].value.ints[d];
        j.padding[at] = call->args[3].value.ints[d];
        j.dilation[at] = call->args[4].value.ints[d];
    }
    const int64_t reach = j.size[2] + j.padding[2] - (j.kernel[2] - 1) * j.dilation[2];
    j.low = least(j.out[2], divide_up(j.padding[2], j.stride[2]));
    j.high = least(j.out[2], divide_up(reach, j.stride[2]));
    j.high = j.high < j.low ? j.low : j.high;
    j.tasks = tgc_tasks(j.planes * (j.area + j.windows * j.kernel[0] * j.kernel[1]), GRAIN, j.planes);
    return finish(&j, j.tasks, values_task);
}

/* --- adaptive ---------------------------------------------------------------------------------- */

/* Window i is [i n / out, ceil((i + 1) n / out)), without a product that overflows. */
static void window(const job *j, int d, int64_t i, int64_t *first, int64_t *end)
{
    const int64_t whole = j->size[d] / j->out[d], rest = j->size[d] % j->out[d];
    *first = i * whole + i * rest / j->out[d];
    *end = (i + 1) * whole + divide_up((i + 1) * rest, j->out[d]);
}

static void adaptive_task(int64_t task, void *context)
{
    job *j = context;
    memory m;
    if (!take_memory(j, &m))
        return;
    const int64_t end = tgc_begin(j->planes, j->tasks, task + 1, 1), width = j->size[2];
    for (int64_t plane = tgc_begin(j->planes, j->tasks, task, 1); plane < end; plane++) {
        const char *x = plane_of(j, plane, &m);
        char *to = values_of(j, plane, &m);
        int64_t *place = (int64_t *)j->indices->data + plane * j->windows;
        for (int64_t a = 0; a < j->out[0]; a++)
            for (int64_t b = 0; b < j->out[1]; b++) {
                int64_t first0, end0, first1, end1, first, last;
                window(j, 0, a, &first0, &end0);
                window(j, 1, b, &first1, &end1);
                const int single = (end0 - first0) * (end1 - first1) == 1;
                for (int64_t z = first0; z < end0 && !single; z++)
                    for (int64_t y = first1; y < end1; y++)
                        j->of->follow(m.best, m.chosen, x + (z * j->step[0] + y * j->step[1]) * j->item, width,
                                      z * j->size[1] + y, z == first0 && y == first1);
                const char *row = x + (first0 * j->step[0] + first1 * j->step[1]) * j->item;
                for (int64_t i = 0; i < j->out[2]; i++, to += j->item, place++) {
                    window(j, 2, i, &first, &last);
                    if (single)
                        j->of->run(to, place, row, first, last, (first0 * j->size[1] + first1) * width);
                    else
                        j->of->pick(to, place, m.best, m.chosen, first, last, width);
                }
            }
        round_values(j, plane, &m);
    }
    tgc_scratch_free(m.block);
}

static int adaptive_max_pool(const tg_call *call, void *context)
{
    static const int64_t none[3] = {0, 0, 0}, one[3] = {1, 1, 1};
    const int spatial = call->args[1].count;
    int64_t kernel[3], taps = 1;
    int even = 1;
    job j = {0};
    (void)context;
    if (call->outs->numel == 0)
        return 0;
    if (prepare(&j, call, spatial) != 0 || j.size[0] * j.size[1] > INT32_MAX)
        return TG_DECLINED;
    for (int d = 0; d < spatial; d++) {
        const int at = d + 3 - spatial;
        even &= j.size[at] % j.out[at] == 0;
        kernel[d] = j.size[at] / j.out[at];
        taps *= kernel[d];
    }
    if (even && taps <= FEW_TAPS)
        return TGC(tgc_max_pool)(j.input, call->outs, spatial, kernel, kernel, none, one);
    j.tasks = tgc_tasks(j.planes * (j.area + j.windows), GRAIN, j.planes);
    return finish(&j, j.tasks, adaptive_task);
}

const tgc_kernel TGC(tgc_table_pooling_whole)[] = {
    {"max_pool_values", "float32", TGC_CALL, max_pool_values, NULL},
    {"max_pool_values", "float64", TGC_CALL, max_pool_values, NULL},
    {"max_pool_values", "float16", TGC_CALL, max_pool_values, NULL},
    {"max_pool_values", "bfloat16", TGC_CALL, max_pool_values, NULL},
    {"adaptive_max_pool", "float32", TGC_CALL, adaptive_max_pool, NULL},
    {"adaptive_max_pool", "float64", TGC_CALL, adaptive_max_pool, NULL},
    {"adaptive_max_pool", "float16", TGC_CALL, adaptive_max_pool, NULL},
    {"adaptive_max_pool", "bfloat16", TGC_CALL, adaptive_max_pool, NULL},
    {0}};
