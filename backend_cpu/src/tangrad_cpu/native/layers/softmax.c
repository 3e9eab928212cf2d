/* Softmax, log-softmax and their gradients, each in one pass over rows that fit the cache.
 *
 * Contiguous rows are worked on in place, those of halves in a buffer. Short rows and rows along
 * another dimension go through a buffer in which every lane is a row, so that all are vectorised. */
#include "half.h"
#include "row_sum.h"
#include "softmax.h"
#include "stream.h"
#include "tgc.h"
#include "vmath/vmath.h"

#include <math.h>
#include <stdatomic.h>

enum { SOFTMAX, LOG_SOFTMAX, SOFTMAX_GRADIENT, LOG_SOFTMAX_GRADIENT };

#define MOST_LANES 256
#define SM_LANES 64
#define SM_STEP 16
#define SM_BLOCK 4096
/* Rows that are worked on together, where so many bytes of them stay in the first-level cache. */
#define SM_ROWS 16
#define TOGETHER 16384
/* Rows shorter than this share vectors. */
#define SHORT 32
/* Elements of a buffer of lanes, and of a task. */
#define BUFFER 32768
#define GRAIN 16384
/* Bytes of a row that is held back to be stored past the caches. */
#define HELD_MOST ((int64_t)256 << 10)

#define SM_T float
#define SM(name) name##_f32
#define SM_EXP tgc_exp_f32
#include "softmax_rows.h"
#define SM_T double
#define SM(name) name##_f64
#define SM_EXP tgc_exp_f64
#include "softmax_rows.h"

#define MOST_VIEWS 3

typedef struct job {
    int kind, views;
    int32_t dtype;
    const char *data[MOST_VIEWS]; /* the last is the output */
    int64_t n, step[MOST_VIEWS];
    int ndim;
    int64_t shape[TG_MAX_DIMS], strides[MOST_VIEWS][TG_MAX_DIMS]; /* of the other dimensions, the lanes last */
    int64_t lanes, lane_step[MOST_VIEWS];
    int64_t tasks, units, width;
    int direct, streamed;
    atomic_int failed;
} job;

static int64_t offset_of(const job *j, int view, int64_t position)
{
    int64_t offset = 0;
    for (int d = j->ndim - 1; d > 0; d--) {
        offset += position % j->shape[d] * j->strides[view][d];
        position /= j->shape[d];
    }
    return j->ndim ? offset + position * j->strides[view][0] : 0;
}

/* Copy n rows of lanes between memory of any strides and dtype and a buffer of the type computed in. */
#define COPY(memory, type, load, store)                                                                                \
    for (int64_t r = 0; r < n; r++)                                                                                    \
        for (int64_t k = 0; k < cols; k++) {                                                                           \
            memory *at = (memory *)data + r * step + k * lane_step;                                                    \
            type *held = (type *)buffer + r * cols + k;                                                                \
            if (into)                                                                                                  \
                *held = load(*at);                                                                                     \
            else                                                                                                       \
                *at = store(*held);                                                                                    \
        }

#define AS_IT_IS(x) (x)

static void copy_lanes(int32_t dtype, int into, char *buffer, char *data, int64_t n, int64_t step, int64_t cols,
                       int64_t lane_step)
{
    if (dtype == TGC_FLOAT32) {
        COPY(float, float, AS_IT_IS, AS_IT_IS)
    } else if (dtype == TGC_FLOAT64) {
        COPY(double, double, AS_IT_IS, AS_IT_IS)
    } else if (dtype == TGC_FLOAT16) {
        COPY(uint16_t, float, tgc_f16_to_float, tgc_float_to_f16)
    } else {
        COPY(uint16_t, float, tgc_bf16_to_float, tgc_float_to_bf16)
    }
}

