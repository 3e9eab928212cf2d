/* Running sums, products, extremes and logarithms of sums along a dimension.
 *
 * Rows of unit stride are scanned several at a time. A long row is cut into pieces of a fixed
 * length: first the fold of each, then each from the state before it (Blelloch, "Prefix sums and
 * their applications", 1990). Along other dimensions the lanes are vectors. */
#include "half.h"
#include "tgc.h"

#include <math.h>
#include <string.h>

#define WAYS 4
#define MOST_LANES 256
#define PIECE 8192
#define GRAIN 32768
#define STATE_BYTES 16

typedef struct piece {
    const char *x;
    char *out;
    int64_t *where;
    int64_t n;
    int carried; /* whether `state` holds what comes before */
    char state[STATE_BYTES];
} piece;

typedef struct scan scan;

typedef struct scanner {
    int itemsize;
    int cuts; /* whether a row may be cut into pieces */
    void (*pieces)(const scan *s, const piece *p, int count);
    void (*total)(const scan *s, piece *p);
    void (*join)(void *state, const void *other);
    void (*lanes)(const scan *s, const char *data, char *target, int64_t *where, int64_t cols);
} scanner;

struct scan {
    const scanner *scanner;
    const char *in;
    char *out;
    int64_t *where;
    int64_t n, step_in, step_out, step_where;
    int64_t lanes, lane_in, lane_out, lane_where, width;
    int ndim;
    int64_t shape[TG_MAX_DIMS], in_strides[TG_MAX_DIMS], out_strides[TG_MAX_DIMS], where_strides[TG_MAX_DIMS];
    int64_t units, tasks;
    piece *cut;
};

#define AS_IT_IS(x) (x)

/* sums and products */
#define SC_INDEX 0
#define SC_CUTS 1
#define SC_FIRST(v) ((SC_STATE)(v))
#define SC_VALUE(state) (state)
#define SC_WRITE(w, i) out[w][(i) * so] = SC_STORE(state[w]);

#define SC_COMBINE(a, b, i) ((a) + (b))
#define SC_JOINED(a, b) ((a) + (b))

#define SC_NAME sum_float32
#define SC_ITEM float
#define SC_STATE double
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME sum_float64
#define SC_ITEM double
#define SC_STATE double
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME sum_float16
#define SC_ITEM uint16_t
#define SC_STATE float
#define SC_LOAD tgc_f16_to_float
#define SC_STORE tgc_float_to_f16
#include "scans_fold.h"

#define SC_NAME sum_bfloat16
#define SC_ITEM uint16_t
#define SC_STATE float
#define SC_LOAD tgc_bf16_to_float
#define SC_STORE tgc_float_to_bf16
#include "scans_fold.h"

#define SC_NAME sum_int32
#define SC_ITEM int32_t
#define SC_STATE uint32_t
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME sum_int64
#define SC_ITEM int64_t
#define SC_STATE uint64_t
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#undef SC_COMBINE
#undef SC_JOINED

#define SC_COMBINE(a, b, i) ((a) * (b))
#define SC_JOINED(a, b) ((a) * (b))

#define SC_NAME product_float32
#define SC_ITEM float
#define SC_STATE double
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME product_float64
#define SC_ITEM double
#define SC_STATE double
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME product_float16
#define SC_ITEM uint16_t
#define SC_STATE float
#define SC_LOAD tgc_f16_to_float
#define SC_STORE tgc_float_to_f16
#include "scans_fold.h"

#define SC_NAME product_bfloat16
#define SC_ITEM uint16_t
#define SC_STATE float
#define SC_LOAD tgc_bf16_to_float
#define SC_STORE tgc_float_to_bf16
#include "scans_fold.h"

#define SC_NAME product_int32
#define SC_ITEM int32_t
#define SC_STATE uint32_t
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME product_int64
#define SC_ITEM int64_t
#define SC_STATE uint64_t
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#undef SC_COMBINE
#undef SC_JOINED

