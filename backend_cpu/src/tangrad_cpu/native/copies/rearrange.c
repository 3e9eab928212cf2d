/* Ops that put elements elsewhere by geometry alone: reversal, triangles, padding, and the adjoints
 * of views, which put elements among zeros. */
#include "copying.h"

#include <string.h>

/* Bytes of a row up to which it is not worth a call of its own. */
#define SHORT_ROW 512

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static int flip(const tg_call *call, void *context)
{
    const tg_view *self = call->args[0].value.tensors, *out = call->outs;
    int64_t to[TG_MAX_DIMS], from[TG_MAX_DIMS];
    const char *first = self->data;
    (void)context;
    if (self->numel == 0)
        return 0;
    tgc_byte_strides(out, to);
    tgc_byte_strides(self, from);
    for (int i = 0; i < call->args[1].count; i++) {
        int64_t d = call->args[1].value.ints[i];
        if (self->ndim == 0)
            continue;
        first += (self->shape[d] - 1) * from[d];
        from[d] = -from[d];
    }
    TGC(tgc_move_region)(self->ndim, self->shape, out->data, to, first, from, tgc_itemsize[out->dtype]);
    return 0;
}

/* --- triangles --------------------------------------------------------------------------------- */

enum { LOWER, UPPER };

typedef struct {
    const tg_view *out, *self;
    int64_t diagonal, rows, tasks;
    int upper, copies;
} triangle;

static void triangle_rows(int64_t task, void *context)
{
    static const char zero[16];
    const triangle *job = context;
    const tg_view *out = job->out, *self = job->self;
    int row_dim = out->ndim - 2, size = tgc_itemsize[out->dtype];
    int64_t columns = out->shape[row_dim + 1];
    int64_t to_step = out->strides[row_dim + 1] * size, from_step = self->strides[row_dim + 1] * size;
    int64_t end = tgc_begin(job->rows, job->tasks, task + 1, 1);
    for (int64_t row = tgc_begin(job->rows, job->tasks, task, 1); row < end; row++) {
        int64_t rest = row, i = row % out->shape[row_dim];
        char *to = out->data;
        const char *from = self->data;
        for (int d = row_dim; d >= 0; d--) {
            to += rest % out->shape[d] * out->strides[d] * size;
            from += rest % out->shape[d] * self->strides[d] * size;
            rest /= out->shape[d];
        }
        int64_t first = job->upper ? clamp(i + job->diagonal, 0, columns) : 0;
        int64_t last = job->upper ? columns : clamp(i + job->diagonal + 1, 0, columns);
        TGC(tgc_fill_row)(to, to_step, zero, first, size);
        if (job->copies)
            TGC(tgc_move_row)(to + first * to_step, to_step, from + first * from_step, from_step, last - first, size);
        TGC(tgc_fill_row)(to + last * to_step, to_step, zero, columns - last, size);
    }
}

static int triangle_kernel(const tg_call *call, void *context)
{
    const tg_view *out = call->outs, *self = call->args[0].value.tensors;
    triangle job = {.out = out, .self = self, .copies = out->data != self->data};
    if (out->numel == 0)
        return 0;
    int64_t rows = out->shape[out->ndim - 2], columns = out->shape[out->ndim - 1];
    job.upper = *(const int *)context == UPPER;
    job.diagonal = clamp(call->args[1].value.i, -rows - 1, columns + 1);
    job.rows = out->numel / columns;
    job.tasks = tgc_tasks(out->numel, 65536, job.rows < 64 ? job.rows : 64);
    tgc_parallel(job.tasks, triangle_rows, &job);
    return 0;
}

/* --- a box among constants --------------------------------------------------------------------- */

/* Copy `from` to the box of `out` that starts at `low` and has the shape `inside`; the rest becomes
 * `element`. */
