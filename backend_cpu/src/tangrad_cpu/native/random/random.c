/* Random numbers and dropout. A number depends on the seed, the offset and its element's position
 * alone, so work is cut anywhere at multiples of TGC_PIECE. */
#include "tgc.h"

#include "half.h"
#include "random_values.h"

/* Elements worth a thread of their own. */
#define GRAIN 16384
#define MOST_TASKS 64

/* --- where the elements of a tensor lie ------------------------------------------------------- */

/* The distance, in elements, of the element at a position in row-major order. */
static int64_t element_at(const tg_view *view, int64_t position)
{
    int64_t at = 0;
    for (int d = view->ndim - 1; d >= 0; d--) {
        at += position % view->shape[d] * view->strides[d];
        position /= view->shape[d];
    }
    return at;
}

static void scatter(const tg_view *view, int64_t first, int64_t n, const void *values)
{
    const int size = tgc_itemsize[view->dtype];
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)view->data + element_at(view, first + i) * size, (const char *)values + i * size, (size_t)size);
}

static const void *gather(const tg_view *view, int contiguous, int64_t first, int64_t n, void *buffer)
{
    const int size = tgc_itemsize[view->dtype];
    if (contiguous)
        return (const char *)view->data + first * size;
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)buffer + i * size, (const char *)view->data + element_at(view, first + i) * size, (size_t)size);
    return buffer;
}

/* --- a pass over a tensor in pieces ----------------------------------------------------------- */

typedef struct fill fill;
/* Makes elements first .. first + n - 1, with n at most TGC_PIECE, at `out`, contiguous. */
typedef void (*make)(const fill *job, int64_t first, int64_t n, void *out);

struct fill {
    const tg_view *out;
    const tg_view *in;
    int out_contiguous, in_contiguous;
    int64_t tasks;
    make make;
    tgc_stream stream;
    uint32_t threshold;
    float scale;
    double wide_scale;
    uint64_t low, range;
    int unsigned_values;
    _Bool *refused;
};

static void fill_task(int64_t index, void *context)
{
    const fill *job = context;
    const tg_view *out = job->out;
    const int size = tgc_itemsize[out->dtype];
    double buffer[2 * TGC_PIECE];
    int64_t end = tgc_begin(out->numel, job->tasks, index + 1, TGC_PIECE);
    for (int64_t first = tgc_begin(out->numel, job->tasks, index, TGC_PIECE); first < end; first += TGC_PIECE) {
        int64_t n = end - first < TGC_PIECE ? end - first : TGC_PIECE;
        if (job->out_contiguous) {
            job->make(job, first, n, (char *)out->data + first * size);
        } else {
            job->make(job, first, n, buffer);
            scatter(out, first, n, buffer);
        }
    }
}

static int run(fill *job, const tg_view *out, make make, uint64_t seed, uint64_t offset)
{
    job->out = out;
    job->out_contiguous = tgc_is_contiguous(out, 0);
    job->make = make;
    job->tasks = tgc_tasks(out->numel, GRAIN, MOST_TASKS);
    job->stream.offset = offset;
    tgc_philox_schedule(&job->stream.keys, seed);
    if (out->numel)
        tgc_parallel(job->tasks, fill_task, job);
    return 0;
}

/* The drawn (seed, offset) are the last two arguments. */
static uint64_t seed_of(const tg_call *call)
{
    return (uint64_t)call->args[call->nargs - 2].value.i;
}

static uint64_t offset_of(const tg_call *call)
{
    return (uint64_t)call->args[call->nargs - 1].value.i;
}

/* --- floating-point distributions ------------------------------------------------------------- */

typedef void (*single)(const tgc_stream *, int64_t, int64_t, float *);
typedef void (*wide)(const tgc_stream *, int64_t, int64_t, double *);

/* Numbers of a distribution in a dtype; complex ones are pairs, made in two halves so that the
 * words of a piece fit their buffer. */
