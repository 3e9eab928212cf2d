/* Eigenvalues, singular values, pseudoinverses, least squares and factors of symmetric matrices by LAPACK (syevd,
 * geev, gesdd, gelsy, sytrf), whose signs and pivots are PyTorch's. Here are stacks of matrices, which are handed to threads. A routine's integers have 32 or 64
 * bits, as LAPACK was built: of those handed over it reads the low half or all, which little-endian memory
 * allows, and it may write the low half of `info`. */
#include "matrices.h"

#include "lapack.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define LARGE 64 /* rows from which a matrix is no task of many */
/* Rows from which LAPACK has threads of its own, which wait for each other in loops: on a busy machine that takes
 * hundreds of times as long as small matrices do on one thread. */
#define THREADED 256
/* Rows and columns up to which it starts none by itself: the process keeps its number of threads. */
#define NEVER_THREADED 16

typedef void (*syevd)(const char *, const char *, const int64_t *, void *, const int64_t *, void *, void *,
                      const int64_t *, void *, const int64_t *, int64_t *, size_t, size_t);
typedef void (*gesdd)(const char *, const int64_t *, const int64_t *, void *, const int64_t *, void *, void *,
                      const int64_t *, void *, const int64_t *, void *, const int64_t *, void *, int64_t *, size_t);
typedef void (*geev)(const char *, const char *, const int64_t *, void *, const int64_t *, void *, void *, void *,
                     const int64_t *, void *, const int64_t *, void *, const int64_t *, int64_t *, size_t, size_t);
typedef void (*gelsy)(const int64_t *, const int64_t *, const int64_t *, void *, const int64_t *, void *,
                      const int64_t *, int64_t *, const void *, int64_t *, void *, const int64_t *, int64_t *);
typedef void (*sytrf)(const char *, const int64_t *, void *, const int64_t *, int64_t *, void *, const int64_t *,
                      int64_t *, size_t);

static tgc_lapack routines;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int within, threads_before;

/* Have LAPACK use one thread from the first call within to the last. */
static void alone(int begins)
{
    if (routines.threads == NULL || routines.set_threads == NULL)
        return;
    pthread_mutex_lock(&lock);
    within += begins ? 1 : -1;
    if (begins && within == 1)
        threads_before = routines.threads();
    if (within == begins && threads_before > 1)
        routines.set_threads(begins ? 1 : threads_before);
    pthread_mutex_unlock(&lock);
}

/* A job whose matrices may have no answer: `info` is what LAPACK said of the first that has none. */
typedef struct spectral {
    job base; /* first: the job is handed on by its address */
    int vectors, full, hermitian;
    int64_t columns, rows, work, right; /* `right`: columns of right-hand sides */
    double limit;
    _Atomic int64_t info;
} spectral;

/* Parts of the working memory of one matrix. */
typedef struct places {
    char *a, *left, *right, *values, *work, *integers;
} places;

static char *part(char *memory, size_t *used, int64_t count, int64_t size)
{
    char *at = memory != NULL ? memory + *used : NULL;
    *used += (size_t)((count > 0 ? count : 1) * size + 63) / 64 * 64;
    return at;
}

static size_t lay_out(const spectral *s, places *p, char *memory)
{
    const int64_t size = item(&s->base), m = s->base.m, n = s->base.n, k = m < n ? m : n;
    size_t used = 0;
    p->a = part(memory, &used, m * n, size);
    p->left = part(memory, &used, m * s->columns, size);
    p->right = part(memory, &used, s->rows * n, size);
    p->values = part(memory, &used, 2 * k, size); /* real parts, then imaginary ones */
    p->work = part(memory, &used, s->work, size);
    p->integers = part(memory, &used, 8 * k + 8 + n, 8);
    return used;
}

/* Copy a row of numbers to a vector of a stack. */
static void unload_values(const tg_view *view, int64_t index, const char *values, int64_t count, int64_t size)
{
    char *to = place(view, 1, index);
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * view->strides[view->ndim - 1] * size, values + i * size, (size_t)size);
}

