/* Convolutions of bytes: rows of the input are gathered as a product wants them, or each channel is
 * convolved by itself. */

#include "call.h"

typedef struct conv_work {
    const tq_product *p;
    const uint8_t *input;
    const int64_t *size, *kernel, *stride, *padding, *dilation, *out; /* out: N, D, H, W, C */
    int64_t channels, groups, taps, direct;
    const int8_t *by_channel; /* depthwise: weights in the level's order, else NULL */
    const uint8_t *end; /* of the input */
    int failed;
} conv_work;

enum { ROWS_OF_TASK = 64 };

/* One place of the output, and the next. */
typedef struct cursor {
    int64_t n, z, y, x;
} cursor;

static cursor cursor_at(const conv_work *w, int64_t place)
{
    int64_t plane = w->out[2] * w->out[3];
    cursor c = {place / (plane * w->out[1]), place / plane % w->out[1], place / w->out[3] % w->out[2],
                place % w->out[3]};
    return c;
}

static void advance(const conv_work *w, cursor *c)
{
    if (++c->x < w->out[3])
        return;
    c->x = 0;
    if (++c->y < w->out[2])
        return;
    c->y = 0;
    if (++c->z == w->out[1]) {
        c->z = 0;
        c->n++;
    }
}

/* Where a line of the kernel reads, at x = 0, or NULL where all of it is padding. */
static const uint8_t *input_line(const conv_work *w, const cursor *c, int64_t i, int64_t j)
{
    int64_t a = c->z * w->stride[0] - w->padding[0] + i * w->dilation[0];
    int64_t b = c->y * w->stride[1] - w->padding[1] + j * w->dilation[1];
    if (a < 0 || a >= w->size[1] || b < 0 || b >= w->size[2])
        return NULL;
    return w->input + ((c->n * w->size[1] + a) * w->size[2] + b) * w->size[3] * w->channels;
}

/* Whether all taps of an output place lie within the input. */
static int inside(const conv_work *w, const cursor *c)
{
    const int64_t at[] = {c->z, c->y, c->x};
    for (int d = 0; d < 3; d++) {
        int64_t first = at[d] * w->stride[d] - w->padding[d];
        if (first < 0 || first + (w->kernel[d] - 1) * w->dilation[d] >= w->size[d + 1])
            return 0;
    }
    return 1;
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
 * overwritten, or meets weights that are zero. */
static int gather_inside(const conv_work *w, const cursor *c, uint8_t *row)
{
    if (!inside(w, c))
        return 0;
    int64_t line_bytes = w->kernel[2] * w->channels;
    const uint8_t *first = input_line(w, c, 0, 0) + (c->x * w->stride[2] - w->padding[2]) * w->channels;
    const uint8_t *last = first + (w->kernel[0] - 1) * plane_step(w) + (w->kernel[1] - 1) * line_step(w);
    int is_short = line_bytes <= SHORT_LINE && last + SHORT_LINE <= w->end;
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

static void conv_rows(const conv_work *w, int64_t begin, int64_t end, const uint8_t **taps, uint8_t *rows)
{
    int64_t width = row_bytes(w->p->quads), of_group = w->out[4] / w->groups;
    int64_t packed = (of_group + 15) / 16 * w->p->quads * 64;
    for (int64_t group = 0; group < w->groups; group++) {
        tq_product p = *w->p;
        p.packed += group * packed;
        p.sums += group * of_group;
        p.scales += group * of_group;
        p.bias = p.bias == NULL ? NULL : p.bias + group * of_group;
        p.weight_zeros = p.weight_zeros == NULL ? NULL : p.weight_zeros + group * of_group;
        p.bytes += group * of_group;
        cursor c = cursor_at(w, begin);
        for (int64_t place = begin; place < end; place++, advance(w, &c)) {
            uint8_t *row = rows + (place - begin) * width;
            if (w->groups == 1 && w->dilation[2] == 1) {
                if (!gather_inside(w, &c, row))
                    gather_lines(w, &c, p.depth, row);
                continue;
            }
            places(w, &c, taps, NULL);
            gather(w, taps, group, p.depth, row);
        }
        tq_level_in_use->rows(&p, rows, width, begin, end, 0, of_group);
    }
}

static void conv_task(int64_t first, int64_t last, void *context)
{
    conv_work *w = context;
    int64_t all = w->out[0] * w->out[1] * w->out[2] * w->out[3];
    int64_t width = row_bytes(w->p->quads);
    size_t rows_size = w->by_channel != NULL ? (size_t)w->channels : (size_t)(ROWS_OF_TASK * width + SHORT_LINE);
    const uint8_t **taps = malloc((size_t)w->taps * sizeof *taps);
    uint8_t *rows = w->direct ? NULL : malloc(rows_size);
    if (taps == NULL || (rows == NULL && !w->direct)) {
        w->failed = 1;
        free(taps);
        free(rows);
        return;
    }
    if (w->by_channel != NULL)
        memset(rows, w->p->input_zero, (size_t)w->channels);
    for (int64_t task = first; task < last; task++) {
        int64_t begin = task * ROWS_OF_TASK;
        int64_t end = begin + ROWS_OF_TASK < all ? begin + ROWS_OF_TASK : all;
        if (w->direct)
            tq_level_in_use->rows(w->p, w->input + begin * w->channels, w->channels, begin, end, 0, w->out[4]);
        else if (w->by_channel == NULL)
            conv_rows(w, begin, end, taps, rows);
        else {
            cursor c = cursor_at(w, begin);
            for (int64_t place = begin; place < end; place++, advance(w, &c)) {
                places(w, &c, taps, rows);
                tq_level_in_use->depthwise(w->p, taps, w->by_channel, w->taps, w->channels, place);
            }
        }
    }
    free(taps);
    free(rows);
}

/* Weights [taps][channels] in the order in which the level in use reads them; NULL: no memory. */
static int8_t *ordered(const int8_t *weights, int64_t taps, int64_t channels)
{
    int8_t *to = calloc(1, (size_t)tq_depthwise_size(taps, channels) + 1);
    for (int64_t t = 0; t < taps && to != NULL; t++)
        for (int64_t c = 0; c < channels; c++)
            to[tq_level_in_use->place_of(t, c, taps)] = weights[t * channels + c];
    return to;
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
    w.direct = !depthwise && w.groups == 1 && w.taps == 1 && w.channels % 4 == 0;
    for (int i = 0; i < 3; i++)
        w.direct = w.direct && w.stride[i] == 1 && w.padding[i] == 0;
    int8_t *by_channel = depthwise ? ordered(packed->data, w.taps, w.channels) : NULL;
    if (depthwise && by_channel == NULL)
        return fails(PyExc_MemoryError, "quantized_convolution: no memory for the weights in the kernel's order");
    w.by_channel = by_channel;
    int64_t places_of_all = out->shape[0] * out->shape[1] * out->shape[2] * out->shape[3];
    if (out->numel > 0)
        parallel((places_of_all + ROWS_OF_TASK - 1) / ROWS_OF_TASK, conv_task, &w);
    free(by_channel);
    if (w.failed)
        return fails(PyExc_MemoryError, "quantized_convolution: no memory for rows of the input");
    return 0;
}
