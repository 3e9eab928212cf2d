/* What a Size does beyond a tuple where it is often asked: it is made of sizes, and its slices
 * are Sizes. A __getitem__ in Python would make `shape[0]` a call of Python. */
#ifndef TANGRAD_SIZE_H
#define TANGRAD_SIZE_H
#include <Python.h>
#include <stdint.h>

static PyTypeObject *tg_size_type;

static PyObject *tg_make_size(int count, const int64_t *values)
{
    PyObject *size = tg_size_type->tp_alloc(tg_size_type, count);
    for (int i = 0; size != NULL && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(values[i]);
        if (item == NULL)
            Py_CLEAR(size);
        else
            PyTuple_SET_ITEM(size, i, item);
    }
    return size;
}

static PyObject *tg_size_of_tuple(PyObject *items)
{
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    PyObject *size = tg_size_type->tp_alloc(tg_size_type, count);
    for (Py_ssize_t i = 0; size != NULL && i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        Py_INCREF(item);
        PyTuple_SET_ITEM(size, i, item);
    }
    return size;
}

static PyObject *tg_size_subscript(PyObject *self, PyObject *key)
{
    PyObject *found = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
    if (found == NULL || !PySlice_Check(key))
        return found;
    PyObject *size = tg_size_of_tuple(found);
    Py_DECREF(found);
    return size;
}

static PyObject *tg_size_getitem(PyObject *self, PyObject *key, void *Py_UNUSED(wrapped))
{
    PyObject *only;
    if (!PyArg_ParseTuple(key, "O:__getitem__", &only))
        return NULL;
    return tg_size_subscript(self, only);
}

/* Python has no other way to fill the slot of a class than a function in Python. The method
 * stands in the class as well, for `super()` and for classes made of this one. */
static int tg_install_size(PyTypeObject *type)
{
    static struct wrapperbase method = {
        .name = "__getitem__", .wrapper = tg_size_getitem, .doc = "Return a size, or a Size of several."};
    PyObject *descriptor = PyDescr_NewWrapper(type, &method, (void *)tg_size_subscript);
    if (descriptor == NULL)
        return -1;
    int failed = PyDict_SetItemString(type->tp_dict, "__getitem__", descriptor);
    Py_DECREF(descriptor);
    if (failed)
        return -1;
    Py_INCREF(type);
    tg_size_type = type;
    type->tp_as_mapping->mp_subscript = tg_size_subscript;
    PyType_Modified(type);
    return 0;
}

#endif
