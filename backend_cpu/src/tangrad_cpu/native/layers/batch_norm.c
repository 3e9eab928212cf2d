/* Batch normalization and its gradient.
 *
 * Where the elements of a channel lie in runs, a task takes whole channels: moments are taken of
 * pieces that stay in the first-level cache (mean, then squared deviations) and joined after Chan,
 * Golub and LeVeque, and the result is written while the channel is still in the second-level
 * cache; so memory is read once. Where channels lie side by side, a row is a vector of channels:
 * tasks take rows, and their moments are joined before the result is written. */
#include "copies/copying.h"
#include "half.h"
#include "row_sum.h"
#include "tgc.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define LANES 64
#define BLOCK 4096
/* Elements of rows of channels that are taken together. */
#define ROWS_BLOCK 8192
/* Shorter runs of a channel are gathered. */
#define SHORT 512
#define GRAIN 16384
/* Tasks over rows: each has its own sums per channel, which are joined in order. */
#define MOST_PARTS 16

typedef struct moments {
    double mean, squares;
    int64_t count;
} moments;

/* How a channel is mapped: (x - mean) scale + shift; for gradients (g - shift - (x - mean) slope) scale. */
typedef struct affine {
    double scale, slope, shift;
} affine;

static void join(moments *m, double mean, double squares, int64_t n)
{
    const double all = (double)(m->count + n), gap = mean - m->mean;
    m->squares += squares + gap * gap * ((double)m->count * (double)n / all);
    m->mean += gap * ((double)n / all);
    m->count += n;
}

#define BN_T float
#define BN(name) name##_f32
#include "batch_norm_rows.h"
#define BN_T double
#define BN(name) name##_f64
#include "batch_norm_rows.h"

/* A packed tensor (N, C, S). */
typedef struct side {
    char *data;
    int32_t dtype;
} side;

typedef struct job {
    side x, g, out;
    int64_t n, channels, run; /* N, C, S */
    int32_t type;             /* float32 or float64, computed in */
    int training;
    double eps;
    const tg_view *weight, *bias;      /* NULL: none */
    const tg_view *mean, *var;         /* given; NULL in training */
    const tg_view *first, *second;     /* per channel, written: mean and variance, or gradients of weight and bias */
    int64_t tasks, block;
    double *sums; /* rows of channels: two sums per channel for each task, and then for all */
    const void *lanes; /* rows of channels: numbers per channel */
    atomic_int failed;
} job;

static double get(const tg_view *view, int64_t i)
{
    const char *at = (const char *)view->data + i * view->strides[0] * tgc_itemsize[view->dtype];
    switch (view->dtype) {
    case TGC_FLOAT32: return *(const float *)at;
    case TGC_FLOAT64: return *(const double *)at;
    case TGC_FLOAT16: return tgc_f16_to_float(*(const uint16_t *)at);
    default: return tgc_bf16_to_float(*(const uint16_t *)at);
    }
}

/* Statistics and gradients of parameters are float32 or float64. */
static void put(const tg_view *view, int64_t i, double value)
{
    char *at = (char *)view->data + i * view->strides[0] * tgc_itemsize[view->dtype];
    if (view->dtype == TGC_FLOAT32)
        *(float *)at = (float)value;
    else
        *(double *)at = value;
}

/* Write the statistics of a channel, given ones in evaluation, and say how it is mapped. */
static affine forward_map(const job *j, int64_t channel, double *mean, double *var)
{
    if (!j->training) {
        *mean = get(j->mean, channel);
        *var = get(j->var, channel);
    }
    put(j->first, channel, *mean);
    put(j->second, channel, *var);
    affine k = {.scale = 1 / sqrt(*var + j->eps)};
    if (j->weight != NULL)
        k.scale *= get(j->weight, channel);
    k.shift = j->bias != NULL ? get(j->bias, channel) : 0;
    return k;
}