/* logarithms of sums of exponentials */
static inline double log_sum(double a, double b)
{
    double most = a > b || a != a ? a : b;
    return a == b ? a + 0.6931471805599453 : most + log1p(exp(-fabs(a - b)));
}
#define SC_COMBINE(a, b, i) log_sum(a, b)
#define SC_JOINED(a, b) log_sum(a, b)

#define SC_NAME log_sum_float32
#define SC_ITEM float
#define SC_STATE double
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME log_sum_float64
#define SC_ITEM double
#define SC_STATE double
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME log_sum_float16
#define SC_ITEM uint16_t
#define SC_STATE double
#define SC_LOAD tgc_f16_to_float
#define SC_STORE tgc_float_to_f16
#include "scans_fold.h"

#define SC_NAME log_sum_bfloat16
#define SC_ITEM uint16_t
#define SC_STATE double
#define SC_LOAD tgc_bf16_to_float
#define SC_STORE tgc_float_to_bf16
#include "scans_fold.h"

#undef SC_COMBINE
#undef SC_JOINED
#undef SC_INDEX
#undef SC_CUTS
#undef SC_FIRST
#undef SC_VALUE
#undef SC_WRITE

/* extremes: the latest of equal ones, and nan once there is one */
#define SC_INDEX 1
#define SC_CUTS 0
#define SC_FIRST(v) ((SC_STATE){v, 0})
#define SC_VALUE(state) ((state).value)
#define SC_WRITE(w, i)                                                                                                 \
    out[w][(i) * so] = SC_STORE(state[w].value);                                                                       \
    where[w][(i) * sw] = state[w].at;

typedef struct {
    float value;
    int64_t at;
} extreme_float32;

typedef struct {
    double value;
    int64_t at;
} extreme_float64;

typedef struct {
    float value;
    int64_t at;
} extreme_float16;

typedef struct {
    float value;
    int64_t at;
} extreme_bfloat16;

typedef struct {
    int8_t value;
    int64_t at;
} extreme_int8;

typedef struct {
    uint8_t value;
    int64_t at;
} extreme_uint8;

typedef struct {
    int16_t value;
    int64_t at;
} extreme_int16;

typedef struct {
    int32_t value;
    int64_t at;
} extreme_int32;

typedef struct {
    int64_t value;
    int64_t at;
} extreme_int64;

#define SC_COMBINE(a, b, i)                                                                                            \
    ((b) != (b) || ((a).value == (a).value && (b) >= (a).value) ? (SC_STATE){b, i} : (a))
#define SC_JOINED(a, b) ((b).value != (b).value || (b).value >= (a).value ? (b) : (a))

#define SC_NAME most_float32
#define SC_ITEM float
#define SC_STATE extreme_float32
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME most_float64
#define SC_ITEM double
#define SC_STATE extreme_float64
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME most_float16
#define SC_ITEM uint16_t
#define SC_STATE extreme_float16
#define SC_LOAD tgc_f16_to_float
#define SC_STORE tgc_float_to_f16
#include "scans_fold.h"

#define SC_NAME most_bfloat16
#define SC_ITEM uint16_t
#define SC_STATE extreme_bfloat16
#define SC_LOAD tgc_bf16_to_float
#define SC_STORE tgc_float_to_bf16
#include "scans_fold.h"

#define SC_NAME most_int8
#define SC_ITEM int8_t
#define SC_STATE extreme_int8
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME most_uint8
#define SC_ITEM uint8_t
#define SC_STATE extreme_uint8
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME most_int16
#define SC_ITEM int16_t
#define SC_STATE extreme_int16
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME most_int32
#define SC_ITEM int32_t
#define SC_STATE extreme_int32
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME most_int64
#define SC_ITEM int64_t
#define SC_STATE extreme_int64
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#undef SC_COMBINE
#undef SC_JOINED

