# cython: language_level=3, boundscheck=False, wraparound=False
"""Whether what a graph was recorded of still holds: compared pointer by pointer, in some nanoseconds each."""
from cpython.dict cimport PyDict_GetItem, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject, Py_XDECREF, Py_XINCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free as free_memory, malloc
from libc.string cimport memcmp, memcpy, memset

from collections import OrderedDict, defaultdict
from types import GetSetDescriptorType, MethodDescriptorType

from tangrad cimport api as tg

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        unsigned int tp_version_tag
    PyTypeObject* Py_TYPE(object)
    PyObject* PyFunction_GetCode(object)
    PyObject* PyFunction_GetDefaults(object)
    PyObject* PyFunction_GetKwDefaults(object)
    PyObject** _PyObject_GetDictPtr(object)
    object PyCell_Get(object)
    ctypedef struct PyGetSetDef:
        object (*get)(object, void*)
        void* closure
    ctypedef struct PyGetSetDescrObject:
        PyGetSetDef* d_getset
    ctypedef object (*PyCFunction)(object, PyObject*)
    ctypedef struct PyMethodDef:
        PyCFunction ml_meth
        int ml_flags
    ctypedef struct PyMethodDescrObject:
        PyMethodDef* d_method
    int METH_NOARGS

cdef extern from *:
    """
    /* A dict's version is another after each change (PEP 509); later versions of Python have none. */
    #if PY_VERSION_HEX < 0x030C0000
    #define tg_version(d) (((PyDictObject*)(d))->ma_version_tag)
    #else
    #define tg_version(d) ((uint64_t)0)
    #endif
    """
    uint64_t tg_version(PyObject*)

cdef const tg.tg_api* API = tg.tg_import_api(3)

cdef tuple PLAIN = (int, float, bool, complex, str, bytes)


cdef bint same(object a, object b):
    """Whether two objects are one, or numbers or texts that are equal to the bit."""
    if a is b:
        return True
    if type(a) is not type(b) or type(a) not in PLAIN:
        return False
    if type(a) is float:
        return a == b and (a != 0 or str(a) == str(b)) or a != a and b != b
    return a == b


def is_same(a, b):
    """Return whether two objects are one, or numbers or texts that are equal to the bit."""
    return same(a, b)


cdef PyGetSetDef* getter_of(object kind, str name) except? NULL:
    """How C reads an attribute of a class of tensors, or NULL where the class has it in Python."""
    found = getattr(kind, name, None)
    return (<PyGetSetDescrObject*>found).d_getset if type(found) is GetSetDescriptorType else NULL


cdef inline object attribute(PyGetSetDef* getter, object t, str name):
    return getter.get(t, getter.closure) if getter != NULL else getattr(t, name)


cdef PyCFunction caller_of(object kind, str name) except? NULL:
    """How C calls a method of a class of tensors, or NULL where the class has it in Python."""
    cdef PyMethodDef* found
    method = getattr(kind, name, None)
    if type(method) is not MethodDescriptorType:
        return NULL
    found = (<PyMethodDescrObject*>method).d_method
    return found.ml_meth if found.ml_flags == METH_NOARGS else NULL


cdef dict attributes_of(object item):
    """The attributes of a tensor or function, None where there are none; no dict is made."""
    cdef PyObject** place = _PyObject_GetDictPtr(item)
    if place == NULL or place[0] == NULL or PyDict_Size(<dict>place[0]) == 0:
        return None
    return <dict>place[0]


def attributes(tensor):
    """Return the attributes that a program has given a tensor; marks of `_dynamo` are none."""
    held = attributes_of(tensor)
    found = {k: v for k, v in held.items() if not k.startswith("_dynamo_")} if held is not None else None
    return found or None


cdef bint have_attributes(object tensor, dict wanted):
    held = attributes_of(tensor)
    if held is None:
        return wanted is None
    found = attributes(tensor)
    if found is None or wanted is None or len(<dict>found) != len(wanted):
        return found is wanted
    return all([key in wanted and same(value, wanted[key]) for key, value in (<dict>found).items()])


