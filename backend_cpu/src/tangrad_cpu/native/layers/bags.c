/* Bags of places: which bag a place belongs to, and the sums and the greatest of
 * a table's rows in bags. */
#include "gemm/simd.h"
#include "tgc.h"

#include <string.h>

#define GRAIN 65536
/* Each task may have to read all bags' numbers, so there are few. */
#define MOST_TASKS 8
/* Columns whose greatest elements stay in the first-level cache. */
#define COLUMNS 256

static int64_t number_at(const tg_view *view, int64_t place)
{
    const char *at = (const char *)view->data + place * view->strides[0] * tgc_itemsize[view->dtype];
    return view->dtype == TGC_INT32 ? *(const int32_t *)at : *(const int64_t *)at;
}

static int bag_numbers(const tg_call *call, void *context)
{
    const tg_view *offsets = call->args[0].value.tensors;
    const int64_t length = call->args[1].value.i, last = call->args[2].value.i, count = offsets->numel;
    int64_t *out = call->outs->data;
    (void)context;
    if (last && count == 0)
        return tgc_error("RuntimeError", "include_last_offset: number of offset should be at least 1");
    if (count > 0 && number_at(offsets, 0) != 0)
        return tgc_error("RuntimeError",
                         "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
                         "position 0. However, got %lld", (long long)number_at(offsets, 0));
    if (count > 0 && number_at(offsets, count - 1) > length)
        return tgc_error("RuntimeError",
                         "offsets[-1] can not be greater than input's length %lld but got offsets[-1] of %lld",
                         (long long)length, (long long)number_at(offsets, count - 1));
    for (int64_t bag = 1; bag < count; bag++)
        if (number_at(offsets, bag) < number_at(offsets, bag - 1))
            return tgc_error("RuntimeError", "embedding_bag: offsets must not decrease");
    for (int64_t bag = 0, place = 0; place < length; bag++) {
        int64_t end = bag + 1 < count ? number_at(offsets, bag + 1) : length;
        for (end = end < length ? end : length; place < end; place++)
            out[place * call->outs->strides[0]] = bag;
    }
    return 0;
}

typedef struct job {
    const tg_view *table, *bags;
    const void *factors; /* NULL where there are none */
    const int64_t *rows; /* where each place's row begins, in elements */
    char *out;
    int64_t count, tasks;
    int in_order; /* whether bags do not decrease, so that a task's places lie side by side */
} job;

#define B_T float
#define B(name) name##_f32
#include "bags_rows.h"

#define B_T double
#define B(name) name##_f64
#include "bags_rows.h"

