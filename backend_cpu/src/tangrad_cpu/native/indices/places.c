/* Places that index tensors name: how each op lays them out, their positions block by block, the
 * check of the indices, and the cut among threads. */
#include "places.h"

#include <stdatomic.h>

#define TASK_BYTES ((int64_t)1 << 17)
#define MOST_TASKS 32
/* Rows of a part are no shorter: shorter ones cost more calls and lines of memory than work. */
#define ROW_BYTES 1024

/* --- layout ------------------------------------------------------------------------------------ */

static void add_picked(tgc_places *places, int64_t shape, int64_t table, int64_t other, int lane)
{
    int d = places->npicked++;
    places->picked[d].shape = shape;
    places->picked[d].table = table;
    places->picked[d].other = other;
    places->picked[d].lane = lane;
}

/* Keep the rest dimensions sorted by their strides in the table, the largest first. */
static void add_rest(tgc_places *places, int64_t shape, int64_t table, int64_t other)
{
    if (shape == 1)
        return;
    int d = places->nrest++;
    for (; d > 0 && (places->rest[d - 1].table < table
                     || (places->rest[d - 1].table == table && places->rest[d - 1].other < other));
         d--)
        places->rest[d] = places->rest[d - 1];
    places->rest[d].shape = shape;
    places->rest[d].table = table;
    places->rest[d].other = other;
    places->rest[d].lane = table != 0;
}

static void merge_rest(tgc_places *places)
{
    int kept = 0;
    for (int d = 1; d < places->nrest; d++) {
        if (places->rest[kept].table == places->rest[d].shape * places->rest[d].table
            && places->rest[kept].other == places->rest[d].shape * places->rest[d].other) {
            places->rest[kept].shape *= places->rest[d].shape;
            places->rest[kept].table = places->rest[d].table;
            places->rest[kept].other = places->rest[d].other;
        } else {
            places->rest[++kept] = places->rest[d];
        }
    }
    if (places->nrest)
        places->nrest = kept + 1;
}

static int same_walk(const tgc_places *places, int outer, int inner)
{
    int64_t shape = places->picked[inner].shape;
    if (places->picked[outer].table != shape * places->picked[inner].table
        || places->picked[outer].other != shape * places->picked[inner].other
        || places->picked[outer].lane != places->picked[inner].lane)
        return 0;
    for (int t = 0; t < places->nindices; t++)
        if (places->indices[t].strides[outer] != shape * places->indices[t].strides[inner])
            return 0;
    return 1;
}

static void move_picked(tgc_places *places, int to, int from)
{
    places->picked[to] = places->picked[from];
    for (int t = 0; t < places->nindices; t++)
        places->indices[t].strides[to] = places->indices[t].strides[from];
}

static int unindexed(const tgc_places *places, int d)
{
    for (int t = 0; t < places->nindices; t++)
        if (places->indices[t].strides[d] != 0)
            return 0;
    return 1;
}

/* Drop dimensions of one element, let dimensions without indices be walked whole, merge. */
static void simplify(tgc_places *places, int writes)
{
    int kept = 0;
    for (int d = 0; d < places->npicked; d++) {
        if (places->picked[d].shape == 1)
            continue;
        /* One without elements stays: its strides may be zero, and its first index must not be read. */
        if (places->picked[d].shape && unindexed(places, d) && (!writes || places->picked[d].lane)) {
            add_rest(places, places->picked[d].shape, places->picked[d].table, places->picked[d].other);
            continue;
        }
        move_picked(places, kept++, d);
    }
    places->npicked = kept;
    kept = 0;
    for (int d = 1; d < places->npicked; d++) {
        if (same_walk(places, kept, d)) {
            int64_t shape = places->picked[kept].shape * places->picked[d].shape;
            move_picked(places, kept, d);
            places->picked[kept].shape = shape;
        } else {
            move_picked(places, ++kept, d);
        }
    }
    if (places->npicked) {
        places->npicked = kept + 1;
    } else {
        add_picked(places, 1, 0, 0, 0);
        for (int t = 0; t < places->nindices; t++)
            places->indices[t].strides[0] = 0;
    }
    merge_rest(places);
}

static tgc_index *begin(tgc_places *places, const tg_view *table, const tg_view *other)
{
    places->table = table->data;
    places->other = other->data;
    places->itemsize = tgc_itemsize[table->dtype];
    places->npicked = places->nrest = places->nindices = 0;
    return places->indices;
}

