/* LU and Cholesky factors, solutions, inverses and determinants of real matrices, systems of triangles
 * and of Cholesky factors. Complex ones stay with the reference, which calls LAPACK. */
#include "matrices.h"

#include <math.h>
#include <string.h>

#define BLOCK 64 /* columns eliminated from the rest at once */
#define LEAF 16  /* columns factored one by one */
#define PACKING_PAYS 3 /* panels that read the same packed factor */

#define EL_T float
#define EL_V tgc_vf
#define EL_I uint32_t
#define EL_FMA tgc_fma_f
#define EL_READ(p) ((tgc_vf)*(const tgc_vf_unaligned *)(p))
#define EL_LOAD tgc_load_f
#define EL_STORE tgc_store_f
#define EL_ENGINE TGC(tgc_engine_f32)
#define EL_LEAST 1.17549435e-38f
#define EL_BITS 32
#define EL(name) name##_f32
#include "elimination.h"
#define EL_T double
#define EL_V tgc_vd
#define EL_I uint64_t
#define EL_FMA tgc_fma_d
#define EL_READ(p) ((tgc_vd)*(const tgc_vd_unaligned *)(p))
#define EL_LOAD tgc_load_d
#define EL_STORE tgc_store_d
#define EL_ENGINE TGC(tgc_engine_f64)
#define EL_LEAST 2.2250738585072014e-308
#define EL_BITS 64
#define EL(name) name##_f64
#include "elimination.h"

static void put_number(const tg_view *view, int64_t index, int64_t value)
{
    *(int32_t *)place(view, 0, index) = (int32_t)value;
}

static void put_pivots(const tg_view *view, int64_t index, const int32_t *pivots)
{
    char *to = place(view, 1, index);
    for (int64_t i = 0; i < view->shape[view->ndim - 1]; i++)
        ((int32_t *)to)[i * view->strides[view->ndim - 1]] = pivots[i] + 1;
}

static void fill_nan(const job *j, char *x, int64_t row, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            if (j->wide)
                ((double *)x)[i * row + k] = NAN;
            else
                ((float *)x)[i * row + k] = NAN;
}

static size_t working_bytes(const job *j, int64_t rows)
{
    return (size_t)(j->wide ? 8 * working_f64(rows) : 4 * working_f32(rows)) + 64;
}

static int64_t factor(const job *j, char *a, int64_t row, int64_t m, int64_t n, int32_t *pivots, char *work)
{
    if (m <= SMALL && n <= SMALL)
        return j->wide ? factor_small_f64((double *)a, row, m, n, pivots) : factor_small_f32((float *)a, row, m, n, pivots);
    return j->wide ? factor_f64((double *)a, row, m, n, pivots, NULL, 0, 0, (double *)work)
                   : factor_f32((float *)a, row, m, n, pivots, NULL, 0, 0, (float *)work);
}

static int64_t solve(const job *j, char *a, int64_t row, char *x, int64_t x_row, int64_t cols, int32_t *pivots, char *work)
{
    return j->wide ? solve_f64((double *)a, row, j->n, (double *)x, x_row, cols, pivots, (double *)work)
                   : solve_f32((float *)a, row, j->n, (float *)x, x_row, cols, pivots, (float *)work);
}

/* --- factors ------------------------------------------------------------------------------------ */

static void factor_one(job *j, int64_t index, char *memory)
{
    const tg_view *out = &j->call->outs[0];
    int32_t *pivots = (int32_t *)memory;
    char *work = aligned(memory + (j->m < j->n ? j->m : j->n) * 4), *a = work + working_bytes(j, j->m);
    int64_t row = spread(j->n);
    if (in_place(out)) {
        a = place(out, 2, index);
        row = out->strides[out->ndim - 2];
    }
    load(j->a, index, 0, a, row);
    int64_t zero = factor(j, a, row, j->m, j->n, pivots, work);
    if (!in_place(out))
        unload(out, index, 0, a, row);
    put_pivots(&j->call->outs[1], index, pivots);
    put_number(&j->call->outs[2], index, zero);
}

static int lu_factor(const tg_call *call, void *context)
{
    job j = begin(call, factor_one);
    (void)context;
    int64_t least = j.m < j.n ? j.m : j.n;
    j.bytes = (size_t)(least * 4 + j.m * spread(j.n) * item(&j)) + working_bytes(&j, j.m) + 128;
    if (run(&j, "linalg_lu_factor", (double)least * (double)j.m * (double)j.n / 2) < 0)
        return -1;
    return refuse(&call->outs[2], &call->args[2],
                  "U[%1$d,%1$d] is zero and using it on lu_solve would result in a division by zero. If you still want "
                  "to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)");
}

