/* Writing at places that index tensors name: scatter, index_add, index_copy, index_fill, index_put,
 * and the adjoint of unfold. A place that is named more than once is written in the order of the
 * indices, by one thread: threads share what different indices cannot reach. */
#include "places.h"

#include <string.h>

typedef void (*write_elements)(char *table, const int64_t *positions, const char *from, int64_t stride, int64_t n);
typedef void (*write_row)(char *table, int64_t table_stride, const char *from, int64_t stride, int64_t n);

typedef struct {
    write_elements elements;
    write_row row;
} writer;

typedef struct {
    float re, im;
} c64;
typedef struct {
    double re, im;
} c128;

#define COMPLEX_PRODUCT(type) \
    static inline type type##_product(type a, type b) { return (type){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
COMPLEX_PRODUCT(c64)
COMPLEX_PRODUCT(c128)

/* Elements may lie at any address; equal positions are written one after the other. */
#define WRITER(name, type, value)                                                                               \
    static void name##_elements(char *table, const int64_t *positions, const char *from, int64_t stride, int64_t n) \
    {                                                                                                           \
        for (int64_t j = 0; j < n; j++) {                                                                       \
            type a, b;                                                                                          \
            memcpy(&a, table + positions[j], sizeof a);                                                         \
            memcpy(&b, from + j * stride, sizeof b);                                                            \
            a = (value);                                                                                        \
            memcpy(table + positions[j], &a, sizeof a);                                                         \
        }                                                                                                       \
    }                                                                                                           \
    static inline void name##_strided(char *restrict table, int64_t table_stride, const char *restrict from,    \
                                      int64_t stride, int64_t n)                                                \
    {                                                                                                           \
        for (int64_t j = 0; j < n; j++) {                                                                       \
            type a, b;                                                                                          \
            memcpy(&a, table + j * table_stride, sizeof a);                                                     \
            memcpy(&b, from + j * stride, sizeof b);                                                            \
            a = (value);                                                                                        \
            memcpy(table + j * table_stride, &a, sizeof a);                                                     \
        }                                                                                                       \
    }                                                                                                           \
    static void name##_row(char *table, int64_t table_stride, const char *from, int64_t stride, int64_t n)      \
    {                                                                                                           \
        int64_t size = (int64_t)sizeof(type);                                                                   \
        if (table_stride == size && stride == size)                                                             \
            name##_strided(table, (int64_t)sizeof(type), from, (int64_t)sizeof(type), n);                       \
        else                                                                                                    \
            name##_strided(table, table_stride, from, stride, n);                                               \
    }

WRITER(set1, uint8_t, b)
WRITER(set2, uint16_t, b)
WRITER(set4, uint32_t, b)
WRITER(set8, uint64_t, b)
WRITER(set16, c128, b)
WRITER(or1, uint8_t, a | b)
WRITER(and1, uint8_t, a & b)
WRITER(add1, uint8_t, (uint8_t)(a + b))
WRITER(add2, uint16_t, (uint16_t)(a + b))
WRITER(add4, uint32_t, a + b)
WRITER(add8, uint64_t, a + b)
WRITER(add_f32, float, a + b)
WRITER(add_f64, double, a + b)
WRITER(mul1, uint8_t, (uint8_t)(a * b))
WRITER(mul2, uint16_t, (uint16_t)((uint32_t)a * b))
WRITER(mul4, uint32_t, a * b)
WRITER(mul8, uint64_t, a * b)
WRITER(mul_f32, float, a * b)
WRITER(mul_f64, double, a * b)
WRITER(mul_c64, c64, c64_product(a, b))
WRITER(mul_c128, c128, c128_product(a, b))

