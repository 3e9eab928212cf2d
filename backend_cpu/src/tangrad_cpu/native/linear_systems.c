/* Systems of linear equations, inverses, triangular systems: matrices of a stack are tasks; a large one
 * is worked on by the threads of its products. Matrices are copied first, so that operands may have any
 * strides and results may be laid out as they like. */
#include "copying.h"
#include "gemm/gemm.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LS_NAME f32
#define LS_T float
#define LS_ABS fabsf
#define LS_PRODUCT TGC(tgc_gemm_f32)
#include "linear_systems_rows.h"

#define LS_NAME f64
#define LS_T double
#define LS_ABS fabs
#define LS_PRODUCT TGC(tgc_gemm_f64)
#include "linear_systems_rows.h"

#define TASK_STEPS (1 << 18) /* least multiplications of a task worth handing to a thread */

typedef struct stack {
    const tg_view *a, *b, *x, *info; /* b, info: NULL where there is none */
    int64_t n, cols;                 /* of the matrix; of right sides */
    int upper, left, unit;
    int64_t count, tasks;
    size_t bytes; /* of working memory per task */
    int (*matrix)(const struct stack *s, int64_t index, char *memory);
    _Atomic int failed;
} stack;

/* The bytes from the start of a tensor to matrix `index` of a stack, or to its number. */
static int64_t place(const tg_view *view, int inner, int64_t index)
{
    int64_t at = 0;
    for (int d = view->ndim - inner - 1; d >= 0; d--) {
        at += index % view->shape[d] * view->strides[d];
        index /= view->shape[d];
    }
    return at * tgc_itemsize[view->dtype];
}

/* Copy a matrix of the stack to packed rows, transposed if asked, or back. */
static void fetch(const tg_view *view, int64_t index, char *to, int transposed)
{
    const int last = view->ndim - 1, item = tgc_itemsize[view->dtype];
    const int row = transposed ? last : last - 1, col = transposed ? last - 1 : last;
    const int64_t shape[2] = {view->shape[row], view->shape[col]}, packed[2] = {shape[1] * item, item};
    const int64_t strides[2] = {view->strides[row] * item, view->strides[col] * item};
    if (shape[0] * shape[1] == 0)
        return;
    TGC(tgc_move_region)(2, shape, to, packed, (char *)view->data + place(view, 2, index), strides, item);
}

static void give(const tg_view *view, int64_t index, const char *from, int transposed)
{
    const int last = view->ndim - 1, item = tgc_itemsize[view->dtype];
    const int row = transposed ? last : last - 1, col = transposed ? last - 1 : last;
    const int64_t shape[2] = {view->shape[row], view->shape[col]}, packed[2] = {shape[1] * item, item};
    const int64_t strides[2] = {view->strides[row] * item, view->strides[col] * item};
    if (shape[0] * shape[1] == 0)
        return;
    TGC(tgc_move_region)(2, shape, (char *)view->data + place(view, 2, index), strides, from, packed, item);
}

static void tell(const stack *s, int64_t index, int64_t zero)
{
    *(int32_t *)((char *)s->info->data + place(s->info, 0, index)) = (int32_t)zero;
}

/* Row i of the permuted matrix is row order[i] of the matrix. */
static void order_rows(int64_t n, const int64_t *pivots, int64_t *order)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = 0; i < n; i++) {
        const int64_t kept = order[i];
        order[i] = order[pivots[i]];
        order[pivots[i]] = kept;
    }
}

