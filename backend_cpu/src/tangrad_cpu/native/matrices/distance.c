/* Distances of all pairs of a matrix's rows: by the sum, the largest or the number of the differences, or
 * the Euclidean one. Other orders, and rows with gaps, are left to the tensor code. */
#include "copies/copying.h"

#include <math.h>
#include <string.h>

/* Differences that are added up in the elements' own type. */
#define PIECE 64
/* Behind the last column of the table: a block that begins at it ends here. */
#define PADDING 64
#define GRAIN 65536

enum { ABSOLUTE, SQUARES, LARGEST, NUMBER };

typedef struct job {
    const char *x;
    char *out, *table; /* the rows transposed, so that lanes are the others of a row's pairs */
    int64_t rows, width, padded, tasks;
    int kind, dtype;
} job;

typedef float floats __attribute__((vector_size(64)));
typedef int32_t float_bits __attribute__((vector_size(64)));
typedef double doubles __attribute__((vector_size(64)));
typedef int64_t double_bits __attribute__((vector_size(64)));

#define D_T float
#define D_VECTOR floats
#define D_BITS float_bits
#define D_MASK INT32_MAX
#define D_LEAST 0x1p-80
#define D(name) name##_f32
#include "distance_rows.h"

#define D_T double
#define D_VECTOR doubles
#define D_BITS double_bits
#define D_MASK INT64_MAX
#define D_LEAST 0x1p-900
#define D(name) name##_f64
#include "distance_rows.h"

/* Every task-th row: those at the front have the most pairs. */
static void rows_task(int64_t task, void *context)
{
    const job *j = context;
    for (int64_t i = task; i < j->rows - 1; i += j->tasks) {
        if (j->dtype == TGC_FLOAT32)
            row_f32(j, i);
        else
            row_f64(j, i);
    }
}

static int pdist(const tg_call *call, void *context)
{
    const tg_view *self = call->args[0].value.tensors, *out = call->outs;
    const double p = call->args[1].value.f;
    job j = {.x = self->data, .out = out->data, .rows = self->shape[0], .width = self->shape[1],
             .kind = p == 0 ? NUMBER : p == 1 ? ABSOLUTE : p == 2 ? SQUARES : LARGEST, .dtype = self->dtype};
    (void)context;
    if (p != 0 && p != 1 && p != 2 && p != INFINITY)
        return TG_DECLINED;
    if (self->strides[1] != 1 || self->strides[0] != j.width || out->strides[0] != 1 || j.rows < 2 || j.width < 1)
        return TG_DECLINED;
    j.padded = (j.rows + PADDING + 15) & ~(int64_t)15;
    const size_t bytes = (size_t)(j.padded * j.width * tgc_itemsize[j.dtype]);
    j.table = tgc_scratch(bytes);
    if (j.table == NULL)
        return tgc_no_memory("pdist", bytes);
    if (j.dtype == TGC_FLOAT32)
        tabulate_f32(&j);
    else
        tabulate_f64(&j);
    j.tasks = tgc_tasks(out->numel * j.width, GRAIN, j.rows - 1 < 64 ? j.rows - 1 : 64);
    tgc_parallel(j.tasks, rows_task, &j);
    tgc_scratch_free(j.table);
    return 0;
}

const tgc_kernel TGC(tgc_table_distance)[] = {
    {"_pdist", "float32", TGC_CALL, pdist, NULL}, {"_pdist", "float64", TGC_CALL, pdist, NULL}, {0}};
