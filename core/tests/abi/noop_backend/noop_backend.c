/* A backend whose kernels compute nothing: what remains is the core's own time per op. It also
 * shows what the core hands to a kernel, and counts ops through interceptors in C. */
#include "native/tangrad_abi.h"
#include <stdio.h>
#include <string.h>

#define COUNTERS 8

static const tg_api *api;

static int nothing(const tg_loop *loop, void *context)
{
    (void)loop;
    (void)context;
    return 0;
}

static struct {
    long calls;
    int nout, nin, ndim, compute_dtype, is_scalar;
    long long numel;
    double scalar;
} seen;

static int look(const tg_loop *loop, void *context)
{
    const tg_operand *last = &loop->operands[loop->nout + loop->nin - 1];
    (void)context;
    seen.calls++;
    seen.nout = loop->nout;
    seen.nin = loop->nin;
    seen.ndim = loop->ndim;
    seen.compute_dtype = loop->compute_dtype;
    seen.numel = loop->numel;
    seen.is_scalar = last->is_scalar;
    seen.scalar = last->is_scalar ? *(const float *)last->data : 0;
    return 0;
}

static int fail(const tg_loop *loop, void *context)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    (void)loop;
    (void)context;
    PyErr_SetString(PyExc_ArithmeticError, "the kernel refuses");
    PyGILState_Release(gil);
    return -1;
}

/* What a call kernel was given, as text: shapes of the outputs, then each argument by its kind. */
static char told[4096];

static void tell_view(char *text, size_t room, const tg_view *view)
{
    size_t n = strlen(text);
    if (view->ndim < 0) {
        snprintf(text + n, room - n, "absent");
        return;
    }
    n += snprintf(text + n, room - n, "%d[", view->dtype);
    for (int d = 0; d < view->ndim; d++)
        n += snprintf(text + n, room - n, "%s%lld:%lld", d ? "," : "", (long long)view->shape[d],
                      (long long)view->strides[d]);
    snprintf(text + n, room - n, "]%s", view->numel > 0 && view->data == NULL ? " without data" : "");
}

static int tell(const tg_call *call, void *context)
{
    (void)context;
    told[0] = 0;
    for (int i = 0; i < call->nout; i++)
        tell_view(told, sizeof told, &call->outs[i]);
    for (int i = 0; i < call->nargs; i++) {
        const tg_argument *a = &call->args[i];
        size_t n = strlen(told);
        char *end = told + n;
        size_t room = sizeof told - n;
        switch (a->kind) {
        case TG_ARG_NONE: snprintf(end, room, " none"); break;
        case TG_ARG_INT: snprintf(end, room, " int %lld", (long long)a->value.i); break;
        case TG_ARG_BOOL: snprintf(end, room, " bool %lld", (long long)a->value.i); break;
        case TG_ARG_FLOAT: snprintf(end, room, " float %g", a->value.f); break;
        case TG_ARG_TEXT: snprintf(end, room, " text %s", a->value.text); break;
        case TG_ARG_DTYPE: snprintf(end, room, " dtype %lld", (long long)a->value.i); break;
        case TG_ARG_OTHER: snprintf(end, room, " other"); break;
        case TG_ARG_INTS:
            snprintf(end, room, " ints");
            for (int k = 0; k < a->count; k++) {
                n = strlen(told);
                snprintf(told + n, sizeof told - n, " %lld", (long long)a->value.ints[k]);
            }
            break;
        default:
            snprintf(end, room, " %s", a->kind == TG_ARG_TENSOR ? "tensor " : "tensors ");
            for (int k = 0; k < a->count; k++)
                tell_view(told, sizeof told, &a->value.tensors[k]);
        }
    }
    return 0;
}

static int fail_call(const tg_call *call, void *context)
{
    (void)call;
    return fail(NULL, context);
}

