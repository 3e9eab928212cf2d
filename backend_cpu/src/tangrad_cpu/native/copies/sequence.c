/* Evenly spaced numbers, computed in blocks and then converted. */
#include <math.h>

#include "copying.h"

#define BLOCK 256
#define GRAIN 32768

typedef struct job {
    const tg_view *out;
    double start, step, end; /* numbers from `half` on are counted back from `end` */
    int64_t whole_start, whole_step, half, tasks;
    int whole;  /* computed in integers, which wrap around */
    int spaced; /* product and sum are rounded once, to the result's dtype */
} job;

static void write_block(const job *j, int64_t from, int64_t n)
{
    union {
        double real[BLOCK];
        float single[BLOCK];
        int64_t whole[BLOCK];
    } numbers;
    const int dtype = j->out->dtype, item = tgc_itemsize[dtype];
    int source = TGC_FLOAT64;
    const int64_t last = j->out->numel - 1;
    if (j->whole) {
        source = TGC_INT64;
        for (int64_t i = 0; i < n; i++)
            numbers.whole[i] = (int64_t)((uint64_t)(from + i) * (uint64_t)j->whole_step + (uint64_t)j->whole_start);
    } else if (!j->spaced) {
        for (int64_t i = 0; i < n; i++)
            numbers.real[i] = (double)(from + i) * j->step + j->start;
    } else if (dtype == TGC_FLOAT32) {
        const float start = (float)j->start, step = (float)j->step, end = (float)j->end;
        source = TGC_FLOAT32;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = from + i;
            numbers.single[i] = at < j->half ? fmaf((float)at, step, start) : fmaf(-(float)(last - at), step, end);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            int64_t at = from + i;
            numbers.real[i] = at < j->half ? fma((double)at, j->step, j->start) : fma(-(double)(last - at), j->step, j->end);
        }
    }
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
    if (j->whole && j->out->dtype == TGC_INT64 && j->out->strides[0] == 1) {
        const int64_t from = tgc_begin(numel, j->tasks, index, BLOCK);
        uint64_t *restrict to = (uint64_t *)j->out->data + from;
        uint64_t number = (uint64_t)from * (uint64_t)j->whole_step + (uint64_t)j->whole_start;
        for (int64_t i = 0; i < stop - from; i++, number += (uint64_t)j->whole_step)
            to[i] = number;
        return;
    }
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
    job j = {0};
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
    job j = {.start = real(&call->args[1]), .end = real(&call->args[2]), .half = n < 2 ? n : n / 2, .spaced = 1};
    (void)context;
    if (call->outs->dtype == TGC_FLOAT32)
        j.step = n < 2 ? 0 : ((float)j.end - (float)j.start) / (float)(n - 1);
    else
        j.step = n < 2 ? 0 : (j.end - j.start) / (double)(n - 1);
    return write_all(&j, call);
}

const tgc_kernel TGC(tgc_table_sequence)[] = {
    TGC_OF_EVERY_DTYPE("_sequence", TGC_CALL, sequence, NULL),
    {"_spaced", "float32", TGC_CALL, (void *)spaced, NULL},
    {"_spaced", "float64", TGC_CALL, (void *)spaced, NULL},
    {0},
};