#define SC_COMBINE(a, b, i)                                                                                            \
    ((b) != (b) || ((a).value == (a).value && (b) <= (a).value) ? (SC_STATE){b, i} : (a))
#define SC_JOINED(a, b) ((b).value != (b).value || (b).value <= (a).value ? (b) : (a))

#define SC_NAME least_float32
#define SC_ITEM float
#define SC_STATE extreme_float32
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME least_float64
#define SC_ITEM double
#define SC_STATE extreme_float64
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME least_float16
#define SC_ITEM uint16_t
#define SC_STATE extreme_float16
#define SC_LOAD tgc_f16_to_float
#define SC_STORE tgc_float_to_f16
#include "scans_fold.h"

#define SC_NAME least_bfloat16
#define SC_ITEM uint16_t
#define SC_STATE extreme_bfloat16
#define SC_LOAD tgc_bf16_to_float
#define SC_STORE tgc_float_to_bf16
#include "scans_fold.h"

#define SC_NAME least_int8
#define SC_ITEM int8_t
#define SC_STATE extreme_int8
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME least_uint8
#define SC_ITEM uint8_t
#define SC_STATE extreme_uint8
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME least_int16
#define SC_ITEM int16_t
#define SC_STATE extreme_int16
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME least_int32
#define SC_ITEM int32_t
#define SC_STATE extreme_int32
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#define SC_NAME least_int64
#define SC_ITEM int64_t
#define SC_STATE extreme_int64
#define SC_LOAD AS_IT_IS
#define SC_STORE AS_IT_IS
#include "scans_fold.h"

#undef SC_COMBINE
#undef SC_JOINED

static int64_t offset_of(const scan *s, const int64_t *strides, int64_t position)
{
    int64_t offset = 0;
    for (int d = s->ndim - 1; d >= 0; d--) {
        offset += position % s->shape[d] * strides[d];
        position /= s->shape[d];
    }
    return offset;
}

static void place(const scan *s, piece *p, int64_t row)
{
    int64_t item = s->scanner->itemsize;
    p->x = s->in + offset_of(s, s->in_strides, row) * item;
    p->out = s->out + offset_of(s, s->out_strides, row) * item;
    p->where = s->where == NULL ? NULL : s->where + offset_of(s, s->where_strides, row);
    p->n = s->n;
    p->carried = 0;
}

static void rows_task(int64_t task, void *context)
{
    const scan *s = context;
    int64_t row = tgc_begin(s->units, s->tasks, task, WAYS), end = tgc_begin(s->units, s->tasks, task + 1, WAYS);
    piece pieces[WAYS];
    memset(pieces, 0, sizeof pieces);
    for (; row < end; row += WAYS) {
        int count = (int)(end - row < WAYS ? end - row : WAYS);
        for (int w = 0; w < count; w++)
            place(s, &pieces[w], row + w);
        s->scanner->pieces(s, pieces, count);
    }
}

static void lanes_task(int64_t task, void *context)
{
    const scan *s = context;
    int64_t begin = tgc_begin(s->units, s->tasks, task, 1), end = tgc_begin(s->units, s->tasks, task + 1, 1);
    int64_t groups = (s->lanes + s->width - 1) / s->width, item = s->scanner->itemsize;
    for (int64_t unit = begin; unit < end; unit++) {
        piece p;
        int64_t at = unit % groups * s->width, cols = s->lanes - at < s->width ? s->lanes - at : s->width;
        place(s, &p, unit / groups);
        s->scanner->lanes(s, p.x + at * s->lane_in * item, p.out + at * s->lane_out * item,
                          p.where == NULL ? NULL : p.where + at * s->lane_where, cols);
    }
}

static void totals_task(int64_t index, void *context)
{
    const scan *s = context;
    s->scanner->total(s, &s->cut[index]);
}