static void rows_task(int64_t task, void *context)
{
    job *j = context;
    int64_t begin = tgc_begin(j->units, j->tasks, task, 1), end = tgc_begin(j->units, j->tasks, task + 1, 1);
    int last = j->views - 1;
    int64_t item = tgc_itemsize[j->dtype];
    char *held = j->streamed ? tgc_scratch((size_t)(j->n * item)) : NULL; /* without it nothing is streamed */
    for (int64_t row = begin; row < end; row++) {
        const char *a = j->data[0] + offset_of(j, 0, row) * item;
        const char *b = last > 1 ? j->data[1] + offset_of(j, 1, row) * item : NULL;
        char *target = (char *)j->data[last] + offset_of(j, last, row) * item, *out = held != NULL ? held : target;
        if (j->dtype == TGC_FLOAT32)
            row_f32(j->kind, (const float *)a, (const float *)b, (float *)out, j->n);
        else
            row_f64(j->kind, (const double *)a, (const double *)b, (double *)out, j->n);
        if (held != NULL)
            tgc_stream(target, held, j->n * item);
    }
    if (held != NULL)
        tgc_stream_end();
    tgc_scratch_free(held);
}

static void log_softmax_task(int64_t task, void *context)
{
    job *j = context;
    const int64_t begin = tgc_begin(j->units, j->tasks, task, 1), end = tgc_begin(j->units, j->tasks, task + 1, 1);
    const int64_t item = tgc_itemsize[j->dtype];
    for (int64_t row = begin; row < end; row += SM_ROWS) {
        const int count = (int)(end - row < SM_ROWS ? end - row : SM_ROWS);
        const void *given[SM_ROWS];
        void *outs[SM_ROWS];
        for (int r = 0; r < count; r++) {
            given[r] = j->data[0] + offset_of(j, 0, row + r) * item;
            outs[r] = (char *)j->data[1] + offset_of(j, 1, row + r) * item;
        }
        (j->dtype == TGC_FLOAT32 ? log_softmax_rows_f32 : log_softmax_rows_f64)(given, outs, count, j->n);
    }
}

static void halves_task(int64_t task, void *context)
{
    job *j = context;
    const int64_t begin = tgc_begin(j->units, j->tasks, task, 1), end = tgc_begin(j->units, j->tasks, task + 1, 1);
    const int64_t n = j->n, last = j->views - 1;
    float *buffer = tgc_scratch((size_t)(n * j->views) * sizeof *buffer);
    if (buffer == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        for (int v = 0; v < last; v++) {
            const uint16_t *from = (const uint16_t *)j->data[v] + offset_of(j, v, row);
            (j->dtype == TGC_FLOAT16 ? tgc_f16_to_floats : tgc_bf16_to_floats)(buffer + v * n, from, n);
        }
        row_f32(j->kind, buffer, last > 1 ? buffer + n : NULL, buffer + last * n, n);
        uint16_t *to = (uint16_t *)j->data[last] + offset_of(j, (int)last, row);
        (j->dtype == TGC_FLOAT16 ? tgc_floats_to_f16 : tgc_floats_to_bf16)(to, buffer + last * n, n);
    }
    tgc_scratch_free(buffer);
}

/* Units are groups of lanes of one outer position. */
static void lanes_task(int64_t task, void *context)
{
    job *j = context;
    int64_t begin = tgc_begin(j->units, j->tasks, task, 1), end = tgc_begin(j->units, j->tasks, task + 1, 1);
    int64_t groups = (j->lanes + j->width - 1) / j->width, item = tgc_itemsize[j->dtype];
    int wide = j->dtype == TGC_FLOAT64, last = j->views - 1;
    size_t bytes = (size_t)(j->n * j->width) * (wide ? 8 : 4);
    char *buffer = j->direct ? NULL : tgc_scratch(bytes * (size_t)j->views);
    if (buffer == NULL && !j->direct) {
        atomic_store(&j->failed, 1);
        return;
    }
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t at = unit % groups * j->width, cols = j->lanes - at < j->width ? j->lanes - at : j->width;
        char *data[MOST_VIEWS];
        int64_t step[MOST_VIEWS];
        for (int v = 0; v <= last; v++) {
            data[v] = (char *)j->data[v] + (offset_of(j, v, unit / groups) + at * j->lane_step[v]) * item;
            step[v] = j->step[v];
        }
        char *target = data[last];
        if (!j->direct) {
            for (int v = 0; v < last; v++) {
                copy_lanes(j->dtype, 1, buffer + v * bytes, data[v], j->n, step[v], cols, j->lane_step[v]);
                data[v] = buffer + v * bytes;
                step[v] = cols;
            }
            data[last] = buffer + last * bytes;
            step[last] = cols;
        }
        const char *second = last > 1 ? data[1] : data[0];
        int64_t second_step = last > 1 ? step[1] : step[0];
        if (wide)
            lanes_f64(j->kind, (const double *)data[0], step[0], (const double *)second, second_step,
                      (double *)data[last], step[last], j->n, cols);
        else
            lanes_f32(j->kind, (const float *)data[0], step[0], (const float *)second, second_step,
                      (float *)data[last], step[last], j->n, cols);
        if (!j->direct)
            copy_lanes(j->dtype, 0, data[last], target, j->n, j->step[last], cols, j->lane_step[last]);
    }
    tgc_scratch_free(buffer);
}