/* The same for a gradient, from the sums of g and of g (x - mean). */
static affine backward_map(const job *j, int64_t channel, double first, double second)
{
    const double rstd = 1 / sqrt(get(j->var, channel) + j->eps), count = (double)(j->n * j->run);
    put(j->first, channel, second * rstd);
    put(j->second, channel, first);
    affine k = {.scale = rstd};
    if (j->weight != NULL)
        k.scale *= get(j->weight, channel);
    if (j->training) {
        k.shift = first / count;
        k.slope = second * rstd * rstd / count;
    }
    return k;
}

/* --- runs of channels -------------------------------------------------------------------------- */

/* A piece of a channel: `rows` of N from `row`, `length` of S from `begin`. */
typedef struct piece {
    int64_t row, rows, begin, length;
} piece;

static int next_piece(const job *j, piece *p)
{
    if (j->run < SHORT) {
        p->row += p->rows;
        int64_t most = BLOCK / j->run, left = j->n - p->row;
        p->rows = left < most ? left : most;
        p->length = j->run;
        return left > 0;
    }
    p->begin += p->length;
    if (p->begin == j->run || p->rows == 0) {
        p->row += p->rows;
        p->begin = 0;
        p->rows = 1;
    }
    p->length = j->run - p->begin < BLOCK ? j->run - p->begin : BLOCK;
    return p->row < j->n;
}

static char *place(const job *j, const side *s, int64_t channel, const piece *p, int64_t row)
{
    return s->data + (((p->row + row) * j->channels + channel) * j->run + p->begin) * tgc_itemsize[s->dtype];
}

static int direct(const job *j, const side *s, const piece *p)
{
    return s->dtype == j->type && p->rows == 1;
}

static const void *load(const job *j, const side *s, int64_t channel, const piece *p, char *buffer)
{
    if (direct(j, s, p))
        return place(j, s, channel, p, 0);
    int64_t bytes = p->length * tgc_itemsize[j->type];
    for (int64_t r = 0; r < p->rows; r++)
        if (s->dtype == j->type)
            memcpy(buffer + r * bytes, place(j, s, channel, p, r), (size_t)bytes);
        else
            TGC(tgc_convert)(buffer + r * bytes, j->type, place(j, s, channel, p, r), s->dtype, p->length);
    return buffer;
}

static void *target(const job *j, int64_t channel, const piece *p, char *buffer)
{
    return direct(j, &j->out, p) ? place(j, &j->out, channel, p, 0) : buffer;
}

static void store(const job *j, int64_t channel, const piece *p, const char *from)
{
    if (direct(j, &j->out, p))
        return;
    int64_t bytes = p->length * tgc_itemsize[j->type];
    for (int64_t r = 0; r < p->rows; r++)
        if (j->out.dtype == j->type)
            memcpy(place(j, &j->out, channel, p, r), from + r * bytes, (size_t)bytes);
        else
            TGC(tgc_convert)(place(j, &j->out, channel, p, r), j->out.dtype, from + r * bytes, j->type, p->length);
}

static void forward_channel(const job *j, int64_t channel, char *in, char *to)
{
    moments m = {0};
    double mean = 0, var = 0;
    if (j->training) {
        for (piece p = {0}; next_piece(j, &p);) {
            const void *x = load(j, &j->x, channel, &p, in);
            if (j->type == TGC_FLOAT64)
                moments_f64(x, p.rows * p.length, &m);
            else
                moments_f32(x, p.rows * p.length, &m);
        }
        mean = m.mean;
        var = m.squares / (double)m.count;
    }
    const affine k = forward_map(j, channel, &mean, &var);
    for (piece p = {0}; next_piece(j, &p);) {
        const void *x = load(j, &j->x, channel, &p, in);
        void *out = target(j, channel, &p, to);
        if (j->type == TGC_FLOAT64)
            normalize_f64(x, out, p.rows * p.length, mean, k.scale, k.shift);
        else
            normalize_f32(x, out, p.rows * p.length, mean, k.scale, k.shift);
        store(j, channel, &p, out);
    }
}

