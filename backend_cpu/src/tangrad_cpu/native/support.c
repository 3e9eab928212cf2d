/* Errors and working memory of kernels. */
#include <Python.h>

#include "tgc.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

int tgc_error(const char *type, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    PyGILState_STATE gil = PyGILState_Ensure();
    const char *dot = strrchr(type, '.');
    PyObject *kind = NULL;
    if (dot == NULL) {
        kind = PyDict_GetItemString(PyEval_GetBuiltins(), type);
        Py_XINCREF(kind);
    } else {
        char module[64];
        snprintf(module, sizeof module, "%.*s", (int)(dot - type), type);
        PyObject *found = PyImport_ImportModule(module);
        kind = found != NULL ? PyObject_GetAttrString(found, dot + 1) : NULL;
        Py_XDECREF(found);
    }
    PyErr_SetString(kind != NULL ? kind : PyExc_RuntimeError, text);
    Py_XDECREF(kind);
    PyGILState_Release(gil);
    return -1;
}

int tgc_no_memory(const char *op, size_t bytes)
{
    return tgc_error("MemoryError", "%s: no memory for %zu bytes of working space; its operands are unchanged", op,
                     bytes);
}

/* --- scratch ---------------------------------------------------------------------------------- */

#define KEPT 4
/* More than this is given back at once: packed panels and tiles are far smaller. */
#define KEPT_BYTES ((size_t)16 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

typedef struct {
    size_t bytes;
    char pad[56];
} header; /* keeps what follows aligned to 64 */

typedef struct {
    header *free[KEPT];
} kept_blocks;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread kept_blocks *kept;
static _Atomic int64_t until_failure = -1;

static void release_all(void *blocks)
{
    for (int i = 0; i < KEPT; i++)
        free(((kept_blocks *)blocks)->free[i]);
    free(blocks);
}

static void make_key(void)
{
    pthread_key_create(&key, release_all);
}

void tgc_scratch_fail_after(int64_t calls)
{
    atomic_store(&until_failure, calls);
}

/* Large blocks are made of huge pages where the system has them: panels that are read in turn would have more small
 * ones than the processor remembers, and a new one costs as much as thousands of products. */
static header *new_block(size_t bytes)
{
    if (bytes > (size_t)PTRDIFF_MAX - 2 * HUGE_PAGE)
        return NULL;
    const size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : 4096;
    const size_t whole = (bytes + sizeof(header) + unit - 1) / unit * unit;
    header *block = aligned_alloc(unit == HUGE_PAGE ? unit : 64, whole);
    if (block == NULL)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (unit == HUGE_PAGE)
        madvise(block, whole, MADV_HUGEPAGE); /* without them it is slower, no more */
#endif
    block->bytes = whole - sizeof(header);
    return block;
}

void *tgc_scratch(size_t bytes)
{
    if (atomic_load_explicit(&until_failure, memory_order_relaxed) >= 0 && atomic_fetch_sub(&until_failure, 1) == 0)
        return NULL;
    if (kept == NULL) {
        pthread_once(&once, make_key);
        kept = calloc(1, sizeof *kept);
        if (kept == NULL)
            return NULL;
        pthread_setspecific(key, kept);
    }
    int best = -1;
    for (int i = 0; i < KEPT; i++)
        if (kept->free[i] != NULL && kept->free[i]->bytes >= bytes
            && (best < 0 || kept->free[i]->bytes < kept->free[best]->bytes))
            best = i;
    header *block;
    if (best >= 0) {
        block = kept->free[best];
        kept->free[best] = NULL;
    } else {
        block = new_block(bytes);
        if (block == NULL)
            return NULL;
    }
    return block + 1;
}

void tgc_scratch_free(void *memory)
{
    if (memory == NULL)
        return;
    header *block = (header *)memory - 1;
    if (block->bytes <= KEPT_BYTES && kept != NULL) {
        int smallest = 0;
        for (int i = 0; i < KEPT; i++) {
            if (kept->free[i] == NULL) {
                kept->free[i] = block;
                return;
            }
            if (kept->free[i]->bytes < kept->free[smallest]->bytes)
                smallest = i;
        }
        if (kept->free[smallest]->bytes < block->bytes) {
            header *other = kept->free[smallest];
            kept->free[smallest] = block;
            block = other;
        }
    }
    free(block);
}
