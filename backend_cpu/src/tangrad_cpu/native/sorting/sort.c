/* Sorting along a dimension, the k best along one, and searching in sorted rows.
 *
 * An element becomes an unsigned key of the same order, of one width with its dtype; equal elements
 * (all NaN, both zeros) have equal keys. Keys of up to 32 bits share a word with the place of the
 * element, so that moving one moves both. */
#include "half.h"
#include "tgc.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif
#include <stdatomic.h>
#include <string.h>

/* Runs that are ranked, or sorted by insertion if shorter than RANKED; more are merged, then
 * distributed by narrow digits, and by wide ones. */
#if defined(__AVX2__)
#define RUN 64
#define RANKED 12
#else
#define RUN 16
#define RANKED 17
#endif
#define FEW 256
#define MANY 65536
#define DIGIT 8
#define WIDE_DIGIT 11
#define PIECE 65536
#define MOST_PIECES 16
/* Of the k best: elements looked at together; the largest k to insert into; and the fewest elements
 * that pass before they are sorted. */
#define STRIPE 64
#define INSERTED 64
#define PASSING 192
#define GRAIN 8192
/* Searches that go on at the same time. */
#define SEARCHES 32
/* A tree for searches: of rows that are no longer than what is looked for. */
#define NODE_KEYS 16
#define TREE_LEVELS 8
#define TREE_LEAST 1
#define TREE_MOST (1 << 24)

typedef struct wide_item {
    uint64_t key, place;
} wide_item;

#define SO_ITEM uint64_t
#define SO_KEY(item) ((item) >> 32)
#define SO(name) name##_narrow
#include "sort_items.h"
#define SO_ITEM wide_item
#define SO_KEY(item) ((item).key)
#define SO(name) name##_wide
#include "sort_items.h"

typedef struct row_kind {
    int itemsize, item;
    int (*encode)(const char *data, int64_t stride, int64_t n, int descending, void *items);
    void *(*sort)(void *items, void *spare, int64_t n, uint32_t *counts);
    void (*decode)(const void *items, int64_t n, int descending, const char *source, int64_t stride, char *values,
                   int64_t value_stride, int64_t *places, int64_t place_stride);
    void *(*best)(const char *data, int64_t stride, int64_t n, int64_t k, int descending, void *memory, void *spare,
                  uint32_t *counts);
    void (*search)(const char *row, int64_t step, int64_t n, const char *x, int64_t x_step, int64_t count, int right,
                   int64_t *places, int64_t place_step);
} row_kind;

/* Floating point: negative numbers are reversed, and all of them put below the positive ones. */
static inline uint16_t key_f16(uint16_t bits, uint16_t infinity)
{
    const uint16_t size = bits & 0x7FFF;
    const uint16_t key = (uint16_t)(bits & 0x8000 ? ~bits : bits | 0x8000);
    return size > infinity ? 0xFFFF : size == 0 ? 0x8000 : key;
}

static inline uint32_t key_f32(uint32_t bits)
{
    const uint32_t size = bits & 0x7FFFFFFF;
    const uint32_t key = bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
    return size > 0x7F800000u ? 0xFFFFFFFFu : size == 0 ? 0x80000000u : key;
}

static inline uint64_t key_f64(uint64_t bits)
{
    const uint64_t size = bits & (UINT64_MAX >> 1);
    const uint64_t key = bits ^ ((uint64_t)((int64_t)bits >> 63) | (uint64_t)1 << 63);
    return size > (uint64_t)0x7FF << 52 ? UINT64_MAX : size == 0 ? (uint64_t)1 << 63 : key;
}

/* Where a key does not tell the bits: NaN has many, and zero two. */
#define SPECIAL_F(bits, sign, infinity) (((bits) & ((sign) - 1)) > (infinity) || (bits) == (sign))
#define DECODE_F(key, sign) ((key) & (sign) ? (key) ^ (sign) : ~(key))

#if defined(__AVX512F__)
#define MASK_32(mask, keys, bound)                                                                                     \
    for (int p = 0; p < STRIPE; p += 16)                                                                               \
        mask |= (uint64_t)_mm512_cmplt_epu32_mask(_mm512_loadu_si512(keys + p), _mm512_set1_epi32((int)bound)) << p;
#define MASK_64(mask, keys, bound)                                                                                     \
    for (int p = 0; p < STRIPE; p += 8)                                                                                \
        mask |= (uint64_t)_mm512_cmplt_epu64_mask(_mm512_loadu_si512(keys + p), _mm512_set1_epi64((int64_t)bound)) << p;
#else
#define MASK_32(mask, keys, bound)                                                                                     \
    for (int p = 0; p < STRIPE; p++)                                                                                   \
        mask |= (uint64_t)(keys[p] < bound) << p;
