# Calls and members that objects with `__torch_function__`, and modes, take over.

cdef extern from "Python.h":
    PyObject* _PyType_Lookup(PyTypeObject*, PyObject*)
    PyObject* PyObject_Vectorcall(PyObject*, PyObject**, size_t, PyObject*) except NULL


cdef str TORCH_FUNCTION = "__torch_function__"
cdef object _offer_hook = None


cdef inline bint plain_argument(PyObject* value) noexcept:
    """Whether a value is of a class that takes no calls over: the usual ones, told by identity."""
    return exact_tensor(value) or value == Py_None_ptr or PyLong_CheckExact(<object>value) \
        or PyFloat_CheckExact(<object>value) or PyBool_Check(<object>value) or PyUnicode_CheckExact(<object>value)


cdef bint takes_over(PyObject* value) noexcept:
    """Whether a value, or an item of a list, is of a class with `__torch_function__`."""
    cdef Py_ssize_t i
    if plain_argument(value):
        return False
    if PyTuple_CheckExact(<object>value):
        for i in range(PyTuple_GET_SIZE(<object>value)):
            if takes_over(PyTuple_GET_ITEM(<object>value, i)):
                return True
        return False
    if PyList_CheckExact(<object>value):
        for i in range(PyList_GET_SIZE(<object>value)):
            if takes_over(PyList_GET_ITEM(<object>value, i)):
                return True
        return False
    return _PyType_Lookup(<PyTypeObject*>Py_TYPE(<object>value), <PyObject*>TORCH_FUNCTION) != NULL


cdef inline bint any_takes_over(PyObject** args, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if takes_over(args[i]):
            return True
    return False


cdef object offer(object function, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    """Offer a call, as it was written, to `__torch_function__`; NotImplemented if nobody takes it."""
    global _offer_hook
    cdef Py_ssize_t i
    if _offer_hook is None:
        from tangrad.dispatch.overrides import offer as found
        _offer_hook = found
    keywords = {}
    if kwnames != NULL:
        for i, key in enumerate(<tuple>kwnames):
            keywords[key] = <object>args[nargs + i]
    return _offer_hook(function, tuple_of(args, nargs), keywords)


cdef object offer_member(str name, tuple args):
    """Offer a call of a method of Tensor."""
    from tangrad.dispatch.overrides import offer
    return offer(getattr(Tensor, name), args, {})


cdef object _default_function = Tensor.__dict__["__torch_function__"]
cdef object _overrides_off = None


cdef bint taken(PyObject* self) noexcept:
    """Whether a class with a `__torch_function__` of its own, or a mode, takes over a tensor's methods."""
    cdef PyObject* found
    if tg_tls.intercept != NULL and (<object>tg_tls.intercept).function_modes:
        return True
    if exact_tensor(self):
        return False
    found = _PyType_Lookup(<PyTypeObject*>Py_TYPE(<object>self), <PyObject*>TORCH_FUNCTION)
    return found != NULL and found != <PyObject*>_default_function and found != <PyObject*>_overrides_off


cdef PyObject* offer_call(const char* name, PyObject* self, PyObject** args, Py_ssize_t nargs, PyObject* names) \
        except NULL:
    result = NotImplemented
    if taken(self):
        given = (<object>self,) + tuple_of(args, nargs)
        keywords = {key: <object>args[nargs + i] for i, key in enumerate(<tuple>names)} if names != NULL else {}
        from tangrad.dispatch.overrides import offer
        result = offer(getattr(Tensor, name.decode()), given, keywords)
    Py_INCREF(result)
    return <PyObject*>result


cdef PyObject* offer_access(const char* name, const char* what, PyObject* self, PyObject* value) except NULL:
    result = NotImplemented
    if taken(self):
        given = (<object>self,) if value == NULL else (<object>self, <object>value)
        from tangrad.dispatch.overrides import offer
        result = offer(getattr(getattr(Tensor, name.decode()), what.decode()), given, {})
    Py_INCREF(result)
    return <PyObject*>result


def set_overrides_off(marker):
    """Name what stands for `__torch_function__` in a class that wants none of it."""
    global _overrides_off
    _overrides_off = marker


def offer_members():
    """Let calls and reads of what Tensor itself defines be taken over, from now on."""
    if tg_offer_members(TENSOR, offer_call, offer_access) != 0:
        raise SystemError("native/members.h has too few places for the members of Tensor")


cdef class Overridable:
    """A Python function whose calls objects with `__torch_function__`, and modes, may take over.

    Made by `tangrad.compat.overridable`.
    """
    cdef void* vectorcall
    cdef object function
    cdef public object shown             # what is handed over, if not this itself
    cdef bint modes_only
    cdef bint method                     # of Tensor, and of nothing else
    cdef dict __dict__

    def __init__(self, function, shown=None, modes_only=False, method=False):
        self.vectorcall = <void*>overridable_vectorcall
        self.function = function
        self.shown = shown
        self.modes_only = modes_only
        self.method = method

    def __get__(self, instance, owner):
        return self if instance is None else PyMethod_New(self, instance)

    def __repr__(self):
        return repr(self.function)

    def __reduce__(self):
        return self.function.__qualname__


cdef PyObject* overridable_vectorcall(PyObject* callable, PyObject** args, size_t nargsf, PyObject* kwnames) \
        except NULL:
    cdef Overridable self = <Overridable>callable
    cdef Py_ssize_t nargs = nargsf & ~(<size_t>1 << 63)
    if (tg_tls.intercept != NULL and (<object>tg_tls.intercept).function_modes) \
            or not self.modes_only and any_takes_over(
                args, nargs if kwnames == NULL else nargs + PyTuple_GET_SIZE(<object>kwnames)):
        result = offer(self if self.shown is None else self.shown, args, nargs, kwnames)
        if result is not NotImplemented:
            Py_INCREF(result)
            return <PyObject*>result
    if self.method and nargs > 0 and not isinstance(<object>args[0], Tensor):
        raise TypeError(f"descriptor '{self.function.__name__}' for 'Tensor' objects doesn't apply to a "
                        f"'{type(<object>args[0]).__name__}' object")
    return PyObject_Vectorcall(<PyObject*>self.function, args, nargs, kwnames)