static int along(int kind, const tg_view *const *view, int views, int64_t dim)
{
    const int last = views - 1;
    const int64_t numel = view[last]->numel;
    job j = {.kind = kind, .views = views};
    j.dtype = view[0]->dtype;
    if (numel == 0)
        return 0;
    j.n = 1;
    j.lanes = 1;
    for (int v = 0; v < views; v++) {
        j.data[v] = view[v]->data;
        j.step[v] = 1;
        j.lane_step[v] = 1;
    }
    int contiguous = 1;
    for (int d = 0; d < view[last]->ndim; d++) {
        if (d == dim) {
            j.n = view[last]->shape[d];
            for (int v = 0; v < views; v++)
                j.step[v] = j.n == 1 ? 1 : view[v]->strides[d];
            continue;
        }
        if (view[last]->shape[d] == 1)
            continue;
        int merges = j.ndim > 0;
        for (int v = 0; merges && v < views; v++)
            merges = j.strides[v][j.ndim - 1] == view[v]->strides[d] * view[last]->shape[d];
        int at = merges ? j.ndim - 1 : j.ndim++;
        j.shape[at] = merges ? j.shape[at] * view[last]->shape[d] : view[last]->shape[d];
        for (int v = 0; v < views; v++)
            j.strides[v][at] = view[v]->strides[d];
    }
    for (int v = 0; v < views; v++)
        contiguous &= j.step[v] == 1;
    const int full = j.dtype == TGC_FLOAT32 || j.dtype == TGC_FLOAT64;
    const int rows = contiguous && (j.n >= SHORT || (numel == j.n && j.n >= SM_STEP));
    if (rows && !full) {
        j.units = numel / j.n;
        j.tasks = tgc_tasks(numel, GRAIN, j.units);
        tgc_parallel(j.tasks, halves_task, &j);
        return atomic_load(&j.failed) ? tgc_no_memory("softmax", (size_t)(j.n * views) * sizeof(float)) : 0;
    }
    if (rows) {
        int64_t row = j.n * tgc_itemsize[j.dtype];
        j.streamed = tgc_streams(j.data[last], numel / j.n * row) && row % 64 == 0 && row <= HELD_MOST
                     && view[last]->strides[dim] == 1;
        for (int d = 0; d < j.ndim; d++)
            j.streamed &= j.strides[last][d] * tgc_itemsize[j.dtype] % 64 == 0;
        j.units = numel / j.n;
        j.tasks = tgc_tasks(numel, GRAIN, j.units);
        const int together = j.kind == LOG_SOFTMAX && !j.streamed && j.n * tgc_itemsize[j.dtype] <= TOGETHER / SM_ROWS;
        tgc_parallel(j.tasks, together ? log_softmax_task : rows_task, &j);
        return 0;
    }
    j.direct = full;
    if (j.ndim) {
        j.ndim--;
        j.lanes = j.shape[j.ndim];
        for (int v = 0; v < views; v++)
            j.lane_step[v] = j.strides[v][j.ndim];
    }
    for (int v = 0; v < views; v++)
        j.direct &= j.lane_step[v] == 1;
    /* Rows of memory are read in long pieces, even if all of them leave the cache in between. */
    j.width = j.direct || BUFFER / j.n > MOST_LANES ? MOST_LANES : BUFFER / j.n < 16 ? 16 : BUFFER / j.n;
    j.width = j.width < j.lanes ? j.width : j.lanes;
    j.units = numel / j.n / j.lanes * ((j.lanes + j.width - 1) / j.width);
    j.tasks = tgc_tasks(numel, GRAIN, j.units);
    tgc_parallel(j.tasks, lanes_task, &j);
    return atomic_load(&j.failed) ? tgc_no_memory("softmax", (size_t)(j.n * j.width) * 8) : 0;
}

