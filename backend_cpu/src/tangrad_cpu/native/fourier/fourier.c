/* Discrete Fourier transforms, complex to complex, real to complex and back, along any dimensions. */
#include "copies/copying.h"
#include "fourier/fourier_plan.h"
#include "gemm/simd.h"

/* Points from which signals are transformed one by one: the vectors of lanes would leave the first-level
 * cache. Others than multiples of the square of a vector's lanes fill their vectors less well so. */
#define ROWS_FROM 256
#define ANY_ROWS_FROM 4096
#define TASK_NUMBERS 8192  /* a task of fewer numbers is not worth handing to a thread */
#define MOST_TASKS 64

enum { FOURIER_C2C, FOURIER_R2C, FOURIER_C2R };

/* One transform along a dimension; n points. */
typedef struct fourier_call {
    const char *op;
    int kind, inverse, dim;
    int64_t n;
    double scale;
    const tg_view *src, *dst;
} fourier_call;

/* A plan in the cache; whoever uses it counts among its users, and so does the cache. */
typedef struct fourier_kept {
    int64_t n, used;
    int real, by_rows, wide;
    atomic_int users;
    void *plan;
} fourier_kept;

static fourier_kept *fourier_keep(int64_t n, int real, int by_rows, int wide);
static void fourier_release(fourier_kept *kept);

#if TGC_VECTOR == 64
#define EVEN32 {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}
#define ODD32 {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}
#define EVEN64 {0, 2, 4, 6, 8, 10, 12, 14}
#define ODD64 {1, 3, 5, 7, 9, 11, 13, 15}
#define BACK32 {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}
#define BACK64 {7, 6, 5, 4, 3, 2, 1, 0}
#elif TGC_VECTOR == 32
#define EVEN32 {0, 2, 4, 6, 8, 10, 12, 14}
#define ODD32 {1, 3, 5, 7, 9, 11, 13, 15}
#define EVEN64 {0, 2, 4, 6}
#define ODD64 {1, 3, 5, 7}
#define BACK32 {7, 6, 5, 4, 3, 2, 1, 0}
#define BACK64 {3, 2, 1, 0}
#else
#define EVEN32 {0, 2, 4, 6}
#define ODD32 {1, 3, 5, 7}
#define EVEN64 {0, 2}
#define ODD64 {1, 3}
#define BACK32 {3, 2, 1, 0}
#define BACK64 {1, 0}
#endif

#define FT_T float
#define FT_V tgc_vf
#define FT_U tgc_vu32
#define FT_LANES (TGC_VECTOR / 4)
#define FT_FMA tgc_fma_f
#define FT_TURNS_PAIRS 1
#define FT_EVEN EVEN32
#define FT_ODD ODD32
#define FT_BACK BACK32
#define FT_LOW TGC_LOW32
#define FT_HIGH TGC_HIGH32
#define FT_TRANSPOSE tgc_transpose32
#define FT(name) name##_f32
#include "fourier/fourier_passes.h"
#include "fourier/fourier_lanes.h"
#include "fourier/fourier_rows.h"
#include "fourier/fourier_job.h"
#define FT_T double
#define FT_V tgc_vd
#define FT_U tgc_vu64
#define FT_LANES (TGC_VECTOR / 8)
#define FT_FMA tgc_fma_d
#define FT_TURNS_PAIRS 0
#define FT_EVEN EVEN64
#define FT_ODD ODD64
#define FT_BACK BACK64
#define FT_LOW TGC_LOW64
#define FT_HIGH TGC_HIGH64
#define FT_TRANSPOSE tgc_transpose64
#define FT(name) name##_f64
#include "fourier/fourier_passes.h"
#include "fourier/fourier_lanes.h"
#include "fourier/fourier_rows.h"
#include "fourier/fourier_job.h"

/* --- plans that are kept ----------------------------------------------------------------------- */

#define KEPT 32
#define KEPT_POINTS (1 << 20) /* longer ones are made anew: they would hold too much memory */

static fourier_kept *cache[KEPT];
static int64_t uses;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void fourier_release(fourier_kept *kept)
{
    if (kept == NULL || atomic_fetch_sub(&kept->users, 1) > 1)
        return;
    (kept->wide ? plan_free_f64 : plan_free_f32)(kept->plan);
    free(kept);
}

/* Nobody waits for the cache: who finds it taken, or copied by fork while it was, makes its own plan. */
static fourier_kept *find_kept(int64_t n, int real, int by_rows, int wide)
{
    fourier_kept *found = NULL;
    if (atomic_flag_test_and_set(&busy))
        return NULL;
    for (int i = 0; i < KEPT && found == NULL; i++)
        if (cache[i] != NULL && cache[i]->n == n && cache[i]->real == real && cache[i]->by_rows == by_rows
            && cache[i]->wide == wide)
            found = cache[i];
    if (found != NULL) {
        found->used = ++uses;
        atomic_fetch_add(&found->users, 1);
    }
    atomic_flag_clear(&busy);
    return found;
}

