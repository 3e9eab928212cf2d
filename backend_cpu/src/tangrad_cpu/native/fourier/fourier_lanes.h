/* Transforms of as many signals at once as a vector has lanes; see fourier_passes.h. */

/* Roots for the passes of one length, all prime factors of which are small. */
typedef struct FT(passes) {
    int64_t n;
    int count;
    int radices[MOST_PASSES];
    T *roots[MOST_PASSES]; /* of pass i: of each p, r - 1 numbers */
    T *circles[MOST_PASSES];
    T *memory;
} FT(passes);

static int FT(passes_make)(FT(passes) *made, int64_t n)
{
    int64_t numbers = 0, rest = n;
    made->n = n;
    made->count = fourier_factors(n, made->radices);
    for (int i = 0; i < made->count; i++) {
        numbers += rest + made->radices[i];
        rest /= made->radices[i];
    }
    fourier_roots all;
    made->memory = malloc(sizeof(T) * 2 * (size_t)(numbers + 1));
    if (made->memory == NULL || fourier_roots_make(&all, n) < 0)
        return -1;
    T *to = made->memory;
    rest = n;
    for (int i = 0; i < made->count; i++) {
        const int64_t r = made->radices[i], m = rest / r, apart = n / rest;
        double re, im;
        made->roots[i] = to;
        for (int64_t p = 0; p < m; p++)
            for (int64_t k = 1; k < r; k++, to += 2) {
                fourier_root(&all, p * k * apart, &re, &im);
                to[0] = (T)re;
                to[1] = (T)im;
            }
        made->circles[i] = to;
        for (int64_t k = 0; k < r; k++, to += 2) {
            fourier_root(&all, k * (n / r), &re, &im);
            to[0] = (T)re;
            to[1] = (T)im;
        }
        rest = m;
    }
    free(all.fine);
    return 0;
}

