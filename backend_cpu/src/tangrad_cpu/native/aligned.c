/* C promises to load and store an element at multiples of its alignment only, and tensors over the
 * memory of others (`frombuffer`, NumPy's packed records, DLPack) may lie at any byte. Kernels that
 * do not care for it are called through here: an operand that lies so is copied to where C wants
 * it, and what was written is copied back. */
#include "aligned.h"

#include <string.h>

/* An operand whose elements lie at any byte. */
typedef struct operand {
    void **data; /* where the kernel finds its address */
    char *home;
    int64_t at; /* of its copy in the buffer */
    int32_t dtype, ndim;
    const int64_t *shape, *strides;
    int64_t unit;   /* bytes that strides count */
    int64_t extent; /* bytes from the first element's begin to the last one's end */
    int written;
} operand;

static inline uintptr_t past_alignment(const void *data, int32_t dtype)
{
    return (uintptr_t)data & tgc_past_alignment[dtype];
}

static void measure(operand *o)
{
    o->home = *o->data;
    o->extent = tgc_itemsize[o->dtype];
    for (int d = 0; d < o->ndim; d++)
        o->extent += (o->shape[d] - 1) * o->strides[d] * o->unit;
}

/* Give each operand its place in a buffer, one for those of one address, by which kernels tell what
 * is written in place. Returns the bytes of all. */
static int64_t place(operand *operands, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t k = 0;
        while (k < i && (operands[k].home != operands[i].home || operands[k].extent != operands[i].extent))
            k++;
        operands[i].at = k < i ? operands[k].at : bytes;
        bytes += k < i ? 0 : (operands[i].extent + 63) & ~(int64_t)63;
    }
    return bytes;
}

/* Bytes stay as they are where they are the same: memory that a kernel only read may be read-only. */
static inline void move_bytes(char *home, char *copy, int64_t bytes, int store)
{
    if (!store)
        memcpy(copy, home, (size_t)bytes);
    else if (memcmp(home, copy, (size_t)bytes) != 0)
        memcpy(home, copy, (size_t)bytes);
}

/* Move the elements from dimension d on between both places, which have the same strides. */
static void move(const operand *o, int d, char *home, char *copy, int store)
{
    const int64_t itemsize = tgc_itemsize[o->dtype];
    if (d == o->ndim) {
        move_bytes(home, copy, itemsize, store);
        return;
    }
    const int64_t step = o->strides[d] * o->unit, n = step == 0 ? 1 : o->shape[d];
    if (d == o->ndim - 1 && step == itemsize) {
        move_bytes(home, copy, n * itemsize, store);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        move(o, d + 1, home + i * step, copy + i * step, store);
}

/* Bring all operands to a new buffer; NULL with an exception where there is no memory. */
static char *bring(operand *operands, int64_t count)
{
    const int64_t bytes = place(operands, count);
    char *buffer = tgc_scratch((size_t)bytes);
    if (buffer == NULL) {
        tgc_no_memory("a tensor whose elements are not aligned", (size_t)bytes);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        *operands[i].data = buffer + operands[i].at;
        move(&operands[i], 0, operands[i].home, buffer + operands[i].at, 0);
    }
    return buffer;
}

static int take_back(const operand *operands, int64_t count, char *buffer, int status)
{
    for (int64_t i = 0; i < count && status == 0; i++)
        if (operands[i].written)
            move(&operands[i], 0, operands[i].home, buffer + operands[i].at, 1);
    tgc_scratch_free(buffer);
    return status;
}

/* --- loops ------------------------------------------------------------------------------------ */

/* Of a reduction over nothing there are results still. */
static int is_empty(const tg_loop *loop, int i)
{
    for (int d = 0; d < loop->ndim - (i < loop->nout ? loop->nreduced : 0); d++)
        if (loop->shape[d] == 0)
            return 1;
    return 0;
}

static __attribute__((noinline)) int loop_on_copies(const tg_loop *given, const tgc_kernel *kernel)
{
    tg_loop loop = *given;
    operand operands[TG_MAX_OPERANDS];
    int64_t count = 0;
    for (int i = 0; i < loop.nout + loop.nin; i++) {
        tg_operand *o = &loop.operands[i];
        if (!past_alignment(o->data, o->dtype) || is_empty(&loop, i))
            continue;
        operands[count] = (operand){.data = &o->data, .dtype = o->dtype, .ndim = loop.ndim, .shape = loop.shape,
                                    .strides = o->strides, .unit = 1, .written = i < loop.nout};
        measure(&operands[count++]);
    }
    char *buffer = bring(operands, count);
    if (buffer == NULL)
        return -1;
    const int status = ((tg_loop_kernel)kernel->function)(&loop, (void *)kernel->context);
    return take_back(operands, count, buffer, status);
}

int tgc_loop_aligned(const tg_loop *loop, void *context)
{
    const tgc_kernel *kernel = context;
    uintptr_t past = 0;
    for (int i = 0; i < loop->nout + loop->nin; i++)
        past |= past_alignment(loop->operands[i].data, loop->operands[i].dtype);
    if (__builtin_expect(past != 0, 0))
        return loop_on_copies(loop, kernel);
    return ((tg_loop_kernel)kernel->function)(loop, (void *)kernel->context);
}

/* --- calls ------------------------------------------------------------------------------------ */

static inline int64_t tensors_of(const tg_argument *argument)
{
    return argument->kind == TG_ARG_TENSOR || argument->kind == TG_ARG_TENSORS ? argument->count : 0;
}

/* Copy the views of a tensor or a list, and note those whose elements lie at any byte. */
static int64_t note_views(tg_view *views, const tg_view *given, int64_t n, int written, operand *operands)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        tg_view *view = &views[i];
        *view = given[i];
        if (view->ndim < 0 || view->numel == 0 || !past_alignment(view->data, view->dtype))
            continue;
        operands[count] = (operand){.data = &view->data, .dtype = view->dtype, .ndim = view->ndim,
                                    .shape = view->shape, .strides = view->strides,
                                    .unit = tgc_itemsize[view->dtype], .written = written};
        measure(&operands[count++]);
    }
    return count;
}

