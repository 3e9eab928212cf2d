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

/* Write the first columns of Q. */
static int write_q(const job *j, const tg_view *out, int64_t index, const places *p)
{
    int64_t row = spread(j->k);
    char *q = p->q;
    if (in_place(out)) {
        q = place(out, 2, index);
        row = out->strides[out->ndim - 2];
    }
    const int status = j->wide ? generate_f64((double *)q, row, j->m, j->k, p->count, (double *)p->v, p->apart,
                                              (double *)p->t, (double *)p->w)
                               : generate_f32((float *)q, row, j->m, j->k, p->count, (float *)p->v, p->apart,
                                              (float *)p->t, (float *)p->w);
    if (!in_place(out))
        unload(out, index, 0, q, row);
    return status;
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
    if (j->k > 0 && status == 0)
        status = write_q(j, q_out, index, &p);
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

/* Lay the reflections of a matrix out as `factor` leaves them, with the T of each block. */
static int take_reflections(const job *j, int64_t index, const places *p)
{
    const tg_view *tau = j->call->args[1].value.tensors;
    const int64_t size = item(j), row = j->a->strides[j->a->ndim - 2], column = j->a->strides[j->a->ndim - 1];
    const char *a = place(j->a, 2, index), *factors = place(tau, 1, index);
    for (int64_t c = 0; c < p->count; c++)
        memcpy(p->tau + c * size, factors + c * tau->strides[tau->ndim - 1] * size, (size_t)size);
    for (int64_t first = 0; first < p->count; first += WIDTH) {
        const int64_t rows = j->m - first, cols = p->count - first < WIDTH ? p->count - first : WIDTH;
        char *block = p->v + first * p->apart * size, *triangle = p->t + first * WIDTH * size;
        move(block, p->apart, 1, a + first * (row + column) * size, column, row, cols, rows, size);
        for (int64_t c = 0; c < cols; c++) {
            char *x = block + c * p->apart * size;
            memset(x, 0, (size_t)(c * size));
            if (j->wide)
                ((double *)x)[c] = 1;
            else
                ((float *)x)[c] = 1;
        }
        const int status = j->wide ? triangle_f64((double *)block, p->apart, rows, cols, (double *)p->tau + first,
                                                  (double *)triangle, (double *)p->w)
                                   : triangle_f32((float *)block, p->apart, rows, cols, (float *)p->tau + first,
                                                  (float *)triangle, (float *)p->w);
        if (status < 0)
            return -1;
    }
    return 0;
}

static void householder_one(job *j, int64_t index, char *memory)
{
    places p;
    lay_out(j, &p, memory);
    if (take_reflections(j, index, &p) < 0 || write_q(j, &j->call->outs[0], index, &p) < 0)
        atomic_store(&j->failed, 1);
}

static int householder_product(const tg_call *call, void *context)
{
    job j = begin(call, householder_one);
    const tg_view *tau = call->args[1].value.tensors;
    places p;
    (void)context;
    /* As many columns of Q as the matrix has, of as many reflections as there are factors. */
    j.k = j.n;
    j.n = tau->shape[tau->ndim - 1];
    j.bytes = lay_out(&j, &p, NULL);
    return run(&j, "linalg_householder_product", 2 * (double)j.m * (double)j.k * (double)p.count);
}

const tgc_kernel TGC(tgc_table_orthogonalization)[] = {
    {"linalg_qr", "float32", TGC_CALL, qr, NULL},
    {"linalg_qr", "float64", TGC_CALL, qr, NULL},
    {"geqrf", "float32", TGC_CALL, geqrf, NULL},
    {"geqrf", "float64", TGC_CALL, geqrf, NULL},
    {"linalg_householder_product", "float32", TGC_CALL, householder_product, NULL},
    {"linalg_householder_product", "float64", TGC_CALL, householder_product, NULL},
    {0},
};
