/* Masks: selecting, listing and overwriting the elements where one is true, and counting numbers. */
#include "masked.h"

#include "copies/copying.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BLOCK 512
#define LISTED (BLOCK + 16)
#define MOST_TASKS 64

/* List the true bytes among n <= BLOCK; without branches, as masks are not predictable. A list has
 * LISTED places. */
static int64_t list_true(const uint8_t *mask, int64_t n, int32_t *list)
{
    int64_t count = 0, i = 0;
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__)
    __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (; i + 16 <= n; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(mask + i));
        const __mmask16 chosen = _mm_test_epi8_mask(bytes, bytes);
        /* A compressed store to memory is microcode on some processors. */
        _mm512_storeu_si512(list + count, _mm512_maskz_compress_epi32(chosen, places));
        count += __builtin_popcount(chosen);
        places = _mm512_add_epi32(places, _mm512_set1_epi32(16));
    }
#endif
    for (; i < n; i++) {
        list[count] = (int32_t)i;
        count += mask[i] != 0;
    }
    return count;
}

static int64_t count_true(const uint8_t *mask, int64_t n)
{
    int64_t count = 0;
    for (int64_t first = 0; first < n; first += 255) {
        /* At most 255 ones fit a byte, in which the vectoriser adds most at a time. */
        int64_t end = first + 255 < n ? first + 255 : n;
        uint8_t sum = 0;
        for (int64_t i = first; i < end; i++)
            sum = (uint8_t)(sum + (mask[i] != 0));
        count += sum;
    }
    return count;
}

/* Copy listed elements; `from` and `to` are of one size. */
#define EACH_LISTED(S)                      \
    for (int64_t i = 0; i < n; i++)         \
        memcpy(to + i * S, from + list[i] * (int64_t)S, S);

static void copy_listed(char *to, const char *from, const int32_t *list, int64_t n, int size)
{
    switch (size) {
    case 1: EACH_LISTED(1) break;
    case 2: EACH_LISTED(2) break;
    case 4: EACH_LISTED(4) break;
    case 8: EACH_LISTED(8) break;
    default: EACH_LISTED(16)
    }
}

typedef struct {
    const uint8_t *mask;
    int64_t n, chunks, tasks;
    int64_t *counts;
    const int64_t *starts, *shape;
    const char *from;
    char *to;
    int64_t *table, total;
    int itemsize, ndim;
} job;

static void run(job *job, tgc_task task)
{
    job->chunks = (job->n + TGC_MASK_CHUNK - 1) / TGC_MASK_CHUNK;
    job->tasks = tgc_tasks(job->chunks, 2, MOST_TASKS);
    tgc_parallel(job->tasks, task, job);
}

static int64_t chunk_size(const job *job, int64_t chunk)
{
    int64_t left = job->n - chunk * TGC_MASK_CHUNK;
    return left < TGC_MASK_CHUNK ? left : TGC_MASK_CHUNK;
}

static void count_chunks(int64_t task, void *context)
{
    const job *job = context;
    int64_t end = tgc_begin(job->chunks, job->tasks, task + 1, 1);
    for (int64_t c = tgc_begin(job->chunks, job->tasks, task, 1); c < end; c++)
        job->counts[c] = count_true(job->mask + c * TGC_MASK_CHUNK, chunk_size(job, c));
}

static void count(const uint8_t *mask, int64_t n, int64_t *counts)
{
    job job = {.mask = mask, .n = n, .counts = counts};
    run(&job, count_chunks);
}

static void select_chunks(int64_t task, void *context)
{
    const job *job = context;
    int32_t list[LISTED];
    int64_t end = tgc_begin(job->chunks, job->tasks, task + 1, 1);
    for (int64_t c = tgc_begin(job->chunks, job->tasks, task, 1); c < end; c++) {
        char *to = job->to + job->starts[c] * job->itemsize;
        int64_t size = chunk_size(job, c);
        for (int64_t first = 0; first < size; first += BLOCK) {
            int64_t at = c * TGC_MASK_CHUNK + first, n = size - first < BLOCK ? size - first : BLOCK;
            int64_t chosen = list_true(job->mask + at, n, list);
            copy_listed(to, job->from + at * job->itemsize, list, chosen, job->itemsize);
            to += chosen * job->itemsize;
        }
    }
}

static void select_true(const uint8_t *mask, int64_t n, const int64_t *starts, const char *from, char *to, int itemsize)
{
    job job = {.mask = mask, .n = n, .starts = starts, .from = from, .to = to, .itemsize = itemsize};
    run(&job, select_chunks);
}

static void place_chunks(int64_t task, void *context)
{
    const job *job = context;
    int32_t list[LISTED];
    int64_t end = tgc_begin(job->chunks, job->tasks, task + 1, 1);
    int inner = job->ndim - 1;
    for (int64_t c = tgc_begin(job->chunks, job->tasks, task, 1); c < end; c++) {
        int64_t *column = job->table + job->starts[c], size = chunk_size(job, c);
        int64_t index[TG_MAX_DIMS], rest = c * TGC_MASK_CHUNK;
        for (int d = inner; d >= 0; d--) {
            index[d] = rest % job->shape[d];
            rest /= job->shape[d];
        }
        /* Pieces of rows of the innermost dimension: the other coordinates are one for all of it. */
        for (int64_t first = 0; first < size;) {
            int64_t n = job->shape[inner] - index[inner];
            n = n < size - first ? n : size - first;
            n = n < BLOCK ? n : BLOCK;
            int64_t chosen = list_true(job->mask + c * TGC_MASK_CHUNK + first, n, list);
            for (int d = 0; d < inner; d++)
                for (int64_t i = 0; i < chosen; i++)
                    column[d * job->total + i] = index[d];
            for (int64_t i = 0; i < chosen; i++)
                column[inner * job->total + i] = index[inner] + list[i];
            column += chosen;
            first += n;
            index[inner] += n;
            for (int d = inner; d > 0 && index[d] == job->shape[d]; d--) {
                index[d] = 0;
                index[d - 1]++;
            }
        }
    }
}