static void backward_channel(const job *j, int64_t channel, char *in, char *other, char *to)
{
    const double mean = get(j->mean, channel);
    double first = 0, second = 0;
    for (piece p = {0}; next_piece(j, &p);) {
        const void *x = load(j, &j->x, channel, &p, in), *g = load(j, &j->g, channel, &p, other);
        if (j->type == TGC_FLOAT64)
            products_f64(g, x, p.rows * p.length, mean, &first, &second);
        else
            products_f32(g, x, p.rows * p.length, mean, &first, &second);
    }
    const affine k = backward_map(j, channel, first, second);
    for (piece p = {0}; next_piece(j, &p);) {
        const void *x = load(j, &j->x, channel, &p, in), *g = load(j, &j->g, channel, &p, other);
        void *out = target(j, channel, &p, to);
        if (j->type == TGC_FLOAT64)
            gradient_f64(g, x, out, p.rows * p.length, mean, &k);
        else
            gradient_f32(g, x, out, p.rows * p.length, mean, &k);
        store(j, channel, &p, out);
    }
}

static void channels_task(int64_t task, void *context)
{
    job *j = context;
    int64_t begin = tgc_begin(j->channels, j->tasks, task, 1), end = tgc_begin(j->channels, j->tasks, task + 1, 1);
    const int64_t bytes = BLOCK * tgc_itemsize[j->type];
    char *buffer = NULL;
    if (j->run < SHORT || j->x.dtype != j->type) {
        buffer = tgc_scratch((size_t)(3 * bytes));
        if (buffer == NULL) {
            atomic_store(&j->failed, 1);
            return;
        }
    }
    for (int64_t channel = begin; channel < end; channel++)
        if (j->g.data == NULL)
            forward_channel(j, channel, buffer, buffer + bytes);
        else
            backward_channel(j, channel, buffer, buffer + bytes, buffer + 2 * bytes);
    tgc_scratch_free(buffer);
}

/* --- rows of channels --------------------------------------------------------------------------- */

static int64_t rows_begin(const job *j, int64_t task)
{
    return tgc_begin(j->n, j->tasks, task, 1);
}

/* Rows of one side as numbers to compute with: in their place, or converted to `buffer`. */
static const void *rows_of(const job *j, const side *s, int64_t row, int64_t rows, char *buffer)
{
    char *at = s->data + row * j->channels * tgc_itemsize[s->dtype];
    if (s->dtype == j->type)
        return at;
    TGC(tgc_convert)(buffer, j->type, at, s->dtype, rows * j->channels);
    return buffer;
}

/* Room for converted rows of three sides, and for `vectors` numbers per channel. */
static char *rows_memory(job *j, int vectors)
{
    int64_t room = j->x.dtype == j->type ? 0 : 3 * j->block;
    char *memory = tgc_scratch((size_t)((room + vectors) * j->channels * tgc_itemsize[j->type]));
    if (memory == NULL)
        atomic_store(&j->failed, 1);
    return memory;
}

static void sums_task(int64_t task, void *context)
{
    job *j = context;
    const int64_t begin = rows_begin(j, task), end = rows_begin(j, task + 1), c = j->channels;
    const int64_t vector = c * tgc_itemsize[j->type], bytes = j->block * vector;
    double *first = j->sums + 2 * c * task, *second = first + c;
    char *work = rows_memory(j, 3);
    if (work == NULL)
        return;
    char *buffer = work + 3 * vector;
    memset(first, 0, (size_t)(2 * c) * sizeof(double));
    if (j->g.data != NULL)
        memcpy(work, j->lanes, (size_t)vector);
    for (int64_t row = begin; row < end; row += j->block) {
        const int64_t rows = end - row < j->block ? end - row : j->block;
        const void *x = rows_of(j, &j->x, row, rows, buffer);
        const void *g = j->g.data == NULL ? NULL : rows_of(j, &j->g, row, rows, buffer + bytes);
        if (j->type == TGC_FLOAT64)
            if (g == NULL)
                lane_moments_f64(x, rows, c, first, second, row - begin, (double *)work);
            else
                lane_products_f64(g, x, rows, c, first, second, (double *)work);
        else if (g == NULL)
            lane_moments_f32(x, rows, c, first, second, row - begin, (float *)work);
        else
            lane_products_f32(g, x, rows, c, first, second, (float *)work);
    }
    tgc_scratch_free(work);
}

