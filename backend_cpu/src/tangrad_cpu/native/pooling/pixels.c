/* Resampling pictures of bytes: columns, then rows, with weights of 16 bits in fixed point. The sums
 * are exact in 32 bits, so every way of computing them gives the same bytes.
 *
 * A picture whose channels lie side by side is taken as it is; any other plane by plane. One loop sums
 * in both directions: blocks of lines are transposed before and after the sums of columns. */
#include "tgc.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__AVX512BW__)
#include <immintrin.h>
#define OF(name) _mm512_##name
typedef __m512i wide;
#elif defined(__AVX2__)
#include <immintrin.h>
#define OF(name) _mm256_##name
typedef __m256i wide;
#elif defined(__SSE2__)
#include <emmintrin.h>
#define OF(name) _mm_##name
typedef __m128i wide;
#endif

#if defined(OF)
#define REGISTERS 1
enum { WIDE = sizeof(wide) };
#else
#define REGISTERS 0
enum { WIDE = 16 };
#endif

/* Blocks that are transposed have SIDE lines and WIDE bytes of each, or the other way round. */
enum { SIDE = 16, ROWS_OF_TASK = 16, MOST_CHANNELS = 4 };

/* Which elements of its line a result is made of: `taps` of them from `start` on; the weights of
 * one are `taps` in a row, zero at the end. */
typedef struct filter {
    int64_t out, taps, size;
    int precision;
    int32_t *start;
    int16_t *weights;
} filter;

