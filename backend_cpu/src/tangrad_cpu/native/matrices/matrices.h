/* Calls that do the same to every matrix of a stack: places, copies, working memory, tasks. */
#ifndef TANGRAD_CPU_MATRICES_H
#define TANGRAD_CPU_MATRICES_H

#include "copies/copying.h"
#include "tgc.h"

#include <stdatomic.h>
#include <stdio.h>

#define SMALL 8 /* rows up to which plain loops are faster */
#define TASK_PRODUCTS (1 << 19) /* least multiplications of a task worth handing to a thread */
#define MOST_TASKS 64

/* One call: the same work for every matrix of a batch. */
typedef struct job {
    const tg_call *call;
    const tg_view *a; /* whose leading dimensions are the batch */
    /* Works on one matrix; `memory` has `bytes`. */
    void (*one)(struct job *j, int64_t index, char *memory);
    int wide, upper, left, unit;
    int64_t m, n, k;
    int64_t batch, tasks;
    size_t bytes;
    atomic_int failed;
} job;

static inline int64_t item(const job *j)
{
    return j->wide ? 8 : 4;
}

/* The place of matrix, vector or number `index` in a batch of those with `inner` dimensions. */
static inline char *place(const tg_view *view, int inner, int64_t index)
{
    int64_t offset = 0;
    for (int d = view->ndim - inner - 1; d >= 0; d--) {
        offset += index % view->shape[d] * view->strides[d];
        index /= view->shape[d];
    }
    return (char *)view->data + offset * tgc_itemsize[view->dtype];
}

static inline void move(char *to, int64_t to_row, int64_t to_col, const char *from, int64_t from_row, int64_t from_col,
                 int64_t rows, int64_t cols, int64_t size)
{
    if (rows <= SMALL && cols <= SMALL) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t k = 0; k < cols; k++)
                if (size == 4)
                    ((uint32_t *)to)[i * to_row + k * to_col] = ((const uint32_t *)from)[i * from_row + k * from_col];
                else
                    ((uint64_t *)to)[i * to_row + k * to_col] = ((const uint64_t *)from)[i * from_row + k * from_col];
        return;
    }
    if (rows == 0 || cols == 0)
        return;
    int64_t shape[2] = {rows, cols}, to_strides[2] = {to_row * size, to_col * size};
    int64_t from_strides[2] = {from_row * size, from_col * size};
    TGC(tgc_move_region)(2, shape, to, to_strides, from, from_strides, (int)size);
}

/* Copy matrix `index` of an argument to rows `row` apart, or a matrix back to a result. */
static inline void load(const tg_view *view, int64_t index, int turned, char *to, int64_t row)
{
    int64_t r = view->strides[view->ndim - 2], c = view->strides[view->ndim - 1];
    int64_t rows = view->shape[view->ndim - 2], cols = view->shape[view->ndim - 1];
    if (turned)
        move(to, row, 1, place(view, 2, index), c, r, cols, rows, tgc_itemsize[view->dtype]);
    else
        move(to, row, 1, place(view, 2, index), r, c, rows, cols, tgc_itemsize[view->dtype]);
}

static inline void unload(const tg_view *view, int64_t index, int turned, const char *from, int64_t row)
{
    int64_t r = view->strides[view->ndim - 2], c = view->strides[view->ndim - 1];
    int64_t rows = view->shape[view->ndim - 2], cols = view->shape[view->ndim - 1];
    if (turned)
        move(place(view, 2, index), c, r, from, row, 1, cols, rows, tgc_itemsize[view->dtype]);
    else
        move(place(view, 2, index), r, c, from, row, 1, rows, cols, tgc_itemsize[view->dtype]);
}

/* Whether rows of a result are contiguous, so that it is computed in its place. */
static inline int in_place(const tg_view *view)
{
    return view->shape[view->ndim - 1] <= 1 || view->strides[view->ndim - 1] == 1;
}

/* The distance between rows of a copy: rows a power of two apart would share sets of the cache. */
static inline int64_t spread(int64_t cols)
{
    return cols <= SMALL ? cols : (cols + 15) / 16 * 16 + 16;
}

static inline char *aligned(char *memory)
{
    return (char *)(((uintptr_t)memory + 63) / 64 * 64);
}

static inline void batch_task(int64_t task, void *context)
{
    job *j = context;
    char *memory = tgc_scratch(j->bytes);
    if (memory == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    int64_t end = tgc_begin(j->batch, j->tasks, task + 1, 1);
    for (int64_t i = tgc_begin(j->batch, j->tasks, task, 1); i < end; i++)
        j->one(j, i, memory);
    tgc_scratch_free(memory);
}

/* Work through the batch; `products` multiplications go into one matrix. */
static inline int run(job *j, const char *op, double products)
{
    j->batch = 1;
    for (int d = 0; d < j->a->ndim - 2; d++)
        j->batch *= j->a->shape[d];
    if (j->batch == 0)
        return 0;
    double together = TASK_PRODUCTS / (products > 64 ? products : 64);
    j->tasks = tgc_tasks(j->batch, together < 1 ? 1 : (int64_t)together, MOST_TASKS);
    tgc_parallel(j->tasks, batch_task, j);
    return atomic_load(&j->failed) ? tgc_no_memory(op, j->bytes) : 0;
}

static inline job begin(const tg_call *call, void (*one)(job *, int64_t, char *))
{
    const tg_view *a = &call->args[0].value.tensors[0];
    job j = {.call = call, .a = a, .one = one, .wide = a->dtype == TGC_FLOAT64};
    j.m = a->shape[a->ndim - 2];
    j.n = a->shape[a->ndim - 1];
    return j;
}

/* Raise LinAlgError in the name of a function for the first matrix whose number is not zero. */
static inline int refuse_in(const char *name, const tg_view *info, const char *text)
{
    for (int64_t index = 0; index < info->numel; index++) {
        int number = *(const int32_t *)place(info, 0, index);
        if (number == 0)
            continue;
        char which[256] = "", told[512];
        int64_t places[TG_MAX_DIMS], rest = index;
        for (int d = info->ndim - 1; d >= 0; d--) {
            places[d] = rest % info->shape[d];
            rest /= info->shape[d];
        }
        size_t at = 0;
        for (int d = 0; d < info->ndim && at < sizeof which; d++)
            at += (size_t)snprintf(which + at, sizeof which - at, "%s%lld", d ? ", " : "(Batch element ", (long long)places[d]);
        if (at > 0 && at < sizeof which)
            snprintf(which + at, sizeof which - at, "): ");
        snprintf(told, sizeof told, text, number);
        return tgc_error("tangrad.linalg.LinAlgError", "%s: %s%s", name, which, told);
    }
    return 0;
}

/* The same if `check` names who refuses. */
static inline int refuse(const tg_view *info, const tg_argument *check, const char *text)
{
    if (check->kind != TG_ARG_TEXT || check->value.text[0] == 0)
        return 0;
    return refuse_in(check->value.text, info, text);
}

#endif