static void cut_task(int64_t task, void *context)
{
    const scan *s = context;
    int64_t begin = task * WAYS, left = s->units - begin;
    int count = (int)(left < WAYS ? left : WAYS);
    /* The last piece is the longest; pieces side by side have one length. */
    if (begin + count == s->units && count > 1) {
        s->scanner->pieces(s, &s->cut[begin], count - 1);
        begin += count - 1;
        count = 1;
    }
    s->scanner->pieces(s, &s->cut[begin], count);
}

/* One row: pieces of a fixed length, the rest at the last. */
static int scan_cut(scan *s, piece whole)
{
    int64_t count = s->n / PIECE;
    size_t bytes = (size_t)count * (sizeof(piece) + STATE_BYTES);
    s->cut = tgc_scratch(bytes);
    if (s->cut == NULL)
        return tgc_no_memory("scan", bytes);
    for (int64_t i = 0; i < count; i++) {
        s->cut[i] = whole;
        s->cut[i].x += i * PIECE * s->step_in * s->scanner->itemsize;
        s->cut[i].out += i * PIECE * s->step_out * s->scanner->itemsize;
        s->cut[i].n = i < count - 1 ? PIECE : s->n - i * PIECE;
    }
    s->units = count;
    tgc_parallel(count - 1, totals_task, s);
    char state[STATE_BYTES], next[STATE_BYTES];
    memcpy(state, s->cut[0].state, STATE_BYTES);
    for (int64_t i = 1; i < count; i++) {
        memcpy(next, s->cut[i].state, STATE_BYTES);
        memcpy(s->cut[i].state, state, STATE_BYTES);
        s->cut[i].carried = 1;
        if (i < count - 1)
            s->scanner->join(state, next);
    }
    /* The first piece has nothing before it and goes alone. */
    s->scanner->pieces(s, &s->cut[0], 1);
    s->cut++;
    s->units--;
    tgc_parallel((s->units + WAYS - 1) / WAYS, cut_task, s);
    tgc_scratch_free(s->cut - 1);
    return 0;
}

static int run_scan(const tg_call *call, void *context)
{
    const tg_view *x = &call->args[0].value.tensors[0], *out = &call->outs[0];
    const tg_view *where = call->nout > 1 ? &call->outs[1] : NULL;
    int64_t dim = call->args[1].value.i;
    scan s = {.scanner = context, .in = x->data, .out = out->data, .n = 1, .step_in = 1, .step_out = 1,
              .where = where == NULL ? NULL : where->data, .lanes = 1};
    if (x->numel == 0)
        return 0;
    for (int d = 0; d < x->ndim; d++) {
        int64_t size = x->shape[d], at_where = where == NULL ? 0 : where->strides[d];
        if (d == dim) {
            s.n = size;
            s.step_in = x->strides[d];
            s.step_out = out->strides[d];
            s.step_where = at_where;
            continue;
        }
        if (size == 1)
            continue;
        int last = s.ndim - 1;
        int merges = last >= 0 && s.in_strides[last] == x->strides[d] * size
                     && s.out_strides[last] == out->strides[d] * size && s.where_strides[last] == at_where * size;
        int at = merges ? last : s.ndim++;
        s.shape[at] = merges ? s.shape[at] * size : size;
        s.in_strides[at] = x->strides[d];
        s.out_strides[at] = out->strides[d];
        s.where_strides[at] = at_where;
    }
    int64_t rows = x->numel / s.n;
    if (rows == 1 && s.n >= 4 * PIECE && s.scanner->cuts) {
        piece whole;
        memset(&whole, 0, sizeof whole);
        place(&s, &whole, 0);
        return scan_cut(&s, whole);
    }
    if (s.step_in == 1 || s.ndim == 0) {
        s.units = rows;
        s.tasks = tgc_tasks(x->numel, GRAIN, (rows + WAYS - 1) / WAYS);
        tgc_parallel(s.tasks, rows_task, &s);
        return 0;
    }
    s.ndim--;
    s.lanes = s.shape[s.ndim];
    s.lane_in = s.in_strides[s.ndim];
    s.lane_out = s.out_strides[s.ndim];
    s.lane_where = s.where_strides[s.ndim];
    s.width = s.lanes < MOST_LANES ? s.lanes : MOST_LANES;
    s.units = rows / s.lanes * ((s.lanes + s.width - 1) / s.width);
    s.tasks = tgc_tasks(x->numel, GRAIN, s.units);
    tgc_parallel(s.tasks, lanes_task, &s);
    return 0;
}

