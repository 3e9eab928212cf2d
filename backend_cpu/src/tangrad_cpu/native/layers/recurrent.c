/* A recurrent layer over its sequences, and the gradient. What enters comes multiplied by the input
 * weight; each step multiplies the state by the hidden weight, of which panels are packed once.
 * Sequences do not meet: a task takes some of them from the first step to the last. */
#include "gemm/engine.h"
#include "gemm/simd.h"
#include "vmath/vmath.h"

#include <stdatomic.h>
#include <string.h>

/* Fewer steps do not pay for packing the weight. */
#define PACKED_STEPS 4
#define TASK_PRODUCTS (1 << 20)
#define MOST_TASKS 16
#define ROW_PANELS 4 /* that one row is multiplied with at once */

enum { RNN_TANH, RNN_RELU, LSTM, GRU };

typedef int (*product)(const tgc_gemm *g);

/* Rows of a tensor by time and sequence: at `data + start of the time * time + sequence * row`. */
typedef struct grid {
    char *data;
    int64_t time, row, column;
} grid;

typedef struct job {
    int mode, backwards;
    int64_t steps, batch, hidden, gates, tasks, size;
    const int64_t *sizes; /* of the batch at each time; NULL: all */
    int64_t *starts;      /* what a time is counted by: its number, or rows before it */
    grid entering, output, kept, by_output;
    const tg_view *states, *last, *by_states;
    const char *bias;
    const tgc_engine *engine;
    product multiply;
    tgc_gemm g; /* the step's product, but for its rows */
    char *panels;
    int64_t panel_bytes;
    atomic_int failed;
} job;

static grid grid_of(const tg_view *view, int packed)
{
    return (grid){view->data, view->strides[0], view->strides[!packed], view->strides[view->ndim - 1]};
}

static void *place(const job *j, const grid *of, int64_t t, int64_t sequence)
{
    return of->data + (j->starts[t] * of->time + sequence * of->row) * j->size;
}

/* How many of m sequences have an element at a time. */
static int64_t running(const job *j, int64_t t, int64_t first, int64_t m)
{
    const int64_t n = j->sizes == NULL ? m : j->sizes[t] - first;
    return n < 0 ? 0 : n < m ? n : m;
}

static int multiply(const job *j, int64_t rows, const void *a, int64_t a_row, void *c, int64_t c_row, int accumulate);

#define RC_T float
#define RC(name) name##_f32
#define RC_V tgc_vf
#define RC_FMA tgc_fma_f
#define RC_SIGMOID tgc_sigmoid_f32
#define RC_TANH tgc_tanh_f32
typedef tgc_vf_unaligned vector_f32;
#include "recurrent_rows.h"
#define RC_T double
#define RC(name) name##_f64
#define RC_V tgc_vd
#define RC_FMA tgc_fma_d
#define RC_SIGMOID tgc_sigmoid_f64
#define RC_TANH tgc_tanh_f64
typedef tgc_vd_unaligned vector_f64;
#include "recurrent_rows.h"

/* c = a B, or c += a B, for rows of states. */
static int multiply(const job *j, int64_t rows, const void *a, int64_t a_row, void *c, int64_t c_row, int accumulate)
{
    tgc_gemm g = j->g;
    if (rows == 0)
        return 0;
    if (j->panels == NULL) {
        g.m = rows, g.a = a, g.a_row = a_row, g.c = c, g.c_row = c_row, g.beta = accumulate;
        return j->multiply(&g);
    }
    const tgc_engine *e = j->engine;
    const int64_t groups = (rows + e->mr - 1) / e->mr;
    const char *panel = j->panels;
    int64_t at = 0;
    for (; rows == 1 && at + ROW_PANELS * e->nr <= g.n; at += ROW_PANELS * e->nr, panel += ROW_PANELS * j->panel_bytes)
        if (j->size == 8)
            row_product_f64(g.k, a, panel, j->panel_bytes, (double *)c + at, accumulate);
        else
            row_product_f32(g.k, a, panel, j->panel_bytes, (float *)c + at, accumulate);
    for (; at < g.n; at += e->nr, panel += j->panel_bytes)
        for (int64_t i = 0, group = 0; group < groups; group++) {
            const int64_t end = rows * (group + 1) / groups;
            e->direct(end - i, g.n - at < e->nr ? g.n - at : e->nr, g.k, (const char *)a + i * a_row * j->size, a_row, 1,
                      panel, e->nr, (char *)c + (i * c_row + at) * j->size, c_row, accumulate, NULL);
            i = end;
        }
    return 0;
}

/* Say what is run, from the arguments from `sizes` on: batch sizes, mode, direction. */
static void describe(job *j, const tg_view *states, const tg_view *weight, const tg_argument *sizes)
{
    const char *mode = sizes[1].value.text;
    j->mode = !strcmp(mode, "LSTM") ? LSTM : !strcmp(mode, "GRU") ? GRU : !strcmp(mode, "RNN_RELU") ? RNN_RELU : RNN_TANH;
    j->backwards = (int)sizes[2].value.i;
    j->states = states;
    j->batch = states->shape[1];
    j->hidden = states->shape[2];
    j->gates = j->mode == LSTM ? 4 : j->mode == GRU ? 3 : 1;
    j->size = tgc_itemsize[states->dtype];
    if (sizes->kind == TG_ARG_INTS) {
        j->sizes = sizes->value.ints;
        j->steps = sizes->count;
    }
    const int wide = states->dtype == TGC_FLOAT64;
    j->engine = wide ? &TGC(tgc_engine_f64) : &TGC(tgc_engine_f32);
    j->multiply = wide ? TGC(tgc_gemm_f64) : TGC(tgc_gemm_f32);
    j->g = (tgc_gemm){.batch = 1, .alpha = 1, .a_col = 1, .c_col = 1, .c_dtype = states->dtype, .b = weight->data};
}

