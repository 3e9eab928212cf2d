/* The versioned, append-only table of C functions through which a compiled
 * backend talks to the core, and the structures that its kernels receive.
 *
 * A wheel built against table version N loads in every core whose table is at
 * least N: functions are only ever appended, structures only ever grow at the
 * end, and both carry their size or version first. */
#ifndef TANGRAD_ABI_H
#define TANGRAD_ABI_H

/* A file that holds kernels only may define TG_WITHOUT_PYTHON: it compiles faster without
 * Python's headers. */
#ifdef TG_WITHOUT_PYTHON
typedef struct _object PyObject;
#else
#include <Python.h>
#endif
#include <stdint.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TG_ABI_VERSION 3
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

/* A ready-made loop: broadcast, promoted, coalesced. Outputs come first. Where elements depend on
 * their index (random bits), dimensions are neither merged nor reordered.
 * Parameters are in the op's order, absent ones left out: pointwise ops have those declared `int`
 * in `i`; other numbers are in the compute type if that is integral, in `c` if it is complex,
 * else in `f`. */
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

/* A tensor as a call receives it: memory as in an operand, geometry in elements. An optional
 * tensor that is absent has `ndim` -1. */
typedef struct tg_view {
    void *data;
    uint64_t handle;
    int64_t offset;
    int32_t dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
    int64_t numel;
} tg_view;

enum {
    TG_ARG_NONE,
    TG_ARG_TENSOR,  /* tensors[0] */
    TG_ARG_TENSORS, /* tensors[0 .. count-1] */
    TG_ARG_INT,     /* i; an integer past int64 keeps its low 64 bits */
    TG_ARG_INTS,    /* ints[0 .. count-1] */
    TG_ARG_FLOAT,   /* f */
    TG_ARG_BOOL,    /* i: 0 or 1 */
    TG_ARG_TEXT,    /* text, UTF-8 */
    TG_ARG_DTYPE,   /* i: the index of the dtype */
    TG_ARG_OTHER,   /* an object that C code has no form of, such as a generator */
    TG_ARG_COMPLEX  /* parts[0] + parts[1] i */
};

typedef union tg_argument_value {
    int64_t i;
    double f;
    const int64_t *ints;
    const tg_view *tensors;
    const char *text;
    const double *parts;
} tg_argument_value;

typedef struct tg_argument {
    int32_t kind;
    int32_t count;
    tg_argument_value value;
} tg_argument;

/* One call of a scan or a general op: checked, outputs allocated, arguments in the order of the
 * op's signature. Where the op writes one of its arguments, that tensor is the only output. The
 * in-place form of an op may hand over its first argument as the output too, in the same geometry;
 * no other argument shares memory with an output. */
typedef struct tg_call {
    int32_t version;
    int32_t nout;
    int32_t nargs;
    int32_t device_index;
    const tg_view *outs;
    const tg_argument *args;
} tg_call;

/* As a loop kernel; called without the GIL where the tensors are large. Where the op has tensor
 * code, a kernel may return TG_DECLINED before it has written anything: the core then runs that.
 * An op that writes lists of tensors has no outputs but these. */
#define TG_DECLINED 1
typedef int (*tg_call_kernel)(const tg_call *call, void *context);

/* Around every op of a thread. enter may refuse the call by setting an exception. Every enter
 * that did not refuse is followed by one leave with its token, also when the op raises. */
typedef void *(*tg_enter)(void *context, PyObject *op);
typedef void (*tg_leave)(void *context, PyObject *op, void *token);

/* ---- since version 3 ---- */

/* A call as observers that ask for arguments see it. All objects are borrowed. */
typedef struct tg_observed {
    int32_t size; /* of this structure */
    int32_t nargs;
    PyObject *op;          /* the op that was called: of an in-place form, that form */
    PyObject *const *args; /* bound arguments in the order of the functional form's signature */
    PyObject *out;         /* what is written: the tensor of an in-place form, or out=; else NULL */
    PyObject *result;      /* when it is left: NULL where the op raised */
} tg_observed;

