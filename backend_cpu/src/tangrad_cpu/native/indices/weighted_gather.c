/* Sums of a few gathered elements with weights, and their adjoint: sampling between elements. A task is a
 * run of positions of one batch element, for all its channels; of the adjoint, which meets places more
 * than once, a channel. */
#include "copies/copying.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif
#include <stdatomic.h>
#include <string.h>

#define RUN 256       /* positions whose places and weights stay in the first-level cache */
#define TOGETHER 4    /* taps that are added at once */
#define GRAIN 16384   /* products worth a thread of their own */
#define MOST_TASKS 64

typedef struct {
    const tg_view *flat, *places, *weights, *out;
    int64_t batch, channels, taps, positions, size, runs, tasks;
    int wide, spread;
    _Atomic int refused;
} gathering;

static inline const char *at3(const tg_view *view, int64_t i, int64_t j, int64_t k)
{
    return (const char *)view->data
           + (i * view->strides[0] + j * view->strides[1] + k * view->strides[2]) * tgc_itemsize[view->dtype];
}

/* The places of a run of one tap: of those that are no elements the first element, which is not kept.
 * Returns whether all are in range. */
static int places_of(const gathering *job, int64_t n, int64_t tap, int64_t first, int64_t count, int32_t *places,
                     int32_t *kept)
{
    const int64_t *from = (const int64_t *)at3(job->places, n, tap, first), step = job->places->strides[2];
    int64_t most = -1;
    for (int64_t p = 0; p < count; p++) {
        const int64_t place = from[p * step];
        kept[p] = place >= 0;
        places[p] = (int32_t)(place < 0 ? 0 : place);
        most = place > most ? place : most;
    }
    return most < job->size;
}

/* What a tap adds: an element that is not kept gives zero, whatever it is. */
#define TAP(k, in)                              \
    ({                                          \
        const __typeof__(*from) v = from[places[k][p] * (in)]; \
        (kept[k][p] ? v : 0) * weights[k][p];   \
    })
#define TAPS(from, to, in, out, start)                                                   \
    if (taps == TOGETHER)                                                                \
        for (int64_t p = 0; p < count; p++)                                              \
            to[p * (out)] = (((start) + TAP(0, in)) + TAP(1, in)) + TAP(2, in) + TAP(3, in);               \
    else                                                                                 \
        for (int64_t p = 0; p < count; p++) {                                            \
            to[p * (out)] = start;                                                         \
            for (int64_t k = 0; k < taps; k++)                                           \
                to[p * (out)] += TAP(k, in);                                                   \
        }

/* Contiguous elements by the processor's gather: GCC takes plain loads. Returns whether it did. */
#if defined(__AVX512F__)
static int taps_f32(const float *from, float *to, int64_t count, int64_t taps, int first, int32_t (*places)[RUN],
                    int32_t (*kept)[RUN], float (*weights)[RUN])
{
    for (int64_t p = 0; p < count; p += 16) {
        const __mmask16 some = (__mmask16)(count - p < 16 ? (1 << (count - p)) - 1 : 0xffff);
        __m512 sum = first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(some, to + p);
        for (int64_t k = 0; k < taps; k++) {
            const __m512i place = _mm512_maskz_loadu_epi32(some, places[k] + p);
            const __mmask16 there = _mm512_test_epi32_mask(_mm512_maskz_loadu_epi32(some, kept[k] + p), _mm512_set1_epi32(1));
            const __m512 value = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), there, place, from, 4);
            sum = _mm512_add_ps(sum, _mm512_mul_ps(value, _mm512_maskz_loadu_ps(some, weights[k] + p)));
        }
        _mm512_mask_storeu_ps(to + p, some, sum);
    }
    return 1;
}
#else
static int taps_f32(const float *from, float *to, int64_t count, int64_t taps, int first, int32_t (*places)[RUN],
                    int32_t (*kept)[RUN], float (*weights)[RUN])
{
    (void)from, (void)to, (void)count, (void)taps, (void)first, (void)places, (void)kept, (void)weights;
    return 0;
}
#endif

static int taps_f64(const double *from, double *to, int64_t count, int64_t taps, int first, int32_t (*places)[RUN],
                    int32_t (*kept)[RUN], double (*weights)[RUN])
{
    (void)from, (void)to, (void)count, (void)taps, (void)first, (void)places, (void)kept, (void)weights;
    return 0;
}

