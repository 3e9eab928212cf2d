/* The adjoint of a convolution in its input, of images whose channels are neighbours: for each tap the rows of
 * the gradient are a matrix whose product with that tap's weights is added to every stride-th pixel of the
 * result's rows. The microkernel reads the gradient and adds to the result where they lie. */
#include "convolution_last.h"
#include "copies/copying.h"
#include "gemm/engine.h"

#include <string.h>

#define GRAIN (1 << 19)       /* multiplications of a task */
#define MOST_TASKS 64
#define RUN 256               /* maps at once: so many rows of a panel stay near the processor */
#define BLOCK_BYTES (3 << 17) /* of the result that stay in the second-level cache while panels pass */
#define SET_BYTES 1024        /* pixels so far apart share few sets of the first-level cache */
#define LINE_BYTES 64

typedef struct {
    const tgc_engine *e;
    const tg_view *weight;
    const char *grad;
    char *out, *packed;
    int64_t images, maps, channels, kernel[2], height, width, rows, columns; /* of the result, of grad */
    int64_t stride[2], padding[2], dilation[2];
    int64_t item, plane, row, pixel; /* distances in `grad`, in elements */
    int64_t panels, panel_bytes, lines, blocks, groups; /* rows of the result in all; pieces of them, and of panels */
} job;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The weights of a panel of channels, tap by tap, map by map. */
static void pack_task(int64_t panel, void *context)
{
    const job *j = context;
    const tg_view *w = j->weight;
    const int64_t first = panel * j->e->nr, count = smaller(j->channels - first, j->e->nr);
    char *to = j->packed + panel * j->panel_bytes;
    for (int64_t t = 0; t < j->kernel[0]; t++)
        for (int64_t u = 0; u < j->kernel[1]; u++, to += j->maps * j->e->nr * j->item)
            j->e->pack_b(to, (const char *)w->data + (first * w->strides[1] + t * w->strides[2] + u * w->strides[3]) * j->item,
                         count, j->maps, w->strides[1], w->strides[0]);
}

/* The pixels of a row of grad that a tap adds to a row of the result: from *first on, so many. */
static int64_t seen_by(const job *j, int64_t tap, int64_t *first)
{
    const int64_t shift = j->padding[1] - tap * j->dilation[1], s = j->stride[1];
    const int64_t begin = shift > 0 ? (shift + s - 1) / s : 0, last = j->width - 1 + shift;
    const int64_t end = last < 0 ? 0 : smaller(last / s + 1, j->columns);
    *first = begin;
    return end > begin ? end - begin : 0;
}

/* Some rows of the result, for some panels of channels. */
static void rows_task(int64_t task, void *context)
{
    const job *j = context;
    const tgc_engine *e = j->e;
    const int64_t block = task / j->groups, group = task % j->groups;
    const int64_t from = tgc_begin(j->lines, j->blocks, block, 1), end = tgc_begin(j->lines, j->blocks, block + 1, 1);
    const int64_t last = tgc_begin(j->panels, j->groups, group + 1, 1), first = tgc_begin(j->panels, j->groups, group, 1);
    const int64_t apart = j->stride[1] * j->channels, line_bytes = j->width * j->channels * j->item;
    const int64_t begin = first * e->nr, stop = smaller(last * e->nr, j->channels);
    if (begin == 0 && stop == j->channels)
        memset(j->out + from * line_bytes, 0, (size_t)((end - from) * line_bytes));
    else
        for (int64_t pixel = from * j->width; pixel < end * j->width; pixel++)
            memset(j->out + (pixel * j->channels + begin) * j->item, 0, (size_t)((stop - begin) * j->item));
    for (int64_t panel = first; panel < last; panel++) {
        const int64_t cols = smaller(j->channels - panel * e->nr, e->nr);
        const char *weights = j->packed + panel * j->panel_bytes;
        for (int64_t t = 0; t < j->kernel[0]; t++)
            for (int64_t u = 0; u < j->kernel[1]; u++) {
                int64_t at;
                const int64_t count = seen_by(j, u, &at), pieces = (count + e->mr - 1) / e->mr;
                const int64_t column = at * j->stride[1] + u * j->dilation[1] - j->padding[1];
                for (int64_t m = 0; m < j->maps; m += RUN) {
                    const int64_t k = smaller(j->maps - m, RUN);
                    for (int64_t line = from; line < end; line++) {
                        const int64_t y = line % j->height + j->padding[0] - t * j->dilation[0];
                        if (y < 0 || y % j->stride[0] != 0 || y / j->stride[0] >= j->rows)
                            continue;
                        const char *x = j->grad + (line / j->height * j->plane + y / j->stride[0] * j->row + at * j->pixel + m) * j->item;
                        char *to = j->out + ((line * j->width + column) * j->channels + panel * e->nr) * j->item;
                        for (int64_t piece = 0; piece < pieces; piece++) {
                            const int64_t tile = count / pieces + (piece < count % pieces);
                            e->direct(tile, cols, k, x, j->pixel, 1, weights, e->nr, to, apart, 1, NULL);
                            x += tile * j->pixel * j->item;
                            to += tile * apart * j->item;
                        }
                    }
                    weights += k * e->nr * j->item;
                }
            }
    }
}