static int run(job *j, tgc_task task, const char *op)
{
    const tgc_engine *e = j->engine;
    const tgc_gemm *g = &j->g;
    const int64_t panels = j->steps < PACKED_STEPS ? 0 : (g->n + e->nr - 1) / e->nr;
    j->panel_bytes = (g->k * e->nr * j->size + TGC_PANEL_SLACK + 63) / 64 * 64;
    const size_t bytes = (size_t)(panels * j->panel_bytes) + (size_t)j->steps * sizeof(int64_t);
    char *memory = tgc_scratch(bytes);
    if (memory == NULL)
        return tgc_no_memory(op, bytes);
    j->starts = (int64_t *)(memory + panels * j->panel_bytes);
    for (int64_t t = 0, start = 0; t < j->steps; t++) {
        j->starts[t] = start;
        start += j->sizes == NULL ? 1 : j->sizes[t];
    }
    j->tasks = 1;
    if (panels > 0) {
        j->panels = memory;
        for (int64_t at = 0; at < g->n; at += e->nr)
            e->pack_b(memory + at / e->nr * j->panel_bytes, (const char *)g->b + at * g->b_col * j->size,
                      g->n - at < e->nr ? g->n - at : e->nr, g->k, g->b_col, g->b_row);
        const int64_t most = j->batch / e->mr < MOST_TASKS ? j->batch / e->mr : MOST_TASKS;
        j->tasks = tgc_tasks(j->steps * j->batch * g->n * g->k, TASK_PRODUCTS, most > 0 ? most : 1);
    }
    tgc_parallel(j->tasks, task, j);
    tgc_scratch_free(memory);
    if (atomic_load(&j->failed) == 2)
        return -1;
    return atomic_load(&j->failed) ? tgc_no_memory(op, (size_t)(j->batch * j->hidden * j->size)) : 0;
}

static int forward(const tg_call *call, void *context)
{
    const tg_view *entering = call->args[0].value.tensors, *weight = call->args[2].value.tensors;
    job j = {.steps = entering->shape[0], .last = &call->outs[1]};
    (void)context;
    if (entering->numel == 0 || entering->strides[entering->ndim - 1] != 1)
        return TG_DECLINED;
    if (call->args[3].kind == TG_ARG_TENSOR) {
        if (call->args[3].value.tensors->strides[0] != 1)
            return TG_DECLINED;
        j.bias = call->args[3].value.tensors->data;
    }
    describe(&j, call->args[1].value.tensors, weight, &call->args[4]);
    j.g.k = j.hidden, j.g.n = j.gates * j.hidden, j.g.b_row = weight->strides[1], j.g.b_col = weight->strides[0];
    j.entering = grid_of(entering, j.sizes != NULL);
    j.output = grid_of(&call->outs[0], j.sizes != NULL);
    j.kept = grid_of(&call->outs[2], j.sizes != NULL);
    return run(&j, entering->dtype == TGC_FLOAT64 ? forward_task_f64 : forward_task_f32, "_recurrent_layer");
}

static int backward(const tg_call *call, void *context)
{
    const tg_view *weight = call->args[3].value.tensors, *output = call->args[4].value.tensors;
    const tg_view *kept = call->args[5].value.tensors;
    job j = {.steps = output->shape[0], .by_states = &call->outs[1]};
    (void)context;
    if (output->numel == 0 || output->strides[output->ndim - 1] != 1 || kept->strides[kept->ndim - 1] != 1)
        return TG_DECLINED;
    describe(&j, call->args[2].value.tensors, weight, &call->args[6]);
    j.g.k = j.gates * j.hidden, j.g.n = j.hidden, j.g.b_row = weight->strides[0], j.g.b_col = weight->strides[1];
    j.entering = grid_of(&call->outs[0], j.sizes != NULL);
    j.output = grid_of(output, j.sizes != NULL);
    j.kept = grid_of(kept, j.sizes != NULL);
    if (call->args[0].kind == TG_ARG_TENSOR)
        j.by_output = grid_of(call->args[0].value.tensors, j.sizes != NULL);
    if (call->args[1].kind == TG_ARG_TENSOR)
        j.last = call->args[1].value.tensors;
    return run(&j, output->dtype == TGC_FLOAT64 ? backward_task_f64 : backward_task_f32, "_recurrent_layer_backward");
}

#define FOR_DTYPE(dtype)                                    \
    {"_recurrent_layer", dtype, TGC_CALL, forward, NULL},   \
        {"_recurrent_layer_backward", dtype, TGC_CALL, backward, NULL}

const tgc_kernel TGC(tgc_table_recurrent)[] = {FOR_DTYPE("float32"), FOR_DTYPE("float64"), {0}};