#define MAKERS(name)                                                                                                   \
    static void name##_float32(const fill *job, int64_t first, int64_t n, void *out)                                  \
    {                                                                                                                 \
        tgc_##name##_f32(&job->stream, first, n, out);                                                                \
    }                                                                                                                 \
    static void name##_float64(const fill *job, int64_t first, int64_t n, void *out)                                  \
    {                                                                                                                 \
        tgc_##name##_f64(&job->stream, first, n, out);                                                                \
    }                                                                                                                 \
    static void name##_float16(const fill *job, int64_t first, int64_t n, void *out)                                  \
    {                                                                                                                 \
        float values[TGC_PIECE];                                                                                      \
        tgc_##name##_f32(&job->stream, first, n, values);                                                             \
        tgc_floats_to_f16(out, values, n);                                                                                \
    }                                                                                                                 \
    static void name##_bfloat16(const fill *job, int64_t first, int64_t n, void *out)                                 \
    {                                                                                                                 \
        float values[TGC_PIECE];                                                                                      \
        tgc_##name##_f32(&job->stream, first, n, values);                                                             \
        tgc_floats_to_bf16(out, values, n);                                                                               \
    }
#define COMPLEX_MAKERS(name)                                                                                           \
    static void name##_complex64(const fill *job, int64_t first, int64_t n, void *out)                                \
    {                                                                                                                 \
        int64_t half = n < TGC_PIECE / 2 ? n : TGC_PIECE / 2;                                                         \
        tgc_##name##_f32(&job->stream, 2 * first, 2 * half, out);                                                     \
        tgc_##name##_f32(&job->stream, 2 * (first + half), 2 * (n - half), (float *)out + 2 * half);                  \
    }                                                                                                                 \
    static void name##_complex128(const fill *job, int64_t first, int64_t n, void *out)                               \
    {                                                                                                                 \
        int64_t half = n < TGC_PIECE / 2 ? n : TGC_PIECE / 2;                                                         \
        tgc_##name##_f64(&job->stream, 2 * first, 2 * half, out);                                                     \
        tgc_##name##_f64(&job->stream, 2 * (first + half), 2 * (n - half), (double *)out + 2 * half);                 \
    }

MAKERS(uniform)
MAKERS(normal)
MAKERS(exponential)
COMPLEX_MAKERS(uniform)
COMPLEX_MAKERS(normal)

static int uniform(const tg_call *call, void *context)
{
    double from = call->args[1].value.f, to = call->args[2].value.f;
    int32_t dtype = call->outs->dtype;
    int dropped = dtype == TGC_FLOAT16 ? 21 : dtype == TGC_BFLOAT16 ? 24 : 8;
    fill job = {.stream = {.a = to - from, .b = from, .dropped = dropped}};
    return run(&job, call->outs, (make)context, seed_of(call), offset_of(call));
}

static int normal(const tg_call *call, void *context)
{
    int32_t dtype = call->outs->dtype;
    int complex = dtype == TGC_COMPLEX64 || dtype == TGC_COMPLEX128;
    double mean = call->args[1].value.f, std = call->args[2].value.f;
    fill job = {.stream = {.a = complex ? std * sqrt(0.5) : std, .b = mean}};
    return run(&job, call->outs, (make)context, seed_of(call), offset_of(call));
}

static int exponential(const tg_call *call, void *context)
{
    fill job = {.stream = {.a = call->args[1].value.f}};
    return run(&job, call->outs, (make)context, seed_of(call), offset_of(call));
}

/* --- integers --------------------------------------------------------------------------------- */

