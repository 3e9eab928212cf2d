/* Rows of one dtype as items and back, and the best of a row. A template: SR_T (in memory), SR_ITEM,
 * SR_MAKE(key, index), SR_KEYS (the unsigned type of keys), SR_ENCODE(x) and SR_DECODE(key), SR_SPECIAL(x)
 * where decoding does not give x back, SR_BITS, SR_SORT, SR_KEY(item), SR_PLACE(item), SR_MASK (set bits
 * of the keys that are below a bound), SR(name). */

static inline SR_KEYS SR(flip)(int descending)
{
    return descending ? (SR_KEYS)(~(SR_KEYS)0 >> (8 * sizeof(SR_KEYS) - SR_BITS)) : 0;
}

/* Return whether a value is not what its key says. */
static int SR(encode)(const char *data, int64_t stride, int64_t n, int descending, void *items)
{
    const SR_T *x = (const SR_T *)data;
    SR_ITEM *restrict to = items;
    const SR_KEYS flip = SR(flip)(descending);
    int special = 0;
    for (int64_t i = 0; i < n; i++) {
        const SR_T value = x[i * stride];
        to[i] = SR_MAKE((SR_ENCODE(value)) ^ flip, i);
        special |= SR_SPECIAL(value);
    }
    return special;
}

static void *SR(sort)(void *items, void *spare, int64_t n, uint32_t *counts)
{
    return SR_SORT(items, spare, n, counts);
}