cdef class Geometry:
    """What is compared of a tensor.

    Args:
        tensor: it. given: it comes with the call, so another one may come with the next.

    Attributes:
        requires_grad: as it was.
    """
    cdef object kind, layout
    cdef int dtype, ndim
    cdef void* device
    cdef void* seen                 # where the tensor lay that was compared last
    cdef int64_t sizes[128]
    cdef readonly bint requires_grad
    cdef bint lazy, may_be_lazy, is_complex, given, leaf, graded, retained, watched, inferred
    cdef dict names
    cdef PyGetSetDef* flag
    cdef PyGetSetDef* leafness
    cdef PyCFunction is_neg
    cdef PyCFunction is_inference

    def __init__(self, tensor, bint given=False):
        cdef int d
        self.flag, self.is_neg = getter_of(type(tensor), "requires_grad"), caller_of(type(tensor), "is_neg")
        self.leafness, self.is_complex = getter_of(type(tensor), "is_leaf"), tensor.is_complex()
        self.is_inference, self.inferred = caller_of(type(tensor), "is_inference"), tensor.is_inference()
        self.layout, self.lazy = tensor.layout, tensor.is_conj() or tensor.is_neg()
        # A tensor that is held becomes a view of complex memory only with such strides.
        self.may_be_lazy = given or self.is_complex or not tensor.is_contiguous()
        self.kind = type(tensor)
        self.dtype, self.ndim = API.dtype_index(<PyObject*>tensor), API.ndim(<PyObject*>tensor)
        self.device = API.device_of(<PyObject*>tensor)
        self.requires_grad, self.given = tensor.requires_grad, given
        self.leaf, self.retained = tensor.is_leaf, tensor.retains_grad
        if given:
            self.names, self.graded = attributes(tensor), is_graded(tensor)
        for d in range(self.ndim):
            self.sizes[d] = API.shape(<PyObject*>tensor)[d]
            self.sizes[64 + d] = API.strides(<PyObject*>tensor)[d]

    cdef bint fits(self, object t):
        if type(t) is not self.kind:
            return False
        if API.dtype_index(<PyObject*>t) != self.dtype or API.ndim(<PyObject*>t) != self.ndim:
            return False
        if memcmp(API.shape(<PyObject*>t), self.sizes, self.ndim * sizeof(int64_t)):
            return False
        if memcmp(API.strides(<PyObject*>t), self.sizes + 64, self.ndim * sizeof(int64_t)):
            return False
        if API.device_of(<PyObject*>t) != self.device:
            return False
        self.seen = API.host_data(<PyObject*>t)
        if self.seen == NULL and API.numel(<PyObject*>t) and t.layout is not self.layout:
            return False
        if self.may_be_lazy and self.is_lazy(t) != self.lazy:
            return False
        if <bint>attribute(self.flag, t, "requires_grad") != self.requires_grad:
            return False
        if self.requires_grad:
            if <bint>attribute(self.leafness, t, "is_leaf") != self.leaf:
                return False
            if not self.leaf and <bint>t.retains_grad != self.retained:
                return False
        if not self.given:
            return True
        if self.is_inferred(t) != self.inferred:  # of a tensor that is held it never changes
            return False
        if self.asks_gradient() and is_graded(t) != self.graded:
            return False
        return have_attributes(t, self.names)

    cdef bint asks_gradient(self):
        return self.requires_grad or self.watched

    cdef bint is_lazy(self, object t):
        if <bint>(self.is_neg(t, NULL) if self.is_neg != NULL else t.is_neg()):
            return True
        return self.is_complex and <bint>t.is_conj()

    cdef bint is_inferred(self, object t):
        return <bint>(self.is_inference(t, NULL) if self.is_inference != NULL else t.is_inference())

    def holds(self, tensor):
        """Return whether a tensor is of this geometry, dtype, device, layout, class and requires_grad."""
        return self.fits(tensor)

    @property
    def shape(self):
        """The sizes."""
        return tuple([self.sizes[d] for d in range(self.ndim)])

    def kindred(self, Geometry other):
        """Return whether two are equal but for sizes and strides."""
        return self.dtype == other.dtype and self.ndim == other.ndim and self.kind is other.kind \
            and self.device == other.device and self.requires_grad == other.requires_grad \
            and self.layout is other.layout and self.lazy == other.lazy and self.inferred == other.inferred \
            and self.leaf == other.leaf and self.retained == other.retained and self.names == other.names \
            and (self.graded == other.graded or not self.asks_gradient())

    def same(self, Geometry other):
        """Return whether two are equal."""
        return self.difference(other) is None

    def difference(self, Geometry other):
        """Return what another has that is different, as text, or None."""
        ours, theirs = [self.sizes[d] for d in range(self.ndim)], [other.sizes[d] for d in range(other.ndim)]
        if ours != theirs:
            return f"its shape is {theirs}, it was {ours}"
        if self.dtype != other.dtype:
            return "its dtype is another"
        if self.requires_grad != other.requires_grad:
            return f"requires_grad is {bool(other.requires_grad)}, it was {bool(self.requires_grad)}"
        if self.kind is not other.kind or self.device != other.device or self.layout is not other.layout:
            return "its class, device or layout is another"
        if self.lazy != other.lazy:
            return "it is lazily conjugated or negated, or was"
        if self.inferred != other.inferred:
            return "it was made in inference mode, or was not"
        if self.leaf != other.leaf or self.retained != other.retained \
                or self.graded != other.graded and self.asks_gradient():
            return "it is a leaf or has a gradient, and was or had not, or the other way round"
        if self.names != other.names:
            return "its attributes are others"
        if [self.sizes[64 + d] for d in range(self.ndim)] != [other.sizes[64 + d] for d in range(other.ndim)]:
            return "its strides are others"
        return None

    def why(self, t):
        """Return what is different, as text."""
        if type(t) is not self.kind:
            return f"its class is {type(t).__name__}, it was {self.kind.__name__}"
        shape = [self.sizes[d] for d in range(self.ndim)]
        if list(t.shape) != shape:
            return f"its shape is {list(t.shape)}, it was {shape}"
        if API.dtype_index(<PyObject*>t) != self.dtype:
            return f"its dtype is {t.dtype}, it was another"
        if <bint>t.requires_grad != self.requires_grad:
            return f"requires_grad is {t.requires_grad}, it was {bool(self.requires_grad)}"
        if <bint>(t.is_neg() or t.is_conj()) != self.lazy:
            return "it is lazily conjugated or negated, or was"
        if self.is_inferred(t) != self.inferred:
            return "it was made in inference mode, or was not"
        if self.given and not have_attributes(t, self.names):
            return "its attributes are others"
        return "its strides, its layout or its device are others, or whether it is a leaf or has a gradient"