static void store_integers(int32_t dtype, const uint64_t *values, int unsigned_values, int64_t n, void *out)
{
    float rounded[TGC_PIECE];
#define STORE(tag, type, convert)                                                                                      \
    case tag:                                                                                                         \
        for (int64_t i = 0; i < n; i++)                                                                               \
            ((type *)out)[i] = (type)(convert);                                                                       \
        return;
    switch (dtype) {
        STORE(TGC_BOOL, uint8_t, values[i] != 0)
        STORE(TGC_UINT8, uint8_t, values[i])
        STORE(TGC_INT8, uint8_t, values[i])
        STORE(TGC_UINT16, uint16_t, values[i])
        STORE(TGC_INT16, uint16_t, values[i])
        STORE(TGC_UINT32, uint32_t, values[i])
        STORE(TGC_INT32, uint32_t, values[i])
        STORE(TGC_UINT64, uint64_t, values[i])
        STORE(TGC_INT64, uint64_t, values[i])
        STORE(TGC_FLOAT64, double, unsigned_values ? (double)values[i] : (double)(int64_t)values[i])
        STORE(TGC_FLOAT32, float, unsigned_values ? (float)values[i] : (float)(int64_t)values[i])
    }
#undef STORE
    for (int64_t i = 0; i < n; i++)
        rounded[i] = unsigned_values ? (float)values[i] : (float)(int64_t)values[i];
    if (dtype == TGC_FLOAT16)
        tgc_floats_to_f16(out, rounded, n);
    else
        tgc_floats_to_bf16(out, rounded, n);
}

static void make_between(const fill *job, int64_t first, int64_t n, void *out)
{
    uint64_t integers[TGC_PIECE];
    tgc_integers(&job->stream, first, n, integers);
    if (job->range != 0)
        for (int64_t i = 0; i < n; i++)
            integers[i] = (uint64_t)((unsigned __int128)integers[i] * job->range >> 64);
    for (int64_t i = 0; i < n; i++)
        integers[i] += job->low;
    store_integers(job->out->dtype, integers, job->unsigned_values, n, out);
}

static int random_between(const tg_call *call, void *context)
{
    (void)context;
    uint64_t low = (uint64_t)call->args[1].value.i, high = (uint64_t)call->args[2].value.i;
    /* A range of 2^64 is zero here; so is an end of 2^64, which only an unsigned dtype reaches. */
    int past_signed = (int64_t)low >= 0 && (high > (uint64_t)1 << 63 || high == 0);
    fill job = {.low = low, .range = high - low, .unsigned_values = past_signed};
    return run(&job, call->outs, make_between, seed_of(call), offset_of(call));
}

/* --- Bernoulli -------------------------------------------------------------------------------- */

static void make_bernoulli(const fill *job, int64_t first, int64_t n, void *out)
{
    uint32_t words[TGC_PIECE + TGC_PHILOX_SLACK];
    const uint32_t threshold = job->threshold;
    const tgc_stream *stream = &job->stream;
    tgc_philox_words(&stream->keys, stream->offset + (uint64_t)first / 4, (int64_t)tgc_blocks_of(n), words);
#define STORE(type, one)                                                                                               \
    for (int64_t i = 0; i < n; i++)                                                                                   \
        ((type *)out)[i] = words[i] >> 8 < threshold ? (one) : 0;                                                     \
    return;
    switch (job->out->dtype) {
    case TGC_BOOL:
    case TGC_UINT8:
    case TGC_INT8: STORE(uint8_t, 1)
    case TGC_UINT16:
    case TGC_INT16: STORE(uint16_t, 1)
    case TGC_FLOAT16: STORE(uint16_t, 0x3c00)
    case TGC_BFLOAT16: STORE(uint16_t, 0x3f80)
    case TGC_UINT32:
    case TGC_INT32: STORE(uint32_t, 1)
    case TGC_FLOAT32: STORE(float, 1.0f)
    case TGC_UINT64:
    case TGC_INT64: STORE(uint64_t, 1)
    case TGC_FLOAT64: STORE(double, 1.0)
    }
#undef STORE
}

static int bernoulli(const tg_call *call, void *context)
{
    (void)context;
    fill job = {.threshold = tgc_threshold(call->args[1].value.f)};
    return run(&job, call->outs, make_bernoulli, seed_of(call), offset_of(call));
}

