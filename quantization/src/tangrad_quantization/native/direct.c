/* Convolutions of bytes without gathering rows: the product reads the input where it lies, a line of
 * the kernel after the other. Padding is written once around a copy of the input. */

#include "convolution.h"

typedef struct direct_work {
    const conv_work *w;
    tq_product p; /* of the weights as pieces want them */
    const uint8_t *input;
    int64_t size[3]; /* of the input with its padding */
    tq_pieces pieces;
    int64_t row_tile, column_tile, across, down;
    uint8_t *copy; /* where the padded input is written, else NULL */
} direct_work;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

enum { LINES_OF_TASK = 8, FEWEST_PLACES_TO_PACK = 256, MOST_PIECES = 512 };

/* Write lines of the padded copy. */
static void pad_task(int64_t first, int64_t last, void *context)
{
    const direct_work *d = context;
    const conv_work *w = d->w;
    const int64_t channels = w->channels, bytes = d->size[2] * channels, side = w->padding[2] * channels;
    const int64_t inner = w->size[3] * channels, all = w->size[0] * d->size[0] * d->size[1];
    const int64_t end = smaller(last * LINES_OF_TASK, all);
    for (int64_t line = first * LINES_OF_TASK; line < end; line++) {
        int64_t y = line % d->size[1] - w->padding[1], z = line / d->size[1] % d->size[0] - w->padding[0];
        int64_t n = line / (d->size[0] * d->size[1]);
        uint8_t *to = d->copy + line * bytes;
        if (y < 0 || y >= w->size[2] || z < 0 || z >= w->size[1]) {
            memset(to, w->p->input_zero, (size_t)bytes);
            continue;
        }
        memset(to, w->p->input_zero, (size_t)side);
        memcpy(to + side, w->input + ((n * w->size[1] + z) * w->size[2] + y) * inner, (size_t)inner);
        memset(to + side + inner, w->p->input_zero, (size_t)side);
    }
}

/* Where a place of the output reads first. */
static const uint8_t *first_of(const direct_work *d, const cursor *c)
{
    const conv_work *w = d->w;
    int64_t plane = c->n * d->size[0] + c->z * w->stride[0], line = plane * d->size[1] + c->y * w->stride[1];
    return d->input + (line * d->size[2] + c->x * w->stride[2]) * w->channels;
}

static void direct_task(int64_t begin, int64_t end, void *context)
{
    const direct_work *d = context;
    const conv_work *w = d->w;
    const int64_t groups = w->groups, columns = w->out[4] / groups, width = w->channels / groups;
    for (int64_t task = begin; task < end; task++) {
        int64_t group = task % groups, tile = task / groups, part = tile % d->across;
        int64_t row = tile / d->across * d->row_tile, column = part * d->column_tile;
        int64_t bottom = tile / d->across + 1 < d->down ? row + d->row_tile : w->places;
        const uint8_t *at[TQ_ROWS];
        cursor c = cursor_at(w, row);
        for (int64_t i = 0; i < bottom - row; i++, advance(w, &c))
            at[i] = first_of(d, &c) + group * width;
        tq_product p = d->p;
        p.packed += group * ((columns + 15) / 16 * p.quads * 64);
        p.sums += group * columns;
        p.scales += group * columns;
        p.bias = p.bias == NULL ? NULL : p.bias + group * columns;
        p.bytes += group * columns;
        tq_level_in_use->pieces(&p, at, &d->pieces, row, bottom, column,
                                smaller(column + d->column_tile, columns));
    }
}

/* Weights of pieces that are no multiple of four bytes, each with zeros behind it. */
static void spread(const conv_work *w, int64_t piece, const tq_pieces *pieces, int8_t *to)
{
    const int64_t blocks = (w->out[4] + 15) / 16, quads = pieces->count * pieces->quads;
    memset(to, 0, (size_t)(blocks * quads * 64));
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t s = 0; s < pieces->count; s++)
            for (int64_t t = 0; t < piece; t++) {
                int64_t place = s * piece + t;
                const int8_t *from = w->p->packed + (block * w->p->quads + place / 4) * 64 + place % 4;
                int8_t *there = to + (block * quads + s * pieces->quads + t / 4) * 64 + t % 4;
                for (int64_t n = 0; n < 16; n++)
                    there[n * 4] = from[n * 4];
            }
}

/* Distances of the pieces from the first: lines of the kernel, or its taps where these lie apart. */
static void find_pieces(const direct_work *d, int64_t of_line, int64_t *offsets)
{
    const conv_work *w = d->w;
    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++)
            for (int64_t k = 0; k < of_line; k++) {
                int64_t line = i * w->dilation[0] * d->size[1] + j * w->dilation[1];
                *offsets++ = (line * d->size[2] + k * w->dilation[2]) * w->channels;
            }
}

