/* Evenly spaced numbers, computed in blocks of float64 or int64 and then converted. */
#include "copying.h"

#define BLOCK 256
#define GRAIN 32768

typedef struct job {
    const tg_view *out;
    double start, step, end; /* numbers from `half` on are counted back from `end` */
    int64_t whole_start, whole_step, half, tasks;
    int whole; /* computed in integers, which wrap around */
} job;

static void write_block(const job *j, int64_t from, int64_t n)
{
    union {
        double real[BLOCK];
        int64_t whole[BLOCK];
    } numbers;
    const int64_t last = j->out->numel - 1;
    if (j->whole) {
        for (int64_t i = 0; i < n; i++)
            numbers.whole[i] = (int64_t)((uint64_t)(from + i) * (uint64_t)j->whole_step + (uint64_t)j->whole_start);
    } else {
        for (int64_t i = 0; i < n; i++) {
            int64_t at = from + i;
            numbers.real[i] = at < j->half ? (double)at * j->step + j->start : j->end - (double)(last - at) * j->step;
        }
    }
    const int dtype = j->out->dtype, source = j->whole ? TGC_INT64 : TGC_FLOAT64, item = tgc_itemsize[dtype];
    const int64_t stride = j->out->strides[0] * item, packed = item;
    char *to = (char *)j->out->data + from * stride;
    if (stride == packed) {
        TGC(tgc_convert)(to, dtype, &numbers, source, n);
        return;
    }
    char converted[BLOCK * 16];
    TGC(tgc_convert)(converted, dtype, &numbers, source, n);
    TGC(tgc_move_region)(1, &n, to, &stride, converted, &packed, item);
}

static void write_piece(int64_t index, void *context)
{
    const job *j = context;
    const int64_t numel = j->out->numel, stop = tgc_begin(numel, j->tasks, index + 1, BLOCK);
    for (int64_t i = tgc_begin(numel, j->tasks, index, BLOCK); i < stop; i += BLOCK)
        write_block(j, i, stop - i < BLOCK ? stop - i : BLOCK);
}

static int write_all(job *j, const tg_call *call)
{
    j->out = call->outs;
    if (j->out->numel == 0)
        return 0;
    j->tasks = tgc_tasks(j->out->numel, GRAIN, 64);
    tgc_parallel(j->tasks, write_piece, j);
    return 0;
}

static double real(const tg_argument *number)
{
    return number->kind == TG_ARG_FLOAT ? number->value.f : (double)number->value.i;
}

static int is_whole(const tg_argument *number)
{
    return number->kind == TG_ARG_INT || number->kind == TG_ARG_BOOL;
}

static int sequence(const tg_call *call, void *context)
{
    const tg_argument *start = &call->args[1], *step = &call->args[2];
    job j = {.half = call->outs->numel};
    (void)context;
    if (!(is_whole(start) || start->kind == TG_ARG_FLOAT) || !(is_whole(step) || step->kind == TG_ARG_FLOAT))
        return tgc_error("TypeError", "_sequence: start and step must be real numbers");
    j.whole = is_whole(start) && is_whole(step) && call->outs->dtype <= TGC_INT64;
    if (j.whole)
        j.whole_start = start->value.i, j.whole_step = step->value.i;
    else
        j.start = real(start), j.step = real(step);
    return write_all(&j, call);
}

static int spaced(const tg_call *call, void *context)
{
    const int64_t n = call->outs->numel;
    job j = {.start = real(&call->args[1]), .end = real(&call->args[2]), .half = n < 2 ? n : n / 2};
    (void)context;
    j.step = n < 2 ? 0 : (j.end - j.start) / (double)(n - 1);
    return write_all(&j, call);
}

const tgc_kernel TGC(tgc_table_sequence)[] = {
    TGC_OF_EVERY_DTYPE("_sequence", TGC_CALL, sequence, NULL),
    {"_spaced", "float32", TGC_CALL, (void *)spaced, NULL},
    {"_spaced", "float64", TGC_CALL, (void *)spaced, NULL},
    {"_spaced", "float16", TGC_CALL, (void *)spaced, NULL},
    {"_spaced", "bfloat16", TGC_CALL, (void *)spaced, NULL},
    {0},
};
