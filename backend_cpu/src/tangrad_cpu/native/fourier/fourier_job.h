/* Transforms along one dimension of a tensor: lanes of as many signals, or signal after signal. */

typedef struct FT(plan) {
    int64_t n, half; /* points; half of them where real numbers are taken in pairs, else 0 */
    int by_rows;
    FT(passes) passes;
    FT(row_plan) *row;
    T *roots; /* of n, where there are pairs */
} FT(plan);

static void FT(plan_free)(void *memory)
{
    FT(plan) *plan = memory;
    free(plan->passes.memory);
    FT(row_plan_free)(plan->row);
    free(plan->roots);
    free(plan);
}

static void *FT(plan_make)(int64_t n, int real, int by_rows)
{
    FT(plan) *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return NULL;
    plan->n = n;
    plan->half = real && n % 2 == 0 ? n / 2 : 0;
    plan->by_rows = by_rows;
    const int64_t points = plan->half ? plan->half : n;
    int failed = 0;
    if (by_rows)
        failed = (plan->row = FT(row_plan_make)(points)) == NULL;
    else
        failed = FT(passes_make)(&plan->passes, points) < 0;
    fourier_roots all;
    if (!failed && plan->half) {
        plan->roots = malloc(sizeof(T) * 2 * (size_t)(plan->half + 1));
        failed = plan->roots == NULL || fourier_roots_make(&all, n) < 0;
        for (int64_t k = 0; !failed && k <= plan->half; k++) {
            double re, im;
            fourier_root(&all, k, &re, &im);
            plan->roots[2 * k] = (T)re;
            plan->roots[2 * k + 1] = (T)im;
        }
        if (!failed)
            free(all.fine);
    }
    if (!failed)
        return plan;
    FT(plan_free)(plan);
    return NULL;
}

/* How signals lie in memory: batch dimensions, then the distance within one, in elements of T. */
typedef struct FT(layout) {
    T *data;
    int64_t strides[TG_MAX_DIMS];
    int64_t step;
} FT(layout);

typedef struct FT(job) {
    const FT(plan) *plan;
    int kind, exchanged;
    T scale;
    int ndim; /* of the batch */
    int64_t shape[TG_MAX_DIMS];
    FT(layout) src, dst;
    int64_t signals, groups, tasks;
    size_t bytes;
    atomic_int failed;
} FT(job);

/* Places of a group of signals in both tensors. */
static void FT(find)(const FT(job) *job, int64_t group, FT(group) *x, FT(group) *y)
{
    int64_t index[TG_MAX_DIMS], rest = group * L, from = 0, to = 0;
    for (int d = job->ndim - 1; d >= 0; d--) {
        index[d] = rest % job->shape[d];
        rest /= job->shape[d];
        from += index[d] * job->src.strides[d];
        to += index[d] * job->dst.strides[d];
    }
    *x = (FT(group)){.data = job->src.data, .step = job->src.step};
    *y = (FT(group)){.data = job->dst.data, .step = job->dst.step};
    x->lanes = y->lanes = job->signals - group * L < L ? job->signals - group * L : L;
    for (int64_t l = 0; l < x->lanes; l++) {
        x->offsets[l] = from;
        y->offsets[l] = to;
        if (job->ndim == 1) {
            from += job->src.strides[0];
            to += job->dst.strides[0];
            continue;
        }
        for (int d = job->ndim - 1; d >= 0; d--) {
            from += job->src.strides[d];
            to += job->dst.strides[d];
            if (++index[d] < job->shape[d])
                break;
            from -= index[d] * job->src.strides[d];
            to -= index[d] * job->dst.strides[d];
            index[d] = 0;
        }
    }
}

/* Fill up what a one-sided spectrum of an odd number of points leaves out, exchanged. */
static void FT(mirror)(const T *x, int64_t n, T *z)
{
    const V none = {0};
    for (int64_t k = 0; 2 * k < n; k++) {
        const V re = FT(at)(x + k * 2 * L), im = k > 0 ? FT(at)(x + k * 2 * L + L) : none;
        const int64_t other = k > 0 ? n - k : 0;
        FT(put)(z + other * 2 * L, -im);
        FT(put)(z + other * 2 * L + L, re);
        FT(put)(z + k * 2 * L, im);
        FT(put)(z + k * 2 * L + L, re);
    }
}

static void FT(lanes_of_complex)(const FT(job) *job, const FT(group) *x, const FT(group) *y, T *buffers)
{
    const FT(passes) *passes = &job->plan->passes;
    const FT(side) in = {.data = x->data + x->offsets[0], .step = x->step, .exchanged = job->exchanged};
    const FT(side) out = {.data = y->data + y->offsets[0], .step = y->step, .exchanged = job->exchanged, .scale = job->scale};
    const int packed = x->lanes == L && FT(side_by_side)(x, 2);
    if (!packed)
        FT(load)(x, passes->n, job->exchanged, buffers);
    if (y->lanes == L && FT(side_by_side)(y, 2)) {
        FT(transform)(passes, &in, packed ? FT(PACKED) : FT(BUFFER), &out, FT(PACKED), buffers);
        return;
    }
    const T *found = FT(transform)(passes, &in, packed ? FT(PACKED) : FT(BUFFER), NULL, FT(BUFFER), buffers);
    FT(unload)(y, passes->n, job->exchanged, job->scale, found);
}