static double cubic(double x, double a)
{
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double kernel_at(char mode, double x)
{
    if (mode == 'c')
        return cubic(x, -0.5);
    if (mode == 'l') {
        double turn = 3.14159265358979323846 * x;
        return fabs(x) >= 3 ? 0 : x == 0 ? 1 : 3 * sin(turn) * sin(turn / 3) / (turn * turn);
    }
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static int64_t within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The weights of result i, from *start on; returns how many there are. */
static int64_t stretched(char mode, double ratio, int64_t size, int64_t i, double *weights, int64_t *start)
{
    double reach = mode == 'c' ? 2 : mode == 'l' ? 3 : 1, stretch = ratio > 1 ? ratio : 1, total = 0;
    double center = ratio * ((double)i + 0.5);
    int64_t first = within((int64_t)(center - reach * stretch + 0.5), 0, size);
    int64_t end = within((int64_t)(center + reach * stretch + 0.5), first, size);
    for (int64_t j = first; j < end; j++)
        total += weights[j - first] = kernel_at(mode, ((double)j - center + 0.5) / stretch);
    for (int64_t j = 0; j < end - first && total != 0; j++)
        weights[j] /= total;
    *start = first;
    return end - first;
}

static int64_t between(char mode, double ratio, int corners, int64_t size, int64_t i, double *weights, int64_t *start)
{
    double at = corners ? ratio * (double)i : ratio * ((double)i + 0.5) - 0.5;
    int64_t first = 0, count = mode == 'c' ? 4 : 2;
    double shares[4];
    if (mode == 'c') {
        int64_t below = (int64_t)floor(at);
        for (int k = 0; k < 4; k++)
            shares[k] = cubic(at - (double)below - (k - 1), -0.75);
        first = below - 1;
    } else {
        at = corners || at > 0 ? at : 0;
        first = within((int64_t)at, 0, size - 1);
        double part = at - (double)first;
        shares[1] = part < 0 ? 0 : part > 1 ? 1 : part;
        shares[0] = 1 - shares[1];
    }
    *start = within(first, 0, size - 1);
    memset(weights, 0, 4 * sizeof *weights);
    for (int64_t k = 0; k < count; k++)
        weights[within(first + k, 0, size - 1) - *start] += shares[k];
    return within(first + count - 1, 0, size - 1) - *start + 1;
}

/* How many taps a result has at most, made even as loops take two at a time. */
static int64_t most_taps(char mode, double ratio, int64_t size, int antialias)
{
    int64_t most = 4;
    if (antialias) {
        double reach = (mode == 'c' ? 2 : mode == 'l' ? 3 : 1) * (ratio > 1 ? ratio : 1);
        most = reach < (double)size ? 2 * (int64_t)ceil(reach) + 2 : size + 1;
    }
    return most + most % 2;
}

/* Fill in a filter whose arrays are there. The weights have as many bits as their greatest allows. */
static void fill(filter *f, char mode, double ratio, int corners, int antialias, double *exact)
{
    double greatest = 0;
    for (int64_t i = 0; i < f->out; i++) {
        double *row = exact + i * f->taps;
        int64_t start;
        memset(row, 0, (size_t)f->taps * sizeof *row);
        int64_t count = antialias ? stretched(mode, ratio, f->size, i, row, &start)
                                  : between(mode, ratio, corners, f->size, i, row, &start);
        f->start[i] = (int32_t)start;
        for (int64_t k = 0; k < count; k++)
            greatest = row[k] > greatest ? row[k] : greatest;
    }
    f->precision = 0;
    while (f->precision < 22 && (int64_t)(0.5 + greatest * (double)(2 << f->precision)) < 1 << 15)
        f->precision++;
    for (int64_t k = 0; k < f->out * f->taps; k++)
        f->weights[k] = (int16_t)(exact[k] * (double)(1 << f->precision) + copysign(0.5, exact[k]));
}

static int32_t half_of(const filter *f)
{
    return f->precision > 0 ? 1 << (f->precision - 1) : 0;
}

/* One result of lines that lie `stride` bytes apart, of which whole registers may be read. */
static void across(const filter *f, int64_t result, const uint8_t *lines, int64_t stride, int64_t bytes, uint8_t *to)
{
    const int16_t *w = f->weights + result * f->taps;
    const uint8_t *first = lines + f->start[result] * stride;
    const int precision = f->precision;
    const int32_t half = half_of(f);
    int64_t taps = within(f->size - f->start[result], 0, f->taps), i = 0;
    while (taps > 1 && w[taps - 1] == 0)
        taps--;
#if REGISTERS
    const __m128i shift = _mm_cvtsi32_si128(precision);
    const wide none = OF(set1_epi32)(0);
    for (; i < bytes; i += WIDE) {
        wide s0 = OF(set1_epi32)(half), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t k = 0; k < taps; k += 2) {
            /* Two lines at a time, as pairs of 16 bits; the last one may be alone. */
            const uint8_t *p = first + k * stride + i;
            int32_t two;
            memcpy(&two, w + k, sizeof two);
            const wide pair = OF(set1_epi32)(two);
            wide a, b;
            memcpy(&a, p, WIDE);
            memcpy(&b, p + (k + 1 < taps ? stride : 0), WIDE);
            const wide low = OF(unpacklo_epi8)(a, b), high = OF(unpackhi_epi8)(a, b);
            s0 = OF(add_epi32)(s0, OF(madd_epi16)(OF(unpacklo_epi8)(low, none), pair));
            s1 = OF(add_epi32)(s1, OF(madd_epi16)(OF(unpackhi_epi8)(low, none), pair));
            s2 = OF(add_epi32)(s2, OF(madd_epi16)(OF(unpacklo_epi8)(high, none), pair));
            s3 = OF(add_epi32)(s3, OF(madd_epi16)(OF(unpackhi_epi8)(high, none), pair));
        }
        const wide low = OF(packs_epi32)(OF(sra_epi32)(s0, shift), OF(sra_epi32)(s1, shift));
        const wide high = OF(packs_epi32)(OF(sra_epi32)(s2, shift), OF(sra_epi32)(s3, shift));
        const wide made = OF(packus_epi16)(low, high);
        if (bytes - i >= WIDE)
            memcpy(to + i, &made, WIDE);
        else
            memcpy(to + i, &made, (size_t)(bytes - i));
    }
#endif
    for (; i < bytes; i++) {
        int32_t sum = half;
        for (int64_t k = 0; k < taps; k++)
            sum += w[k] * first[k * stride + i];
        to[i] = (uint8_t)within(sum >> precision, 0, 255);
    }
}

#if REGISTERS
static inline void store_parts(wide x, uint8_t *to, int64_t stride)
{
#if defined(__AVX512BW__)
    _mm_storeu_si128((__m128i *)to, _mm512_castsi512_si128(x));
    _mm_storeu_si128((__m128i *)(to + stride), _mm512_extracti32x4_epi32(x, 1));
    _mm_storeu_si128((__m128i *)(to + 2 * stride), _mm512_extracti32x4_epi32(x, 2));
    _mm_storeu_si128((__m128i *)(to + 3 * stride), _mm512_extracti32x4_epi32(x, 3));
#elif defined(__AVX2__)
    _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(x));
    _mm_storeu_si128((__m128i *)(to + stride), _mm256_extracti128_si256(x, 1));
#else
    (void)stride;
    _mm_storeu_si128((__m128i *)to, x);
#endif
}
#endif