cdef bint is_graded(object t):
    return (<bint>t.is_leaf or <bint>t.retains_grad) and t.grad is not None


cdef class Guard:
    """One thing that must hold."""
    cdef readonly str path

    cdef bint holds(self):
        return True

    def check(self):
        """Return whether it holds."""
        return self.holds()

    def why(self):
        """Return what does not hold, as text."""
        return f"{self.path} is another"


cdef class Any:
    """Stands in guards for a number that the graph is given: only its type must be what it was."""
    cdef readonly object kind

    def __init__(self, kind):
        self.kind = kind


cdef bint fitting(object found, object wanted):
    """Whether an object is what a guard wants: the same, or of the type of a number that is given."""
    if type(wanted) is Any:
        return type(found) is (<Any>wanted).kind
    if type(wanted) is Members:
        return type(found) is tuple and [type(v) for v in <tuple>found] == (<Members>wanted).kinds
    return same(found, wanted)


cdef class Members:
    """Stands in guards for a tuple of numbers, some of which the graph is given."""
    cdef readonly list kinds

    def __init__(self, numbers):
        self.kinds = [type(v) for v in numbers]


cdef object free(object value):
    return Members(value) if type(value) is tuple else Any(type(value))


cdef class DictGuard(Guard):
    """A dict has the keys and values that it had, in their order.

    Args:
        given: keys of numbers that the graph is given.
    """
    cdef readonly object held
    cdef tuple keys, values
    cdef bint ordered
    cdef object made

    def __init__(self, str path, held, given=()):
        self.path, self.held = path, held
        self.keys = tuple(held.keys())
        self.ordered = isinstance(held, OrderedDict) and len(held) > 1  # has an order of its own
        self.made = held.default_factory if type(held) is defaultdict else None
        self.values = tuple([free(v) if k in given else v for k, v in held.items()] if given else held.values())

    def was(self, key):
        """Return what was there."""
        return dict(zip(self.keys, self.values)).get(key)

    cdef bint holds(self):
        cdef Py_ssize_t at = 0, i = 0, n = PyTuple_GET_SIZE(self.keys)
        cdef PyObject* key
        cdef PyObject* value
        if PyDict_Size(self.held) != n or self.made is not None and self.held.default_factory is not self.made:
            return False
        if self.ordered:
            return self.holds_in_order()
        while PyDict_Next(self.held, &at, &key, &value):
            if i >= n or key != <PyObject*>PyTuple_GET_ITEM(self.keys, i):
                if i >= n or <object>key != <object>PyTuple_GET_ITEM(self.keys, i):
                    return False
            if value != <PyObject*>PyTuple_GET_ITEM(self.values, i) and \
                    not fitting(<object>value, <object>PyTuple_GET_ITEM(self.values, i)):
                return False
            i += 1
        return True

    @property
    def has_more(self):
        """Whether the dict may become another at the same version: it has an order, or makes entries."""
        return self.ordered or self.made is not None

    cdef bint fits(self, DictGuard other):
        return self.keys == other.keys and all([same(a, b) for a, b in zip(self.values, other.values)])

    cdef bint holds_in_order(self):
        for i, (key, value) in enumerate(self.held.items()):
            if not same(key, self.keys[i]) and key != self.keys[i] or not fitting(value, self.values[i]):
                return False
        return True

    def why(self):
        old = dict(zip(self.keys, self.values))
        for key, value in self.held.items():
            if key not in old:
                return f"{self.path} has a new entry {key!r}"
            if not fitting(value, old[key]):
                return f"{self.path}[{key!r}] is {short(value)}, it was {short(old[key])}"
        gone = [k for k in old if k not in self.held]
        return f"{self.path} has lost {gone!r}" if gone else f"{self.path} is in another order"