/* Write the first n of sorted items; `source` is the row they come from where keys do not suffice. */
static void SR(decode)(const void *items, int64_t n, int descending, const char *source, int64_t stride, char *values,
                       int64_t value_stride, int64_t *places, int64_t place_stride)
{
    const SR_ITEM *from = items;
    const SR_KEYS flip = SR(flip)(descending);
    SR_T *to = (SR_T *)values;
    if (source != NULL)
        for (int64_t i = 0; i < n; i++)
            to[i * value_stride] = ((const SR_T *)source)[(int64_t)SR_PLACE(from[i]) * stride];
    else if (value_stride == 1)
        for (int64_t i = 0; i < n; i++)
            to[i] = SR_DECODE((SR_KEYS)(SR_KEY(from[i]) ^ flip));
    else
        for (int64_t i = 0; i < n; i++)
            to[i * value_stride] = SR_DECODE((SR_KEYS)(SR_KEY(from[i]) ^ flip));
    if (place_stride == 1)
        for (int64_t i = 0; i < n; i++)
            places[i] = (int64_t)SR_PLACE(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            places[i * place_stride] = (int64_t)SR_PLACE(from[i]);
}

/* Write the keys of STRIPE elements; return a mask of those below a bound. */
static inline uint64_t SR(below)(const SR_T *x, int64_t stride, SR_KEYS flip, SR_KEYS bound, SR_KEYS *restrict keys)
{
    SR_KEYS any = 0;
    uint64_t mask = 0;
    if (stride == 1)
        for (int p = 0; p < STRIPE; p++)
            keys[p] = (SR_KEYS)(SR_ENCODE(x[p])) ^ flip;
    else
        for (int p = 0; p < STRIPE; p++)
            keys[p] = (SR_KEYS)(SR_ENCODE(x[p * stride])) ^ flip;
    for (int p = 0; p < STRIPE; p++)
        any |= keys[p] < bound;
    if (any)
        SR_MASK(mask, keys, bound)
    return mask;
}

/* Give a bound that at least k elements do not exceed: the k-th of the least elements of as many parts
 * of the row as there are places in half a stripe. */
static SR_KEYS SR(first_bound)(const SR_T *x, int64_t n, int64_t k, SR_KEYS flip, SR_ITEM *items, SR_ITEM *spare,
                               uint32_t *counts)
{
    SR_KEYS least[STRIPE];
    for (int p = 0; p < STRIPE; p++)
        least[p] = (SR_KEYS)~(SR_KEYS)0;
    for (int64_t i = 0; i + STRIPE <= n; i += STRIPE)
        for (int p = 0; p < STRIPE; p++) {
            const SR_KEYS key = (SR_KEYS)(SR_ENCODE(x[i + p])) ^ flip;
            least[p] = key < least[p] ? key : least[p];
        }
    for (int p = 0; p < STRIPE / 2; p++)
        items[p] = SR_MAKE((least[p] < least[p + STRIPE / 2] ? least[p] : least[p + STRIPE / 2]), p);
    return (SR_KEYS)SR_KEY(SR_SORT(items, spare, STRIPE / 2, counts)[k - 1]);
}

/* Leave the k least items of a row, in order, in the array that is returned. An element passes that
 * is less than the k-th best so far. It finds its place at once where k is small; otherwise those
 * that passed are sorted now and then, and the bound falls. */
static void *SR(best)(const char *data, int64_t stride, int64_t n, int64_t k, int descending, void *memory,
                      void *spare_memory, uint32_t *counts)
{
    const SR_T *x = (const SR_T *)data;
    SR_ITEM *held = memory, *spare = spare_memory, *sorted;
    SR_KEYS keys[STRIPE];
    const SR_KEYS flip = SR(flip)(descending);
    const int64_t room = k + (k > PASSING ? k : PASSING);
    int64_t count = 0, i = 0;
    SR_KEYS bound = (SR_KEYS)~(SR_KEYS)0;
    if (stride == 1 && k <= STRIPE / 4 && n >= 8 * STRIPE)
        bound = SR(first_bound)(x, n, k, flip, held, spare, counts);
    if (bound != (SR_KEYS)~(SR_KEYS)0) {
        bound++;
        for (; count < k; count++)
            held[count] = SR_MAKE(bound, 0); /* gives way to what comes */
    } else {
        for (; i < k; i++)
            held[count++] = SR_MAKE((SR_ENCODE(x[i * stride])) ^ flip, i);
        sorted = SR_SORT(held, spare, count, counts);
        if (sorted != held)
            spare = held, held = sorted;
        bound = (SR_KEYS)SR_KEY(held[k - 1]);
    }
    for (; i < n; i += STRIPE) {
        uint64_t mask = 0;
        if (i + STRIPE <= n)
            mask = SR(below)(x + i * stride, stride, flip, bound, keys);
        else
            for (int64_t p = 0; i + p < n; p++) {
                keys[p] = (SR_KEYS)((SR_ENCODE(x[(i + p) * stride])) ^ flip);
                mask |= (uint64_t)(keys[p] < bound) << p;
            }
        for (; mask; mask &= mask - 1) {
            const int p = __builtin_ctzll(mask);
            if (k > INSERTED) {
                held[count++] = SR_MAKE(keys[p], i + p);
            } else if (keys[p] < bound) {
                int64_t at = k - 1;
                for (; at > 0 && (SR_KEYS)SR_KEY(held[at - 1]) > keys[p]; at--)
                    held[at] = held[at - 1];
                held[at] = SR_MAKE(keys[p], i + p);
                bound = (SR_KEYS)SR_KEY(held[k - 1]);
            }
        }
        if (count + STRIPE > room) {
            sorted = SR_SORT(held, spare, count, counts);
            if (sorted != held)
                spare = held, held = sorted;
            count = k;
            bound = (SR_KEYS)SR_KEY(held[k - 1]);
        }
    }
    return count > k ? SR_SORT(held, spare, count, counts) : held;
}

/* Find where elements of `x` belong in a sorted row: how many are less, or not greater. Searches go
 * on side by side, as each waits for memory; all halve ranges of one length, without branches. */
static inline __attribute__((always_inline)) void SR(search_by)(const char *row, const int64_t step, int64_t n,
                                                                const char *x, int64_t x_step, int64_t count,
                                                                int right, int64_t *places, int64_t place_step)
{
    const SR_T *a = (const SR_T *)row, *wanted = (const SR_T *)x;
    for (int64_t first = 0; first < count; first += SEARCHES) {
        const int64_t side = count - first < SEARCHES ? count - first : SEARCHES;
        SR_KEYS bound[SEARCHES];
        int64_t base[SEARCHES] = {0};
        /* Not greater than a key is less than the next one; the largest has none. */
        uint8_t beyond[SEARCHES];
        for (int64_t i = 0; i < side; i++) {
            const SR_KEYS key = (SR_KEYS)(SR_ENCODE(wanted[(first + i) * x_step]));
            beyond[i] = right && key == (SR_KEYS)~(SR_KEYS)0;
            bound[i] = (SR_KEYS)(key + (right && !beyond[i]));
        }
        int64_t length = n;
        for (; length > 1; length -= length / 2) {
            const int64_t half = length / 2;
            for (int64_t i = 0; i < side; i++) {
                const SR_KEYS key = (SR_KEYS)(SR_ENCODE(a[(base[i] + half - 1) * step]));
                base[i] += key < bound[i] ? half : 0;
            }
        }
        for (int64_t i = 0; i < side; i++) {
            const int last = length == 1 && (SR_KEYS)(SR_ENCODE(a[base[i] * step])) < bound[i];
            places[(first + i) * place_step] = beyond[i] ? n : base[i] + last;
        }
    }
}

#if defined(__AVX512F__) && SR_BITS >= 32
/* Keys of a node that are less than a bound. */
static inline int64_t SR(lesser)(const SR_KEYS *node, SR_KEYS bound)
{
#if SR_BITS == 32
    return __builtin_popcount(_mm512_cmplt_epu32_mask(_mm512_load_si512(node), _mm512_set1_epi32((int)bound)));
#else
    const __m512i wanted = _mm512_set1_epi64((long long)bound);
    return __builtin_popcount(_mm512_cmplt_epu64_mask(_mm512_load_si512(node), wanted))
           + __builtin_popcount(_mm512_cmplt_epu64_mask(_mm512_load_si512(node + 8), wanted));
#endif
}

/* Search by a tree of nodes of 16 keys, compared at once: those of a level are the last ones of the
 * nodes below. Behind the keys of each level stands at least one that is less than no bound. Returns
 * 0 where it does not pay. */
static int SR(search_tree)(const char *row, const int64_t step, int64_t n, const char *x, int64_t x_step,
                           int64_t count, int right, int64_t *places, int64_t place_step)
{
    const SR_T *a = (const SR_T *)row, *wanted = (const SR_T *)x;
    SR_KEYS *levels[TREE_LEVELS], *memory;
    int64_t sizes[TREE_LEVELS], total = 0;
    int depth = 0;
    if (n < TREE_LEAST || n > TREE_MOST || count < n)
        return 0;
    for (int64_t size = n; depth == 0 || size > NODE_KEYS; depth++) {
        size = depth == 0 ? n : size / NODE_KEYS;
        sizes[depth] = (size / NODE_KEYS + 1) * NODE_KEYS;
        total += sizes[depth];
    }
    memory = tgc_scratch((size_t)total * sizeof(SR_KEYS));
    if (memory == NULL)
        return 0;
    levels[0] = memory;
    for (int64_t i = 0; i < sizes[0]; i++)
        memory[i] = i < n ? (SR_KEYS)(SR_ENCODE(a[i * step])) : (SR_KEYS)~(SR_KEYS)0;
    for (int level = 1; level < depth; level++) {
        levels[level] = levels[level - 1] + sizes[level - 1];
        for (int64_t i = 0; i < sizes[level]; i++) {
            const int64_t last = (i + 1) * NODE_KEYS - 1;
            levels[level][i] = last < sizes[level - 1] ? levels[level - 1][last] : (SR_KEYS)~(SR_KEYS)0;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        const SR_KEYS key = (SR_KEYS)(SR_ENCODE(wanted[i * x_step]));
        const int beyond = right && key == (SR_KEYS)~(SR_KEYS)0;
        const SR_KEYS bound = (SR_KEYS)(key + (right && !beyond));
        int64_t at = 0;
        for (int level = depth - 1; level >= 0; level--)
            at = NODE_KEYS * at + SR(lesser)(levels[level] + NODE_KEYS * at, bound);
        places[i * place_step] = beyond ? n : at;
    }
    tgc_scratch_free(memory);
    return 1;
}
#else
static int SR(search_tree)(const char *row, const int64_t step, int64_t n, const char *x, int64_t x_step,
                           int64_t count, int right, int64_t *places, int64_t place_step)
{
    (void)row, (void)step, (void)n, (void)x, (void)x_step, (void)count, (void)right, (void)places, (void)place_step;
    return 0;
}
#endif

static void SR(search)(const char *row, int64_t step, int64_t n, const char *x, int64_t x_step, int64_t count,
                       int right, int64_t *places, int64_t place_step)
{
    if (SR(search_tree)(row, step, n, x, x_step, count, right, places, place_step))
        return;
    if (step == 1)
        SR(search_by)(row, 1, n, x, x_step, count, right, places, place_step);
    else
        SR(search_by)(row, step, n, x, x_step, count, right, places, place_step);
}

static const row_kind SR(kind) = {sizeof(SR_T), sizeof(SR_ITEM), SR(encode), SR(sort), SR(decode), SR(best), SR(search)};

#undef SR_T
#undef SR_ITEM
#undef SR_MAKE
#undef SR_KEYS
#undef SR_ENCODE
#undef SR_DECODE
#undef SR_SPECIAL
#undef SR_BITS
#undef SR_MASK
#undef SR_SORT
#undef SR_KEY
#undef SR_PLACE
#undef SR
