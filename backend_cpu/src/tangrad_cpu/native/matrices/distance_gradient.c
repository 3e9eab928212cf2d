/* The gradient of the distances of all pairs of a matrix's rows, for the orders of distance.c. */
#include "copies/copying.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Lanes of a vector at most: rows are padded to as many. */
#define PADDING 16
#define GRAIN 65536
#define MOST_TASKS 64

enum { ABSOLUTE, SQUARES, LARGEST };

typedef struct {
    const void *g, *distance; /* of each pair */
    const void *factors;      /* and what its differences are multiplied by */
    void *out, *memory;                 /* that of tasks: three padded rows each */
    char *table;                        /* the rows transposed */
    int64_t rows, width, padded, pairs, tasks;
    int kind, dtype;
} gradient;

typedef float floats __attribute__((vector_size(64)));
typedef int32_t float_bits __attribute__((vector_size(64)));
typedef double doubles __attribute__((vector_size(64)));
typedef int64_t double_bits __attribute__((vector_size(64)));

#define D_T float
#define D_VECTOR floats
#define D_BITS float_bits
#define D_SIGN INT32_MIN
#define D_LEAST FLT_MIN
#define D_MOST FLT_MAX
#define D(name) name##_f32
#include "distance_gradient_rows.h"

#define D_T double
#define D_VECTOR doubles
#define D_BITS double_bits
#define D_SIGN INT64_MIN
#define D_LEAST DBL_MIN
#define D_MOST DBL_MAX
#define D(name) name##_f64
#include "distance_gradient_rows.h"

static void gradient_task(int64_t task, void *context)
{
    const gradient *j = context;
    char *memory = (char *)j->memory + task * 3 * j->padded * tgc_itemsize[j->dtype];
    const int64_t end = tgc_begin(j->rows, j->tasks, task + 1, 1);
    for (int64_t i = tgc_begin(j->rows, j->tasks, task, 1); i < end; i++) {
        if (j->dtype == TGC_FLOAT32)
            gradient_of_f32(j, i, memory);
        else
            gradient_of_f64(j, i, memory);
    }
}

static void tabulate(const gradient *j, const tg_view *self)
{
    const int64_t item = tgc_itemsize[j->dtype], row = j->padded * item;
    TGC(tgc_transpose)(j->table, row, self->data, j->width * item, j->width, j->rows, (int)item);
    for (int64_t k = 0; k < j->width; k++)
        memset(j->table + k * row + j->rows * item, 0, (size_t)(row - j->rows * item));
}

static int pdist_backward(const tg_call *call, void *context)
{
    const tg_view *g = call->args[0].value.tensors, *self = call->args[1].value.tensors;
    const tg_view *distance = call->args[2].value.tensors, *out = call->outs;
    const double p = call->args[3].value.f;
    gradient j = {.g = g->data, .distance = distance->data, .out = out->data, .rows = self->shape[0],
                  .width = self->shape[1], .kind = p == 1 ? ABSOLUTE : p == 2 ? SQUARES : LARGEST,
                  .dtype = self->dtype};
    (void)context;
    if (p != 1 && p != 2 && p != INFINITY)
        return TG_DECLINED;
    const int straight = tgc_is_contiguous(g, 0) && tgc_is_contiguous(self, 0) && tgc_is_contiguous(distance, 0);
    if (!straight || !tgc_is_contiguous(out, 0) || j.rows < 2 || j.width < 1)
        return TG_DECLINED;
    j.pairs = j.rows * (j.rows - 1) / 2;
    j.padded = (j.rows + PADDING - 1) / PADDING * PADDING;
    j.tasks = tgc_tasks(j.rows * self->numel, GRAIN, j.rows < MOST_TASKS ? j.rows : MOST_TASKS);
    const int64_t own = j.kind == SQUARES ? (j.pairs + PADDING - 1) / PADDING * PADDING : 0;
    const size_t bytes = (size_t)((j.width + 3 * j.tasks) * j.padded + own) * (size_t)tgc_itemsize[j.dtype];
    j.memory = tgc_scratch(bytes);
    if (j.memory == NULL)
        return tgc_no_memory("pdist", bytes);
    j.table = (char *)j.memory + 3 * j.tasks * j.padded * tgc_itemsize[j.dtype];
    j.factors = own ? j.table + j.width * j.padded * tgc_itemsize[j.dtype] : g->data;
    if (own && !(j.dtype == TGC_FLOAT32 ? factors_f32(&j) : factors_f64(&j))) {
        tgc_scratch_free(j.memory);
        return TG_DECLINED;
    }
    tabulate(&j, self);
    tgc_parallel(j.tasks, gradient_task, &j);
    tgc_scratch_free(j.memory);
    return 0;
}

const tgc_kernel TGC(tgc_table_distance_gradient)[] = {
    {"_pdist_backward", "float32", TGC_CALL, pdist_backward, NULL},
    {"_pdist_backward", "float64", TGC_CALL, pdist_backward, NULL},
    {0}};
