/* Resampling pictures of bytes: columns, then rows, with weights of 16 bits in fixed point. The sums
 * are exact in 32 bits, so every way of computing them gives the same bytes.
 *
 * A picture whose channels lie side by side is taken as it is; any other plane by plane. */
#include "tgc.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { PADDING = 64, ROWS_OF_TASK = 16, MOST_CHANNELS = 4, LINES = 4 };

/* Which elements of its line a result is made of: `taps` of them from `start` on; the weights of
 * one are `taps` in a row, zero at the end. */
typedef struct filter {
    int64_t out, taps, size, used; /* `used`: how many taps some result has */
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

/* How many taps a result has at most, rounded up to what loops take at a time. */
static int64_t most_taps(char mode, double ratio, int64_t size, int antialias, int64_t step)
{
    int64_t most = 4;
    if (antialias) {
        double reach = (mode == 'c' ? 2 : mode == 'l' ? 3 : 1) * (ratio > 1 ? ratio : 1);
        most = reach < (double)size ? 2 * (int64_t)ceil(reach) + 2 : size + 1;
    }
    return (most + step - 1) / step * step;
}

/* Fill in a filter whose arrays are there. The weights have as many bits as their greatest allows. */
static void fill(filter *f, char mode, double ratio, int corners, int antialias, double *exact)
{
    double greatest = 0;
    f->used = 0;
    for (int64_t i = 0; i < f->out; i++) {
        double *row = exact + i * f->taps;
        int64_t start;
        memset(row, 0, (size_t)f->taps * sizeof *row);
        int64_t count = antialias ? stretched(mode, ratio, f->size, i, row, &start)
                                  : between(mode, ratio, corners, f->size, i, row, &start);
        f->start[i] = (int32_t)start;
        f->used = count > f->used ? count : f->used;
        for (int64_t k = 0; k < count; k++)
            greatest = row[k] > greatest ? row[k] : greatest;
    }
    f->precision = 0;
    while (f->precision < 22 && (int64_t)(0.5 + greatest * (double)(2 << f->precision)) < 1 << 15)
        f->precision++;
    for (int64_t k = 0; k < f->out * f->taps; k++)
        f->weights[k] = (int16_t)(exact[k] * (double)(1 << f->precision) + copysign(0.5, exact[k]));
}

static inline uint8_t finished(int32_t sum, int precision)
{
    return (uint8_t)within(sum >> precision, 0, 255);
}

static int32_t half_of(const filter *f)
{
    return f->precision > 0 ? 1 << (f->precision - 1) : 0;
}

/* Results of LINES lines, whose bytes go on for PADDING more that may be read. */
static void along(const filter *f, const uint8_t *const *lines, uint8_t *const *to, int64_t channels)
{
    int64_t i = 0;
    int32_t half = half_of(f);
#if defined(__AVX2__)
    const __m128i shift = _mm_cvtsi32_si128(f->precision);
    /* Bytes may be anything, so what is read again after a store has to be of this function. */
    const int64_t out = f->out, taps = f->taps, used = f->used;
    const int32_t *const start = f->start;
    const int16_t *const weight = f->weights;
    const uint8_t *from[LINES];
    uint8_t *place[LINES];
    for (int n = 0; n < LINES; n++)
        from[n] = lines[n], place[n] = to[n];
    if (channels == 1) {
        const __m128i halves = _mm_set1_epi32(half);
        for (; i + 4 <= out; i += 4)
            for (int n = 0; n < LINES; n++) {
                __m128i sums[4];
                for (int o = 0; o < 4; o++) {
                    const uint8_t *p = from[n] + start[i + o];
                    const int16_t *w = weight + (i + o) * taps;
                    sums[o] = _mm_madd_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p)),
                                             _mm_loadu_si128((const __m128i *)w));
                    for (int64_t k = 8; k < taps; k += 8) {
                        __m128i pixels = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(p + k)));
                        __m128i part = _mm_madd_epi16(pixels, _mm_loadu_si128((const __m128i *)(w + k)));
                        sums[o] = _mm_add_epi32(sums[o], part);
                    }
                }
                __m128i all = _mm_hadd_epi32(_mm_hadd_epi32(sums[0], sums[1]), _mm_hadd_epi32(sums[2], sums[3]));
                all = _mm_sra_epi32(_mm_add_epi32(all, halves), shift);
                all = _mm_packus_epi16(_mm_packs_epi32(all, all), all);
                int32_t four = _mm_cvtsi128_si32(all);
                memcpy(place[n] + i, &four, 4);
            }
    } else if (channels == 3 || channels == 4) {
        /* Four pixels at a time: in either half two, channel by channel, as pairs of 16 bits. */
        const char c = (char)channels, z = -1, d = channels == 4 ? 3 : -1, e = channels == 4 ? 7 : -1;
        const char a = (char)(2 * c), b = (char)(3 * c), g = channels == 4 ? 11 : -1, h = channels == 4 ? 15 : -1;
        const __m256i pick = _mm256_setr_epi8(0, z, c, z, 1, z, (char)(c + 1), z, 2, z, (char)(c + 2), z, d, z, e, z, a, z, b,
                                              z, (char)(a + 1), z, (char)(b + 1), z, (char)(a + 2), z, (char)(b + 2), z, g, z, h, z);
        const __m256i spread = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5,
                                                6, 7, 4, 5, 6, 7);
        const __m256i halves = _mm256_set1_epi32(half);
        for (; i < out; i++) {
            const int16_t *w = weight + i * taps;
            const int64_t at = start[i] * channels;
            __m256i sums[LINES];
            for (int n = 0; n < LINES; n++)
                sums[n] = _mm256_setzero_si256();
            for (int64_t k = 0; k < used; k += 4) {
                int64_t four;
                memcpy(&four, w + k, 8);
                const __m256i weights = _mm256_shuffle_epi8(_mm256_set1_epi64x(four), spread);
                for (int n = 0; n < LINES; n++) {
                    const __m128i *p = (const __m128i *)(from[n] + at + k * channels);
                    __m256i pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(p)), pick);
                    sums[n] = _mm256_add_epi32(sums[n], _mm256_madd_epi16(pixels, weights));
                }
            }
            /* Both halves of two lines are added at once; lines 0 and 2 end up low, 1 and 3 high. */
            __m256i two = _mm256_add_epi32(_mm256_permute2x128_si256(sums[0], sums[1], 0x20),
                                           _mm256_permute2x128_si256(sums[0], sums[1], 0x31));
            __m256i more = _mm256_add_epi32(_mm256_permute2x128_si256(sums[2], sums[3], 0x20),
                                            _mm256_permute2x128_si256(sums[2], sums[3], 0x31));
            two = _mm256_sra_epi32(_mm256_add_epi32(two, halves), shift);
            more = _mm256_sra_epi32(_mm256_add_epi32(more, halves), shift);
            __m256i words = _mm256_packs_epi32(two, more);
            __m256i made = _mm256_packus_epi16(words, words);
            int64_t low = _mm256_extract_epi64(made, 0), high = _mm256_extract_epi64(made, 2);
            int32_t results[LINES] = {(int32_t)low, (int32_t)high, (int32_t)(low >> 32), (int32_t)(high >> 32)};
            for (int n = 0; n < LINES; n++)
                if (i + 1 < out) /* the next result writes over what is too much */
                    memcpy(place[n] + i * channels, &results[n], 4);
                else
                    memcpy(place[n] + i * channels, &results[n], (size_t)channels);
        }
    }
