/* Gamma and Dirichlet distributed numbers by Marsaglia and Tsang's method ("A simple method for
 * generating gamma variables", 2000), from the words that the core's definition takes: in round t of
 * those still pending number r takes the r-th normal and the r-th uniform number of that round. */
#include "copies/copying.h"
#include "random_values.h"
#include "vmath/vmath.h"

#include <float.h>

#define TRIES 32
#define PIECE (TGC_PIECE / 4)
#define GRAIN 4096
#define MOST_TASKS 64

/* `logs` are what has been drawn; `pending` the places that are still to be, in order. */
typedef struct {
    tgc_stream stream;
    const double *shapes;
    double *logs;
    int64_t *pending, count, tasks, n;
    uint8_t *accepted;
} rounds;

/* As tgc_normal_f64, by functions that GCC vectorises. */
static void normals(const tgc_stream *stream, int64_t first, int64_t n, double *out)
{
    uint64_t integers[2 * PIECE];
    tgc_integers(stream, 2 * first, 2 * n, integers);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const double u = 1.0 - (double)(int64_t)(integers[2 * i] >> 11) * 0x1p-53;
        const double v = (double)(int64_t)(integers[2 * i + 1] >> 11) * 0x1p-53;
        out[i] = __builtin_sqrt(-2.0 * tgc_log_f64(u)) * tgc_cos_fast_f64(6.283185307179586 * v);
    }
}

static void round_task(int64_t task, void *context)
{
    rounds *job = context;
    tgc_stream uniform = job->stream;
    uniform.offset += (uint64_t)job->n;
    uniform.a = -1;
    uniform.b = 1;
    const int64_t end = tgc_begin(job->count, job->tasks, task + 1, PIECE);
    for (int64_t first = tgc_begin(job->count, job->tasks, task, PIECE); first < end; first += PIECE) {
        const int64_t n = end - first < PIECE ? end - first : PIECE;
        double z[PIECE], u[PIECE], shape[PIECE], log[PIECE], over[PIECE];
        normals(&job->stream, first, n, z);
        tgc_uniform_f64(&uniform, first, n, u);
        for (int64_t i = 0; i < n; i++)
            shape[i] = job->shapes[job->pending[first + i]];
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) {
            const double d = (shape[i] < 1.0 ? shape[i] + 1.0 : shape[i]) - 1.0 / 3.0;
            const double root = 1.0 + 1.0 / __builtin_sqrt(9.0 * d) * z[i];
            const double v = root > 0.0 ? root * root * root : 1.0, of_v = tgc_log_f64(v);
            log[i] = of_v + tgc_log_f64(d);
            over[i] = root > 0.0 ? z[i] * z[i] / 2.0 + d * (1.0 - v + of_v) - tgc_log_f64(u[i]) : 0.0;
        }
        for (int64_t i = 0; i < n; i++) {
            job->logs[job->pending[first + i]] = log[i];
            job->accepted[first + i] = over[i] > 0.0;
        }
    }
}

/* Numbers of a shape below 1 are those of the next larger one, times a power of a uniform number. */
static void small_task(int64_t task, void *context)
{
    rounds *job = context;
    const int64_t end = tgc_begin(job->n, job->tasks, task + 1, PIECE);
    for (int64_t first = tgc_begin(job->n, job->tasks, task, PIECE); first < end; first += PIECE) {
        const int64_t n = end - first < PIECE ? end - first : PIECE;
        double u[PIECE];
        int any = 0;
        for (int64_t i = 0; i < n; i++)
            any |= job->shapes[first + i] < 1.0;
        if (!any)
            continue;
        tgc_uniform_f64(&job->stream, first, n, u);
        for (int64_t i = 0; i < n; i++)
            if (job->shapes[first + i] < 1.0)
                job->logs[first + i] += tgc_log_f64(u[i]) / job->shapes[first + i];
    }
}

/* Draw the logarithms of n numbers. */
static void draw(rounds *job, uint64_t seed, uint64_t offset)
{
    const int64_t n = job->n;
    tgc_philox_schedule(&job->stream.keys, seed);
    job->stream.offset = offset;
    job->stream.a = 1;
    job->count = n;
    for (int64_t i = 0; i < n; i++)
        job->pending[i] = i;
    for (int t = 0; t < TRIES && job->count > 0; t++) {
        int64_t left = 0;
        job->tasks = tgc_tasks(job->count, GRAIN, MOST_TASKS);
        tgc_parallel(job->tasks, round_task, job);
        for (int64_t i = 0; i < job->count; i++) {
            job->pending[left] = job->pending[i];
            left += !job->accepted[i];
        }
        job->stream.offset += 2 * (uint64_t)job->n;
        job->count = left;
    }
    job->stream.offset = offset + 2 * TRIES * (uint64_t)n;
    job->stream.a = -1;
    job->stream.b = 1;
    job->tasks = tgc_tasks(n, GRAIN, MOST_TASKS);
    tgc_parallel(job->tasks, small_task, job);
}

