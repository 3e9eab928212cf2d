/* QR factors of real matrices; complex ones stay with the reference, which calls LAPACK. */
#include "matrices.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define WIDTH 32  /* columns of a block */
#define COLUMNS 4 /* reflected at once */

#define RF_T float
#define RF_V tgc_vf
#define RF_I uint32_t
#define RF_FMA tgc_fma_f
#define RF_SQRT sqrtf
#define RF_PRODUCT TGC(tgc_gemm_f32)
#define RF_LEAST FLT_MIN
#define RF_MOST FLT_MAX
#define RF_LOW 1e-12f
#define RF_HIGH 1e12f
#define RF(name) name##_f32
#include "reflections.h"
#define RF_T double
#define RF_V tgc_vd
#define RF_I uint64_t
#define RF_FMA tgc_fma_d
#define RF_SQRT sqrt
#define RF_PRODUCT TGC(tgc_gemm_f64)
#define RF_LEAST DBL_MIN
#define RF_MOST DBL_MAX
#define RF_LOW 1e-130
#define RF_HIGH 1e130
#define RF(name) name##_f64
#include "reflections.h"

/* Working memory of one matrix. */
typedef struct places {
    int64_t count, row, apart;
    char *a, *v, *t, *tau, *w, *q;
} places;

/* The next part of the memory; NULL while it is only measured. */
static char *part(char *memory, size_t *used, int64_t elements, int64_t size)
{
    char *at = memory != NULL ? memory + *used : NULL;
    *used += (size_t)((elements * size + 63) / 64 * 64);
    return at;
}

static size_t lay_out(const job *j, places *p, char *memory)
{
    const int64_t size = item(j), wide = j->n > j->k ? j->n : j->k;
    size_t used = 0;
    p->count = j->m < j->n ? j->m : j->n;
    p->row = spread(j->n);
    p->apart = (j->m + 15) / 16 * 16 + 16;
    p->a = part(memory, &used, j->m * p->row, size);
    p->v = part(memory, &used, p->count * p->apart, size);
    p->t = part(memory, &used, p->count * WIDTH, size);
    p->tau = part(memory, &used, p->count, size);
    p->w = part(memory, &used, 2 * WIDTH * (wide > WIDTH ? wide : WIDTH), size);
    p->q = part(memory, &used, j->m * spread(j->k), size);
    return used;
}

/* Without Q, the last block needs no T. */
static int factor(const job *j, int64_t index, const places *p, int with_q)
{
    load(j->a, index, 0, p->a, p->row);
    if (j->wide)
        return factor_f64((double *)p->a, p->row, j->m, j->n, (double *)p->v, p->apart, (double *)p->t, (double *)p->tau,
                          (double *)p->w, with_q);
    return factor_f32((float *)p->a, p->row, j->m, j->n, (float *)p->v, p->apart, (float *)p->t, (float *)p->tau,
                      (float *)p->w, with_q);
}

static void qr_one(job *j, int64_t index, char *memory)
{
    const tg_view *q_out = &j->call->outs[0], *r_out = &j->call->outs[1];
    const int64_t rows = r_out->shape[r_out->ndim - 2], size = item(j);
    places p;
    lay_out(j, &p, memory);
    int status = factor(j, index, &p, j->k > 0);
    for (int64_t i = 0; i < rows; i++)
        memset(p.a + i * p.row * size, 0, (size_t)((i < j->n ? i : j->n) * size));
    unload(r_out, index, 0, p.a, p.row);
    if (j->k > 0 && status == 0) {
        int64_t row = spread(j->k);
        char *q = p.q;
        if (in_place(q_out)) {
            q = place(q_out, 2, index);
            row = q_out->strides[q_out->ndim - 2];
        }
        if (j->wide)
            status = generate_f64((double *)q, row, j->m, j->k, p.count, (double *)p.v, p.apart, (double *)p.t,
                                  (double *)p.w);
        else
            status = generate_f32((float *)q, row, j->m, j->k, p.count, (float *)p.v, p.apart, (float *)p.t, (float *)p.w);
        if (!in_place(q_out))
            unload(q_out, index, 0, q, row);
    }
    if (status < 0)
        atomic_store(&j->failed, 1);
}

static int qr(const tg_call *call, void *context)
{
    job j = begin(call, qr_one);
    const tg_view *q = &call->outs[0];
    places p;
    (void)context;
    j.k = q->ndim >= 2 ? q->shape[q->ndim - 1] : 0; /* without Q its place is a vector of none */
    j.bytes = lay_out(&j, &p, NULL);
    return run(&j, "linalg_qr", 2 * (double)j.m * (double)j.n * (double)p.count);
}

/* R on and above the diagonal, below it the reflections but for their ones. */
static void reflections_one(job *j, int64_t index, char *memory)
{
    const tg_view *tau = &j->call->outs[1];
    const int64_t size = item(j);
    places p;
    lay_out(j, &p, memory);
    if (factor(j, index, &p, 0) < 0)
        atomic_store(&j->failed, 1);
    for (int64_t c = 0; c < p.count; c++) {
        int64_t first = c / WIDTH * WIDTH, known = c + 1 - first;
        move(p.a + ((c + 1) * p.row + c) * size, p.row, 1, p.v + (c * p.apart + known) * size, 1, 1, j->m - c - 1, 1, size);
        memcpy(place(tau, 1, index) + c * tau->strides[tau->ndim - 1] * size, p.tau + c * size, (size_t)size);
    }
    unload(&j->call->outs[0], index, 0, p.a, p.row);
}

static int geqrf(const tg_call *call, void *context)
{
    job j = begin(call, reflections_one);
    places p;
    (void)context;
    j.bytes = lay_out(&j, &p, NULL);
    return run(&j, "geqrf", (double)j.m * (double)j.n * (double)p.count);
}

const tgc_kernel TGC(tgc_table_orthogonalization)[] = {
    {"linalg_qr", "float32", TGC_CALL, qr, NULL},
    {"linalg_qr", "float64", TGC_CALL, qr, NULL},
    {"geqrf", "float32", TGC_CALL, geqrf, NULL},
    {"geqrf", "float64", TGC_CALL, geqrf, NULL},
    {0},
};
