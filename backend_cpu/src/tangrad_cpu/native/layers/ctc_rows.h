/* The variables of one sample. A template: define CTC_T, CTC(name), CTC_EXP and CTC_LOG, and include. */

/* log(exp(a) + exp(b) + exp(c)) */
static inline __attribute__((always_inline)) CTC_T CTC(joined)(CTC_T a, CTC_T b, CTC_T c)
{
    const CTC_T two = a > b ? a : b, most = two > c ? two : c;
    return most + CTC_LOG(CTC_EXP(a - most) + CTC_EXP(b - most) + CTC_EXP(c - most));
}

/* What each place emits in a step. */
static void CTC(emit)(const job *j, int64_t sample, int64_t step, const int64_t *label, int64_t places, CTC_T *to)
{
    const CTC_T *from = (const CTC_T *)j->logs + step * j->strides[0] + sample * j->strides[1];
    for (int64_t s = 0; s < places; s++) {
        const CTC_T value = from[label[s] * j->strides[2]];
        to[s] = value < (CTC_T)NEVER ? (CTC_T)NEVER : value; /* a NaN stays */
    }
}

/* A step forward; `old` has MARGIN places before its first. skip: 0, or NEVER where a blank cannot be left out. */
static void CTC(forward)(CTC_T *restrict now, const CTC_T *restrict old, const CTC_T *restrict emitted,
                         const CTC_T *restrict skip, int64_t places)
{
    for (int64_t s = 0; s < places; s++) {
        const CTC_T over = old[s - 2] + skip[s];
        now[s] = CTC(joined)(old[s], old[s - 1], over > (CTC_T)NEVER ? over : (CTC_T)NEVER) + emitted[s];
    }
}

/* A step back; `next` is what comes after with what it emits, with MARGIN places behind its last. */
static void CTC(backward)(CTC_T *restrict now, const CTC_T *restrict next, const CTC_T *restrict skip, int64_t places)
{
    for (int64_t s = 0; s < places; s++) {
        const CTC_T over = next[s + 2] + skip[s + 2];
        now[s] = CTC(joined)(next[s], next[s + 1], over > (CTC_T)NEVER ? over : (CTC_T)NEVER);
    }
}

static void CTC(fill)(CTC_T *to, int64_t n, CTC_T value)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

/* The gradient of a step: probabilities of the labels less those of the places that emit them. */
static void CTC(write_step)(const job *j, int64_t sample, int64_t step, const int64_t *label, int64_t places,
                            const CTC_T *alpha, const CTC_T *beta, CTC_T total, CTC_T grad)
{
    const CTC_T *from = (const CTC_T *)j->logs + step * j->strides[0] + sample * j->strides[1];
    CTC_T *to = (CTC_T *)j->out + (step * j->samples + sample) * j->labels;
    for (int64_t c = 0; c < j->labels; c++)
        to[c] = grad * CTC_EXP(from[c * j->strides[2]]);
    for (int64_t s = 0; s < places; s++)
        to[label[s]] -= grad * CTC_EXP(alpha[s] + beta[s] - total);
}

static void CTC(sample)(int64_t sample, void *context)
{
    job *j = context;
    const int64_t end = j->ends[sample], count = j->counts[sample], places = 2 * count + 1;
    int outside = end < 0 || end > j->steps || count < 0 || count > j->longest;
    for (int64_t s = 0; s < count && !outside; s++) {
        const int64_t target = j->targets[sample * j->longest + s];
        outside = target < 0 || target >= j->labels;
    }
    if (outside) {
        atomic_store(&j->outside, 1 + sample);
        return;
    }
    const int64_t width = j->places + 2 * MARGIN, rows = j->grad != NULL ? end + 1 : 2;
    char *memory = tgc_scratch((size_t)((rows + 4) * width) * sizeof(CTC_T) + (size_t)width * sizeof(int64_t));
    if (memory == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    int64_t *label = (int64_t *)memory;
    CTC_T *emitted = (CTC_T *)(label + width), *skip = emitted + width, *beta = skip + width, *next = beta + width;
    CTC_T *alpha = next + width;
    for (int64_t s = 0; s < places; s++)
        label[s] = s % 2 ? j->targets[sample * j->longest + s / 2] : j->blank;
    CTC(fill)(skip, width, (CTC_T)NEVER);
    for (int64_t s = 3; s < places; s += 2)
        skip[s] = label[s] != j->blank && label[s] != label[s - 2] ? 0 : (CTC_T)NEVER;
    for (int64_t row = 0; row < rows; row++)
        CTC(fill)(alpha + row * width, width, (CTC_T)NEVER);
    alpha[MARGIN] = 0;
    for (int64_t step = 0; step < end; step++) {
        CTC(emit)(j, sample, step, label, places, emitted);
        CTC(forward)(alpha + (step + 1) % rows * width + MARGIN, alpha + step % rows * width + MARGIN, emitted, skip,
                     places);
    }
    const CTC_T *last = alpha + end % rows * width + MARGIN;
    const CTC_T total = CTC(joined)(last[2 * count], count > 0 ? last[2 * count - 1] : (CTC_T)NEVER, (CTC_T)NEVER);
    if (j->grad == NULL) {
        ((CTC_T *)j->out)[sample] = -total;
    } else if (!(total <= (CTC_T)(NEVER / 10))) {
        const CTC_T grad = ((const CTC_T *)j->grad)[sample];
        CTC(fill)(beta, width, (CTC_T)NEVER);
        CTC(fill)(next, width, (CTC_T)NEVER);
        beta[2 * count] = 0;
        if (count > 0)
            beta[2 * count - 1] = 0;
        for (int64_t step = end - 1; step >= 0; step--) {
            CTC(write_step)(j, sample, step, label, places, alpha + (step + 1) * width + MARGIN, beta, total, grad);
            CTC(emit)(j, sample, step, label, places, emitted);
            for (int64_t s = 0; s < places; s++)
                next[s] = beta[s] + emitted[s];
            CTC(backward)(beta, next, skip, places);
        }
    }
    tgc_scratch_free(memory);
}

#undef CTC_T
#undef CTC
#undef CTC_EXP
#undef CTC_LOG
