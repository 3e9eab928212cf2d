/* Linear recurrences: each element is the input's plus the one before it times a decay. Lanes are what lies
 * beside the dimension; rows that are the last dimension go so many at a time, as each waits for its own. */
#include "copies/copying.h"

#include <string.h>

#define ROWS 8
#define GRAIN 16384
#define MOST_TASKS 64

typedef struct {
    const void *decay, *input;
    void *out;
    int64_t outer, size, inner, tasks;
    int wide;
} job;

#define RECUR(T, suffix)                                                                                      \
    /* Several rows of the last dimension. */                                                                 \
    static inline __attribute__((always_inline)) void rows_##suffix(T *restrict to, const T *restrict decay,  \
                                                                    const T *restrict input, int64_t size,    \
                                                                    const int rows)                           \
    {                                                                                                         \
        T last[ROWS];                                                                                         \
        for (int r = 0; r < rows; r++)                                                                        \
            to[r * size] = last[r] = input[r * size];                                                         \
        for (int64_t k = 1; k < size; k++)                                                                    \
            for (int r = 0; r < rows; r++)                                                                    \
                to[r * size + k] = last[r] = input[r * size + k] + decay[r * size + k] * last[r];             \
    }                                                                                                         \
    static void lanes_##suffix(T *restrict to, const T *restrict decay, const T *restrict input, int64_t size, \
                               int64_t inner)                                                                 \
    {                                                                                                         \
        memcpy(to, input, (size_t)inner * sizeof(T));                                                         \
        for (int64_t k = 1; k < size; k++) {                                                                  \
            T *here = to + k * inner;                                                                         \
            const T *before = here - inner;                                                                   \
            for (int64_t i = 0; i < inner; i++)                                                               \
                here[i] = input[k * inner + i] + decay[k * inner + i] * before[i];                            \
        }                                                                                                     \
    }                                                                                                         \
    static void recur_##suffix(const job *j, int64_t begin, int64_t end)                                      \
    {                                                                                                         \
        const int64_t block = j->size * j->inner;                                                             \
        int64_t i = begin;                                                                                    \
        for (; j->inner == 1 && i + ROWS <= end; i += ROWS)                                                   \
            rows_##suffix((T *)j->out + i * block, (const T *)j->decay + i * block,                           \
                          (const T *)j->input + i * block, j->size, ROWS);                                    \
        for (; i < end; i++)                                                                                  \
            if (j->inner == 1)                                                                                \
                rows_##suffix((T *)j->out + i * block, (const T *)j->decay + i * block,                       \
                              (const T *)j->input + i * block, j->size, 1);                                   \
            else                                                                                              \
                lanes_##suffix((T *)j->out + i * block, (const T *)j->decay + i * block,                      \
                               (const T *)j->input + i * block, j->size, j->inner);                           \
    }
RECUR(float, f32)
RECUR(double, f64)

static void recur_task(int64_t task, void *context)
{
    const job *j = context;
    const int64_t begin = tgc_begin(j->outer, j->tasks, task, ROWS), end = tgc_begin(j->outer, j->tasks, task + 1, ROWS);
    if (j->wide)
        recur_f64(j, begin, end);
    else
        recur_f32(j, begin, end);
}

static int linear_recurrence(const tg_call *call, void *context)
{
    const tg_view *decay = call->args[0].value.tensors, *input = call->args[1].value.tensors, *out = call->outs;
    const int64_t dim = call->args[2].value.i;
    void *memory[2] = {NULL, NULL};
    job j = {.out = out->data, .outer = 1, .size = 1, .inner = 1, .wide = out->dtype == TGC_FLOAT64};
    (void)context;
    if (out->numel == 0)
        return 0;
    for (int d = 0; d < out->ndim; d++)
        *(d < dim ? &j.outer : d == dim ? &j.size : &j.inner) *= out->shape[d];
    j.decay = tgc_in_order("linear_recurrence", decay, &memory[0], TGC(tgc_move_region));
    if (j.decay != NULL)
        j.input = tgc_in_order("linear_recurrence", input, &memory[1], TGC(tgc_move_region));
    if (j.input != NULL) {
        j.tasks = tgc_tasks(out->numel, GRAIN, j.outer < MOST_TASKS ? j.outer : MOST_TASKS);
        tgc_parallel(j.tasks, recur_task, &j);
    }
    for (int i = 0; i < 2; i++)
        tgc_scratch_free(memory[i]);
    return j.input != NULL ? 0 : -1;
}

const tgc_kernel TGC(tgc_table_recurrence)[] = {
    {"linear_recurrence", "float32", TGC_CALL, linear_recurrence, NULL},
    {"linear_recurrence", "float64", TGC_CALL, linear_recurrence, NULL},
    {0}};
