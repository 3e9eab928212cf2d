/* Whole rows of pooled planes. A template: define PW_T (values), PW_N (numbers of rows, of the same
 * size) and PW(name), and include.
 *
 * Rows are short, so loops run in blocks of constant numbers of elements, each of them vectors: not
 * unrolled, since GCC does not make vectors of what it has unrolled. */
#define PW_INLINE static inline __attribute__((always_inline))

/* NaN wins. */
PW_INLINE PW_T PW(greater)(PW_T a, PW_T b)
{
    return (b > a) | (b != b) ? b : a;
}

/* The last block overlaps the one before it. */
#define PW_OVERLAPPING(work, ...)                                                                   \
    if (n >= 16)                                                                               \
        for (int64_t i = 0; i < n; i += 16)                                                    \
            work(__VA_ARGS__, i < n - 16 ? i : n - 16, 16);                                    \
    else if (n >= 4)                                                                           \
        for (int64_t i = 0; i < n; i += 4)                                                     \
            work(__VA_ARGS__, i < n - 4 ? i : n - 4, 4);                                       \
    else                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                        \
            work(__VA_ARGS__, i, 1);
/* What reads its own results waits for stores that overlap what it loads. */
#define PW_APART(work, ...)                                                                    \
    int64_t i = 0;                                                                             \
    for (; i + 16 <= n; i += 16)                                                               \
        work(__VA_ARGS__, i, 16);                                                              \
    for (; i + 4 <= n; i += 4)                                                                 \
        work(__VA_ARGS__, i, 4);                                                               \
    for (; i < n; i++)                                                                         \
        work(__VA_ARGS__, i, 1);

PW_INLINE void PW(join_block)(PW_T *to, const PW_T *a, const PW_T *b, int64_t at, const int count)
{
    PW_T found[16];
#pragma GCC unroll 1
    for (int k = 0; k < count; k++)
        found[k] = PW(greater)(a[at + k], b[at + k]);
    memcpy(to + at, found, count * sizeof *found);
}

/* to[i] = the greater of a[i] and b[i]; `to` may be `a`. */
static void PW(join)(void *to, const void *a, const void *b, int64_t n)
{
    PW_APART(PW(join_block), to, a, b)
}

PW_INLINE void PW(across_block)(PW_T *restrict to, const PW_T *restrict x, const int step, const int taps, int64_t at,
                                const int count)
{
    x += at * step;
#pragma GCC unroll 1
    for (int k = 0; k < count; k++) {
        PW_T most = PW(greater)(x[k * step], x[k * step + 1]);
        to[at + k] = taps == 3 ? PW(greater)(most, x[k * step + 2]) : most;
    }
}

PW_INLINE void PW(tap)(PW_T *restrict to, const PW_T *restrict x, const int64_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = PW(greater)(to[i], x[i * step]);
}

/* n windows of a row whose taps are all inside: `step` from window to window, `apart` from tap to tap. */
static void PW(across)(void *target, const void *row, int64_t n, int64_t step, int64_t apart, int64_t taps)
{
    PW_T *to = target;
    const PW_T *x = row;
    if (apart == 1 && taps == 2 && step == 2) {
        PW_OVERLAPPING(PW(across_block), to, x, 2, 2)
        return;
    }
    if (apart == 1 && taps == 3 && step == 2) {
        PW_OVERLAPPING(PW(across_block), to, x, 2, 3)
        return;
    }
    if (apart == 1 && taps == 3 && step == 1) {
        PW_OVERLAPPING(PW(across_block), to, x, 1, 3)
        return;
    }
    if (taps > n) {
        for (int64_t i = 0; i < n; i++) {
            PW_T most = x[i * step];
            for (int64_t t = 1; t < taps; t++)
                most = PW(greater)(most, x[i * step + t * apart]);
            to[i] = most;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = x[i * step];
    for (int64_t t = 1; t < taps; t++)
        if (step == 1)
            PW(tap)(to, x + t * apart, 1, n);
        else
            PW(tap)(to, x + t * apart, step, n);
}

/* One window of so many taps, which may be none. */
static void PW(edge)(void *to, const void *row, int64_t apart, int64_t taps)
{
    const PW_T *x = row;
    PW_T most = -INFINITY;
    for (int64_t t = 0; t < taps; t++)
        most = PW(greater)(most, x[t * apart]);
    *(PW_T *)to = most;
}

PW_INLINE void PW(follow_block)(PW_T *restrict best, PW_N *restrict chosen, const PW_T *restrict x, const PW_N number,
                                int64_t at, const int count)
{
#pragma GCC unroll 1
    for (int k = 0; k < count; k++) {
        PW_T value = x[at + k], old = best[at + k];
        int better = (value > old) | (value != value);
        best[at + k] = better ? value : old;
        chosen[at + k] = better ? number : chosen[at + k];
    }
}

/* Fold row `number` into the greatest of each column so far, and the numbers of their rows. */
static void PW(follow)(void *best, void *chosen, const void *x, int64_t n, int64_t number, int fresh)
{
    PW_N *rows = chosen;
    if (!fresh) {
        PW_APART(PW(follow_block), best, rows, x, (PW_N)number)
        return;
    }
    memcpy(best, x, (size_t)n * sizeof(PW_T));
    for (int64_t i = 0; i < n; i++)
        rows[i] = (PW_N)number;
}

/* Find the greatest of columns first .. end of one row, the first of several, or its last NaN. */
static void PW(run)(void *to, int64_t *place, const void *row, int64_t first, int64_t end, int64_t origin)
{
    const PW_T *x = row;
    PW_T most = x[first];
    int64_t where = first;
    for (int64_t i = first + 1; i < end; i++) {
        /* Few are better, so that one branch, which is foreseen, passes most of them. */
        if (__builtin_expect(x[i] <= most, 1))
            continue;
        if (x[i] > most || x[i] != x[i]) {
            most = x[i];
            where = i;
        }
    }
    *(PW_T *)to = most;
    *place = origin + where;
}

/* The same of folded rows, `width` positions each. */
static void PW(pick)(void *to, int64_t *place, const void *best, const void *chosen, int64_t first, int64_t end,
                     int64_t width)
{
    const PW_T *x = best;
    const PW_N *rows = chosen;
    PW_T most = x[first];
    int64_t where = rows[first] * width + first;
    for (int64_t i = first + 1; i < end; i++) {
        if (__builtin_expect(x[i] < most, 1))
            continue;
        const int64_t at = rows[i] * width + i;
        const int later = at > where, nan = x[i] != x[i];
        if (nan ? most == most || later : x[i] > most || (x[i] == most && !later)) {
            most = x[i];
            where = at;
        }
    }
    *(PW_T *)to = most;
    *place = where;
}

#undef PW_OVERLAPPING
#undef PW_APART
#undef PW_INLINE
#undef PW_T
#undef PW_N
#undef PW