static void map_task(int64_t task, void *context)
{
    job *j = context;
    const int64_t begin = rows_begin(j, task), end = rows_begin(j, task + 1), c = j->channels;
    const int64_t item = tgc_itemsize[j->type], bytes = j->block * c * item;
    char *buffer = NULL;
    if (j->x.dtype != j->type && (buffer = rows_memory(j, 0)) == NULL)
        return;
    for (int64_t row = begin; row < end; row += j->block) {
        const int64_t rows = end - row < j->block ? end - row : j->block;
        const void *x = rows_of(j, &j->x, row, rows, buffer);
        const void *g = j->g.data == NULL ? NULL : rows_of(j, &j->g, row, rows, buffer + bytes);
        char *at = j->out.data + row * c * tgc_itemsize[j->out.dtype];
        void *out = j->out.dtype == j->type ? at : buffer + 2 * bytes;
        if (j->type == TGC_FLOAT64)
            if (g == NULL)
                lane_normalize_f64(x, out, rows, c, j->lanes);
            else
                lane_gradient_f64(g, x, out, rows, c, j->lanes);
        else if (g == NULL)
            lane_normalize_f32(x, out, rows, c, j->lanes);
        else
            lane_gradient_f32(g, x, out, rows, c, j->lanes);
        if (out != at)
            TGC(tgc_convert)(at, j->out.dtype, out, j->type, rows * c);
    }
    tgc_scratch_free(buffer);
}

static void set(const job *j, int64_t vector, int64_t channel, double value)
{
    int64_t at = vector * j->channels + channel;
    if (j->type == TGC_FLOAT64)
        ((double *)j->lanes)[at] = value;
    else
        ((float *)j->lanes)[at] = (float)value;
}

/* Join what the tasks found of each channel, and write how channels are mapped to `lanes`. */
static void join_tasks(const job *j, int summed)
{
    for (int64_t channel = 0; channel < j->channels; channel++) {
        moments m = {0};
        double first = 0, second = 0, mean, var;
        for (int64_t task = 0; summed && task < j->tasks; task++) {
            const double *sums = j->sums + 2 * j->channels * task + channel;
            const int64_t rows = rows_begin(j, task + 1) - rows_begin(j, task);
            if (j->g.data == NULL)
                join(&m, sums[0], sums[j->channels], rows);
            first += sums[0];
            second += sums[j->channels];
        }
        affine k;
        if (j->g.data == NULL) {
            mean = m.mean;
            var = m.count ? m.squares / (double)m.count : 0;
            k = forward_map(j, channel, &mean, &var);
        } else {
            k = backward_map(j, channel, first, second);
            mean = get(j->mean, channel);
        }
        set(j, 0, channel, mean);
        set(j, 1, channel, k.scale);
        set(j, 2, channel, j->g.data == NULL ? k.shift : k.slope);
        set(j, 3, channel, k.shift);
    }
}

static int run_rows(job *j, const char *op)
{
    const int64_t c = j->channels;
    const int summed = j->g.data != NULL || j->training;
    j->block = ROWS_BLOCK / c < 4 ? 4 : ROWS_BLOCK / c;
    j->tasks = tgc_tasks(j->n * c, GRAIN, j->n < MOST_PARTS ? j->n : MOST_PARTS);
    size_t bytes = (size_t)(c * (2 * j->tasks + 4)) * sizeof(double);
    double *memory = tgc_scratch(bytes);
    if (memory == NULL)
        return tgc_no_memory(op, bytes);
    j->lanes = memory;
    j->sums = memory + 4 * c;
    for (int64_t channel = 0; j->g.data != NULL && channel < c; channel++)
        set(j, 0, channel, get(j->mean, channel));
    if (summed)
        tgc_parallel(j->tasks, sums_task, j);
    if (!atomic_load(&j->failed)) {
        join_tasks(j, summed);
        tgc_parallel(j->tasks, map_task, j);
    }
    tgc_scratch_free(memory);
    return 0;
}

/* --- calls -------------------------------------------------------------------------------------- */