static PyObject *install_call(PyObject *self, PyObject *args)
{
    const char *op, *device, *dtype;
    int fails = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "sss|p", &op, &device, &dtype, &fails)
        || api->register_call_kernel(op, device, "strided", dtype, fails ? fail_call : tell, NULL) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *install_of(PyObject *self, PyObject *args)
{
    PyObject *op;
    const char *device, *dtype;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oss", &op, &device, &dtype)
        || api->register_kernel_of(op, device, "strided", dtype, look, NULL, NULL) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *last_call(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyUnicode_FromString(told);
}

static PyObject *install_kernel(PyObject *args, tg_loop_kernel kernel)
{
    const char *op, *device, *dtype;
    if (!PyArg_ParseTuple(args, "sss", &op, &device, &dtype))
        return NULL;
    if (api->register_loop_kernel(op, device, "strided", dtype, kernel, NULL) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *install(PyObject *self, PyObject *args)
{
    (void)self;
    return install_kernel(args, nothing);
}

static PyObject *install_looking(PyObject *self, PyObject *args)
{
    (void)self;
    return install_kernel(args, look);
}

static PyObject *install_failing(PyObject *self, PyObject *args)
{
    (void)self;
    return install_kernel(args, fail);
}

static PyObject *last_loop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("{s:l,s:i,s:i,s:i,s:i,s:L,s:i,s:d}", "calls", seen.calls, "nout", seen.nout, "nin", seen.nin,
                         "ndim", seen.ndim, "compute_dtype", seen.compute_dtype, "numel", seen.numel, "is_scalar",
                         seen.is_scalar, "scalar", seen.scalar);
}

static PyObject *describe(PyObject *self, PyObject *x)
{
    PyObject *shape, *strides;
    int d, ndim;
    (void)self;
    if (!api->is_tensor(x))
        Py_RETURN_NONE;
    ndim = api->ndim(x);
    shape = PyTuple_New(ndim);
    strides = PyTuple_New(ndim);
    for (d = 0; d < ndim; d++) {
        PyTuple_SET_ITEM(shape, d, PyLong_FromLongLong(api->shape(x)[d]));
        PyTuple_SET_ITEM(strides, d, PyLong_FromLongLong(api->strides(x)[d]));
    }
    return Py_BuildValue("{s:N,s:N,s:L,s:i,s:K}", "shape", shape, "strides", strides, "numel",
                         (long long)api->numel(x), "dtype", api->dtype_index(x), "address",
                         (unsigned long long)(uintptr_t)api->host_data(x));
}

static PyObject *empty(PyObject *self, PyObject *args)
{
    int64_t shape[2];
    long long rows, columns;
    const char *dtype;
    PyObject *like;
    (void)self;
    if (!PyArg_ParseTuple(args, "LLsO", &rows, &columns, &dtype, &like))
        return NULL;
    shape[0] = rows;
    shape[1] = columns;
    return api->empty(2, shape, api->dtype_by_name(dtype), like);
}

static struct counter {
    int entered, left, open, deepest, refuses;
} counters[COUNTERS];

static void *enter(void *context, PyObject *op)
{
    struct counter *c = context;
    (void)op;
    if (c->refuses) {
        PyErr_SetString(PyExc_PermissionError, "the interceptor refuses");
        return NULL;
    }
    c->entered++;
    c->open++;
    if (c->open > c->deepest)
        c->deepest = c->open;
    return c;
}

static void leave(void *context, PyObject *op, void *token)
{
    struct counter *c = context;
    (void)op;
    if (token == context)
        c->left++;
    c->open--;
}

static struct counter *counter_of(PyObject *number)
{
    long i = PyLong_AsLong(number);
    if (i < 0 || i >= COUNTERS) {
        PyErr_SetString(PyExc_IndexError, "no such counter");
        return NULL;
    }
    return &counters[i];
}

static PyObject *push(PyObject *self, PyObject *args)
{
    struct counter *c;
    PyObject *number;
    int refuses = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "O|p", &number, &refuses) || (c = counter_of(number)) == NULL)
        return NULL;
    *c = (struct counter){.refuses = refuses};
    return api->push_interceptor(enter, leave, c) == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *pop(PyObject *self, PyObject *number)
{
    struct counter *c = counter_of(number);
    (void)self;
    return c != NULL && api->pop_interceptor(c) == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *counts(PyObject *self, PyObject *number)
{
    struct counter *c = counter_of(number);
    (void)self;
    return c == NULL ? NULL : Py_BuildValue("(iii)", c->entered, c->left, c->deepest);
}

#if TG_ABI_VERSION >= 3
/* Nothing between entering and leaving: what remains is the core's own time. */
static int pass(void *context, const tg_observed *call, void **token)
{
    (void)context;
    (void)call;
    *token = NULL;
    return 0;
}

static void pass_by(void *context, const tg_observed *call, void *token)
{
    (void)context;
    (void)call;
    (void)token;
}

static const tg_observer empty_observer = {.size = sizeof(tg_observer), .enter = pass, .leave = pass_by};

/* What an observer that asks for arguments was told, as text. */
static char heard[8192];

static void hear(const char *text)
{
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s", text);
}

static int listen(void *context, const tg_observed *call, void **token)
{
    char text[64];
    (void)context;
    hear("(");
    hear(api->op_name(call->op));
    for (int i = 0; i < call->nargs; i++)
        if (api->is_tensor(call->args[i])) {
            snprintf(text, sizeof text, " %lld", (long long)api->numel(call->args[i]));
            hear(text);
        }
    if (call->out != NULL)
        hear(" out");
    *token = (void *)call->op;
    return 0;
}

static void stop_listening(void *context, const tg_observed *call, void *token)
{
    (void)context;
    hear(token != call->op ? " lost" : call->result == NULL ? " raised)" : ")");
}

static int listen_to_node(void *context, PyObject *node, void **token)
{
    PyObject *name = api->node_name(node);
    (void)context;
    *token = node;
    if (name == NULL)
        return -1;
    hear("[");
    hear(PyUnicode_AsUTF8(name));
    Py_DECREF(name);
    return 0;
}

static void stop_listening_to_node(void *context, PyObject *node, void *token)
{
    (void)context;
    hear(token == node ? "]" : " lost]");
}

static const tg_observer listener = {sizeof(tg_observer), 0, NULL, listen, stop_listening, listen_to_node,
                                     stop_listening_to_node};

static PyObject *push_observer(PyObject *self, PyObject *listens)
{
    (void)self;
    heard[0] = 0;
    return api->push_observer(PyObject_IsTrue(listens) ? &listener : &empty_observer) == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *pop_observer(PyObject *self, PyObject *listens)
{
    (void)self;
    if (api->pop_observer(PyObject_IsTrue(listens) ? &listener : &empty_observer) != 0)
        return NULL;
    return PyUnicode_FromString(heard);
}

static PyObject *scratch(PyObject *self, PyObject *args)
{
    const char *type;
    int index, status;
    Py_ssize_t nbytes;
    uint64_t stream;
    tg_scratch made;
    void *device;
    (void)self;
    if (!PyArg_ParseTuple(args, "sin", &type, &index, &nbytes) || (device = api->device(type, index)) == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = api->current_stream(device, &stream) != 0 ? -1 : api->scratch(device, (size_t)nbytes, stream, &made);
    Py_END_ALLOW_THREADS
    if (status != 0)
        return NULL;
    if (made.data != NULL)
        memset(made.data, 1, (size_t)nbytes);
    PyObject *told_of = Py_BuildValue("(KLO)", (unsigned long long)stream, (long long)made.nbytes,
                                      made.data != NULL ? Py_True : Py_False);
    api->release_scratch(&made);
    return told_of;
}

static void add_range(int64_t begin, int64_t end, void *context)
{
    int64_t sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += i;
    __atomic_fetch_add((int64_t *)context, sum, __ATOMIC_RELAXED);
    __atomic_fetch_add((int64_t *)context + 1, 1, __ATOMIC_RELAXED);
}

static PyObject *sum_range(PyObject *self, PyObject *args)
{
    long long begin, end, grain;
    int64_t sums[2] = {0, 0};
    (void)self;
    if (!PyArg_ParseTuple(args, "LLL", &begin, &end, &grain))
        return NULL;
    api->parallel_for(begin, end, grain, add_range, sums);
    return Py_BuildValue("(LL)", (long long)sums[0], (long long)sums[1]);
}

static PyObject *pool(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(si)", api->pool()->instruction_set, api->pool()->threads());
}

static PyObject *kernel_of(PyObject *self, PyObject *args)
{
    const char *name, *device, *dtype;
    tg_found_kernel found;
    PyObject *op;
    (void)self;
    if (!PyArg_ParseTuple(args, "sss", &name, &device, &dtype) || (op = api->op(name)) == NULL
        || api->find_kernel(op, device, "strided", dtype, &found) != 0)
        return NULL;
    return Py_BuildValue("(iO)", found.kind, found.loop == look || found.call == tell ? Py_True : Py_False);
}

static int64_t changes[3]; /* blocks handed out, blocks that came back, bytes afterwards */

static void changed(void *context, const tg_memory_change *change)
{
    (void)context;
    changes[change->sign < 0]++;
    changes[2] = change->allocated;
}

static const tg_memory_watch watch = {.size = sizeof(tg_memory_watch), .changed = changed};

static PyObject *watch_memory(PyObject *self, PyObject *begins)
{
    (void)self;
    if (PyObject_IsTrue(begins)) {
        memset(changes, 0, sizeof changes);
        return api->watch_memory(&watch) == 0 ? Py_NewRef(Py_None) : NULL;
    }
    if (api->unwatch_memory(&watch) != 0)
        return NULL;
    return Py_BuildValue("(LLL)", (long long)changes[0], (long long)changes[1], (long long)changes[2]);
}
#endif

static PyObject *versions(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("(iiii)", TG_ABI_VERSION, (int)sizeof(tg_api), api->version, api->size);
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, "install(op, device, dtype): register the do-nothing kernel."},
    {"install_looking", install_looking, METH_VARARGS, "Register the kernel that notes its loop."},
    {"install_failing", install_failing, METH_VARARGS, "Register the kernel that raises."},
    {"install_call", install_call, METH_VARARGS, "Register the call kernel that notes its call, or one that raises."},
    {"install_of", install_of, METH_VARARGS, "install_of(op object, device, dtype): the kernel that notes its loop."},
    {"last_call", last_call, METH_NOARGS, "Return what the noting call kernel was given last, as text."},
    {"last_loop", last_loop, METH_NOARGS, "Return what the noting kernel was given last."},
    {"describe", describe, METH_O, "Return what the table tells of a tensor, or None."},
    {"empty", empty, METH_VARARGS, "empty(rows, columns, dtype, like): allocate through the table."},
    {"push", push, METH_VARARGS, "push(counter, refuses=False): count this thread's ops from zero."},
    {"pop", pop, METH_O, "pop(counter): stop counting."},
    {"counts", counts, METH_O, "Return (entered, left, deepest nesting) of a counter."},
    {"versions", versions, METH_NOARGS, "Return the table's (version, size) at compile time and now."},
#if TG_ABI_VERSION >= 3
    {"push_observer", push_observer, METH_O, "push_observer(listens): observe this thread, noting all or nothing."},
    {"pop_observer", pop_observer, METH_O, "pop_observer(listens): stop, and return what was noted."},
    {"scratch", scratch, METH_VARARGS, "scratch(device, index, nbytes): (stream, bytes got, reached by the host)."},
    {"sum_range", sum_range, METH_VARARGS, "sum_range(begin, end, grain): (sum, number of pieces)."},
    {"pool", pool, METH_NOARGS, "Return (instruction set, threads) of the host's pool."},
    {"kernel_of", kernel_of, METH_VARARGS, "kernel_of(op, device, dtype): (kind, whether it is one of these here)."},
    {"watch_memory", watch_memory, METH_O, "watch_memory(begins): count changes, or stop and return the counts."},
#endif
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "noop_backend", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_noop_backend(void)
{
    api = tg_import_api(TG_ABI_VERSION);
    return api == NULL ? NULL : PyModule_Create(&module);
}
