/* Whole steps of optimizers, and sums, products and norms of lists of tensors. All tensors of a call
 * are one row of elements laid end to end, which is cut into tasks by size: many small parameters
 * make one task, a large one many. */
#include "tgc.h"

#include <math.h>

#include "half.h"

#define MOST_ROWS 5
#define GRAIN 16384
#define MOST_TASKS 64
/* Elements of halves converted at a time. */
#define BLOCK 512

enum { NO_DECAY, COUPLED, DECOUPLED };
enum { NO_MOMENTA, FIRST_MOMENTA, LATER_MOMENTA };

/* One tensor with what belongs to it at the same place of the other lists. */
typedef struct {
    char *rows[MOST_ROWS];
    int64_t end; /* in the row of all elements */
    double correction, step_size;
} optimizer_item;

typedef struct optimizer_job optimizer_job;
typedef void (*row_function)(const optimizer_job *, const optimizer_item *, char *const *rows, int64_t n);

struct optimizer_job {
    optimizer_item *items;
    int64_t count, tasks, total;
    int32_t dtype;
    int rows;
    unsigned written; /* bit per row */
    row_function single, wide;
    double lr, beta1, beta2, eps, weight_decay, momentum, dampening, number;
    int maximize, amsgrad, decoupled, nesterov, momenta;
};

#define TYPE float
#define NAME(x) x##_f32
#define SQRT(x) __builtin_sqrtf(x)
#define ABS(x) __builtin_fabsf(x)
#include "optimizer_rows.h"
#undef TYPE
#undef NAME
#undef SQRT
#undef ABS
#define TYPE double
#define NAME(x) x##_f64
#define SQRT(x) __builtin_sqrt(x)
#define ABS(x) __builtin_fabs(x)
#include "optimizer_rows.h"

/* --- lists as rows ---------------------------------------------------------------------------- */

/* Whether the elements fill their memory without gaps, in whatever order. */
static int is_dense(const tg_view *view)
{
    int64_t strides[TG_MAX_DIMS], sizes[TG_MAX_DIMS], expected = 1;
    int kept = 0;
    for (int d = view->ndim - 1; d >= 0; d--) {
        int at = kept;
        if (view->shape[d] == 1)
            continue;
        for (; at > 0 && strides[at - 1] > view->strides[d]; at--) {
            strides[at] = strides[at - 1];
            sizes[at] = sizes[at - 1];
        }
        strides[at] = view->strides[d];
        sizes[at] = view->shape[d];
        kept++;
    }
    for (int k = 0; k < kept; k++) {
        if (strides[k] != expected)
            return 0;
        expected *= sizes[k];
    }
    return 1;
}

/* Whether two tensors have one dtype and the same elements at the same places. */
static int match(const tg_view *a, const tg_view *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim)
        return 0;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || (a->shape[d] != 1 && a->strides[d] != b->strides[d]))
            return 0;
    return 1;
}

/* Lay the lists of the first `rows` arguments out. Return 0, TG_DECLINED where they are no plain rows,
 * or -1. The caller frees job->items. */
static int lay_out(optimizer_job *job, const tg_argument *args, int rows, const char *op)
{
    const int64_t count = args[0].count;
    const tg_view *first = args[0].value.tensors;
    job->count = count;
    job->rows = rows;
    job->dtype = count ? first->dtype : TGC_FLOAT32;
    for (int row = 1; row < rows; row++)
        if (args[row].count != count)
            return TG_DECLINED;
    size_t bytes = sizeof(optimizer_item) * (size_t)(count + 1);
    job->items = tgc_scratch(bytes);
    if (job->items == NULL)
        return tgc_no_memory(op, bytes);
    for (int64_t i = 0; i < count; i++) {
        optimizer_item *item = &job->items[i];
        if (first[i].dtype != job->dtype || !is_dense(&first[i]))
            return TG_DECLINED;
        for (int row = 0; row < rows; row++) {
            const tg_view *view = &args[row].value.tensors[i];
            if (row && !match(&first[i], view))
                return TG_DECLINED;
            item->rows[row] = view->data;
        }
        job->total += first[i].numel;
        item->end = job->total;
    }
    return 0;
}