/* NaN prevails. */
#define GREATER(name, type) WRITER(name, type, (b > a) | (b != b) ? b : a)
#define LESSER(name, type) WRITER(name, type, (b < a) | (b != b) ? b : a)
GREATER(most_u1, uint8_t)
GREATER(most_i1, int8_t)
GREATER(most_i2, int16_t)
GREATER(most_i4, int32_t)
GREATER(most_i8, int64_t)
GREATER(most_f32, float)
GREATER(most_f64, double)
LESSER(least_u1, uint8_t)
LESSER(least_i1, int8_t)
LESSER(least_i2, int16_t)
LESSER(least_i4, int32_t)
LESSER(least_i8, int64_t)
LESSER(least_f32, float)
LESSER(least_f64, double)

enum { SET, ADD, MULTIPLY, GREATEST, LEAST };

#define PAIR(name) {name##_elements, name##_row}

static const writer adders[TGC_DTYPES] = {
    [TGC_BOOL] = PAIR(or1),      [TGC_UINT8] = PAIR(add1),  [TGC_INT8] = PAIR(add1),   [TGC_UINT16] = PAIR(add2),
    [TGC_INT16] = PAIR(add2),    [TGC_UINT32] = PAIR(add4), [TGC_INT32] = PAIR(add4),  [TGC_UINT64] = PAIR(add8),
    [TGC_INT64] = PAIR(add8),    [TGC_FLOAT32] = PAIR(add_f32), [TGC_FLOAT64] = PAIR(add_f64),
};
static const writer multipliers[TGC_DTYPES] = {
    [TGC_BOOL] = PAIR(and1),      [TGC_UINT8] = PAIR(mul1),  [TGC_INT8] = PAIR(mul1),   [TGC_UINT16] = PAIR(mul2),
    [TGC_INT16] = PAIR(mul2),     [TGC_UINT32] = PAIR(mul4), [TGC_INT32] = PAIR(mul4),  [TGC_UINT64] = PAIR(mul8),
    [TGC_INT64] = PAIR(mul8),     [TGC_FLOAT32] = PAIR(mul_f32), [TGC_FLOAT64] = PAIR(mul_f64),
    [TGC_COMPLEX64] = PAIR(mul_c64), [TGC_COMPLEX128] = PAIR(mul_c128),
};

static const writer extremes[2][TGC_DTYPES] = {
    {[TGC_UINT8] = PAIR(most_u1), [TGC_INT8] = PAIR(most_i1), [TGC_INT16] = PAIR(most_i2), [TGC_INT32] = PAIR(most_i4),
     [TGC_INT64] = PAIR(most_i8), [TGC_FLOAT32] = PAIR(most_f32), [TGC_FLOAT64] = PAIR(most_f64)},
    {[TGC_UINT8] = PAIR(least_u1), [TGC_INT8] = PAIR(least_i1), [TGC_INT16] = PAIR(least_i2),
     [TGC_INT32] = PAIR(least_i4), [TGC_INT64] = PAIR(least_i8), [TGC_FLOAT32] = PAIR(least_f32),
     [TGC_FLOAT64] = PAIR(least_f64)},
};

static const writer *writer_of(int how, int dtype)
{
    static const writer set[] = {PAIR(set1), PAIR(set2), PAIR(set4), PAIR(set8), PAIR(set16)};
    if (how == ADD)
        return &adders[dtype];
    if (how == MULTIPLY)
        return &multipliers[dtype];
    if (how == GREATEST || how == LEAST)
        return &extremes[how == LEAST][dtype];
    int size = tgc_itemsize[dtype];
    return &set[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4];
}

static void write_block(const tgc_places_part *part, const int64_t *positions, int64_t other, int64_t stride, int64_t n,
                        const void *context)
{
    const tgc_places *places = part->places;
    const writer *writer = context;
    int last = places->nrest - 1;
    const char *from = places->other + other;
    if (last < 0) {
        writer->elements(places->table, positions, from, stride, n);
        return;
    }
    int64_t rows = tgc_rest_rows(part), count = tgc_rest_shape(part, last), table_at, other_at;
    int64_t table_step = places->rest[last].table, other_step = places->rest[last].other;
    for (int64_t row = 0; row < rows; row++) {
        tgc_rest_row(part, row, &table_at, &other_at);
        if (table_step != places->itemsize && stride <= other_step)
            for (int64_t k = 0; k < count; k++)
                writer->elements(places->table + table_at + k * table_step, positions,
                                 from + other_at + k * other_step, stride, n);
        else
            for (int64_t j = 0; j < n; j++)
                writer->row(places->table + table_at + positions[j], table_step, from + other_at + j * stride,
                            other_step, count);
    }
}

