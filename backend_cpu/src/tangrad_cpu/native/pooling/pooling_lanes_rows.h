/* The greatest of taps whose lanes are neighbours in memory. A template: define PL_T (values), PL_N
 * (positions, as wide), PL_LOWEST and PL(name), and include. */

typedef PL_T PL(lanes) __attribute__((vector_size(TGC_VECTOR), aligned(sizeof(PL_T)), may_alias));
typedef PL_N PL(whole) __attribute__((vector_size(TGC_VECTOR), aligned(sizeof(PL_N)), may_alias));
#define PL_LANES ((int64_t)(TGC_VECTOR / sizeof(PL_T)))

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

/* All channels of one window; places are of channel 0, others follow. */
static void PL(window)(void *values, int64_t *places, const void *source, const tap *taps, int64_t count,
                       int64_t nowhere, int64_t channels)
{
    PL_T *to = values;
    const PL_T *x = source;
    int64_t c = 0;
    for (; c + PL_LANES <= channels; c += PL_LANES) {
        PL(lanes) best = (PL(lanes)){0} + (PL_T)PL_LOWEST;
        PL(whole) found = (PL(whole)){0} + (PL_N)nowhere;
        for (int64_t t = 0; t < count; t++) {
            const PL(lanes) value = *(const PL(lanes) *)(x + taps[t].offset + c);
            const PL(whole) better = (PL(whole))(value > best) | (PL(whole))(value != value);
            best = (PL(lanes))(((PL(whole))value & better) | ((PL(whole))best & ~better));
            found = ((PL_N)taps[t].place & better) | (found & ~better);
        }
        *(PL(lanes) *)(to + c) = best;
        if (places != NULL)
            for (int64_t l = 0; l < PL_LANES; l++)
                places[c + l] = found[l] + c + l;
    }
    for (; c < channels; c++) {
        PL(lane)(to + c, places != NULL ? places + c : NULL, x + c, taps, count, nowhere);
        if (places != NULL)
            places[c] += c;
    }
}

#undef PL_LANES
#undef PL_T
#undef PL_N
#undef PL_LOWEST
#undef PL