/* The lower factor is the upper one of the same matrix, turned. */
static void definite_one(job *j, int64_t index, char *memory)
{
    const tg_view *out = &j->call->outs[0];
    int64_t n = j->n, row = spread(n), direct = j->upper && in_place(out);
    char *a = memory;
    if (direct) {
        a = place(out, 2, index);
        row = out->strides[out->ndim - 2];
    }
    load(j->a, index, !j->upper, a, row);
    int64_t failed = j->wide ? definite_f64((double *)a, row, n, BLOCK) : definite_f32((float *)a, row, n, BLOCK);
    for (int64_t i = 1; i < n; i++)
        memset(a + i * row * item(j), 0, (size_t)(i * item(j)));
    if (!direct)
        unload(out, index, !j->upper, a, row);
    put_number(&j->call->outs[1], index, failed);
}

static int cholesky(const tg_call *call, void *context)
{
    job j = begin(call, definite_one);
    (void)context;
    j.upper = (int)call->args[1].value.i;
    j.bytes = (size_t)(j.n * spread(j.n) * item(&j)) + 64;
    if (run(&j, "linalg_cholesky", (double)j.n * (double)j.n * (double)j.n / 6) < 0)
        return -1;
    return refuse(&call->outs[1], &call->args[2],
                  "The factorization could not be completed because the input is not positive-definite (the leading "
                  "minor of order %d is not positive-definite).");
}

/* --- solutions ---------------------------------------------------------------------------------- */

static void solve_one(job *j, int64_t index, char *memory)
{
    const tg_view *out = &j->call->outs[0], *b = &j->call->args[1].value.tensors[0];
    int32_t *pivots = (int32_t *)memory;
    char *work = aligned(memory + j->n * 4), *a = work + working_bytes(j, j->n) / 64 * 64;
    int64_t row = spread(j->n), x_row = spread(j->k);
    char *x = a + j->n * row * item(j);
    if (in_place(out)) {
        x = place(out, 2, index);
        x_row = out->strides[out->ndim - 2];
    }
    load(j->a, index, 0, a, row);
    load(b, index, 0, x, x_row);
    int64_t zero = solve(j, a, row, x, x_row, j->k, pivots, work);
    if (zero)
        fill_nan(j, x, x_row, j->n, j->k);
    if (!in_place(out))
        unload(out, index, 0, x, x_row);
    put_number(&j->call->outs[1], index, zero);
}

static int linear_solve(const tg_call *call, void *context)
{
    job j = begin(call, solve_one);
    const tg_view *b = &call->args[1].value.tensors[0];
    (void)context;
    j.k = b->shape[b->ndim - 1];
    j.bytes = (size_t)(j.n * 4 + j.n * (spread(j.n) + spread(j.k)) * item(&j)) + working_bytes(&j, j.n) + 128;
    if (run(&j, "linalg_solve", (double)j.n * (double)j.n * ((double)j.n / 3 + (double)j.k)) < 0)
        return -1;
    return refuse(&call->outs[1], &call->args[2], "The solver failed because the input matrix is singular.");
}

/* --- inverses ----------------------------------------------------------------------------------- */

static void invert_one(job *j, int64_t index, char *memory)
{
    const tg_view *out = &j->call->outs[0];
    int64_t n = j->n, row = spread(n), out_row = row, zero;
    int32_t *pivots = (int32_t *)memory;
    char *work = aligned(memory + n * 8), *a = work + working_bytes(j, n) / 64 * 64, *x = a + n * row * item(j), *to = a;
    load(j->a, index, 0, a, row);
    if (in_place(out)) {
        to = place(out, 2, index);
        out_row = out->strides[out->ndim - 2];
    }
    if (j->wide)
        zero = invert_f64((double *)a, row, n, (double *)to, out_row, (double *)x, row, pivots, pivots + n, (double *)work);
    else
        zero = invert_f32((float *)a, row, n, (float *)to, out_row, (float *)x, row, pivots, pivots + n, (float *)work);
    if (zero)
        fill_nan(j, to, out_row, n, n);
    if (!in_place(out))
        unload(out, index, 0, to, out_row);
    put_number(&j->call->outs[1], index, zero);
}