#endif
    for (; i < f->out; i++)
        for (int n = 0; n < LINES; n++)
            for (int64_t c = 0; c < channels; c++) {
                const uint8_t *p = lines[n] + f->start[i] * channels + c;
                const int16_t *w = f->weights + i * f->taps;
                int32_t sum = half;
                for (int64_t k = 0; k < f->taps; k++)
                    sum += w[k] * p[k * channels];
                to[n][i * channels + c] = finished(sum, f->precision);
            }
}

#if defined(__AVX2__)
static int32_t pair_of(const int16_t *w, int64_t k, int64_t taps)
{
    return (int32_t)((uint32_t)(uint16_t)w[k] | (k + 1 < taps ? (uint32_t)(uint16_t)w[k + 1] << 16 : 0));
}
#endif

/* One result of rows that lie `stride` bytes apart; as many as have weights are there. */
static void across(const filter *f, int64_t row, const uint8_t *rows, int64_t stride, int64_t bytes, uint8_t *to)
{
    const int16_t *w = f->weights + row * f->taps;
    const uint8_t *first = rows + f->start[row] * stride;
    int64_t taps = within(f->size - f->start[row], 0, f->taps), i = 0;
    int32_t half = half_of(f);
    while (taps > 1 && w[taps - 1] == 0)
        taps--;
    /* Two rows at a time, as pairs of 16 bits. */
#if defined(__AVX512BW__)
    const __m128i shift = _mm_cvtsi32_si128(f->precision);
    for (; i + 32 <= bytes; i += 32) {
        __m512i low = _mm512_set1_epi32(half), high = low;
        for (int64_t k = 0; k < taps; k += 2) {
            const uint8_t *p = first + k * stride + i;
            const __m512i weights = _mm512_set1_epi32(pair_of(w, k, taps));
            __m512i a = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)p)), b = _mm512_setzero_si512();
            if (k + 1 < taps)
                b = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(p + stride)));
            low = _mm512_add_epi32(low, _mm512_madd_epi16(_mm512_unpacklo_epi16(a, b), weights));
            high = _mm512_add_epi32(high, _mm512_madd_epi16(_mm512_unpackhi_epi16(a, b), weights));
        }
        __m512i words = _mm512_packs_epi32(_mm512_sra_epi32(low, shift), _mm512_sra_epi32(high, shift));
        __m256i made = _mm512_cvtusepi16_epi8(_mm512_max_epi16(words, _mm512_setzero_si512()));
        _mm256_storeu_si256((__m256i *)(to + i), made);
    }
