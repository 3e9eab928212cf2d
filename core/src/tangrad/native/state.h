/* What a thread carries: one pointer that hides everything standing between an
 * op's call and its kernel, and the flags of recording. */
#ifndef TANGRAD_STATE_H
#define TANGRAD_STATE_H
#include <Python.h>

typedef struct tg_thread_state {
    void *intercept;    /* NULL, or the thread's stack of interceptors (borrowed) */
    int grad_enabled;
    int inference;
    int below_autograd; /* > 0 while kernels and decompositions run */
} tg_thread_state;

static __thread tg_thread_state tg_tls
    __attribute__((tls_model("initial-exec"))) = {NULL, 1, 0, 0};

/* A type whose calls arrive as vectors and which binds like a function. */
static void tg_make_callable(PyTypeObject *type, Py_ssize_t vectorcall_offset)
{
    type->tp_vectorcall_offset = vectorcall_offset;
    type->tp_call = PyVectorcall_Call;
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
    PyType_Modified(type);
}

/* Let Python code assign attributes to the type and `__class__` to its instances. */
static void tg_make_mutable(PyTypeObject *type)
{
    type->tp_flags &= ~(unsigned long)Py_TPFLAGS_IMMUTABLETYPE;
    PyType_Modified(type);
}

static void tg_set_metatype(PyTypeObject *type, PyTypeObject *meta)
{
    Py_INCREF(meta);
    Py_SET_TYPE((PyObject *)type, meta);
    PyType_Modified(type);
}

static newfunc tg_plain_new = NULL;
static PyObject *tg_construct = NULL;

/* `Tensor(...)` and its subclasses: arguments go to the Python constructor. */
static PyObject *tg_tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *result, *call;
    if (PyTuple_GET_SIZE(args) == 0 && kwargs == NULL && tg_construct == NULL)
        return tg_plain_new(type, args, kwargs);
    if (tg_construct == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Tensor: the package tangrad is not initialised");
        return NULL;
    }
    call = PyTuple_Pack(2, (PyObject *)type, args);
    if (call == NULL)
        return NULL;
    result = PyObject_Call(tg_construct, call, kwargs);
    Py_DECREF(call);
    return result;
}

static void tg_install_constructor(PyTypeObject *type, PyObject *construct)
{
    if (tg_plain_new == NULL)
        tg_plain_new = type->tp_new;
    Py_XINCREF(construct);
    tg_construct = construct;
    type->tp_new = tg_tensor_new;
    PyType_Modified(type);
}
#endif