static void load_floats(int32_t dtype, const void *in, int64_t n, float *out)
{
    if (dtype == TGC_FLOAT16)
        tgc_f16_to_floats(out, in, n);
    else if (dtype == TGC_BFLOAT16)
        tgc_bf16_to_floats(out, in, n);
    else
        memcpy(out, in, (size_t)n * sizeof(float));
}

static void store_floats(int32_t dtype, const float *in, int64_t n, void *out)
{
    if (dtype == TGC_FLOAT16)
        tgc_floats_to_f16(out, in, n);
    else if (dtype == TGC_BFLOAT16)
        tgc_floats_to_bf16(out, in, n);
    else
        memcpy(out, in, (size_t)n * sizeof(float));
}

static void make_bernoulli_of_floats(const fill *job, int64_t first, int64_t n, void *out)
{
    tgc_stream stream = job->stream;
    float u[TGC_PIECE], p[TGC_PIECE];
    double buffer[TGC_PIECE];
    int refused = 0;
    stream.a = 1, stream.b = 0, stream.dropped = 8;
    tgc_uniform_f32(&stream, first, n, u);
    load_floats(job->in->dtype, gather(job->in, job->in_contiguous, first, n, buffer), n, p);
    for (int64_t i = 0; i < n; i++) {
        refused |= !(p[i] >= 0.0f && p[i] <= 1.0f);
        u[i] = u[i] < p[i] ? 1.0f : 0.0f;
    }
    if (refused)
        *job->refused = 1;
    store_floats(job->out->dtype, u, n, out);
}

static void make_bernoulli_of_doubles(const fill *job, int64_t first, int64_t n, void *out)
{
    tgc_stream stream = job->stream;
    double u[TGC_PIECE], buffer[TGC_PIECE];
    int refused = 0;
    stream.a = 1, stream.b = 0;
    tgc_uniform_f64(&stream, first, n, u);
    const double *p = gather(job->in, job->in_contiguous, first, n, buffer);
    for (int64_t i = 0; i < n; i++) {
        refused |= !(p[i] >= 0.0 && p[i] <= 1.0);
        ((double *)out)[i] = u[i] < p[i] ? 1.0 : 0.0;
    }
    if (refused)
        *job->refused = 1;
}

static int bernoulli_tensor(const tg_call *call, void *context)
{
    (void)context;
    const tg_view *in = call->args[0].value.tensors;
    _Bool refused = 0;
    fill job = {.in = in, .in_contiguous = tgc_is_contiguous(in, 0), .refused = &refused};
    run(&job, call->outs, in->dtype == TGC_FLOAT64 ? make_bernoulli_of_doubles : make_bernoulli_of_floats,
        seed_of(call), offset_of(call));
    if (refused)
        return tgc_error("RuntimeError", "Expected p_in >= 0 && p_in <= 1 to be true for every probability");
    return 0;
}

/* --- Poisson's distribution ------------------------------------------------------------------- */

/* Of the core's special functions, compiled once (special.c). */
double tgc_igammac(double a, double b);
double tgc_ndtri(double a);

/* Up to this mean the terms of the distribution function are added up from 0 on. */
#define POISSON_ADDED 24.0
/* How many steps from the first guess to the quantile: see the definition. */
#define POISSON_STEPS 60

static double poisson_of_few(double mean, double u)
{
    double term = exp(-mean), total = term, count = 0;
    /* What no longer changes the sum cannot bring it to u. */
    while (total < u && total + term != total) {
        count += 1;
        term *= mean / count;
        total += term;
    }
    return count;
}

static double poisson_below(double count, double mean)
{
    return count < 0 ? 0.0 : tgc_igammac(count + 1, mean);
}

/* From Cornish and Fisher's guess, as the definition has it. */
static double poisson_of_many(double mean, double u)
{
    double z = tgc_ndtri(u > 1 - 0x1p-53 ? 1 - 0x1p-53 : u), count = floor(mean + sqrt(mean) * z + (z * z - 1) / 6);
    count = count > 0 ? count : 0;
    for (int i = 0; i < POISSON_STEPS; i++) {
        if (poisson_below(count, mean) < u)
            count += 1;
        else if (poisson_below(count - 1, mean) >= u)
            count -= 1;
        else
            break;
    }
    return count;
}

