/* Where the greatest elements of windows at random distances are. A window that begins at random numbers is
 * as large as all others, so what is looked for is in no two of them at a fixed distance. */
#include "tgc.h"

#include <string.h>

#define MOST_DIMS 3
#define GRAIN 16384
/* Windows of a row that are looked at side by side. */
#define TOGETHER 64
#define FULL 16

typedef struct job {
    const tg_view *self, *samples;
    int64_t *out, *starts; /* of the windows of each dimension, planes one after the other */
    int64_t size[MOST_DIMS], kernel[MOST_DIMS], outs[MOST_DIMS], stride[MOST_DIMS];
    int64_t planes, channels, windows, places, tasks;
    int missing, spatial; /* dimensions that images lack, and have */
} job;

/* Where the windows of one dimension begin, for a number from [0, 1); as the tensor code rounds. */
#define STARTS(name, type)                                                                              \
    static void name(type u, int64_t size, int64_t kernel, int64_t count, int64_t *to)                  \
    {                                                                                                   \
        const type step = count > 1 ? (type)((double)(size - kernel) / (double)(count - 1)) : (type)0;  \
        const int64_t first = (int64_t)(u * step);                                                      \
        for (int64_t i = 0; i < count - 1; i++)                                                         \
            to[i] = (int64_t)(((type)i + u) * step) - first;                                            \
        to[count - 1] = size - kernel;                                                                  \
    }

STARTS(starts_f32, float)
STARTS(starts_f64, double)

/* The place in its plane of each window's greatest element, or of its first nan: some windows of a row are
 * looked at side by side, tap by tap. */
#define PLANE(name, type, integer)                                                                      \
    static void name(const job *j, const type *x, const int64_t *starts, int64_t *out)                  \
    {                                                                                                   \
        const int64_t *rows = starts + j->outs[0], *cols = rows + j->outs[1];                           \
        type most[TOGETHER];                                                                            \
        integer place[TOGETHER], col[TOGETHER];                                                         \
        for (int64_t first = 0; first < j->outs[2]; first += TOGETHER) {                                \
            const int count = (int)(j->outs[2] - first < TOGETHER ? j->outs[2] - first : TOGETHER);     \
            /* The last one repeated fills up a vector. */                                              \
            const int lanes = (count + FULL - 1) / FULL * FULL;                                         \
            for (int c = 0; c < lanes; c++)                                                             \
                col[c] = (integer)cols[first + (c < count ? c : count - 1)];                            \
            for (int64_t a = 0; a < j->outs[0]; a++)                                                    \
                for (int64_t b = 0; b < j->outs[1]; b++) {                                              \
                    const type *corner = x + starts[a] * j->stride[0] + rows[b] * j->stride[1];         \
                    const integer stride = (integer)j->stride[2];                                       \
                    int64_t before = (starts[a] * j->size[1] + rows[b]) * j->size[2];                   \
                    for (int c = 0; c < lanes; c++) {                                                   \
                        most[c] = corner[col[c] * stride];                                              \
                        place[c] = (integer)before + col[c];                                            \
                    }                                                                                   \
                    for (int64_t d = 0; d < j->kernel[0]; d++)                                          \
                        for (int64_t h = 0; h < j->kernel[1]; h++)                                      \
                            for (int64_t w = 0; w < j->kernel[2]; w++) {                                \
                                const type *tap = corner + d * j->stride[0] + h * j->stride[1]          \
                                                  + w * j->stride[2];                                   \
                                const integer at = (integer)(before + (d * j->size[1] + h) * j->size[2] + w); \
                                for (int c = 0; c < lanes; c++) {                                       \
                                    const type value = tap[col[c] * stride], best = most[c];            \
                                    const int better = (value > best) | ((value != value) & (best == best)); \
                                    most[c] = better ? value : best;                                    \
                                    place[c] = better ? at + col[c] : place[c];                         \
                                }                                                                       \
                            }                                                                           \
                    int64_t *to = out + (a * j->outs[1] + b) * j->outs[2] + first;                      \
                    for (int c = 0; c < count; c++)                                                     \
                        to[c] = place[c];                                                               \
                }                                                                                       \
        }                                                                                               \
    }

PLANE(plane_f32, float, int32_t)
PLANE(plane_f64, double, int64_t)

