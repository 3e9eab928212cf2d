/* Softmax, log-softmax and their gradients for float32 or float64: SM_T, SM(name), SM_EXP.
 *
 * `row` functions work on one contiguous row, `lanes` functions on n rows of contiguous lanes, each
 * lane its own softmax. Sums of a row are kept in SM_LANES partial sums and handed on to float64
 * after SM_BLOCK elements; the order depends on the length alone. A loop over what a row has beyond
 * whole steps of SM_STEP would not be vectorised: the row's last step is visited instead, which
 * overlaps the one before. */

/* Of a row of at least a step. */
static SM_T SM(maximum)(const SM_T *x, int64_t n)
{
    SM_T lane[SM_LANES];
    for (int k = 0; k < SM_LANES; k++)
        lane[k] = -(SM_T)INFINITY;
    int64_t i = 0;
    for (; i + SM_LANES <= n; i += SM_LANES)
        for (int k = 0; k < SM_LANES; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (; i + SM_STEP <= n; i += SM_STEP)
        for (int k = 0; k < SM_STEP; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    const SM_T *last = x + n - SM_STEP;
    for (int k = 0; k < SM_STEP; k++)
        lane[k] = last[k] > lane[k] ? last[k] : lane[k];
    /* Of a known number of lanes each: they stay in registers. */
#pragma GCC unroll 8
    for (int half = SM_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] = lane[k + half] > lane[k] ? lane[k + half] : lane[k];
    return lane[0];
}

/* exp(x - most) of a step, and the sum of its last elements. */
static SM_T SM(step_powers)(const SM_T *x, SM_T most, int rest, SM_T *power)
{
    SM_T lane[SM_STEP];
    for (int k = 0; k < SM_STEP; k++) {
        power[k] = SM_EXP(x[k] - most);
        lane[k] = k < SM_STEP - rest ? 0 : power[k];
    }
#pragma GCC unroll 8
    for (int half = SM_STEP / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

/* Sum VALUE over a row. */
#define SM_SUM(total, n, VALUE) TGC_ROW_SUM(SM_T, SM_LANES, SM_BLOCK, total, n, VALUE)

/* The same over whole steps; a short row has no use for many partial sums. */
#define SM_SUM_STEPS(total, n, VALUE)                      \
    if ((n) < SM_LANES) {                                  \
        SM_T lane[SM_STEP] = {0};                          \
        for (int64_t i = 0; i < (n); i += SM_STEP)         \
            for (int k = 0; k < SM_STEP; k++) {            \
                const int64_t at = i + k;                  \
                lane[k] += (VALUE);                        \
            }                                              \
        _Pragma("GCC unroll 8") for (int half = SM_STEP / 2; half; half /= 2) \
            for (int k = 0; k < half; k++)                 \
                lane[k] += lane[k + half];                 \
        total += (double)lane[0];                          \
    } else {                                               \
        SM_SUM(total, n, VALUE)                            \
    }

static void SM(softmax_row)(const SM_T *x, SM_T *restrict out, int64_t n)
{
    const int64_t rest = n % SM_STEP, whole = n - rest;
    const SM_T most = SM(maximum)(x, n);
    SM_T power[SM_STEP];
    double sum = 0;
    SM_SUM_STEPS(sum, whole, out[at] = SM_EXP(x[at] - most))
    if (rest)
        sum += (double)SM(step_powers)(x + n - SM_STEP, most, (int)rest, power);
    const SM_T scale = (SM_T)(1 / sum);
    for (int64_t i = 0; i < whole; i++)
        out[i] *= scale;
    if (rest)
        for (int k = 0; k < SM_STEP; k++)
            out[n - SM_STEP + k] = power[k] * scale;
}

/* Of `count` rows, at most SM_ROWS, whose logarithms are lanes of vectors. */
static void SM(log_softmax_rows)(const void *const *given, void *const *outs, int count, int64_t n)
{
    const int64_t rest = n % SM_STEP, whole = n - rest;
    double sums[SM_ROWS];
    SM_T most[SM_ROWS], shift[SM_ROWS], power[SM_STEP];
    for (int r = 0; r < count; r++) {
        const SM_T *x = given[r];
        const SM_T greatest = SM(maximum)(x, n);
        double sum = 0;
        SM_SUM_STEPS(sum, whole, SM_EXP(x[at] - greatest))
        if (rest)
            sum += (double)SM(step_powers)(x + n - SM_STEP, greatest, (int)rest, power);
        most[r] = greatest;
        sums[r] = sum;
    }
    for (int r = count; r < SM_ROWS; r++)
        sums[r] = 1;
    for (int r = 0; r < SM_ROWS; r++)
        shift[r] = (SM_T)tgc_log_f64(sums[r]);
    for (int r = 0; r < count; r++) {
        const SM_T *x = given[r], greatest = most[r], less = shift[r];
        SM_T *restrict out = outs[r];
        for (int64_t i = 0; i < n; i++)
            out[i] = (x[i] - greatest) - less;
    }
}

/* y (g - sum(g y)) */
static void SM(softmax_gradient_row)(const SM_T *g, const SM_T *y, SM_T *restrict out, int64_t n)
{
    double sum = 0;
    SM_SUM(sum, n, g[at] * y[at])
    const SM_T shift = (SM_T)sum;
    for (int64_t i = 0; i < n; i++)
        out[i] = y[i] * (g[i] - shift);
}

/* g - exp(y) scale */
static void SM(less_shared)(const SM_T *g, const SM_T *y, SM_T *restrict out, int64_t n, SM_T scale)
{
    const int64_t whole = n - n % SM_STEP;
    for (int64_t i = 0; i < whole; i++)
        out[i] = g[i] - SM_EXP(y[i]) * scale;
    for (int64_t i = whole < SM_STEP || whole == n ? whole : n - SM_STEP; i < n; i++)
        out[i] = g[i] - SM_EXP(y[i]) * scale;
}

/* g - exp(y) sum(g) */
static void SM(log_softmax_gradient_row)(const SM_T *g, const SM_T *y, SM_T *restrict out, int64_t n)
{
    double sum = 0;
    SM_SUM(sum, n, g[at])
    SM(less_shared)(g, y, out, n, (SM_T)sum);
}

/* The same where one element of g alone, that of the class, is not 0; a class below 0 stands for none. Pieces of g are
 * made as they are wanted. */
static void SM(class_gradient_row)(SM_T owed, const SM_T *y, int64_t class, SM_T *out, int64_t n, int streamed)
{
    enum { PIECE = 1024 };
    _Alignas(64) SM_T g[PIECE + SM_STEP] = {0}, made[PIECE + SM_STEP];
    const SM_T at_class = class < 0 ? 0 : 0 - owed;
    for (int64_t at = 0, some; at < n; at += some) {
        some = n - at < PIECE + SM_STEP ? n - at : PIECE; /* the last piece has a whole step, if the row does */
        const int here = class >= at && class < at + some;
        if (here)
            g[class - at] = at_class;
        SM(less_shared)(g, y + at, streamed ? made : out + at, some, at_class);
        if (here)
            g[class - at] = 0;
        if (streamed)
            tgc_stream(out + at, made, some * (int64_t)sizeof(SM_T));
    }
}

static void SM(row)(int kind, const SM_T *a, const SM_T *b, SM_T *out, int64_t n)
{
    if (kind == SOFTMAX)
        SM(softmax_row)(a, out, n);
    else if (kind == LOG_SOFTMAX)
        SM(log_softmax_rows)((const void *[]){a}, (void *[]){out}, 1, n);
    else if (kind == SOFTMAX_GRADIENT)
        SM(softmax_gradient_row)(a, b, out, n);
    else
        SM(log_softmax_gradient_row)(a, b, out, n);
}

/* Rows of `a`, `b` and `out` are sa, sb and so elements apart. */
static void SM(lanes)(int kind, const SM_T *a, int64_t sa, const SM_T *b, int64_t sb, SM_T *restrict out, int64_t so,
                      int64_t n, int64_t cols)
{
    double sum[MOST_LANES];
    SM_T most[MOST_LANES];
    for (int64_t k = 0; k < cols; k++) {
        sum[k] = 0;
        most[k] = -(SM_T)INFINITY;
    }
    if (kind == SOFTMAX || kind == LOG_SOFTMAX)
        for (int64_t r = 0; r < n; r++)
            for (int64_t k = 0; k < cols; k++)
                most[k] = a[r * sa + k] > most[k] ? a[r * sa + k] : most[k];
    for (int64_t r = 0; r < n; r++) {
        const SM_T *x = a + r * sa, *y = b + r * sb;
        SM_T *restrict to = out + r * so;
        if (kind == SOFTMAX)
            for (int64_t k = 0; k < cols; k++) {
                SM_T e = SM_EXP(x[k] - most[k]);
                to[k] = e;
                sum[k] += e;
            }
        else if (kind == LOG_SOFTMAX)
            for (int64_t k = 0; k < cols; k++)
                sum[k] += SM_EXP(x[k] - most[k]);
        else if (kind == SOFTMAX_GRADIENT)
            for (int64_t k = 0; k < cols; k++)
                sum[k] += x[k] * y[k];
        else
            for (int64_t k = 0; k < cols; k++)
                sum[k] += x[k];
    }
    SM_T total[MOST_LANES];
    for (int64_t k = 0; k < cols; k++)
        total[k] = (SM_T)(kind == SOFTMAX ? 1 / sum[k] : kind == LOG_SOFTMAX ? log(sum[k]) : sum[k]);
    for (int64_t r = 0; r < n; r++) {
        const SM_T *x = a + r * sa, *y = b + r * sb;
        SM_T *restrict to = out + r * so;
        if (kind == SOFTMAX)
            for (int64_t k = 0; k < cols; k++)
                to[k] *= total[k];
        else if (kind == LOG_SOFTMAX)
            for (int64_t k = 0; k < cols; k++)
                to[k] = (x[k] - most[k]) - total[k];
        else if (kind == SOFTMAX_GRADIENT)
            for (int64_t k = 0; k < cols; k++)
                to[k] = y[k] * (x[k] - total[k]);
        else
            for (int64_t k = 0; k < cols; k++)
                to[k] = x[k] - SM_EXP(y[k]) * total[k];
    }
}

#undef SM_SUM
#undef SM_SUM_STEPS
#undef SM_T
#undef SM
#undef SM_EXP
