/* Constants: numbers as elements, and fill_. */
#include "copying.h"

int TGC(tgc_encode)(const char *op, const tg_argument *argument, int dtype, void *element)
{
    switch (argument->kind) {
    case TG_ARG_INT:
    case TG_ARG_BOOL:
        TGC(tgc_convert)(element, dtype, &argument->value.i, TGC_INT64, 1);
        return 0;
    case TG_ARG_FLOAT:
        TGC(tgc_convert)(element, dtype, &argument->value.f, TGC_FLOAT64, 1);
        return 0;
    case TG_ARG_COMPLEX:
        TGC(tgc_convert)(element, dtype, argument->value.parts, TGC_COMPLEX128, 1);
        return 0;
    case TG_ARG_TENSOR:
        if (argument->value.tensors->numel == 1) {
            TGC(tgc_convert)(element, dtype, argument->value.tensors->data, argument->value.tensors->dtype, 1);
            return 0;
        }
        return tgc_error("RuntimeError", "%s: the value must have one element, got a tensor with %lld", op,
                         (long long)argument->value.tensors->numel);
    default:
        return tgc_error("TypeError", "%s: the value must be a number", op);
    }
}

void TGC(tgc_fill)(const tg_view *view, const void *element)
{
    int64_t strides[TG_MAX_DIMS], none[TG_MAX_DIMS] = {0};
    tgc_byte_strides(view, strides);
    TGC(tgc_move_region)(view->ndim, view->shape, view->data, strides, element, none, tgc_itemsize[view->dtype]);
}

static int fill(const tg_call *call, void *context)
{
    char element[16];
    (void)context;
    if (TGC(tgc_encode)("fill_", &call->args[1], call->outs->dtype, element) < 0)
        return -1;
    TGC(tgc_fill)(call->outs, element);
    return 0;
}

const tgc_kernel TGC(tgc_table_fill)[] = {TGC_OF_EVERY_DTYPE("fill_", TGC_CALL, fill, NULL), {0}};
