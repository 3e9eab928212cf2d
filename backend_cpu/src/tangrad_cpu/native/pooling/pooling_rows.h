/* The greatest of the windows of one row, tap by tap. A template: define PW_T (values), PW_N (numbers
 * of taps, of the same size), PW_LOWEST and PW(name), and include. */

/* A NaN wins, and the last of several; else the first of the greatest. */
static inline __attribute__((always_inline)) void PW(tap)(PW_T *restrict best, PW_N *restrict chosen,
                                                          const PW_T *restrict x, const int64_t step, int64_t n,
                                                          PW_N number)
{
    for (int64_t i = 0; i < n; i++) {
        PW_T value = x[i * step];
        int better = (value > best[i]) | (value != value);
        best[i] = better ? value : best[i];
        chosen[i] = better ? number : chosen[i];
    }
}

static void PW(fold)(void *best, void *chosen, const void *x, int64_t step, int64_t n, int64_t number)
{
    /* Constant steps are vectorised. */
    if (step == 1)
        PW(tap)(best, chosen, x, 1, n, (PW_N)number);
    else if (step == 2)
        PW(tap)(best, chosen, x, 2, n, (PW_N)number);
    else
        PW(tap)(best, chosen, x, step, n, (PW_N)number);
}

/* The same for n taps of one window, numbered from `number` on. Few are better, so that one branch,
 * which is foreseen, passes most of them, and the loop does not wait for the last. */
static void PW(run)(void *best, void *chosen, const void *x, int64_t step, int64_t n, int64_t number)
{
    PW_T most = *(PW_T *)best;
    PW_N where = *(PW_N *)chosen;
    for (int64_t i = 0; i < n; i++) {
        PW_T value = ((const PW_T *)x)[i * step];
        if (__builtin_expect(value <= most, 1))
            continue;
        if (value > most || value != value) {
            most = value;
            where = (PW_N)(number + i);
        }
    }
    *(PW_T *)best = most;
    *(PW_N *)chosen = where;
}

static void PW(begin)(void *best, void *chosen, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        ((PW_T *)best)[i] = PW_LOWEST;
        ((PW_N *)chosen)[i] = -1;
    }
}

/* Flat positions: that of the row's first window, further by `step` each, plus the tap's. `clipped`
 * gives the position where no tap was chosen. */
static void PW(places)(int64_t *to, const void *chosen, const int64_t *taps, int64_t at, int64_t step, int64_t n,
                       int64_t (*clipped)(const void *, int64_t), const void *context)
{
    for (int64_t i = 0; i < n; i++) {
        PW_N number = ((const PW_N *)chosen)[i];
        to[i] = number < 0 ? clipped(context, i) : at + i * step + taps[number];
    }
}

#define PW_TAP(r, c)                                                                                                   \
    {                                                                                                                  \
        PW_T value = taps[(r)*down + (c)];                                                                             \
        int better = (value > best) | (value != value);                                                                \
        best = better ? value : best;                                                                                  \
        where = better ? (PW_N)((r)*width + (c)) : where;                                                              \
    }

/* n windows of a plane whose taps are all inside, with constants for what decides the code: rows are
 * `down` apart, flat positions start at `at`, and `width` of them are a row. */
static inline __attribute__((always_inline)) void PW(inside)(PW_T *restrict to, int64_t *restrict place,
                                                             const PW_T *restrict x, int64_t down, int64_t n,
                                                             int64_t at, int64_t width, const int rows,
                                                             const int side, const int step)
{
    for (int64_t i = 0; i < n; i++) {
        const PW_T *taps = x + i * step;
        PW_T best = taps[0];
        PW_N where = 0;
        PW_TAP(0, 1)
        if (side == 3)
            PW_TAP(0, 2)
        if (rows > 1) {
            PW_TAP(1, 0)
            PW_TAP(1, 1)
        }
        if (rows == 3) {
            PW_TAP(1, 2)
            PW_TAP(2, 0)
            PW_TAP(2, 1)
            PW_TAP(2, 2)
        }
        to[i] = best;
        place[i] = at + i * step + where;
    }
}

static void PW(windows)(void *to, int64_t *place, const void *x, int64_t down, int64_t n, int64_t at, int64_t width,
                        int64_t rows, int64_t side, int64_t step)
{
    if (rows == 1 && side == 2)
        PW(inside)(to, place, x, down, n, at, width, 1, 2, 2);
    else if (rows == 1 && step == 2)
        PW(inside)(to, place, x, down, n, at, width, 1, 3, 2);
    else if (rows == 1)
        PW(inside)(to, place, x, down, n, at, width, 1, 3, 1);
    else if (side == 2)
        PW(inside)(to, place, x, down, n, at, width, 2, 2, 2);
    else if (step == 2)
        PW(inside)(to, place, x, down, n, at, width, 3, 3, 2);
    else
        PW(inside)(to, place, x, down, n, at, width, 3, 3, 1);
}

#undef PW_TAP
#undef PW_T
#undef PW_N
#undef PW_LOWEST
#undef PW
