/* What kernels of all ops take of a call: its arguments, the threads, errors. */
#ifndef TQ_CALL_H
#define TQ_CALL_H

#define PY_SSIZE_T_CLEAN
#include "native/tangrad_abi.h"

#include "level.h"

#include <stdlib.h>
#include <string.h>

extern const tg_api *api;
extern int UINT8, INT8, INT32, FLOAT32; /* the core's indices of dtypes */

static inline const tg_view *tensor(const tg_call *call, int i)
{
    const tg_argument *a = &call->args[i];
    if (a->kind != TG_ARG_TENSOR || a->value.tensors->ndim < 0)
        return NULL;
    return a->value.tensors;
}

static inline int64_t integer(const tg_call *call, int i) { return call->args[i].value.i; }

static inline double number(const tg_call *call, int i)
{
    return call->args[i].kind == TG_ARG_INT ? (double)call->args[i].value.i : call->args[i].value.f;
}

static inline int dense(const tg_view *v, int dtype)
{
    int64_t expected = 1;
    if (v->data == NULL || v->dtype != dtype)
        return 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (v->shape[d] != 1 && v->strides[d] != expected)
            return 0;
        expected *= v->shape[d];
    }
    return 1;
}

static inline int dense_bytes(const tg_view *v) { return dense(v, UINT8) || dense(v, INT8); }

static inline int fails(PyObject *type, const char *text)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_SetString(type, text);
    PyGILState_Release(state);
    return -1;
}

static inline void parallel(int64_t tasks, tg_range body, void *context)
{
    api->parallel_for(0, tasks, 1, body, context);
}

/* Fill in what products of all kinds take of their arguments, in the order packed, sums,
 * weight_zeros, scales, bias from `first` on; 0 where a kernel has to decline. */
static inline int weights(const tg_call *call, int first, tq_product *p)
{
    const tg_view *packed = tensor(call, first), *sums = tensor(call, first + 1);
    const tg_view *zeros = tensor(call, first + 2), *scales = tensor(call, first + 3);
    const tg_view *bias = tensor(call, first + 4);
    if (!dense(packed, INT8) || !dense(sums, INT32) || !dense(scales, FLOAT32) ||
        (zeros != NULL && !dense(zeros, INT32)) || (bias != NULL && !dense(bias, FLOAT32)))
        return 0;
    p->packed = packed->data;
    p->sums = sums->data;
    p->weight_zeros = zeros == NULL ? NULL : zeros->data;
    p->scales = scales->data;
    p->bias = bias == NULL ? NULL : bias->data;
    return 1;
}

/* Bytes from a row of a copy to the next: rows 4096 bytes apart would share few places in a cache. */
static inline int64_t row_bytes(int64_t quads) { return quads * 4 + (quads % 128 == 0 ? 64 : 0); }

/* Memory for the time of a kernel, from the caching allocator: fresh pages would cost more than what
 * is written into them. NULL: an exception is set. */
void *tq_borrowed(tg_scratch *scratch, int64_t bytes);

/* A product of rows of a, `lda` bytes apart, by tiles that threads share. */
void tq_multiply(const tq_product *p, const uint8_t *a, int64_t lda, int64_t rows, int64_t columns);

int tq_convolution_kernel(const tg_call *call, void *context);

#endif
