/* Random permutations: positions in the order of the 64-bit integers of their stream, equal ones in
 * their own order.
 *
 * An item is one word, the leading bits of the key and the position. Items are brought to segments,
 * and within a segment to buckets of eight or fewer in the mean; those are ranked by counting how many
 * lie before each. */
#include "copies/copying.h"

#include <string.h>

#include "random_values.h"

/* Items of a bucket that are ranked at once: as 16 bits each. */
#define LANES 16
#define PER_BUCKET_BITS 3
/* Buckets that a segment has at most: it stays in the second-level cache. */
#define SEGMENT_BITS 11

typedef int16_t ranks __attribute__((vector_size(2 * LANES)));

typedef struct {
    tgc_stream stream;
    uint64_t *items, *others; /* the second in buckets, with room for LANES more */
    int64_t *order, *ends;    /* positions in order; where segments end */
    int64_t n;
    int position_bits, segment_bits, bucket_bits, rank_bits; /* the last three are leading bits of keys */
} job;

static uint64_t key_of(const job *j, uint64_t position)
{
    uint64_t keys[2];
    tgc_integers(&j->stream, (int64_t)(position & ~(uint64_t)1), 2, keys);
    return keys[position & 1];
}

/* Whether an item goes behind another. */
static int behind(const job *j, uint64_t a, uint64_t b)
{
    const uint64_t mask = ((uint64_t)1 << j->position_bits) - 1;
    if ((a ^ b) >> j->position_bits)
        return a > b;
    const uint64_t first = key_of(j, a & mask), second = key_of(j, b & mask);
    return first != second ? first > second : a > b;
}

static void insertion_sort(const job *j, uint64_t *items, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const uint64_t moved = items[i];
        int64_t at = i;
        for (; at > 0 && behind(j, items[at - 1], moved); at--)
            items[at] = items[at - 1];
        items[at] = moved;
    }
}

/* Write the positions of a bucket in order. */
static inline __attribute__((always_inline)) void sort_bucket(const job *j, uint64_t *items, int64_t n, int64_t *order)
{
    const uint64_t mask = ((uint64_t)1 << j->position_bits) - 1;
    const int shift = 64 - j->segment_bits - j->bucket_bits - j->rank_bits, unused = 16 - j->rank_bits;
    if (n <= LANES) {
        int16_t keys[LANES], rank[LANES];
        ranks all, before = {0};
        int64_t total = 0;
        for (int i = 0; i < LANES; i++)
            keys[i] = (int16_t)((uint16_t)((items[i] >> shift) << unused) >> unused);
        memcpy(&all, keys, sizeof all);
        for (int64_t i = 0; i < n; i++)
            before -= (ranks)(all > keys[i]);
        memcpy(rank, &before, sizeof rank);
        for (int64_t i = 0; i < n; i++) {
            order[rank[i]] = (int64_t)(items[i] & mask);
            total += rank[i];
        }
        /* Equal ones have one rank, which leaves a gap. */
        if (total == n * (n - 1) / 2)
            return;
    }
    insertion_sort(j, items, n);
    for (int64_t i = 0; i < n; i++)
        order[i] = (int64_t)(items[i] & mask);
}

static void sort_segment(int64_t segment, void *context)
{
    const job *j = context;
    const int64_t begin = segment ? j->ends[segment - 1] : 0, n = j->ends[segment] - begin;
    const int64_t buckets = (int64_t)1 << j->bucket_bits;
    const int leading = j->segment_bits + j->bucket_bits, shift = leading ? 64 - leading : 63;
    const uint64_t mask = (uint64_t)buckets - 1, *from = j->items + begin;
    uint64_t *to = j->others + begin;
    int64_t ends[1 << SEGMENT_BITS], start = 0;
    memset(ends, 0, sizeof *ends << j->bucket_bits);
    for (int64_t i = 0; i < n; i++)
        ends[from[i] >> shift & mask]++;
    for (int64_t b = 0; b < buckets; b++) {
        const int64_t count = ends[b];
        ends[b] = start;
        start += count;
    }
    for (int64_t i = 0; i < n; i++)
        to[ends[from[i] >> shift & mask]++] = from[i];
    for (int64_t b = 0, at = 0; b < buckets; at = ends[b++])
        sort_bucket(j, to + at, ends[b] - at, j->order + begin + at);
}