/* Transpose SIDE lines of WIDE bytes, which become WIDE lines, `stride` apart, of SIDE bytes. */
static void transpose(const uint8_t *const *lines, int64_t at, uint8_t *to, int64_t stride)
{
#if REGISTERS
    wide rows[SIDE], others[SIDE];
#pragma GCC unroll 16
    for (int r = 0; r < SIDE; r++)
        memcpy(&rows[r], lines[r] + at, WIDE);
    /* Interleaving both halves of the lines four times transposes each 16 by 16 part. */
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (int r = 0; r < SIDE / 2; r++) {
            others[2 * r] = OF(unpacklo_epi8)(rows[r], rows[r + SIDE / 2]);
            others[2 * r + 1] = OF(unpackhi_epi8)(rows[r], rows[r + SIDE / 2]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < SIDE; r++)
            rows[r] = others[r];
    }
#pragma GCC unroll 16
    for (int r = 0; r < SIDE; r++)
        store_parts(rows[r], to + r * stride, SIDE * stride);
#else
    for (int r = 0; r < SIDE; r++)
        for (int x = 0; x < WIDE; x++)
            to[x * stride + r] = lines[r][at + x];
#endif
}

typedef struct job {
    const tg_view *input, *out;
    filter columns, rows; /* `out` 0: this direction stays as it is */
    int64_t units, each, channels, height, width, out_height, out_width;
    int64_t plane;    /* bytes from channel to channel of what columns gave; 0: channels lie side by side */
    int64_t pitch;    /* bytes from line to line of what columns gave, which are whole registers */
    uint8_t *between; /* what columns gave: (units, height, out_width * channels), and up to WIDE lines more */
    atomic_int failed;
} job;

/* Where a unit (a picture, or one of its planes) begins; `view` is (N, C, H, W). */
static uint8_t *unit_of(const job *j, const tg_view *view, int64_t unit)
{
    return (uint8_t *)view->data + unit / j->each * view->strides[0] + unit % j->each * view->strides[1];
}

/* Copy a line of pixels between a view and contiguous bytes. */
static void line_of(const job *j, const tg_view *view, uint8_t *place, uint8_t *line, int64_t pixels, int into)
{
    int64_t step = view->strides[3], c = j->channels, apart = c > 1 ? view->strides[1] : 1;
    if (apart == 1 && step == c) {
        memcpy(into ? place : line, into ? line : place, (size_t)(pixels * c));
        return;
    }
    for (int64_t x = 0; x < pixels; x++)
        for (int64_t k = 0; k < c; k++)
            if (into)
                place[x * step + k * apart] = line[x * c + k];
            else
                line[x * c + k] = place[x * step + k * apart];
}

