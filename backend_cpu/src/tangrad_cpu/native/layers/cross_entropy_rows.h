/* Losses of rows of log-softmax, and their gradients, for float32 or float64: CE_T, CE(name), CE_EXP. */

/* Add up what the classes of rows owe, a block after the other; returns how many rows count. */
static int64_t CE(total)(job *j, int64_t begin, int64_t end, double *total)
{
    const tg_view *logs = j->logs;
    const int64_t row = logs->strides[0], along = logs->strides[1], classes = logs->shape[1];
    const int64_t *target = j->target->data, step = j->target->strides[0];
    const CE_T *at = logs->data;
    int64_t count = 0;
    double sum = 0;
    for (int64_t first = begin; first < end; first += BLOCK) {
        const int64_t last = end - first < BLOCK ? end : first + BLOCK;
        double part = 0;
        for (int64_t i = first; i < last; i++) {
            const int64_t class = target[i * step];
            if (class == j->ignored)
                continue;
            if (class < 0 || class >= classes) {
                atomic_store(&j->wrong, class);
                continue;
            }
            part -= (double)at[i * row + class * along];
            count++;
        }
        sum += part;
    }
    *total = sum;
    return count;
}

static inline __attribute__((always_inline)) void CE(powers)(const CE_T *x, CE_T *restrict out, int64_t n, CE_T scale)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = CE_EXP(x[i]) * scale;
}

/* exp(x) times a number. A loop over what is left of whole steps would not be vectorised: the last step is taken
 * again. */
static void CE(scaled)(const CE_T *x, CE_T *out, int64_t n, CE_T scale)
{
    const int64_t whole = n - n % STEP;
    CE(powers)(x, out, whole, scale);
    if (whole > 0 && whole < n)
        CE(powers)(x + n - STEP, out + n - STEP, STEP, scale);
    else if (whole < n)
        CE(powers)(x, out, n, scale);
}

/* Rows of which the class owes `owed` for the sum of all. */
static void CE(gradients)(const job *j, int64_t begin, int64_t end, CE_T owed)
{
    const int64_t n = j->logs->shape[1], *target = j->target->data, step = j->target->strides[0];
    const CE_T *x = (const CE_T *)j->logs->data;
    CE_T *out = j->out->data;
    if (!j->streamed)
        CE(scaled)(x + begin * n, out + begin * n, (end - begin) * n, owed);
    for (int64_t i = begin; i < end; i++) {
        const int64_t class = target[i * step];
        const int counts = class != j->ignored;
        CE_T *to = out + i * n;
        if (!j->streamed) {
            if (!counts)
                CE(scaled)(x + i * n, to, n, 0);
            else if (class >= 0 && class < n)
                to[class] -= owed;
            continue;
        }
        _Alignas(64) CE_T tile[TGC_STREAM_TILE / sizeof(CE_T)];
        const int64_t width = TGC_STREAM_TILE / sizeof(CE_T);
        for (int64_t at = 0; at < n; at += width) {
            const int64_t some = n - at < width ? n - at : width;
            CE(scaled)(x + i * n + at, tile, some, counts ? owed : 0);
            if (counts && class >= at && class < at + some)
                tile[class - at] -= owed;
            tgc_stream(to + at, tile, some * (int64_t)sizeof(CE_T));
        }
    }
}

#undef CE_T
#undef CE
#undef CE_EXP