/* Around every op of a thread, and every step of its backward walks where the last two are given.
 * enter returns 0, or -1 with an exception set, which refuses the call; the GIL is held. The
 * structure is read as long as the observer is there. */
typedef struct tg_observer {
    int32_t size; /* of this structure */
    int32_t flags; /* 0 */
    void *context;
    int (*enter)(void *context, const tg_observed *call, void **token);
    void (*leave)(void *context, const tg_observed *call, void *token);
    int (*enter_node)(void *context, PyObject *node, void **token); /* NULL: not told */
    void (*leave_node)(void *context, PyObject *node, void *token);
} tg_observer;

/* A block of a device's memory was handed out (sign 1) or came back (-1). */
typedef struct tg_memory_change {
    int32_t size; /* of this structure */
    int32_t sign;
    int64_t allocator; /* its number, see tangrad.plugin.allocators */
    uint64_t address;  /* handle + offset */
    int64_t nbytes;    /* of the block, as the statistics count it */
    int64_t allocated; /* by this allocator, after the change */
} tg_memory_change;

/* Told of every change in the process, in the allocator's order: its lock is held, so `changed`
 * calls neither an allocator nor Python. */
typedef struct tg_memory_watch {
    int32_t size; /* of this structure */
    int32_t flags; /* 0 */
    void *context;
    void (*changed)(void *context, const tg_memory_change *change);
} tg_memory_watch;

/* Memory of the caching allocator for the time of a kernel. */
typedef struct tg_scratch {
    void *data; /* NULL where the host cannot reach it */
    uint64_t handle;
    int64_t offset;
    int64_t nbytes;
    void *block;
} tg_scratch;

typedef void (*tg_task)(int64_t index, void *context);

/* The host's threads, offered by whoever has them. `run` calls task(i, context) once for each i
 * below `tasks`, in any order and from any thread, and returns when all are done; within a task it
 * runs in line. */
typedef struct tg_pool {
    int32_t size; /* of this structure */
    int32_t flags; /* 0 */
    const char *instruction_set; /* what its owner's kernels are compiled for, such as "avx2" */
    int (*threads)(void);        /* the calling one included */
    void (*run)(int64_t tasks, tg_task task, void *context);
} tg_pool;

typedef void (*tg_range)(int64_t begin, int64_t end, void *context);

/* How an operand of queued work lies beside the result, seen as rows of `columns` elements. */
enum { TG_LIES_FULL = 0, TG_LIES_ONCE, TG_LIES_IN_EACH_ROW, TG_LIES_ONE_PER_ROW };

/* One operand of queued work. A storage of which work waits shows its memory to nobody before the
 * queue has run; `waits` is the queue's to use, 0 where nothing waits. A result of few bytes has no
 * memory before `set_waiting` gives it some: its address counts from 0. */
typedef struct tg_queued_operand {
    PyObject *storage; /* NULL: a number */
    PyObject *number;
    char *address;
    int64_t waits;
    int64_t lies; /* contiguous elements: the same number, one, a row's, or one for each row */
} tg_queued_operand;

enum { TG_LATER_BYTES = 65536 }; /* up to which the memory of results may come later */

/* A pointwise op on contiguous elements of one floating dtype, ready to run by `kernel`; or a fold
 * of each row of `columns` elements to one, whose result is an element for each row. */
typedef struct tg_queued {
    int32_t size; /* of this structure */
    int32_t nin;
    PyObject *op;
    tg_loop_kernel kernel;
    void *context;
    int64_t numel;
    int32_t dtype;
    int32_t device_index;
    int64_t columns;               /* of a row, where operands lie in rows; else 0 */
    tg_queued_operand operands[9]; /* the result first */
    int32_t folds;                 /* 1: a fold, with these parameters of its loop */
    int32_t nparams;
    tg_scalar params[2];
} tg_queued;

enum { TG_QUEUE_PLACES = 1 }; /* it gives results their memory, and takes folds */

/* Takes pointwise work of a thread, to run it later; with the GIL. `offer` returns 1 where it has
 * taken the work, 0 where the core is to do it now. `settle` does all that was taken, whichever
 * thread asks: it neither fails nor lets go of the GIL. */