const tgc_kernel TGC(tgc_table_scans)[] = {
    {"cumsum", "float32", TGC_CALL, run_scan, &sum_float32_scanner},
    {"cumprod", "float32", TGC_CALL, run_scan, &product_float32_scanner},
    {"cumsum", "float64", TGC_CALL, run_scan, &sum_float64_scanner},
    {"cumprod", "float64", TGC_CALL, run_scan, &product_float64_scanner},
    {"cumsum", "float16", TGC_CALL, run_scan, &sum_float16_scanner},
    {"cumprod", "float16", TGC_CALL, run_scan, &product_float16_scanner},
    {"cumsum", "bfloat16", TGC_CALL, run_scan, &sum_bfloat16_scanner},
    {"cumprod", "bfloat16", TGC_CALL, run_scan, &product_bfloat16_scanner},
    {"cumsum", "int32", TGC_CALL, run_scan, &sum_int32_scanner},
    {"cumprod", "int32", TGC_CALL, run_scan, &product_int32_scanner},
    {"cumsum", "int64", TGC_CALL, run_scan, &sum_int64_scanner},
    {"cumprod", "int64", TGC_CALL, run_scan, &product_int64_scanner},
    {"logcumsumexp", "float32", TGC_CALL, run_scan, &log_sum_float32_scanner},
    {"logcumsumexp", "float64", TGC_CALL, run_scan, &log_sum_float64_scanner},
    {"logcumsumexp", "float16", TGC_CALL, run_scan, &log_sum_float16_scanner},
    {"logcumsumexp", "bfloat16", TGC_CALL, run_scan, &log_sum_bfloat16_scanner},
    {"cummax", "float32", TGC_CALL, run_scan, &most_float32_scanner},
    {"cummin", "float32", TGC_CALL, run_scan, &least_float32_scanner},
    {"cummax", "float64", TGC_CALL, run_scan, &most_float64_scanner},
    {"cummin", "float64", TGC_CALL, run_scan, &least_float64_scanner},
    {"cummax", "float16", TGC_CALL, run_scan, &most_float16_scanner},
    {"cummin", "float16", TGC_CALL, run_scan, &least_float16_scanner},
    {"cummax", "bfloat16", TGC_CALL, run_scan, &most_bfloat16_scanner},
    {"cummin", "bfloat16", TGC_CALL, run_scan, &least_bfloat16_scanner},
    {"cummax", "int8", TGC_CALL, run_scan, &most_int8_scanner},
    {"cummin", "int8", TGC_CALL, run_scan, &least_int8_scanner},
    {"cummax", "uint8", TGC_CALL, run_scan, &most_uint8_scanner},
    {"cummin", "uint8", TGC_CALL, run_scan, &least_uint8_scanner},
    {"cummax", "int16", TGC_CALL, run_scan, &most_int16_scanner},
    {"cummin", "int16", TGC_CALL, run_scan, &least_int16_scanner},
    {"cummax", "int32", TGC_CALL, run_scan, &most_int32_scanner},
    {"cummin", "int32", TGC_CALL, run_scan, &least_int32_scanner},
    {"cummax", "int64", TGC_CALL, run_scan, &most_int64_scanner},
    {"cummin", "int64", TGC_CALL, run_scan, &least_int64_scanner},
    {0}};