cdef class ListGuard(Guard):
    """A list has the members that it had."""
    cdef readonly object held
    cdef tuple members

    def __init__(self, str path, held, given=()):
        self.path, self.held = path, held
        self.members = tuple([Any(type(v)) if k in given else v for k, v in enumerate(held)] if given else held)

    def was(self, place):
        """Return what was there."""
        return self.members[place] if place < len(self.members) else None

    cdef bint holds(self):
        cdef Py_ssize_t i, n = PyTuple_GET_SIZE(self.members)
        if PyList_GET_SIZE(self.held) != n:
            return False
        for i in range(n):
            if <PyObject*>PyList_GET_ITEM(self.held, i) != <PyObject*>PyTuple_GET_ITEM(self.members, i) and \
                    not fitting(<object>PyList_GET_ITEM(self.held, i), <object>PyTuple_GET_ITEM(self.members, i)):
                return False
        return True


cdef class EntryGuard(Guard):
    """A dict, such as a module's names, has an object under a key."""
    cdef readonly object held, key
    cdef object value

    def __init__(self, str path, held, key, given=()):
        self.path, self.held, self.key = path, held, key
        self.value = held.get(key, self)
        if key in given:
            self.value = Any(type(self.value))

    def was(self, place):
        """Return what was there."""
        return self.value

    cdef bint holds(self):
        cdef PyObject* found = PyDict_GetItem(self.held, self.key)
        if found == NULL:
            return self.value is self
        return found == <PyObject*>self.value or fitting(<object>found, self.value)

    def why(self):
        return f"{self.path} is {short(self.held.get(self.key))}, it was {short(self.value)}"


