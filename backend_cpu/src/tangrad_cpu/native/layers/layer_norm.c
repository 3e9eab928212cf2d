/* Layer normalization and its gradient: all that is known of a row in one visit. */
#include "copies/copying.h"
#include "half.h"
#include "row_sum.h"
#include "tgc.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define LANES 64
#define LN_NARROW 16
#define ABREAST 16
#define BLOCK 4096
#define GRAIN 16384
/* Tasks of a gradient: each has its own sums over rows, which are added in order. */
#define MOST_PARTS 16

/* ABREAST rows of a tensor: where each begins. */
typedef struct side {
    char *data;
    int64_t places[ABREAST];
} side;

#define LN_T float
#define LN(name) name##_f32
#include "layer_norm_rows.h"
#define LN_T double
#define LN(name) name##_f64
#include "layer_norm_rows.h"

/* Rows of a tensor whose last dimensions are normalized. */
typedef struct rows {
    const tg_view *view;
    int lead;
    int contiguous;
    int64_t step; /* from row to row, where that is the same everywhere; else 0 */
} rows;

typedef struct job {
    rows x, g, out;
    const tg_view *mean, *rstd;
    const void *weight, *bias; /* of the type computed in */
    int wide;
    double eps;
    int64_t n, count, tasks;
    double *sums;
    atomic_int failed;
} job;

static int64_t step_of(const tg_view *view, int lead)
{
    int64_t step = 0, expected = 0;
    for (int d = lead - 1; d >= 0; d--) {
        if (view->shape[d] == 1)
            continue;
        if (step == 0)
            step = view->strides[d];
        else if (view->strides[d] != expected)
            return 0;
        expected = view->strides[d] * view->shape[d];
    }
    return step;
}

static rows rows_of(const tg_view *view, int inner, int wide)
{
    rows r = {view, view->ndim - inner, view->dtype == TGC_FLOAT32 || wide, step_of(view, view->ndim - inner)};
    int64_t expected = 1;
    for (int d = view->ndim - 1; d >= r.lead; d--) {
        r.contiguous &= view->shape[d] == 1 || view->strides[d] == expected;
        expected *= view->shape[d];
    }
    return r;
}

static int64_t lead_offset(const rows *r, int64_t row)
{
    int64_t offset = row * r->step;
    for (int d = r->lead - 1; d >= 0 && r->step == 0; d--) {
        offset += row % r->view->shape[d] * r->view->strides[d];
        row /= r->view->shape[d];
    }
    return offset;
}

static double get(const tg_view *view, int64_t offset)
{
    const char *at = (const char *)view->data + offset * tgc_itemsize[view->dtype];
    if (view->dtype == TGC_FLOAT32)
        return *(const float *)at;
    if (view->dtype == TGC_FLOAT64)
        return *(const double *)at;
    const uint16_t half = *(const uint16_t *)at;
    return view->dtype == TGC_FLOAT16 ? tgc_f16_to_float(half) : tgc_bf16_to_float(half);
}

static void put(const tg_view *view, int64_t offset, double value)
{
    char *at = (char *)view->data + offset * tgc_itemsize[view->dtype];
    if (view->dtype == TGC_FLOAT32)
        *(float *)at = (float)value;
    else if (view->dtype == TGC_FLOAT64)
        *(double *)at = value;
    else
        *(uint16_t *)at = view->dtype == TGC_FLOAT16 ? tgc_float_to_f16((float)value) : tgc_float_to_bf16((float)value);
}

static int64_t inner_offset(const tg_view *view, int lead, int64_t position)
{
    int64_t offset = 0;
    for (int d = view->ndim - 1; d >= lead; d--) {
        offset += position % view->shape[d] * view->strides[d];
        position /= view->shape[d];
    }
    return offset;
}