#define OF_TYPE(NAME, T)                                                                                               \
    static int NAME##_system(const stack *s, int64_t index, char *memory)                                              \
    {                                                                                                                  \
        const int64_t n = s->n, cols = s->cols;                                                                        \
        int64_t *pivots = (int64_t *)memory, *order = pivots + n, zero = 0;                                            \
        T *lu = (T *)(order + n), *panel = lu + n * n, *given = panel + LS_LEAF * n, *x = given + n * cols;            \
        fetch(s->a, index, (char *)lu, 0);                                                                             \
        if (NAME##_factor(n, n, lu, n, pivots, panel, &zero) < 0)                                                      \
            return -1;                                                                                                 \
        tell(s, index, zero);                                                                                          \
        order_rows(n, pivots, order);                                                                                  \
        NAME##_negate(n, 1, lu);                                                                                       \
        if (zero != 0) {                                                                                               \
            for (int64_t i = 0; i < n * cols; i++)                                                                     \
                x[i] = (T)NAN;                                                                                         \
        } else if (s->b != NULL) {                                                                                     \
            fetch(s->b, index, (char *)given, 0);                                                                      \
            for (int64_t i = 0; i < n; i++)                                                                            \
                memcpy(x + i * cols, given + order[i] * cols, (size_t)cols * sizeof(T));                               \
            if (NAME##_solve(n, 1, 1, lu, n, x, cols, cols) < 0 || NAME##_solve(n, 0, 0, lu, n, x, cols, cols) < 0)    \
                return -1;                                                                                             \
        } else {                                                                                                       \
            memset(given, 0, (size_t)(n * n) * sizeof(T));                                                             \
            if (NAME##_invert_unit(n, lu, n, given, n) < 0 || NAME##_solve(n, 0, 0, lu, n, given, n, n) < 0)           \
                return -1;                                                                                             \
            for (int64_t i = 0; i < n; i++)                                                                            \
                for (int64_t j = 0; j < n; j++)                                                                        \
                    x[i * n + order[j]] = given[i * n + j];                                                            \
        }                                                                                                              \
        give(s->x, index, (char *)x, 0);                                                                               \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static int NAME##_triangle(const stack *s, int64_t index, char *memory)                                            \
    {                                                                                                                  \
        const int64_t n = s->n, cols = s->cols;                                                                        \
        const int upper = s->left ? s->upper : !s->upper;                                                              \
        T *t = (T *)memory, *x = t + n * n;                                                                            \
        fetch(s->a, index, (char *)t, !s->left);                                                                       \
        fetch(s->b, index, (char *)x, !s->left);                                                                       \
        NAME##_negate(n, upper, t);                                                                                    \
        if (NAME##_solve(n, !upper, s->unit, t, n, x, cols, cols) < 0)                                                 \
            return -1;                                                                                                 \
        give(s->x, index, (char *)x, !s->left);                                                                        \
        return 0;                                                                                                      \
    }

OF_TYPE(f32, float)
OF_TYPE(f64, double)

static void task(int64_t number, void *context)
{
    stack *s = context;
    char *memory = tgc_scratch(s->bytes);
    const int64_t end = tgc_begin(s->count, s->tasks, number + 1, 1);
    for (int64_t index = tgc_begin(s->count, s->tasks, number, 1); memory != NULL && index < end; index++)
        if (s->matrix(s, index, memory) < 0)
            atomic_store(&s->failed, 1);
    if (memory == NULL)
        atomic_store(&s->failed, 1);
    tgc_scratch_free(memory);
}

static int run(stack *s, const char *op)
{
    const int64_t steps = s->n * s->n * (s->n + s->cols);
    const int64_t grain = steps > 0 ? TASK_STEPS / steps + 1 : 1;
    s->count = 1;
    for (int d = 0; d < s->a->ndim - 2; d++)
        s->count *= s->a->shape[d];
    s->tasks = tgc_tasks(s->count, grain, 64);
    if (s->count > 0)
        tgc_parallel(s->tasks, task, s);
    /* A worker's own exception is lost with it. */
    return s->failed ? tgc_no_memory(op, s->bytes) : 0;
}

/* Refuse the first number that is not zero, as the op's reference does. */
static int check(const stack *s, const char *name, const char *format)
{
    for (int64_t index = 0; name[0] != 0 && index < s->info->numel; index++) {
        const int zero = *(const int32_t *)((char *)s->info->data + place(s->info, 0, index));
        if (zero == 0)
            continue;
        char which[1024] = "", text[256];
        int64_t below = s->info->numel, rest = index;
        size_t used = 0;
        for (int d = 0; d < s->info->ndim && used + 32 < sizeof which; d++) {
            below /= s->info->shape[d];
            used += (size_t)snprintf(which + used, sizeof which - used, "%s%lld", d ? ", " : " (Batch element ",
                                     (long long)(rest / below));
            rest %= below;
        }
        snprintf(text, sizeof text, format, zero);
        return tgc_error("tangrad.linalg.LinAlgError", "%s:%s%s %s", name, which, used ? "):" : "", text);
    }
    return 0;
}

static size_t item(const tg_call *call)
{
    return (size_t)tgc_itemsize[call->outs[0].dtype];
}

static int solve(const tg_call *call, void *context)
{
    const tg_view *a = call->args[0].value.tensors, *b = call->args[1].value.tensors;
    const int64_t n = a->shape[a->ndim - 1], cols = b->shape[b->ndim - 1];
    stack s = {.a = a, .b = b, .x = &call->outs[0], .info = &call->outs[1], .n = n, .cols = cols};
    s.matrix = item(call) == 4 ? f32_system : f64_system;
    s.bytes = 2 * (size_t)n * sizeof(int64_t) + (size_t)(n * (n + LS_LEAF + 2 * cols)) * item(call);
    (void)context;
    if (run(&s, "linalg.solve") < 0)
        return -1;
    return check(&s, call->args[2].value.text, "The solver failed because the input matrix is singular.");
}

static int inverse(const tg_call *call, void *context)
{
    const tg_view *a = call->args[0].value.tensors;
    const int64_t n = a->shape[a->ndim - 1];
    stack s = {.a = a, .x = &call->outs[0], .info = &call->outs[1], .n = n, .cols = n};
    s.matrix = item(call) == 4 ? f32_system : f64_system;
    s.bytes = 2 * (size_t)n * sizeof(int64_t) + (size_t)(n * (3 * n + LS_LEAF)) * item(call);
    (void)context;
    if (run(&s, "linalg.inv") < 0)
        return -1;
    return check(&s, call->args[1].value.text,
                 "The diagonal element %d is zero, the inversion could not be completed because the input matrix is "
                 "singular.");
}

static int solve_triangular(const tg_call *call, void *context)
{
    const tg_view *a = call->args[0].value.tensors, *b = call->args[1].value.tensors;
    const int64_t n = a->shape[a->ndim - 1];
    stack s = {.a = a, .b = b, .x = call->outs, .n = n};
    s.upper = call->args[2].value.i != 0, s.left = call->args[3].value.i != 0, s.unit = call->args[4].value.i != 0;
    s.cols = b->shape[b->ndim - (s.left ? 1 : 2)];
    s.matrix = item(call) == 4 ? f32_triangle : f64_triangle;
    s.bytes = (size_t)(n * (n + s.cols)) * item(call);
    (void)context;
    return run(&s, "linalg.solve_triangular");
}

#define OF_DTYPE(dtype)                                                             \
    {"_linalg_solve", dtype, TGC_CALL, (void *)solve, NULL},                        \
        {"_linalg_inverse", dtype, TGC_CALL, (void *)inverse, NULL},                \
        {"_linalg_solve_triangular", dtype, TGC_CALL, (void *)solve_triangular, NULL}

const tgc_kernel TGC(tgc_table_linear_systems)[] = {
    OF_DTYPE("float32"),
    OF_DTYPE("float64"),
    {0},
};