static void make_poisson(const fill *job, int64_t first, int64_t n, void *out)
{
    uint64_t integers[TGC_PIECE];
    float means[TGC_PIECE], drawn[TGC_PIECE];
    double buffer[TGC_PIECE];
    const int32_t dtype = job->in->dtype;
    tgc_integers(&job->stream, first, n, integers);
    const void *in = gather(job->in, job->in_contiguous, first, n, buffer);
    if (dtype != TGC_FLOAT64)
        load_floats(dtype, in, n, means);
    for (int64_t i = 0; i < n; i++) {
        double mean = dtype == TGC_FLOAT64 ? ((const double *)in)[i] : means[i];
        double u = 1 - (double)(int64_t)(integers[i] >> 11) * 0x1p-53;
        double count = 0;
        if (!(mean >= 0))
            *job->refused = 1;
        else
            count = mean <= POISSON_ADDED ? poisson_of_few(mean, u) : poisson_of_many(mean, u);
        if (dtype == TGC_FLOAT64)
            ((double *)out)[i] = count;
        else
            drawn[i] = (float)count;
    }
    if (dtype != TGC_FLOAT64)
        store_floats(dtype, drawn, n, out);
}

static int poisson_tensor(const tg_call *call, void *context)
{
    (void)context;
    const tg_view *in = call->args[0].value.tensors;
    _Bool refused = 0;
    fill job = {.in = in, .in_contiguous = tgc_is_contiguous(in, 0), .refused = &refused};
    run(&job, call->outs, make_poisson, seed_of(call), offset_of(call));
    if (refused)
        return tgc_error("RuntimeError", "invalid Poisson rate, expected rate to be non-negative: the tensor of rates has "
                                         "an element that is negative or nan");
    return 0;
}

/* --- dropout ---------------------------------------------------------------------------------- */