static void load_row(const tg_view *view, int lead, int64_t offset, int64_t n, void *to, int wide)
{
    const uint16_t *half = (const uint16_t *)view->data + offset;
    int dense = view->ndim == lead + 1 && view->strides[lead] == 1;
    if (dense && view->dtype == TGC_FLOAT16)
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = tgc_f16_to_float(half[i]);
    else if (dense && view->dtype == TGC_BFLOAT16)
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = tgc_bf16_to_float(half[i]);
    else
        for (int64_t i = 0; i < n; i++) {
            double value = get(view, offset + inner_offset(view, lead, i));
            if (wide)
                ((double *)to)[i] = value;
            else
                ((float *)to)[i] = (float)value;
        }
}

/* A row as numbers to compute with: in its place, or copied to `buffer`. */
static const void *row_of(const rows *r, int64_t row, int64_t n, void *buffer, int wide)
{
    int64_t offset = lead_offset(r, row);
    if (r->contiguous)
        return (const char *)r->view->data + offset * tgc_itemsize[r->view->dtype];
    load_row(r->view, r->lead, offset, n, buffer, wide);
    return buffer;
}

static void store_row(const rows *r, int64_t row, int64_t n, const void *from, int wide)
{
    int64_t offset = lead_offset(r, row);
    const tg_view *view = r->view;
    uint16_t *half = (uint16_t *)view->data + offset;
    int dense = view->ndim == r->lead + 1 && view->strides[r->lead] == 1;
    if (dense && view->dtype == TGC_FLOAT16)
        for (int64_t i = 0; i < n; i++)
            half[i] = tgc_float_to_f16(((const float *)from)[i]);
    else if (dense && view->dtype == TGC_BFLOAT16)
        for (int64_t i = 0; i < n; i++)
            half[i] = tgc_float_to_bf16(((const float *)from)[i]);
    else
        for (int64_t i = 0; i < n; i++)
            put(view, offset + inner_offset(view, r->lead, i),
                wide ? ((const double *)from)[i] : (double)((const float *)from)[i]);
}

/* Whether the rows of all operands can be used in place. */
static int in_place(const job *j)
{
    return j->x.contiguous && j->out.contiguous && (j->g.view == NULL || j->g.contiguous);
}

static side side_of(const rows *r, int64_t row, int64_t count)
{
    side s = {.data = r->view->data};
    if (r->step != 0)
        for (int64_t k = 0; k < ABREAST; k++)
            s.places[k] = (row + k) * r->step;
    else
        for (int64_t k = 0; k < count; k++)
            s.places[k] = lead_offset(r, row + k);
    return s;
}

/* Rows that are too short for lanes of their own. */
static void norm_narrow(const job *j, const rows *means, const rows *rstds, int64_t begin, int64_t end, double *sums)
{
    const int64_t n = j->n;
    for (int64_t row = begin; row < end; row += ABREAST) {
        const int64_t count = row + ABREAST < end ? ABREAST : end - row;
        const side x = side_of(&j->x, row, count), out = side_of(&j->out, row, count);
        const side of_means = side_of(means, row, count), of_rstds = side_of(rstds, row, count);
        double mean[ABREAST] = {0}, rstd[ABREAST] = {0};
        if (sums == NULL) {
            if (j->wide)
                forward_abreast_f64(&x, &out, count, j->weight, j->bias, n, j->eps, mean, rstd);
            else
                forward_abreast_f32(&x, &out, count, j->weight, j->bias, n, j->eps, mean, rstd);
            for (int64_t k = 0; k < count; k++) {
                put(j->mean, of_means.places[k], mean[k]);
                put(j->rstd, of_rstds.places[k], rstd[k]);
            }
            continue;
        }
        const side g = side_of(&j->g, row, count);
        for (int64_t k = 0; k < count; k++) {
            mean[k] = get(j->mean, of_means.places[k]);
            rstd[k] = get(j->rstd, of_rstds.places[k]);
        }
        if (j->wide)
            backward_abreast_f64(&g, &x, &out, count, j->weight, n, mean, rstd, sums, sums + n);
        else
            backward_abreast_f32(&g, &x, &out, count, j->weight, n, mean, rstd, sums, sums + n);
    }
}

