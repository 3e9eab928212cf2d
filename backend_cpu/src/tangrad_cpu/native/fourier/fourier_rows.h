/* Transforms of one contiguous signal: as a matrix, columns first, where its length divides (Van Loan,
 * 3.3: the four-step form), so that vectors are filled by one signal; else as a convolution of a length
 * that does (L. Bluestein, 1970). */

typedef struct FT(row_plan) {
    int64_t n, first, second, groups; /* groups of lanes that a row of `second` makes */
    FT(passes) columns, rows;
    T *between;                        /* roots that part columns from rows, a vector of each part */
    int64_t convolved;                 /* the length of the convolution, or 0 */
    struct FT(row_plan) *inner;
    T *chirp, *filter; /* exp(-pi i k² / n); the transform of the conjugate chirp */
} FT(row_plan);

static void FT(row_plan_free)(FT(row_plan) *plan)
{
    if (plan == NULL)
        return;
    free(plan->columns.memory);
    free(plan->rows.memory);
    free(plan->between);
    free(plan->chirp);
    FT(row_plan_free)(plan->inner);
    free(plan);
}

static int FT(row)(const FT(row_plan) *plan, const T *src, T *dst, int exchanged, T scale, T *memory, int alone);

/* Elements of T that `row` works with. */
static int64_t FT(row_memory)(const FT(row_plan) *plan)
{
    if (plan->convolved)
        return 2 * plan->convolved + FT(row_memory)(plan->inner);
    const int64_t most = plan->first > plan->second ? plan->first : plan->second;
    return plan->first * plan->groups * 2 * L + 2 * 2 * L * most;
}

static FT(row_plan) *FT(row_plan_make)(int64_t n);

static int FT(make_convolution)(FT(row_plan) *plan)
{
    const int64_t n = plan->n, m = fourier_smooth(2 * n - 1 < 256 ? 256 : 2 * n - 1);
    fourier_roots all;
    plan->convolved = m;
    plan->inner = FT(row_plan_make)(m);
    plan->chirp = calloc((size_t)(2 * n + 2 * m), sizeof(T));
    if (plan->inner == NULL || plan->chirp == NULL || fourier_roots_make(&all, 2 * n) < 0)
        return -1;
    plan->filter = plan->chirp + 2 * n;
    for (int64_t k = 0, square = 0; k < n; square = (square + 2 * k + 1) % (2 * n), k++) {
        double re, im;
        fourier_root(&all, square, &re, &im);
        plan->chirp[2 * k] = (T)re;
        plan->chirp[2 * k + 1] = (T)im;
        T *both[2] = {plan->filter + 2 * k, plan->filter + 2 * (k > 0 ? m - k : 0)};
        for (int side = 0; side < 2; side++) {
            both[side][0] = (T)re;
            both[side][1] = (T)-im;
        }
    }
    free(all.fine);
    T *memory = malloc(sizeof(T) * (size_t)FT(row_memory)(plan->inner) + 64);
    if (memory == NULL)
        return -1;
    FT(row)(plan->inner, plan->filter, plan->filter, 0, (T)(1 / (double)m), memory, 0);
    free(memory);
    return 0;
}

static int FT(make_between)(FT(row_plan) *plan)
{
    const int64_t row = plan->groups * 2 * L;
    fourier_roots all;
    plan->between = aligned_alloc(64, sizeof(T) * (size_t)(plan->first * row));
    if (plan->between == NULL || fourier_roots_make(&all, plan->n) < 0)
        return -1;
    for (int64_t k = 0; k < plan->first; k++)
        for (int64_t j = 0; j < plan->groups * L; j++) {
            double re, im;
            fourier_root(&all, j < plan->second ? j * k : 0, &re, &im);
            T *to = plan->between + k * row + j / L * 2 * L + j % L;
            to[0] = (T)re;
            to[L] = (T)im;
        }
    free(all.fine);
    return 0;
}

/* NULL where there is no memory. */
static FT(row_plan) *FT(row_plan_make)(int64_t n)
{
    FT(row_plan) *plan = calloc(1, sizeof *plan);
    int radices[MOST_PASSES], status;
    if (plan == NULL)
        return NULL;
    plan->n = n;
    plan->first = fourier_factors(n, radices) > 0 ? fourier_split(n, L) : 0;
    if (plan->first == 0)
        status = FT(make_convolution)(plan);
    else {
        plan->second = n / plan->first;
        plan->groups = (plan->second + L - 1) / L;
        status = FT(passes_make)(&plan->columns, plan->first) < 0 || FT(passes_make)(&plan->rows, plan->second) < 0
                         || FT(make_between)(plan) < 0
                     ? -1
                     : 0;
    }
    if (status == 0)
        return plan;
    FT(row_plan_free)(plan);
    return NULL;
}