/* Copy the gradient where pixels have to lie one after the other; returns 0, or -1 with an exception. */
static int lay_out(job *j, const char *op, const tg_view *grad, char **memory)
{
    const int near = j->maps * j->item % SET_BYTES == 0;
    j->grad = grad->data, j->plane = grad->strides[0], j->row = grad->strides[2], j->pixel = grad->strides[3];
    if (grad->strides[1] == 1 && j->pixel * j->item % SET_BYTES != 0)
        return 0;
    j->pixel = j->maps + (near ? LINE_BYTES / j->item : 0);
    j->row = j->columns * j->pixel, j->plane = j->rows * j->row;
    const size_t bytes = (size_t)(j->images * j->plane * j->item);
    int64_t to[4] = {j->plane * j->item, j->item, j->row * j->item, j->pixel * j->item}, from[4];
    tgc_byte_strides(grad, from);
    j->grad = *memory = tgc_scratch(bytes);
    if (*memory == NULL)
        return tgc_no_memory(op, bytes);
    TGC(tgc_move_region)(4, grad->shape, *memory, to, grad->data, from, (int)j->item);
    return 0;
}

int TGC(tgc_convolution_last_input)(const tg_call *call)
{
    static const char op[] = "convolution_input";
    const tg_view *weight = call->args[0].value.tensors, *grad = call->args[1].value.tensors, *out = call->outs;
    const tg_argument *windows = call->args + 3;
    char *memory = NULL;
    job j = {.e = out->dtype == TGC_FLOAT64 ? &TGC(tgc_engine_f64) : &TGC(tgc_engine_f32),
             .weight = weight,
             .out = out->data,
             .images = out->shape[0],
             .channels = out->shape[1],
             .maps = grad->shape[1],
             .height = out->shape[2],
             .width = out->shape[3],
             .rows = grad->shape[2],
             .columns = grad->shape[3],
             .item = tgc_itemsize[out->dtype]};
    for (int d = 0; d < 2; d++) {
        j.kernel[d] = weight->shape[d + 2];
        j.stride[d] = windows[0].value.ints[d];
        j.padding[d] = windows[1].value.ints[d];
        j.dilation[d] = windows[2].value.ints[d];
    }
    j.panels = (j.channels + j.e->nr - 1) / j.e->nr;
    j.panel_bytes = j.kernel[0] * j.kernel[1] * j.maps * j.e->nr * j.item + TGC_PANEL_SLACK;
    const size_t bytes = (size_t)(j.panels * j.panel_bytes);
    j.packed = tgc_scratch(bytes);
    if (j.packed == NULL)
        return tgc_no_memory(op, bytes);
    const int status = lay_out(&j, op, grad, &memory);
    if (!status) {
        const double products = (double)grad->numel * (double)(j.kernel[0] * j.kernel[1] * j.channels);
        const int64_t wanted = tgc_tasks((int64_t)(products < 1e15 ? products : 1e15), GRAIN, MOST_TASKS);
        j.lines = j.images * j.height;
        j.blocks = smaller(j.lines, (j.lines * j.width * j.channels * j.item + BLOCK_BYTES - 1) / BLOCK_BYTES);
        j.groups = smaller(j.panels, (wanted / 4 + j.blocks - 1) / j.blocks);
        j.groups = j.groups < 1 ? 1 : j.groups;
        if (j.blocks * j.groups < wanted / 8)
            j.blocks = smaller(j.lines, (wanted / 8 + j.groups - 1) / j.groups);
        if (products < GRAIN)
            for (int64_t panel = 0; panel < j.panels; panel++)
                pack_task(panel, &j);
        else
            tgc_parallel(j.panels, pack_task, &j);
        tgc_parallel(j.blocks * j.groups, rows_task, &j);
    }
    tgc_scratch_free(memory);
    tgc_scratch_free(j.packed);
    return status;
}