typedef struct tg_queue {
    int32_t size; /* of this structure */
    int32_t flags;
    int (*offer)(const tg_queued *work);
    void (*settle)(void);
} tg_queue;

enum { TG_KERNEL_LOOP = 1, TG_KERNEL_PYTHON, TG_KERNEL_CALL };

typedef struct tg_found_kernel {
    int32_t kind;
    int32_t reserved;
    tg_loop_kernel loop;
    tg_call_kernel call;
    void *context;
    PyObject *callable; /* of a kernel in Python, borrowed */
} tg_found_kernel;

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
    /* since version 2 */
    int (*register_call_kernel)(const char *op, const char *device, const char *layout,
                                const char *dtype, tg_call_kernel kernel, void *context);
    /* For an op at hand, named or derived (a fused gradient has no name to look up): a loop kernel
     * for pointwise ops and reductions, a call kernel for scans and general ops; NULL the other. */
    int (*register_kernel_of)(PyObject *op, const char *device, const char *layout, const char *dtype,
                              tg_loop_kernel loop, tg_call_kernel call, void *context);
    /* since version 3; with the GIL, except where it says otherwise */
    /* A device, opened if need be: a name for it that lasts as long as the process. NULL: error. */
    void *(*device)(const char *type, int index);
    void *(*device_of)(PyObject *tensor);
    /* The stream that the calling thread gives work to, 0 where there are none; also without the
     * GIL, which is taken where a driver has to be asked. Returns 0, or -1 with an exception. */
    int (*current_stream)(void *device, uint64_t *stream);
    /* Memory in the order of a stream; also without the GIL. Returns 0, or -1 with an exception. */
    int (*scratch)(void *device, size_t nbytes, uint64_t stream, tg_scratch *made);
    void (*release_scratch)(tg_scratch *scratch);
    /* Offer the host's threads to all packages; the structure lasts as long as the process. */
    int (*install_pool)(const tg_pool *pool);
    /* The pool offered last, or one of the calling thread alone; never NULL, also without the GIL. */
    const tg_pool *(*pool)(void);
    /* body(b, e) for pieces of `grain` that cover begin ... end, in any order and from any thread.
     * The pieces depend on nothing else, so results do not either. Also without the GIL. */
    void (*parallel_for)(int64_t begin, int64_t end, int64_t grain, tg_range body, void *context);
    /* An op by name, borrowed: of an overload the first form. NULL: an exception is set. */
    PyObject *(*op)(const char *name);
    const char *(*op_name)(PyObject *op);
    int (*op_number)(PyObject *op); /* counted from 0 in the order of their making */
    /* What runs (op, dtype, device); a driver that makes kernels on demand is asked. Returns 0, or
     * -1 with an exception where there is none. */
    int (*find_kernel)(PyObject *op, const char *device, const char *layout, const char *dtype,
                       tg_found_kernel *found);
    int (*push_observer)(const tg_observer *observer);
    int (*pop_observer)(const tg_observer *observer);
    /* How many steps backward's graphs have had made so far. A node's number is above what this
     * said before its op ran, and at most what it says afterwards; leaves have UINT64_MAX. */
    uint64_t (*nodes_made)(void);
    uint64_t (*node_number)(PyObject *node);
    PyObject *(*node_op)(PyObject *node); /* borrowed; NULL for steps that are of no op */
    PyObject *(*node_name)(PyObject *node); /* a new str */
    int (*watch_memory)(const tg_memory_watch *watch);
    int (*unwatch_memory)(const tg_memory_watch *watch); /* no call of it is running afterwards */
    /* Offer the calling thread's pointwise work to a queue, of which a process has one; NULL: to
     * none any more. Returns what was there before. */
    const tg_queue *(*offer_to)(const tg_queue *queue);
    /* Note for the queue that work on a storage waits (a number of its own), or that none does (0):
     * then it has memory from now on, `spare` where there is no other. Returns the address of its
     * first byte. */
    char *(*set_waiting)(PyObject *storage, int64_t waits, char *spare);
} tg_api;

#ifndef TG_WITHOUT_PYTHON
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
#endif

#ifdef __cplusplus
}
#endif

#endif