static int write_part(const tgc_places_part *part, const void *context)
{
    return TGC(tgc_places_walk)(part, write_block, context);
}

/* --- what is added and multiplied -------------------------------------------------------------- */

/* Complex numbers are added as pairs of floats: a dimension more. */
static void split_pairs(tgc_places *places)
{
    places->itemsize /= 2;
    places->rest[places->nrest].shape = 2;
    places->rest[places->nrest].table = places->itemsize;
    places->rest[places->nrest].other = places->itemsize;
    places->rest[places->nrest].lane = 1;
    places->nrest++;
    int last = places->nrest - 1;
    if (last > 0 && places->rest[last - 1].table == 2 * places->itemsize
        && places->rest[last - 1].other == 2 * places->itemsize) {
        places->rest[last - 1].shape *= 2;
        places->rest[last - 1].table = places->rest[last - 1].other = places->itemsize;
        places->nrest--;
    }
}

static int is_half(int dtype)
{
    return dtype == TGC_FLOAT16 || dtype == TGC_BFLOAT16;
}

static void packed_strides(const tg_view *view, int64_t *strides)
{
    int64_t step = 1;
    for (int d = view->ndim - 1; d >= 0; d--) {
        strides[d] = step;
        step *= view->shape[d];
    }
}

/* A packed copy of a tensor in another dtype, in scratch memory. */
static int packed_copy(const char *op, const tg_view *view, int dtype, int64_t *strides, tg_view *copy)
{
    int64_t to[TG_MAX_DIMS], from[TG_MAX_DIMS];
    size_t bytes = (size_t)view->numel * (size_t)tgc_itemsize[dtype];
    *copy = *view;
    copy->data = tgc_scratch(bytes);
    if (copy->data == NULL)
        return tgc_no_memory(op, bytes);
    packed_strides(view, strides);
    copy->strides = strides;
    copy->dtype = dtype;
    tgc_byte_strides(copy, to);
    tgc_byte_strides(view, from);
    TGC(tgc_copy_region)(view->ndim, view->shape, copy->data, to, dtype, view->data, from, view->dtype);
    return 0;
}

/* --- one write --------------------------------------------------------------------------------- */

typedef struct {
    const char *op, *error;
    int wraps, how;
    enum { ALONG, LISTED, INDEXED, WINDOWS } layout;
    const tg_view *self, *out, *source;
    const tg_view *indices;
    int count; /* of indices, where there is a list */
    int dim;
    int64_t step; /* of windows */
} writing;

/* The places of windows: position w * step + k of a dimension for place k of window w. */
static void window_places(tgc_places *places, const tg_view *table, const tg_view *g, int dim, int64_t step)
{
    int size = tgc_itemsize[table->dtype];
    int64_t along = table->ndim ? table->strides[dim] * size : 0;
    places->table = table->data;
    places->other = g->data;
    places->itemsize = size;
    places->npicked = 2;
    places->nrest = places->nindices = 0;
    for (int p = 0; p < 2; p++) {
        int d = p == 0 ? g->ndim - 1 : dim;
        places->picked[p].shape = table->ndim || p == 0 ? g->shape[d] : 1;
        places->picked[p].table = p == 0 ? along : along * step;
        places->picked[p].other = g->strides[d] * size;
        places->picked[p].lane = 0;
    }
    for (int d = 0; d < table->ndim; d++)
        if (d != dim && table->shape[d] != 1) {
            places->rest[places->nrest].shape = table->shape[d];
            places->rest[places->nrest].table = table->strides[d] * size;
            places->rest[places->nrest].other = g->strides[d] * size;
            places->rest[places->nrest].lane = 1;
            places->nrest++;
        }
}

