/* Attention and its gradients without its matrix of weights: blocks of keys, and for each of them
 * strips of queries, whose softmax is corrected as larger scores come (T. Dao, D. Fu, S. Ermon,
 * A. Rudra, C. Re, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
 * 2022; M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018). Gradients
 * compute the weights again from the logarithm of each row's sum. Products are those of the matrix
 * product's microkernel, with keys packed as its panels. */
#include "copies/copying.h"
#include "gemm/engine.h"
#include "row_sum.h"
#include "vmath/vmath.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Keys of a block, and what rows of scores are apart: no power of two, whose lines would collide. */
#define KEYS 256
#define PITCH (KEYS + 16)
/* Queries whose gradients are taken together, at most. */
#define QUERIES 56
/* Queries of a task of the forward pass. */
#define CHUNK 448
#define LANES 32
/* Fold that many lanes into the first; written out, as GCC leaves loops over halves in memory. */
#define FOLD(STEP)                                                                                                     \
    for (int k = 0; k < 16; k++)                                                                                       \
        STEP(k, 16)                                                                                                    \
    for (int k = 0; k < 8; k++)                                                                                        \
        STEP(k, 8)                                                                                                     \
    for (int k = 0; k < 4; k++)                                                                                        \
        STEP(k, 4)                                                                                                     \
    STEP(0, 2) STEP(1, 2) STEP(0, 1)

typedef struct job {
    /* query, key, value, result; or query, key, value, g, result and the three gradients */
    const tg_view *views[8], *mask, *outs;
    int nviews, backward, causal;
    int64_t queries, keys, depth, width, chunk, chunks;
    const void *lse;
    double scale;
    atomic_int failed;
} job;

static int64_t head_offset(const tg_view *view, int64_t head)
{
    int64_t offset = 0;
    for (int d = view->ndim - 3; d >= 0; d--) {
        offset += head % view->shape[d] * view->strides[d];
        head /= view->shape[d];
    }
    return offset;
}

static int in_place(const tg_view *view, int dtype)
{
    return view->dtype == dtype && (view->strides[view->ndim - 1] == 1 || view->shape[view->ndim - 1] == 1);
}

static int64_t plane_size(const tg_view *view)
{
    return view->shape[view->ndim - 2] * view->shape[view->ndim - 1];
}

static int64_t heads_of(const tg_view *view)
{
    int64_t heads = 1;
    for (int d = 0; d < view->ndim - 2; d++)
        heads *= view->shape[d];
    return heads;
}

/* exp(x) for x up to 88; weights below 2^-125 of a row's largest are zero. */
static inline float exp_below_f32(float x)
{
    float rounded, r = tgc_exp_reduce_f32(x < -87.0f ? -87.0f : x, 127.0f, &rounded);
    float y = tgc_exp_reduced_f32(r) * tgc_float_f32(tgc_bits_f32(rounded) << 23);
    return x < -87.0f ? 0.0f : y;
}

#define AT_T float
#define AT(name) name##_f32
#define AT_EXP exp_below_f32
#define AT_ENGINE TGC(tgc_engine_f32)
#define AT_DTYPE TGC_FLOAT32
#include "attention_rows.h"
#define AT_T double
#define AT(name) name##_f64
#define AT_EXP tgc_exp_f64
#define AT_ENGINE TGC(tgc_engine_f64)
#define AT_DTYPE TGC_FLOAT64
#include "attention_rows.h"

static double number(const tg_argument *argument)
{
    return argument->kind == TG_ARG_INT ? (double)argument->value.i : argument->value.f;
}

static const tg_view *optional(const tg_argument *argument)
{
    return argument->kind == TG_ARG_TENSOR ? argument->value.tensors : NULL;
}

static int run(job *j, int64_t tasks, tgc_task f32, tgc_task f64, const char *op)
{
    tgc_parallel(tasks, j->views[0]->dtype == TGC_FLOAT64 ? f64 : f32, j);
    return atomic_load(&j->failed) ? tgc_no_memory(op, (size_t)(KEYS * j->depth) * 4) : 0;
}

static void sizes(job *j, const tg_argument *args, const tg_argument *causal)
{
    const tg_view *q = args[0].value.tensors, *k = args[1].value.tensors, *v = args[2].value.tensors;
    j->views[0] = q;
    j->views[1] = k;
    j->views[2] = v;
    j->queries = q->shape[q->ndim - 2];
    j->depth = q->shape[q->ndim - 1];
    j->keys = k->shape[k->ndim - 2];
    j->width = v->shape[v->ndim - 1];
    j->mask = optional(&args[3]);
    j->causal = (int)causal[0].value.i;
    j->scale = number(&causal[1]);
}

static int forward(const tg_call *call, void *context)
{
    job j = {.outs = call->outs, .nviews = 4};
    (void)context;
    sizes(&j, call->args, &call->args[4]);
    if (j.depth == 0 || j.keys == 0 || j.width == 0 || j.queries == 0)
        return TG_DECLINED;
    j.views[3] = &call->outs[0];
    const int64_t heads = heads_of(j.views[0]);
    if (heads == 0)
        return 0;
    j.chunk = j.queries < CHUNK ? j.queries : CHUNK;
    j.chunks = (j.queries + j.chunk - 1) / j.chunk;
    return run(&j, heads * j.chunks, forward_task_f32, forward_task_f64, "scaled_dot_product_attention");
}

static int backward(const tg_call *call, void *context)
{
    job j = {.outs = call->outs, .nviews = 8, .backward = 1};
    (void)context;
    sizes(&j, call->args + 1, &call->args[7]);
    if (j.depth == 0 || j.keys == 0 || j.width == 0 || j.queries == 0)
        return TG_DECLINED;
    j.views[3] = call->args[0].value.tensors;
    j.views[4] = call->args[5].value.tensors;
    for (int i = 0; i < 3; i++)
        j.views[5 + i] = &call->outs[i];
    const tg_view *lse = call->args[6].value.tensors;
    int64_t expected = 1;
    for (int d = lse->ndim - 1; d >= 0; d--) {
        if (lse->shape[d] != 1 && lse->strides[d] != expected)
            return TG_DECLINED;
        expected *= lse->shape[d];
    }
    j.lse = lse->data;
    const int64_t heads = heads_of(j.views[1]);
    if (heads == 0)
        return 0;
    return run(&j, heads, backward_task_f32, backward_task_f64, "scaled_dot_product_attention");
}

#define FOR_DTYPE(dtype) \
    {"_attention", dtype, TGC_CALL, forward, NULL}, {"_attention_backward", dtype, TGC_CALL, backward, NULL}

const tgc_kernel TGC(tgc_table_attention)[] = {
    FOR_DTYPE("float32"),
    FOR_DTYPE("float64"),
    FOR_DTYPE("float16"),
    FOR_DTYPE("bfloat16"),
    {0}};