static void enter(fourier_kept *made)
{
    int oldest = 0;
    if (made->n > KEPT_POINTS || atomic_flag_test_and_set(&busy))
        return;
    for (int i = 0; i < KEPT && cache[oldest] != NULL; i++)
        if (cache[i] == NULL || cache[i]->used < cache[oldest]->used)
            oldest = i;
    fourier_kept *old = cache[oldest];
    made->used = ++uses;
    atomic_fetch_add(&made->users, 1);
    cache[oldest] = made;
    atomic_flag_clear(&busy);
    fourier_release(old);
}

/* The plan of a transform, to be released; NULL where there is no memory. */
static fourier_kept *fourier_keep(int64_t n, int real, int by_rows, int wide)
{
    fourier_kept *kept = find_kept(n, real, by_rows, wide);
    if (kept != NULL)
        return kept;
    kept = calloc(1, sizeof *kept);
    if (kept == NULL)
        return NULL;
    *kept = (fourier_kept){.n = n, .real = real, .by_rows = by_rows, .wide = wide, .users = 1};
    kept->plan = (wide ? plan_make_f64 : plan_make_f32)(n, real, by_rows);
    if (kept->plan == NULL) {
        free(kept);
        return NULL;
    }
    enter(kept);
    return kept;
}

/* --- calls ------------------------------------------------------------------------------------- */

static int along(const fourier_call *call)
{
    const int wide = call->dst->dtype == TGC_FLOAT64 || call->dst->dtype == TGC_COMPLEX128;
    return (wide ? along_f64 : along_f32)(call);
}

/* By what results are multiplied: 1, or one over the number of points or over its root. */
static double scale_of(int64_t mode, double points)
{
    return mode == 0 ? 1 : mode == 1 ? 1 / sqrt(points) : 1 / points;
}

static double points_of(const tg_argument *dims, const int64_t *shape)
{
    double points = 1;
    for (int i = 0; i < dims->count; i++)
        points *= (double)shape[dims->value.ints[i]];
    return points;
}

static void copy(const tg_view *to, const tg_view *from)
{
    int64_t to_strides[TG_MAX_DIMS], from_strides[TG_MAX_DIMS];
    tgc_byte_strides(to, to_strides);
    tgc_byte_strides(from, from_strides);
    TGC(tgc_copy_region)(to->ndim, to->shape, to->data, to_strides, to->dtype, from->data, from_strides, from->dtype);
}

/* Transform complex numbers along dimensions, the last first; later ones in place. */
static int along_dims(const char *op, const tg_view *src, const tg_view *dst, const int64_t *dims, int count, int inverse,
                      double scale)
{
    for (int i = count - 1; i >= 0; i--) {
        const fourier_call one = {op, FOURIER_C2C, inverse, (int)dims[i], dst->shape[dims[i]], i == 0 ? scale : 1,
                                  i == count - 1 ? src : dst, dst};
        if (along(&one) < 0)
            return -1;
    }
    return 0;
}

static int c2c(const tg_call *call, void *context)
{
    const tg_view *src = &call->args[0].value.tensors[0], *dst = &call->outs[0];
    const tg_argument *dims = &call->args[1];
    (void)context;
    if (dst->numel == 0)
        return 0;
    if (dims->count == 0 || dst->ndim == 0) {
        copy(dst, src);
        return 0;
    }
    return along_dims("_fft_c2c", src, dst, dims->value.ints, dims->count, call->args[3].value.i == 0,
                      scale_of(call->args[2].value.i, points_of(dims, dst->shape)));
}

/* The half of a spectrum that is the conjugate of the other, at the negative frequencies: along all
 * dimensions that were transformed. */
typedef struct mirror_job {
    const tg_view *dst;
    int last, negated[TG_MAX_DIMS];
    int64_t rows, tasks;
} mirror_job;

static void mirror_row(const tg_view *dst, int last, int64_t to, int64_t from)
{
    const int64_t n = dst->shape[last], step = dst->strides[last];
    if (dst->dtype == TGC_COMPLEX64 && step == 1) {
        uint64_t *put = (uint64_t *)dst->data + to;
        const uint64_t *take = (const uint64_t *)dst->data + from;
        for (int64_t k = n / 2 + 1; k < n; k++)
            put[k] = take[n - k] ^ (1ull << 63); /* the sign of the imaginary part */
        return;
    }
    for (int64_t k = n / 2 + 1; k < n; k++) {
        const int64_t put = 2 * (to + k * step), take = 2 * (from + (n - k) * step);
        if (dst->dtype == TGC_COMPLEX64) {
            ((float *)dst->data)[put] = ((const float *)dst->data)[take];
            ((float *)dst->data)[put + 1] = -((const float *)dst->data)[take + 1];
        } else {
            ((double *)dst->data)[put] = ((const double *)dst->data)[take];
            ((double *)dst->data)[put + 1] = -((const double *)dst->data)[take + 1];
        }
    }
}