cdef class CellGuard(Guard):
    """A closure's cell holds what it held."""
    cdef readonly object cell
    cdef object value

    def __init__(self, str path, cell, bint given=False):
        self.path, self.cell = path, cell
        self.value = Any(type(cell.cell_contents)) if given else cell.cell_contents

    def was(self, place):
        """Return what was there."""
        return self.value

    cdef bint holds(self):
        value = PyCell_Get(self.cell)
        return value is self.value or fitting(value, self.value)

    def why(self):
        return f"{self.path} is {short(self.cell.cell_contents)}, it was {short(self.value)}"


cdef class FunctionGuard(Guard):
    """A function has the code, the defaults and the attributes that it had; what these hold is guarded by itself."""
    cdef object function, code, defaults, kwdefaults
    cdef dict names

    def __init__(self, str path, function):
        self.path, self.function, self.code = path, function, function.__code__
        self.defaults, self.kwdefaults = function.__defaults__, function.__kwdefaults__
        self.names = attributes_of(function)

    @property
    def attributes(self):
        """The function's attributes, or None."""
        return self.names

    cdef bint holds(self):
        if PyFunction_GetCode(self.function) != <PyObject*>self.code or attributes_of(self.function) is not self.names:
            return False
        return is_at(PyFunction_GetDefaults(self.function), self.defaults) \
            and is_at(PyFunction_GetKwDefaults(self.function), self.kwdefaults)

    def why(self):
        return f"{self.path} has other code, defaults or attributes"


cdef bint is_at(PyObject* found, object wanted):
    return found == <PyObject*>wanted or found == NULL and wanted is None


cdef class TypeGuard(Guard):
    """An object's class is the one it was, and nobody has changed the class."""
    cdef object held, kind
    cdef unsigned int tag

    def __init__(self, str path, held):
        self.path, self.held, self.kind = path, held, type(held)
        self.tag = tag_of(self.kind)

    cdef bint holds(self):
        return type(self.held) is self.kind and self.tag and (<PyTypeObject*>self.kind).tp_version_tag == self.tag

    def why(self):
        if type(self.held) is not self.kind:
            return f"the class of {self.path} is {type(self.held).__name__}, it was {self.kind.__name__}"
        return f"the class {self.kind.__name__} of {self.path} was changed"


cdef unsigned int tag_of(object kind):
    # A name that is looked up in the class itself has the interpreter give it a tag.
    getattr(kind, "__init__", None)
    return (<PyTypeObject*>kind).tp_version_tag


cdef class ClassGuard(Guard):
    """Nobody has changed a class."""
    cdef object kind
    cdef unsigned int tag

    def __init__(self, str path, kind):
        self.path, self.kind, self.tag = path, kind, tag_of(kind)

    cdef bint holds(self):
        return self.tag and (<PyTypeObject*>self.kind).tp_version_tag == self.tag

    def why(self):
        return f"the class {self.path} was changed"


cdef class SetGuard(Guard):
    """A set has the members that it had, in their order."""
    cdef object held
    cdef tuple members

    def __init__(self, str path, held):
        self.path, self.held, self.members = path, held, tuple(held)

    cdef bint holds(self):
        cdef Py_ssize_t i = 0, n = PyTuple_GET_SIZE(self.members)
        if len(self.held) != n:
            return False
        for member in self.held:
            if not same(member, <object>PyTuple_GET_ITEM(self.members, i)):
                return False
            i += 1
        return True


cdef class ReferenceGuard(Guard):
    """A weak reference leads where it led."""
    cdef object reference, target

    def __init__(self, str path, reference):
        self.path, self.reference, self.target = path, reference, reference()

    cdef bint holds(self):
        return self.reference() is self.target


cdef class CacheGuard(Guard):
    """A function's cache (`functools.lru_cache`) has not been emptied."""
    cdef object function
    cdef Py_ssize_t misses

    def __init__(self, str path, function):
        self.path, self.function, self.misses = path, function, function.cache_info().misses

    cdef bint holds(self):
        return self.function.cache_info().misses >= self.misses