/* The first place whose bag is not below one, where bags do not decrease. */
static int64_t place_of(const job *j, int64_t bag)
{
    const int64_t *bags = j->bags->data;
    int64_t low = 0, high = j->bags->numel;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (bags[middle] < bag)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The bags of one task: runs of places that lie in the same one. */
static void sum_task(int64_t task, void *context)
{
    const job *j = context;
    const int64_t begin = tgc_begin(j->count, j->tasks, task, 1), end = tgc_begin(j->count, j->tasks, task + 1, 1);
    const int64_t *bags = j->bags->data, width = j->table->shape[1];
    const int64_t from = j->in_order ? place_of(j, begin) : 0, places = j->in_order ? place_of(j, end) : j->bags->numel;
    const int64_t row = width * tgc_itemsize[j->table->dtype];
    memset(j->out + begin * row, 0, (size_t)((end - begin) * row));
    for (int64_t first = from, next; first < places; first = next) {
        const int64_t bag = bags[first];
        for (next = first + 1; next < places && bags[next] == bag; next++)
            ;
        if (bag < begin || bag >= end)
            continue;
        if (j->table->dtype == TGC_FLOAT32)
            sum_f32(j, j->out + bag * row, first, next);
        else
            sum_f64(j, j->out + bag * row, first, next);
    }
}

static int bag_sum(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    const tg_view *index = args[1].value.tensors, *factors = args[4].kind == TG_ARG_TENSOR ? args[4].value.tensors : NULL;
    job j = {.table = args[0].value.tensors, .bags = args[2].value.tensors, .out = call->outs->data,
             .factors = factors != NULL ? factors->data : NULL, .count = args[3].value.i};
    const int64_t *bags = j.bags->data, places = j.bags->numel, numbered = j.table->shape[0], width = j.table->shape[1];
    (void)context;
    if (places == 0 || width == 0 || j.count == 0 || j.table->strides[1] != 1 || j.bags->strides[0] != 1
        || j.bags->dtype != TGC_INT64 || (index->dtype != TGC_INT32 && index->dtype != TGC_INT64)
        || call->outs->strides[1] != 1 || call->outs->strides[0] != width
        || (factors != NULL && (factors->strides[0] != 1 || factors->dtype != j.table->dtype)))
        return TG_DECLINED;
    const size_t bytes = (size_t)places * sizeof(int64_t);
    int64_t *rows = tgc_scratch(bytes), wrong = 0;
    if (rows == NULL)
        return tgc_no_memory("embedding_bag", bytes);
    /* Loops of their own, which are vectorised: for narrow tables this is a good part of the work. */
    int falls = 0, is_wrong = 0;
    for (int64_t k = 1; k < places; k++)
        falls |= bags[k] < bags[k - 1];
    j.in_order = !falls;
    if (index->dtype == TGC_INT64 && index->strides[0] == 1)
        memcpy(rows, index->data, bytes);
    else
        for (int64_t k = 0; k < places; k++)
            rows[k] = number_at(index, k);
    for (int64_t k = 0; k < places; k++)
        is_wrong |= (rows[k] < 0) | (rows[k] >= numbered);
    for (int64_t k = 0; is_wrong && k < places; k++)
        if (rows[k] < 0 || rows[k] >= numbered) {
            wrong = rows[k];
            break;
        }
    if (!is_wrong) {
        for (int64_t k = 0; k < places; k++)
            rows[k] *= j.table->strides[0];
        j.rows = rows;
        j.tasks = tgc_tasks(places * width, GRAIN, j.count < MOST_TASKS ? j.count : MOST_TASKS);
        tgc_parallel(j.tasks, sum_task, &j);
    }
    tgc_scratch_free(rows);
    if (is_wrong)
        return tgc_error("IndexError", "index %lld is out of bounds for dimension 0 with size %lld", (long long)wrong,
                         (long long)numbered);
    return 0;
}

/* Columns are compared apart, so tasks are pieces of the rows. */
static void greatest_task(int64_t task, void *context)
{
    const job *j = context;
    const int64_t width = j->table->shape[1];
    const int64_t begin = tgc_begin(width, j->tasks, task, COLUMNS), end = tgc_begin(width, j->tasks, task + 1, COLUMNS);
    for (int64_t first = begin; first < end; first += COLUMNS) {
        const int64_t columns = end - first < COLUMNS ? end - first : COLUMNS;
        if (j->table->dtype == TGC_FLOAT32)
            greatest_f32(j, first, columns);
        else
            greatest_f64(j, first, columns);
    }
}

static int bag_argmax(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    job j = {.table = args[0].value.tensors, .bags = args[1].value.tensors, .out = call->outs->data,
             .count = args[2].value.i};
    const int64_t width = j.table->shape[1];
    (void)context;
    j.tasks = tgc_tasks(j.bags->numel * width, GRAIN, (width + COLUMNS - 1) / COLUMNS);
    tgc_parallel(j.tasks, greatest_task, &j);
    return 0;
}

const tgc_kernel TGC(tgc_table_bags)[] = {{"bag_numbers", "int32", TGC_CALL, bag_numbers, NULL},
                                          {"bag_numbers", "int64", TGC_CALL, bag_numbers, NULL},
                                          {"_bag_sum", "float32", TGC_CALL, bag_sum, NULL},
                                          {"_bag_sum", "float64", TGC_CALL, bag_sum, NULL},
                                          {"bag_argmax", "float32", TGC_CALL, bag_argmax, NULL},
                                          {"bag_argmax", "float64", TGC_CALL, bag_argmax, NULL},
                                          {0}};
