/* Convolutions of bytes: rows of the input are gathered as a product wants them, or each channel is
 * convolved by itself. */

#include "convolution.h"

/* Of fewer places than this all rows are gathered first, so that tasks can share out columns too:
 * the last layers of a network have 49 places and hundreds of columns. */
enum { FEW_PLACES = 768, GATHERED_PLACES = 16 };

/* Where a line of the kernel reads, at x = 0, or NULL where all of it is padding. */
static const uint8_t *input_line(const conv_work *w, const cursor *c, int64_t i, int64_t j)
{
    int64_t a = c->z * w->stride[0] - w->padding[0] + i * w->dilation[0];
    int64_t b = c->y * w->stride[1] - w->padding[1] + j * w->dilation[1];
    if (a < 0 || a >= w->size[1] || b < 0 || b >= w->size[2])
        return NULL;
    return w->input + ((c->n * w->size[1] + a) * w->size[2] + b) * w->size[3] * w->channels;
}

/* Find the output places all of whose taps lie within the input. */
static void find_inside(conv_work *w)
{
    for (int d = 0; d < 3; d++) {
        int64_t room = w->size[d + 1] + w->padding[d] - 1 - (w->kernel[d] - 1) * w->dilation[d];
        w->first[d] = (w->padding[d] + w->stride[d] - 1) / w->stride[d];
        w->last[d] = room < 0 ? -1 : room / w->stride[d];
    }
}

static inline int inside(const conv_work *w, const cursor *c)
{
    return c->x >= w->first[2] && c->x <= w->last[2] && c->y >= w->first[1] && c->y <= w->last[1] &&
           c->z >= w->first[0] && c->z <= w->last[0];
}

/* Bytes from a line of the kernel to the next one, in height and in depth. */
static int64_t line_step(const conv_work *w) { return w->dilation[1] * w->size[3] * w->channels; }
static int64_t plane_step(const conv_work *w) { return w->dilation[0] * w->size[2] * w->size[3] * w->channels; }

/* Where each tap of the kernel reads for one output place; `outside` where that is padding. */
static void places(const conv_work *w, const cursor *c, const uint8_t **taps, const uint8_t *outside)
{
    int64_t start = c->x * w->stride[2] - w->padding[2], step = w->dilation[2] * w->channels;
    const uint8_t *first = inside(w, c) ? input_line(w, c, 0, 0) + start * w->channels : NULL;
    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++) {
            const uint8_t *line;
            int64_t x = start;
            if (first != NULL) {
                line = first + i * plane_step(w) + j * line_step(w);
                for (int64_t k = 0; k < w->kernel[2]; k++, line += step)
                    *taps++ = line;
                continue;
            }
            line = input_line(w, c, i, j);
            for (int64_t k = 0; k < w->kernel[2]; k++, x += w->dilation[2], taps++)
                *taps = line != NULL && x >= 0 && x < w->size[3] ? line + x * w->channels : outside;
        }
}

/* A call of memcpy costs more than the few bytes of an image's channels. */
static void take(uint8_t *to, const uint8_t *from, int64_t width)
{
    if (width > 16) {
        memcpy(to, from, (size_t)width);
        return;
    }
    for (int64_t i = 0; i < width; i++)
        to[i] = from[i];
}

static void fill(uint8_t *to, int value, int64_t width)
{
    if (width > 16) {
        memset(to, value, (size_t)width);
        return;
    }
    for (int64_t i = 0; i < width; i++)
        to[i] = (uint8_t)value;
}

static void gather(const conv_work *w, const uint8_t **taps, int64_t group, int64_t depth, uint8_t *row)
{
    int64_t width = w->channels / w->groups;
    for (int64_t t = 0; t < w->taps; t++, row += width) {
        if (taps[t] == NULL)
            fill(row, w->p->input_zero, width);
        else
            take(row, taps[t] + group * width, width);
    }
    fill(row, 0, w->p->quads * 4 - depth);
}

/* The same where taps of a line lie side by side: a line at a time. */
enum { SHORT_LINE = 32 };

/* Short lines are copied as thirty-two bytes, where so many are there: what is too much is
 * overwritten, or meets weights that are zero. What lies at `limit` is another task's, and is kept. */
static int gather_inside(const conv_work *w, const cursor *c, uint8_t *row, const uint8_t *limit)
{
    if (!inside(w, c))
        return 0;
    int64_t line_bytes = w->kernel[2] * w->channels;
    const uint8_t *first = input_line(w, c, 0, 0) + (c->x * w->stride[2] - w->padding[2]) * w->channels;
    const uint8_t *last = first + (w->kernel[0] - 1) * plane_step(w) + (w->kernel[1] - 1) * line_step(w);
    const uint8_t *last_of_row = row + (w->kernel[0] * w->kernel[1] - 1) * line_bytes;
    int is_short = line_bytes <= SHORT_LINE && last + SHORT_LINE <= w->end && last_of_row + SHORT_LINE <= limit;
    for (int64_t i = 0; i < w->kernel[0]; i++, first += plane_step(w)) {
        const uint8_t *line = first;
        for (int64_t j = 0; j < w->kernel[1]; j++, line += line_step(w), row += line_bytes) {
            if (is_short)
                memcpy(row, line, SHORT_LINE);
            else
                memcpy(row, line, (size_t)line_bytes);
        }
    }
    return 1;
}