static int lay_out(const writing *write, const tg_view *table, const tg_view *source, tgc_places *places)
{
    places->op = write->op;
    places->error = write->error;
    places->wraps = write->wraps;
    switch (write->layout) {
    case ALONG: TGC(tgc_places_along)(places, table, source, write->dim, write->indices, 1); return 0;
    case LISTED: TGC(tgc_places_listed)(places, table, source, write->dim, write->indices, 1); return 0;
    case INDEXED: return TGC(tgc_places_indexed)(places, table, source, write->indices, write->count, 1);
    default: window_places(places, table, source, write->dim, write->step); return 0;
    }
}

static void copy_view(const tg_view *to, const tg_view *from)
{
    int64_t to_strides[TG_MAX_DIMS], from_strides[TG_MAX_DIMS];
    tgc_byte_strides(to, to_strides);
    tgc_byte_strides(from, from_strides);
    TGC(tgc_copy_region)(to->ndim, to->shape, to->data, to_strides, to->dtype, from->data, from_strides, from->dtype);
}

static int write_into(const writing *write, const tg_view *table, const tg_view *source)
{
    tgc_places places;
    int dtype = table->dtype;
    if (lay_out(write, table, source, &places) < 0)
        return -1;
    if (write->how == ADD && (dtype == TGC_COMPLEX64 || dtype == TGC_COMPLEX128)) {
        split_pairs(&places);
        dtype = dtype == TGC_COMPLEX64 ? TGC_FLOAT32 : TGC_FLOAT64;
    }
    return TGC(tgc_places_run)(&places, 1, write_part, writer_of(write->how, dtype));
}

/* Halves are added and multiplied in float32 and rounded once, at the end. */
static int write_halves(const writing *write)
{
    int64_t table_strides[TG_MAX_DIMS], source_strides[TG_MAX_DIMS];
    tg_view table, source;
    if (packed_copy(write->op, write->self, TGC_FLOAT32, table_strides, &table) < 0)
        return -1;
    int status = packed_copy(write->op, write->source, TGC_FLOAT32, source_strides, &source);
    if (status == 0) {
        status = write_into(write, &table, &source);
        if (status == 0)
            copy_view(write->out, &table);
        tgc_scratch_free(source.data);
    }
    tgc_scratch_free(table.data);
    return status;
}

/* The tensor itself is not written where an index is wrong; a new result is dropped then. */
static int run(const writing *write)
{
    tgc_places places;
    int inplace = write->out->data == write->self->data;
    if (inplace && (lay_out(write, write->out, write->source, &places) < 0 || TGC(tgc_places_check)(&places) < 0))
        return -1;
    if (write->how != SET && is_half(write->out->dtype))
        return write_halves(write);
    if (!inplace)
        copy_view(write->out, write->self);
    return write_into(write, write->out, write->source);
}

/* A source of one element for all places. */
static tg_view constant_like(const tg_view *shape, int dtype, void *element)
{
    static const int64_t none[TG_MAX_DIMS];
    tg_view view = *shape;
    view.data = element;
    view.dtype = dtype;
    view.strides = none;
    return view;
}

/* --- ops --------------------------------------------------------------------------------------- */

static int scatter(const tg_call *call, void *context)
{
    const tg_view *self = call->args[0].value.tensors, *index = call->args[2].value.tensors;
    char element[16];
    tg_view constant;
    writing write = {.op = "scatter",
                   .error = "RuntimeError",
                   .how = *(const int *)context,
                   .layout = ALONG,
                   .self = self,
                   .out = call->outs,
                   .indices = index,
                   .dim = (int)call->args[1].value.i};
    if (call->args[3].kind == TG_ARG_TENSOR) {
        write.source = call->args[3].value.tensors;
    } else {
        if (TGC(tgc_encode)("scatter", &call->args[3], self->dtype, element) < 0)
            return -1;
        constant = constant_like(index, self->dtype, element);
        write.source = &constant;
    }
    if (index->numel == 0) {
        if (call->outs->data != self->data)
            copy_view(call->outs, self);
        return 0;
    }
    return run(&write);
}