#define MASK_64 MASK_32
#endif

#define NARROW_MAKE(key, index) ((uint64_t)(key) << 32 | (uint32_t)(index))
#define NARROW_KEY(item) ((uint32_t)((item) >> 32))
#define NARROW_PLACE(item) ((uint32_t)(item))
#define WIDE_MAKE(key, index) ((wide_item){key, (uint64_t)(index)})
#define WIDE_KEY(item) ((item).key)
#define WIDE_PLACE(item) ((item).place)

#define SR_T uint8_t
#define SR_KEYS uint32_t
#define SR_BITS 8
#define SR_MASK MASK_32
#define SR_ENCODE(x) (uint32_t)(x)
#define SR_DECODE(key) (uint8_t)(key)
#define SR_SPECIAL(x) 0
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_u8
#include "sort_rows.h"

#define SR_T int8_t
#define SR_KEYS uint32_t
#define SR_BITS 8
#define SR_MASK MASK_32
#define SR_ENCODE(x) (uint32_t)((uint8_t)(x) ^ 0x80)
#define SR_DECODE(key) (int8_t)((key) ^ 0x80)
#define SR_SPECIAL(x) 0
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_i8
#include "sort_rows.h"

#define SR_T uint16_t
#define SR_KEYS uint32_t
#define SR_BITS 16
#define SR_MASK MASK_32
#define SR_ENCODE(x) (uint32_t)(x)
#define SR_DECODE(key) (uint16_t)(key)
#define SR_SPECIAL(x) 0
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_u16
#include "sort_rows.h"

#define SR_T int16_t
#define SR_KEYS uint32_t
#define SR_BITS 16
#define SR_MASK MASK_32
#define SR_ENCODE(x) (uint32_t)((uint16_t)(x) ^ 0x8000)
#define SR_DECODE(key) (int16_t)((key) ^ 0x8000)
#define SR_SPECIAL(x) 0
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_i16
#include "sort_rows.h"

#define SR_T uint32_t
#define SR_KEYS uint32_t
#define SR_BITS 32
#define SR_MASK MASK_32
#define SR_ENCODE(x) (x)
#define SR_DECODE(key) (key)
#define SR_SPECIAL(x) 0
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_u32
#include "sort_rows.h"

#define SR_T int32_t
#define SR_KEYS uint32_t
#define SR_BITS 32
#define SR_MASK MASK_32
#define SR_ENCODE(x) (uint32_t)(x) ^ 0x80000000u
#define SR_DECODE(key) (int32_t)((key) ^ 0x80000000u)
#define SR_SPECIAL(x) 0
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_i32
#include "sort_rows.h"

#define SR_T uint16_t
#define SR_KEYS uint32_t
#define SR_BITS 16
#define SR_MASK MASK_32
#define SR_ENCODE(x) (uint32_t)key_f16(x, 0x7C00)
#define SR_DECODE(key) (uint16_t)DECODE_F(key, 0x8000)
#define SR_SPECIAL(x) SPECIAL_F(x, 0x8000, 0x7C00)
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_f16
#include "sort_rows.h"

#define SR_T uint16_t
#define SR_KEYS uint32_t
#define SR_BITS 16
#define SR_MASK MASK_32
#define SR_ENCODE(x) (uint32_t)key_f16(x, 0x7F80)
#define SR_DECODE(key) (uint16_t)DECODE_F(key, 0x8000)
#define SR_SPECIAL(x) SPECIAL_F(x, 0x8000, 0x7F80)
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_bf16
#include "sort_rows.h"

#define SR_T uint32_t
#define SR_KEYS uint32_t
#define SR_BITS 32
#define SR_MASK MASK_32
#define SR_ENCODE(x) key_f32(x)
#define SR_DECODE(key) DECODE_F(key, 0x80000000u)
#define SR_SPECIAL(x) SPECIAL_F(x, 0x80000000u, 0x7F800000u)
#define SR_ITEM uint64_t
#define SR_MAKE NARROW_MAKE
#define SR_KEY NARROW_KEY
#define SR_PLACE NARROW_PLACE
#define SR_SORT sort_narrow
#define SR(name) name##_f32
#include "sort_rows.h"

#define SR_T uint64_t
#define SR_KEYS uint64_t
#define SR_BITS 64
#define SR_MASK MASK_64
#define SR_ENCODE(x) (x)
#define SR_DECODE(key) (key)
#define SR_SPECIAL(x) 0
#define SR_ITEM wide_item
#define SR_MAKE WIDE_MAKE
#define SR_KEY WIDE_KEY
#define SR_PLACE WIDE_PLACE
#define SR_SORT sort_wide
#define SR(name) name##_u64
#include "sort_rows.h"