static void gather_lines(const conv_work *w, const cursor *c, int64_t depth, uint8_t *row)
{
    int64_t start = c->x * w->stride[2] - w->padding[2], end = start + w->kernel[2];
    int64_t first = start < 0 ? 0 : start, last = end < w->size[3] ? end : w->size[3];
    int64_t before = (first - start) * w->channels, within = (last - first) * w->channels;
    int64_t line_bytes = w->kernel[2] * w->channels;
    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++, row += line_bytes) {
            const uint8_t *line = input_line(w, c, i, j);
            if (line == NULL || within <= 0) {
                fill(row, w->p->input_zero, line_bytes);
                continue;
            }
            fill(row, w->p->input_zero, before);
            take(row + before, line + first * w->channels, within);
            fill(row + before + within, w->p->input_zero, line_bytes - before - within);
        }
    fill(row, 0, w->p->quads * 4 - depth);
}

/* Write the rows of places `begin` to `end` of a group as a product wants them. */
static void gather_rows(const conv_work *w, int64_t begin, int64_t end, int64_t group, const uint8_t **taps,
                        uint8_t *row)
{
    int64_t width = row_bytes(w->p->quads);
    const uint8_t *limit = row + (end - begin) * width;
    cursor c = cursor_at(w, begin);
    for (int64_t place = begin; place < end; place++, row += width, advance(w, &c)) {
        if (w->groups == 1 && w->dilation[2] == 1) {
            if (!gather_inside(w, &c, row, limit))
                gather_lines(w, &c, w->p->depth, row);
            continue;
        }
        places(w, &c, taps, NULL);
        gather(w, taps, group, w->p->depth, row);
    }
}

static tq_product of_group(const conv_work *w, int64_t group)
{
    int64_t columns = w->out[4] / w->groups;
    tq_product p = *w->p;
    p.packed += group * ((columns + 15) / 16 * p.quads * 64);
    p.sums += group * columns;
    p.scales += group * columns;
    p.bias = p.bias == NULL ? NULL : p.bias + group * columns;
    p.weight_zeros = p.weight_zeros == NULL ? NULL : p.weight_zeros + group * columns;
    p.bytes += group * columns;
    return p;
}

static const uint8_t **room_for_taps(conv_work *w)
{
    const uint8_t **taps = malloc((size_t)w->taps * sizeof *taps);
    if (taps == NULL)
        w->failed = 1;
    return taps;
}

/* A task: some places of a group, gathered and multiplied while they are in the cache. */
static void conv_task(int64_t first, int64_t last, void *context)
{
    conv_work *w = context;
    int64_t width = row_bytes(w->p->quads), columns = w->out[4] / w->groups;
    const uint8_t **taps = room_for_taps(w);
    uint8_t *rows = malloc((size_t)(w->rows_of_task * width));
    if (rows == NULL)
        w->failed = 1;
    for (int64_t task = first; task < last && taps != NULL && rows != NULL; task++) {
        int64_t begin = task / w->groups * w->rows_of_task, end = begin + w->rows_of_task, group = task % w->groups;
        end = end < w->places ? end : w->places;
        tq_product p = of_group(w, group);
        gather_rows(w, begin, end, group, taps, rows);
        tq_level_in_use->rows(&p, rows, width, begin, end, 0, columns);
    }
    free(taps);
    free(rows);
}

static void gather_task(int64_t first, int64_t last, void *context)
{
    conv_work *w = context;
    const uint8_t **taps = room_for_taps(w);
    if (taps == NULL)
        return;
    for (int64_t task = first; task < last; task++) {
        int64_t begin = task * GATHERED_PLACES, end = begin + GATHERED_PLACES;
        end = end < w->places ? end : w->places;
        gather_rows(w, begin, end, 0, taps, w->rows + begin * row_bytes(w->p->quads));
    }
    free(taps);
}

static int all_rows_at_once(conv_work *w)
{
    int64_t width = row_bytes(w->p->quads), tasks = (w->places + GATHERED_PLACES - 1) / GATHERED_PLACES;
    tg_scratch scratch;
    w->rows = tq_borrowed(&scratch, w->places * width);
    if (w->rows == NULL)
        return -1;
    parallel(tasks, gather_task, w);
    if (!w->failed)
        tq_multiply(w->p, w->rows, width, w->places, w->out[4]);
    api->release_scratch(&scratch);
    return 0;
}

