/* Max pooling with the positions of what it found. A row of windows is folded tap by tap, so that
 * the loop over windows is vectorised for any size of window; taps outside are left out. The usual
 * windows of pictures and signals are folded whole, but for those at the border. */
#include "half.h"
#include "pooling.h"
#include "tgc.h"

#include <math.h>
#include <stdatomic.h>

#define PW_T float
#define PW_N int32_t
#define PW_LOWEST (-INFINITY)
#define PW(name) name##_f32
#include "pooling_rows.h"
#define PW_T double
#define PW_N int64_t
#define PW_LOWEST (-(double)INFINITY)
#define PW(name) name##_f64
#include "pooling_rows.h"

#define GRAIN 16384
#define WINDOWS 256 /* of a row worked on at once */

typedef struct loops {
    void (*fold)(void *, void *, const void *, int64_t, int64_t, int64_t);
    void (*run)(void *, void *, const void *, int64_t, int64_t, int64_t);
    void (*begin)(void *, void *, int64_t);
    void (*places)(int64_t *, const void *, const int64_t *, int64_t, int64_t, int64_t,
                   int64_t (*)(const void *, int64_t), const void *);
    void (*windows)(void *, int64_t *, const void *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
} loops;

static const loops loops_f32 = {fold_f32, run_f32, begin_f32, places_f32, windows_f32},
                   loops_f64 = {fold_f64, run_f64, begin_f64, places_f64, windows_f64};

typedef struct job {
    const loops *of;
    const tg_view *input, *values, *indices;
    int ndim, lead; /* spatial and other dimensions */
    int half;       /* rows are converted to float32 first */
    int usual;      /* windows of 2×2 or 3×3 of a picture, or of 2 or 3 of a signal, with contiguous rows */
    int64_t low, high; /* of these, columns of windows that are inside */
    int64_t item, planes, tasks, taps, area, windows;
    int64_t size[TG_MAX_DIMS], kernel[TG_MAX_DIMS], out[TG_MAX_DIMS];
    int64_t stride[TG_MAX_DIMS], padding[TG_MAX_DIMS], dilation[TG_MAX_DIMS];
    int64_t step[TG_MAX_DIMS], source[TG_MAX_DIMS]; /* of the planes, and of the input where it lies */
    int64_t *places;           /* flat positions of the taps */
    atomic_int failed;
} job;

/* A piece of a row of windows. */
typedef struct piece {
    const job *j;
    const int64_t *index; /* of its first window */
} piece;

static int64_t clip(int64_t at, int64_t n)
{
    return at < 0 ? 0 : at < n ? at : n - 1;
}

static int64_t first_place(const void *context, int64_t i)
{
    const piece *p = context;
    const job *j = p->j;
    int64_t flat = 0;
    for (int d = 0; d < j->ndim; d++) {
        int64_t window = p->index[d] + (d == j->ndim - 1 ? i : 0);
        flat = flat * j->size[d] + clip(window * j->stride[d] - j->padding[d], j->size[d]);
    }
    return flat;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a <= 0 ? 0 : (a + b - 1) / b;
}

/* Fold a row of taps of each of n windows from column `first` on, of which `number` is the first tap;
 * x is their row of the plane. */
static void fold_row(const job *j, int64_t first, int64_t n, const char *x, int64_t number, char *best, char *chosen)
{
    int last = j->ndim - 1;
    int64_t s = j->stride[last], apart = j->dilation[last], taps = j->kernel[last], size = j->size[last];
    int64_t start = first * s - j->padding[last];
    if (taps > n) {
        /* Few wide windows: one after the other. */
        for (int64_t i = 0; i < n; i++) {
            int64_t at = start + i * s, low = divide_up(-at, apart), high = divide_up(size - at, apart);
            j->of->run(best + i * j->item, chosen + i * j->item, x + (at + low * apart) * j->step[last] * j->item,
                       apart * j->step[last], (high < taps ? high : taps) - low, number + low);
        }
        return;
    }
    for (int64_t t = 0; t < taps; t++) {
        int64_t at = start + t * apart, low = divide_up(-at, s), high = divide_up(size - at, s);
        high = high < n ? high : n;
        if (low < high)
            j->of->fold(best + low * j->item, chosen + low * j->item, x + (at + low * s) * j->step[last] * j->item,
                        s * j->step[last], high - low, number + t);
    }
}

/* Fold the taps of n windows from index on; x is the plane. */
static void fold_taps(const job *j, const int64_t *index, int64_t n, const char *x, char *best, char *chosen)
{
    int last = j->ndim - 1;
    int64_t tap[TG_MAX_DIMS] = {0}, number = 0;
    j->of->begin(best, chosen, n);
    for (int d = 0;; number += j->kernel[last]) {
        int64_t offset = 0;
        int inside = 1;
        for (int i = 0; i < last; i++) {
            int64_t at = index[i] * j->stride[i] + tap[i] * j->dilation[i] - j->padding[i];
            inside &= at >= 0 && at < j->size[i];
            offset += at * j->step[i];
        }
        if (inside)
            fold_row(j, index[last], n, x + offset * j->item, number, best, chosen);
        for (d = last - 1; d >= 0 && ++tap[d] == j->kernel[d]; d--)
            tap[d] = 0;
        if (d < 0)
            break;
    }
}

static void widen(const job *j, float *to, const uint16_t *from)
{
    for (int64_t i = 0; i < j->area; i++) {
        int64_t rest = i, at = 0;
        for (int d = j->ndim - 1; d >= 0; d--) {
            at += rest % j->size[d] * j->source[d];
            rest /= j->size[d];
        }
        to[i] = j->input->dtype == TGC_BFLOAT16 ? tgc_bf16_to_float(from[at]) : tgc_f16_to_float(from[at]);
    }
}

static void store(const job *j, int64_t at, const char *best, int64_t n)
{
    if (!j->half)
        __builtin_memcpy((char *)j->values->data + at * j->item, best, (size_t)(n * j->item));
    else if (j->values->dtype == TGC_BFLOAT16)
        tgc_floats_to_bf16((uint16_t *)j->values->data + at, (const float *)best, n);
    else
        tgc_floats_to_f16((uint16_t *)j->values->data + at, (const float *)best, n);
}

/* Windows of a piece of a row, tap by tap; x is the plane, `at` the place of the results. */
static void pool_piece(const job *j, const int64_t *index, int64_t n, const char *x, int64_t at, char *best,
                       char *chosen)
{
    int last = j->ndim - 1;
    int64_t flat = 0;
    if (n == 0)
        return;
    fold_taps(j, index, n, x, best, chosen);
    store(j, at, best, n);
    for (int i = 0; i <= last; i++)
        flat = flat * j->size[i] + index[i] * j->stride[i] - j->padding[i];
    piece p = {j, index};
    j->of->places((int64_t *)j->indices->data + at, chosen, j->places, flat, j->stride[last], n, first_place, &p);
}

/* The same for n windows of a picture or signal from column `index[1]` on. */
static void pool_usual(const job *j, const int64_t *index, int64_t n, const char *x, int64_t at, char *best,
                       char *chosen)
{
    int64_t top = index[0] * j->stride[0] - j->padding[0], first = index[1], end = first + n;
    int64_t low = j->low < first ? first : j->low, high = j->high > end ? end : j->high;
    if (top < 0 || top + j->kernel[0] > j->size[0] || low >= high) {
        pool_piece(j, index, n, x, at, best, chosen);
        return;
    }
    const int64_t left = low * j->stride[1] - j->padding[1], right[2] = {index[0], high};
    char *to = j->half ? best : (char *)j->values->data + (at + low - first) * j->item;
    pool_piece(j, index, low - first, x, at, best, chosen);
    j->of->windows(to, (int64_t *)j->indices->data + at + low - first, x + (top * j->step[0] + left) * j->item,
                   j->step[0], high - low, top * j->size[1] + left, j->size[1], j->kernel[0], j->kernel[1],
                   j->stride[1]);
    if (j->half)
        store(j, at + low - first, best, high - low);
    pool_piece(j, right, end - high, x, at + high - first, best, chosen);
}

static void pool_task(int64_t task, void *context)
{
    job *j = context;
    int last = j->ndim - 1;
    _Alignas(64) char best[WINDOWS * 8], chosen[WINDOWS * 8];
    float *wide = j->half ? tgc_scratch((size_t)j->area * sizeof *wide) : NULL;
    if (j->half && wide == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    int64_t end = tgc_begin(j->planes, j->tasks, task + 1, 1);
    for (int64_t plane = tgc_begin(j->planes, j->tasks, task, 1); plane < end; plane++) {
        int64_t rest = plane, offset = 0, index[TG_MAX_DIMS] = {0}, at = plane * j->windows;
        for (int d = j->lead - 1; d >= 0; d--) {
            offset += rest % j->input->shape[d] * j->input->strides[d];
            rest /= j->input->shape[d];
        }
        const char *x = (const char *)j->input->data + offset * tgc_itemsize[j->input->dtype];
        if (j->half) {
            widen(j, wide, (const uint16_t *)x);
            x = (const char *)wide;
        }
        for (int d = 0;;) {
            for (index[last] = 0; index[last] < j->out[last]; index[last] += WINDOWS) {
                int64_t n = j->out[last] - index[last];
                n = n < WINDOWS ? n : WINDOWS;
                (j->usual ? pool_usual : pool_piece)(j, index, n, x, at, best, chosen);
                at += n;
            }
            for (d = last - 1; d >= 0 && ++index[d] == j->out[d]; d--)
                index[d] = 0;
            if (d < 0)
                break;
        }
    }
    tgc_scratch_free(wide);
}

int TGC(tgc_max_pool)(const tg_view *input, const tg_view *outs, int spatial, const int64_t *kernel,
                      const int64_t *stride, const int64_t *padding, const int64_t *dilation)
{
    job j = {.input = input, .values = outs, .indices = outs + 1};
    int signal = spatial == 1; /* a signal is a picture of one row */
    j.ndim = spatial + signal;
    j.lead = j.input->ndim - spatial;
    if (j.values->numel == 0)
        return 0;
    int status;
    if (TGC(tgc_max_pool_lanes)(input, outs, outs + 1, spatial, kernel, stride, padding, dilation, &status))
        return status;
    int wide = j.input->dtype == TGC_FLOAT64;
    j.of = wide ? &loops_f64 : &loops_f32;
    j.half = !wide && j.input->dtype != TGC_FLOAT32;
    j.item = wide ? 8 : 4;
    j.planes = j.taps = j.area = j.windows = 1;
    j.size[0] = j.out[0] = j.kernel[0] = j.stride[0] = j.dilation[0] = 1;
    for (int d = 0; d < j.lead; d++)
        j.planes *= j.input->shape[d];
    for (int d = j.ndim - 1; d >= signal; d--) {
        int from = d - signal;
        j.size[d] = j.input->shape[j.lead + from];
        j.out[d] = j.values->shape[j.lead + from];
        j.source[d] = j.input->strides[j.lead + from];
        j.kernel[d] = kernel[from];
        j.stride[d] = stride[from];
        j.padding[d] = padding[from];
        j.dilation[d] = dilation[from];
        j.step[d] = j.half ? j.area : j.source[d];
        j.taps *= j.kernel[d];
        j.area *= j.size[d];
        j.windows *= j.out[d];
    }
    int64_t side = j.kernel[1];
    j.usual = j.ndim == 2 && (signal || j.kernel[0] == side) && j.dilation[0] == 1 && j.dilation[1] == 1
              && j.step[1] == 1 && j.area < INT32_MAX
              && ((side == 2 && j.stride[1] == 2) || (side == 3 && (j.stride[1] == 1 || j.stride[1] == 2)));
    if (j.usual) {
        j.low = divide_up(j.padding[1], j.stride[1]);
        j.high = divide_up(j.size[1] + j.padding[1] - side + 1, j.stride[1]);
    }
    j.places = tgc_scratch((size_t)j.taps * sizeof *j.places);
    if (j.places == NULL)
        return tgc_no_memory("max_pool", (size_t)j.taps * sizeof *j.places);
    for (int64_t t = 0; t < j.taps; t++) {
        int64_t rest = t, below = 1;
        j.places[t] = 0;
        for (int d = j.ndim - 1; d >= 0; d--) {
            j.places[t] += rest % j.kernel[d] * j.dilation[d] * below;
            rest /= j.kernel[d];
            below *= j.size[d];
        }
    }
    j.tasks = tgc_tasks(j.planes * j.windows * j.taps, GRAIN, j.planes);
    tgc_parallel(j.tasks, pool_task, &j);
    tgc_scratch_free(j.places);
    return atomic_load(&j.failed) ? tgc_no_memory("max_pool", (size_t)j.area * sizeof(float)) : 0;
}

static int max_pool(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    (void)context;
    return TGC(tgc_max_pool)(args[0].value.tensors, call->outs, args[1].count, args[1].value.ints, args[2].value.ints,
                             args[3].value.ints, args[4].value.ints);
}

const tgc_kernel TGC(tgc_table_pooling)[] = {
    {"max_pool_with_indices", "float32", TGC_CALL, max_pool, NULL},
    {"max_pool_with_indices", "float64", TGC_CALL, max_pool, NULL},
    {"max_pool_with_indices", "float16", TGC_CALL, max_pool, NULL},
    {"max_pool_with_indices", "bfloat16", TGC_CALL, max_pool, NULL},
    {0}};
