# Keys by which a recorder knows tensors, and lines of the program: asked several times per op.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef extern from "Python.h":
    PyFrameObject* PyEval_GetFrame()
    PyFrameObject* PyFrame_GetBack(PyFrameObject*)
    int PyFrame_GetLasti(PyFrameObject*)


cdef bytes packed(object t, uint64_t first):
    """A number, then dtype, sizes and strides of a tensor."""
    cdef int ndim = API.ndim(<PyObject*>t)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, (2 + 2 * ndim) * sizeof(int64_t))
    cdef int64_t* to = <int64_t*>PyBytes_AS_STRING(made)
    to[0], to[1] = <int64_t>first, API.dtype_index(<PyObject*>t)
    memcpy(&to[2], API.shape(<PyObject*>t), ndim * sizeof(int64_t))
    memcpy(&to[2 + ndim], API.strides(<PyObject*>t), ndim * sizeof(int64_t))
    return made


def geometry_of(tensor):
    """Return what tensors share that are of one dtype, shape, strides and device."""
    return packed(tensor, <uint64_t>API.device_of(<PyObject*>tensor))


def memory_of(tensor):
    """Return what two tensors share that see the same memory in the same way."""
    cdef void* address
    if API.numel(<PyObject*>tensor) == 0:
        return id(tensor)
    address = API.host_data(<PyObject*>tensor)
    return packed(tensor, <uint64_t>address if address != NULL else <uint64_t>tensor.data_ptr())


def place_of_program(dict ours, judge):
    """Return (code, offset of its instruction) of the innermost frame that is not the library's, or "".

    Args:
        ours: {name of a file: whether it is the library's}. judge: tells it of a name that is not there.
    """
    cdef PyFrameObject* frame = PyEval_GetFrame()
    cdef PyFrameObject* back
    cdef PyCodeObject* code
    cdef PyObject* found
    cdef int at
    Py_XINCREF(<PyObject*>frame)
    while frame != NULL:
        code = PyFrame_GetCode(frame)
        found = PyDict_GetItem(ours, <object>code.co_filename)
        if found == NULL:
            ours[<object>code.co_filename] = judge(<object>code.co_filename)
            found = PyDict_GetItem(ours, <object>code.co_filename)
        if <object>found is False:
            at = PyFrame_GetLasti(frame)
            made = (<object>code, at)
            Py_XDECREF(<PyObject*>code)
            Py_XDECREF(<PyObject*>frame)
            return made
        Py_XDECREF(<PyObject*>code)
        back = PyFrame_GetBack(frame)
        Py_XDECREF(<PyObject*>frame)
        frame = back
    return ""
