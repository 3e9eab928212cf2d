/* Copies of a tensor with a part of it replaced: an index or a slice of a dimension, a diagonal.
 *
 * What does not fit, or has another dtype, is left to the tensor code, which words the errors. */
#include "copying.h"

/* A view of the result, strides in bytes. */
typedef struct part {
    int ndim;
    char *first;
    int64_t shape[TG_MAX_DIMS], strides[TG_MAX_DIMS];
} part;

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void add_dim(part *p, int64_t size, int64_t stride)
{
    p->shape[p->ndim] = size;
    p->strides[p->ndim++] = stride;
}

/* Copy the tensor, then the source into the part of the copy. */
static int replace(const tg_call *call, const part *p)
{
    const tg_view *out = call->outs, *self = call->args[0].value.tensors, *src = call->args[1].value.tensors;
    int64_t to[TG_MAX_DIMS], from[TG_MAX_DIMS];
    int fits = src->dtype == out->dtype && src->ndim == p->ndim;
    for (int d = 0; d < p->ndim && fits; d++)
        fits = src->shape[d] == p->shape[d];
    if (!fits)
        return TG_DECLINED;
    if (out->numel == 0)
        return 0;
    tgc_byte_strides(out, to);
    tgc_byte_strides(self, from);
    TGC(tgc_move_region)(out->ndim, out->shape, out->data, to, self->data, from, tgc_itemsize[out->dtype]);
    if (src->numel == 0)
        return 0;
    tgc_byte_strides(src, from);
    TGC(tgc_move_region)(p->ndim, p->shape, p->first, p->strides, src->data, from, tgc_itemsize[out->dtype]);
    return 0;
}

static int select_scatter(const tg_call *call, void *context)
{
    const tg_view *out = call->outs;
    const int64_t dim = call->args[2].value.i, size = dim < out->ndim ? out->shape[dim] : 0;
    const int64_t width = tgc_itemsize[out->dtype];
    int64_t index = call->args[3].value.i;
    part p = {.first = out->data};
    (void)context;
    index += index < 0 ? size : 0;
    if (index < 0 || index >= size)
        return TG_DECLINED;
    for (int d = 0; d < out->ndim; d++)
        if (d != dim)
            add_dim(&p, out->shape[d], out->strides[d] * width);
    p.first += index * out->strides[dim] * width;
    return replace(call, &p);
}

static int slice_scatter(const tg_call *call, void *context)
{
    const tg_view *out = call->outs;
    const tg_argument *args = call->args;
    const int64_t dim = args[2].value.i, step = args[5].value.i, width = tgc_itemsize[out->dtype];
    part p = {.first = out->data};
    (void)context;
    if (dim >= out->ndim || step < 1)
        return TG_DECLINED;
    const int64_t size = out->shape[dim];
    int64_t start = args[3].kind == TG_ARG_INT ? args[3].value.i : 0;
    int64_t end = args[4].kind == TG_ARG_INT ? args[4].value.i : size;
    start = clamp(start < 0 ? start + size : start, 0, size);
    end = clamp(end < 0 ? end + size : end, start, size);
    for (int d = 0; d < out->ndim; d++)
        if (d == dim)
            add_dim(&p, (end - start) / step + ((end - start) % step != 0), out->strides[d] * step * width);
        else
            add_dim(&p, out->shape[d], out->strides[d] * width);
    p.first += start * out->strides[dim] * width;
    return replace(call, &p);
}

static int diagonal_scatter(const tg_call *call, void *context)
{
    const tg_view *out = call->outs;
    const tg_argument *args = call->args;
    const int64_t offset = args[2].value.i, row = args[3].value.i, column = args[4].value.i;
    const int64_t width = tgc_itemsize[out->dtype];
    part p = {.first = out->data};
    (void)context;
    if (row >= out->ndim || column >= out->ndim || row == column)
        return TG_DECLINED;
    const int64_t rows = out->shape[row], columns = out->shape[column];
    const int64_t down = offset < 0 ? -clamp(offset, -rows, 0) : 0, right = clamp(offset, 0, columns);
    for (int d = 0; d < out->ndim; d++)
        if (d != row && d != column)
            add_dim(&p, out->shape[d], out->strides[d] * width);
    add_dim(&p, rows - down < columns - right ? rows - down : columns - right,
            (out->strides[row] + out->strides[column]) * width);
    p.first += (down * out->strides[row] + right * out->strides[column]) * width;
    return replace(call, &p);
}

const tgc_kernel TGC(tgc_table_view_scatter)[] = {
    TGC_OF_EVERY_DTYPE("select_scatter", TGC_CALL, select_scatter, NULL),
    TGC_OF_EVERY_DTYPE("slice_scatter", TGC_CALL, slice_scatter, NULL),
    TGC_OF_EVERY_DTYPE("diagonal_scatter", TGC_CALL, diagonal_scatter, NULL),
    {0},
};