/* One transform of a matrix's columns, then rows. */
typedef struct FT(matrix) {
    const FT(row_plan) *plan;
    const T *src;
    T *dst, *middle;
    int exchanged, rows;
    T scale;
    int64_t groups, tasks;
    atomic_int failed;
} FT(matrix);

static void FT(column_group)(const FT(matrix) *job, int64_t group, T *buffers)
{
    const FT(row_plan) *plan = job->plan;
    const int64_t at = group * L, left = plan->second - at, apart = plan->groups * 2 * L;
    const FT(side) y = {.data = job->middle + group * 2 * L, .step = apart, .roots = plan->between + group * 2 * L, .roots_step = apart};
    const FT(side) x = {.data = (T *)job->src + 2 * at, .step = 2 * plan->second, .exchanged = job->exchanged};
    if (left >= L) {
        FT(transform)(&plan->columns, &x, FT(PACKED), &y, FT(TIMES), buffers);
        return;
    }
    FT(group) some = {.data = x.data, .lanes = left, .step = x.step};
    for (int64_t l = 0; l < left; l++)
        some.offsets[l] = 2 * l;
    FT(load)(&some, plan->first, job->exchanged, buffers);
    FT(transform)(&plan->columns, NULL, FT(BUFFER), &y, FT(TIMES), buffers);
}

static void FT(row_group)(const FT(matrix) *job, int64_t group, T *buffers)
{
    const FT(row_plan) *plan = job->plan;
    const int64_t at = group * L, left = plan->first - at < L ? plan->first - at : L, apart = plan->groups * 2 * L;
    for (int64_t g = 0; g < plan->groups; g++) {
        V parts[2][L];
        for (int l = 0; l < L; l++) {
            const T *from = job->middle + (at + (l < left ? l : 0)) * apart + g * 2 * L;
            parts[0][l] = FT(at)(from);
            parts[1][l] = FT(at)(from + L);
        }
        FT_TRANSPOSE((FT_U *)parts[0]);
        FT_TRANSPOSE((FT_U *)parts[1]);
        for (int l = 0; l < L && g * L + l < plan->second; l++) {
            FT(put)(buffers + (g * L + l) * 2 * L, parts[0][l]);
            FT(put)(buffers + (g * L + l) * 2 * L + L, parts[1][l]);
        }
    }
    const FT(side) y = {.data = job->dst + 2 * at, .step = 2 * plan->first, .exchanged = job->exchanged, .scale = job->scale};
    if (left == L) {
        FT(transform)(&plan->rows, NULL, FT(BUFFER), &y, FT(PACKED), buffers);
        return;
    }
    FT(group) some = {.data = y.data, .lanes = left, .step = y.step};
    for (int64_t l = 0; l < left; l++)
        some.offsets[l] = 2 * l;
    const T *found = FT(transform)(&plan->rows, NULL, FT(BUFFER), NULL, FT(BUFFER), buffers);
    FT(unload)(&some, plan->second, job->exchanged, job->scale, found);
}

static void FT(matrix_task)(int64_t task, void *context)
{
    FT(matrix) *job = context;
    const int64_t n = job->rows ? job->plan->second : job->plan->first;
    T *buffers = tgc_scratch(sizeof(T) * 2 * 2 * L * (size_t)n);
    if (buffers == NULL) {
        atomic_store(&job->failed, 1);
        return;
    }
    const int64_t end = tgc_begin(job->groups, job->tasks, task + 1, 1);
    for (int64_t g = tgc_begin(job->groups, job->tasks, task, 1); g < end; g++)
        (job->rows ? FT(row_group) : FT(column_group))(job, g, buffers);
    tgc_scratch_free(buffers);
}

static int FT(matrix_row)(const FT(row_plan) *plan, const T *src, T *dst, int exchanged, T scale, T *memory, int alone)
{
    FT(matrix) job = {.plan = plan, .src = src, .dst = dst, .middle = memory, .exchanged = exchanged, .scale = scale};
    T *buffers = memory + plan->first * plan->groups * 2 * L;
    for (job.rows = 0; job.rows < 2; job.rows++) {
        job.groups = job.rows ? (plan->first + L - 1) / L : plan->groups;
        if (alone) {
            job.tasks = tgc_tasks(plan->n, 8192, job.groups < 64 ? job.groups : 64);
            tgc_parallel(job.tasks, FT(matrix_task), &job);
            if (atomic_load(&job.failed))
                return -1;
        } else
            for (int64_t g = 0; g < job.groups; g++)
                (job.rows ? FT(row_group) : FT(column_group))(&job, g, buffers);
    }
    return 0;
}