#define SR_T int64_t
#define SR_KEYS uint64_t
#define SR_BITS 64
#define SR_MASK MASK_64
#define SR_ENCODE(x) (uint64_t)(x) ^ (uint64_t)1 << 63
#define SR_DECODE(key) (int64_t)((key) ^ (uint64_t)1 << 63)
#define SR_SPECIAL(x) 0
#define SR_ITEM wide_item
#define SR_MAKE WIDE_MAKE
#define SR_KEY WIDE_KEY
#define SR_PLACE WIDE_PLACE
#define SR_SORT sort_wide
#define SR(name) name##_i64
#include "sort_rows.h"

#define SR_T uint64_t
#define SR_KEYS uint64_t
#define SR_BITS 64
#define SR_MASK MASK_64
#define SR_ENCODE(x) key_f64(x)
#define SR_DECODE(key) DECODE_F(key, (uint64_t)1 << 63)
#define SR_SPECIAL(x) SPECIAL_F(x, (uint64_t)1 << 63, (uint64_t)0x7FF << 52)
#define SR_ITEM wide_item
#define SR_MAKE WIDE_MAKE
#define SR_KEY WIDE_KEY
#define SR_PLACE WIDE_PLACE
#define SR_SORT sort_wide
#define SR(name) name##_f64
#include "sort_rows.h"

static const row_kind *const kinds[TGC_DTYPES] = {
    [TGC_BOOL] = &kind_u8,   [TGC_UINT8] = &kind_u8,   [TGC_INT8] = &kind_i8,     [TGC_UINT16] = &kind_u16,
    [TGC_INT16] = &kind_i16, [TGC_UINT32] = &kind_u32, [TGC_INT32] = &kind_i32,   [TGC_UINT64] = &kind_u64,
    [TGC_INT64] = &kind_i64, [TGC_FLOAT16] = &kind_f16, [TGC_BFLOAT16] = &kind_bf16, [TGC_FLOAT32] = &kind_f32,
    [TGC_FLOAT64] = &kind_f64};

typedef struct job {
    const row_kind *kind;
    const tg_view *x, *values, *places;
    int dim;
    int64_t n, k, rows, units, together, tasks;
    int descending, whole; /* whole: the row is sorted, else its best are picked */
    atomic_int failed;
} job;

/* The first element of a row, where `row` counts the places of all dimensions but the one sorted. */
static int64_t row_offset(const tg_view *view, int dim, int64_t row, const int64_t *shape)
{
    int64_t offset = 0;
    for (int d = view->ndim - 1; d >= 0; d--)
        if (d != dim) {
            offset += row % shape[d] * view->strides[d];
            row /= shape[d];
        }
    return offset;
}

/* Items that are kept at once for one row. */
static int64_t items_of(const job *j)
{
    return j->whole ? j->n : j->k + (j->k > PASSING ? j->k : PASSING) + STRIPE;
}

static void row(const job *j, int64_t row, char *items, char *spare, uint32_t *counts)
{
    const row_kind *kind = j->kind;
    const tg_view *x = j->x, *v = j->values, *p = j->places;
    const int64_t stride = x->ndim ? x->strides[j->dim] : 1, value_stride = x->ndim ? v->strides[j->dim] : 1;
    const int64_t place_stride = x->ndim ? p->strides[j->dim] : 1;
    const char *source = (const char *)x->data + row_offset(x, j->dim, row, x->shape) * kind->itemsize;
    char *values = (char *)v->data + row_offset(v, j->dim, row, x->shape) * kind->itemsize;
    int64_t *places = (int64_t *)p->data + row_offset(p, j->dim, row, x->shape);
    const void *sorted;
    int special = 1;
    if (j->whole) {
        special = kind->encode(source, stride, j->n, j->descending, items);
        sorted = kind->sort(items, spare, j->n, counts);
    } else {
        sorted = kind->best(source, stride, j->n, j->k, j->descending, items, spare, counts);
    }
    kind->decode(sorted, j->k, j->descending, special ? source : NULL, stride, values, value_stride, places,
                 place_stride);
}

static void rows_task(int64_t task, void *context)
{
    job *j = context;
    const size_t bytes = (size_t)(items_of(j) * j->kind->item), table = sizeof(uint32_t) * MOST_PIECES << WIDE_DIGIT;
    char *memory = tgc_scratch(2 * bytes + table);
    if (memory == NULL) {
        atomic_store(&j->failed, 1);
        return;
    }
    const int64_t end = tgc_begin(j->rows, j->tasks, task + 1, 1);
    for (int64_t r = tgc_begin(j->rows, j->tasks, task, 1); r < end; r++)
        row(j, r, memory + table, memory + table + bytes, (uint32_t *)memory);
    tgc_scratch_free(memory);
}