/* The memory of a tensor as a packed one; copied to scratch memory, which is `*copy`, where it has gaps. */
static int packed(const tg_view *view, side *s, void **copy)
{
    int64_t expected = 1, dense = 1, size = tgc_itemsize[view->dtype];
    int64_t from[TG_MAX_DIMS], to[TG_MAX_DIMS];
    for (int d = view->ndim - 1; d >= 0; d--) {
        dense &= view->shape[d] == 1 || view->strides[d] == expected;
        to[d] = expected * size;
        expected *= view->shape[d];
    }
    s->dtype = view->dtype;
    s->data = view->data;
    if (dense)
        return 0;
    *copy = s->data = tgc_scratch((size_t)(view->numel * size));
    if (s->data == NULL)
        return -1;
    tgc_byte_strides(view, from);
    TGC(tgc_move_region)(view->ndim, view->shape, s->data, to, view->data, from, (int)size);
    return 0;
}

static const tg_view *optional(const tg_argument *argument)
{
    return argument->kind == TG_ARG_TENSOR ? argument->value.tensors : NULL;
}

static int run(job *j, const tg_view *x, const tg_view *g, const char *op)
{
    void *copies[2] = {NULL, NULL};
    int status;
    j->n = x->shape[0];
    j->channels = x->shape[1];
    j->run = 1;
    for (int d = 2; d < x->ndim; d++)
        j->run *= x->shape[d];
    j->type = x->dtype == TGC_FLOAT64 ? TGC_FLOAT64 : TGC_FLOAT32;
    if (x->numel == 0) {
        for (int64_t channel = 0; channel < j->channels; channel++) {
            put(j->first, channel, j->training || g != NULL ? 0 : get(j->mean, channel));
            put(j->second, channel, j->training || g != NULL ? 0 : get(j->var, channel));
        }
        return 0;
    }
    if (packed(x, &j->x, &copies[0]) != 0 || (g != NULL && packed(g, &j->g, &copies[1]) != 0)) {
        status = tgc_no_memory(op, (size_t)x->numel * (size_t)tgc_itemsize[x->dtype]);
    } else if (j->run == 1) {
        status = run_rows(j, op);
    } else {
        j->tasks = tgc_tasks(x->numel, GRAIN, j->channels);
        tgc_parallel(j->tasks, channels_task, j);
        status = 0;
    }
    tgc_scratch_free(copies[1]);
    tgc_scratch_free(copies[0]);
    if (status == 0 && atomic_load(&j->failed))
        status = tgc_no_memory(op, BLOCK);
    return status;
}

static double number(const tg_argument *argument)
{
    return argument->kind == TG_ARG_INT ? (double)argument->value.i : argument->value.f;
}

static int forward(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    job j = {.weight = optional(&args[1]), .bias = optional(&args[2]), .mean = optional(&args[3]),
             .var = optional(&args[4]), .training = (int)args[5].value.i, .eps = number(&args[6]),
             .out = {call->outs[0].data, call->outs[0].dtype}, .first = &call->outs[1], .second = &call->outs[2]};
    (void)context;
    return run(&j, args[0].value.tensors, NULL, "batch_norm");
}

static int backward(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    job j = {.mean = args[2].value.tensors, .var = args[3].value.tensors, .weight = optional(&args[4]),
             .training = (int)args[5].value.i, .eps = number(&args[6]),
             .out = {call->outs[0].data, call->outs[0].dtype}, .first = &call->outs[1], .second = &call->outs[2]};
    (void)context;
    return run(&j, args[1].value.tensors, args[0].value.tensors, "batch_norm_backward");
}

#define FOR_DTYPE(dtype) \
    {"_batch_norm", dtype, TGC_CALL, forward, NULL}, {"_batch_norm_backward", dtype, TGC_CALL, backward, NULL}

const tgc_kernel TGC(tgc_table_batch_norm)[] = {
    FOR_DTYPE("float32"),
    FOR_DTYPE("float64"),
    FOR_DTYPE("float16"),
    FOR_DTYPE("bfloat16"),
    {0}};
