/* Convolution of images whose channels are neighbours: a row of windows is a matrix whose rows lie where
 * the image's pixels lie, so that the product's microkernel reads it there. Only images that need padding,
 * or whose pixels would share sets of the cache, are copied, pixel by pixel. */
#include "copies/copying.h"
#include "gemm/engine.h"

#include <string.h>

#define GRAIN (1 << 19)       /* multiplications of a task */
#define MOST_TASKS 64
#define RUN 256         /* channels at once: so many rows of a panel stay near the processor */
#define BLOCK_BYTES (3 << 17) /* of an image that stay in the second-level cache while panels pass */
#define SET_BYTES 1024        /* pixels so far apart share few sets of the first-level cache */
#define LINE_BYTES 64

typedef struct {
    const tgc_engine *e;
    const tg_view *weight;
    const char *image;            /* with its padding */
    char *out, *packed;
    int64_t images, channels, maps, kernel[2], height, width; /* of the result */
    int64_t stride[2], dilation[2];
    int64_t item, plane, row, pixel; /* distances in `image`, in elements */
    int64_t panels, panel_bytes;
    int64_t lines, blocks, groups;  /* rows of the result in all; pieces of them, and of panels */
} job;

typedef struct {
    const tg_view *input;
    char *to;
    int64_t padding[2], grown[2], pixel, item, tasks, rows;
} growing;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of the padded images. */
static void grow_task(int64_t task, void *context)
{
    const growing *g = context;
    const tg_view *x = g->input;
    const int64_t bytes = x->shape[3] * g->item, step = g->pixel * g->item, end = tgc_begin(g->rows, g->tasks, task + 1, 1);
    for (int64_t row = tgc_begin(g->rows, g->tasks, task, 1); row < end; row++) {
        const int64_t y = row % g->grown[0] - g->padding[0];
        char *to = g->to + row * g->grown[1] * step;
        if (y < 0 || y >= x->shape[1]) {
            memset(to, 0, (size_t)(g->grown[1] * step));
            continue;
        }
        const char *from = (const char *)x->data + (row / g->grown[0] * x->strides[0] + y * x->strides[1]) * g->item;
        memset(to, 0, (size_t)(g->padding[1] * step));
        to += g->padding[1] * step;
        if (bytes == step && x->strides[2] == x->shape[3])
            memcpy(to, from, (size_t)(x->shape[2] * bytes));
        else
            for (int64_t i = 0; i < x->shape[2]; i++)
                memcpy(to + i * step, from + i * x->strides[2] * g->item, (size_t)bytes);
        memset(to + x->shape[2] * step, 0, (size_t)(g->padding[1] * step));
    }
}

/* The weights of a panel of maps, tap by tap, channel by channel. */
static void pack_task(int64_t panel, void *context)
{
    const job *j = context;
    const tg_view *w = j->weight;
    const int64_t first = panel * j->e->nr, count = smaller(j->maps - first, j->e->nr);
    char *to = j->packed + panel * j->panel_bytes;
    for (int64_t t = 0; t < j->kernel[0]; t++)
        for (int64_t u = 0; u < j->kernel[1]; u++, to += j->channels * j->e->nr * j->item)
            j->e->pack_b(to, (const char *)w->data + (first * w->strides[0] + t * w->strides[2] + u * w->strides[3]) * j->item,
                         count, j->channels, w->strides[0], w->strides[1]);
}

/* Some rows of windows, for some panels of maps. */
static void rows_task(int64_t task, void *context)
{
    const job *j = context;
    const tgc_engine *e = j->e;
    const int64_t block = task / j->groups, group = task % j->groups;
    const int64_t from = tgc_begin(j->lines, j->blocks, block, 1), end = tgc_begin(j->lines, j->blocks, block + 1, 1);
    const int64_t last = tgc_begin(j->panels, j->groups, group + 1, 1), pieces = (j->width + e->mr - 1) / e->mr;
    const int64_t least = j->width / pieces, longer = j->width % pieces;
    for (int64_t panel = tgc_begin(j->panels, j->groups, group, 1); panel < last; panel++) {
        const int64_t cols = smaller(j->maps - panel * e->nr, e->nr);
        const char *weights = j->packed + panel * j->panel_bytes;
        int accumulate = 0;
        for (int64_t tap = 0; tap < j->kernel[0] * j->kernel[1]; tap++)
            for (int64_t c = 0; c < j->channels; c += RUN, accumulate = 1) {
                const int64_t k = smaller(j->channels - c, RUN);
                const int64_t at = tap / j->kernel[1] * j->dilation[0] * j->row
                                   + tap % j->kernel[1] * j->dilation[1] * j->pixel + c;
                for (int64_t line = from; line < end; line++) {
                    const char *x = j->image + (line / j->height * j->plane + line % j->height * j->stride[0] * j->row + at) * j->item;
                    char *to = j->out + (line * j->width * j->maps + panel * e->nr) * j->item;
                    for (int64_t piece = 0, rows; piece < pieces; piece++) {
                        rows = least + (piece < longer);
                        e->direct(rows, cols, k, x, j->stride[1] * j->pixel, 1, weights, e->nr, to, j->maps, accumulate, NULL);
                        x += rows * j->stride[1] * j->pixel * j->item;
                        to += rows * j->maps * j->item;
                    }
                }
                weights += k * e->nr * j->item;
            }
    }
}