#define KERNELS(T, suffix)                                                                                           \
    static void weights_##suffix(const gathering *job, int64_t n, int64_t tap, int64_t first, int64_t count,         \
                                 const int32_t *kept, T *to)                                                         \
    {                                                                                                                \
        const T *from = (const T *)at3(job->weights, n, tap, first);                                                 \
        for (int64_t p = 0; p < count; p++)                                                                          \
            to[p] = kept[p] ? from[p * job->weights->strides[2]] : 0;                                                \
    }                                                                                                                \
    static void gather_##suffix(gathering *job, int64_t n, int64_t first, int64_t count)                             \
    {                                                                                                                \
        int32_t places[TOGETHER][RUN], kept[TOGETHER][RUN];                                                          \
        T weights[TOGETHER][RUN];                                                                                    \
        const int64_t apart = job->flat->strides[2], step = job->out->strides[2];                                    \
        for (int64_t tap = 0; tap < job->taps; tap += TOGETHER) {                                                    \
            const int64_t taps = job->taps - tap < TOGETHER ? job->taps - tap : TOGETHER;                            \
            for (int64_t k = 0; k < taps; k++) {                                                                     \
                if (!places_of(job, n, tap + k, first, count, places[k], kept[k])) {                                 \
                    atomic_store(&job->refused, 1);                                                                  \
                    return;                                                                                          \
                }                                                                                                    \
                weights_##suffix(job, n, tap + k, first, count, kept[k], weights[k]);                                         \
            }                                                                                                        \
            for (int64_t c = 0; c < job->channels; c++) {                                                            \
                const T *restrict from = (const T *)at3(job->flat, n, c, 0);                                         \
                T *restrict to = (T *)at3(job->out, n, c, first);                                                    \
                if (apart == 1 && step == 1                                                                          \
                    && taps_##suffix(from, to, count, taps, tap == 0, places, kept, weights))                        \
                    continue;                                                                                        \
                if (apart == 1 && step == 1 && tap == 0) {                                                           \
                    TAPS(from, to, 1, 1, (T)0)                                                                       \
                } else if (tap == 0) {                                                                               \
                    TAPS(from, to, apart, step, (T)0)                                                                \
                } else {                                                                                             \
                    TAPS(from, to, apart, step, to[p * step])                                                        \
                }                                                                                                    \
            }                                                                                                        \
        }                                                                                                            \
    }                                                                                                                \
    static void scatter_##suffix(gathering *job, int64_t n, int64_t c)                                               \
    {                                                                                                                \
        int32_t places[RUN], kept[RUN];                                                                              \
        T weights[RUN];                                                                                              \
        const int64_t in = job->flat->strides[2], out = job->out->strides[2];                                        \
        T *to = (T *)at3(job->out, n, c, 0);                                                                         \
        for (int64_t i = 0; i < job->size; i++)                                                                      \
            to[i * out] = 0;                                                                                         \
        for (int64_t tap = 0; tap < job->taps; tap++)                                                                \
            for (int64_t first = 0; first < job->positions; first += RUN) {                                          \
                const int64_t count = job->positions - first < RUN ? job->positions - first : RUN;                   \
                const T *from = (const T *)at3(job->flat, n, c, first);                                              \
                if (!places_of(job, n, tap, first, count, places, kept)) {                                           \
                    atomic_store(&job->refused, 1);                                                                  \
                    return;                                                                                          \
                }                                                                                                    \
                weights_##suffix(job, n, tap, first, count, kept, weights);                                                \
                for (int64_t p = 0; p < count; p++)                                                                  \
                    if (kept[p])                                                                                     \
                        to[places[p] * out] += from[p * in] * weights[p];                                            \
            }                                                                                                        \
    }
KERNELS(float, f32)
KERNELS(double, f64)

static void gather_task(int64_t task, void *context)
{
    gathering *job = context;
    const int64_t all = job->batch * job->runs, end = tgc_begin(all, job->tasks, task + 1, 1);
    for (int64_t i = tgc_begin(all, job->tasks, task, 1); i < end; i++) {
        const int64_t first = i % job->runs * RUN, left = job->positions - first;
        (job->wide ? gather_f64 : gather_f32)(job, i / job->runs, first, left < RUN ? left : RUN);
    }
}

static void scatter_task(int64_t task, void *context)
{
    gathering *job = context;
    const int64_t all = job->batch * job->channels, end = tgc_begin(all, job->tasks, task + 1, 1);
    for (int64_t i = tgc_begin(all, job->tasks, task, 1); i < end; i++)
        (job->wide ? scatter_f64 : scatter_f32)(job, i / job->channels, i % job->channels);
}

/* `context` tells that values are added to places, not read from them. */
static int sums(const tg_call *call, void *context)
{
    gathering job = {.flat = call->args[0].value.tensors, .places = call->args[1].value.tensors};
    job.weights = call->args[2].value.tensors;
    job.out = call->outs;
    job.spread = context != NULL;
    job.wide = job.out->dtype == TGC_FLOAT64;
    if (job.out->numel == 0)
        return 0;
    job.batch = job.flat->shape[0];
    job.channels = job.flat->shape[1];
    job.taps = job.places->shape[1];
    job.positions = job.places->shape[2];
    job.size = (job.spread ? job.out : job.flat)->shape[2];
    if (job.size > INT32_MAX)
        return TG_DECLINED;
    if (job.taps == 0) {
        const double zero[2] = {0};
        TGC(tgc_fill)(job.out, zero);
        return 0;
    }
    if (job.spread && job.flat->shape[2] != job.positions)
        return tgc_error("RuntimeError", "_weighted_scatter: %lld elements for %lld places",
                         (long long)job.flat->shape[2], (long long)job.positions);
    job.runs = (job.positions + RUN - 1) / RUN;
    const int64_t pieces = job.batch * (job.spread ? job.channels : job.runs);
    job.tasks = tgc_tasks(job.batch * job.channels * job.positions * job.taps, GRAIN, pieces < MOST_TASKS ? pieces : MOST_TASKS);
    tgc_parallel(job.tasks, job.spread ? scatter_task : gather_task, &job);
    if (atomic_load(&job.refused))
        return tgc_error("IndexError", "%s: a place is beyond the last of %lld elements",
                         job.spread ? "_weighted_scatter" : "_weighted_gather", (long long)job.size);
    return 0;
}

const tgc_kernel TGC(tgc_table_weighted_gather)[] = {
    {"_weighted_gather", "float32", TGC_CALL, sums, NULL},
    {"_weighted_gather", "float64", TGC_CALL, sums, NULL},
    {"_weighted_scatter", "float32", TGC_CALL, sums, ""},
    {"_weighted_scatter", "float64", TGC_CALL, sums, ""},
    {0},
};