/* What is dropped is multiplied by zero: infinities and NaN stay visible, as in the definition. */
static void make_dropout_of_floats(const fill *job, int64_t first, int64_t n, void *out)
{
    uint32_t words[TGC_PIECE + TGC_PHILOX_SLACK];
    float loaded[TGC_PIECE], kept[TGC_PIECE];
    double buffer[TGC_PIECE];
    const uint32_t threshold = job->threshold;
    const float scale = job->scale;
    const int32_t dtype = job->in->dtype;
    const tgc_stream *stream = &job->stream;
    tgc_philox_words(&stream->keys, stream->offset + (uint64_t)first / 4, (int64_t)tgc_blocks_of(n), words);
    const void *in = gather(job->in, job->in_contiguous, first, n, buffer);
    const float *x = in;
    float *result = out;
    if (dtype != TGC_FLOAT32) {
        load_floats(dtype, in, n, loaded);
        x = loaded;
        result = kept;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        result[i] = x[i] * (words[i] >> 8 >= threshold ? scale : 0.0f);
    if (dtype != TGC_FLOAT32)
        store_floats(dtype, kept, n, out);
}

static void make_dropout_of_doubles(const fill *job, int64_t first, int64_t n, void *out)
{
    uint32_t words[TGC_PIECE + TGC_PHILOX_SLACK];
    double buffer[TGC_PIECE];
    const tgc_stream *stream = &job->stream;
    tgc_philox_words(&stream->keys, stream->offset + (uint64_t)first / 4, (int64_t)tgc_blocks_of(n), words);
    const double *x = gather(job->in, job->in_contiguous, first, n, buffer);
    double *result = out;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        result[i] = x[i] * (words[i] >> 8 >= job->threshold ? job->wide_scale : 0.0);
}

static int run_dropout(fill *job, const tg_view *out, const tg_view *in, double p, uint64_t seed, uint64_t offset)
{
    job->in = in;
    job->in_contiguous = tgc_is_contiguous(in, 0);
    job->threshold = tgc_threshold((float)p);
    return run(job, out, in->dtype == TGC_FLOAT64 ? make_dropout_of_doubles : make_dropout_of_floats, seed, offset);
}

static int native_dropout(const tg_call *call, void *context)
{
    (void)context;
    double p = call->args[1].value.f;
    const tg_view *in = call->args[0].value.tensors;
    fill job = {.scale = (float)(1 / (1 - p)), .wide_scale = 1 / (1 - p)};
    return run_dropout(&job, call->outs, in, p, seed_of(call), offset_of(call));
}

/* Stated positions: the loop's dimensions are in row-major order, for its numbers depend on them. */
static int dropout_mask_scale(const tg_loop *loop, void *context)
{
    (void)context;
    int64_t strides[2][TG_MAX_DIMS];
    tg_view views[2];
    const double p = loop->params[0].f;
    const float single = (float)p;
    fill job = {.scale = 1.0f / (1.0f - single), .wide_scale = 1 / (1 - p)};
    for (int k = 0; k < 2; k++) {
        const tg_operand *operand = &loop->operands[k];
        for (int d = 0; d < loop->ndim; d++)
            strides[k][d] = operand->strides[d] / tgc_itemsize[operand->dtype];
        views[k] = (tg_view){operand->data, operand->handle, operand->offset, operand->dtype, loop->ndim, loop->shape,
                             strides[k], loop->numel};
    }
    return run_dropout(&job, &views[0], &views[1], p, (uint64_t)loop->params[1].i, (uint64_t)loop->params[2].i);
}

#define ALL(op, function, dtype) {op, dtype, TGC_CALL, function, NULL},
#define EVERY_REAL(op, function)                                                                                       \
    ALL(op, function, "bool") ALL(op, function, "uint8") ALL(op, function, "int8") ALL(op, function, "uint16")        \
    ALL(op, function, "int16") ALL(op, function, "uint32") ALL(op, function, "int32") ALL(op, function, "uint64")     \
    ALL(op, function, "int64") EVERY_FLOAT(op, function)
#define EVERY_FLOAT(op, function)                                                                                      \
    ALL(op, function, "float32") ALL(op, function, "float64") ALL(op, function, "float16")                            \
    ALL(op, function, "bfloat16")
#define DRAWN(op, name, dtype) {op, #dtype, TGC_CALL, name, name##_##dtype},

const tgc_kernel TGC(tgc_table_random)[] = {
    DRAWN("uniform_", uniform, float32)
    DRAWN("uniform_", uniform, float64)
    DRAWN("uniform_", uniform, float16)
    DRAWN("uniform_", uniform, bfloat16)
    DRAWN("uniform_", uniform, complex64)
    DRAWN("uniform_", uniform, complex128)
    DRAWN("normal_", normal, float32)
    DRAWN("normal_", normal, float64)
    DRAWN("normal_", normal, float16)
    DRAWN("normal_", normal, bfloat16)
    DRAWN("normal_", normal, complex64)
    DRAWN("normal_", normal, complex128)
    DRAWN("exponential_", exponential, float32)
    DRAWN("exponential_", exponential, float64)
    DRAWN("exponential_", exponential, float16)
    DRAWN("exponential_", exponential, bfloat16)
    EVERY_REAL("random_between_", random_between)
    EVERY_REAL("bernoulli_number_", bernoulli)
    EVERY_FLOAT("bernoulli_tensor", bernoulli_tensor)
    EVERY_FLOAT("poisson_tensor", poisson_tensor)
    EVERY_FLOAT("native_dropout", native_dropout)
    {"dropout_mask_scale", "float32", TGC_LOOP, dropout_mask_scale, NULL},
    {"dropout_mask_scale", "float64", TGC_LOOP, dropout_mask_scale, NULL},
    {"dropout_mask_scale", "float16", TGC_LOOP, dropout_mask_scale, NULL},
    {"dropout_mask_scale", "bfloat16", TGC_LOOP, dropout_mask_scale, NULL},
    {0}};