static void FT(lanes)(const FT(job) *job, int64_t group, T *buffers)
{
    const FT(plan) *plan = job->plan;
    const FT(passes) *passes = &plan->passes;
    const int64_t n = plan->n, h = plan->half;
    T *more = buffers + 2 * 2 * L * passes->n;
    FT(group) x, y;
    FT(find)(job, group, &x, &y);
    if (job->kind == FOURIER_C2C) {
        FT(lanes_of_complex)(job, &x, &y, buffers);
        return;
    }
    if (job->kind == FOURIER_R2C)
        FT(load_real)(&x, n, h > 0, buffers);
    else {
        FT(load)(&x, n / 2 + 1, 0, more);
        if (h)
            FT(part_halves)(more, h, plan->roots, buffers);
        else
            FT(mirror)(more, n, buffers);
    }
    const T *found = FT(transform)(passes, NULL, FT(BUFFER), NULL, FT(BUFFER), buffers);
    if (job->kind == FOURIER_C2R)
        FT(unload_real)(&y, n, h > 0, job->scale, found);
    else {
        if (h)
            FT(join_halves)(found, h, plan->roots, more);
        FT(unload)(&y, n / 2 + 1, 0, job->scale, h ? more : found);
    }
}

/* Numbers of T that a signal takes before and after. */
static void FT(sizes)(const FT(job) *job, int64_t *before, int64_t *after)
{
    const int64_t n = job->plan->n;
    *before = job->kind == FOURIER_C2C ? 2 * n : job->kind == FOURIER_R2C ? n : 2 * (n / 2 + 1);
    *after = job->kind == FOURIER_C2C ? 2 * n : job->kind == FOURIER_R2C ? 2 * (n / 2 + 1) : n;
}

/* One signal, from and to contiguous memory, which may be the same if it is complex. */
static int FT(signal)(const FT(job) *job, const T *x, T *y, T *memory, int alone)
{
    const FT(plan) *plan = job->plan;
    const int64_t n = plan->n, h = plan->half;
    T *z = memory, *rest = memory + (2 * (n + 1) + 15) / 16 * 16;
    int status;
    if (job->kind == FOURIER_C2C)
        return FT(row)(plan->row, x, y, job->exchanged, job->scale, rest, alone);
    if (job->kind == FOURIER_R2C && h) {
        status = FT(row)(plan->row, x, z, 0, 1, rest, alone);
        FT(join_row)(z, h, plan->roots, y, job->scale);
    } else if (job->kind == FOURIER_R2C) {
        for (int64_t k = 0; k < n; k++) {
            z[2 * k] = x[k];
            z[2 * k + 1] = 0;
        }
        status = FT(row)(plan->row, z, z, 0, job->scale, rest, alone);
        memcpy(y, z, sizeof(T) * 2 * (size_t)(n / 2 + 1));
    } else if (h) {
        FT(part_row)(x, h, plan->roots, z);
        status = FT(row)(plan->row, z, y, 1, job->scale, rest, alone);
    } else {
        for (int64_t k = 0; 2 * k < n; k++) {
            const int64_t other = k > 0 ? n - k : 0;
            z[2 * other] = x[2 * k];
            z[2 * other + 1] = -x[2 * k + 1];
            z[2 * k] = x[2 * k];
            z[2 * k + 1] = k > 0 ? x[2 * k + 1] : 0;
        }
        status = FT(row)(plan->row, z, z, 1, job->scale, rest, alone);
        for (int64_t k = 0; k < n; k++)
            y[k] = z[2 * k];
    }
    return status;
}

/* Copy signals between their places and rows; `complex` numbers are pairs. */
static void FT(gather)(const FT(group) *g, T *rows, int64_t size, int complex, int back)
{
    for (int64_t i = 0; i < size; i++)
        for (int64_t l = 0; l < g->lanes; l++) {
            T *there = g->data + g->offsets[l] + (complex ? i / 2 * g->step + i % 2 : i * g->step);
            T *here = rows + l * size + i;
            if (back)
                *there = *here;
            else
                *here = *there;
        }
}

static void FT(rows)(FT(job) *job, int64_t group, T *memory, int alone)
{
    int64_t before, after;
    FT(group) x, y;
    FT(find)(job, group, &x, &y);
    FT(sizes)(job, &before, &after);
    const int64_t size = before > after ? before : after;
    const int complex_in = job->kind != FOURIER_R2C, complex_out = job->kind != FOURIER_C2R;
    const int in = x.step != 1 + complex_in, out = y.step != 1 + complex_out;
    T *from = memory, *to = from + (in ? L * size : 0), *rest = to + (out ? L * size : 0);
    if (in)
        FT(gather)(&x, from, before, complex_in, 0);
    for (int64_t l = 0; l < x.lanes; l++) {
        const T *one = in ? from + l * before : x.data + x.offsets[l];
        if (FT(signal)(job, one, out ? to + l * after : y.data + y.offsets[l], rest, alone) < 0)
            atomic_store(&job->failed, 1);
    }
    if (out)
        FT(gather)(&y, to, after, complex_out, 1);
}