static int run(job *j, const char *op)
{
    j->kind = kinds[j->x->dtype];
    j->n = j->x->ndim ? j->x->shape[j->dim] : 1;
    if (j->x->numel == 0 || j->k == 0)
        return 0;
    if (j->n > UINT32_MAX)
        return tgc_error("RuntimeError", "%s: rows may have 2^32 - 1 elements at most, got %lld", op, (long long)j->n);
    j->rows = j->x->numel / j->n;
    j->tasks = tgc_tasks(j->x->numel, GRAIN, j->rows < 64 ? j->rows : 64);
    tgc_parallel(j->tasks, rows_task, j);
    return atomic_load(&j->failed) ? tgc_no_memory(op, (size_t)(2 * items_of(j) * j->kind->item)) : 0;
}

static int sort(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    job j = {.x = args[0].value.tensors, .dim = (int)args[1].value.i, .descending = (int)args[2].value.i,
             .values = &call->outs[0], .places = &call->outs[1], .whole = 1};
    (void)context;
    j.k = j.x->ndim ? j.x->shape[j.dim] : 1;
    return run(&j, "sort");
}

static int topk(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    job j = {.x = args[0].value.tensors, .k = args[1].value.i, .dim = (int)args[2].value.i,
             .descending = (int)args[3].value.i, .values = &call->outs[0], .places = &call->outs[1]};
    (void)context;
    const int64_t n = j.x->ndim ? j.x->shape[j.dim] : 1;
    j.whole = j.k > (j.k > INSERTED ? n / 4 : n / 2);
    return run(&j, "topk");
}

/* --- where elements belong in sorted rows -------------------------------------------------------- */

typedef struct search_job {
    const tg_view *rows, *x, *out;
    int64_t tasks, pieces, length; /* a task is a piece of a row of x */
    int right, flat;               /* all of x, without gaps, is one row */
} search_job;

static void search_task(int64_t task, void *context)
{
    const search_job *j = context;
    const tg_view *rows = j->rows, *x = j->x, *out = j->out;
    const row_kind *kind = kinds[rows->dtype];
    const int last = j->flat ? -1 : x->ndim - 1, one = rows->ndim == 1;
    const int64_t row = task / j->pieces, piece = task % j->pieces;
    const int64_t begin = tgc_begin(j->length, j->pieces, piece, 1);
    const int64_t end = tgc_begin(j->length, j->pieces, piece + 1, 1);
    const int64_t x_step = last < 0 ? 1 : x->strides[last], out_step = last < 0 ? 1 : out->strides[last];
    const char *table = (const char *)rows->data;
    if (!one)
        table += row_offset(rows, rows->ndim - 1, row, rows->shape) * kind->itemsize;
    const int64_t x_first = j->flat ? 0 : row_offset(x, last, row, x->shape);
    const int64_t out_first = j->flat ? 0 : row_offset(out, last, row, x->shape);
    const char *wanted = (const char *)x->data + (x_first + begin * x_step) * kind->itemsize;
    int64_t *places = (int64_t *)out->data + out_first + begin * out_step;
    kind->search(table, rows->strides[rows->ndim - 1], rows->shape[rows->ndim - 1], wanted, x_step, end - begin,
                 j->right, places, out_step);
}

static int search(const tg_call *call, void *context)
{
    const tg_argument *args = call->args;
    search_job j = {.rows = args[0].value.tensors, .x = args[1].value.tensors, .out = call->outs,
                    .right = (int)args[2].value.i};
    (void)context;
    if (j.x->numel == 0)
        return 0;
    j.flat = j.rows->ndim == 1 && tgc_is_contiguous(j.x, 0) && tgc_is_contiguous(j.out, 0);
    j.length = j.flat ? j.x->numel : j.x->shape[j.x->ndim - 1];
    j.pieces = tgc_tasks(j.length, GRAIN, 64);
    tgc_parallel(j.x->numel / j.length * j.pieces, search_task, &j);
    return 0;
}

#define FOR_DTYPE(dtype)                                                                           \
    {"sort", dtype, TGC_CALL, sort, NULL}, {"topk", dtype, TGC_CALL, topk, NULL},                  \
    {                                                                                              \
        "_searchsorted", dtype, TGC_CALL, search, NULL                                              \
    }

const tgc_kernel TGC(tgc_table_sort)[] = {
    FOR_DTYPE("bool"),    FOR_DTYPE("uint8"),   FOR_DTYPE("int8"),    FOR_DTYPE("uint16"),  FOR_DTYPE("int16"),
    FOR_DTYPE("uint32"),  FOR_DTYPE("int32"),   FOR_DTYPE("uint64"),  FOR_DTYPE("int64"),   FOR_DTYPE("float32"),
    FOR_DTYPE("float64"), FOR_DTYPE("float16"), FOR_DTYPE("bfloat16"), {0}};