int tq_directly(const conv_work *w)
{
    const int whole = w->groups == 1 && (w->dilation[2] == 1 || w->kernel[2] == 1);
    const int64_t of_line = whole ? 1 : w->kernel[2];
    const int64_t piece = (whole ? w->kernel[2] : 1) * (w->channels / w->groups), odd = piece % 4;
    int64_t offsets[MOST_PIECES];
    direct_work d = {w, *w->p, w->input, {w->size[1], w->size[2], w->size[3]}};
    d.pieces = (tq_pieces){offsets, w->kernel[0] * w->kernel[1] * of_line, (piece + 3) / 4};
    if (tq_level_in_use->pieces == NULL || w->p->weight_zeros != NULL || d.pieces.count > MOST_PIECES ||
        (odd && (w->groups > 1 || w->places < FEWEST_PLACES_TO_PACK)))
        return 0;
    int64_t copied = 0, packed = 0;
    if (odd || w->padding[0] || w->padding[1] || w->padding[2]) {
        for (int i = 0; i < 3; i++)
            d.size[i] += 2 * w->padding[i];
        copied = (w->size[0] * d.size[0] * d.size[1] * d.size[2] * w->channels + 64) / 64 * 64;
    }
    if (odd)
        packed = (w->out[4] + 15) / 16 * d.pieces.count * d.pieces.quads * 64;
    tg_scratch scratch;
    if (copied > 0) {
        d.copy = tq_borrowed(&scratch, copied + packed);
        if (d.copy == NULL)
            return -1;
        d.input = d.copy;
        parallel((w->size[0] * d.size[0] * d.size[1] + LINES_OF_TASK - 1) / LINES_OF_TASK, pad_task, &d);
    }
    if (odd) {
        int8_t *weights = (int8_t *)d.copy + copied;
        spread(w, piece, &d.pieces, weights);
        d.p.packed = weights;
        d.p.quads = d.pieces.count * d.pieces.quads;
    }
    find_pieces(&d, of_line, offsets);
    const int64_t columns = w->out[4] / w->groups;
    d.row_tile = smaller(w->places, 48);
    int64_t wanted = (1 << 21) / (d.row_tile * d.p.quads * 4 + 1);
    d.column_tile = wanted < 64 ? 64 : wanted / 64 * 64;
    d.across = (columns + d.column_tile - 1) / d.column_tile;
    d.down = w->places <= d.row_tile ? 1 : (w->places + (d.row_tile - 1) / 2) / d.row_tile;
    parallel(d.across * d.down * w->groups, direct_task, &d);
    if (copied > 0)
        api->release_scratch(&scratch);
    return 1;
}

/* ---- each channel by itself ---- */

typedef struct line_work {
    const conv_work *w;
    const int8_t *weights;
    int64_t parts, strip; /* of the channels, and places at once */
} line_work;

enum { CHANNELS_OF_PART = 256, MOST_LINES = 32 };

static void line_task(int64_t begin, int64_t end, void *context)
{
    const line_work *l = context;
    const conv_work *w = l->w;
    for (int64_t task = begin; task < end; task++) {
        int64_t left = task % l->parts * CHANNELS_OF_PART, row = task / l->parts * w->out[3];
        int64_t right = smaller(left + CHANNELS_OF_PART, w->channels), count = 0;
        const cursor c = cursor_at(w, row);
        const uint8_t *lines[MOST_LINES];
        for (int64_t i = 0; i < w->kernel[0]; i++)
            for (int64_t j = 0; j < w->kernel[1]; j++) {
                int64_t z = c.z * w->stride[0] - w->padding[0] + i * w->dilation[0];
                int64_t y = c.y * w->stride[1] - w->padding[1] + j * w->dilation[1];
                int within = z >= 0 && z < w->size[1] && y >= 0 && y < w->size[2];
                int64_t line = (c.n * w->size[1] + z) * w->size[2] + y;
                lines[count++] = within ? w->input + line * w->size[3] * w->channels : NULL;
            }
        for (int64_t x = 0; x < w->out[3]; x += l->strip) {
            tq_line line = {lines, count, w->size[3], w->kernel[2], w->stride[2], w->dilation[2],
                            x * w->stride[2] - w->padding[2], smaller(l->strip, w->out[3] - x), w->channels};
            tq_level_in_use->line(w->p, &line, l->weights, left, right, row + x);
        }
    }
}

int tq_depthwise_directly(const conv_work *w, const int8_t *weights)
{
    const int64_t lines = w->kernel[0] * w->kernel[1], quads = (lines + 3) / 4;
    const int64_t more = (w->kernel[2] - 1) * w->dilation[2] + 1, rest = TQ_STEPS / quads - more;
    if (tq_level_in_use->line == NULL || lines > MOST_LINES || rest < 0)
        return 0;
    const int64_t taps = w->kernel[2] * quads * 4, size = tq_depthwise_size(taps, w->channels);
    tg_scratch scratch;
    int8_t *ordered = tq_borrowed(&scratch, size + taps * w->channels);
    if (ordered == NULL)
        return -1;
    int8_t *arranged = ordered + size;
    memset(ordered, 0, (size_t)(size + taps * w->channels));
    for (int64_t l = 0; l < lines; l++)
        for (int64_t k = 0; k < w->kernel[2]; k++)
            memcpy(arranged + (k * quads * 4 + l) * w->channels, weights + (l * w->kernel[2] + k) * w->channels,
                   (size_t)w->channels);
    tq_level_in_use->order(arranged, taps, w->channels, ordered);
    line_work l = {w, ordered, (w->channels + CHANNELS_OF_PART - 1) / CHANNELS_OF_PART, rest / w->stride[2] + 1};
    parallel(w->places / w->out[3] * l.parts, line_task, &l);
    api->release_scratch(&scratch);
    return 1;
}
