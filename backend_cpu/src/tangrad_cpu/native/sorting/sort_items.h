/* Sorting of items, each a key and the place that it comes from, by unsigned keys; stable. A template:
 * SO_ITEM, SO_KEY(item), SO(name). An item's digits are bits of its key.
 *
 * Few items are merged, more are distributed digit by digit from the lowest (least significant digit
 * radix sort: D. Knuth, The Art of Computer Programming 3, 5.2.5). */

/* Sort n <= RUN items: the place of each is the number of those before it in order, and vectors count
 * many at once. */
static void SO(rank_sort)(SO_ITEM *a, int64_t n)
{
    uint64_t keys[RUN], places[RUN];
    SO_ITEM copy[RUN];
    for (int64_t i = 0; i < n; i++) {
        copy[i] = a[i];
        keys[i] = SO_KEY(a[i]);
        places[i] = 0;
    }
    for (int64_t k = 0; k < n; k++) {
        const uint64_t key = keys[k];
        for (int64_t i = 0; i < k; i++)
            places[i] += key < keys[i];
        for (int64_t i = k + 1; i < n; i++)
            places[i] += key <= keys[i];
    }
    for (int64_t i = 0; i < n; i++)
        a[places[i]] = copy[i];
}

static void SO(insertion_sort)(SO_ITEM *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const SO_ITEM x = a[i];
        int64_t k = i;
        for (; k > 0 && SO_KEY(x) < SO_KEY(a[k - 1]); k--)
            a[k] = a[k - 1];
        a[k] = x;
    }
}

/* Sort short runs, then merge without branches; the result is in `a`. */
static void SO(merge_sort)(SO_ITEM *a, SO_ITEM *spare, int64_t n)
{
    for (int64_t first = 0; first < n; first += RUN) {
        const int64_t count = n - first < RUN ? n - first : RUN;
        if (count < RANKED)
            SO(insertion_sort)(a + first, count);
        else
            SO(rank_sort)(a + first, count);
    }
    SO_ITEM *from = a, *to = spare;
    for (int64_t width = RUN; width < n; width *= 2) {
        for (int64_t first = 0; first < n; first += 2 * width) {
            const int64_t middle = first + width < n ? first + width : n;
            const int64_t end = first + 2 * width < n ? first + 2 * width : n;
            int64_t i = first, k = middle, at = first;
            while (i < middle && k < end) {
                const int later = SO_KEY(from[k]) < SO_KEY(from[i]);
                to[at++] = from[later ? k : i];
                k += later;
                i += !later;
            }
            memcpy(to + at, from + i, (size_t)(middle - i) * sizeof *to);
            at += middle - i;
            memcpy(to + at, from + k, (size_t)(end - k) * sizeof *to);
        }
        SO_ITEM *other = from;
        from = to;
        to = other;
    }
    if (from != a)
        memcpy(a, from, (size_t)n * sizeof *a);
}

/* Digits are those of the difference to the least key, so that keys close together have few. */
static void SO(count)(const SO_ITEM *a, int64_t n, uint64_t least, int shift, int bits, uint32_t *counts)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    memset(counts, 0, sizeof *counts << bits);
    for (int64_t i = 0; i < n; i++)
        counts[(SO_KEY(a[i]) - least) >> shift & mask]++;
}

static void SO(scatter)(const SO_ITEM *a, SO_ITEM *to, int64_t n, uint64_t least, int shift, int bits,
                        uint32_t *places)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < n; i++)
        to[places[(SO_KEY(a[i]) - least) >> shift & mask]++] = a[i];
}

/* One row, cut into pieces whose digits are counted and moved at the same time. */
typedef struct SO(pass) {
    const SO_ITEM *from;
    SO_ITEM *to;
    int64_t n, pieces;
    uint64_t least;
    int shift, bits;
    uint32_t *counts;
} SO(pass);

static void SO(count_task)(int64_t task, void *context)
{
    const SO(pass) *p = context;
    const int64_t begin = tgc_begin(p->n, p->pieces, task, 1), end = tgc_begin(p->n, p->pieces, task + 1, 1);
    SO(count)(p->from + begin, end - begin, p->least, p->shift, p->bits, p->counts + (task << p->bits));
}

static void SO(scatter_task)(int64_t task, void *context)
{
    const SO(pass) *p = context;
    const int64_t begin = tgc_begin(p->n, p->pieces, task, 1), end = tgc_begin(p->n, p->pieces, task + 1, 1);
    SO(scatter)(p->from + begin, p->to, end - begin, p->least, p->shift, p->bits, p->counts + (task << p->bits));
}

/* Sort; the result is in the array that is returned. `counts` has room for MOST_PIECES << WIDE_DIGIT
 * numbers. */
static SO_ITEM *SO(sort)(SO_ITEM *a, SO_ITEM *spare, int64_t n, uint32_t *counts)
{
    if (n < FEW) {
        SO(merge_sort)(a, spare, n);
        return a;
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = SO_KEY(a[i]);
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    const int bits = n < MANY ? DIGIT : WIDE_DIGIT;
    SO(pass) p = {.from = a, .to = spare, .n = n, .pieces = tgc_tasks(n, PIECE, MOST_PIECES), .least = least,
                  .bits = bits, .counts = counts};
    if (tgc_threads() == 1)
        p.pieces = 1; /* the order is the same however the row is cut */
    for (; p.shift < 64 && (most - least) >> p.shift; p.shift += bits) {
        if (p.pieces > 1)
            tgc_parallel(p.pieces, SO(count_task), &p);
        else
            SO(count)(p.from, n, least, p.shift, bits, counts);
        uint32_t total = 0;
        for (int64_t k = 0; k < (int64_t)1 << bits; k++)
            for (int64_t piece = 0; piece < p.pieces; piece++) {
                uint32_t *count = &counts[(piece << bits) + k], here = *count;
                *count = total;
                total += here;
            }
        if (p.pieces > 1)
            tgc_parallel(p.pieces, SO(scatter_task), &p);
        else
            SO(scatter)(p.from, p.to, n, least, p.shift, bits, counts);
        SO_ITEM *other = (SO_ITEM *)p.from;
        p.from = p.to;
        p.to = other;
    }
    return (SO_ITEM *)p.from;
}

#undef SO_ITEM
#undef SO_KEY
#undef SO
