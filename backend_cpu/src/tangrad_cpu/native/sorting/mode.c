/* Where along a dimension the most frequent element is: in short rows every element is compared with all
 * others, as many at a time as a vector holds. Longer rows are left to the tensor code, which sorts. */
#include "tgc.h"

#include <string.h>

#define LONGEST 1024 /* bytes of a row */
#define GRAIN 65536

typedef struct job {
    const tg_view *self;
    int64_t *out;
    int64_t rows, size, stride, tasks;
    int dim;
} job;

/* The last place of the most frequent element, of equally frequent ones the least. A nan equals nothing,
 * itself included: only where there is nothing else, the first one is the result. */
#define MODE_OF(name, type, counter)                                        \
    static int64_t name(const type *x, int64_t n)                           \
    {                                                                       \
        int64_t place = -1;                                                 \
        counter most = 0;                                                   \
        for (int64_t i = n - 1; i >= 0; i--) {                              \
            const type value = x[i];                                        \
            counter count = 0;                                              \
            for (int64_t k = 0; k < n; k++)                                 \
                count += x[k] == value;                                     \
            if (count > most || (count && count == most && value < x[place])) { \
                most = count;                                               \
                place = i;                                                  \
            }                                                               \
        }                                                                   \
        return place < 0 ? 0 : place;                                       \
    }

MODE_OF(mode_f32, float, int32_t)
MODE_OF(mode_f64, double, int64_t)
MODE_OF(mode_i32, int32_t, int32_t)
MODE_OF(mode_i64, int64_t, int64_t)

static const char *row_of(const job *j, int64_t row)
{
    const tg_view *self = j->self;
    int64_t offset = 0;
    for (int d = self->ndim - 1; d >= 0; d--) {
        if (d == j->dim)
            continue;
        offset += row % self->shape[d] * self->strides[d];
        row /= self->shape[d];
    }
    return (const char *)self->data + offset * tgc_itemsize[self->dtype];
}

static void rows_task(int64_t task, void *context)
{
    const job *j = context;
    const int64_t begin = tgc_begin(j->rows, j->tasks, task, 1), end = tgc_begin(j->rows, j->tasks, task + 1, 1);
    const int item = tgc_itemsize[j->self->dtype];
    _Alignas(64) char copy[LONGEST];
    for (int64_t row = begin; row < end; row++) {
        const char *x = row_of(j, row);
        if (j->stride != 1) {
            for (int64_t k = 0; k < j->size; k++)
                memcpy(copy + k * item, x + k * j->stride * item, (size_t)item);
            x = copy;
        }
        switch (j->self->dtype) {
        case TGC_FLOAT32: j->out[row] = mode_f32((const float *)x, j->size); break;
        case TGC_FLOAT64: j->out[row] = mode_f64((const double *)x, j->size); break;
        case TGC_INT32: j->out[row] = mode_i32((const int32_t *)x, j->size); break;
        default: j->out[row] = mode_i64((const int64_t *)x, j->size);
        }
    }
}

static int mode_place(const tg_call *call, void *context)
{
    const tg_view *self = call->args[0].value.tensors, *out = call->outs;
    const int dim = (int)call->args[1].value.i;
    job j = {.self = self, .out = out->data, .rows = out->numel, .dim = dim};
    (void)context;
    if (self->ndim == 0 || self->shape[dim] * tgc_itemsize[self->dtype] > LONGEST || !tgc_is_contiguous(out, 0))
        return TG_DECLINED;
    j.size = self->shape[dim];
    j.stride = self->strides[dim];
    j.tasks = tgc_tasks(self->numel * (j.size / 16 + 4), GRAIN, 64);
    tgc_parallel(j.tasks, rows_task, &j);
    return 0;
}

const tgc_kernel TGC(tgc_table_mode)[] = {{"_mode_place", "float32", TGC_CALL, mode_place, NULL},
                                          {"_mode_place", "float64", TGC_CALL, mode_place, NULL},
                                          {"_mode_place", "int32", TGC_CALL, mode_place, NULL},
                                          {"_mode_place", "int64", TGC_CALL, mode_place, NULL},
                                          {0}};