cdef class ThreadGuard(Guard):
    """What a thread has for itself (`threading.local`) is, in the thread that asks, what it was in that of the run."""
    cdef object held
    cdef DictGuard names

    def __init__(self, str path, held):
        self.path, self.held, self.names = path, held, DictGuard(path, dict(held.__dict__))

    cdef bint holds(self):
        return DictGuard(self.path, dict(self.held.__dict__)).fits(self.names)


cdef class ContextGuard(Guard):
    """A context variable is, in the context that asks, what it was in that of the run."""
    cdef readonly object value
    cdef object held

    def __init__(self, str path, held):
        self.path, self.held, self.value = path, held, held.get(None)

    cdef bint holds(self):
        return same(self.held.get(None), self.value)


cdef class SlotGuard(Guard):
    """An attribute that is no entry of a dict is what it was."""
    cdef object held, value
    cdef str name

    def __init__(self, str path, held, str name):
        self.path, self.held, self.name = path, held, name
        self.value = getattr(held, name, None)

    cdef bint holds(self):
        return same(getattr(self.held, self.name, None), self.value)


cdef tuple hooks_of(object first, object then):
    """Hooks of a tensor, and those that run when its gradient is accumulated, in their order."""
    if not first and not then:
        return ()
    return (tuple(first.items()) if first else (), tuple(then.items()) if then else ())


cdef class Places:
    """Which of the tensors that a program holds share bytes, and how far apart they begin."""
    cdef list tensors
    cdef set shared

    def __init__(self, list tensors):
        self.tensors = tensors
        self.shared = shared_among(tensors)

    cdef bint hold(self):
        return shared_among(self.tensors) == self.shared


cdef set shared_among(list tensors):
    cdef set found = set()
    cdef list spans = [], reaching = []
    for k, t in enumerate(tensors):
        if t.numel():
            reach = sum([(n - 1) * s for n, s in zip(t.shape, t.stride())]) + 1
            spans.append((t.data_ptr(), t.data_ptr() + reach * t.element_size(), k))
    for start, end, k in sorted(spans):
        reaching = [other for other in reaching if other[1] > start]
        found.update([(j, k, start - first) for first, _, j in reaching])
        reaching.append((start, end, k))
    return found


cdef class TensorGuard(Guard):
    """A tensor that the program holds is of the geometry, dtype, device and requires_grad that it was."""
    cdef readonly object tensor
    cdef Geometry geometry
    cdef Places places
    cdef void* place
    cdef tuple hooks
    cdef bint leaf
    cdef PyGetSetDef* first
    cdef PyGetSetDef* then
    cdef dict names

    def __init__(self, str path, tensor):
        self.path, self.tensor, self.geometry = path, tensor, Geometry(tensor)
        self.names = attributes_of(tensor)  # what they hold is guarded by itself
        self.leaf = tensor.requires_grad
        self.first = getter_of(type(tensor), "_backward_hooks")
        self.then = getter_of(type(tensor), "_post_accumulate_grad_hooks")
        self.hooks = self.hooks_now() if self.leaf else ()

    def watch(self, Places places):
        """Ask, too, whether tensors share memory as they did, whenever this one lies elsewhere."""
        self.places, self.place = places, API.host_data(<PyObject*>self.tensor)

    cdef tuple hooks_now(self):
        return hooks_of(attribute(self.first, self.tensor, "_backward_hooks"),
                        attribute(self.then, self.tensor, "_post_accumulate_grad_hooks"))

    cdef bint holds(self):
        cdef tuple hooks
        if not self.geometry.fits(self.tensor) or attributes_of(self.tensor) is not self.names:
            return False
        if self.places is not None and self.geometry.seen != self.place:
            if not self.places.hold():
                return False
            self.place = self.geometry.seen
        if not self.leaf:
            return True
        hooks = self.hooks_now()
        return hooks is self.hooks or hooks == self.hooks

    @property
    def attributes(self):
        """The tensor's attributes, or None."""
        return self.names

    def why(self):
        if not self.geometry.fits(self.tensor):
            return f"{self.path}: {self.geometry.why(self.tensor)}"
        if self.places is not None and not self.places.hold():
            return f"{self.path}: it shares memory with other tensors of the program than it did"
        return f"{self.path}: it has other hooks or attributes"