static void places(const uint8_t *mask, int64_t n, const int64_t *starts, int ndim, const int64_t *shape,
                   int64_t total, int64_t *to)
{
    job job = {.mask = mask, .n = n, .starts = starts, .table = to, .total = total, .ndim = ndim, .shape = shape};
    if (ndim > 0)
        run(&job, place_chunks);
}

static void range(const int64_t *numbers, int64_t n, int64_t *least, int64_t *most)
{
    int64_t low = numbers[0], high = numbers[0];
    for (int64_t i = 1; i < n; i++) {
        low = numbers[i] < low ? numbers[i] : low;
        high = numbers[i] > high ? numbers[i] : high;
    }
    *least = low;
    *most = high;
}

static void histogram(const int64_t *numbers, int64_t n, const double *weights, int64_t *counts, double *sums)
{
    if (weights != NULL)
        for (int64_t i = 0; i < n; i++)
            sums[numbers[i]] += weights[i];
    else
        for (int64_t i = 0; i < n; i++)
            counts[numbers[i]]++;
}

/* --- masked_scatter ---------------------------------------------------------------------------- */

static void broadcast_strides(const tg_view *view, int ndim, int64_t *strides)
{
    for (int d = 0; d < ndim; d++) {
        int k = d - (ndim - view->ndim);
        strides[d] = k < 0 || view->shape[k] == 1 ? 0 : view->strides[k] * tgc_itemsize[view->dtype];
    }
}

/* A copy of `view`, broadcast to a shape and packed, in scratch memory; NULL where there is none. */
static char *packed(const tg_view *view, int ndim, const int64_t *shape, int64_t numel)
{
    int64_t to[TG_MAX_DIMS], from[TG_MAX_DIMS], step = tgc_itemsize[view->dtype];
    char *copy = tgc_scratch((size_t)(numel * step));
    if (copy == NULL) {
        tgc_no_memory("masked_scatter", (size_t)(numel * step));
        return NULL;
    }
    broadcast_strides(view, ndim, from);
    for (int d = ndim - 1; d >= 0; d--) {
        to[d] = step;
        step *= shape[d];
    }
    TGC(tgc_move_region)(ndim, shape, copy, to, view->data, from, tgc_itemsize[view->dtype]);
    return copy;
}

static void write_true(const tg_view *out, const uint8_t *mask, const char *source)
{
    int inner = out->ndim - 1, size = tgc_itemsize[out->dtype];
    int64_t length = out->ndim ? out->shape[inner] : 1, step = out->ndim ? out->strides[inner] * size : 0;
    int32_t list[LISTED];
    for (int64_t row = 0; row < out->numel / length; row++) {
        char *to = out->data;
        int64_t rest = row;
        for (int d = inner - 1; d >= 0; d--) {
            to += rest % out->shape[d] * out->strides[d] * size;
            rest /= out->shape[d];
        }
        for (int64_t first = 0; first < length; first += BLOCK) {
            int64_t n = length - first < BLOCK ? length - first : BLOCK;
            int64_t chosen = list_true(mask + row * length + first, n, list);
            for (int64_t i = 0; i < chosen; i++, source += size)
                memcpy(to + (first + list[i]) * step, source, (size_t)size);
        }
    }
}

static int masked_scatter(const tg_call *call, void *context)
{
    const tg_view *out = call->outs, *self = call->args[0].value.tensors, *source = call->args[2].value.tensors;
    int64_t to[TG_MAX_DIMS], from[TG_MAX_DIMS];
    int status = -1;
    (void)context;
    if (out->numel == 0)
        return 0;
    uint8_t *mask = (uint8_t *)packed(call->args[1].value.tensors, out->ndim, out->shape, out->numel);
    if (mask == NULL)
        return -1;
    int64_t ones = count_true(mask, out->numel);
    if (ones > source->numel) {
        tgc_scratch_free(mask);
        return tgc_error("RuntimeError",
                         "masked_scatter: expected number of elements in source to be at least the number of ones in "
                         "mask, got %lld elements for %lld ones",
                         (long long)source->numel, (long long)ones);
    }
    char *values = packed(source, source->ndim, source->shape, source->numel);
    if (values != NULL) {
        if (out->data != self->data) {
            tgc_byte_strides(out, to);
            broadcast_strides(self, out->ndim, from);
            TGC(tgc_move_region)(out->ndim, out->shape, out->data, to, self->data, from, tgc_itemsize[out->dtype]);
        }
        write_true(out, mask, values);
        tgc_scratch_free(values);
        status = 0;
    }
    tgc_scratch_free(mask);
    return status;
}

static const tgc_masked parts = {count, select_true, places, range, histogram};

const tgc_kernel TGC(tgc_table_masked)[] = {
    TGC_OF_EVERY_DTYPE("masked_scatter", TGC_CALL, masked_scatter, NULL),
    {"masked parts", "", TGC_PARTS, NULL, &parts},
    {0},
};