/* Copy the images where they have to be; returns 0, or -1 with an exception. */
static int grow(job *j, const char *op, const tg_view *input, const int64_t *padding, char **memory)
{
    const int64_t near = j->stride[1] * j->channels * j->item % SET_BYTES == 0;
    j->image = input->data, j->plane = input->strides[0], j->row = input->strides[1], j->pixel = input->strides[2];
    if (padding[0] == 0 && padding[1] == 0 && input->strides[3] == 1 && !near)
        return 0;
    growing g = {.input = input, .item = j->item, .pixel = j->channels + (near ? LINE_BYTES / j->item : 0)};
    for (int d = 0; d < 2; d++) {
        g.padding[d] = padding[d];
        g.grown[d] = input->shape[d + 1] + 2 * padding[d];
    }
    j->pixel = g.pixel, j->row = g.grown[1] * j->pixel, j->plane = g.grown[0] * j->row;
    const size_t bytes = (size_t)(j->images * j->plane * j->item);
    *memory = g.to = tgc_scratch(bytes);
    if (g.to == NULL)
        return tgc_no_memory(op, bytes);
    j->image = g.to;
    g.rows = j->images * g.grown[0];
    g.tasks = tgc_tasks((int64_t)bytes, 1 << 17, g.rows < MOST_TASKS ? g.rows : MOST_TASKS);
    tgc_parallel(g.tasks, grow_task, &g);
    return 0;
}

static int convolution_last(const tg_call *call, void *context)
{
    static const char op[] = "convolution_channels_last";
    const tg_view *input = call->args[0].value.tensors, *weight = call->args[1].value.tensors, *out = call->outs;
    const tg_argument *windows = call->args + 2;
    char *grown = NULL;
    (void)context;
    if (out->numel == 0)
        return 0;
    job j = {.e = out->dtype == TGC_FLOAT64 ? &TGC(tgc_engine_f64) : &TGC(tgc_engine_f32),
             .weight = weight,
             .out = out->data,
             .images = input->shape[0],
             .channels = input->shape[3],
             .maps = weight->shape[0],
             .height = out->shape[1],
             .width = out->shape[2],
             .item = tgc_itemsize[out->dtype]};
    if (j.e->direct == NULL || input->strides[3] != 1 || j.channels == 0 || input->dtype != out->dtype
        || weight->shape[1] != j.channels || out->strides[3] != 1 || out->strides[2] != j.maps
        || (j.height > 1 && out->strides[1] != j.maps * j.width)
        || (j.images > 1 && out->strides[0] != j.maps * j.width * j.height))
        return TG_DECLINED;
    for (int d = 0; d < 2; d++) {
        j.kernel[d] = weight->shape[d + 2];
        j.stride[d] = windows[0].value.ints[d];
        j.dilation[d] = windows[2].value.ints[d];
    }
    j.panels = (j.maps + j.e->nr - 1) / j.e->nr;
    j.panel_bytes = j.kernel[0] * j.kernel[1] * j.channels * j.e->nr * j.item + TGC_PANEL_SLACK;
    const size_t bytes = (size_t)(j.panels * j.panel_bytes);
    j.packed = tgc_scratch(bytes);
    if (j.packed == NULL)
        return tgc_no_memory(op, bytes);
    int status = grow(&j, op, input, windows[1].value.ints, &grown);
    if (!status) {
        const double products = (double)out->numel * (double)(j.kernel[0] * j.kernel[1] * j.channels);
        const int64_t wanted = tgc_tasks((int64_t)(products < 1e15 ? products : 1e15), GRAIN, MOST_TASKS);
        const int64_t line_bytes = j.stride[0] * j.row * j.item;
        j.lines = j.images * j.height;
        j.blocks = smaller(j.lines, (j.lines * line_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
        j.groups = smaller(j.panels, (wanted / 4 + j.blocks - 1) / j.blocks);
        j.groups = j.groups < 1 ? 1 : j.groups;
        if (products < GRAIN)
            for (int64_t panel = 0; panel < j.panels; panel++)
                pack_task(panel, &j);
        else
            tgc_parallel(j.panels, pack_task, &j);
        if (j.dilation[1] == 1 && j.pixel == j.channels) {
            /* A row of a window lies in one piece. */
            j.channels *= j.kernel[1];
            j.kernel[1] = 1;
        }
        tgc_parallel(j.blocks * j.groups, rows_task, &j);
    }
    tgc_scratch_free(grown);
    tgc_scratch_free(j.packed);
    return status;
}

const tgc_kernel TGC(tgc_table_convolution_last)[] = {
    {"convolution_channels_last", "float32", TGC_CALL, convolution_last, NULL},
    {"convolution_channels_last", "float64", TGC_CALL, convolution_last, NULL},
    {0}};