static int64_t rounded(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

static void copies_task(int64_t index, void *context)
{
    job *j = context;
    for (int64_t line = index * WIDE; line < (index + 1) * WIDE && line < j->units * j->height; line++)
        line_of(j, j->input, unit_of(j, j->input, line / j->height) + line % j->height * j->input->strides[2],
                j->between + line * j->pitch, j->width, 0);
}

/* The sums of WIDE lines, of whichever units. */
static void columns_task(int64_t index, void *context)
{
    job *j = context;
    const int64_t *strides = j->input->strides, bytes = j->width * j->channels, made = j->out_width * j->channels;
    const int64_t pixel = j->channels * WIDE, pitch = rounded(bytes, WIDE), last = j->units * j->height - 1;
    const int straight = strides[3] == j->channels && (j->channels == 1 || strides[1] == 1) && bytes >= WIDE;
    uint8_t *memory = tgc_scratch((size_t)((straight ? 0 : WIDE * pitch) + (pitch + made) * WIDE));
    if (memory == NULL) {
        j->failed = 1;
        return;
    }
    uint8_t *columns = memory, *results = columns + pitch * WIDE, *copies = results + made * WIDE;
    for (int64_t group = 0; group < WIDE; group += SIDE) {
        const uint8_t *lines[SIDE];
        for (int64_t r = 0; r < SIDE; r++) {
            const int64_t line = within(index * WIDE + group + r, 0, last); /* the last one again fills the block */
            uint8_t *from = unit_of(j, j->input, line / j->height) + line % j->height * strides[2];
            if (!straight) {
                line_of(j, j->input, from, copies + (group + r) * pitch, j->width, 0);
                from = copies + (group + r) * pitch;
                memset(from + bytes, 0, (size_t)(pitch - bytes));
            }
            lines[r] = from;
        }
        for (int64_t x = 0; x < bytes; x += WIDE) {
            const int64_t at = straight && x + WIDE > bytes ? bytes - WIDE : x;
            transpose(lines, at, columns + at * WIDE + group, WIDE);
        }
    }
    for (int64_t i = 0; i < j->out_width; i++)
        across(&j->columns, i, columns, pixel, pixel, results + i * pixel);
    const int64_t planes = j->plane ? j->channels : 1, count = made / planes;
    for (int64_t c = 0; c < planes; c++)
        for (int64_t x = 0; x < count; x += SIDE) {
            const uint8_t *lines[SIDE];
            for (int64_t r = 0; r < SIDE; r++)
                lines[r] = results + (within(x + r, 0, count - 1) * planes + c) * WIDE;
            transpose(lines, 0, j->between + index * WIDE * j->pitch + c * j->plane + x, j->pitch);
        }
    tgc_scratch_free(memory);
}

static void rows_task(int64_t index, void *context)
{
    job *j = context;
    int64_t blocks = (j->out_height + ROWS_OF_TASK - 1) / ROWS_OF_TASK, unit = index / blocks;
    int64_t begin = index % blocks * ROWS_OF_TASK, end = begin + ROWS_OF_TASK;
    const int64_t bytes = (j->plane ? j->plane : j->out_width) * j->channels;
    const uint8_t *rows = j->between + unit * j->height * j->pitch;
    const int straight = j->out->strides[3] == j->channels && (j->channels == 1 || j->out->strides[1] == 1);
    uint8_t *line = tgc_scratch((size_t)bytes);
    if (line == NULL) {
        j->failed = 1;
        return;
    }
    for (int64_t y = begin; y < end && y < j->out_height; y++) {
        uint8_t *place = unit_of(j, j->out, unit) + y * j->out->strides[2], *to = straight ? place : line;
        if (j->rows.out == 0)
            memcpy(to, rows + y * j->pitch, (size_t)bytes);
        else
            across(&j->rows, y, rows, j->pitch, bytes, to);
        for (int64_t c = 0; c < j->channels && j->plane; c++)
            memcpy(place + c * j->out->strides[1], line + c * j->plane, (size_t)j->out_width);
        if (!straight && !j->plane)
            line_of(j, j->out, place, line, j->out_width, 1);
    }
    tgc_scratch_free(line);
}

/* (input, size, mode, align_corners, ratio of rows, ratio of columns, antialias) */
static int resampled_pixels(const tg_call *call, void *context)
{
    const tg_view *input = call->args[0].value.tensors, *out = call->outs;
    const char *text = call->args[2].value.text;
    char mode = strcmp(text, "bicubic") == 0 ? 'c' : strcmp(text, "lanczos") == 0 ? 'l' : 'b';
    int corners = call->args[3].value.i != 0, antialias = call->args[6].value.i != 0;
    double ratios[2] = {call->args[4].value.f, call->args[5].value.f};
    (void)context;
    if (input->ndim != 4 || call->args[4].kind != TG_ARG_FLOAT || call->args[5].kind != TG_ARG_FLOAT)
        return TG_DECLINED;
    if (out->numel == 0)
        return 0;
    job j = {.input = input, .out = out, .height = input->shape[2], .width = input->shape[3],
             .out_height = out->shape[2], .out_width = out->shape[3]};
    if (j.height > INT32_MAX || j.width > INT32_MAX)
        return TG_DECLINED;
    const int packed = input->shape[1] > 1 && input->shape[1] <= MOST_CHANNELS && input->strides[1] == 1;
    j.channels = packed ? input->shape[1] : 1;
    j.each = packed ? 1 : input->shape[1];
    j.units = input->shape[0] * j.each;
    filter *filters[2] = {&j.rows, &j.columns};
    size_t bytes = 0, exact = 0;
    int64_t sizes[2] = {j.height, j.width}, outs[2] = {j.out_height, j.out_width};
    for (int d = 0; d < 2; d++) {
        filter *f = filters[d];
        f->size = sizes[d];
        f->out = sizes[d] == outs[d] ? 0 : outs[d];
        f->taps = most_taps(mode, ratios[d], sizes[d], antialias);
        exact = (size_t)(f->out * f->taps) > exact ? (size_t)(f->out * f->taps) : exact;
        bytes += (size_t)f->out * (sizeof(int32_t) + (size_t)f->taps * sizeof(int16_t)) + 15;
    }
    const int divided = packed && out->strides[1] != 1 && out->strides[3] == 1 && j.columns.out != 0;
    j.plane = divided ? rounded(j.out_width, SIDE) : 0;
    j.pitch = rounded((divided ? j.plane : j.out_width) * j.channels, WIDE);
    bytes += (size_t)(rounded(j.units * j.height, WIDE) * j.pitch);
    char *memory = tgc_scratch(bytes + exact * sizeof(double));
    if (memory == NULL)
        return tgc_no_memory("interpolate", bytes + exact * sizeof(double));
    double *weights = (double *)memory;
    char *at = memory + exact * sizeof(double);
    for (int d = 0; d < 2; d++) {
        filter *f = filters[d];
        f->start = (int32_t *)at;
        f->weights = (int16_t *)(at + (size_t)f->out * sizeof(int32_t));
        at += ((size_t)f->out * (sizeof(int32_t) + (size_t)f->taps * sizeof(int16_t)) + 15) / 16 * 16;
        fill(f, mode, ratios[d], corners, antialias, weights);
    }
    j.between = (uint8_t *)at;
    tgc_parallel(rounded(j.units * j.height, WIDE) / WIDE, j.columns.out != 0 ? columns_task : copies_task, &j);
    if (!j.failed)
        tgc_parallel(j.units * ((j.out_height + ROWS_OF_TASK - 1) / ROWS_OF_TASK), rows_task, &j);
    tgc_scratch_free(memory);
    return j.failed ? tgc_no_memory("interpolate", (size_t)j.width) : 0;
}

const tgc_kernel TGC(tgc_table_pixels)[] = {
    {"resampled_pixels", "uint8", TGC_CALL, resampled_pixels, NULL},
    {0}};