static void FT(by_chirp)(const T *a, const T *chirp, T *to, int64_t n, int from_exchanged, int to_exchanged, T scale)
{
    const int i = from_exchanged, j = to_exchanged;
    for (int64_t k = 0; k < n; k++) {
        const T x = a[2 * k + i], y = a[2 * k + 1 - i], re = chirp[2 * k], im = chirp[2 * k + 1];
        to[2 * k + j] = (x * re - y * im) * scale;
        to[2 * k + 1 - j] = (x * im + y * re) * scale;
    }
}

/* k l = (k² + l² - (k - l)²) / 2: the transform is a convolution of what is multiplied by the chirp. */
static int FT(convolved_row)(const FT(row_plan) *plan, const T *src, T *dst, int exchanged, T scale, T *memory,
                             int alone)
{
    const int64_t n = plan->n, m = plan->convolved;
    T *signal = memory, *inner = memory + 2 * m;
    FT(by_chirp)(src, plan->chirp, signal, n, exchanged, 0, 1);
    memset(signal + 2 * n, 0, sizeof(T) * 2 * (size_t)(m - n));
    if (FT(row)(plan->inner, signal, signal, 0, 1, inner, alone) < 0)
        return -1;
    FT(by_chirp)(signal, plan->filter, signal, m, 0, 0, 1);
    if (FT(row)(plan->inner, signal, signal, 1, 1, inner, alone) < 0)
        return -1;
    FT(by_chirp)(signal, plan->chirp, dst, n, 0, exchanged, scale);
    return 0;
}

/* Transform n contiguous numbers, in place too; `alone` hands parts to threads. Returns -1 where there
 * is no memory for those. */
static int FT(row)(const FT(row_plan) *plan, const T *src, T *dst, int exchanged, T scale, T *memory, int alone)
{
    return (plan->convolved ? FT(convolved_row) : FT(matrix_row))(plan, src, dst, exchanged, scale, memory, alone);
}

/* The numbers k and h - k of one signal, for k and the lanes after it. */
INLINE void FT(opposite)(const T *z, int64_t h, int64_t k, C *a, C *b)
{
    const C back = FT(unpacked)(z + 2 * (h - k - L + 1), 0);
    *a = FT(unpacked)(z + 2 * k, 0);
    *b = (C){__builtin_shuffle(back.re, (FT_U)FT_BACK), __builtin_shuffle(back.im, (FT_U)FT_BACK)};
}

/* As join_halves, of one signal. */
static void FT(join_row)(const T *z, int64_t h, const T *roots, T *x, T scale)
{
    const T half = (T)0.5 * scale;
    int64_t k = 1;
    x[0] = (z[0] + z[1]) * scale;
    x[2 * h] = (z[0] - z[1]) * scale;
    x[1] = x[2 * h + 1] = 0;
    for (; k + L <= h; k += L) {
        C a, b, low, high;
        FT(opposite)(z, h, k, &a, &b);
        const C root = FT(unpacked)(roots + 2 * k, 0);
        FT(joined)(a, b, root.re, root.im, &low, &high);
        FT(pack)(x + 2 * k, (C){low.re * scale, low.im * scale}, 0);
    }
    for (; k < h; k++) {
        const T *a = z + 2 * k, *b = z + 2 * (h - k);
        const T even_re = half * (a[0] + b[0]), even_im = half * (a[1] - b[1]);
        const T odd_re = half * (a[1] + b[1]), odd_im = half * (b[0] - a[0]);
        const T re = roots[2 * k], im = roots[2 * k + 1];
        x[2 * k] = even_re + (odd_re * re - odd_im * im);
        x[2 * k + 1] = even_im + (odd_re * im + odd_im * re);
    }
}

static void FT(part_row)(const T *x, int64_t h, const T *roots, T *z)
{
    int64_t k = 1;
    z[0] = x[0] + x[2 * h];
    z[1] = x[0] - x[2 * h];
    for (; k + L <= h; k += L) {
        C a, b, low, high;
        FT(opposite)(x, h, k, &a, &b);
        const C root = FT(unpacked)(roots + 2 * k, 0);
        FT(parted)(a, b, root.re, root.im, &low, &high);
        FT(pack)(z + 2 * k, low, 0);
    }
    for (; k < h; k++) {
        const T *a = x + 2 * k, *b = x + 2 * (h - k);
        const T even_re = a[0] + b[0], even_im = a[1] - b[1], odd_re = a[0] - b[0], odd_im = a[1] + b[1];
        const T re = roots[2 * k], im = -roots[2 * k + 1];
        z[2 * k] = even_re - (odd_re * im + odd_im * re);
        z[2 * k + 1] = even_im + (odd_re * re - odd_im * im);
    }
}
