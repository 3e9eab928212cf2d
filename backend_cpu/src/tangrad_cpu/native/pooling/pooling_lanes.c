/* Max pooling of volumes whose windows have one element along the last dimension, as those of pictures have
 * whose channels lie last: vectors run along that dimension, and a window is folded in registers. */
#include "pooling.h"
#include "vector_bytes.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define GRAIN 16384
#define MOST_TASKS 64
#define LEAST_LANES 4 /* of fewer, rows of windows are the better vectors */

/* An element of a window: from the plane's first, in memory and in the order of its elements. */
typedef struct {
    int64_t offset, place;
} tap;

#define PL_T float
#define PL_N int32_t
#define PL_LOWEST (-INFINITY)
#define PL(name) name##_f32
#include "pooling_lanes_rows.h"
#define PL_T double
#define PL_N int64_t
#define PL_LOWEST (-(double)INFINITY)
#define PL(name) name##_f64
#include "pooling_lanes_rows.h"

typedef struct {
    const tg_view *input;
    char *values;
    int64_t *places; /* NULL: nobody asks */
    int lead, wide;
    const int64_t *kernel, *stride, *padding, *dilation;
    int64_t height, width, channels, rows, columns; /* of a plane, and windows of it */
    int64_t units, tasks, taps;
    _Atomic int failed;
} job;

/* Which taps of a window are inside, along one dimension. */
static void inside(int64_t start, int64_t size, int64_t apart, int64_t taps, int64_t *low, int64_t *high)
{
    *low = start >= 0 ? 0 : (-start + apart - 1) / apart;
    const int64_t left = size - start;
    *high = left <= 0 ? 0 : (left + apart - 1) / apart;
    *high = *high < taps ? *high : taps;
}

static int64_t clipped(int64_t at, int64_t size)
{
    return at < 0 ? 0 : at < size ? at : size - 1;
}

static void rows_task(int64_t task, void *context)
{
    job *j = context;
    const int64_t end = tgc_begin(j->units, j->tasks, task + 1, 1), *strides = j->input->strides + j->lead;
    const int64_t item = tgc_itemsize[j->input->dtype];
    tap *taps = tgc_scratch((size_t)j->taps * sizeof *taps);
    if (taps == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    for (int64_t unit = tgc_begin(j->units, j->tasks, task, 1); unit < end; unit++) {
        int64_t rest = unit / j->rows, offset = 0, low, high, first, last;
        for (int d = j->lead - 1; d >= 0; d--) {
            offset += rest % j->input->shape[d] * j->input->strides[d];
            rest /= j->input->shape[d];
        }
        const char *x = (const char *)j->input->data + offset * item;
        const int64_t top = unit % j->rows * j->stride[0] - j->padding[0];
        inside(top, j->height, j->dilation[0], j->kernel[0], &low, &high);
        for (int64_t column = 0; column < j->columns; column++) {
            const int64_t left = column * j->stride[1] - j->padding[1];
            const int64_t nowhere = (clipped(top, j->height) * j->width + clipped(left, j->width)) * j->channels;
            const int64_t at = (unit * j->columns + column) * j->channels;
            int64_t count = 0;
            inside(left, j->width, j->dilation[1], j->kernel[1], &first, &last);
            for (int64_t t = low; t < high; t++)
                for (int64_t u = first; u < last; u++) {
                    const int64_t y = top + t * j->dilation[0], z = left + u * j->dilation[1];
                    taps[count++] = (tap){y * strides[0] + z * strides[1], (y * j->width + z) * j->channels};
                }
            (j->wide ? window_f64 : window_f32)(j->values + at * item, j->places == NULL ? NULL : j->places + at, x,
                                                taps, count, nowhere, j->channels);
        }
    }
    tgc_scratch_free(taps);
}

int TGC(tgc_max_pool_lanes)(const tg_view *input, const tg_view *values, const tg_view *places, int spatial,
                            const int64_t *kernel, const int64_t *stride, const int64_t *padding,
                            const int64_t *dilation, int *status)
{
    const int last = input->ndim - 1;
    if (spatial != 3 || kernel[2] != 1 || stride[2] != 1 || padding[2] != 0 || input->strides[last] != 1
        || input->shape[last] < LEAST_LANES || values->numel == 0
        || (input->dtype != TGC_FLOAT32 && input->dtype != TGC_FLOAT64))
        return 0;
    job j = {.input = input, .values = values->data, .places = places == NULL ? NULL : places->data, .lead = last - 2,
             .wide = input->dtype == TGC_FLOAT64, .kernel = kernel, .stride = stride, .padding = padding,
             .dilation = dilation, .height = input->shape[last - 2], .width = input->shape[last - 1],
             .channels = input->shape[last], .rows = values->shape[last - 2], .columns = values->shape[last - 1],
             .taps = kernel[0] * kernel[1]};
    if (j.height * j.width * j.channels > INT32_MAX)
        return 0;
    j.units = values->numel / (j.columns * j.channels);
    j.tasks = tgc_tasks(values->numel * j.taps, GRAIN, j.units < MOST_TASKS ? j.units : MOST_TASKS);
    tgc_parallel(j.tasks, rows_task, &j);
    *status = atomic_load(&j.failed) ? tgc_no_memory("max_pool", (size_t)j.taps * sizeof(tap)) : 0;
    return 1;
}