static double tiniest(int dtype)
{
    return dtype == TGC_FLOAT64 ? DBL_MIN : dtype == TGC_FLOAT16 ? 0x1p-14 : FLT_MIN;
}

/* Half of the distance from 1 to the next larger number. */
static double below_one(int dtype)
{
    return 1 - (dtype == TGC_FLOAT64 ? 0x1p-53 : dtype == TGC_FLOAT16 ? 0x1p-11 : 0x1p-24);
}

typedef struct {
    double *logs, tiny, most;
    const double *shapes;
    int64_t n, width, tasks;
} finish;

static void gamma_task(int64_t task, void *context)
{
    finish *job = context;
    const int64_t end = tgc_begin(job->n, job->tasks, task + 1, PIECE);
    for (int64_t i = tgc_begin(job->n, job->tasks, task, PIECE); i < end; i++) {
        const double drawn = tgc_exp_f64(job->logs[i]), least = drawn < job->tiny ? job->tiny : drawn;
        job->logs[i] = job->shapes[i] == 0.0 ? 0.0 : least;
    }
}

static void dirichlet_task(int64_t task, void *context)
{
    finish *job = context;
    const int64_t end = tgc_begin(job->n, job->tasks, task + 1, 1);
    for (int64_t row = tgc_begin(job->n, job->tasks, task, 1); row < end; row++) {
        double *x = job->logs + row * job->width, most = -HUGE_VAL, sum = 0;
        for (int64_t i = 0; i < job->width; i++)
            most = x[i] > most || x[i] != x[i] ? x[i] : most;
        for (int64_t i = 0; i < job->width; i++)
            x[i] = tgc_exp_f64(x[i] - most);
        for (int64_t i = 0; i < job->width; i++)
            sum += x[i];
        for (int64_t i = 0; i < job->width; i++) {
            const double share = x[i] / sum, least = share < job->tiny ? job->tiny : share;
            x[i] = least > job->most ? job->most : least;
        }
    }
}

/* Copy between a tensor and contiguous numbers of double precision. */
static void convert(const tg_view *view, double *memory, int back)
{
    int64_t strides[TG_MAX_DIMS], packed[TG_MAX_DIMS], step = 8;
    tgc_byte_strides(view, strides);
    for (int d = view->ndim - 1; d >= 0; d--) {
        packed[d] = step;
        step *= view->shape[d];
    }
    if (back)
        TGC(tgc_copy_region)(view->ndim, view->shape, view->data, strides, view->dtype, (char *)memory, packed, TGC_FLOAT64);
    else
        TGC(tgc_copy_region)(view->ndim, view->shape, (char *)memory, packed, TGC_FLOAT64, view->data, strides, view->dtype);
}

static int sample(const tg_call *call, const char *op, int dirichlet)
{
    const tg_view *self = call->args[0].value.tensors, *out = call->outs;
    const int64_t n = self->numel;
    if (n == 0)
        return 0;
    const size_t bytes = (size_t)n * (3 * sizeof(double) + 1);
    double *memory = tgc_scratch(bytes);
    if (memory == NULL)
        return tgc_no_memory(op, bytes);
    rounds job = {.shapes = memory, .logs = memory + n, .pending = (int64_t *)(memory + 2 * n), .n = n};
    job.accepted = (uint8_t *)(memory + 3 * n);
    convert(self, memory, 0);
    draw(&job, (uint64_t)call->args[call->nargs - 2].value.i, (uint64_t)call->args[call->nargs - 1].value.i);
    finish last = {.logs = job.logs, .shapes = memory, .n = n, .tiny = tiniest(out->dtype), .most = below_one(out->dtype)};
    last.width = dirichlet && self->ndim > 0 ? self->shape[self->ndim - 1] : 1;
    last.n = n / last.width;
    last.tasks = tgc_tasks(last.n, GRAIN / last.width, MOST_TASKS);
    tgc_parallel(last.tasks, dirichlet ? dirichlet_task : gamma_task, &last);
    convert(out, job.logs, 1);
    tgc_scratch_free(memory);
    return 0;
}

static int gamma_numbers(const tg_call *call, void *context)
{
    (void)context;
    return sample(call, "_standard_gamma", 0);
}

static int dirichlet_points(const tg_call *call, void *context)
{
    (void)context;
    return sample(call, "_sample_dirichlet", 1);
}

const tgc_kernel TGC(tgc_table_gamma)[] = {
    {"_standard_gamma", "float32", TGC_CALL, gamma_numbers, NULL},
    {"_standard_gamma", "float64", TGC_CALL, gamma_numbers, NULL},
    {"_standard_gamma", "float16", TGC_CALL, gamma_numbers, NULL},
    {"_standard_gamma", "bfloat16", TGC_CALL, gamma_numbers, NULL},
    {"_sample_dirichlet", "float32", TGC_CALL, dirichlet_points, NULL},
    {"_sample_dirichlet", "float64", TGC_CALL, dirichlet_points, NULL},
    {"_sample_dirichlet", "float16", TGC_CALL, dirichlet_points, NULL},
    {"_sample_dirichlet", "bfloat16", TGC_CALL, dirichlet_points, NULL},
    {0},
};