static void embed(const tg_view *out, const int64_t *low, const int64_t *inside, const char *from,
                  const int64_t *from_strides, const void *element)
{
    int64_t strides[TG_MAX_DIMS], shape[TG_MAX_DIMS], none[TG_MAX_DIMS] = {0};
    int size = tgc_itemsize[out->dtype];
    char *corner = out->data;
    tgc_byte_strides(out, strides);
    memcpy(shape, out->shape, (size_t)out->ndim * sizeof(int64_t));
    int64_t box = size, row = size;
    for (int d = 0; d < out->ndim; d++) {
        box *= inside[d];
        row = strides[d] == size ? inside[d] * size : row;
    }
    /* Around a thick box of short rows, single elements would take longer than all of them together. */
    if (row <= SHORT_ROW && 2 * box >= out->numel * size) {
        TGC(tgc_fill)(out, element);
        for (int d = 0; d < out->ndim; d++)
            corner += low[d] * strides[d];
        TGC(tgc_move_region)(out->ndim, inside, corner, strides, from, from_strides, size);
        return;
    }
    /* Before and after the box, dimension by dimension; the later ones lie within the earlier ones. */
    for (int d = 0; d < out->ndim; d++) {
        int64_t after = low[d] + inside[d];
        shape[d] = low[d];
        TGC(tgc_move_region)(out->ndim, shape, corner, strides, element, none, size);
        shape[d] = out->shape[d] - after;
        TGC(tgc_move_region)(out->ndim, shape, corner + after * strides[d], strides, element, none, size);
        shape[d] = inside[d];
        corner += low[d] * strides[d];
    }
    TGC(tgc_move_region)(out->ndim, inside, corner, strides, from, from_strides, size);
}

static int pad(const tg_call *call, void *context)
{
    const tg_view *out = call->outs, *self = call->args[0].value.tensors;
    int64_t low[TG_MAX_DIMS], inside[TG_MAX_DIMS], from[TG_MAX_DIMS];
    const int64_t *amounts = call->args[1].value.ints;
    const char *first = self->data;
    char element[16];
    (void)context;
    if (TGC(tgc_encode)("constant_pad_nd", &call->args[2], out->dtype, element) < 0)
        return -1;
    if (out->numel == 0)
        return 0;
    tgc_byte_strides(self, from);
    for (int d = 0; d < out->ndim; d++) {
        int pair = out->ndim - 1 - d;
        int64_t before = 2 * pair < call->args[1].count ? amounts[2 * pair] : 0;
        int64_t after = 2 * pair < call->args[1].count ? amounts[2 * pair + 1] : 0;
        low[d] = clamp(before, 0, out->shape[d]);
        inside[d] = out->shape[d] - low[d] - clamp(after, 0, out->shape[d] - low[d]);
        if (before < 0)
            first -= before * from[d];
    }
    embed(out, low, inside, first, from, element);
    return 0;
}

/* --- adjoints of views ------------------------------------------------------------------------- */

static const char zeros[16];

static int wrong_shape(const char *op)
{
    return tgc_error("RuntimeError", "%s: the gradient does not fit into the given shape", op);
}

static int select_backward(const tg_call *call, void *context)
{
    const tg_view *out = call->outs, *g = call->args[0].value.tensors;
    int64_t low[TG_MAX_DIMS] = {0}, inside[TG_MAX_DIMS], from[TG_MAX_DIMS];
    int64_t dim = call->args[2].value.i, index = call->args[3].value.i;
    (void)context;
    dim += dim < 0 ? out->ndim : 0;
    if (dim < 0 || dim >= out->ndim || g->ndim != out->ndim - 1)
        return wrong_shape("select_backward");
    index += index < 0 ? out->shape[dim] : 0;
    if (index < 0 || index >= out->shape[dim])
        return wrong_shape("select_backward");
    for (int d = 0; d < out->ndim; d++) {
        int k = d < dim ? d : d - 1;
        inside[d] = d == dim ? 1 : out->shape[d];
        from[d] = d == dim ? 0 : g->strides[k] * tgc_itemsize[g->dtype];
        if (d != dim && g->shape[k] != out->shape[d])
            return wrong_shape("select_backward");
    }
    low[dim] = index;
    if (out->numel)
        embed(out, low, inside, g->data, from, zeros);
    return 0;
}