static int finish(spectral *s, const char *op, double products)
{
    const int64_t least = s->base.m < s->base.n ? s->base.m : s->base.n;
    const int small = s->base.m <= NEVER_THREADED && s->base.n <= NEVER_THREADED && s->right <= NEVER_THREADED;
    const int limited = least < THREADED && !small;
    if (limited)
        alone(1);
    const int failed = run(&s->base, op, least < LARGE ? products : 0) < 0;
    if (limited)
        alone(0);
    if (failed)
        return -1;
    const int64_t info = atomic_load(&s->info);
    if (info == 0)
        return 0;
    return tgc_error("tangrad.linalg.LinAlgError",
                     "%s: The algorithm failed to converge because the input matrix is ill-conditioned, has too many "
                     "repeated values or is not finite (error code: %lld).",
                     op, (long long)info);
}

static void eigh_one(job *j, int64_t index, char *memory)
{
    spectral *s = (spectral *)j;
    const int64_t n = j->n, count = 3 + 5 * n;
    int64_t info = 0;
    places p;
    lay_out(s, &p, memory);
    load(j->a, index, 1, p.a, n);
    ((syevd)routines.syevd[j->wide])(s->vectors ? "V" : "N", j->upper ? "U" : "L", &n, p.a, &n, p.values, p.work,
                                     &s->work, p.integers, &count, &info, 1, 1);
    if (info != 0)
        atomic_store(&s->info, info);
    unload_values(&j->call->outs[0], index, p.values, n, item(j));
    if (s->vectors)
        unload(&j->call->outs[1], index, 1, p.a, n);
}

static int eigh(const tg_call *call, void *context)
{
    spectral s = {.base = begin(call, eigh_one), .vectors = context != NULL};
    places p;
    if (s.base.a->numel == 0)
        return 0;
    const char *triangle = call->args[1].value.text;
    s.base.upper = triangle[0] == 'U' || triangle[0] == 'u';
    const int64_t n = s.base.n;
    s.work = 1 + 70 * n + 2 * n * n;
    s.base.bytes = lay_out(&s, &p, NULL);
    return finish(&s, "linalg.eigh", 9 * (double)n * (double)n * (double)n);
}

/* Without singular values, bases of identities. */
static void identities(const tg_view *view)
{
    int64_t count = 1;
    const int64_t rows = view->shape[view->ndim - 2], columns = view->shape[view->ndim - 1];
    for (int d = 0; d < view->ndim - 2; d++)
        count *= view->shape[d];
    for (int64_t index = 0; index < count; index++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t k = 0; k < columns; k++) {
                char *to = place(view, 2, index);
                const int64_t at = i * view->strides[view->ndim - 2] + k * view->strides[view->ndim - 1];
                if (view->dtype == TGC_FLOAT64)
                    ((double *)to)[at] = i == k;
                else
                    ((float *)to)[at] = (float)(i == k);
            }
}

static void gesdd_call(const spectral *s, const places *p, int64_t work, int64_t *info)
{
    const int64_t m = s->base.m, n = s->base.n, rows = s->rows > 0 ? s->rows : 1;
    ((gesdd)routines.gesdd[s->base.wide])(!s->vectors ? "N" : s->full ? "A" : "S", &m, &n, p->a, &m, p->values, p->left,
                                          &m, p->right, &rows, p->work, &work, p->integers, info, 1);
}

static void svd_one(job *j, int64_t index, char *memory)
{
    spectral *s = (spectral *)j;
    const int64_t k = j->m < j->n ? j->m : j->n;
    int64_t info = 0;
    places p;
    lay_out(s, &p, memory);
    load(j->a, index, 1, p.a, j->m);
    gesdd_call(s, &p, s->work, &info);
    if (info != 0)
        atomic_store(&s->info, info);
    unload_values(&j->call->outs[s->vectors ? 1 : 0], index, p.values, k, item(j));
    if (!s->vectors)
        return;
    unload(&j->call->outs[0], index, 1, p.left, j->m);
    unload(&j->call->outs[2], index, 1, p.right, s->rows);
}

static int64_t asked_for(const spectral *s, const double *asked)
{
    float narrow;
    memcpy(&narrow, asked, sizeof narrow);
    return (int64_t)(s->base.wide ? asked[0] : (double)narrow);
}