int TGC(tgc_convolution_last_serves)(const tg_call *call)
{
    const tg_view *out = call->outs;
    const tgc_engine *e = out->dtype == TGC_FLOAT64 ? &TGC(tgc_engine_f64) : &TGC(tgc_engine_f32);
    return e->direct != NULL && (out->dtype == TGC_FLOAT32 || out->dtype == TGC_FLOAT64) && call->args[6].value.i == 1;
}

int TGC(tgc_turn_result)(const tg_call *call, const char *op, int (*in_planes)(const tg_call *, const tg_view *))
{
    const tg_view *out = call->outs;
    const int64_t item = tgc_itemsize[out->dtype];
    int64_t strides[TG_MAX_DIMS], from[TG_MAX_DIMS], to[TG_MAX_DIMS], step = 1;
    for (int d = out->ndim - 1; d >= 0; d--) {
        strides[d] = step;
        from[d] = step * item;
        step *= out->shape[d];
    }
    tg_view planes = *out;
    planes.strides = strides;
    planes.data = tgc_scratch((size_t)(step * item));
    if (planes.data == NULL)
        return tgc_no_memory(op, (size_t)(step * item));
    const int status = in_planes(call, &planes);
    if (status == 0) {
        tgc_byte_strides(out, to);
        TGC(tgc_move_region)(out->ndim, out->shape, out->data, to, planes.data, from, (int)item);
    }
    tgc_scratch_free(planes.data);
    return status;
}

double TGC(tgc_cost_as_convolution)(const tgc_convolution *j)
{
    const tgc_windows *w = &j->w;
    /* Results of the input's size are gathered through masks. */
    const double gathering = w->area == w->positions ? 6 : 24;
    return (double)w->area * (double)j->depth * ((double)(w->channels / w->groups) + gathering);
}

double TGC(tgc_cost_of_sums)(const tgc_convolution *j)
{
    const tgc_windows *w = &j->w;
    const double adding = 27 * (1 + 4 / (double)w->out[w->ndim - 1]) + (w->padded ? 5 : 0);
    return (double)w->positions * (double)(w->channels / w->groups) * ((double)j->depth + adding);
}

/* Of pixels: vectors of channels, which are added to once for all maps; and two copies. */
static double cost_by_pixels(const tgc_convolution *j)
{
    const tgc_windows *w = &j->w;
    const double lanes = (double)((w->channels + 15) / 16 * 16);
    const double moved = (double)w->positions * (double)w->maps + (double)w->area * (double)w->channels;
    return (double)w->positions * ((double)w->maps + 4) * (lanes + 6) + 10 * moved / (double)w->taps;
}

int TGC(tgc_pays_by_pixels)(const tgc_convolution *j, const tg_call *call, int may_be_convolution)
{
    const tg_view *weight = call->args[0].value.tensors, *grad = call->args[1].value.tensors;
    if (call->outs->ndim != 4 || j->w.area == j->w.positions || !TGC(tgc_convolution_last_serves)(call)
        || weight->dtype != call->outs->dtype || grad->dtype != call->outs->dtype)
        return 0;
    const double sums = TGC(tgc_cost_of_sums)(j), convolved = TGC(tgc_cost_as_convolution)(j);
    return cost_by_pixels(j) < 0.97 * (may_be_convolution && convolved < sums ? convolved : sums);
}

int TGC(tgc_convolution_by_pixels)(const tg_call *call)
{
    const tg_view *out = call->outs;
    const int64_t item = tgc_itemsize[out->dtype], pixel = out->shape[1], row = pixel * out->shape[3];
    const int64_t strides[4] = {row * out->shape[2], 1, row, pixel};
    int64_t from[4], to[4];
    tg_view pixels = *out;
    tg_call inner = *call;
    pixels.strides = strides;
    pixels.data = tgc_scratch((size_t)(out->numel * item));
    if (pixels.data == NULL)
        return tgc_no_memory("convolution_input", (size_t)(out->numel * item));
    inner.outs = &pixels;
    const int status = TGC(tgc_convolution_last_input)(&inner);
    if (status == 0) {
        tgc_byte_strides(&pixels, from);
        tgc_byte_strides(out, to);
        TGC(tgc_move_region)(4, out->shape, out->data, to, pixels.data, from, (int)item);
    }
    tgc_scratch_free(pixels.data);
    return status;
}