static int inverse(const tg_call *call, void *context)
{
    job j = begin(call, invert_one);
    (void)context;
    j.bytes = (size_t)(j.n * 8 + 2 * j.n * spread(j.n) * item(&j)) + working_bytes(&j, j.n) + 128;
    if (run(&j, "linalg_inv", (double)j.n * (double)j.n * (double)j.n) < 0)
        return -1;
    return refuse(&call->outs[1], &call->args[1],
                  "The diagonal element %d is zero, the inversion could not be completed because the input matrix is "
                  "singular.");
}

/* --- determinants ------------------------------------------------------------------------------- */

static void put_real(const tg_view *view, int64_t index, double value)
{
    char *to = place(view, 0, index);
    if (view->dtype == TGC_FLOAT64)
        *(double *)to = value;
    else
        *(float *)to = (float)value;
}

/* det: the product of the pivots. slogdet: the product of their signs, the sum of their logarithms. */
static void determinant_one(job *j, int64_t index, char *memory)
{
    int64_t n = j->n, row = spread(n);
    int32_t *pivots = (int32_t *)memory;
    char *work = aligned(memory + n * 4), *a = work + working_bytes(j, n) / 64 * 64;
    double product = 1, sign = 1, size = 0;
    load(j->a, index, 0, a, row);
    factor(j, a, row, n, n, pivots, work);
    for (int64_t i = 0; i < n; i++) {
        double value = j->wide ? ((double *)a)[i * row + i] : (double)((float *)a)[i * row + i];
        value = pivots[i] != i ? -value : value;
        product *= value;
        if (j->call->nout == 2) {
            sign *= value != value ? value : (value > 0) - (value < 0);
            /* A row exchanged with another changes the sign alone. */
            size += log(fabs(value));
        }
    }
    if (j->call->nout == 2) {
        put_real(&j->call->outs[0], index, sign);
        put_real(&j->call->outs[1], index, size);
    } else {
        put_real(&j->call->outs[0], index, product);
    }
}

static int determinant(const tg_call *call, void *context)
{
    job j = begin(call, determinant_one);
    (void)context;
    j.bytes = (size_t)(j.n * 4 + j.n * spread(j.n) * item(&j)) + working_bytes(&j, j.n) + 128;
    return run(&j, call->nout == 2 ? "linalg_slogdet" : "linalg_det", (double)j.n * (double)j.n * (double)j.n / 3);
}

/* --- triangular systems ------------------------------------------------------------------------- */

static void solve_triangle(const job *j, const char *t, int64_t row, int upper, char *x, int64_t x_row, int64_t cols,
                           int half, char *work)
{
    if (j->wide)
        solve_triangle_f64((const double *)t, row, j->n, upper, j->unit, (double *)x, x_row, cols, half, (double *)work);
    else
        solve_triangle_f32((const float *)t, row, j->n, upper, j->unit, (float *)x, x_row, cols, half, (float *)work);
}

/* X A = B reads A^T X^T = B^T. */
static void triangular_one(job *j, int64_t index, char *memory)
{
    const tg_view *out = &j->call->outs[0], *b = &j->call->args[1].value.tensors[0], *a = j->a;
    int64_t n = j->n, row = spread(n), x_row = spread(j->k);
    char *work = memory, *t = work + working_bytes(j, n) / 64 * 64, *x = t + n * row * item(j);
    int turned = !j->left, direct = j->left && in_place(out);
    if (!turned && a->strides[a->ndim - 1] == 1) {
        t = place(a, 2, index);
        row = a->strides[a->ndim - 2];
    } else {
        load(a, index, turned, t, row);
    }
    if (direct) {
        x = place(out, 2, index);
        x_row = out->strides[out->ndim - 2];
    }
    load(b, index, turned, x, x_row);
    solve_triangle(j, t, row, turned ? !j->upper : j->upper, x, x_row, j->k, 0, work);
    if (!direct)
        unload(out, index, turned, x, x_row);
}

static int solve_triangular(const tg_call *call, void *context)
{
    job j = begin(call, triangular_one);
    const tg_view *b = &call->args[1].value.tensors[0];
    (void)context;
    j.upper = (int)call->args[2].value.i;
    j.left = (int)call->args[3].value.i;
    j.unit = (int)call->args[4].value.i;
    j.k = b->shape[b->ndim - (j.left ? 1 : 2)];
    j.bytes = (size_t)(j.n * (spread(j.n) + spread(j.k)) * item(&j)) + working_bytes(&j, j.n) + 128;
    return run(&j, "linalg_solve_triangular", (double)j.n * (double)j.n * (double)j.k / 2);
}

