/* Reading at places that index tensors name: gather, index_select, index. */
#include "places.h"

#include <string.h>

#define READ(S)                                                                                          \
    static void read##S(char *to, int64_t stride, const char *table, const int64_t *positions, int64_t n) \
    {                                                                                                    \
        if (stride == S)                                                                                 \
            _Pragma("GCC unroll 8") for (int64_t j = 0; j < n; j++)                                      \
                memcpy(to + j * S, table + positions[j], S);                                             \
        else                                                                                             \
            for (int64_t j = 0; j < n; j++)                                                              \
                memcpy(to + j * stride, table + positions[j], S);                                        \
    }
READ(1)
READ(2)
READ(4)
READ(8)
READ(16)

static void read_elements(char *to, int64_t stride, const char *table, const int64_t *positions, int64_t n, int size)
{
    switch (size) {
    case 1: read1(to, stride, table, positions, n); return;
    case 2: read2(to, stride, table, positions, n); return;
    case 4: read4(to, stride, table, positions, n); return;
    case 8: read8(to, stride, table, positions, n); return;
    default: read16(to, stride, table, positions, n);
    }
}

/* Rows of a large table are in no cache, and no prefetcher guesses where the next one starts. */
static void read_rows(char *to, int64_t stride, const char *table, const int64_t *positions, int64_t n, int64_t bytes)
{
    for (int64_t j = 0; j < n; j++) {
        if (j + 2 < n)
            for (int64_t line = 0; line < 256 && line < bytes; line += 64)
                __builtin_prefetch(table + positions[j + 2] + line);
        memcpy(to + j * stride, table + positions[j], (size_t)bytes);
    }
}

static void read_block(const tgc_places_part *part, const int64_t *positions, int64_t other, int64_t stride, int64_t n,
                       const void *context)
{
    const tgc_places *places = part->places;
    int last = places->nrest - 1, size = places->itemsize;
    char *to = places->other + other;
    (void)context;
    if (last < 0) {
        read_elements(to, stride, places->table, positions, n, size);
        return;
    }
    int64_t rows = tgc_rest_rows(part), count = tgc_rest_shape(part, last), table_at, other_at;
    int64_t table_step = places->rest[last].table, other_step = places->rest[last].other;
    int packed = table_step == size && other_step == size;
    for (int64_t row = 0; row < rows; row++) {
        tgc_rest_row(part, row, &table_at, &other_at);
        if (packed)
            read_rows(to + other_at, stride, places->table + table_at, positions, n, count * size);
        else if (stride <= other_step)
            for (int64_t k = 0; k < count; k++)
                read_elements(to + other_at + k * other_step, stride, places->table + table_at + k * table_step,
                              positions, n, size);
        else
            for (int64_t j = 0; j < n; j++)
                TGC(tgc_move_row)(to + other_at + j * stride, other_step, places->table + table_at + positions[j],
                                  table_step, count, size);
    }
}

static int read_part(const tgc_places_part *part, const void *context)
{
    return TGC(tgc_places_walk)(part, read_block, context);
}

static int read_places(tgc_places *places)
{
    /* A short packed row is one larger element. */
    if (places->nrest == 1 && places->rest[0].table == places->itemsize && places->rest[0].other == places->itemsize) {
        int64_t bytes = places->rest[0].shape * places->itemsize;
        if (bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16) {
            places->itemsize = (int)bytes;
            places->nrest = 0;
        }
    }
    return TGC(tgc_places_run)(places, 0, read_part, NULL);
}

static int gather(const tg_call *call, void *context)
{
    tgc_places places;
    const tg_view *index = call->args[2].value.tensors;
    (void)context;
    places.op = "gather";
    places.error = "RuntimeError";
    places.wraps = 0;
    if (index->numel == 0)
        return 0;
    TGC(tgc_places_along)(&places, call->args[0].value.tensors, call->outs, (int)call->args[1].value.i, index, 0);
    return read_places(&places);
}

static int index_select(const tg_call *call, void *context)
{
    tgc_places places;
    (void)context;
    places.op = "index_select";
    places.error = "IndexError";
    places.wraps = 0;
    TGC(tgc_places_listed)(&places, call->args[0].value.tensors, call->outs, (int)call->args[1].value.i,
                           call->args[2].value.tensors, 0);
    if (call->outs->numel == 0)
        return TGC(tgc_places_check)(&places);
    return read_places(&places);
}

static int advanced_index(const tg_call *call, void *context)
{
    tgc_places places;
    (void)context;
    places.op = "index";
    places.error = "IndexError";
    places.wraps = 1;
    if (TGC(tgc_places_indexed)(&places, call->args[0].value.tensors, call->outs, call->args[1].value.tensors,
                                call->args[1].count, 0) < 0)
        return -1;
    if (call->outs->numel == 0)
        return TGC(tgc_places_check)(&places);
    return read_places(&places);
}

const tgc_kernel TGC(tgc_table_indexing)[] = {
    TGC_OF_EVERY_DTYPE("gather", TGC_CALL, gather, NULL),
    TGC_OF_EVERY_DTYPE("index_select", TGC_CALL, index_select, NULL),
    TGC_OF_EVERY_DTYPE("index", TGC_CALL, advanced_index, NULL),
    {0},
};