cdef class SharedGuard(Guard):
    """Two tensors that the program holds are of the same memory, or one and the gradient of the other."""
    cdef object one, other
    cdef bint graded

    def __init__(self, str path, one, other, bint graded=False):
        self.path, self.one, self.other, self.graded = path, one, other, graded

    cdef bint holds(self):
        cdef void* data = API.host_data(<PyObject*>self.one)
        other = self.other.grad if self.graded else self.other
        if other is None:
            return False
        if data != NULL:
            return data == API.host_data(<PyObject*>other)
        return self.one.data_ptr() == other.data_ptr()

    def why(self):
        return f"{self.path} has memory of its own"


cdef class GradientGuard(Guard):
    """The gradient of a tensor is there, or is not, as it was; and of that geometry."""
    cdef object tensor
    cdef Geometry geometry

    def __init__(self, str path, tensor):
        self.path, self.tensor = path, tensor
        self.geometry = None if tensor.grad is None else Geometry(tensor.grad)

    cdef bint holds(self):
        grad = self.tensor.grad
        if grad is None or self.geometry is None:
            return grad is None and self.geometry is None
        return self.geometry.fits(grad) and self.geometry.is_inferred(grad) == self.geometry.inferred

    def why(self):
        if self.tensor.grad is None or self.geometry is None:
            return f"{self.path}.grad is {'None' if self.tensor.grad is None else 'there'}, it was not so"
        return f"{self.path}.grad: {self.geometry.why(self.tensor.grad)}"


cdef str short(object value):
    if type(value) is Any:
        return f"any {(<Any>value).kind.__name__}"
    if isinstance(value, (int, float, bool, complex, str, bytes, type(None))):
        text = repr(value)
        return text if len(text) < 60 else text[:57] + "..."
    return f"an object of {type(value).__name__}"


cdef struct tg_watched:             # a dict, what guards it, and its version when that was last asked
    PyObject* held
    PyObject* guard
    uint64_t version


cdef class Guards:
    """All that must hold.

    Attributes:
        entries: the guards, in the order in which they are compared.
    """
    cdef readonly list entries
    cdef list others                # those that are no DictGuard
    cdef tg_watched* dicts
    cdef int ndicts

    def __init__(self, entries):
        self.entries = list(entries)
        dicts = [guard for guard in self.entries if type(guard) is DictGuard and not (<DictGuard>guard).has_more]
        self.others = [guard for guard in self.entries if type(guard) is not DictGuard or (<DictGuard>guard).has_more]
        self.dicts = <tg_watched*>malloc((len(dicts) + 1) * sizeof(tg_watched))
        if self.dicts == NULL:
            raise MemoryError(f"no memory for {len(dicts)} guards")
        for guard in dicts:
            self.dicts[self.ndicts].guard = <PyObject*>guard
            self.dicts[self.ndicts].held = <PyObject*>(<DictGuard>guard).held
            self.dicts[self.ndicts].version = 0
            self.ndicts += 1

    def __dealloc__(self):
        free_memory(self.dicts)

    cpdef bint hold(self):
        """Return whether all of them hold."""
        cdef Py_ssize_t i
        cdef tg_watched* one
        cdef uint64_t version
        for i in range(self.ndicts):
            one = &self.dicts[i]
            version = tg_version(one.held)
            if version == 0 or version != one.version:
                if not (<DictGuard>one.guard).holds():
                    return False
                one.version = version
        for i in range(PyList_GET_SIZE(self.others)):
            if not (<Guard>PyList_GET_ITEM(self.others, i)).holds():
                return False
        return True

    def failed(self):
        """Return the first that does not hold, or None."""
        for guard in self.entries:
            if not (<Guard>guard).holds():
                return guard
        return None


include "capture/patterns.pxi"
include "capture/call_filter.pxi"
include "capture/geometry.pxi"
include "compiling/serving.pxi"
