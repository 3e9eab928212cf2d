/* Tensors one after the other: along a dimension, and matrices along the diagonal of one. */
#include "copying.h"

typedef struct {
    const tg_view *out;
    const tg_view *parts;
    int dim;
    const int64_t *starts;
} joining;

static void copy_part(int64_t index, void *context)
{
    const joining *job = context;
    const tg_view *part = &job->parts[index], *out = job->out;
    int64_t to_strides[TG_MAX_DIMS], from_strides[TG_MAX_DIMS];
    /* A vector without elements joins anything: it has no shape to go by. */
    if (part->numel == 0)
        return;
    tgc_byte_strides(out, to_strides);
    tgc_byte_strides(part, from_strides);
    TGC(tgc_copy_region)(part->ndim, part->shape, (char *)out->data + job->starts[index] * to_strides[job->dim],
                         to_strides, out->dtype, part->data, from_strides, part->dtype);
}

static int cat(const tg_call *call, void *context)
{
    enum { FEW = 64 };
    const tg_argument *parts = &call->args[0];
    int64_t few[FEW], *starts = few, at = 0, largest = 0;
    joining job = {call->outs, parts->value.tensors, (int)call->args[1].value.i, NULL};
    (void)context;
    if (call->outs->numel == 0)
        return 0;
    if (parts->count > FEW) {
        size_t bytes = (size_t)parts->count * sizeof(int64_t);
        starts = tgc_scratch(bytes);
        if (starts == NULL)
            return tgc_no_memory("cat", bytes);
    }
    for (int i = 0; i < parts->count; i++) {
        const tg_view *part = &job.parts[i];
        starts[i] = at;
        at += part->numel ? part->shape[job.dim] : 0;
        largest = part->numel > largest ? part->numel : largest;
    }
    job.starts = starts;
    /* Either the parts are cut or their list is: a task does not cut its own part again. */
    if (call->outs->numel >= 65536 && largest <= call->outs->numel / 4)
        tgc_parallel(parts->count, copy_part, &job);
    else
        for (int i = 0; i < parts->count; i++)
            copy_part(i, &job);
    if (starts != few)
        tgc_scratch_free(starts);
    return 0;
}

static int block_diag(const tg_call *call, void *context)
{
    static const char zeros[16];
    const tg_view *out = call->outs, *parts = call->args[0].value.tensors;
    const int64_t width = tgc_itemsize[out->dtype];
    int64_t to[TG_MAX_DIMS], from[TG_MAX_DIMS];
    char *corner = out->data;
    (void)context;
    TGC(tgc_fill)(out, zeros);
    for (int i = 0; i < call->args[0].count; i++) {
        tgc_byte_strides(out, to);
        tgc_byte_strides(&parts[i], from);
        if (parts[i].numel)
            TGC(tgc_copy_region)(2, parts[i].shape, corner, to, out->dtype, parts[i].data, from, parts[i].dtype);
        corner += (parts[i].shape[0] * out->strides[0] + parts[i].shape[1] * out->strides[1]) * width;
    }
    return 0;
}

const tgc_kernel TGC(tgc_table_join)[] = {
    TGC_OF_EVERY_DTYPE("cat", TGC_CALL, cat, NULL), TGC_OF_EVERY_DTYPE("_block_diag", TGC_CALL, block_diag, NULL), {0}};