static int scatter_extreme(const tg_call *call, void *context)
{
    static const int how[2] = {LEAST, GREATEST};
    (void)context;
    return scatter(call, (void *)&how[call->args[4].value.i != 0]);
}

static int index_copy(const tg_call *call, void *context)
{
    writing write = {.op = "index_copy",
                   .error = "IndexError",
                   .how = SET,
                   .layout = LISTED,
                   .self = call->args[0].value.tensors,
                   .out = call->outs,
                   .source = call->args[3].value.tensors,
                   .indices = call->args[2].value.tensors,
                   .dim = (int)call->args[1].value.i};
    (void)context;
    return run(&write);
}

static int index_fill(const tg_call *call, void *context)
{
    const tg_view *self = call->args[0].value.tensors;
    char element[16];
    (void)context;
    if (TGC(tgc_encode)("index_fill", &call->args[3], self->dtype, element) < 0)
        return -1;
    tg_view constant = constant_like(self, self->dtype, element);
    writing write = {.op = "index_fill",
                   .error = "IndexError",
                   .wraps = 1,
                   .how = SET,
                   .layout = LISTED,
                   .self = self,
                   .out = call->outs,
                   .source = &constant,
                   .indices = call->args[2].value.tensors,
                   .dim = (int)call->args[1].value.i};
    return run(&write);
}

static int is_one(const tg_argument *alpha)
{
    return alpha->kind == TG_ARG_FLOAT     ? alpha->value.f == 1
           : alpha->kind == TG_ARG_COMPLEX ? alpha->value.parts[0] == 1 && alpha->value.parts[1] == 0
                                           : alpha->value.i == 1;
}

/* alpha times the source, packed, in the dtype in which it is added. */
static int scaled(const tg_view *source, const tg_argument *alpha, int64_t *strides, tg_view *product)
{
    int dtype = is_half(source->dtype) ? TGC_FLOAT32 : source->dtype;
    char element[16];
    if (TGC(tgc_encode)("index_add", alpha, dtype, element) < 0
        || packed_copy("index_add", source, dtype, strides, product) < 0)
        return -1;
    writer_of(MULTIPLY, dtype)->row(product->data, tgc_itemsize[dtype], element, 0, product->numel);
    return 0;
}

static int index_add(const tg_call *call, void *context)
{
    int64_t strides[TG_MAX_DIMS];
    tg_view product = {.data = NULL};
    writing write = {.op = "index_add",
                   .error = call->args[0].value.tensors->ndim > 1 ? "RuntimeError" : "IndexError",
                   .how = ADD,
                   .layout = LISTED,
                   .self = call->args[0].value.tensors,
                   .out = call->outs,
                   .source = call->args[3].value.tensors,
                   .indices = call->args[2].value.tensors,
                   .dim = (int)call->args[1].value.i};
    (void)context;
    if (!is_one(&call->args[4])) {
        if (scaled(write.source, &call->args[4], strides, &product) < 0)
            return -1;
        write.source = &product;
    }
    int status = run(&write);
    tgc_scratch_free(product.data);
    return status;
}

static int index_select_backward(const tg_call *call, void *context)
{
    static const char zeros[16];
    const tg_view *g = call->args[0].value.tensors, *index = call->args[3].value.tensors, *out = call->outs;
    int64_t dim = call->args[2].value.i, count = index->ndim ? index->shape[0] : 1;
    (void)context;
    dim += dim < 0 ? out->ndim : 0;
    int fits = index->ndim <= 1 && g->ndim == out->ndim && dim >= 0 && dim < (out->ndim ? out->ndim : 1);
    for (int d = 0; fits && d < out->ndim; d++)
        fits = g->shape[d] == (d == dim ? count : out->shape[d]);
    if (!fits || (out->ndim == 0 && count > 1))
        return tgc_error("RuntimeError", "index_select_backward: the gradient does not fit into the given shape");
    writing write = {.op = "index_select_backward",
                     .error = "IndexError",
                     .how = ADD,
                     .layout = LISTED,
                     .self = out,
                     .out = out,
                     .source = g,
                     .indices = index,
                     .dim = (int)dim};
    TGC(tgc_fill)(out, zeros);
    return run(&write);
}