#elif defined(__AVX2__)
    const __m128i shift = _mm_cvtsi32_si128(f->precision);
    for (; i + 16 <= bytes; i += 16) {
        __m256i low = _mm256_set1_epi32(half), high = low;
        for (int64_t k = 0; k < taps; k += 2) {
            const uint8_t *p = first + k * stride + i;
            const __m256i weights = _mm256_set1_epi32(pair_of(w, k, taps));
            __m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)), b = _mm256_setzero_si256();
            if (k + 1 < taps)
                b = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p + stride)));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), weights));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), weights));
        }
        __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(low, shift), _mm256_sra_epi32(high, shift));
        __m128i made = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(to + i), made);
    }
#endif
    for (; i < bytes; i++) {
        int32_t sum = half;
        for (int64_t k = 0; k < taps; k++)
            sum += w[k] * first[k * stride + i];
        to[i] = finished(sum, f->precision);
    }
}

typedef struct job {
    const tg_view *input, *out;
    filter columns, rows; /* `out` 0: this direction stays as it is */
    int64_t units, each, channels, height, width, out_height, out_width;
    uint8_t *between; /* what columns gave: (units, height, out_width * channels) */
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

static void columns_task(int64_t index, void *context)
{
    job *j = context;
    int64_t blocks = (j->height + ROWS_OF_TASK - 1) / ROWS_OF_TASK, unit = index / blocks;
    int64_t begin = index % blocks * ROWS_OF_TASK, end = begin + ROWS_OF_TASK, bytes = j->width * j->channels;
    const int64_t *strides = j->input->strides, beyond = PADDING + j->columns.taps * j->channels;
    const int straight = strides[3] == j->channels && (j->channels == 1 || strides[1] == 1) && strides[2] >= bytes;
    uint8_t *memory = tgc_scratch((size_t)(LINES * (bytes + beyond)));
    if (memory == NULL) {
        j->failed = 1;
        return;
    }
    end = end < j->height ? end : j->height;
    for (int64_t y = begin; y < end; y += LINES) {
        const uint8_t *lines[LINES];
        uint8_t *to[LINES];
        for (int64_t n = 0; n < LINES; n++) {
            const int64_t row = y + n < end ? y + n : end - 1; /* the last one again, to the same bytes */
            uint8_t *from = unit_of(j, j->input, unit) + row * strides[2], *copy = memory + n * (bytes + beyond);
            to[n] = j->between + (unit * j->height + row) * j->out_width * j->channels;
            lines[n] = from;
            if (j->columns.out == 0)
                line_of(j, j->input, from, to[n], j->width, 0);
            else if (!straight || (j->height - 1 - row) * strides[2] < beyond) {
                line_of(j, j->input, from, copy, j->width, 0);
                memset(copy + bytes, 0, (size_t)beyond);
                lines[n] = copy;
            }
        }
        if (j->columns.out != 0)
            along(&j->columns, lines, to, j->channels);
    }
    tgc_scratch_free(memory);
}

static void rows_task(int64_t index, void *context)
{
    job *j = context;
    int64_t blocks = (j->out_height + ROWS_OF_TASK - 1) / ROWS_OF_TASK, unit = index / blocks;
    int64_t begin = index % blocks * ROWS_OF_TASK, end = begin + ROWS_OF_TASK, bytes = j->out_width * j->channels;
    const uint8_t *rows = j->between + unit * j->height * bytes;
    const int straight = j->out->strides[3] == j->channels && (j->channels == 1 || j->out->strides[1] == 1);
    uint8_t *line = tgc_scratch((size_t)bytes + PADDING);
    if (line == NULL) {
        j->failed = 1;
        return;
    }
    for (int64_t y = begin; y < end && y < j->out_height; y++) {
        uint8_t *place = unit_of(j, j->out, unit) + y * j->out->strides[2], *to = straight ? place : line;
        if (j->rows.out == 0)
            memcpy(to, rows + y * bytes, (size_t)bytes);
        else
            across(&j->rows, y, rows, bytes, bytes, to);
        if (!straight)
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
    size_t bytes = (size_t)(j.units * j.height * j.out_width * j.channels) + PADDING, exact = 0;
    int64_t sizes[2] = {j.height, j.width}, outs[2] = {j.out_height, j.out_width};
    for (int d = 0; d < 2; d++) {
        filter *f = filters[d];
        f->size = sizes[d];
        f->out = sizes[d] == outs[d] ? 0 : outs[d];
        f->taps = most_taps(mode, ratios[d], sizes[d], antialias, 8);
        exact = (size_t)(f->out * f->taps) > exact ? (size_t)(f->out * f->taps) : exact;
        bytes += (size_t)f->out * (sizeof(int32_t) + (size_t)f->taps * sizeof(int16_t)) + PADDING;
    }
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
    tgc_parallel(j.units * ((j.height + ROWS_OF_TASK - 1) / ROWS_OF_TASK), columns_task, &j);
    if (!j.failed)
        tgc_parallel(j.units * ((j.out_height + ROWS_OF_TASK - 1) / ROWS_OF_TASK), rows_task, &j);
    tgc_scratch_free(memory);
    return j.failed ? tgc_no_memory("interpolate", (size_t)j.width) : 0;
}

const tgc_kernel TGC(tgc_table_pixels)[] = {
    {"resampled_pixels", "uint8", TGC_CALL, resampled_pixels, NULL},
    {0}};