static int svd(const tg_call *call, void *context)
{
    spectral s = {.base = begin(call, svd_one), .vectors = context != NULL};
    const int64_t m = s.base.m, n = s.base.n, k = m < n ? m : n;
    s.full = s.vectors && call->args[1].value.i;
    if (s.base.a->numel == 0) {
        if (s.full) {
            identities(&call->outs[0]);
            identities(&call->outs[2]);
        }
        return 0;
    }
    s.columns = !s.vectors ? 0 : s.full ? m : k;
    s.rows = !s.vectors ? 0 : s.full ? n : k;
    double asked[2] = {0};
    int64_t info = 0;
    const places none = {(char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked};
    gesdd_call(&s, &none, -1, &info);
    s.work = asked_for(&s, asked);
    places p;
    s.base.bytes = lay_out(&s, &p, NULL);
    return finish(&s, "linalg.svd", 20 * (double)k * (double)m * (double)n);
}

/* --- general matrices -------------------------------------------------------------------------- */

static double real_at(const char *numbers, int64_t i, int wide)
{
    return wide ? ((const double *)numbers)[i] : (double)((const float *)numbers)[i];
}

static void put_complex(const tg_view *view, int64_t offset, char *matrix, double real, double imaginary)
{
    char *to = matrix + offset * tgc_itemsize[view->dtype];
    const double wide[2] = {real, imaginary};
    const float narrow[2] = {(float)real, (float)imaginary};
    memcpy(to, view->dtype == TGC_COMPLEX128 ? (const void *)wide : narrow, (size_t)tgc_itemsize[view->dtype]);
}

/* Real and imaginary parts of a pair's vectors are two columns. */
static void unload_vectors(const tg_view *view, int64_t index, const places *p, int64_t n, int wide)
{
    const int64_t row = view->strides[view->ndim - 2], column = view->strides[view->ndim - 1];
    char *to = place(view, 2, index);
    for (int64_t c = 0; c < n; c++) {
        const double turn = real_at(p->values, n + c, wide);
        const int64_t first = turn < 0 ? c - 1 : c;
        for (int64_t r = 0; r < n; r++) {
            const double real = real_at(p->right, first * n + r, wide);
            const double other = turn == 0 ? 0 : real_at(p->right, (first + 1) * n + r, wide);
            put_complex(view, r * row + c * column, to, real, turn < 0 ? -other : other);
        }
    }
}

static void geev_call(const spectral *s, const places *p, int64_t work, int64_t *info)
{
    const int64_t n = s->base.n, one = 1;
    ((geev)routines.geev[s->base.wide])("N", s->vectors ? "V" : "N", &n, p->a, &n, p->values,
                                        p->values + n * item(&s->base), p->left, &one, p->right, &n, p->work, &work, info,
                                        1, 1);
}

static void eig_one(job *j, int64_t index, char *memory)
{
    spectral *s = (spectral *)j;
    const tg_view *values = &j->call->outs[0];
    int64_t info = 0;
    places p;
    lay_out(s, &p, memory);
    load(j->a, index, 1, p.a, j->n);
    geev_call(s, &p, s->work, &info);
    if (info != 0)
        atomic_store(&s->info, info);
    char *to = place(values, 1, index);
    for (int64_t i = 0; i < j->n; i++)
        put_complex(values, i * values->strides[values->ndim - 1], to, real_at(p.values, i, j->wide),
                    real_at(p.values, j->n + i, j->wide));
    if (s->vectors)
        unload_vectors(&j->call->outs[1], index, &p, j->n, j->wide);
}

static int all_finite(const tg_view *view)
{
    int64_t count = 1;
    const int64_t rows = view->shape[view->ndim - 2], columns = view->shape[view->ndim - 1];
    for (int d = 0; d < view->ndim - 2; d++)
        count *= view->shape[d];
    for (int64_t index = 0; index < count; index++) {
        const char *from = place(view, 2, index);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++) {
                const int64_t at = r * view->strides[view->ndim - 2] + c * view->strides[view->ndim - 1];
                if (!isfinite(real_at(from, at, view->dtype == TGC_FLOAT64)))
                    return 0;
            }
    }
    return 1;
}