static int index_put(const tg_call *call, void *context)
{
    const tg_argument *accumulate = &call->args[3];
    writing write = {.op = "index",
                   .error = "IndexError",
                   .wraps = 1,
                   .how = accumulate->value.i ? ADD : SET,
                   .layout = INDEXED,
                   .self = call->args[0].value.tensors,
                   .out = call->outs,
                   .source = call->args[2].value.tensors,
                   .indices = call->args[1].value.tensors,
                   .count = call->args[1].count};
    (void)context;
    return run(&write);
}

static int unfold_backward(const tg_call *call, void *context)
{
    static const char zeros[16];
    const tg_view *g = call->args[0].value.tensors, *out = call->outs;
    int64_t dim = call->args[2].value.i, size = call->args[3].value.i, step = call->args[4].value.i;
    (void)context;
    dim += dim < 0 ? out->ndim : 0;
    int fits = g->ndim == out->ndim + 1 && step > 0 && dim >= 0 && dim < (out->ndim ? out->ndim : 1)
               && g->shape[g->ndim - 1] == size;
    for (int d = 0; fits && d < out->ndim; d++)
        fits = d == dim ? g->shape[d] == 0 || (g->shape[d] - 1) * step + size <= out->shape[d]
                        : g->shape[d] == out->shape[d];
    if (!fits || (out->ndim == 0 && size > 1 && g->numel == 0))
        return tgc_error("RuntimeError", "unfold_backward: the gradient does not fit into the given shape");
    writing write = {.op = "unfold_backward",
                   .error = "RuntimeError",
                   .how = ADD,
                   .layout = WINDOWS,
                   .self = out,
                   .out = out,
                   .source = g,
                   .dim = (int)dim,
                   .step = step};
    TGC(tgc_fill)(out, zeros);
    return g->numel ? run(&write) : 0;
}

static const int set = SET, add = ADD, multiply = MULTIPLY;

const tgc_kernel TGC(tgc_table_index_write)[] = {
    TGC_OF_EVERY_DTYPE("scatter_src", TGC_CALL, scatter, &set),
    TGC_OF_EVERY_DTYPE("scatter_value", TGC_CALL, scatter, &set),
    TGC_OF_EVERY_DTYPE("scatter_add", TGC_CALL, scatter, &add),
    TGC_OF_EVERY_DTYPE("scatter_multiply", TGC_CALL, scatter, &multiply),
    {"scatter_extreme", "uint8", TGC_CALL, scatter_extreme, NULL},
    {"scatter_extreme", "int8", TGC_CALL, scatter_extreme, NULL},
    {"scatter_extreme", "int16", TGC_CALL, scatter_extreme, NULL},
    {"scatter_extreme", "int32", TGC_CALL, scatter_extreme, NULL},
    {"scatter_extreme", "int64", TGC_CALL, scatter_extreme, NULL},
    {"scatter_extreme", "float32", TGC_CALL, scatter_extreme, NULL},
    {"scatter_extreme", "float64", TGC_CALL, scatter_extreme, NULL},
    TGC_OF_EVERY_DTYPE("index_add", TGC_CALL, index_add, NULL),
    TGC_OF_EVERY_DTYPE("index_select_backward", TGC_CALL, index_select_backward, NULL),
    TGC_OF_EVERY_DTYPE("index_copy", TGC_CALL, index_copy, NULL),
    TGC_OF_EVERY_DTYPE("index_fill_scalar", TGC_CALL, index_fill, NULL),
    TGC_OF_EVERY_DTYPE("_index_put", TGC_CALL, index_put, NULL),
    TGC_OF_EVERY_DTYPE("unfold_backward", TGC_CALL, unfold_backward, NULL),
    {0},
};
