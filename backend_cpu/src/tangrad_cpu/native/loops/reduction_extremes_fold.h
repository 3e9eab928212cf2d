/* The fold of an extreme and its index for one element type; included once for each.
 *
 * EX_NAME, EX_ITEM (in memory), EX_VALUE (as computed), EX_ROW (a row number, as wide as a value),
 * EX_LOAD(x), EX_STORE(v), EX_WORSE (<= for maxima), EX_NAN(v). */
#define EX_JOIN_(a, b) a##_##b
#define EX_JOIN(a, b) EX_JOIN_(a, b)
#define EX(suffix) EX_JOIN(EX_NAME, suffix)
#define EX_LANES TGC_LANES(sizeof(EX_VALUE) + 8)

typedef struct {
    EX_VALUE value[EX_LANES];
    int64_t index[EX_LANES];
} EX(states);

/* A nan is better than any number, and nothing is better than a nan. */
static inline int EX(better)(EX_VALUE x, EX_VALUE than)
{
    return !(x EX_WORSE than) & !EX_NAN(than);
}

static inline int EX(beats)(EX_VALUE x, int64_t at, EX_VALUE y, int64_t there)
{
    int same = (x == y) | (EX_NAN(x) & EX_NAN(y));
    return EX(better)(x, y) | (same & (at < there));
}

/* Rows are numbered within the tile in numbers as wide as values, so that a comparison's mask
 * serves both; among equal elements of a lane the first row stays. */
static void EX(tile)(const char *x, const tgc_tile *t, const tg_scalar *params, void *states, int fresh)
{
    EX(states) *restrict s = states;
    EX_VALUE value[EX_LANES];
    EX_ROW found[EX_LANES];
    const int64_t cols = t->cols, rows = t->rows;
    (void)params;
    for (int64_t begin = 0; begin < rows; begin += EX_STEP) {
        const int64_t end = begin + EX_STEP < rows ? begin + EX_STEP : rows;
        const EX_ITEM *restrict first = (const EX_ITEM *)(x + begin * t->row_stride);
        for (int64_t k = 0; k < cols; k++) {
            value[k] = EX_LOAD(first[k]);
            found[k] = 0;
        }
        int64_t row = begin + 1;
        for (; row + 2 <= end; row += 2) {
            const EX_ITEM *restrict x0 = (const EX_ITEM *)(x + row * t->row_stride);
            const EX_ITEM *restrict x1 = (const EX_ITEM *)(x + (row + 1) * t->row_stride);
            const EX_ROW number = (EX_ROW)(row - begin), after = number + 1;
#pragma GCC ivdep
            for (int64_t k = 0; k < cols; k++) {
                EX_VALUE a = EX_LOAD(x0[k]), b = EX_LOAD(x1[k]), v = value[k];
                int second = EX(better)(b, a);
                EX_VALUE best = second ? b : a;
                EX_ROW where = second ? after : number;
                int take = EX(better)(best, v);
                value[k] = take ? best : v;
                found[k] = take ? where : found[k];
            }
        }
        for (; row < end; row++) {
            const EX_ITEM *restrict x0 = (const EX_ITEM *)(x + row * t->row_stride);
            const EX_ROW number = (EX_ROW)(row - begin);
#pragma GCC ivdep
            for (int64_t k = 0; k < cols; k++) {
                EX_VALUE a = EX_LOAD(x0[k]), v = value[k];
                int take = EX(better)(a, v);
                value[k] = take ? a : v;
                found[k] = take ? number : found[k];
            }
        }
        const int64_t index = t->index + begin * t->row_index, step = t->row_index, lane = t->lane_index;
        if (fresh && begin == 0) {
            for (int64_t k = 0; k < cols; k++) {
                s->value[k] = value[k];
                s->index[k] = index + found[k] * step + k * lane;
            }
            continue;
        }
#pragma GCC ivdep
        for (int64_t k = 0; k < cols; k++) {
            int64_t at = index + found[k] * step + k * lane;
            int take = EX(beats)(value[k], at, s->value[k], s->index[k]);
            s->value[k] = take ? value[k] : s->value[k];
            s->index[k] = take ? at : s->index[k];
        }
    }
}

static void EX(run)(const char *x, int64_t n, int64_t stride, const tg_scalar *params, void *states, int64_t to)
{
    EX(states) *s = states;
    EX_VALUE v = EX_LOAD(*(const EX_ITEM *)x);
    int64_t at = 0;
    (void)params;
    for (int64_t k = 1; k < n; k++) {
        EX_VALUE b = EX_LOAD(*(const EX_ITEM *)(x + k * stride));
        int take = EX(better)(b, v);
        v = take ? b : v;
        at = take ? k : at;
    }
    s->value[to] = v;
    s->index[to] = at;
}

static void EX(merge)(void *states, int64_t at, const void *other, int64_t from, int64_t cols, const tg_scalar *params)
{
    EX(states) *s = states;
    const EX(states) *o = other;
    (void)params;
#pragma GCC ivdep
    for (int64_t k = 0; k < cols; k++) {
        EX_VALUE v = s->value[at + k], b = o->value[from + k];
        int64_t i = s->index[at + k], j = o->index[from + k];
        int take = EX(beats)(b, j, v, i);
        s->value[at + k] = take ? b : v;
        s->index[at + k] = take ? j : i;
    }
}

static void EX(finish_index)(const void *states, int64_t cols, int64_t n, const tg_scalar *params, char *const *outs,
                             const int64_t *strides)
{
    const EX(states) *s = states;
    (void)n, (void)params;
    for (int64_t k = 0; k < cols; k++)
        *(int64_t *)(outs[0] + k * strides[0]) = s->index[k];
}

static void EX(finish_both)(const void *states, int64_t cols, int64_t n, const tg_scalar *params, char *const *outs,
                            const int64_t *strides)
{
    const EX(states) *s = states;
    (void)n, (void)params;
    for (int64_t k = 0; k < cols; k++) {
        *(EX_ITEM *)(outs[0] + k * strides[0]) = EX_STORE(s->value[k]);
        *(int64_t *)(outs[1] + k * strides[1]) = s->index[k];
    }
}

#define EX_FOLD(outs, write)                                                                                           \
    {                                                                                                                  \
        .itemsize = sizeof(EX_ITEM), .lanes = EX_LANES, .nout = outs, .indexed = 1, .run_most = 32, .tile = EX(tile),  \
        .run = EX(run), .merge = EX(merge), .finish = write                                                            \
    }
static const tgc_fold EX(index) = EX_FOLD(1, EX(finish_index));
static const tgc_fold EX(both) = EX_FOLD(2, EX(finish_both));

#undef EX_FOLD
#undef EX_LANES
#undef EX
#undef EX_JOIN
#undef EX_JOIN_
#undef EX_NAME
#undef EX_WORSE
