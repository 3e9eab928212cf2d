/* What the kernel files of this backend share. A kernel file is compiled once per
 * instruction-set level; TGC_LEVEL names the level, and symbols that leave the file carry it. */
#ifndef TANGRAD_CPU_TGC_H
#define TANGRAD_CPU_TGC_H

#include <stddef.h>
#include <stdint.h>

#ifndef Py_PYTHON_H
#define TG_WITHOUT_PYTHON
#endif
#include "native/tangrad_abi.h"

#define TGC_JOIN_(name, level) name##_##level
#define TGC_JOIN(name, level) TGC_JOIN_(name, level)
#ifdef TGC_LEVEL
#define TGC(name) TGC_JOIN(name, TGC_LEVEL)
#endif

/* The core's dtype indices; _kernels.pyx checks them when the device opens. */
enum {
    TGC_BOOL,
    TGC_UINT8,
    TGC_INT8,
    TGC_UINT16,
    TGC_INT16,
    TGC_UINT32,
    TGC_INT32,
    TGC_UINT64,
    TGC_INT64,
    TGC_FLOAT32,
    TGC_FLOAT64,
    TGC_FLOAT16,
    TGC_BFLOAT16,
    TGC_COMPLEX64,
    TGC_COMPLEX128,
    TGC_DTYPES
};

static const int32_t tgc_itemsize[TGC_DTYPES] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 2, 2, 8, 16};

/* The bits that are zero in the address of an aligned element. */
static const uint8_t tgc_past_alignment[TGC_DTYPES] = {0, 0, 0, 1, 1, 3, 3, 7, 7, 3, 7, 1, 1, 3, 7};

/* TGC_ANYWHERE: a loop whose operands may lie at any byte; those of TGC_LOOP and TGC_CALL are
 * aligned (aligned.c).
 * TGC_PARTS: no kernel but functions, behind `context`, that Cython puts together. */
enum { TGC_LOOP, TGC_CALL, TGC_PARTS, TGC_ANYWHERE };

/* One kernel of a level's tables. `op` is the definition's key: the op's name, or for fused
 * gradients the name with what was differentiated, such as "mul_backward(self,other)". */
typedef struct tgc_kernel {
    const char *op;
    const char *dtype;
    int kind;
    void *function; /* a tg_call_kernel if TGC_CALL, else a tg_loop_kernel */
    const void *context;
} tgc_kernel;

/* For which definition an op's kernels are made: another one may pass other arguments. */
typedef struct tgc_fingerprint {
    const char *op;
    uint32_t value;
} tgc_fingerprint;

/* Run task(0 .. tasks-1, context), in any order and on any threads; return when all are done.
 * Cut work by size, never by the number of threads, so that results do not depend on it. Runs
 * inline when there is one task, within another task, or while another thread has the pool. */
typedef void (*tgc_task)(int64_t index, void *context);
void tgc_parallel(int64_t tasks, tgc_task task, void *context);

/* Whether the dimensions of a tensor from one on lie in memory in row-major order, without gaps. */
static inline int tgc_is_contiguous(const tg_view *view, int from)
{
    int64_t expected = 1;
    for (int d = view->ndim - 1; d >= from; d--) {
        if (view->shape[d] != 1 && view->strides[d] != expected)
            return 0;
        expected *= view->shape[d];
    }
    return 1;
}

/* How many tasks of at least `grain` elements n elements make, at most `most`. */
static inline int64_t tgc_tasks(int64_t n, int64_t grain, int64_t most)
{
    int64_t tasks = n / (grain > 0 ? grain : 1);
    return tasks < 1 ? 1 : tasks > most ? most : tasks;
}

/* The first element of task `index` of `tasks`: pieces differ by one unit of `align` at most. */
static inline int64_t tgc_begin(int64_t n, int64_t tasks, int64_t index, int64_t align)
{
    int64_t units = (n + align - 1) / align, at = (units * index / tasks) * align;
    return at < n ? at : n;
}

void tgc_set_threads(int threads);
int tgc_threads(void);

/* Set a Python exception ("RuntimeError", "IndexError", ..., or "module.Name") and return -1; takes
 * the GIL. */
int tgc_error(const char *type, const char *format, ...) __attribute__((format(printf, 2, 3)));
int tgc_no_memory(const char *op, size_t bytes);

/* Working memory, aligned to 64 bytes and kept by the thread for its next kernel; NULL when
 * there is none. Freed in any order. */
void *tgc_scratch(size_t bytes);
void tgc_scratch_free(void *memory);

/* For tests: let the n-th call of tgc_scratch from now on, in any thread, fail once; -1 never. */
void tgc_scratch_fail_after(int64_t calls);

#endif