static int slice_backward(const tg_call *call, void *context)
{
    const tg_view *out = call->outs, *g = call->args[0].value.tensors;
    int64_t low[TG_MAX_DIMS] = {0}, from[TG_MAX_DIMS], to[TG_MAX_DIMS];
    int64_t dim = call->args[2].value.i, step = call->args[5].value.i;
    (void)context;
    dim += dim < 0 ? out->ndim : 0;
    if (dim < 0 || dim >= out->ndim || g->ndim != out->ndim)
        return wrong_shape("slice_backward");
    int64_t size = out->shape[dim], start = call->args[3].kind == TG_ARG_INT ? call->args[3].value.i : 0;
    start = clamp(start < 0 ? start + size : start, 0, size);
    for (int d = 0; d < out->ndim; d++)
        if (d != dim && g->shape[d] != out->shape[d])
            return wrong_shape("slice_backward");
    if (step < 1 || g->shape[dim] > (size - start + step - 1) / step)
        return wrong_shape("slice_backward");
    if (out->numel == 0)
        return 0;
    tgc_byte_strides(g, from);
    low[dim] = start;
    if (step == 1) {
        embed(out, low, g->shape, g->data, from, zeros);
        return 0;
    }
    TGC(tgc_fill)(out, zeros);
    tgc_byte_strides(out, to);
    char *first = (char *)out->data + start * to[dim];
    to[dim] *= step;
    TGC(tgc_move_region)(g->ndim, g->shape, first, to, g->data, from, tgc_itemsize[g->dtype]);
    return 0;
}

static int diagonal_backward(const tg_call *call, void *context)
{
    const tg_view *out = call->outs, *g = call->args[0].value.tensors;
    int64_t offset = call->args[2].value.i, first = call->args[3].value.i, second = call->args[4].value.i;
    int64_t from[TG_MAX_DIMS], to[TG_MAX_DIMS];
    int size = tgc_itemsize[out->dtype], k = 0;
    (void)context;
    first += first < 0 ? out->ndim : 0;
    second += second < 0 ? out->ndim : 0;
    if (first < 0 || second < 0 || first >= out->ndim || second >= out->ndim || first == second
        || g->ndim != out->ndim - 1)
        return wrong_shape("diagonal_backward");
    if (out->numel == 0)
        return 0;
    TGC(tgc_fill)(out, zeros);
    if (g->numel == 0)
        return 0;
    int64_t down = offset < 0 ? -offset : 0, right = offset > 0 ? offset : 0, length = g->shape[g->ndim - 1];
    if (down > out->shape[first] - length || right > out->shape[second] - length)
        return wrong_shape("diagonal_backward");
    for (int d = 0; d < out->ndim; d++)
        if (d != first && d != second) {
            if (g->shape[k] != out->shape[d])
                return wrong_shape("diagonal_backward");
            to[k++] = out->strides[d] * size;
        }
    to[k] = (out->strides[first] + out->strides[second]) * size;
    tgc_byte_strides(g, from);
    TGC(tgc_move_region)(g->ndim, g->shape,
                         (char *)out->data + (down * out->strides[first] + right * out->strides[second]) * size, to,
                         g->data, from, size);
    return 0;
}

static const int lower = LOWER, upper = UPPER;

const tgc_kernel TGC(tgc_table_rearrange)[] = {
    TGC_OF_EVERY_DTYPE("flip", TGC_CALL, flip, NULL),
    TGC_OF_EVERY_DTYPE("tril", TGC_CALL, triangle_kernel, &lower),
    TGC_OF_EVERY_DTYPE("triu", TGC_CALL, triangle_kernel, &upper),
    TGC_OF_EVERY_DTYPE("constant_pad_nd", TGC_CALL, pad, NULL),
    TGC_OF_EVERY_DTYPE("select_backward", TGC_CALL, select_backward, NULL),
    TGC_OF_EVERY_DTYPE("slice_backward", TGC_CALL, slice_backward, NULL),
    TGC_OF_EVERY_DTYPE("diagonal_backward", TGC_CALL, diagonal_backward, NULL),
    {0},
};