static void norm_task(int64_t task, void *context)
{
    job *j = context;
    int64_t begin = tgc_begin(j->count, j->tasks, task, 1), end = tgc_begin(j->count, j->tasks, task + 1, 1);
    int64_t n = j->n, item = j->wide ? 8 : 4;
    char *buffer = NULL;
    if (!in_place(j)) {
        buffer = tgc_scratch((size_t)(3 * n * item));
        if (buffer == NULL) {
            atomic_store(&j->failed, 1);
            return;
        }
    }
    const int lead = j->x.lead;
    rows means = {j->mean, lead, 0, step_of(j->mean, lead)}, rstds = {j->rstd, lead, 0, step_of(j->rstd, lead)};
    double *sums = j->sums == NULL ? NULL : j->sums + 2 * n * task;
    if (sums != NULL)
        memset(sums, 0, (size_t)(2 * n) * sizeof(double));
    if (n <= LN_NARROW && in_place(j)) {
        norm_narrow(j, &means, &rstds, begin, end, sums);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        const void *x = row_of(&j->x, row, n, buffer, j->wide);
        int direct = j->out.contiguous;
        void *out = direct ? (char *)j->out.view->data + lead_offset(&j->out, row) * item : buffer + 2 * n * item;
        int64_t at_mean = lead_offset(&means, row), at_rstd = lead_offset(&rstds, row);
        double mean, rstd;
        if (sums == NULL) {
            if (j->wide)
                forward_f64(x, j->weight, j->bias, out, n, j->eps, &mean, &rstd);
            else
                forward_f32(x, j->weight, j->bias, out, n, j->eps, &mean, &rstd);
            put(j->mean, at_mean, mean);
            put(j->rstd, at_rstd, rstd);
        } else {
            const void *g = row_of(&j->g, row, n, buffer + (buffer == NULL ? 0 : n * item), j->wide);
            mean = get(j->mean, at_mean);
            rstd = get(j->rstd, at_rstd);
            if (j->wide)
                backward_f64(g, x, j->weight, out, n, mean, rstd, sums, sums + n);
            else
                backward_f32(g, x, j->weight, out, n, mean, rstd, sums, sums + n);
        }
        if (!direct)
            store_row(&j->out, row, n, out, j->wide);
    }
    tgc_scratch_free(buffer);
}

static void *loaded(const tg_argument *argument, int64_t n, int wide, void *to)
{
    if (argument->kind != TG_ARG_TENSOR)
        return NULL;
    load_row(&argument->value.tensors[0], 0, 0, n, to, wide);
    return to;
}

/* Rows whose elements lie apart are brought together all at once: each by itself would fetch the cache lines of
 * others anew. Returns 0 where there is no memory. */
static int together(tg_view *view, int64_t *strides, void **memory)
{
    const int last = view->ndim - 1;
    int64_t from[TG_MAX_DIMS], to[TG_MAX_DIMS], item = tgc_itemsize[view->dtype], step = 1;
    if (view->numel == 0 || view->shape[last] == 1 || view->strides[last] == 1)
        return 1;
    tgc_byte_strides(view, from);
    for (int d = last; d >= 0; d--) {
        strides[d] = step;
        to[d] = step * item;
        step *= view->shape[d];
    }
    *memory = tgc_scratch((size_t)(view->numel * item));
    if (*memory == NULL)
        return 0;
    TGC(tgc_move_region)(view->ndim, view->shape, *memory, to, view->data, from, (int)item);
    view->data = *memory;
    view->strides = strides;
    return 1;
}

