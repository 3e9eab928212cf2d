# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled ``__call__``, ``__getattr__`` and ``__setattr__`` of ``nn.Module``.

``Module`` itself stays an ordinary Python class, because users mix it with any other class; a
compiled base would forbid that as soon as it had a field. What is compiled are type slots,
put into each subclass by `accelerate` when the class is made. When somebody later assigns
``__call__`` or ``__getattr__``, CPython rewrites the slot, so a patched class is slower and right.
``__setattr__`` is a compiled function and no slot, which would have CPython refuse
``object.__setattr__(module, ...)``.
"""

from cpython.object cimport PyObject, Py_TYPE
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        PyObject* tp_dict
    ctypedef PyObject* (*getattrofunc)(PyObject*, PyObject*)
    ctypedef PyObject* (*ternaryfunc)(PyObject*, PyObject*, PyObject*)
    unsigned long Py_TPFLAGS_METHOD_DESCRIPTOR
    int PyType_HasFeature(PyTypeObject*, unsigned long)
    PyObject* _PyType_Lookup(PyTypeObject*, PyObject*)
    object PyObject_GenericGetAttr(object, object)
    object PyObject_GenericGetDict(object, void*)
    int PyDict_Check(PyObject*)
    Py_ssize_t PyDict_GET_SIZE(PyObject*)
    PyObject* PyDict_GetItemWithError(PyObject*, PyObject*) except? NULL
    int PyDict_CheckExact(PyObject*)
    int PyDict_SetItem(PyObject*, PyObject*, PyObject*) except -1
    int PyObject_GenericSetAttr(object, object, object) except -1
    int PyType_IsSubtype(PyTypeObject*, PyTypeObject*)
    int PyUnicode_CheckExact(PyObject*)
    Py_ssize_t PyUnicode_FindChar(object, Py_UCS4, Py_ssize_t, Py_ssize_t, int) except -2
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    object PyObject_Call(object, PyObject*, PyObject*)
    object PyObject_VectorcallDict(PyObject*, PyObject**, size_t, PyObject*)
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**)
    void PyErr_NormalizeException(PyObject**, PyObject**, PyObject**)
    void PyErr_Restore(PyObject*, PyObject*, PyObject*)

cdef extern from *:
    """
    static void tangrad_set_call(PyTypeObject *type, ternaryfunc call) { type->tp_call = call; }
    static void tangrad_set_getattro(PyTypeObject *type, getattrofunc get) {
        type->tp_getattro = get;
    }
    static int tangrad_has_getattro(PyTypeObject *type, getattrofunc get) {
        return type->tp_getattro == get;
    }
    /* A call that succeeds pays one branch for what is told of one that fails. */
    static ternaryfunc tangrad_inner_call;
    static void (*tangrad_call_failed)(PyObject *);
    static PyObject *tangrad_call(PyObject *self, PyObject *args, PyObject *kwargs) {
        PyObject *result = tangrad_inner_call(self, args, kwargs);
        if (result == NULL)
            tangrad_call_failed(self);
        return result;
    }
    static initproc tangrad_inner_init;
    static void (*tangrad_init_failed)(PyObject *);
    static int tangrad_init(PyObject *self, PyObject *args, PyObject *kwargs) {
        int result = tangrad_inner_init(self, args, kwargs);
        if (result < 0 && PyErr_ExceptionMatches(PyExc_TypeError))
            tangrad_init_failed(self);
        return result;
    }
    static void tangrad_find_init(PyTypeObject *type) { tangrad_inner_init = type->tp_init; }
    static void tangrad_set_init(PyTypeObject *type) {
        if (type->tp_init == tangrad_inner_init)
            type->tp_init = tangrad_init;
    }
    """
    void (*tangrad_init_failed)(PyObject*)
    void tangrad_find_init(PyTypeObject*)
    void tangrad_set_init(PyTypeObject*)
    ternaryfunc tangrad_inner_call
    void (*tangrad_call_failed)(PyObject*)
    object tangrad_call(object, PyObject*, PyObject*)
    void tangrad_set_call(PyTypeObject*, ternaryfunc)
    void tangrad_set_getattro(PyTypeObject*, getattrofunc)
    int tangrad_has_getattro(PyTypeObject*, getattrofunc)

cdef enum:
    INLINE_ARGUMENTS = 8

# Held by C variables: interned once, compared by address in the dictionary lookups below.
cdef str FORWARD = "forward"
cdef str PARAMETERS = "_parameters"
cdef str BUFFERS = "_buffers"
cdef str MODULES = "_modules"
cdef str FORWARD_HOOKS = "_forward_hooks"
cdef str FORWARD_PRE_HOOKS = "_forward_pre_hooks"
cdef str BACKWARD_HOOKS = "_backward_hooks"
cdef str BACKWARD_PRE_HOOKS = "_backward_pre_hooks"
cdef str SETATTR = "__setattr__"

# Set by `set_classes`, which knows them.
cdef object Module = None, Tensor = None, Parameter = None, register_attribute = None
cdef object parameter_hooks = None, module_hooks = None

# True while a hook may be registered for all modules.
cdef bint global_hooks = False
cdef object call_with_hooks = None


def set_classes(module, tensor, parameter, register):
    """Name the classes that attributes are told apart by, and what registers."""
    global Module, Tensor, Parameter, register_attribute
    Module, Tensor, Parameter = module, tensor, parameter
    register_attribute = register


def set_registration_hooks(on_parameter, on_module):
    """Name the registries of hooks that see what is registered."""
    global parameter_hooks, module_hooks
    parameter_hooks, module_hooks = on_parameter, on_module


# The registries of a module by name, and what makes each.
cdef tuple registry_names = (), registry_makers = ()


def set_registries(dict makers):
    """Set what `start_registries` makes, by name."""
    global registry_names, registry_makers
    registry_names, registry_makers = tuple(makers), tuple(makers.values())


def start_registries(dict attributes):
    """Put the empty registries into the attributes of a new module."""
    cdef Py_ssize_t i
    for i in range(len(registry_names)):
        make = registry_makers[i]
        attributes[registry_names[i]] = {} if make is dict else make()


def set_call_with_hooks(function):
    """Set the function `(module, args, kwargs)` that calls a module which has hooks."""
    global call_with_hooks
    call_with_hooks = function


def set_global_hooks(bint present):
    """Say whether hooks for all modules may exist; False lets calls take the short path."""
    global global_hooks
    global_hooks = present


cdef inline PyObject* item(PyObject* mapping, str key) except? NULL:
    return PyDict_GetItemWithError(mapping, <PyObject*>key)


cdef PyObject* registered(PyObject* attributes, object name) except? NULL:
    """Return the parameter, buffer or module `name` (borrowed), or NULL."""
    cdef PyObject* registry
    cdef PyObject* found
    registry = item(attributes, PARAMETERS)
    if registry != NULL and PyDict_Check(registry):
        found = PyDict_GetItemWithError(registry, <PyObject*>name)
        if found != NULL:
            return found
    registry = item(attributes, BUFFERS)
    if registry != NULL and PyDict_Check(registry):
        found = PyDict_GetItemWithError(registry, <PyObject*>name)
        if found != NULL:
            return found
    registry = item(attributes, MODULES)
    if registry != NULL and PyDict_Check(registry):
        return PyDict_GetItemWithError(registry, <PyObject*>name)
    return NULL


cdef object find_further = None          # (module, name) -> what an attribute that nobody set is, or None


def set_further(function):
    """Set what is asked for an attribute that a module does not have."""
    global find_further
    find_further = function


cdef object missing(object module, object name):
    found = None if find_further is None else find_further(module, name)
    if found is not None:
        return found
    raise AttributeError(
        f"'{type(module).__name__}' object has no attribute '{name}'", name=name, obj=module
    )


cdef object slot_getattro(object self, object name):
    """Read an attribute: class, instance, then the registries; no exception on the way."""
    cdef object attributes = PyObject_GenericGetDict(self, NULL)
    cdef PyObject* found
    if _PyType_Lookup(Py_TYPE(self), <PyObject*>name) == NULL:
        found = PyDict_GetItemWithError(<PyObject*>attributes, <PyObject*>name)
        if found == NULL:
            found = registered(<PyObject*>attributes, name)
        if found == NULL:
            return missing(self, name)
        return <object>found
    try:
        return PyObject_GenericGetAttr(self, name)
    except AttributeError:
        found = registered(<PyObject*>attributes, name)
        if found == NULL:
            raise
        return <object>found


def taken(self, name):
    """Tell what `hasattr(self, name)` does, without raising inside where attributes are ordinary."""
    cdef object attributes
    if tangrad_has_getattro(Py_TYPE(self), <getattrofunc>slot_getattro) \
            and _PyType_Lookup(Py_TYPE(self), <PyObject*>name) == NULL:
        attributes = PyObject_GenericGetDict(self, NULL)
        return PyDict_GetItemWithError(<PyObject*>attributes, <PyObject*>name) != NULL \
            or registered(<PyObject*>attributes, name) != NULL
    return hasattr(self, name)


cdef PyObject* registry_for(object self, object attributes, object name, object value) except? NULL:
    """Return the registry (borrowed) that takes `value` as it is under a name that is new, or NULL."""
    cdef PyObject* registry
    cdef object hooks
    if Py_TYPE(value) == <PyTypeObject*>Parameter:
        registry = item(<PyObject*>attributes, PARAMETERS)
        hooks = parameter_hooks
        # What is slow but right says what is wrong with a name, or a value.
        if PyUnicode_FindChar(name, c".", 0, PyUnicode_GET_LENGTH(name), 1) != -1 \
                or PyUnicode_GET_LENGTH(name) == 0 or value.grad_fn is not None:
            return NULL
    elif isinstance(value, Module):
        registry = item(<PyObject*>attributes, MODULES)
        hooks = module_hooks
    else:
        return NULL
    if registry == NULL or not PyDict_CheckExact(registry) or hooks:
        return NULL
    if _PyType_Lookup(Py_TYPE(self), <PyObject*>name) != NULL \
            or PyDict_GetItemWithError(<PyObject*>attributes, <PyObject*>name) != NULL:
        return NULL
    return registry


cdef bint object_comes_next(object self) except -1:
    """Whether no class between `Module` and `object` has a say in how attributes are written."""
    cdef tuple order = type(self).__mro__
    cdef Py_ssize_t i = len(order) - 2
    cdef PyObject* names
    while i >= 0 and order[i] is not Module:
        names = (<PyTypeObject*>order[i]).tp_dict
        if names == NULL or item(names, SETATTR) != NULL:
            return False
        i -= 1
    return True


def set_attribute(self, name, value):
    """Write an attribute; one that is a parameter, a module or a buffer is registered.

    Raises:
        AttributeError: it is one of these, and `Module.__init__` has not run.
        TypeError: the name is that of one of these, and the value another thing.
    """
    cdef object attributes
    cdef PyObject* registry
    if PyUnicode_CheckExact(<PyObject*>name):
        attributes = PyObject_GenericGetDict(self, NULL)
        if item(<PyObject*>attributes, PARAMETERS) != NULL and registered(<PyObject*>attributes, name) == NULL:
            if not PyType_IsSubtype(Py_TYPE(value), <PyTypeObject*>Tensor) and not isinstance(value, Module):
                if object_comes_next(self):
                    PyObject_GenericSetAttr(self, name, value)
                    return
            else:
                registry = registry_for(self, attributes, name, value)
                if registry != NULL:
                    PyDict_SetItem(registry, <PyObject*>name, <PyObject*>value)
                    return
    register_attribute(self, name, value)


cdef inline bint has_entries(PyObject* attributes, str key) except -1:
    cdef PyObject* hooks = item(attributes, key)
    if hooks == NULL:
        return False
    if PyDict_Check(hooks):
        return PyDict_GET_SIZE(hooks) != 0
    return bool(<object>hooks)


cdef object call_forward(object self, object attributes, PyObject* args, PyObject* kwargs):
    cdef PyObject* stack[INLINE_ARGUMENTS + 1]
    cdef PyObject* function
    cdef Py_ssize_t count = PyTuple_GET_SIZE(<object>args)
    cdef Py_ssize_t i
    if (
        count <= INLINE_ARGUMENTS
        and tangrad_has_getattro(Py_TYPE(self), <getattrofunc>slot_getattro)
        and item(<PyObject*>attributes, FORWARD) == NULL
    ):
        function = _PyType_Lookup(Py_TYPE(self), <PyObject*>FORWARD)
        if function != NULL and PyType_HasFeature(
            Py_TYPE(<object>function), Py_TPFLAGS_METHOD_DESCRIPTOR
        ):
            stack[0] = <PyObject*>self
            for i in range(count):
                stack[i + 1] = PyTuple_GET_ITEM(<object>args, i)
            return PyObject_VectorcallDict(function, stack, count + 1, kwargs)
    return PyObject_Call(self.forward, args, kwargs)


cdef object slot_call(object self, PyObject* args, PyObject* kwargs):
    cdef object attributes = PyObject_GenericGetDict(self, NULL)
    cdef PyObject* own = <PyObject*>attributes
    if (
        global_hooks
        or has_entries(own, FORWARD_HOOKS)
        or has_entries(own, FORWARD_PRE_HOOKS)
        or has_entries(own, BACKWARD_HOOKS)
        or has_entries(own, BACKWARD_PRE_HOOKS)
    ):
        return call_with_hooks(self, <object>args, {} if kwargs == NULL else <object>kwargs)
    return call_forward(self, attributes, args, kwargs)


cdef void call_failed(PyObject* self) noexcept:
    """Have the exception that a call is about to raise say where in the model it was raised."""
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* trace
    PyErr_Fetch(&kind, &error, &trace)
    PyErr_NormalizeException(&kind, &error, &trace)
    try:
        if error != NULL and isinstance(<object>error, Exception):
            from tangrad.nn.modules.failure import explain

            explain(<object>self, <object>error, <object>trace if trace != NULL else None)
    except BaseException:
        pass  # what cannot be explained is raised as it is
    PyErr_Restore(kind, error, trace)


tangrad_inner_call = <ternaryfunc>slot_call
tangrad_call_failed = call_failed


def call(self, *args, **kwargs):
    """Run the hooks, if there are any, and `forward`."""
    return tangrad_call(self, <PyObject*>args, <PyObject*>kwargs if kwargs else NULL)


def get_registered(self, name):
    """Return the parameter, buffer or module registered as `name`.

    Raises:
        AttributeError: if there is none.
    """
    cdef object attributes = PyObject_GenericGetDict(self, NULL)
    cdef PyObject* found = registered(<PyObject*>attributes, name)
    if found == NULL:
        return missing(self, name)
    return <object>found


cdef void init_failed(PyObject* module) noexcept:
    """Have an error of the arguments of a constructor name the class that was to be made."""
    cdef PyObject* kind = NULL
    cdef PyObject* error = NULL
    cdef PyObject* trace = NULL
    PyErr_Fetch(&kind, &error, &trace)
    PyErr_NormalizeException(&kind, &error, &trace)
    try:
        from tangrad.nn.modules.arguments import say_whose

        say_whose(<object>module, <object>error, <object>trace if trace != NULL else None)
    except BaseException:
        pass  # the error is right as it is
    PyErr_Restore(kind, error, trace)


tangrad_init_failed = init_failed


class _OfPython:
    def __init__(self):
        pass


tangrad_find_init(<PyTypeObject*>_OfPython)


cdef PyObject* OBJECT_GETATTRIBUTE = _PyType_Lookup(
    <PyTypeObject*>object, <PyObject*>"__getattribute__"
)


def accelerate(cls):
    """Put the compiled slots into `cls`, as far as it inherits `call` and `get_registered`."""
    if not isinstance(cls, type):
        raise TypeError(f"accelerate() takes a class, got {type(cls).__name__}")
    cdef PyTypeObject* target = <PyTypeObject*>cls
    if _PyType_Lookup(target, <PyObject*>"__call__") == <PyObject*>call:
        tangrad_set_call(target, <ternaryfunc>tangrad_call)
    tangrad_set_init(target)
    if (
        _PyType_Lookup(target, <PyObject*>"__getattr__") == <PyObject*>get_registered
        and _PyType_Lookup(target, <PyObject*>"__getattribute__") == OBJECT_GETATTRIBUTE
    ):
        tangrad_set_getattro(target, <getattrofunc>slot_getattro)
