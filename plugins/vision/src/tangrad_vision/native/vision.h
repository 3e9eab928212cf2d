/* What the files of this extension share. */
#ifndef TANGRAD_VISION_H
#define TANGRAD_VISION_H

#define PY_SSIZE_T_CLEAN
#include "native/tangrad_abi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const tg_api *tv_api;
extern int tv_float32, tv_float64, tv_int64, tv_int32;

/* Kernels of ops; they decline what is not contiguous or of other dtypes. */
int tv_nms(const tg_call *call, void *context);
int tv_roi_align(const tg_call *call, void *context);
int tv_roi_align_backward(const tg_call *call, void *context);
int tv_roi_pool(const tg_call *call, void *context);
int tv_deform_columns(const tg_call *call, void *context);
int tv_deform_columns_backward(const tg_call *call, void *context);

PyObject *tv_unfilter(PyObject *self, PyObject *args);
PyObject *tv_lzw(PyObject *self, PyObject *args);
PyObject *tv_colours(PyObject *self, PyObject *args);

static inline const tg_view *tv_tensor(const tg_call *call, int i)
{
    const tg_argument *a = &call->args[i];
    return a->kind != TG_ARG_TENSOR || a->value.tensors->ndim < 0 ? NULL : a->value.tensors;
}

static inline int tv_error(PyObject *type, const char *text)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_SetString(type, text);
    PyGILState_Release(state);
    return -1;
}

static inline int tv_fails(const char *text) { return tv_error(PyExc_RuntimeError, text); }

static inline int tv_out_of_memory(void) { return tv_error(PyExc_MemoryError, "no memory for a kernel of pictures"); }

static inline int64_t tv_integer(const tg_call *call, int i) { return call->args[i].value.i; }

static inline double tv_number(const tg_call *call, int i)
{
    return call->args[i].kind == TG_ARG_FLOAT ? call->args[i].value.f : (double)call->args[i].value.i;
}

static inline int tv_dense(const tg_view *v, int dtype)
{
    int64_t expected = 1;
    if (v == NULL || v->data == NULL || v->dtype != dtype)
        return 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (v->shape[d] != 1 && v->strides[d] != expected)
            return 0;
        expected *= v->shape[d];
    }
    return 1;
}

#endif