/* Each channel by itself. */
static void depthwise_task(int64_t first, int64_t last, void *context)
{
    conv_work *w = context;
    int64_t step = w->stride[2] * w->channels;
    const uint8_t **taps = room_for_taps(w);
    uint8_t *outside = malloc((size_t)w->channels);
    if (outside == NULL)
        w->failed = 1;
    else
        memset(outside, w->p->input_zero, (size_t)w->channels);
    for (int64_t task = first; task < last && taps != NULL && outside != NULL; task++) {
        int64_t begin = task * w->rows_of_task, end = begin + w->rows_of_task;
        cursor c = cursor_at(w, begin);
        int before = 0; /* whether the taps are those of the place to the left, all of them inside */
        for (int64_t place = begin; place < end && place < w->places; place++, advance(w, &c)) {
            int within = inside(w, &c);
            if (before && within && c.x > 0)
                for (int64_t t = 0; t < w->taps; t++)
                    taps[t] += step;
            else
                places(w, &c, taps, outside);
            before = within;
            tq_level_in_use->depthwise(w->p, taps, w->by_channel, w->taps, w->channels, place);
        }
    }
    free(taps);
    free(outside);
}

static int each_channel(conv_work *w, const int8_t *weights)
{
    int8_t *by_channel = calloc(1, (size_t)tq_depthwise_size(w->taps, w->channels) + 1);
    if (by_channel == NULL)
        return fails(PyExc_MemoryError, "quantized_convolution: no memory for the weights in the kernel's order");
    tq_level_in_use->order(weights, w->taps, w->channels, by_channel);
    w->by_channel = by_channel;
    parallel((w->places + w->rows_of_task - 1) / w->rows_of_task, depthwise_task, w);
    free(by_channel);
    return 0;
}

/* Whether rows of the input are rows of the product as they lie. */
static int is_product(const conv_work *w)
{
    int same = w->groups == 1 && w->taps == 1 && w->channels % 4 == 0;
    for (int i = 0; i < 3; i++)
        same = same && w->stride[i] == 1 && w->padding[i] == 0;
    return same;
}

static int convolve(conv_work *w, const int8_t *weights, int depthwise)
{
    if (!depthwise && is_product(w)) {
        tq_multiply(w->p, w->input, w->channels, w->places, w->out[4]);
        return 0;
    }
    int done = depthwise ? tq_depthwise_directly(w, weights) : tq_directly(w);
    if (done != 0)
        return done < 0 ? -1 : 0;
    if (depthwise)
        return each_channel(w, weights);
    if (w->groups == 1 && w->places < FEW_PLACES)
        return all_rows_at_once(w);
    parallel((w->places + w->rows_of_task - 1) / w->rows_of_task * w->groups, conv_task, w);
    return 0;
}

int tq_convolution_kernel(const tg_call *call, void *context)
{
    tq_product p = {0};
    const tg_view *input = tensor(call, 0), *packed = tensor(call, 1), *out = call->outs;
    if (!dense(input, UINT8) || !dense_bytes(out) || !weights(call, 1, &p))
        return TG_DECLINED;
    const tg_argument *geometry = &call->args[6], *levels = &call->args[7];
    if (geometry->kind != TG_ARG_INTS || geometry->count != 12 || levels->kind != TG_ARG_INTS || levels->count != 4)
        return TG_DECLINED;
    conv_work w = {&p, input->data, input->shape};
    w.end = w.input + input->numel;
    w.kernel = geometry->value.ints;
    w.stride = w.kernel + 3;
    w.padding = w.kernel + 6;
    w.dilation = w.kernel + 9;
    w.out = out->shape;
    w.channels = input->shape[4];
    w.taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
    int depthwise = packed->ndim == 2;
    w.groups = depthwise ? w.channels : packed->shape[0];
    if (depthwise && p.weight_zeros != NULL)
        return TG_DECLINED;
    p.depth = w.taps * (w.channels / w.groups);
    p.quads = (p.depth + 3) / 4;
    p.row_stride = out->shape[4];
    p.input_zero = (int32_t)levels->value.ints[0];
    p.zero = (int32_t)levels->value.ints[1];
    p.low = (int32_t)levels->value.ints[2];
    p.high = (int32_t)levels->value.ints[3];
    p.bytes = out->data;
    w.places = out->shape[0] * out->shape[1] * out->shape[2] * out->shape[3];
    int64_t tile = tq_level_in_use->row_tile;
    w.rows_of_task = tile > 64 ? 64 : w.places < 32 * tile ? tile / 2 : tile;
    find_inside(&w);
    if (out->numel == 0)
        return 0;
    if (convolve(&w, packed->data, depthwise) < 0)
        return -1;
    if (w.failed)
        return fails(PyExc_MemoryError, "quantized_convolution: no memory for rows of the input");
    return 0;
}
