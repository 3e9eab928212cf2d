# cython: language_level=3, initializedcheck=False, cdivision=True, legacy_implicit_noexcept=False
"""Launches in C: a kernel's first call of a kind is recorded, and later ones are replayed.

A kernel in Python works out from the geometry of its operands what to launch. `Recorded` keeps
what it launched, under a key of all that it may have looked at (geometry, dtypes, alignment, which
operands share memory, all that is no tensor), and which parameters were addresses of operands or
of memory that it took for the time of the call. The next call with that key puts the addresses of
its own operands in their places and calls the driver. A call that did anything else (read a value,
copied from the host, waited) is not kept, and runs in Python each time.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from tangrad.api cimport tg_api, tg_import_api, tg_memory_change, tg_memory_watch, tg_scratch

cdef extern from "Python.h":
    ctypedef struct PyCodeObject:
        PyObject* co_filename
    PyObject* PyDict_GetItem(object, PyObject*)
    bint PyLong_CheckExact(object)
    bint PyBool_Check(object)
    bint PyFloat_CheckExact(object)
    double PyFloat_AS_DOUBLE(object)
    bint PyTuple_Check(object)
    bint PyList_Check(object)
    bint PyDict_Check(object)
    bint PyUnicode_CheckExact(object)
    Py_ssize_t PyTuple_GET_SIZE(object)
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)
    Py_ssize_t PyList_GET_SIZE(object)
    PyObject* PyList_GET_ITEM(object, Py_ssize_t)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    unsigned long long PyLong_AsUnsignedLongLongMask(object) except? 0xFFFFFFFFFFFFFFFF
    unsigned long long PyLong_AsUnsignedLongLong(object) except? 0xFFFFFFFFFFFFFFFF
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    PyObject* Py_None_ptr "Py_None"

cdef extern from "frames.h":
    ctypedef struct standing:
        pass
    standing* innermost_frame()
    standing* outer_frame(standing*)
    PyCodeObject* code_of(standing*)
    int offset_in_code(standing*)

cdef extern from "launch.h":
    enum:
        DEVICES
        EVENTS
    ctypedef struct memory_event:
        uint64_t address
        int64_t nbytes
        int32_t sign
        int32_t step
    ctypedef struct recording:
        int32_t steps
        int32_t count
        int32_t spoiled
        int32_t reports
        memory_event* events
    ctypedef int (*launch_function)() noexcept
    ctypedef int (*copy_function)() noexcept
    int this_entered
    uint64_t* this_stream
    recording* this_recording
    launch_function driver_launch
    copy_function driver_copy
    int launch_packed(uint64_t, unsigned int, unsigned int, uint64_t, void*, size_t) nogil
    int copy_bytes(uint64_t, uint64_t, size_t, uint64_t) nogil
    void note_memory(int, uint64_t, int64_t) nogil

cdef const tg_api* api = tg_import_api(3)
# Streams with smaller numbers are the default ones: the driver's stream 0.
cdef uint64_t DEFAULTS = 4096
cdef object _dtype_type, _generator_type
cdef object _driver = None       # whose `enter`, `refused` and `reports` are called
cdef unsigned int _lanes = 1

include "native/ring.pxi"
include "native/calls.pxi"
include "native/plans.pxi"


def connect(driver, dtype_type, generator_type, unsigned int lanes, size_t launch, size_t copy):
    """Take the driver's functions.

    Args:
        driver: what is asked to `enter(index)` a context, to raise by `refused(status, function,
            index)` what the driver refused, and has `reports`.
        dtype_type: the type of tangrad's dtypes.
        generator_type: that of its generators.
        lanes: of each block.
        launch: the address of cuLaunchKernel.
        copy: the address of cuMemcpyAsync.
    """
    global _driver, _dtype_type, _generator_type, _lanes, driver_launch, driver_copy
    _driver, _dtype_type, _generator_type, _lanes = driver, dtype_type, generator_type, lanes
    driver_launch = <launch_function>launch
    driver_copy = <copy_function>copy


def entered():
    """Return the device whose context this thread has made current, -1 if none is."""
    return this_entered


def set_entered(int index):
    """Say which device's context is current in this thread; -1: none."""
    global this_entered
    this_entered = index


def current_stream(int index):
    """Return the number of the stream that this thread gives a device's work to."""
    return stream_of(index)


def set_stream(int index, uint64_t stream):
    """Let this thread give a device's work to a stream."""
    if not 0 <= index < DEVICES:
        raise RuntimeError(f"device 'cuda:{index}' does not exist")
    this_stream[index] = stream


cdef inline uint64_t stream_of(int index) noexcept:
    cdef uint64_t stream = this_stream[index] if 0 <= index < DEVICES else 0
    return stream if stream else <uint64_t>index


cdef inline uint64_t handle_of(uint64_t stream) noexcept:
    return 0 if stream < DEFAULTS else stream


def launch(uint64_t function, str label, unsigned int blocks, list buffers, bytes numbers, int index):
    """Give a kernel's work to the current stream of a device whose context is current.

    Args:
        function: the kernel's handle.
        label: what its op is called in messages.
        blocks: how many blocks.
        buffers: addresses, which are its first parameters.
        numbers: the structure that is its last.
        index: of the device.
    """
    cdef char packed[4352]
    cdef size_t count = <size_t>len(buffers), size = 8 * count + <size_t>PyBytes_GET_SIZE(numbers)
    cdef uint64_t stream = handle_of(stream_of(index))
    cdef int status
    cdef size_t i
    if size > sizeof(packed):
        raise ValueError(f"{label}: a kernel's parameters have at most 4,352 bytes, not {size}")
    for i in range(count):
        (<uint64_t*>packed)[i] = <uint64_t>buffers[i]
    memcpy(packed + 8 * count, PyBytes_AS_STRING(numbers), <size_t>PyBytes_GET_SIZE(numbers))
    note(index, <PyObject*>label)
    with nogil:
        status = launch_packed(function, blocks, _lanes, stream, packed, size)
    if status:
        raise _driver.refused(status, "cuLaunchKernel", index)
    keep_step(("launch", function, label, blocks, list(buffers), numbers))


def copy_within(uint64_t target, uint64_t source, size_t nbytes, int index):
    """Copy bytes of a device, between places that do not overlap, in its current stream's order."""
    cdef uint64_t stream = handle_of(stream_of(index))
    cdef int status
    with nogil:
        status = copy_bytes(target, source, nbytes, stream)
    if status:
        raise _driver.refused(status, "cuMemcpyAsync", index)
    keep_step(("copy", target, source, nbytes))


def spoil():
    """Say that the call that is recorded did something that cannot be replayed."""
    if this_recording != NULL:
        this_recording.spoiled = 1


def reports():
    """Say that the call that is recorded launches a kernel that may report an error."""
    if this_recording != NULL:
        this_recording.reports = 1
