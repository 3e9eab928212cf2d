#ifndef TANGRAD_NODE_TYPES_H
#define TANGRAD_NODE_TYPES_H

#include <Python.h>
#include <string.h>

/* Make a type that is `base`, but for its name; it is never freed. NULL with an error set.
 *
 * A type of C, for an object becomes one in place: no instance counts it, and freeing goes as it
 * goes for the base, free list included. */
static PyTypeObject *tg_node_type(PyTypeObject *base, const char *name)
{
    size_t length = strlen(name) + 1;
    PyTypeObject *type = PyMem_Calloc(1, sizeof *type + length);
    if (type == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    Py_SET_REFCNT((PyObject *)type, 1);
    type->tp_name = memcpy(type + 1, name, length);
    type->tp_basicsize = base->tp_basicsize;
    type->tp_base = base;
    type->tp_flags = base->tp_flags & (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC);
    type->tp_traverse = base->tp_traverse;
    type->tp_clear = base->tp_clear;
    type->tp_dealloc = base->tp_dealloc;
    type->tp_doc = base->tp_doc;
    if (PyType_Ready(type) < 0) {
        PyMem_Free(type);
        return NULL;
    }
    return type;
}

static void tg_set_type(PyObject *x, PyTypeObject *type)
{
    Py_SET_TYPE(x, type);
}

#endif