static int eig(const tg_call *call, void *context)
{
    spectral s = {.base = begin(call, eig_one), .vectors = context != NULL};
    const char *name = s.vectors ? "linalg.eig" : "linalg.eigvals";
    const int64_t n = s.base.n;
    if (s.base.a->numel == 0)
        return 0;
    if (!all_finite(s.base.a))
        return tgc_error("RuntimeError", "torch.%s: input tensor should not contain infs or NaNs.", name);
    s.rows = s.vectors ? n : 0;
    double asked[2] = {0};
    int64_t info = 0;
    const places none = {(char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked};
    geev_call(&s, &none, -1, &info);
    s.work = asked_for(&s, asked);
    places p;
    s.base.bytes = lay_out(&s, &p, NULL);
    return finish(&s, name, 25 * (double)n * (double)n * (double)n);
}

/* --- pseudoinverses ---------------------------------------------------------------------------- */

/* to[r, c] = sum over i of right(i, r) inverses[i] left(c, i): four addends at a time. */
#define COMBINE(T, suffix)                                                                                            \
    static void combine_##suffix(const tg_view *view, char *to, const T *left, const T *right, const T *inverses,     \
                                 int64_t across, int64_t apart, int64_t m, int64_t n, int64_t k, T *line)             \
    {                                                                                                                 \
        for (int64_t r = 0; r < n; r++) {                                                                             \
            memset(line, 0, (size_t)m * sizeof(T));                                                                   \
            for (int64_t i = 0; i < k; i++) {                                                                         \
                const T weight = right[r * apart + i * across] * inverses[i];                                         \
                const T *restrict column = left + i * m;                                                              \
                for (int64_t c = 0; c < m; c++)                                                                       \
                    line[c] += weight * column[c];                                                                    \
            }                                                                                                         \
            for (int64_t c = 0; c < m; c++)                                                                           \
                ((T *)to)[r * view->strides[view->ndim - 2] + c * view->strides[view->ndim - 1]] = line[c];           \
        }                                                                                                             \
    }
COMBINE(float, f32)
COMBINE(double, f64)

/* Turn values into their inverses, zero where they are small. */
static void invert(const spectral *s, char *values, int64_t k, int64_t index)
{
    const tg_view *tolerances[2] = {s->base.call->args[1].value.tensors, s->base.call->args[2].value.tensors};
    double greatest = 0, limits[2];
    for (int i = 0; i < 2; i++)
        limits[i] = real_at(place(tolerances[i], 0, index), 0, tolerances[i]->dtype == TGC_FLOAT64);
    for (int64_t i = 0; i < k; i++) {
        const double size = fabs(real_at(values, i, s->base.wide));
        greatest = size > greatest || size != size ? size : greatest;
    }
    double limit = s->base.wide ? limits[1] * greatest : (double)((float)limits[1] * (float)greatest);
    limit = limits[0] > limit || limits[0] != limits[0] ? limits[0] : limit;
    for (int64_t i = 0; i < k; i++) {
        const double value = real_at(values, i, s->base.wide), inverse = fabs(value) > limit ? 1 / value : 0;
        if (s->base.wide)
            ((double *)values)[i] = inverse;
        else
            ((float *)values)[i] = (float)inverse;
    }
}

static void pinv_one(job *j, int64_t index, char *memory)
{
    spectral *s = (spectral *)j;
    const int64_t m = j->m, n = j->n, k = m < n ? m : n, count = 3 + 5 * n;
    const tg_view *out = j->call->outs;
    int64_t info = 0;
    places p;
    lay_out(s, &p, memory);
    load(j->a, index, 1, p.a, m);
    if (s->hermitian)
        ((syevd)routines.syevd[j->wide])("V", "L", &n, p.a, &n, p.values, p.work, &s->work, p.integers, &count, &info, 1,
                                         1);
    else
        gesdd_call(s, &p, s->work, &info);
    if (info != 0)
        atomic_store(&s->info, info);
    invert(s, p.values, k, index);
    const char *left = s->hermitian ? p.a : p.left, *right = s->hermitian ? p.a : p.right;
    const int64_t across = s->hermitian ? n : 1, apart = s->hermitian ? 1 : k;
    char *to = place(out, 2, index);
    if (j->wide)
        combine_f64(out, to, (const double *)left, (const double *)right, (const double *)p.values, across, apart, m, n, k,
                    (double *)p.work);
    else
        combine_f32(out, to, (const float *)left, (const float *)right, (const float *)p.values, across, apart, m, n, k,
                    (float *)p.work);
}

