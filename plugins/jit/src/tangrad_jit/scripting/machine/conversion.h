/* From objects of Python to words of the machine. */

#ifndef TANGRAD_SCRIPT_CONVERSION_H
#define TANGRAD_SCRIPT_CONVERSION_H

#include "containers.h"

static int word_from_python(lock *l, const kind *k, PyObject *value, word *made);

static int unfitting(const kind *k, PyObject *value)
{
    static const char *names[] = {"int", "bool", "float", "None", "object", "list", "dict", "tuple", "number"};
    PyErr_Format(PyExc_TypeError, "expected a value of type %s but got %s", names[k->tag],
                 Py_TYPE(value)->tp_name);
    return -1;
}

static int list_from_python(lock *l, const kind *k, PyObject *value, word *made)
{
    int is_tuple = PyTuple_Check(value);
    if (!is_tuple && !PyList_CheckExact(value))
        return unfitting(k, value);
    Py_ssize_t length = is_tuple ? PyTuple_GET_SIZE(value) : PyList_GET_SIZE(value);
    list *x = list_new(l, k, length);
    if (x == NULL)
        return -1;
    for (Py_ssize_t n = 0; n < length; n++) {
        if (!is_tuple && n >= PyList_GET_SIZE(value))
            break; /* another thread has made it shorter */
        PyObject *item = is_tuple ? PyTuple_GET_ITEM(value, n) : PyList_GET_ITEM(value, n);
        if (word_from_python(l, k->parts[0], item, &x->items[n]) < 0) {
            object_release(&x->head);
            return -1;
        }
        x->length = n + 1;
    }
    made->o = &x->head;
    return 0;
}

static int dict_from_python(lock *l, const kind *k, PyObject *value, word *made)
{
    if (!PyDict_CheckExact(value))
        return unfitting(k, value);
    dict *d = dict_new(l, k);
    if (d == NULL)
        return -1;
    Py_ssize_t at = 0;
    PyObject *key, *item;
    while (PyDict_Next(value, &at, &key, &item)) {
        word a, b;
        if (word_from_python(l, k->parts[0], key, &a) < 0) {
            object_release(&d->head);
            return -1;
        }
        int found = word_from_python(l, k->parts[1], item, &b);
        if (found == 0) {
            found = dict_set(l, d, a, b);
            word_release(keeping_of(k->parts[1]), b);
        }
        word_release(keeping_of(k->parts[0]), a);
        if (found < 0) {
            object_release(&d->head);
            return -1;
        }
    }
    made->o = &d->head;
    return 0;
}

static int tuple_from_python(lock *l, const kind *k, PyObject *value, word *made)
{
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != k->count)
        return unfitting(k, value);
    if (k->cls != NULL && (PyObject *)Py_TYPE(value) != k->cls)
        return unfitting(k, value);
    tuple *t = object_new(k, sizeof(tuple) + (size_t)k->count * sizeof(word));
    if (t == NULL)
        return fail_memory(l);
    for (int n = 0; n < k->count; n++)
        if (word_from_python(l, k->parts[n], PyTuple_GET_ITEM(value, n), &t->items[n]) < 0) {
            t->items[n].i = 0;
            object_release(&t->head);
            return -1;
        }
    made->o = &t->head;
    return 0;
}

/* Convert an object of Python, of which a new reference is taken. The thread holds the lock. */
static int word_from_python(lock *l, const kind *k, PyObject *value, word *made)
{
    switch (k->tag) {
    case KIND_INT:
        if (!PyLong_CheckExact(value))
            return unfitting(k, value);
        made->i = PyLong_AsLongLong(value);
        return made->i == -1 && PyErr_Occurred() ? -1 : 0;
    case KIND_BOOL:
        if (!PyBool_Check(value))
            return unfitting(k, value);
        made->i = value == Py_True;
        return 0;
    case KIND_FLOAT:
        if (!PyFloat_CheckExact(value))
            return unfitting(k, value);
        made->f = PyFloat_AS_DOUBLE(value);
        return 0;
    case KIND_NONE:
        made->i = 0;
        return 0;
    case KIND_PYTHON:
        if (k->cls != NULL && !PyObject_TypeCheck(value, (PyTypeObject *)k->cls))
            return unfitting(k, value);
        made->p = Py_NewRef(value);
        return 0;
    default:
        break;
    }
    if (value == Py_None && (k->optional || k->tag == KIND_BOX)) {
        made->o = NULL;
        return 0;
    }
    if (k->tag == KIND_LIST)
        return list_from_python(l, k, value, made);
    if (k->tag == KIND_DICT)
        return dict_from_python(l, k, value, made);
    if (k->tag == KIND_TUPLE)
        return tuple_from_python(l, k, value, made);
    word inner;
    if (word_from_python(l, k->parts[0], value, &inner) < 0)
        return -1;
    box *b = object_new(k, sizeof(box));
    if (b == NULL)
        return fail_memory(l);
    b->value = inner;
    made->o = &b->head;
    return 0;
}

#endif