/* One pass. A side other than the buffer is for radices that have such a pass (`fused`). */
static void FT(one_pass)(const FT(passes) *plan, int i, const FT(side) *x, int in, const FT(side) *y, int out,
                         int64_t m, int64_t s)
{
#define RADIX(r)                                               \
    case r:                                                    \
        if (in == FT(PACKED))                                  \
            FT(first##r)(x, y, m, plan->roots[i]);             \
        else if (out == FT(PACKED))                            \
            FT(last##r)(x, y, s);                              \
        else if (out == FT(TIMES))                             \
            FT(times##r)(x, y, s);                             \
        else                                                   \
            FT(inner##r)(x, y, m, s, plan->roots[i]);          \
        return;
    switch (plan->radices[i]) {
        RADIX(2)
        RADIX(3)
        RADIX(4)
        RADIX(5)
        RADIX(8)
    default: FT(inner_odd)(x, y, plan->radices[i], m, s, plan->roots[i], plan->circles[i]);
    }
#undef RADIX
}

static inline int FT(fused)(int radix)
{
    return radix <= 5 || radix == 8;
}

/* Bring elements into the buffer, or out of it, where a pass did not. */
static void FT(move)(const FT(side) *x, int in, const FT(side) *y, int out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (in == FT(PACKED))
            FT(give)(y, i, FT(take)(x, i, FT(PACKED)), FT(BUFFER));
        else if (out == FT(PACKED))
            FT(give)(y, i, FT(take)(x, i, FT(BUFFER)), FT(PACKED));
        else
            FT(give)(y, i, FT(take)(x, i, FT(BUFFER)), FT(TIMES));
    }
}

/* Transform vectors. `buffers` are two of n elements; an x that is a buffer is the first of them.
 * Returns the buffer with the result where y is NULL. */
static T *FT(transform)(const FT(passes) *plan, const FT(side) *x, int in, const FT(side) *y, int out, T *buffers)
{
    const int64_t n = plan->n;
    FT(side) from = {.data = buffers}, to = {.data = buffers + 2 * L * n};
    int64_t m = n, s = 1;
    int i = 0;
    if (in == FT(PACKED) && (plan->count < 2 || !FT(fused)(plan->radices[0]))) {
        FT(move)(x, in, &from, FT(BUFFER), n);
        in = FT(BUFFER);
    }
    const int last = y != NULL && plan->count > 0 && FT(fused)(plan->radices[plan->count - 1]) ? plan->count - 1 : -1;
    for (; i < plan->count; i++) {
        m /= plan->radices[i];
        if (i == last) {
            FT(one_pass)(plan, i, &from, FT(BUFFER), y, out, m, s);
            return NULL;
        }
        FT(one_pass)(plan, i, i == 0 && in == FT(PACKED) ? x : &from, i == 0 ? in : FT(BUFFER), &to, FT(BUFFER), m, s);
        s *= plan->radices[i];
        FT(side) swap = from;
        from = to;
        to = swap;
    }
    if (y != NULL)
        FT(move)(&from, FT(BUFFER), y, out, n);
    return from.data;
}

/* The places of some signals: one per lane, in elements of T, as is the distance within a signal. */
typedef struct FT(group) {
    T *data;
    int64_t offsets[L];
    int64_t lanes; /* that are signals */
    int64_t step;
} FT(group);

/* Whether lanes lie side by side, numbers of `size` elements each. */
static int FT(side_by_side)(const FT(group) *g, int64_t size)
{
    for (int64_t l = 1; l < g->lanes; l++)
        if (g->offsets[l] != g->offsets[0] + l * size)
            return 0;
    return 1;
}

/* Squares of lanes by as many numbers, as they lie in memory, from and to vectors of parts. Two elements of
 * 32 bits are moved as one of 64. */
#if FT_TURNS_PAIRS
INLINE void FT(turn_in)(const T *const *lines, int exchanged, T *to)
{
    for (int half = 0; half < 2; half++) {
        tgc_vu64 low[L / 2], high[L / 2];
        _Pragma("GCC unroll 8") for (int l = 0; l < L / 2; l++)
        {
            memcpy(&low[l], lines[l] + half * L, sizeof low[l]);
            memcpy(&high[l], lines[l + L / 2] + half * L, sizeof high[l]);
        }
        tgc_transpose64(low);
        tgc_transpose64(high);
        _Pragma("GCC unroll 8") for (int i = 0; i < L / 2; i++)
        {
            T *at = to + (half * (L / 2) + i) * 2 * L;
            FT(put)(at + (exchanged ? L : 0), __builtin_shuffle((V)low[i], (V)high[i], (FT_U)FT_EVEN));
            FT(put)(at + (exchanged ? 0 : L), __builtin_shuffle((V)low[i], (V)high[i], (FT_U)FT_ODD));
        }
    }
}

INLINE void FT(turn_out)(const T *from, int exchanged, T scale, T *const *lines)
{
    for (int half = 0; half < 2; half++) {
        tgc_vu64 low[L / 2], high[L / 2];
        _Pragma("GCC unroll 8") for (int i = 0; i < L / 2; i++)
        {
            const T *at = from + (half * (L / 2) + i) * 2 * L;
            const V a = FT(at)(at + (exchanged ? L : 0)) * scale, b = FT(at)(at + (exchanged ? 0 : L)) * scale;
            low[i] = (tgc_vu64)__builtin_shuffle(a, b, (FT_U)FT_LOW);
            high[i] = (tgc_vu64)__builtin_shuffle(a, b, (FT_U)FT_HIGH);
        }
        tgc_transpose64(low);
        tgc_transpose64(high);
        _Pragma("GCC unroll 8") for (int l = 0; l < L / 2; l++)
        {
            memcpy(lines[l] + half * L, &low[l], sizeof low[l]);
            memcpy(lines[l + L / 2] + half * L, &high[l], sizeof high[l]);
        }
    }
}
#else
INLINE void FT(turn_in)(const T *const *lines, int exchanged, T *to)
{
    V parts[2][L];
    for (int l = 0; l < L; l++) {
        const C a = FT(unpacked)(lines[l], exchanged);
        parts[0][l] = a.re;
        parts[1][l] = a.im;
    }
    FT_TRANSPOSE((FT_U *)parts[0]);
    FT_TRANSPOSE((FT_U *)parts[1]);
    for (int l = 0; l < L; l++) {
        FT(put)(to + l * 2 * L, parts[0][l]);
        FT(put)(to + l * 2 * L + L, parts[1][l]);
    }
}

INLINE void FT(turn_out)(const T *from, int exchanged, T scale, T *const *lines)
{
    V parts[2][L];
    for (int l = 0; l < L; l++) {
        parts[0][l] = FT(at)(from + l * 2 * L) * scale;
        parts[1][l] = FT(at)(from + l * 2 * L + L) * scale;
    }
    FT_TRANSPOSE((FT_U *)parts[0]);
    FT_TRANSPOSE((FT_U *)parts[1]);
    for (int l = 0; l < L; l++)
        FT(pack)(lines[l], (C){parts[0][l], parts[1][l]}, exchanged);
}
#endif

/* Bring n complex numbers of each signal into a buffer. */
static void FT(load)(const FT(group) *g, int64_t n, int exchanged, T *to)
{
    const int64_t re = exchanged ? L : 0, im = L - re;
    int64_t i = 0;
    if (FT(side_by_side)(g, 2)) {
        T row[2 * L] = {0};
        for (; i < n; i++) {
            memcpy(row, g->data + g->offsets[0] + i * g->step, sizeof(T) * 2 * (size_t)g->lanes);
            const C a = FT(unpacked)(row, exchanged);
            FT(put)(to + i * 2 * L, a.re);
            FT(put)(to + i * 2 * L + L, a.im);
        }
        return;
    }
    if (g->step == 2)
        for (; i + L <= n; i += L) {
            const T *lines[L];
            for (int l = 0; l < L; l++)
                lines[l] = g->data + g->offsets[l < g->lanes ? l : 0] + 2 * i;
            FT(turn_in)(lines, exchanged, to + i * 2 * L);
        }
    for (; i < n; i++)
        for (int l = 0; l < L; l++) {
            const T *from = g->data + g->offsets[l < g->lanes ? l : 0] + i * g->step;
            to[i * 2 * L + l + re] = from[0];
            to[i * 2 * L + l + im] = from[1];
        }
}

/* Take n complex numbers of each signal out of a buffer. */
static void FT(unload)(const FT(group) *g, int64_t n, int exchanged, T scale, const T *from)
{
    const int64_t re = exchanged ? L : 0, im = L - re;
    int64_t i = 0;
    if (FT(side_by_side)(g, 2)) {
        T row[2 * L];
        for (; i < n; i++) {
            const C a = {FT(at)(from + i * 2 * L) * scale, FT(at)(from + i * 2 * L + L) * scale};
            FT(pack)(row, a, exchanged);
            memcpy(g->data + g->offsets[0] + i * g->step, row, sizeof(T) * 2 * (size_t)g->lanes);
        }
        return;
    }
    if (g->step == 2)
        for (; i + L <= n; i += L) {
            T *lines[L], spare[2 * L];
            for (int l = 0; l < L; l++)
                lines[l] = l < g->lanes ? g->data + g->offsets[l] + 2 * i : spare;
            FT(turn_out)(from + i * 2 * L, exchanged, scale, lines);
        }
    for (; i < n; i++)
        for (int l = 0; l < g->lanes; l++) {
            T *to = g->data + g->offsets[l] + i * g->step;
            to[0] = from[i * 2 * L + l + re] * scale;
            to[1] = from[i * 2 * L + l + im] * scale;
        }
}

/* Real numbers: in the places of complex ones, two that follow each other (`pairs`), or each with an
 * imaginary part of zero. */
static void FT(load_real)(const FT(group) *g, int64_t n, int pairs, T *to)
{
    if (pairs && g->step == 1) {
        FT(group) complex = *g;
        complex.step = 2;
        FT(load)(&complex, n / 2, 0, to);
        return;
    }
    const int together = g->lanes == L && FT(side_by_side)(g, 1);
    for (int64_t i = 0; i < n; i++) {
        T *at = pairs ? to + i * L : to + i * 2 * L;
        const T *from = g->data + i * g->step;
        if (together)
            memcpy(at, from + g->offsets[0], sizeof(T) * L);
        else
            for (int l = 0; l < L; l++)
                at[l] = from[g->offsets[l < g->lanes ? l : 0]];
        if (!pairs)
            memset(at + L, 0, sizeof(T) * L);
    }
}

static void FT(unload_real)(const FT(group) *g, int64_t n, int pairs, T scale, const T *from)
{
    if (pairs && g->step == 1) {
        FT(group) complex = *g;
        complex.step = 2;
        FT(unload)(&complex, n / 2, 1, scale, from);
        return;
    }
    /* The transform was of exchanged numbers: imaginary parts are real. */
    for (int64_t i = 0; i < n; i++) {
        const T *at = pairs ? from + (i / 2) * 2 * L + (i % 2 ? 0 : L) : from + i * 2 * L + L;
        T *to = g->data + i * g->step;
        for (int l = 0; l < g->lanes; l++)
            to[g->offsets[l]] = at[l] * scale;
    }
}

/* From the transform z of pairs of real numbers to that of all n = 2 h: the even ones' is
 * (z[k] + conj z[h - k]) / 2, the odd ones' (z[k] - conj z[h - k]) / 2i. `roots` are those of n. */
INLINE void FT(joined)(C a, C b, V re, V im, C *low, C *high)
{
    const T half = (T)0.5;
    const C even = {half * (a.re + b.re), half * (a.im - b.im)}, odd = {half * (a.im + b.im), half * (b.re - a.re)};
    const C turned = FT(times)(odd, re, im);
    *low = FT(add)(even, turned);
    *high = FT(sub)(even, turned);
    high->im = -high->im;
}

/* Back: the even ones' x[k] + conj x[h - k], the odd ones' (x[k] - conj x[h - k]) / root. */
INLINE void FT(parted)(C a, C b, V re, V im, C *low, C *high)
{
    const C even = {a.re + b.re, a.im - b.im}, odd = {a.re - b.re, a.im + b.im};
    const C turned = FT(times)(odd, re, -im);
    *low = (C){even.re - turned.im, even.im + turned.re};
    *high = (C){even.re + turned.im, turned.re - even.im};
}

static void FT(join_halves)(const T *z, int64_t h, const T *roots, T *x)
{
    const V re = FT(at)(z), im = FT(at)(z + L), none = {0};
    FT(put)(x, re + im);
    FT(put)(x + L, none);
    FT(put)(x + h * 2 * L, re - im);
    FT(put)(x + h * 2 * L + L, none);
    for (int64_t k = 1; 2 * k <= h; k++) {
        const T *p = z + k * 2 * L, *q = z + (h - k) * 2 * L;
        C low, high;
        FT(joined)((C){FT(at)(p), FT(at)(p + L)}, (C){FT(at)(q), FT(at)(q + L)}, roots[2 * k] - none,
                   roots[2 * k + 1] - none, &low, &high);
        FT(put)(x + (h - k) * 2 * L, high.re);
        FT(put)(x + (h - k) * 2 * L + L, high.im);
        FT(put)(x + k * 2 * L, low.re);
        FT(put)(x + k * 2 * L + L, low.im);
    }
}

/* The result is exchanged, for the inverse transform. */
static void FT(part_halves)(const T *x, int64_t h, const T *roots, T *z)
{
    const V first = FT(at)(x), last = FT(at)(x + h * 2 * L), none = {0};
    FT(put)(z + L, first + last);
    FT(put)(z, first - last);
    for (int64_t k = 1; 2 * k <= h; k++) {
        const T *p = x + k * 2 * L, *q = x + (h - k) * 2 * L;
        C low, high;
        FT(parted)((C){FT(at)(p), FT(at)(p + L)}, (C){FT(at)(q), FT(at)(q + L)}, roots[2 * k] - none,
                   roots[2 * k + 1] - none, &low, &high);
        FT(put)(z + (h - k) * 2 * L + L, high.re);
        FT(put)(z + (h - k) * 2 * L, high.im);
        FT(put)(z + k * 2 * L + L, low.re);
        FT(put)(z + k * 2 * L, low.im);
    }
}