static int pinv(const tg_call *call, void *context)
{
    spectral s = {.base = begin(call, pinv_one), .vectors = 1};
    const int64_t m = s.base.m, n = s.base.n, k = m < n ? m : n;
    (void)context;
    if (call->outs->numel == 0)
        return 0;
    s.hermitian = call->args[3].value.i != 0;
    if (s.hermitian) {
        s.work = 1 + 70 * n + 2 * n * n;
    } else {
        double asked[2] = {0};
        int64_t info = 0;
        const places none = {(char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked};
        s.columns = s.rows = k;
        gesdd_call(&s, &none, -1, &info);
        s.work = asked_for(&s, asked);
    }
    s.work = s.work > m ? s.work : m;
    places p;
    s.base.bytes = lay_out(&s, &p, NULL);
    return finish(&s, "linalg.pinv", 22 * (double)k * (double)m * (double)n);
}

/* --- least squares ----------------------------------------------------------------------------- */

static void gelsy_call(const spectral *s, const places *p, int64_t work, int64_t *rank, int64_t *info)
{
    const int64_t m = s->base.m, n = s->base.n, rows = m > n ? m : n;
    const float narrow = (float)s->limit;
    ((gelsy)routines.gelsy[s->base.wide])(&m, &n, &s->right, p->a, &m, p->left, &rows, (int64_t *)p->integers,
                                          s->base.wide ? (const void *)&s->limit : &narrow, rank, p->work, &work, info);
}

static void gelsy_one(job *j, int64_t index, char *memory)
{
    spectral *s = (spectral *)j;
    const tg_view *b = j->call->args[1].value.tensors, *ranks = &j->call->outs[1];
    const int64_t rows = j->m > j->n ? j->m : j->n;
    int64_t info = 0, rank = 0;
    places p;
    lay_out(s, &p, memory);
    load(j->a, index, 1, p.a, j->m);
    load(b, index, 1, p.left, rows);
    memset(p.integers, 0, (size_t)(8 * j->n));
    gelsy_call(s, &p, s->work, &rank, &info);
    unload(&j->call->outs[0], index, 1, p.left, rows);
    *(int64_t *)place(ranks, 0, index) = rank;
}

static int least_squares(const tg_call *call, void *context)
{
    spectral s = {.base = begin(call, gelsy_one), .limit = call->args[2].value.f};
    const tg_view *b = call->args[1].value.tensors;
    const int64_t m = s.base.m, n = s.base.n, k = m < n ? m : n, rows = m > n ? m : n;
    double asked[2] = {0};
    int64_t info = 0, rank = 0, none_chosen[1] = {0};
    (void)context;
    if (s.base.a->numel == 0 || call->outs[0].numel == 0) {
        const double zero[2] = {0};
        TGC(tgc_fill)(&call->outs[0], zero);
        TGC(tgc_fill)(&call->outs[1], zero);
        return 0;
    }
    s.right = b->shape[b->ndim - 1];
    /* The right-hand sides, which become the solutions, have the place of left vectors. */
    s.columns = (rows * s.right + m - 1) / m;
    const places none = {(char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)none_chosen};
    gelsy_call(&s, &none, -1, &rank, &info);
    s.work = asked_for(&s, asked);
    places p;
    s.base.bytes = lay_out(&s, &p, NULL);
    return finish(&s, "linalg.lstsq", 2 * (double)k * (double)m * (double)n);
}

/* --- factors of symmetric matrices ------------------------------------------------------------- */

static void sytrf_call(const spectral *s, const places *p, int64_t work, int64_t *info)
{
    const int64_t n = s->base.n;
    ((sytrf)routines.sytrf[s->base.wide])("L", &n, p->a, &n, (int64_t *)p->integers, p->work, &work, info, 1);
}

/* No pivot is 0, and none behind the first is -1: such a half is the upper one of an integer of 64 bits. */
static int64_t pivot_at(const char *pivots, int64_t n, int64_t i)
{
    const int32_t *halves = (const int32_t *)pivots;
    const int wide = n > 1 && (halves[1] == 0 || halves[1] == -1);
    return wide ? ((const int64_t *)pivots)[i] : halves[i];
}

static void ldl_one(job *j, int64_t index, char *memory)
{
    spectral *s = (spectral *)j;
    const tg_view *pivots = &j->call->outs[1];
    const int64_t n = j->n, size = item(j);
    int64_t info = 0;
    places p;
    lay_out(s, &p, memory);
    load(j->a, index, 1, p.a, n);
    sytrf_call(s, &p, s->work, &info);
    for (int64_t c = 1; c < n; c++)
        memset(p.a + c * n * size, 0, (size_t)(c * size));
    unload(&j->call->outs[0], index, 1, p.a, n);
    int32_t *to = (int32_t *)place(pivots, 1, index);
    for (int64_t i = 0; i < n; i++)
        to[i * pivots->strides[pivots->ndim - 1]] = (int32_t)pivot_at(p.integers, n, i);
    *(int32_t *)place(&j->call->outs[2], 0, index) = (int32_t)info;
}

static int ldl_factor(const tg_call *call, void *context)
{
    spectral s = {.base = begin(call, ldl_one)};
    const int64_t n = s.base.n;
    double asked[2] = {0};
    int64_t info = 0;
    (void)context;
    if (s.base.a->numel == 0) {
        const double zero[2] = {0};
        TGC(tgc_fill)(&call->outs[2], zero);
        return 0;
    }
    const places none = {(char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked, (char *)asked};
    sytrf_call(&s, &none, -1, &info);
    s.work = asked_for(&s, asked);
    places p;
    s.base.bytes = lay_out(&s, &p, NULL);
    if (finish(&s, "linalg.ldl_factor", (double)n * (double)n * (double)n / 3) < 0)
        return -1;
    if (!call->args[2].value.i)
        return 0;
    return refuse_in("torch.linalg.ldl_factor_ex", &call->outs[2],
                     "D[%1$d,%1$d] is zero and using it on ldl_solve would result in a division by zero");
}

/* The context tells that vectors are wanted. */
const tgc_kernel TGC(tgc_table_spectral)[] = {
    {"lapack", "", TGC_PARTS, NULL, &routines},
    {"linalg_eigh", "float32", TGC_CALL, eigh, ""},
    {"linalg_eigh", "float64", TGC_CALL, eigh, ""},
    {"linalg_eig", "float32", TGC_CALL, eig, ""},
    {"linalg_eig", "float64", TGC_CALL, eig, ""},
    {"linalg_eigvals", "float32", TGC_CALL, eig, NULL},
    {"linalg_eigvals", "float64", TGC_CALL, eig, NULL},
    {"_linalg_pinv", "float32", TGC_CALL, pinv, NULL},
    {"_linalg_pinv", "float64", TGC_CALL, pinv, NULL},
    {"_linalg_gelsy", "float32", TGC_CALL, least_squares, NULL},
    {"_linalg_gelsy", "float64", TGC_CALL, least_squares, NULL},
    {"linalg_ldl_factor_ex", "float32", TGC_CALL, ldl_factor, NULL},
    {"linalg_ldl_factor_ex", "float64", TGC_CALL, ldl_factor, NULL},
    {"linalg_eigvalsh", "float32", TGC_CALL, eigh, NULL},
    {"linalg_eigvalsh", "float64", TGC_CALL, eigh, NULL},
    {"linalg_svd", "float32", TGC_CALL, svd, ""},
    {"linalg_svd", "float64", TGC_CALL, svd, ""},
    {"linalg_svdvals", "float32", TGC_CALL, svd, NULL},
    {"linalg_svdvals", "float64", TGC_CALL, svd, NULL},
    {0},
};