/* Make the items, each in its segment. */
static void make_items(job *j)
{
    const int shift = 64 - j->segment_bits;
    const int64_t segments = (int64_t)1 << j->segment_bits;
    uint64_t *made = segments > 1 ? j->others : j->items, keys[TGC_PIECE];
    int64_t start = 0;
    memset(j->ends, 0, sizeof *j->ends << j->segment_bits);
    for (int64_t first = 0; first < j->n; first += TGC_PIECE) {
        const int64_t count = j->n - first < TGC_PIECE ? j->n - first : TGC_PIECE;
        tgc_integers(&j->stream, first, count, keys);
        for (int64_t i = 0; i < count; i++)
            made[first + i] = keys[i] >> j->position_bits << j->position_bits | (uint64_t)(first + i);
        for (int64_t i = 0; i < count && segments > 1; i++)
            j->ends[keys[i] >> shift]++;
    }
    if (segments == 1) {
        j->ends[0] = j->n;
        return;
    }
    for (int64_t s = 0; s < segments; s++) {
        const int64_t count = j->ends[s];
        j->ends[s] = start;
        start += count;
    }
    for (int64_t i = 0; i < j->n; i++)
        j->items[j->ends[made[i] >> shift]++] = made[i];
}

static int permutation_of(const tg_call *call, void *context)
{
    const tg_view *out = call->outs;
    const int64_t n = out->numel, item = sizeof(int64_t);
    const int direct = out->dtype == TGC_INT64 && (out->strides[0] == 1 || n < 2);
    job j = {.stream.offset = (uint64_t)call->args[call->nargs - 1].value.i, .n = n, .position_bits = 1};
    (void)context;
    while (n > (int64_t)1 << j.position_bits)
        j.position_bits++;
    /* Each of the leading bits is a bit of the key: no position is that long. */
    int leading = j.position_bits - PER_BUCKET_BITS, left;
    leading = leading < 0 ? 0 : leading < 63 - j.position_bits ? leading : 63 - j.position_bits;
    left = 64 - j.position_bits - leading;
    j.rank_bits = left < 15 ? left : 15;
    j.segment_bits = leading > SEGMENT_BITS ? leading - SEGMENT_BITS : 0;
    j.bucket_bits = leading - j.segment_bits;
    const size_t words = (size_t)n * (direct ? 2 : 3) + LANES + ((size_t)1 << j.segment_bits);
    j.ends = tgc_scratch(words * sizeof(uint64_t));
    if (j.ends == NULL)
        return tgc_no_memory("randperm", words * sizeof(uint64_t));
    j.items = (uint64_t *)j.ends + ((size_t)1 << j.segment_bits);
    j.order = direct ? out->data : (int64_t *)j.items + n;
    j.others = j.items + (direct ? n : 2 * n);
    tgc_philox_schedule(&j.stream.keys, (uint64_t)call->args[call->nargs - 2].value.i);
    make_items(&j);
    tgc_parallel((int64_t)1 << j.segment_bits, sort_segment, &j);
    if (!direct) {
        int64_t strides[1];
        tgc_byte_strides(out, strides);
        TGC(tgc_copy_region)(1, &n, out->data, strides, out->dtype, (const char *)j.order, &item, TGC_INT64);
    }
    tgc_scratch_free(j.ends);
    return 0;
}

const tgc_kernel TGC(tgc_table_permutation)[] = {TGC_OF_EVERY_DTYPE("_permutation_of", TGC_CALL, permutation_of, NULL),
                                                 {0}};
