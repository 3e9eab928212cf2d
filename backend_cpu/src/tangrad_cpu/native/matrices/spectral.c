/* Eigenvalues of symmetric matrices and singular values by LAPACK (syevd, gesdd), whose signs are
 * PyTorch's. Here are stacks of matrices, which are handed to threads. A routine's integers have 32 or 64
 * bits, as LAPACK was built: of those handed over it reads the low half or all, which little-endian memory
 * allows, and it may write the low half of `info`. */
#include "matrices.h"

#include "lapack.h"

#include <math.h>
#include <string.h>

#define LARGE 64 /* rows from which LAPACK has threads of its own */

typedef void (*syevd)(const char *, const char *, const int64_t *, void *, const int64_t *, void *, void *,
                      const int64_t *, void *, const int64_t *, int64_t *, size_t, size_t);
typedef void (*gesdd)(const char *, const int64_t *, const int64_t *, void *, const int64_t *, void *, void *,
                      const int64_t *, void *, const int64_t *, void *, const int64_t *, void *, int64_t *, size_t);

static tgc_lapack routines;

/* A job whose matrices may have no answer: `info` is what LAPACK said of the first that has none. */
typedef struct spectral {
    job base; /* first: the job is handed on by its address */
    int vectors, full;
    int64_t columns, rows, work;
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
    p->values = part(memory, &used, k, size);
    p->work = part(memory, &used, s->work, size);
    p->integers = part(memory, &used, 8 * k + 8, 8);
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
    if (run(&s->base, op, least < LARGE ? products : 0) < 0)
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
    float narrow;
    memcpy(&narrow, asked, sizeof narrow);
    s.work = (int64_t)(s.base.wide ? asked[0] : (double)narrow);
    places p;
    s.base.bytes = lay_out(&s, &p, NULL);
    return finish(&s, "linalg.svd", 20 * (double)k * (double)m * (double)n);
}

/* The context tells that vectors are wanted. */
const tgc_kernel TGC(tgc_table_spectral)[] = {
    {"lapack", "", TGC_PARTS, NULL, &routines},
    {"linalg_eigh", "float32", TGC_CALL, eigh, ""},
    {"linalg_eigh", "float64", TGC_CALL, eigh, ""},
    {"linalg_eigvalsh", "float32", TGC_CALL, eigh, NULL},
    {"linalg_eigvalsh", "float64", TGC_CALL, eigh, NULL},
    {"linalg_svd", "float32", TGC_CALL, svd, ""},
    {"linalg_svd", "float64", TGC_CALL, svd, ""},
    {"linalg_svdvals", "float32", TGC_CALL, svd, NULL},
    {"linalg_svdvals", "float64", TGC_CALL, svd, NULL},
    {0},
};