static void FT(task)(int64_t task, void *context)
{
    FT(job) *job = context;
    T *memory = tgc_scratch(job->bytes);
    if (memory == NULL) {
        atomic_store(&job->failed, 1);
        return;
    }
    const int64_t end = tgc_begin(job->groups, job->tasks, task + 1, 1);
    for (int64_t g = tgc_begin(job->groups, job->tasks, task, 1); g < end; g++)
        if (job->plan->by_rows)
            FT(rows)(job, g, memory, job->signals == 1);
        else
            FT(lanes)(job, g, memory);
    tgc_scratch_free(memory);
}

static size_t FT(memory_of)(const FT(job) *job)
{
    const FT(plan) *plan = job->plan;
    int64_t before, after;
    if (!plan->by_rows)
        return sizeof(T) * 2 * L * (size_t)(2 * plan->passes.n + plan->n / 2 + 1);
    FT(sizes)(job, &before, &after);
    const int64_t size = before > after ? before : after;
    const int in = job->src.step != (job->kind == FOURIER_R2C ? 1 : 2);
    const int out = job->dst.step != (job->kind == FOURIER_C2R ? 1 : 2);
    return sizeof(T) * (size_t)((in + out) * L * size + 2 * (plan->n + 1) + 16 + FT(row_memory)(plan->row));
}

/* Whether signals of a length go row by row: where lanes would stay empty or leave the cache. */
static int FT(goes_by_rows)(int64_t points, int64_t signals, int contiguous)
{
    int radices[MOST_PASSES];
    if (points == 1)
        return 0;
    if (fourier_factors(points, radices) == 0)
        return 1;
    if (points < 32 || fourier_split(points, L) == 0)
        return 0;
    if (signals < L)
        return contiguous || points > ROWS_FROM;
    return points >= ANY_ROWS_FROM || (contiguous && points >= ROWS_FROM && points % (L * L) == 0);
}

/* Transform along a dimension. */
static int FT(along)(const fourier_call *call)
{
    FT(job) job = {.kind = call->kind, .exchanged = call->inverse, .scale = (T)call->scale, .signals = 1};
    const tg_view *views[2] = {call->src, call->dst};
    FT(layout) *layouts[2] = {&job.src, &job.dst};
    for (int side = 0; side < 2; side++) {
        const tg_view *view = views[side];
        const int size = view->dtype == TGC_COMPLEX64 || view->dtype == TGC_COMPLEX128 ? 2 : 1;
        layouts[side]->data = view->data;
        layouts[side]->step = view->strides[call->dim] * size;
        for (int d = 0, to = 0; d < view->ndim; d++)
            if (d != call->dim)
                layouts[side]->strides[to++] = view->strides[d] * size;
    }
    for (int d = 0; d < call->dst->ndim; d++)
        if (d != call->dim) {
            job.shape[job.ndim++] = call->dst->shape[d];
            job.signals *= call->dst->shape[d];
        }
    const int real = call->kind != FOURIER_C2C;
    const int64_t n = call->n, points = real && n % 2 == 0 ? n / 2 : n;
    const int contiguous = job.src.step == (call->kind == FOURIER_R2C ? 1 : 2)
                           && job.dst.step == (call->kind == FOURIER_C2R ? 1 : 2);
    if (job.signals == 0)
        return 0;
    fourier_kept *kept = fourier_keep(n, real, FT(goes_by_rows)(points, job.signals, contiguous), sizeof(T) == 8);
    if (kept == NULL)
        return tgc_no_memory(call->op, (size_t)n * sizeof(T));
    job.plan = kept->plan;
    job.bytes = FT(memory_of)(&job);
    job.groups = (job.signals + L - 1) / L;
    const double work = (double)(job.signals * n) / (double)TASK_NUMBERS;
    job.tasks = work < 2 ? 1 : work < (double)job.groups ? (int64_t)work : job.groups;
    job.tasks = job.tasks > MOST_TASKS ? MOST_TASKS : job.tasks;
    tgc_parallel(job.tasks, FT(task), &job);
    fourier_release(kept);
    return atomic_load(&job.failed) ? tgc_no_memory(call->op, job.bytes) : 0;
}

#undef V
#undef T
#undef L
#undef C
#undef INLINE
#undef FT_T
#undef FT_V
#undef FT_U
#undef FT_LANES
#undef FT_FMA
#undef FT_TURNS_PAIRS
#undef FT_EVEN
#undef FT_ODD
#undef FT_BACK
#undef FT_LOW
#undef FT_HIGH
#undef FT_TRANSPOSE
#undef FT_PASS
#undef FT
