# cython: language_level=3, initializedcheck=False, cdivision=True
# cython: binding=False, embedsignature=True, embedsignature.format=clinic
# cython: auto_pickle=False, legacy_implicit_noexcept=False
"""The compiled core: dtypes, devices, storage, tensors, ops, dispatch and the autograd graph."""
cimport cython
from cpython.buffer cimport (PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBUF_WRITE, PyBuffer_Release,
                             PyObject_GetBuffer)
from cpython.exc cimport PyErr_Occurred
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyTypeObject
from cpython.pycapsule cimport (PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New,
                                PyCapsule_SetName)
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport (UINT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from math import copysign as math_copysign
from math import inf as INF
from operator import index as op_index
from struct import pack as struct_pack
from struct import unpack as struct_unpack
from sys import modules as sys_modules
from threading import local as _thread_local

from tangrad.api cimport (TG_ABI_VERSION, TG_ARG_BOOL, TG_ARG_COMPLEX, TG_ARG_DTYPE, TG_ARG_FLOAT, TG_ARG_INT,
                          TG_ARG_INTS, TG_ARG_NONE, TG_ARG_OTHER, TG_ARG_TENSOR, TG_ARG_TENSORS, TG_ARG_TEXT,
                          TG_CAPSULE_NAME, TG_DECLINED, TG_LATER_BYTES, TG_LIES_FULL, TG_LIES_IN_EACH_ROW,
                          TG_LIES_ONCE, TG_LIES_ONE_PER_ROW, TG_MAX_PARAMS, TG_QUEUE_PLACES, tg_api, tg_argument,
                          tg_call, tg_call_kernel, tg_enter, tg_found_kernel, tg_leave, tg_loop, tg_loop_kernel,
                          tg_memory_change, tg_memory_watch, tg_observed, tg_observer, tg_operand, tg_pool, tg_queue,
                          tg_queued, tg_queued_operand, tg_range, tg_scalar, tg_scratch, tg_task, tg_view)

from tangrad.tensor.size import Size

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(object)
    Py_ssize_t Py_REFCNT(PyObject*)  # of an object, Cython would hold a reference of its own meanwhile
    bint PyFloat_Check(object)
    bint PyFloat_CheckExact(object)
    double PyFloat_AS_DOUBLE(object)
    bint PyLong_Check(object)
    bint PyLong_CheckExact(object)
    bint PyBool_Check(object)
    bint PyUnicode_CheckExact(object)
    bint PyComplex_Check(object)
    bint PySlice_Check(object)
    bint PyTuple_CheckExact(object)
    Py_ssize_t PyTuple_GET_SIZE(object)
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)
    object PyObject_CallObject(object, object)
    object PyMethod_New(object, object)
    object PyWeakref_NewRef(object, object)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    unsigned long long PyLong_AsUnsignedLongLongMask(object) except? 0xFFFFFFFFFFFFFFFF
    const char* PyUnicode_AsUTF8(object) except NULL
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    bint PyComplex_CheckExact(object)
    ctypedef PyObject* (*newfunc)(PyTypeObject*, PyObject*, PyObject*)
    ctypedef struct PyTupleObject:
        PyObject** ob_item
    ctypedef struct PySliceObject:
        PyObject* start
        PyObject* stop
        PyObject* step

cdef extern from *:
    bint __builtin_mul_overflow(int64_t, int64_t, int64_t*) nogil
    bint __builtin_add_overflow(int64_t, int64_t, int64_t*) nogil

cdef extern from "native/state.h":
    ctypedef struct tg_thread_state:
        void* intercept
        int grad_enabled
        int inference
        int below_autograd
        int reads
        bint standing
        void* observers
        void* finite
        const void* queue
        void* walk
    tg_thread_state tg_tls
    newfunc tg_plain_new
    void tg_make_callable(PyTypeObject*, Py_ssize_t, bint)
    void tg_make_mutable(PyTypeObject*)
    void tg_set_metatype(PyTypeObject*, PyTypeObject*)
    void tg_install_constructor(PyTypeObject*, PyObject*)
    int tg_set_class_attribute(PyTypeObject*, const char*, PyObject*) except -1
    int tg_install_dict(int, PyTypeObject*, Py_ssize_t, void (*)(PyObject*) noexcept) except -1
    void tg_install_edges(PyTypeObject*, PyObject* (*)(PyObject*) noexcept)
    void tg_install_leaving(PyTypeObject*, void (*)(PyObject*) noexcept, PyTypeObject*, void (*)(PyObject*) noexcept)
    void tg_install_storage(PyTypeObject*, void (*)(PyObject*) noexcept)

cdef extern from "native/node_types.h":
    PyTypeObject* tg_node_type(PyTypeObject*, const char*) except NULL
    void tg_set_type(PyObject*, PyTypeObject*)

cdef extern from "native/members.h":
    int tg_offer_members(PyTypeObject*,
                         PyObject* (*)(const char*, PyObject*, PyObject**, Py_ssize_t, PyObject*) except NULL,
                         PyObject* (*)(const char*, const char*, PyObject*, PyObject*) except NULL)