static int softmax(const tg_call *call, void *context)
{
    const int kind = (int)(intptr_t)context, last = kind >= SOFTMAX_GRADIENT ? 2 : 1;
    const tg_view *view[MOST_VIEWS];
    for (int v = 0; v < last; v++)
        view[v] = &call->args[v].value.tensors[0];
    view[last] = &call->outs[0];
    return along(kind, view, last + 1, call->args[last].value.i);
}

int TGC(tgc_log_softmax)(const tg_view *from, const tg_view *to, int64_t dim)
{
    return along(LOG_SOFTMAX, (const tg_view *const[]){from, to}, 2, dim);
}

typedef struct class_job {
    const tg_view *grad, *logs, *target, *out;
    int64_t ignored, tasks;
    int streamed;
} class_job;

static void class_gradient_task(int64_t task, void *context)
{
    const class_job *j = context;
    const int64_t rows = j->target->numel, n = j->logs->shape[1], item = tgc_itemsize[j->logs->dtype];
    const int64_t begin = tgc_begin(rows, j->tasks, task, 1), end = tgc_begin(rows, j->tasks, task + 1, 1);
    for (int64_t row = begin; row < end; row++) {
        const int64_t class = ((const int64_t *)j->target->data)[row * j->target->strides[0]];
        const int64_t counted = class == j->ignored ? -1 : class;
        const char *grad = (const char *)j->grad->data + row * j->grad->strides[0] * item;
        const char *logs = (const char *)j->logs->data + row * n * item;
        char *out = (char *)j->out->data + row * n * item;
        if (j->logs->dtype == TGC_FLOAT32)
            class_gradient_row_f32(*(const float *)grad, (const float *)logs, counted, (float *)out, n, j->streamed);
        else
            class_gradient_row_f64(*(const double *)grad, (const double *)logs, counted, (double *)out, n, j->streamed);
    }
    if (j->streamed)
        tgc_stream_end();
}

int TGC(tgc_class_gradient)(const tg_view *grad, const tg_view *logs, const tg_view *target, int64_t ignored,
                            const tg_view *out)
{
    class_job j = {.grad = grad, .logs = logs, .target = target, .out = out, .ignored = ignored};
    if (out->numel == 0)
        return 0;
    const int64_t item = tgc_itemsize[out->dtype];
    j.streamed = tgc_streams(out->data, out->numel * item) && logs->shape[1] * item % 64 == 0;
    j.tasks = tgc_tasks(out->numel, GRAIN, target->numel);
    tgc_parallel(j.tasks, class_gradient_task, &j);
    return 0;
}

#define FOR_DTYPE(dtype)                                                                                               \
    {"_softmax", dtype, TGC_CALL, softmax, (const void *)SOFTMAX},                                                     \
        {"_log_softmax", dtype, TGC_CALL, softmax, (const void *)LOG_SOFTMAX},                                         \
        {"_softmax_backward_data", dtype, TGC_CALL, softmax, (const void *)SOFTMAX_GRADIENT},                          \
        {"_log_softmax_backward_data", dtype, TGC_CALL, softmax, (const void *)LOG_SOFTMAX_GRADIENT}

const tgc_kernel TGC(tgc_table_softmax)[] = {
    FOR_DTYPE("float32"),
    FOR_DTYPE("float64"),
    FOR_DTYPE("float16"),
    FOR_DTYPE("bfloat16"),
    {0}};