/* Solve L L^T X = B; without B for the identity, where the result is symmetric. */
static void solve_definite_one(job *j, int64_t index, char *memory)
{
    const tg_view *out = &j->call->outs[0];
    int64_t n = j->n, row = spread(n), x_row = spread(j->k);
    char *work = memory, *t = work + working_bytes(j, n) / 64 * 64, *x = t + n * row * item(j);
    int identity = j->call->nargs == 2;
    if (in_place(out)) {
        x = place(out, 2, index);
        x_row = out->strides[out->ndim - 2];
    }
    if (identity)
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < n; k++)
                if (j->wide)
                    ((double *)x)[i * x_row + k] = i == k;
                else
                    ((float *)x)[i * x_row + k] = i == k;
    else
        load(&j->call->args[0].value.tensors[0], index, 0, x, x_row);
    load(j->a, index, j->upper, t, row);
    solve_triangle(j, t, row, 0, x, x_row, j->k, identity, work);
    load(j->a, index, !j->upper, t, row);
    solve_triangle(j, t, row, 1, x, x_row, j->k, identity, work);
    for (int64_t i = 1; identity && i < n; i++)
        move(x + i * item(j), x_row, x_row, x + i * x_row * item(j), x_row, 1, 1, i, item(j));
    if (!in_place(out))
        unload(out, index, 0, x, x_row);
}

static int solve_definite(const tg_call *call, void *context)
{
    job j = begin(call, solve_definite_one);
    int identity = call->nargs == 2;
    (void)context;
    j.a = &call->args[identity ? 0 : 1].value.tensors[0];
    j.n = j.a->shape[j.a->ndim - 1];
    j.upper = (int)call->args[identity ? 1 : 2].value.i;
    j.k = call->outs[0].shape[call->outs[0].ndim - 1];
    j.bytes = (size_t)(j.n * (spread(j.n) + spread(j.k)) * item(&j)) + working_bytes(&j, j.n) + 128;
    return run(&j, identity ? "cholesky_inverse" : "cholesky_solve", (double)j.n * (double)j.n * (double)j.k);
}

/* --- orders of rows ----------------------------------------------------------------------------- */

static int row_order(const tg_call *call, void *context)
{
    const tg_view *pivots = &call->args[0].value.tensors[0], *out = &call->outs[0];
    int64_t size = call->args[1].value.i, count = pivots->shape[pivots->ndim - 1];
    int64_t batch = size > 0 ? out->numel / size : 0;
    int64_t step = pivots->strides[pivots->ndim - 1], apart = out->strides[out->ndim - 1];
    (void)context;
    for (int64_t index = 0; index < batch; index++) {
        const int32_t *given = (const int32_t *)place(pivots, 1, index);
        int64_t *order = (int64_t *)place(out, 1, index);
        for (int64_t i = 0; i < size; i++)
            order[i * apart] = i;
        for (int64_t i = 0; i < count; i++) {
            int64_t other = given[i * step] - 1, kept = order[i * apart];
            if (other < 0 || other >= size)
                return tgc_error("RuntimeError",
                                 "pivots of an LU factorization must be between 1 and the number of rows, %lld, but "
                                 "got %d; pass those that linalg.lu_factor gave",
                                 (long long)size, (int)given[i * step]);
            order[i * apart] = order[other * apart];
            order[other * apart] = kept;
        }
    }
    return 0;
}

#define FOR_DTYPE(dtype)                                                        \
    {"_linalg_lu_factor", dtype, TGC_CALL, lu_factor, NULL},                    \
        {"_linalg_solve", dtype, TGC_CALL, linear_solve, NULL},                 \
        {"_linalg_inverse", dtype, TGC_CALL, inverse, NULL},                    \
        {"linalg_det", dtype, TGC_CALL, determinant, NULL},                     \
        {"linalg_slogdet", dtype, TGC_CALL, determinant, NULL},                 \
        {"_linalg_solve_triangular", dtype, TGC_CALL, solve_triangular, NULL},  \
        {"_linalg_cholesky", dtype, TGC_CALL, cholesky, NULL},                  \
        {"_cholesky_solve", dtype, TGC_CALL, solve_definite, NULL},             \
        {"cholesky_inverse", dtype, TGC_CALL, solve_definite, NULL}

const tgc_kernel TGC(tgc_table_linear_systems)[] = {
    FOR_DTYPE("float32"),
    FOR_DTYPE("float64"),
    {"_linalg_row_order", "int32", TGC_CALL, row_order, NULL},
    {0},
};