cdef extern from "native/size.h":
    int tg_install_size(PyTypeObject*) except -1
    object tg_make_size(int, const int64_t*)

cdef extern from "native/not_a_number.h" nogil:
    int64_t tg_first_nan_f32(const float*, int64_t)
    int64_t tg_first_nan_f64(const double*, int64_t)
    int tg_all_finite_f32(const void*, int64_t)
    int tg_all_finite_f64(const void*, int64_t)
    int tg_all_finite_f16(const void*, int64_t)
    int tg_all_finite_bf16(const void*, int64_t)

cdef extern from "native/host_copy.h" nogil:
    ctypedef void (*tg_copy_loop)(char*, int64_t, const char*, int64_t, int64_t) noexcept
    tg_copy_loop tg_conversions[15][15]
    void tg_copy_same(char*, int64_t, const char*, int64_t, int64_t, int) noexcept

tg_install_size(<PyTypeObject*>Size)

include "native/memory/allocator.pxi"


class OutOfMemoryError(RuntimeError):
    """Raised when a device has no memory left; the message tells who holds what."""


_out_of_memory_error = OutOfMemoryError


cdef object out_of_memory(str message):
    return OutOfMemoryError(message)


cdef int raise_current() except -1:
    """Propagate the exception that C code has set."""
    return -1


include "native/dtype.pxi"
include "native/device.pxi"
include "native/storage.pxi"
include "native/tensor.pxi"
include "native/geometry.pxi"
include "native/graph.pxi"
include "native/edges.pxi"
include "native/tracking.pxi"
include "native/saved.pxi"
include "native/observers.pxi"
include "native/anomaly.pxi"
include "native/engine.pxi"
include "native/rules.pxi"
include "native/walks.pxi"
include "native/op.pxi"
include "native/kernel_tables.pxi"
include "native/recording.pxi"
include "native/op_forms.pxi"
include "native/overrides.pxi"
include "native/binding.pxi"
include "native/beyond.pxi"
include "native/pointwise.pxi"
include "native/loops.pxi"
include "native/queued.pxi"
include "native/calls.pxi"
include "native/shapes.pxi"
include "native/composites.pxi"
include "native/plans.pxi"
include "native/random.pxi"
include "native/reduction.pxi"
include "native/view.pxi"
include "native/c_implementations.pxi"
include "native/convert.pxi"
include "native/buffers.pxi"
include "native/arrays.pxi"
include "native/dlpack.pxi"
include "native/methods.pxi"
include "native/indexing.pxi"
include "native/modes.pxi"
include "native/processor.pxi"
include "native/swap.pxi"
include "native/abi.pxi"


cdef object new_from(newfunc make, PyTypeObject* kind):
    """Call a tp_new slot directly."""
    cdef PyObject* made = make(kind, <PyObject*>_EMPTY_ARGS, NULL)
    if made == NULL:
        raise_current()
    result = <object>made
    Py_DECREF(result)
    return result


_EMPTY_ARGS = ()


cdef Tensor OP_ADD(Tensor a, Tensor b):
    """Sum of two gradients."""
    return binary_operator(0, a, b)


def install_constructor(construct, new_of_parameter, metatype, metatype_of_parameter):
    """Make `Tensor(...)` call `construct(cls, args, **kwargs)` and let Tensor load methods lazily.

    `Parameter.__new__` is a function in Python, as in PyTorch: of a slot in C Python forgets what it
    was as soon as the name has been assigned to, and programs patch it for a while.
    """
    Py_INCREF(construct)
    tg_install_constructor(TENSOR, <PyObject*>construct)
    tg_install_constructor(PARAMETER, <PyObject*>construct)
    for kind, its_type in ((Tensor, metatype), (Parameter, metatype_of_parameter)):
        tg_make_mutable(<PyTypeObject*>kind)
        tg_set_metatype(<PyTypeObject*>kind, <PyTypeObject*>its_type)
    tg_set_class_attribute(PARAMETER, "__new__", <PyObject*>new_of_parameter)


cdef Op _probe = Op.__new__(Op)
cdef Py_ssize_t _called_by = <char*>&_probe.vectorcall - <char*><void*>_probe
tg_make_callable(<PyTypeObject*>Op, _called_by, False)
tg_make_callable(<PyTypeObject*>OpMethod, _called_by, True)
cdef Overridable _overridable_probe = Overridable(None)
tg_make_callable(<PyTypeObject*>Overridable, <char*>&_overridable_probe.vectorcall - <char*><void*>_overridable_probe,
                 True)


cdef Tensor _first = Tensor.__new__(Tensor)
tg_install_dict(0, TENSOR, <char*>&_first.attributes - <char*><void*>_first, release_geometry)
tg_install_dict(1, PARAMETER, <char*>&_first.attributes - <char*><void*>_first, release_geometry)
