/* copy_: one tensor into another, converted, broadcast and laid out anew. */
#include "copying.h"

#include <string.h>

typedef struct {
    uintptr_t first, end;
} span;

static span span_of(const tg_loop *loop, const tg_operand *operand)
{
    span bytes = {(uintptr_t)operand->data, (uintptr_t)operand->data + (uintptr_t)tgc_itemsize[operand->dtype]};
    for (int d = 0; d < loop->ndim; d++)
        bytes.end += (uintptr_t)((loop->shape[d] - 1) * operand->strides[d]);
    return bytes;
}

/* Both sides may be views of one storage: the result is as if the source were read before any write. */
static int copy_overlapping(const tg_loop *loop, const tg_operand *to, const tg_operand *from)
{
    int64_t strides[TG_MAX_DIMS], step = tgc_itemsize[from->dtype];
    for (int d = loop->ndim - 1; d >= 0; d--) {
        strides[d] = step;
        step *= loop->shape[d];
    }
    char *between = tgc_scratch((size_t)step);
    if (between == NULL)
        return tgc_no_memory("copy_", (size_t)step);
    TGC(tgc_move_region)(loop->ndim, loop->shape, between, strides, from->data, from->strides,
                         tgc_itemsize[from->dtype]);
    TGC(tgc_copy_region)(loop->ndim, loop->shape, to->data, to->strides, to->dtype, between, strides, from->dtype);
    tgc_scratch_free(between);
    return 0;
}

static int copy(const tg_loop *loop, void *context)
{
    const tg_operand *to = &loop->operands[0], *from = &loop->operands[1];
    (void)context;
    span written = span_of(loop, to), read = span_of(loop, from);
    if (written.first < read.end && read.first < written.end) {
        if (to->data == from->data && to->dtype == from->dtype
            && memcmp(to->strides, from->strides, (size_t)loop->ndim * sizeof(int64_t)) == 0)
            return 0;
        return copy_overlapping(loop, to, from);
    }
    TGC(tgc_copy_region)(loop->ndim, loop->shape, to->data, to->strides, to->dtype, from->data, from->strides,
                         from->dtype);
    return 0;
}

const tgc_kernel TGC(tgc_table_copy)[] = {TGC_OF_EVERY_DTYPE("copy_", TGC_ANYWHERE, copy, NULL), {0}};
