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
    int reads;          /* how often elements of tensors were read by the host; wraps around */
    int standing;       /* whether more than observers is on the stack of `intercept` */
    void *observers;    /* NULL, or the observers on that stack (borrowed) */
    void *finite;       /* NULL, or what looks for NaN and infinity (borrowed) */
    const void *queue;  /* NULL, or the tg_queue that pointwise work is offered to */
    void *walk;         /* NULL, or the outermost backward walk that runs (borrowed) */
} tg_thread_state;

static __thread tg_thread_state tg_tls
    __attribute__((tls_model("initial-exec"))) = {NULL, 1, 0, 0, 0, 0, NULL, NULL, NULL, NULL};

/* A type whose calls arrive as vectors and which may bind like a function. */
static void tg_make_callable(PyTypeObject *type, Py_ssize_t vectorcall_offset, int binds)
{
    type->tp_vectorcall_offset = vectorcall_offset;
    type->tp_call = PyVectorcall_Call;
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL | (binds ? Py_TPFLAGS_METHOD_DESCRIPTOR : 0);
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

/* A dict made on first use. Cython's own is made with every object, which costs an
 * allocation per tensor; this one is a plain field behind tp_dictoffset, and the type's
 * traverse, clear and dealloc are wrapped to know of it. */
typedef struct tg_lazy_dict {
    PyTypeObject *type;
    Py_ssize_t offset;
    traverseproc traverse;
    inquiry clear;
    destructor dealloc;
} tg_lazy_dict;

#define TG_LAZY_TYPES 2
static tg_lazy_dict tg_lazy[TG_LAZY_TYPES];
static void (*tg_release_geometry)(PyObject *) = NULL;

static inline PyObject **tg_dict_of(PyObject *self) { return (PyObject **)((char *)self + tg_lazy[0].offset); }

#define TG_LAZY_SLOTS(k) \
    static int tg_traverse_##k(PyObject *self, visitproc visit, void *arg) \
    { \
        Py_VISIT(*tg_dict_of(self)); \
        return tg_lazy[k].traverse(self, visit, arg); \
    } \
    static int tg_clear_##k(PyObject *self) \
    { \
        Py_CLEAR(*tg_dict_of(self)); \
        return tg_lazy[k].clear ? tg_lazy[k].clear(self) : 0; \
    } \
    static void tg_dealloc_##k(PyObject *self) \
    { \
        tg_release_geometry(self); \
        if (*tg_dict_of(self) != NULL) { \
            PyObject_GC_UnTrack(self); \
            Py_CLEAR(*tg_dict_of(self)); \
        } \
        tg_lazy[k].dealloc(self); \
    }
TG_LAZY_SLOTS(0)
TG_LAZY_SLOTS(1)

static PyGetSetDef tg_dict_getset = {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL};

static int tg_install_dict(int k, PyTypeObject *type, Py_ssize_t offset, void (*release)(PyObject *))
{
    static const traverseproc traverse[] = {tg_traverse_0, tg_traverse_1};
    static const inquiry clear[] = {tg_clear_0, tg_clear_1};
    static const destructor dealloc[] = {tg_dealloc_0, tg_dealloc_1};
    PyObject *descriptor = PyDescr_NewGetSet(type, &tg_dict_getset);
    int status;
    if (descriptor == NULL)
        return -1;
    status = PyDict_SetItemString(type->tp_dict, "__dict__", descriptor);
    Py_DECREF(descriptor);
    tg_lazy[k].type = type;
    tg_lazy[k].offset = offset;
    tg_lazy[k].traverse = type->tp_traverse;
    tg_lazy[k].clear = type->tp_clear;
    tg_lazy[k].dealloc = type->tp_dealloc;
    tg_release_geometry = release;
    type->tp_traverse = traverse[k];
    type->tp_clear = clear[k];
    type->tp_dealloc = dealloc[k];
    type->tp_dictoffset = offset;
    PyType_Modified(type);
    return status;
}

/* Storage gives its block back when it dies; a wrapped dealloc spares Cython's saving and
 * restoring of the exception state. */
static destructor tg_storage_plain_dealloc = NULL;
static void (*tg_storage_release)(PyObject *) = NULL;

static void tg_storage_dealloc(PyObject *self)
{
    tg_storage_release(self);
    tg_storage_plain_dealloc(self);
}

static void tg_install_storage(PyTypeObject *type, void (*release)(PyObject *))
{
    tg_storage_plain_dealloc = type->tp_dealloc;
    tg_storage_release = release;
    type->tp_dealloc = tg_storage_dealloc;
}

/* A node alone owns the tuple of its edges, which may be untracked: then it visits the items.
 * When nodes and leaves' accumulators die, others forget them: by wrapped deallocs, as for storages.
 * A node's is the one that limits how deep a chain of nodes nests, since that asks for the type's. */
static traverseproc tg_plain_node_traverse = NULL;
static PyObject *(*tg_edges_of)(PyObject *) = NULL;
static destructor tg_node_plain_dealloc = NULL, tg_leaf_plain_dealloc = NULL;
static void (*tg_node_leave)(PyObject *) = NULL, (*tg_leaf_leave)(PyObject *) = NULL;

static void tg_node_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, tg_node_dealloc)
    tg_node_leave(self);
    tg_node_plain_dealloc(self);
    Py_TRASHCAN_END
}

static void tg_leaf_dealloc(PyObject *self)
{
    tg_leaf_leave(self);
    tg_leaf_plain_dealloc(self);
}

static void tg_install_leaving(PyTypeObject *node, void (*node_leave)(PyObject *),
                               PyTypeObject *leaf, void (*leaf_leave)(PyObject *))
{
    tg_node_plain_dealloc = node->tp_dealloc;
    tg_node_leave = node_leave;
    node->tp_dealloc = tg_node_dealloc;
    tg_leaf_plain_dealloc = leaf->tp_dealloc;
    tg_leaf_leave = leaf_leave;
    leaf->tp_dealloc = tg_leaf_dealloc;
}

static int tg_node_traverse(PyObject *self, visitproc visit, void *arg)
{
    PyObject *edges = tg_edges_of(self);
    if (edges != NULL && PyTuple_CheckExact(edges) && !PyObject_GC_IsTracked(edges))
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(edges); i++)
            Py_VISIT(PyTuple_GET_ITEM(edges, i));
    return tg_plain_node_traverse(self, visit, arg);
}

static void tg_install_edges(PyTypeObject *type, PyObject *(*edges_of)(PyObject *))
{
    tg_edges_of = edges_of;
    tg_plain_node_traverse = type->tp_traverse;
    type->tp_traverse = tg_node_traverse;
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
    type->tp_vectorcall = NULL; /* since Python 3.12 Cython's own, which knows only Cython's tp_new */
    PyType_Modified(type);
}

/* Without the effect that the name has on slots. */
static int tg_set_class_attribute(PyTypeObject *type, const char *name, PyObject *value)
{
    int status = PyDict_SetItemString(type->tp_dict, name, value);
    PyType_Modified(type);
    return status;
}
#endif
