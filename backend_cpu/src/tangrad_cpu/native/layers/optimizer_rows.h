/* Steps of optimizers along rows of numbers, in the order of operations of the core's
 * tangrad/ops/optimizer.py: bits are those of its tensor code. Included once for each type, with
 *   TYPE  the type computed in,
 *   NAME(x)  the name of a function for this type,
 *   SQRT(x), ABS(x). */

/* rows: parameter, gradient, first moment, second moment, largest second moment. */
static inline __attribute__((always_inline)) void NAME(adam_rows)(const optimizer_job *job, const optimizer_item *item,
                                                                  char *const *rows, int64_t n, const int decay,
                                                                  const int amsgrad)
{
    TYPE *restrict p = (TYPE *)rows[0], *restrict m = (TYPE *)rows[2], *restrict v = (TYPE *)rows[3];
    TYPE *restrict largest = amsgrad ? (TYPE *)rows[4] : NULL;
    const TYPE *restrict grads = (const TYPE *)rows[1];
    const TYPE sign = job->maximize ? -1 : 1, weight_decay = (TYPE)job->weight_decay;
    const TYPE kept = (TYPE)(1 - job->lr * job->weight_decay);
    const TYPE weight = (TYPE)(1 - job->beta1), rest = 1 - weight, beta2 = (TYPE)job->beta2;
    const TYPE square = (TYPE)(1 - job->beta2), eps = (TYPE)job->eps;
    const TYPE correction = (TYPE)item->correction, step = (TYPE)item->step_size;
    const int near_start = ABS(weight) < (TYPE)0.5;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        TYPE g = grads[i] * sign, x = p[i], second;
        if (decay == DECOUPLED)
            x = x * kept;
        if (decay == COUPLED)
            g = g + weight_decay * x;
        TYPE first = near_start ? m[i] + weight * (g - m[i]) : g - (g - m[i]) * rest;
        second = v[i] * beta2 + square * g * g;
        m[i] = first;
        v[i] = second;
        if (amsgrad) {
            TYPE before = largest[i];
            second = (before > second) | (before != before) ? before : second;
            largest[i] = second;
        }
        p[i] = x + step * first / (SQRT(second) / correction + eps);
    }
}

static void NAME(adam)(const optimizer_job *job, const optimizer_item *item, char *const *rows, int64_t n)
{
    const int decay = job->weight_decay == 0 ? NO_DECAY : job->decoupled ? DECOUPLED : COUPLED;
    switch (2 * decay + job->amsgrad) {
    case 2 * NO_DECAY: NAME(adam_rows)(job, item, rows, n, NO_DECAY, 0); break;
    case 2 * NO_DECAY + 1: NAME(adam_rows)(job, item, rows, n, NO_DECAY, 1); break;
    case 2 * COUPLED: NAME(adam_rows)(job, item, rows, n, COUPLED, 0); break;
    case 2 * COUPLED + 1: NAME(adam_rows)(job, item, rows, n, COUPLED, 1); break;
    case 2 * DECOUPLED: NAME(adam_rows)(job, item, rows, n, DECOUPLED, 0); break;
    default: NAME(adam_rows)(job, item, rows, n, DECOUPLED, 1);
    }
}

/* rows: parameter, gradient, momentum. */
static inline __attribute__((always_inline)) void NAME(sgd_rows)(const optimizer_job *job, char *const *rows, int64_t n,
                                                                 const int decay, const int momenta,
                                                                 const int nesterov)
{
    TYPE *restrict p = (TYPE *)rows[0], *restrict b = momenta ? (TYPE *)rows[2] : NULL;
    const TYPE *restrict grads = (const TYPE *)rows[1];
    const TYPE sign = job->maximize ? -1 : 1, weight_decay = (TYPE)job->weight_decay, momentum = (TYPE)job->momentum;
    const TYPE share = (TYPE)(1 - job->dampening), rate = (TYPE)-job->lr;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        TYPE g = grads[i] * sign, x = p[i];
        if (decay)
            g = g + weight_decay * x;
        if (momenta) {
            TYPE moved = momenta == FIRST_MOMENTA ? g : b[i] * momentum + share * g;
            b[i] = moved;
            g = nesterov ? g + momentum * moved : moved;
        }
        p[i] = x + rate * g;
    }
}

static void NAME(sgd)(const optimizer_job *job, const optimizer_item *item, char *const *rows, int64_t n)
{
    (void)item;
    const int decay = job->weight_decay != 0;
#define CASE(d, m, v)                                                                                                  \
    case 6 * (d) + 2 * (m) + (v): NAME(sgd_rows)(job, rows, n, d, m, v); return;
    switch (6 * decay + 2 * job->momenta + (job->momenta && job->nesterov)) {
        CASE(0, NO_MOMENTA, 0)
        CASE(0, FIRST_MOMENTA, 0)
        CASE(0, FIRST_MOMENTA, 1)
        CASE(0, LATER_MOMENTA, 0)
        CASE(0, LATER_MOMENTA, 1)
        CASE(1, NO_MOMENTA, 0)
        CASE(1, FIRST_MOMENTA, 0)
        CASE(1, FIRST_MOMENTA, 1)
        CASE(1, LATER_MOMENTA, 0)
        CASE(1, LATER_MOMENTA, 1)
    }
#undef CASE
}

static void NAME(multiply)(const optimizer_job *job, const optimizer_item *item, char *const *rows, int64_t n)
{
    (void)item;
    TYPE *restrict x = (TYPE *)rows[0];
    const TYPE factor = (TYPE)job->number;
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

static void NAME(add_number)(const optimizer_job *job, const optimizer_item *item, char *const *rows, int64_t n)
{
    (void)item;
    TYPE *restrict x = (TYPE *)rows[0];
    const TYPE term = (TYPE)job->number;
    for (int64_t i = 0; i < n; i++)
        x[i] += term;
}

static void NAME(add_rows)(const optimizer_job *job, const optimizer_item *item, char *const *rows, int64_t n)
{
    (void)item;
    TYPE *restrict x = (TYPE *)rows[0];
    const TYPE *restrict y = (const TYPE *)rows[1];
    const TYPE alpha = (TYPE)job->number;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        x[i] += alpha * y[i];
}

/* Sums in double, in LANES sums that are added in order: a float's square overflows in none. */
static double NAME(sum_of_powers)(const TYPE *x, int64_t n, int order)
{
    enum { LANES = 16 };
    double sums[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double value = (double)x[i + k];
            sums[k] += order == 2 ? value * value : __builtin_fabs(value);
        }
    for (int k = 0; i + k < n; k++) {
        double value = (double)x[i + k];
        sums[k] += order == 2 ? value * value : __builtin_fabs(value);
    }
    for (int k = 0; k < LANES; k++)
        total += sums[k];
    return total;
}
