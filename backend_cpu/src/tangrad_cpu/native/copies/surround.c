/* Padding by elements of the tensor itself: each padded dimension has a list of where its places come
 * from, and rows are copied with what surrounds them. */
#include "copying.h"

#include <string.h>

#define GRAIN 32768
#define MOST_TASKS 64

typedef struct {
    const tg_view *out, *self;
    int64_t before[TG_MAX_DIMS], *places[TG_MAX_DIMS]; /* NULL where a dimension is not padded */
    int64_t rows, tasks;
    int size;
} surrounding;

/* Where place i of a dimension comes from, as plugins/nn's padding.py has it. */
static int64_t place_of(char mode, int64_t i, int64_t size, int64_t before, int64_t after)
{
    const int64_t at = i - before;
    if (mode == 'r') { /* reflected */
        const int64_t left = size - 1 - at, found = size - 1 - (left < 0 ? -left : left);
        return found < 0 ? -found : found;
    }
    if (mode == 'e') /* the edge */
        return at < 0 ? 0 : at >= size ? size - 1 : at;
    const int64_t start = before < 0 ? -before : 0, kept = size + (before < 0 ? before : 0) + (after < 0 ? after : 0);
    const int64_t turned = (i - (before > 0 ? before : 0)) % kept;
    return start + (turned < 0 ? turned + kept : turned);
}

#define ROW(T)                                                                          \
    for (int64_t i = 0; i < first; i++)                                                 \
        ((T *)to)[i * to_step] = ((const T *)from)[places[i] * from_step];              \
    if (to_step == 1 && from_step == 1)                                                 \
        memcpy((T *)to + first, (const T *)from + places[first], (size_t)(last - first) * sizeof(T)); \
    else                                                                                \
        for (int64_t i = first; i < last; i++)                                          \
            ((T *)to)[i * to_step] = ((const T *)from)[places[i] * from_step];          \
    for (int64_t i = last; i < n; i++)                                                  \
        ((T *)to)[i * to_step] = ((const T *)from)[places[i] * from_step];

typedef struct {
    double parts[2];
} pair;

static inline void copy_row(const surrounding *job, char *to, const char *from)
{
    const int d = job->out->ndim - 1;
    const int64_t n = job->out->shape[d], to_step = job->out->strides[d], from_step = job->self->strides[d];
    const int64_t *places = job->places[d], size = job->self->shape[d];
    int64_t first = job->before[d] > 0 ? job->before[d] : 0, last = job->before[d] + size;
    first = first > n ? n : first;
    last = last > n ? n : last < first ? first : last;
    switch (job->size) {
    case 1: {
        ROW(uint8_t)
        break;
    }
    case 2: {
        ROW(uint16_t)
        break;
    }
    case 4: {
        ROW(uint32_t)
        break;
    }
    case 8: {
        ROW(uint64_t)
        break;
    }
    default: {
        ROW(pair)
    }
    }
}

static void rows_task(int64_t task, void *context)
{
    const surrounding *job = context;
    const tg_view *out = job->out, *self = job->self;
    const int64_t end = tgc_begin(job->rows, job->tasks, task + 1, 1);
    int64_t index[TG_MAX_DIMS] = {0}, row = tgc_begin(job->rows, job->tasks, task, 1), rest = row;
    for (int d = out->ndim - 2; d >= 0; d--) {
        index[d] = rest % out->shape[d];
        rest /= out->shape[d];
    }
    const int inner = out->ndim - 2; /* whose rows follow each other */
    const int64_t length = out->shape[inner + 1];
    const int whole = job->before[inner + 1] == 0 && self->shape[inner + 1] == length && out->strides[inner + 1] == 1
                      && self->strides[inner + 1] == 1 && out->strides[inner] == length && self->strides[inner] == length;
    while (row < end) {
        char *to = out->data;
        const char *from = self->data;
        for (int d = 0; d < inner; d++) {
            to += index[d] * out->strides[d] * job->size;
            from += (job->places[d] != NULL ? job->places[d][index[d]] : index[d]) * self->strides[d] * job->size;
        }
        const int64_t left = out->shape[inner] - index[inner], count = end - row < left ? end - row : left;
        const int64_t to_step = out->strides[inner] * job->size, from_step = self->strides[inner] * job->size;
        const int64_t *places = job->places[inner], last = index[inner] + count;
        if (whole)
            /* Rows that follow each other on both sides are one. */
            for (int64_t i = index[inner], run; i < last; i += run) {
                for (run = 1; i + run < last && (places == NULL || places[i + run] == places[i] + run); run++)
                    ;
                memcpy(to + i * to_step, from + (places != NULL ? places[i] : i) * from_step, (size_t)(run * to_step));
            }
        else
            for (int64_t i = index[inner]; i < last; i++)
                copy_row(job, to + i * to_step, from + (places != NULL ? places[i] : i) * from_step);
        row += count;
        index[inner] = out->shape[inner] - 1;
        for (int d = inner; d >= 0 && ++index[d] == out->shape[d]; d--)
            index[d] = 0;
    }
}

static int surround(const tg_call *call, void *context)
{
    const tg_view *out = call->outs, *self = call->args[0].value.tensors;
    const int64_t *amounts = call->args[1].value.ints;
    const int padded = call->args[1].count / 2;
    surrounding job = {.out = out, .self = self, .size = tgc_itemsize[out->dtype]};
    int64_t total = 0;
    (void)context;
    if (out->numel == 0)
        return 0;
    if (out->ndim < 2 || padded > out->ndim)
        return TG_DECLINED;
    const char *text = call->args[2].value.text;
    const char mode = text[0] == 'c' ? 'c' : text[2] == 'f' ? 'r' : 'e';
    for (int d = out->ndim - padded; d < out->ndim; d++)
        total += out->shape[d];
    int64_t *memory = tgc_scratch((size_t)total * sizeof *memory), *next = memory;
    if (memory == NULL)
        return tgc_no_memory("pad", (size_t)total * sizeof *memory);
    for (int d = out->ndim - padded; d < out->ndim; d++) {
        const int pair = out->ndim - 1 - d;
        const int64_t size = self->shape[d], before = amounts[2 * pair], after = amounts[2 * pair + 1];
        job.before[d] = before;
        job.places[d] = next;
        for (int64_t i = 0; i < out->shape[d]; i++) {
            const int inside = before >= 0 && after >= 0 && i >= before && i < before + size;
            next[i] = inside ? i - before : place_of(mode, i, size, before, after);
            if (next[i] < 0 || next[i] >= size) {
                tgc_scratch_free(memory);
                return TG_DECLINED; /* amounts that no check has seen */
            }
        }
        next += out->shape[d];
    }
    job.rows = out->numel / out->shape[out->ndim - 1];
    job.tasks = tgc_tasks(out->numel, GRAIN, job.rows < MOST_TASKS ? job.rows : MOST_TASKS);
    tgc_parallel(job.tasks, rows_task, &job);
    tgc_scratch_free(memory);
    return 0;
}

const tgc_kernel TGC(tgc_table_surround)[] = {
    TGC_OF_EVERY_DTYPE("_pad_by_places", TGC_CALL, surround, NULL),
    {0},
};