static __attribute__((noinline)) int call_on_copies(const tg_call *given, const tgc_kernel *kernel)
{
    int64_t all = given->nout, count, at = given->nout;
    for (int i = 0; i < given->nargs; i++)
        all += tensors_of(&given->args[i]);
    const size_t bytes = (size_t)all * (sizeof(operand) + sizeof(tg_view))
                         + (size_t)given->nargs * sizeof(tg_argument);
    operand *operands = tgc_scratch(bytes);
    if (operands == NULL)
        return tgc_no_memory("a tensor whose elements are not aligned", bytes);
    tg_view *views = (tg_view *)(operands + all);
    tg_argument *args = (tg_argument *)(views + all);
    tg_call call = *given;
    call.outs = views;
    call.args = args;
    count = note_views(views, given->outs, given->nout, 1, operands);
    for (int i = 0; i < given->nargs; i++) {
        const int64_t n = tensors_of(&given->args[i]);
        args[i] = given->args[i];
        if (n == 0)
            continue;
        args[i].value.tensors = views + at;
        /* A call without outputs writes tensors of its lists. */
        count += note_views(views + at, given->args[i].value.tensors, n, given->nout == 0, operands + count);
        at += n;
    }
    char *buffer = bring(operands, count);
    int status = -1;
    if (buffer != NULL) {
        status = ((tg_call_kernel)kernel->function)(&call, (void *)kernel->context);
        take_back(operands, count, buffer, status);
    }
    tgc_scratch_free(operands);
    return status;
}

static inline uintptr_t views_past_alignment(const tg_view *views, int64_t n)
{
    uintptr_t past = 0;
    for (int64_t i = 0; i < n; i++)
        past |= past_alignment(views[i].data, views[i].dtype);
    return past;
}

int tgc_call_aligned(const tg_call *call, void *context)
{
    const tgc_kernel *kernel = context;
    uintptr_t past = views_past_alignment(call->outs, call->nout);
    for (int i = 0; i < call->nargs; i++)
        past |= views_past_alignment(call->args[i].value.tensors, tensors_of(&call->args[i]));
    if (__builtin_expect(past != 0, 0))
        return call_on_copies(call, kernel);
    return ((tg_call_kernel)kernel->function)(call, (void *)kernel->context);
}
