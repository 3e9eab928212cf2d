/* mm, bmm, mv, dot, linear and _int_mm: the calls of the core as matrix products. */
#include "gemm/gemm.h"

typedef int (*product)(const tgc_gemm *g);

static const tg_view *tensor(const tg_call *call, int index)
{
    return call->args[index].value.tensors;
}

static char *data(const tg_view *view)
{
    return view->data;
}

static int run(product multiply, tgc_gemm *g, const tg_view *out)
{
    g->alpha = 1;
    g->c = data(out);
    g->c_dtype = out->dtype;
    return multiply(g);
}

static int mm(const tg_call *call, void *context)
{
    const tg_view *a = tensor(call, 0), *b = tensor(call, 1), *out = call->outs;
    tgc_gemm g = {.m = a->shape[0], .k = a->shape[1], .n = b->shape[1], .batch = 1};
    g.a = data(a), g.a_row = a->strides[0], g.a_col = a->strides[1];
    g.b = data(b), g.b_row = b->strides[0], g.b_col = b->strides[1];
    g.c_row = out->strides[0], g.c_col = out->strides[1];
    return run((product)context, &g, out);
}

static int bmm(const tg_call *call, void *context)
{
    const tg_view *a = tensor(call, 0), *b = tensor(call, 1), *out = call->outs;
    tgc_gemm g = {.batch = a->shape[0], .m = a->shape[1], .k = a->shape[2], .n = b->shape[2]};
    g.a = data(a), g.a_batch = a->strides[0], g.a_row = a->strides[1], g.a_col = a->strides[2];
    g.b = data(b), g.b_batch = b->strides[0], g.b_row = b->strides[1], g.b_col = b->strides[2];
    g.c_batch = out->strides[0], g.c_row = out->strides[1], g.c_col = out->strides[2];
    return run((product)context, &g, out);
}

static int mv(const tg_call *call, void *context)
{
    const tg_view *a = tensor(call, 0), *b = tensor(call, 1), *out = call->outs;
    tgc_gemm g = {.m = a->shape[0], .k = a->shape[1], .n = 1, .batch = 1};
    g.a = data(a), g.a_row = a->strides[0], g.a_col = a->strides[1];
    g.b = data(b), g.b_row = b->strides[0], g.b_col = 1;
    g.c_row = out->strides[0], g.c_col = 1;
    return run((product)context, &g, out);
}

static int dot(const tg_call *call, void *context)
{
    const tg_view *a = tensor(call, 0), *b = tensor(call, 1);
    tgc_gemm g = {.m = 1, .k = a->shape[0], .n = 1, .batch = 1};
    g.a = data(a), g.a_col = a->strides[0];
    g.b = data(b), g.b_row = b->strides[0];
    g.c_row = g.c_col = 1;
    return run((product)context, &g, call->outs);
}

/* The dimension that `rows` leading dimensions make when they are walked as one; -1: they do not. */
static int64_t merged_stride(const tg_view *view, int rows)
{
    int64_t stride = rows > 0 ? view->strides[rows - 1] : 0, below = 0;
    for (int d = rows - 1, seen = 0; d >= 0; d--) {
        if (view->shape[d] == 1)
            continue;
        if (!seen)
            stride = view->strides[d];
        else if (view->strides[d] != below)
            return -1;
        seen = 1;
        below = view->strides[d] * view->shape[d];
    }
    return stride;
}

typedef struct rows_of {
    product multiply;
    const tg_view *input, *out;
    int outer;
    tgc_gemm *g;
} rows_of;

/* Leading dimensions that cannot be walked as one are looped over, down to the last of them. */
static int each_row_block(rows_of *w, int dim, const char *input, char *out)
{
    int64_t input_size = tgc_itemsize[w->input->dtype], out_size = tgc_itemsize[w->out->dtype];
    if (dim + 1 == w->outer) {
        w->g->a = input;
        w->g->c = out;
        w->g->m = w->input->shape[dim];
        w->g->a_row = w->input->strides[dim];
        w->g->c_row = w->out->strides[dim];
        return w->multiply(w->g);
    }
    for (int64_t i = 0; i < w->input->shape[dim]; i++)
        if (each_row_block(w, dim + 1, input + i * w->input->strides[dim] * input_size,
                           out + i * w->out->strides[dim] * out_size) < 0)
            return -1;
    return 0;
}

static int linear(const tg_call *call, void *context)
{
    const tg_view *input = tensor(call, 0), *weight = tensor(call, 1), *out = call->outs;
    int outer = input->ndim - 1, features = weight->ndim == 2;
    tgc_gemm g = {.batch = 1, .alpha = 1, .m = 1, .k = input->shape[outer], .n = features ? weight->shape[0] : 1};
    g.a = data(input), g.a_col = input->strides[outer];
    g.b = data(weight), g.b_row = weight->strides[features], g.b_col = features ? weight->strides[0] : 1;
    g.c = data(out), g.c_col = features ? out->strides[outer] : 1;
    g.c_dtype = out->dtype;
    if (call->args[2].kind == TG_ARG_TENSOR && tensor(call, 2)->ndim >= 0) {
        const tg_view *bias = tensor(call, 2);
        g.bias = data(bias);
        const int last = bias->ndim - 1; /* the dimensions before it are of one element */
        g.bias_col = last >= 0 && bias->shape[last] != 1 ? bias->strides[last] : 0;
    }
    if (out->numel == 0)
        return 0;
    product multiply = (product)context;
    g.a_row = merged_stride(input, outer);
    g.c_row = merged_stride(out, outer);
    if (g.a_row >= 0 && g.c_row >= 0) {
        for (int d = 0; d < outer; d++)
            g.m *= input->shape[d];
        return multiply(&g);
    }
    rows_of rows = {multiply, input, out, outer, &g};
    return each_row_block(&rows, 0, g.a, g.c);
}

#define OF_DTYPE(dtype, function)                                                                     \
    {"mm", dtype, TGC_CALL, mm, TGC(tgc_gemm_##function)},                                            \
        {"bmm", dtype, TGC_CALL, bmm, TGC(tgc_gemm_##function)},                                      \
        {"mv", dtype, TGC_CALL, mv, TGC(tgc_gemm_##function)},                                        \
        {"dot", dtype, TGC_CALL, dot, TGC(tgc_gemm_##function)},                                      \
        {"linear", dtype, TGC_CALL, linear, TGC(tgc_gemm_##function)}

const tgc_kernel TGC(tgc_table_matmul)[] = {
    OF_DTYPE("float32", f32),
    OF_DTYPE("float64", f64),
    OF_DTYPE("bfloat16", bf16),
    OF_DTYPE("float16", f16),
    OF_DTYPE("uint8", i8),
    OF_DTYPE("int8", i8),
    OF_DTYPE("uint16", i16),
    OF_DTYPE("int16", i16),
    OF_DTYPE("uint32", i32),
    OF_DTYPE("int32", i32),
    OF_DTYPE("uint64", i64),
    OF_DTYPE("int64", i64),
    OF_DTYPE("complex64", c64),
    OF_DTYPE("complex128", c128),
    {"_int_mm", "int8", TGC_CALL, mm, TGC(tgc_gemm_s8)},
    {"_int_mm", "uint8", TGC_CALL, mm, TGC(tgc_gemm_u8s8)},
    {0},
};