/* A tensor without dimensions has one of one element here. */
static int64_t shape_of(const tg_view *view, int d)
{
    return view->ndim ? view->shape[d] : 1;
}

static int64_t stride_of(const tg_view *view, int d)
{
    return view->ndim ? view->strides[d] * tgc_itemsize[view->dtype] : 0;
}

void TGC(tgc_places_along)(tgc_places *places, const tg_view *table, const tg_view *other, int dim,
                           const tg_view *index, int writes)
{
    tgc_index *indices = begin(places, table, other);
    int64_t step = stride_of(table, dim);
    places->nindices = 1;
    indices->data = index->data;
    indices->dtype = index->dtype;
    indices->dim = dim;
    indices->size = shape_of(table, dim);
    indices->step = step;
    for (int d = 0; d < (index->ndim ? index->ndim : 1); d++) {
        indices->strides[places->npicked] = stride_of(index, d);
        add_picked(places, shape_of(index, d), d == dim ? 0 : stride_of(table, d), stride_of(other, d), d != dim);
    }
    simplify(places, writes);
}

void TGC(tgc_places_listed)(tgc_places *places, const tg_view *table, const tg_view *other, int dim,
                            const tg_view *index, int writes)
{
    tgc_index *indices = begin(places, table, other);
    places->nindices = 1;
    indices->data = index->data;
    indices->dtype = index->dtype;
    indices->dim = dim;
    indices->size = shape_of(table, dim);
    indices->step = stride_of(table, dim);
    indices->strides[0] = stride_of(index, 0);
    add_picked(places, shape_of(index, 0), 0, stride_of(other, dim), 0);
    for (int d = 0; d < table->ndim; d++)
        if (d != dim)
            add_rest(places, table->shape[d], stride_of(table, d), stride_of(other, d));
    simplify(places, writes);
}

/* The stride of a tensor along dimension d of a shape of `ndim` dimensions that it broadcasts to. */
static int64_t broadcast_stride(const tg_view *view, int ndim, int d)
{
    int k = d - (ndim - view->ndim);
    return k < 0 || view->shape[k] == 1 ? 0 : view->strides[k] * tgc_itemsize[view->dtype];
}

static int broadcasts(const tg_view *view, int ndim, const int64_t *shape)
{
    for (int k = 0; k < view->ndim; k++) {
        int d = k + ndim - view->ndim;
        if (view->shape[k] != 1 && (d < 0 || view->shape[k] != shape[d]))
            return 0;
    }
    return 1;
}

int TGC(tgc_places_indexed)(tgc_places *places, const tg_view *table, const tg_view *other, const tg_view *indices,
                            int count, int writes)
{
    tgc_index *index = begin(places, table, other);
    const tg_view *shape = NULL;
    int first = -1, last = -1, indexed = 0;
    for (int d = 0; d < count; d++) {
        if (indices[d].ndim < 0)
            continue;
        shape = shape == NULL ? &indices[d] : shape;
        first = first < 0 ? d : first;
        last = d;
        indexed++;
    }
    int adjacent = last - first + 1 == indexed, full = table->ndim - indexed + shape->ndim;
    int at = adjacent ? first : 0; /* where the picked dimensions stand in the other side */
    for (int p = 0; p < shape->ndim; p++)
        add_picked(places, shape->shape[p], 0, broadcast_stride(other, full, at + p), 0);
    for (int d = 0, position = 0; d < table->ndim; d++) {
        if (d < count && indices[d].ndim >= 0) {
            if (!broadcasts(&indices[d], shape->ndim, shape->shape))
                return tgc_error("IndexError", "%s(): shape mismatch: indexing tensors could not be broadcast together",
                                 places->op);
            index[places->nindices].data = indices[d].data;
            index[places->nindices].dtype = indices[d].dtype;
            index[places->nindices].dim = d;
            index[places->nindices].size = table->shape[d];
            index[places->nindices].step = stride_of(table, d);
            for (int p = 0; p < shape->ndim; p++)
                index[places->nindices].strides[p] = broadcast_stride(&indices[d], shape->ndim, p);
            places->nindices++;
            continue;
        }
        int k = position + (adjacent && position < first ? 0 : shape->ndim);
        add_rest(places, table->shape[d], stride_of(table, d), broadcast_stride(other, full, k));
        position++;
    }
    simplify(places, writes);
    return 0;
}

