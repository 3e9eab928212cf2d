/* What registers of the machine hold: words, and objects of the machine that are counted.
 *
 * The kind of a word is known when a program is made, so that words carry none. Objects live within
 * one call from Python: what comes in is copied, and what goes out. */

#ifndef TANGRAD_SCRIPT_VALUES_H
#define TANGRAD_SCRIPT_VALUES_H

#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind_tag {
    KIND_INT,
    KIND_BOOL,
    KIND_FLOAT,
    KIND_NONE,
    KIND_PYTHON, /* an object of Python: a text, a tensor, a module */
    KIND_LIST,
    KIND_DICT,
    KIND_TUPLE,
    KIND_BOX /* a number or None */
} kind_tag;

/* How words of a kind are kept. */
typedef enum keeping { KEEP_PLAIN, KEEP_OBJECT, KEEP_PYTHON } keeping;

typedef struct kind {
    kind_tag tag;
    int optional; /* of an object: whether NULL, which is None, is one */
    int count;
    struct kind **parts; /* of a list its element, of a dict key and value, of a tuple its members */
    PyObject *cls; /* of a named tuple its class; of an object of Python the class that it must be of */
} kind;

typedef struct object {
    int64_t references;
    const kind *kind;
} object;

typedef union word {
    int64_t i;
    double f;
    object *o;
    PyObject *p;
} word;

typedef struct list {
    object head;
    int64_t length, capacity;
    word *items;
} list;

typedef struct tuple {
    object head;
    word items[];
} tuple;

typedef struct box {
    object head;
    word value;
} box;

typedef struct entry {
    uint64_t hash;
    word key, value;
    int alive;
} entry;

/* Entries in the order of insertion, and a table of their places by hash; -1 is free. */
typedef struct dict {
    object head;
    int64_t length, used, capacity, slots;
    entry *entries;
    int64_t *table;
} dict;

static inline keeping keeping_of(const kind *k)
{
    return k->tag < KIND_PYTHON ? KEEP_PLAIN : k->tag == KIND_PYTHON ? KEEP_PYTHON : KEEP_OBJECT;
}

static void object_free(object *o);

static inline void object_release(object *o)
{
    if (o != NULL && --o->references == 0)
        object_free(o);
}

static inline object *object_retain(object *o)
{
    if (o != NULL)
        o->references++;
    return o;
}

static inline void word_release(keeping how, word w)
{
    if (how == KEEP_OBJECT)
        object_release(w.o);
    else if (how == KEEP_PYTHON)
        Py_XDECREF(w.p);
}

static inline word word_retain(keeping how, word w)
{
    if (how == KEEP_OBJECT)
        object_retain(w.o);
    else if (how == KEEP_PYTHON)
        Py_XINCREF(w.p);
    return w;
}

static void *object_new(const kind *k, size_t size)
{
    object *o = calloc(1, size);
    if (o == NULL)
        return NULL;
    o->references = 1;
    o->kind = k;
    return o;
}

static void words_release(keeping how, word *words, int64_t count)
{
    if (how != KEEP_PLAIN)
        for (int64_t k = 0; k < count; k++)
            word_release(how, words[k]);
}

static void dict_drop_entries(dict *d)
{
    keeping keys = keeping_of(d->head.kind->parts[0]), values = keeping_of(d->head.kind->parts[1]);
    if (keys == KEEP_PLAIN && values == KEEP_PLAIN)
        return;
    for (int64_t k = 0; k < d->used; k++)
        if (d->entries[k].alive) {
            word_release(keys, d->entries[k].key);
            word_release(values, d->entries[k].value);
        }
}

static void object_free(object *o)
{
    const kind *k = o->kind;
    if (k->tag == KIND_LIST) {
        list *l = (list *)o;
        words_release(keeping_of(k->parts[0]), l->items, l->length);
        free(l->items);
    } else if (k->tag == KIND_DICT) {
        dict *d = (dict *)o;
        dict_drop_entries(d);
        free(d->entries);
        free(d->table);
    } else if (k->tag == KIND_TUPLE) {
        tuple *t = (tuple *)o;
        for (int m = 0; m < k->count; m++)
            word_release(keeping_of(k->parts[m]), t->items[m]);
    }
    free(o);
}

/* Python's object of a word; a new reference, or NULL with an exception. */
static PyObject *word_to_python(const kind *k, word w)
{
    switch (k->tag) {
    case KIND_INT:
        return PyLong_FromLongLong(w.i);
    case KIND_BOOL:
        return PyBool_FromLong(w.i != 0);
    case KIND_FLOAT:
        return PyFloat_FromDouble(w.f);
    case KIND_NONE:
        Py_RETURN_NONE;
    case KIND_PYTHON:
        return Py_NewRef(w.p == NULL ? Py_None : w.p);
    default:
        break;
    }
    if (w.o == NULL)
        Py_RETURN_NONE;
    if (k->tag == KIND_BOX)
        return word_to_python(k->parts[0], ((box *)w.o)->value);
    if (k->tag == KIND_LIST) {
        list *l = (list *)w.o;
        PyObject *made = PyList_New(l->length);
        for (int64_t n = 0; made != NULL && n < l->length; n++) {
            PyObject *item = word_to_python(k->parts[0], l->items[n]);
            if (item == NULL)
                Py_CLEAR(made);
            else
                PyList_SET_ITEM(made, n, item);
        }
        return made;
    }
    if (k->tag == KIND_TUPLE) {
        tuple *t = (tuple *)w.o;
        PyObject *made = PyTuple_New(k->count);
        for (int n = 0; made != NULL && n < k->count; n++) {
            PyObject *item = word_to_python(k->parts[n], t->items[n]);
            if (item == NULL)
                Py_CLEAR(made);
            else
                PyTuple_SET_ITEM(made, n, item);
        }
        if (made != NULL && k->cls != NULL) {
            PyObject *named = PyObject_Call(k->cls, made, NULL);
            Py_DECREF(made);
            return named;
        }
        return made;
    }
    dict *d = (dict *)w.o;
    PyObject *made = PyDict_New();
    for (int64_t n = 0; made != NULL && n < d->used; n++) {
        if (!d->entries[n].alive)
            continue;
        PyObject *key = word_to_python(k->parts[0], d->entries[n].key);
        PyObject *value = key == NULL ? NULL : word_to_python(k->parts[1], d->entries[n].value);
        if (value == NULL || PyDict_SetItem(made, key, value) < 0)
            Py_CLEAR(made);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return made;
}

#endif
