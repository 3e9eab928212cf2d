/* Methods and properties of Tensor that `__torch_function__` may take over.
 *
 * Their entries in the type's tables are exchanged when the first class or mode appears that could:
 * a program without one calls the plain functions, and pays nothing. */
#ifndef TANGRAD_MEMBERS_H
#define TANGRAD_MEMBERS_H
#include <Python.h>
#include "state.h"

#define TG_MEMBERS 40
#define TG_PROPERTIES 24

typedef PyObject *(*tg_fastcall)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
/* The result, NULL after an exception, or NotImplemented where nobody takes the call. */
typedef PyObject *(*tg_offer_method)(const char *, PyObject *, PyObject **, Py_ssize_t, PyObject *);
typedef PyObject *(*tg_offer_property)(const char *, const char *, PyObject *, PyObject *);

static struct { const char *name; tg_fastcall plain; } tg_member[TG_MEMBERS];
static PyGetSetDef tg_property[TG_PROPERTIES];
static tg_offer_method tg_offer_call;
static tg_offer_property tg_offer_access;

static inline int tg_plain(PyObject *self)
{
    return tg_tls.intercept == NULL && (Py_TYPE(self) == tg_lazy[0].type || Py_TYPE(self) == tg_lazy[1].type);
}

static PyObject *tg_call_member(int k, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    if (!tg_plain(self)) {
        PyObject *result = tg_offer_call(tg_member[k].name, self, (PyObject **)args, nargs, names);
        if (result != Py_NotImplemented)
            return result;
        Py_DECREF(result);
    }
    return tg_member[k].plain(self, args, nargs, names);
}

#define TG_MEMBER(k) \
    static PyObject *tg_member_##k(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) \
    { \
        return tg_call_member(k, self, args, nargs, names); \
    }
#define TG_TEN(M, t) M(t##0) M(t##1) M(t##2) M(t##3) M(t##4) M(t##5) M(t##6) M(t##7) M(t##8) M(t##9)
#define TG_ALL(M) TG_TEN(M, ) TG_TEN(M, 1) TG_TEN(M, 2) TG_TEN(M, 3)
TG_ALL(TG_MEMBER)
#define TG_NAMED(k) tg_member_##k,
static const tg_fastcall tg_offered_members[TG_MEMBERS] = {TG_ALL(TG_NAMED)};

static PyObject *tg_get_property(PyObject *self, void *closure)
{
    PyGetSetDef *plain = closure;
    if (!tg_plain(self)) {
        PyObject *result = tg_offer_access(plain->name, "__get__", self, NULL);
        if (result != Py_NotImplemented)
            return result;
        Py_DECREF(result);
    }
    return plain->get(self, plain->closure);
}

static int tg_set_property(PyObject *self, PyObject *value, void *closure)
{
    PyGetSetDef *plain = closure;
    if (!tg_plain(self)) {
        PyObject *result = tg_offer_access(plain->name, value == NULL ? "__delete__" : "__set__", self, value);
        if (result == NULL)
            return -1;
        Py_DECREF(result);
        if (result != Py_NotImplemented)
            return 0;
    }
    return plain->set(self, value, plain->closure);
}

/* Exchange the entries; those of other calling conventions (operators) look for themselves. */
static int tg_offer_members(PyTypeObject *type, tg_offer_method call, tg_offer_property access)
{
    int k = 0, properties = 0;
    PyMethodDef *method;
    PyGetSetDef *entry;
    if (tg_offer_call != NULL)
        return 0;
    tg_offer_call = call, tg_offer_access = access;
    for (method = type->tp_methods; method->ml_name != NULL; method++) {
        if (method->ml_flags != (METH_FASTCALL | METH_KEYWORDS) || !strcmp(method->ml_name, "__torch_function__"))
            continue;
        if (k == TG_MEMBERS)
            return -1;
        tg_member[k].name = method->ml_name;
        tg_member[k].plain = (tg_fastcall)(void (*)(void))method->ml_meth;
        method->ml_meth = (PyCFunction)(void (*)(void))tg_offered_members[k++];
    }
    for (entry = type->tp_getset; entry->name != NULL; entry++) {
        if (properties == TG_PROPERTIES)
            return -1;
        tg_property[properties] = *entry;
        entry->closure = &tg_property[properties++];
        entry->get = tg_get_property;
        if (entry->set != NULL)
            entry->set = tg_set_property;
    }
    return 0;
}
#endif