/* --- positions --------------------------------------------------------------------------------- */

/* Without signs: an index out of range may be any number, and its position is not used. */
#define ADD_POSITIONS(type, stride)                                                      \
    for (int64_t j = 0; j < n; j++) {                                                    \
        int64_t i = (int64_t) * (const type *)(data + j * (stride));                     \
        i += i < 0 ? wrap : 0;                                                           \
        wrong |= (uint64_t)i >= (uint64_t)size;                                          \
        positions[j] = (int64_t)((uint64_t)positions[j] + (uint64_t)i * (uint64_t)step); \
    }                                                                                    \
    break;

/* Add n indices times their step; nonzero where one is out of range. */
static int add_positions(const tgc_index *index, const char *restrict data, int64_t stride, int64_t wrap,
                         int64_t *restrict positions, int64_t n)
{
    int64_t size = index->size, step = index->step;
    int wrong = 0;
    switch (index->dtype) {
    case TGC_INT64:
        if (stride == 8) {
            ADD_POSITIONS(int64_t, 8)
        }
        ADD_POSITIONS(int64_t, stride)
    case TGC_INT32: ADD_POSITIONS(int32_t, stride)
    case TGC_INT16: ADD_POSITIONS(int16_t, stride)
    case TGC_INT8: ADD_POSITIONS(int8_t, stride)
    case TGC_BOOL:
    case TGC_UINT8: ADD_POSITIONS(uint8_t, stride)
    case TGC_UINT16: ADD_POSITIONS(uint16_t, stride)
    case TGC_UINT32: ADD_POSITIONS(uint32_t, stride)
    case TGC_UINT64: ADD_POSITIONS(uint64_t, stride)
    default: wrong = 1;
    }
    return wrong;
}

static int64_t picked_first(const tgc_places_part *part, int d)
{
    return part->dim == d ? part->first : 0;
}

static int64_t picked_shape(const tgc_places_part *part, int d)
{
    return part->dim == d ? part->count : part->places->picked[d].shape;
}

int TGC(tgc_places_walk)(const tgc_places_part *part, tgc_places_block block, const void *context)
{
    const tgc_places *places = part->places;
    int64_t positions[TGC_PLACES_BLOCK], index[TG_MAX_DIMS], rows = 1, table = 0, other = 0;
    int inner = places->npicked - 1;
    if (part->dim >= places->npicked) {
        table = part->first * places->rest[part->dim - places->npicked].table;
        other = part->first * places->rest[part->dim - places->npicked].other;
    }
    for (int d = 0; d <= inner; d++) {
        index[d] = picked_first(part, d);
        table += index[d] * places->picked[d].table;
        other += index[d] * places->picked[d].other;
        rows *= d < inner ? picked_shape(part, d) : 1;
    }
    int64_t step = places->picked[inner].table, other_step = places->picked[inner].other;
    int64_t first = picked_first(part, inner), count = picked_shape(part, inner);
    while (rows-- > 0) {
        for (int64_t j = 0; j < count; j += TGC_PLACES_BLOCK) {
            int64_t n = count - j < TGC_PLACES_BLOCK ? count - j : TGC_PLACES_BLOCK;
            int wrong = 0;
            for (int64_t i = 0; i < n; i++)
                positions[i] = table + (j + i) * step;
            for (int t = 0; t < places->nindices; t++) {
                const tgc_index *at = &places->indices[t];
                const char *data = at->data + (first + j) * at->strides[inner];
                for (int d = 0; d < inner; d++)
                    data += index[d] * at->strides[d];
                wrong |= add_positions(at, data, at->strides[inner], places->wraps ? at->size : 0, positions, n);
            }
            if (wrong)
                return -1;
            if (block != NULL)
                block(part, positions, other + j * other_step, other_step, n, context);
        }
        for (int d = inner - 1; d >= 0; d--) {
            table += places->picked[d].table;
            other += places->picked[d].other;
            if (++index[d] < picked_first(part, d) + picked_shape(part, d))
                break;
            table -= picked_shape(part, d) * places->picked[d].table;
            other -= picked_shape(part, d) * places->picked[d].other;
            index[d] = picked_first(part, d);
        }
    }
    return 0;
}

/* --- checks ------------------------------------------------------------------------------------ */