static void mirror_task(int64_t task, void *context)
{
    const mirror_job *job = context;
    const tg_view *dst = job->dst;
    const int64_t end = tgc_begin(job->rows, job->tasks, task + 1, 1);
    for (int64_t row = tgc_begin(job->rows, job->tasks, task, 1); row < end; row++) {
        int64_t to = 0, from = 0, rest = row;
        for (int d = dst->ndim - 1; d >= 0; d--) {
            if (d == job->last)
                continue;
            const int64_t at = rest % dst->shape[d];
            rest /= dst->shape[d];
            to += at * dst->strides[d];
            from += (job->negated[d] && at > 0 ? dst->shape[d] - at : at) * dst->strides[d];
        }
        mirror_row(dst, job->last, to, from);
    }
}

static void mirror(const tg_view *dst, const int64_t *dims, int count)
{
    mirror_job job = {.dst = dst, .last = (int)dims[count - 1]};
    for (int i = 0; i < count; i++)
        job.negated[dims[i]] = 1;
    job.rows = dst->numel / dst->shape[job.last];
    job.tasks = tgc_tasks(dst->numel, 65536, job.rows < MOST_TASKS ? job.rows : MOST_TASKS);
    tgc_parallel(job.tasks, mirror_task, &job);
}

static int r2c(const tg_call *call, void *context)
{
    const tg_view *src = &call->args[0].value.tensors[0], *dst = &call->outs[0];
    const tg_argument *dims = &call->args[1];
    (void)context;
    if (dst->numel == 0)
        return 0;
    if (dst->ndim == 0) {
        copy(dst, src);
        return 0;
    }
    const double scale = scale_of(call->args[2].value.i, points_of(dims, src->shape));
    const int count = dims->count, last = (int)dims->value.ints[count - 1];
    const int64_t n = src->shape[last];
    int64_t shape[TG_MAX_DIMS];
    memcpy(shape, dst->shape, sizeof(int64_t) * (size_t)dst->ndim);
    shape[last] = n / 2 + 1;
    tg_view half = *dst; /* what is computed; the rest follows by symmetry */
    half.shape = shape;
    half.numel = dst->numel / dst->shape[last] * shape[last];
    const fourier_call one = {"_fft_r2c", FOURIER_R2C, 0, last, n, count == 1 ? scale : 1, src, &half};
    if (along(&one) < 0 || along_dims("_fft_r2c", &half, &half, dims->value.ints, count - 1, 0, scale) < 0)
        return -1;
    if (!call->args[3].value.i)
        mirror(dst, dims->value.ints, count);
    return 0;
}

static int c2r(const tg_call *call, void *context)
{
    const tg_view *src = &call->args[0].value.tensors[0], *dst = &call->outs[0];
    const tg_argument *dims = &call->args[1];
    const int count = dims->count, last = (int)dims->value.ints[count - 1];
    const double scale = scale_of(call->args[2].value.i, points_of(dims, dst->shape));
    (void)context;
    if (dst->numel == 0)
        return 0;
    const int64_t n = dst->shape[last];
    int64_t shape[TG_MAX_DIMS], strides[TG_MAX_DIMS], numel = 1;
    memcpy(shape, src->shape, sizeof(int64_t) * (size_t)src->ndim);
    shape[last] = n / 2 + 1;
    for (int d = src->ndim - 1; d >= 0; d--) {
        strides[d] = numel;
        numel *= shape[d];
    }
    tg_view middle = *src, given = *src; /* of the last dimension what the result needs */
    const int64_t missing = shape[last] > src->shape[last];
    void *memory = NULL;
    int status = 0;
    middle.shape = shape;
    middle.numel = numel;
    if (count > 1 || missing) {
        const size_t bytes = (size_t)numel * (size_t)tgc_itemsize[src->dtype];
        memory = tgc_scratch(bytes);
        if (memory == NULL)
            return tgc_no_memory("_fft_c2r", bytes);
        middle.data = memory;
        middle.strides = strides;
        if (missing) {
            tg_view part = middle;
            part.shape = src->shape;
            memset(memory, 0, bytes);
            copy(&part, src);
            given = middle;
        } else
            given.shape = shape;
        status = along_dims("_fft_c2r", &given, &middle, dims->value.ints, count - 1, 1, 1);
    }
    const fourier_call one = {"_fft_c2r", FOURIER_C2R, 1, last, n, scale, &middle, dst};
    if (status == 0)
        status = along(&one);
    tgc_scratch_free(memory);
    return status;
}

const tgc_kernel TGC(tgc_table_fourier)[] = {
    {"_fft_c2c", "complex64", TGC_CALL, c2c, NULL},  {"_fft_c2c", "complex128", TGC_CALL, c2c, NULL},
    {"_fft_r2c", "float32", TGC_CALL, r2c, NULL},    {"_fft_r2c", "float64", TGC_CALL, r2c, NULL},
    {"_fft_c2r", "complex64", TGC_CALL, c2r, NULL},  {"_fft_c2r", "complex128", TGC_CALL, c2r, NULL},
    {0},
};