static void planes_task(int64_t task, void *context)
{
    const job *j = context;
    const tg_view *self = j->self, *samples = j->samples;
    const int64_t begin = tgc_begin(j->planes, j->tasks, task, 1), end = tgc_begin(j->planes, j->tasks, task + 1, 1);
    const int single = self->dtype == TGC_FLOAT32;
    int64_t *starts = j->starts + task * j->places;
    for (int64_t p = begin; p < end; p++) {
        const int64_t n = p / j->channels, c = p % j->channels, at = n * self->strides[0] + c * self->strides[1];
        int64_t *to = starts;
        for (int axis = 0; axis < MOST_DIMS; axis++) {
            /* The first random number is of an image's width, but of a volume's depth. */
            const int which = axis - j->missing, number = j->spatial == 2 ? 1 - which : which;
            const int64_t from = n * samples->strides[0] + c * samples->strides[1] + number * samples->strides[2];
            if (which < 0)
                *to = 0;
            else if (single)
                starts_f32(((const float *)samples->data)[from], j->size[axis], j->kernel[axis], j->outs[axis], to);
            else
                starts_f64(((const double *)samples->data)[from], j->size[axis], j->kernel[axis], j->outs[axis], to);
            to += j->outs[axis];
        }
        if (single)
            plane_f32(j, (const float *)self->data + at, starts, j->out + p * j->windows);
        else
            plane_f64(j, (const double *)self->data + at, starts, j->out + p * j->windows);
    }
}

/* Whether all windows lie in the planes: numbers are from [0, 1], and their multiples exact to less than one. */
static int within(const job *j)
{
    const tg_view *samples = j->samples;
    if (j->size[0] * j->size[1] * j->size[2] > INT32_MAX / 2 || j->stride[2] * j->size[2] > INT32_MAX / 2)
        return 0;
    for (int axis = 0; axis < MOST_DIMS; axis++)
        if (j->size[axis] > 1 << 20)
            return 0;
    for (int64_t p = 0; p < j->planes; p++)
        for (int k = 0; k < j->spatial; k++) {
            const int64_t at = p / j->channels * samples->strides[0] + p % j->channels * samples->strides[1]
                               + k * samples->strides[2];
            const double u = samples->dtype == TGC_FLOAT32 ? (double)((const float *)samples->data)[at]
                                                           : ((const double *)samples->data)[at];
            if (!(u >= 0 && u <= 1))
                return 0;
        }
    return 1;
}

static int fractional(const tg_call *call, void *context)
{
    const tg_view *self = call->args[0].value.tensors, *out = call->outs;
    job j = {.self = self, .samples = call->args[1].value.tensors, .out = out->data, .spatial = self->ndim - 2,
             .size = {1, 1, 1}, .kernel = {1, 1, 1}, .outs = {1, 1, 1}};
    (void)context;
    j.missing = MOST_DIMS - j.spatial;
    if (j.missing < 0 || !tgc_is_contiguous(out, 0) || j.samples->dtype != self->dtype)
        return TG_DECLINED;
    for (int axis = j.missing; axis < MOST_DIMS; axis++) {
        const int which = axis - j.missing;
        j.size[axis] = self->shape[2 + which];
        j.stride[axis] = self->strides[2 + which];
        j.kernel[axis] = call->args[2].value.ints[which];
        j.outs[axis] = call->args[3].value.ints[which];
    }
    j.channels = self->shape[1];
    j.planes = self->shape[0] * j.channels;
    j.windows = j.outs[0] * j.outs[1] * j.outs[2];
    j.places = j.outs[0] + j.outs[1] + j.outs[2];
    if (j.planes == 0)
        return 0;
    if (!within(&j))
        return TG_DECLINED;
    j.tasks = tgc_tasks(out->numel * j.kernel[0] * j.kernel[1] * j.kernel[2], GRAIN, j.planes < 64 ? j.planes : 64);
    const size_t bytes = (size_t)(j.tasks * j.places) * sizeof(int64_t);
    j.starts = tgc_scratch(bytes);
    if (j.starts == NULL)
        return tgc_no_memory("fractional_max_pool", bytes);
    tgc_parallel(j.tasks, planes_task, &j);
    tgc_scratch_free(j.starts);
    return 0;
}

const tgc_kernel TGC(tgc_table_fractional)[] = {{"_fractional_places", "float32", TGC_CALL, fractional, NULL},
                                                {"_fractional_places", "float64", TGC_CALL, fractional, NULL},
                                                {0}};
