/* The columns of a deformable convolution, and their gradients. */

#include "vision.h"

#include "levels.h"

enum { CHUNK = 512 };

typedef struct tv_deform {
    const void *map, *offset, *mask, *gradient;
    void *result, *map_gradient, *offset_gradient, *mask_gradient;
    int64_t batch, channels, rows, columns, groups;
    int64_t window[2], out[2], stride[2], pad[2], dilation[2];
    int failed;
} tv_deform;

#define T float
#define NAME(x) x##_float
#include "deform.h"

#define T double
#define NAME(x) x##_double
#include "deform.h"

/* (..., input, offset, mask, kernel, stride, padding, dilation, groups) from argument `first` on. */
static int describe(const tg_call *call, int first, tv_deform *w)
{
    const tg_view *map = tv_tensor(call, first), *offset = tv_tensor(call, first + 1), *mask = tv_tensor(call, first + 2);
    int dtype = map->dtype == tv_float64 ? tv_float64 : tv_float32;
    if (!tv_dense(map, dtype) || !tv_dense(offset, dtype) || (mask != NULL && !tv_dense(mask, dtype)) ||
        map->shape[2] * map->shape[3] > INT32_MAX)
        return 0;
    int64_t *pairs[] = {w->window, w->stride, w->pad, w->dilation};
    for (int i = 0; i < 4; i++)
        memcpy(pairs[i], call->args[first + 3 + i].value.ints, 2 * sizeof(int64_t));
    w->map = map->data;
    w->offset = offset->data;
    w->mask = mask == NULL ? NULL : mask->data;
    w->batch = map->shape[0];
    w->channels = map->shape[1];
    w->rows = map->shape[2];
    w->columns = map->shape[3];
    w->out[0] = offset->shape[2];
    w->out[1] = offset->shape[3];
    w->groups = tv_integer(call, first + 7);
    return 1;
}

int tv_deform_columns(const tg_call *call, void *context)
{
    tv_deform w = {0};
    if (!describe(call, 0, &w) || !tv_dense(call->outs, call->args[0].value.tensors->dtype))
        return TG_DECLINED;
    w.result = call->outs->data;
    int wide = call->outs->dtype == tv_float64;
    tv_api->parallel_for(0, w.batch * w.groups * w.window[0] * w.window[1], 1, wide ? columns_double : columns_float, &w);
    return w.failed ? tv_out_of_memory() : 0;
}

int tv_deform_columns_backward(const tg_call *call, void *context)
{
    tv_deform w = {0};
    const tg_view *gradient = tv_tensor(call, 0);
    if (!describe(call, 1, &w) || !tv_dense(gradient, call->args[1].value.tensors->dtype))
        return TG_DECLINED;
    int wide = gradient->dtype == tv_float64;
    for (int i = 0; i < 3; i++)
        if (!tv_dense(&call->outs[i], gradient->dtype))
            return TG_DECLINED;
    w.gradient = gradient->data;
    w.map_gradient = call->outs[0].data;
    w.offset_gradient = call->outs[1].data;
    w.mask_gradient = call->outs[2].data;
    tv_api->parallel_for(0, w.batch * w.groups, 1, wide ? gradients_double : gradients_float, &w);
    return w.failed ? tv_out_of_memory() : 0;
}
