/* The greatest of taps whose lanes are neighbours in memory. A template: define PL_T (values), PL_N
 * (positions, as wide), PL_LOWEST and PL(name), and include. */

/* Vectors of the level, and the shortest, for what is left of them. */
typedef PL_T PL(lanes) __attribute__((vector_size(TGC_VECTOR), aligned(sizeof(PL_T)), may_alias));
typedef PL_N PL(whole) __attribute__((vector_size(TGC_VECTOR), aligned(sizeof(PL_N)), may_alias));
typedef PL_T PL(short_lanes) __attribute__((vector_size(16), aligned(sizeof(PL_T)), may_alias));
typedef PL_N PL(short_whole) __attribute__((vector_size(16), aligned(sizeof(PL_N)), may_alias));

/* A NaN wins, and the last of several; else the first of the greatest. `found` is where there is none. */
static inline __attribute__((always_inline)) void PL(lane)(PL_T *to, int64_t *place, const PL_T *x,
                                                           const tap *taps, int64_t count, int64_t found)
{
    PL_T best = PL_LOWEST;
    for (int64_t t = 0; t < count; t++) {
        const PL_T value = x[taps[t].offset];
        if ((value > best) | (value != value)) {
            best = value;
            found = taps[t].place;
        }
    }
    *to = best;
    if (place != NULL)
        *place = found;
}

/* Channels from c on, as many as a vector has. */
#define PL_BLOCK(V, N)                                                                         \
    {                                                                                          \
        PL(V) best = (PL(V)){0} + (PL_T)PL_LOWEST;                                             \
        PL(N) found = (PL(N)){0} + (PL_N)nowhere;                                              \
        for (int64_t t = 0; t < count; t++) {                                                  \
            const PL(V) value = *(const PL(V) *)(x + taps[t].offset + c);                      \
            const PL(N) better = (PL(N))(value > best) | (PL(N))(value != value);              \
            best = (PL(V))(((PL(N))value & better) | ((PL(N))best & ~better));                 \
            found = ((PL_N)taps[t].place & better) | (found & ~better);                        \
        }                                                                                      \
        *(PL(V) *)(to + c) = best;                                                             \
        if (places != NULL)                                                                    \
            for (int64_t l = 0; l < (int64_t)(sizeof best / sizeof(PL_T)); l++)                \
                places[c + l] = found[l] + c + l;                                              \
    }

/* All channels of one window; places are of channel 0, others follow. */
static void PL(window)(void *values, int64_t *places, const void *source, const tap *taps, int64_t count,
                       int64_t nowhere, int64_t channels)
{
    const int64_t lanes = TGC_VECTOR / sizeof(PL_T), few = 16 / sizeof(PL_T);
    PL_T *to = values;
    const PL_T *x = source;
    int64_t c = 0;
    for (; c + lanes <= channels; c += lanes)
        PL_BLOCK(lanes, whole)
    for (; c + few <= channels; c += few)
        PL_BLOCK(short_lanes, short_whole)
    for (; c < channels; c++) {
        PL(lane)(to + c, places != NULL ? places + c : NULL, x + c, taps, count, nowhere);
        if (places != NULL)
            places[c] += c;
    }
}

#undef PL_BLOCK
#undef PL_T
#undef PL_N
#undef PL_LOWEST
#undef PL