static int64_t index_value(const tgc_index *index, const char *data)
{
    switch (index->dtype) {
    case TGC_INT64: return *(const int64_t *)data;
    case TGC_INT32: return *(const int32_t *)data;
    case TGC_INT16: return *(const int16_t *)data;
    case TGC_INT8: return *(const int8_t *)data;
    case TGC_BOOL:
    case TGC_UINT8: return *(const uint8_t *)data;
    case TGC_UINT16: return *(const uint16_t *)data;
    case TGC_UINT32: return *(const uint32_t *)data;
    default: return (int64_t) * (const uint64_t *)data;
    }
}

int TGC(tgc_places_raise)(const tgc_places *places)
{
    int64_t total = 1;
    for (int d = 0; d < places->npicked; d++)
        total *= places->picked[d].shape;
    for (int t = 0; t < places->nindices; t++) {
        const tgc_index *index = &places->indices[t];
        if (index->dtype > TGC_INT64)
            return tgc_error("IndexError", "%s(): tensors used as indices must be of an integer dtype", places->op);
        for (int64_t at = 0; at < total; at++) {
            const char *data = index->data;
            int64_t rest = at;
            for (int d = places->npicked - 1; d >= 0; d--) {
                data += rest % places->picked[d].shape * index->strides[d];
                rest /= places->picked[d].shape;
            }
            int64_t value = index_value(index, data);
            if (value >= index->size || value < (places->wraps ? -index->size : 0))
                return tgc_error(places->error, "%s(): index %lld is out of bounds for dimension %d with size %lld",
                                 places->op, (long long)value, index->dim, (long long)index->size);
        }
    }
    return tgc_error(places->error, "%s(): an index is out of bounds; another thread wrote to the indices", places->op);
}

int TGC(tgc_places_check)(const tgc_places *places)
{
    tgc_places_part all = {places, -1, 0, 0};
    return TGC(tgc_places_walk)(&all, NULL, NULL) == 0 ? 0 : TGC(tgc_places_raise)(places);
}

/* --- threads ----------------------------------------------------------------------------------- */

typedef struct {
    const tgc_places *places;
    tgc_places_task task;
    const void *context;
    int dim;
    int64_t extent, tasks;
    atomic_int failed;
} run;

static void run_part(int64_t task, void *context)
{
    run *run = context;
    int64_t first = tgc_begin(run->extent, run->tasks, task, 1);
    tgc_places_part part = {run->places, run->dim, first, tgc_begin(run->extent, run->tasks, task + 1, 1) - first};
    if (run->task(&part, run->context) < 0)
        atomic_store(&run->failed, 1);
}

int TGC(tgc_places_run)(const tgc_places *places, int writes, tgc_places_task task, const void *context)
{
    int64_t elements = 1;
    run run = {places, task, context, -1, 1, 1, 0};
    for (int d = 0; d < places->npicked; d++)
        elements *= places->picked[d].shape;
    for (int d = 0; d < places->nrest; d++)
        elements *= places->rest[d].shape;
    if (elements == 0)
        return 0;
    /* Cut where the other side's steps are largest, so that parts are packed as far as can be. */
    int64_t tasks = tgc_tasks(elements * places->itemsize, TASK_BYTES, MOST_TASKS), step = -1;
    for (int d = 0; d < places->npicked + places->nrest; d++) {
        int of_rest = d >= places->npicked;
        int64_t shape = of_rest ? places->rest[d - places->npicked].shape : places->picked[d].shape;
        int64_t other = of_rest ? places->rest[d - places->npicked].other : places->picked[d].other;
        int lane = of_rest ? places->rest[d - places->npicked].lane : places->picked[d].lane;
        int64_t enough = shape < tasks ? shape : tasks, had = run.extent < tasks ? run.extent : tasks;
        if ((lane || !writes) && (enough > had || (enough == had && other > step))) {
            run.dim = d;
            run.extent = shape;
            step = other;
        }
    }
    if (step == places->itemsize && tasks > run.extent * step / ROW_BYTES)
        tasks = run.extent * step > ROW_BYTES ? run.extent * step / ROW_BYTES : 1;
    run.tasks = tasks < run.extent ? tasks : run.extent;
    tgc_parallel(run.tasks, run_part, &run);
    return run.failed ? TGC(tgc_places_raise)(places) : 0;
}