static void run_halves(const optimizer_job *job, const optimizer_item *item, char *const *rows, int64_t n)
{
    float values[MOST_ROWS][BLOCK];
    char *at[MOST_ROWS];
    for (int64_t first = 0; first < n; first += BLOCK) {
        int64_t count = n - first < BLOCK ? n - first : BLOCK;
        for (int row = 0; row < job->rows; row++) {
            const uint16_t *in = (const uint16_t *)rows[row] + first;
            at[row] = (char *)values[row];
            if (job->dtype == TGC_FLOAT16)
                tgc_f16_to_floats(values[row], in, count);
            else
                tgc_bf16_to_floats(values[row], in, count);
        }
        job->single(job, item, at, count);
        for (int row = 0; row < job->rows; row++) {
            uint16_t *out = (uint16_t *)rows[row] + first;
            if (!(job->written >> row & 1))
                continue;
            if (job->dtype == TGC_FLOAT16)
                tgc_floats_to_f16(out, values[row], count);
            else
                tgc_floats_to_bf16(out, values[row], count);
        }
    }
}

static void run_part(int64_t index, void *context)
{
    const optimizer_job *job = context;
    const int64_t size = tgc_itemsize[job->dtype];
    int64_t at = tgc_begin(job->total, job->tasks, index, 64), end = tgc_begin(job->total, job->tasks, index + 1, 64);
    int64_t low = 0, high = job->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (job->items[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    for (; at < end; low++) {
        const optimizer_item *item = &job->items[low];
        int64_t start = low ? item[-1].end : 0, stop = item->end < end ? item->end : end;
        char *rows[MOST_ROWS];
        for (int row = 0; row < job->rows; row++)
            rows[row] = item->rows[row] + (at - start) * size;
        if (stop > at) {
            if (job->dtype == TGC_FLOAT32)
                job->single(job, item, rows, stop - at);
            else if (job->dtype == TGC_FLOAT64)
                job->wide(job, item, rows, stop - at);
            else
                run_halves(job, item, rows, stop - at);
        }
        at = stop;
    }
}

static int run(optimizer_job *job, row_function single, row_function wide, unsigned written)
{
    job->single = single;
    job->wide = wide;
    job->written = written;
    job->tasks = tgc_tasks(job->total, GRAIN, MOST_TASKS);
    if (job->total)
        tgc_parallel(job->tasks, run_part, job);
    return 0;
}

static int finish(optimizer_job *job, int status)
{
    tgc_scratch_free(job->items);
    return status;
}

/* --- steps ------------------------------------------------------------------------------------ */

static double number_of(const tg_argument *argument)
{
    return argument->kind == TG_ARG_FLOAT ? argument->value.f : (double)argument->value.i;
}

static int fused_sgd(const tg_call *call, void *context)
{
    (void)context;
    const tg_argument *args = call->args;
    optimizer_job job = {.weight_decay = number_of(&args[3]), .momentum = number_of(&args[4]), .lr = number_of(&args[5]),
                         .dampening = number_of(&args[6]), .nesterov = (int)args[7].value.i,
                         .maximize = (int)args[8].value.i};
    if (args[10].kind != TG_ARG_NONE || args[11].kind != TG_ARG_NONE)
        return TG_DECLINED; /* the scaler's gradients are written as well */
    job.momenta = job.momentum == 0 ? NO_MOMENTA : args[9].value.i ? FIRST_MOMENTA : LATER_MOMENTA;
    int status = lay_out(&job, args, job.momenta ? 3 : 2, "_fused_sgd_");
    return finish(&job, status ? status : run(&job, sgd_f32, sgd_f64, job.momenta ? 5 : 1));
}

static int read_step(const tg_view *view, double *step)
{
    if (view->numel != 1)
        return 0;
    if (view->dtype == TGC_FLOAT32)
        *step = *(const float *)view->data;
    else if (view->dtype == TGC_FLOAT64)
        *step = *(const double *)view->data;
    else
        return 0;
    return 1;
}

static int fused_adam(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    optimizer_job job = {.lr = number_of(&args[6]), .beta1 = number_of(&args[7]), .beta2 = number_of(&args[8]),
                         .weight_decay = number_of(&args[9]), .eps = number_of(&args[10]),
                         .amsgrad = (int)args[11].value.i, .maximize = (int)args[12].value.i,
                         .decoupled = context != NULL};
    double step, before = 0, correction = 0, step_size = 0;
    if (args[13].kind != TG_ARG_NONE || args[14].kind != TG_ARG_NONE || args[5].count != args[0].count)
        return TG_DECLINED;
    int status = lay_out(&job, args, job.amsgrad ? 5 : 4, "_fused_adam_");
    for (int64_t i = 0; status == 0 && i < job.count; i++) {
        if (!read_step(&args[5].value.tensors[i], &step)) {
            status = TG_DECLINED;
            break;
        }
        if (i == 0 || step != before) {
            /* At step zero the tensor code divides by zero, and says so. */
            if (step == 0)
                status = TG_DECLINED;
            correction = sqrt(1 - pow(job.beta2, step));
            step_size = -job.lr / (1 - pow(job.beta1, step));
            before = step;
        }
        job.items[i].correction = correction;
        job.items[i].step_size = step_size;
    }
    return finish(&job, status ? status : run(&job, adam_f32, adam_f64, job.amsgrad ? 29 : 13));
}

/* --- for each of a list ----------------------------------------------------------------------- */

static int foreach_zero(const tg_call *call, void *context)
{
    (void)context;
    const tg_view *views = call->args[0].value.tensors;
    for (int64_t i = 0; i < call->args[0].count; i++)
        if (!is_dense(&views[i]))
            return TG_DECLINED;
    for (int64_t i = 0; i < call->args[0].count; i++)
        if (views[i].numel)
            memset(views[i].data, 0, (size_t)(views[i].numel * tgc_itemsize[views[i].dtype]));
    return 0;
}

static int foreach_mul_number(const tg_call *call, void *context)
{
    (void)context;
    optimizer_job job = {.number = number_of(&call->args[1])};
    if (call->args[1].kind != TG_ARG_FLOAT && call->args[1].kind != TG_ARG_INT)
        return TG_DECLINED;
    int status = lay_out(&job, call->args, 1, "_foreach_mul_");
    return finish(&job, status ? status : run(&job, multiply_f32, multiply_f64, 1));
}

static int foreach_mul_tensor(const tg_call *call, void *context)
{
    (void)context;
    const tg_view *factor = call->args[1].value.tensors;
    optimizer_job job = {0};
    if (factor->dtype == TGC_FLOAT32)
        job.number = *(const float *)factor->data;
    else if (factor->dtype == TGC_FLOAT64)
        job.number = *(const double *)factor->data;
    int status = lay_out(&job, call->args, 1, "_foreach_mul_");
    /* A factor of another type may be rounded to the tensors' or widen the product: tensor code knows. */
    if (status == 0 && (factor->dtype != job.dtype || (job.dtype != TGC_FLOAT32 && job.dtype != TGC_FLOAT64)))
        status = TG_DECLINED;
    return finish(&job, status ? status : run(&job, multiply_f32, multiply_f64, 1));
}

static int foreach_add_number(const tg_call *call, void *context)
{
    (void)context;
    optimizer_job job = {.number = number_of(&call->args[1])};
    if (call->args[1].kind != TG_ARG_FLOAT && call->args[1].kind != TG_ARG_INT)
        return TG_DECLINED;
    int status = lay_out(&job, call->args, 1, "_foreach_add_");
    /* As in x + number: it counts as an element. */
    if (job.dtype == TGC_FLOAT16)
        job.number = tgc_f16_to_float(tgc_float_to_f16((float)job.number));
    else if (job.dtype == TGC_BFLOAT16)
        job.number = tgc_bf16_to_float(tgc_float_to_bf16((float)job.number));
    return finish(&job, status ? status : run(&job, add_number_f32, add_number_f64, 1));
}

static int foreach_add_list(const tg_call *call, void *context)
{
    (void)context;
    optimizer_job job = {.number = number_of(&call->args[2])};
    if (call->args[2].kind != TG_ARG_FLOAT && call->args[2].kind != TG_ARG_INT)
        return TG_DECLINED;
    int status = lay_out(&job, call->args, 2, "_foreach_add_");
    return finish(&job, status ? status : run(&job, add_rows_f32, add_rows_f64, 1));
}

/* --- norms ------------------------------------------------------------------------------------ */

typedef struct {
    const optimizer_item *items;
    double *parts;
    int64_t count, total;
    int32_t dtype;
    int order;
} norm_job;

#define PART 32768

static void sum_part(int64_t index, void *context)
{
    const norm_job *job = context;
    int64_t item = 0, part = index;
    float values[BLOCK];
    for (;; item++) {
        int64_t start = item ? job->items[item - 1].end : 0, parts = (job->items[item].end - start + PART - 1) / PART;
        if (part < parts) {
            int64_t n = job->items[item].end - start - part * PART;
            const char *row = job->items[item].rows[0] + part * PART * tgc_itemsize[job->dtype];
            double sum = 0;
            n = n < PART ? n : PART;
            if (job->dtype == TGC_FLOAT32)
                sum = sum_of_powers_f32((const float *)row, n, job->order);
            else if (job->dtype == TGC_FLOAT64)
                sum = sum_of_powers_f64((const double *)row, n, job->order);
            else
                for (int64_t at = 0; at < n; at += BLOCK) {
                    int64_t count = n - at < BLOCK ? n - at : BLOCK;
                    if (job->dtype == TGC_FLOAT16)
                        tgc_f16_to_floats(values, (const uint16_t *)row + at, count);
                    else
                        tgc_bf16_to_floats(values, (const uint16_t *)row + at, count);
                    sum += sum_of_powers_f32(values, count, job->order);
                }
            job->parts[index] = sum;
            return;
        }
        part -= parts;
    }
}

static void store_norm(const tg_view *out, int64_t i, double norm)
{
    float single = (float)norm;
    char *at = (char *)out->data + i * tgc_itemsize[out->dtype];
    if (out->dtype == TGC_FLOAT64)
        *(double *)at = norm;
    else if (out->dtype == TGC_FLOAT32)
        *(float *)at = single;
    else if (out->dtype == TGC_FLOAT16)
        tgc_floats_to_f16((uint16_t *)at, &single, 1);
    else
        tgc_floats_to_bf16((uint16_t *)at, &single, 1);
}

/* The norm of each tensor; with a context, that of all as one vector. */
static int norms(const tg_call *call, void *context)
{
    const double order = number_of(&call->args[1]);
    optimizer_job job = {0};
    if ((call->args[1].kind != TG_ARG_FLOAT && call->args[1].kind != TG_ARG_INT) || (order != 1 && order != 2))
        return TG_DECLINED;
    int status = lay_out(&job, call->args, 1, "_foreach_norm");
    int64_t parts = 0, at = 0;
    double all = 0;
    for (int64_t i = 0; status == 0 && i < job.count; i++)
        parts += (job.items[i].end - (i ? job.items[i - 1].end : 0) + PART - 1) / PART;
    double *sums = status ? NULL : tgc_scratch(sizeof(double) * (size_t)(parts + 1));
    if (status || sums == NULL)
        return finish(&job, status ? status : tgc_no_memory("_foreach_norm", sizeof(double) * (size_t)(parts + 1)));
    norm_job work = {job.items, sums, job.count, job.total, job.dtype, (int)order};
    if (job.total < PART)
        for (int64_t part = 0; part < parts; part++)
            sum_part(part, &work);
    else
        tgc_parallel(parts, sum_part, &work);
    for (int64_t i = 0; i < job.count; i++) {
        int64_t pieces = (job.items[i].end - (i ? job.items[i - 1].end : 0) + PART - 1) / PART;
        double sum = 0;
        for (int64_t part = 0; part < pieces; part++)
            sum += sums[at++];
        all += sum;
        if (context == NULL)
            store_norm(call->outs, i, order == 2 ? sqrt(sum) : sum);
    }
    if (context != NULL)
        store_norm(call->outs, 0, order == 2 ? sqrt(all) : all);
    tgc_scratch_free(sums);
    return finish(&job, 0);
}

#define EVERY_FLOAT(op, function, context)                                                                             \
    {op, "float32", TGC_CALL, function, context}, {op, "float64", TGC_CALL, function, context},                       \
        {op, "float16", TGC_CALL, function, context}, {op, "bfloat16", TGC_CALL, function, context},

const tgc_kernel TGC(tgc_table_optimizer)[] = {
    EVERY_FLOAT("_fused_sgd_", fused_sgd, NULL)
    EVERY_FLOAT("_fused_adam_", fused_adam, NULL)
    EVERY_FLOAT("_fused_adamw_", fused_adam, "decoupled")
    EVERY_FLOAT("_foreach_zero_", foreach_zero, NULL)
    EVERY_FLOAT("_foreach_mul_scalar_", foreach_mul_number, NULL)
    EVERY_FLOAT("_foreach_mul_tensor_", foreach_mul_tensor, NULL)
    EVERY_FLOAT("_foreach_add_scalar_", foreach_add_number, NULL)
    EVERY_FLOAT("_foreach_add_list_", foreach_add_list, NULL)
    EVERY_FLOAT("_norms", norms, NULL)
    EVERY_FLOAT("_total_norm", norms, "all")
    {0}};