static int run_forward(const tg_call *call, void *context)
{
    tg_view copy = call->args[0].value.tensors[0];
    const tg_view *x = &copy;
    int64_t strides[TG_MAX_DIMS];
    void *memory = NULL;
    job j = {.mean = &call->outs[1], .rstd = &call->outs[2], .eps = call->args[4].value.f, .n = 1};
    (void)context;
    if (call->args[4].kind == TG_ARG_INT)
        j.eps = (double)call->args[4].value.i;
    int inner = call->args[1].count;
    for (int d = 0; d < inner; d++)
        j.n *= call->args[1].value.ints[d];
    j.wide = x->dtype == TGC_FLOAT64;
    if (x->numel == 0) {
        for (int64_t i = 0; i < j.mean->numel; i++) {
            put(j.mean, inner_offset(j.mean, 0, i), 0);
            put(j.rstd, inner_offset(j.rstd, 0, i), 0);
        }
        return 0;
    }
    j.count = x->numel / j.n;
    size_t bytes = (size_t)(2 * j.n) * (j.wide ? 8 : 4);
    char *parameters = tgc_scratch(bytes);
    if (parameters == NULL || !together(&copy, strides, &memory)) {
        tgc_scratch_free(parameters);
        return tgc_no_memory("native_layer_norm", bytes);
    }
    j.x = rows_of(x, inner, j.wide);
    j.out = rows_of(&call->outs[0], inner, j.wide);
    j.weight = loaded(&call->args[2], j.n, j.wide, parameters);
    j.bias = loaded(&call->args[3], j.n, j.wide, parameters + bytes / 2);
    j.tasks = tgc_tasks(x->numel, GRAIN, j.count);
    tgc_parallel(j.tasks, norm_task, &j);
    tgc_scratch_free(memory);
    tgc_scratch_free(parameters);
    return atomic_load(&j.failed) ? tgc_no_memory("native_layer_norm", bytes) : 0;
}

/* Write the sum over all parts of one of their two rows of sums. */
static void write_sums(const tg_view *out, const job *j, int which)
{
    for (int64_t i = 0; i < j->n; i++) {
        double total = 0;
        for (int64_t part = 0; part < j->tasks; part++)
            total += j->sums[(2 * part + which) * j->n + i];
        put(out, inner_offset(out, 0, i), total);
    }
}

static int run_backward(const tg_call *call, void *context)
{
    tg_view copies[2] = {call->args[0].value.tensors[0], call->args[1].value.tensors[0]};
    const tg_view *g = &copies[0], *x = &copies[1];
    int64_t strides[2][TG_MAX_DIMS];
    void *rows[2] = {NULL, NULL};
    job j = {.mean = &call->args[3].value.tensors[0], .rstd = &call->args[4].value.tensors[0], .n = 1};
    (void)context;
    int inner = call->args[2].count;
    for (int d = 0; d < inner; d++)
        j.n *= call->args[2].value.ints[d];
    j.wide = x->dtype == TGC_FLOAT64;
    j.count = j.n ? x->numel / j.n : 0;
    j.tasks = tgc_tasks(x->numel, GRAIN, j.count < MOST_PARTS ? j.count : MOST_PARTS);
    j.tasks = j.count ? j.tasks : 0;
    size_t each = (size_t)j.n * sizeof(double), bytes = each * (size_t)(2 * j.tasks + 1);
    char *memory = tgc_scratch(bytes);
    int found = memory != NULL;
    for (int i = 0; i < 2 && found; i++)
        found = together(&copies[i], strides[i], &rows[i]);
    if (!found) {
        tgc_scratch_free(rows[0]);
        tgc_scratch_free(memory);
        return tgc_no_memory("native_layer_norm_backward", bytes);
    }
    j.sums = (double *)(memory + each);
    j.weight = loaded(&call->args[5], j.n, j.wide, memory);
    j.x = rows_of(x, inner, j.wide);
    j.g = rows_of(g, inner, j.wide);
    j.out = rows_of(&call->outs[0], inner, j.wide);
    tgc_parallel(j.tasks, norm_task, &j);
    write_sums(&call->outs[1], &j, 0);
    write_sums(&call->outs[2], &j, 1);
    for (int i = 0; i < 2; i++)
        tgc_scratch_free(rows[i]);
    tgc_scratch_free(memory);
    return atomic_load(&j.failed) ? tgc_no_memory("native_layer_norm_backward", bytes) : 0;
}

#define FOR_DTYPE(dtype)                                                                                               \
    {"native_layer_norm", dtype, TGC_CALL, run_forward, NULL},                                                         \
        {"native_layer_norm_backward", dtype, TGC_CALL, run_backward, NULL}

const tgc_kernel TGC(tgc_table_layer_norm)[] = {
    FOR_DTYPE("float32"),
    FOR_DTYPE("float64"),
    FOR_DTYPE("float16"),
    FOR_DTYPE("bfloat16"),
    {0}};
