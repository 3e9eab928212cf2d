/* The versioned, append-only table of C functions through which a compiled
 * backend talks to the core, and the structures that its kernels receive.
 *
 * A wheel built against table version N loads in every core whose table is at
 * least N: functions are only ever appended, structures only ever grow at the
 * end, and both carry their size or version first. */
#ifndef TANGRAD_ABI_H
#define TANGRAD_ABI_H

#include <Python.h>
#include <stdint.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TG_ABI_VERSION 1
#define TG_CAPSULE_NAME "tangrad._C._API"
#define TG_MAX_OPERANDS 20
#define TG_MAX_PARAMS 12
#define TG_MAX_DIMS 64

typedef union tg_scalar {
    double f;
    int64_t i;
    uint64_t u;
    double c[2];
    unsigned char bytes[16];
} tg_scalar;

/* One operand of a loop. Memory is `handle + offset`; `data` is the pointer of
 * the same place where the host can reach it, else NULL. A Python number is an
 * operand with `is_scalar`, its value encoded in the loop's compute type in
 * `value`, its strides zero and `data` pointing at `value`. */
typedef struct tg_operand {
    void *data;
    uint64_t handle;
    int64_t offset;
    int32_t dtype;
    int32_t is_scalar;
    const int64_t *strides; /* bytes, one per loop dimension, innermost last */
    tg_scalar value;
} tg_operand;

/* A ready-made loop: broadcast, promoted, coalesced. Outputs come first. */
typedef struct tg_loop {
    int32_t version;
    int32_t ndim;
    int32_t nout;
    int32_t nin;
    int32_t compute_dtype;
    int32_t device_index;
    int64_t numel;
    const int64_t *shape;
    int32_t nreduced; /* reductions: the last `nreduced` dimensions fold into the outputs */
    int32_t nparams;
    const tg_scalar *params;
    tg_operand operands[TG_MAX_OPERANDS];
} tg_loop;

/* Return 0, or -1 with a Python exception set (under the GIL: PyGILState). */
typedef int (*tg_loop_kernel)(const tg_loop *loop, void *context);

/* Around every op of a thread. enter may refuse the call by setting an exception. Every enter
 * that did not refuse is followed by one leave with its token, also when the op raises. */
typedef void *(*tg_enter)(void *context, PyObject *op);
typedef void (*tg_leave)(void *context, PyObject *op, void *token);

typedef struct tg_api {
    int32_t version;
    int32_t size;
    int (*register_loop_kernel)(const char *op, const char *device, const char *layout,
                                const char *dtype, tg_loop_kernel kernel, void *context);
    int (*is_tensor)(PyObject *object);
    int (*ndim)(PyObject *tensor);
    const int64_t *(*shape)(PyObject *tensor);
    const int64_t *(*strides)(PyObject *tensor); /* elements */
    int64_t (*numel)(PyObject *tensor);
    int (*dtype_index)(PyObject *tensor);
    void *(*host_data)(PyObject *tensor); /* NULL where the host cannot reach the memory */
    int (*dtype_by_name)(const char *name);
    PyObject *(*empty)(int ndim, const int64_t *shape, int dtype, PyObject *like);
    int (*push_interceptor)(tg_enter enter, tg_leave leave, void *context);
    int (*pop_interceptor)(void *context);
} tg_api;

/* Return the table of the installed core, or NULL with an ImportError where it is older than
 * what the backend needs: version `needed` for the functions it calls, at most TG_ABI_VERSION. */
static inline const tg_api *tg_import_api(int needed)
{
    const tg_api *api = (const tg_api *)PyCapsule_Import(TG_CAPSULE_NAME, 0);
    if (api == NULL)
        return NULL;
    if (api->version < needed || (needed == TG_ABI_VERSION && api->size < (int32_t)sizeof(tg_api))) {
        PyErr_Format(PyExc_ImportError,
                     "this backend needs version %d of tangrad's C function table, and the installed tangrad has "
                     "version %d (%d bytes): upgrade tangrad, or install an older release of the backend",
                     needed, (int)api->version, (int)api->size);
        return NULL;
    }
    return api;
}

#ifdef __cplusplus
}
#endif

#endif
