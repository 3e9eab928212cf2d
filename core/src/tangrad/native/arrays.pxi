# NumPy arrays by the part of NumPy's ABI that has stood still since 1.7 (numpy/ndarraytypes.h and
# __multiarray_api.h), so that neither the build nor an import of the core needs NumPy.

cdef extern from *:
    """
    typedef struct {
        PyObject_HEAD
        char *data;
        int nd;
        Py_ssize_t *dimensions, *strides;
        PyObject *base, *descr;
        int flags;
    } tg_array;
    typedef struct {
        PyObject_HEAD
        PyTypeObject *scalar_type;
        char kind, type, byteorder, former_flags;
        int type_num;
    } tg_array_dtype;
    typedef PyObject *(*tg_new_array)(PyTypeObject *type, int nd, const Py_ssize_t *shape, int type_num,
                                      const Py_ssize_t *strides, void *data, int itemsize, int flags, PyObject *);
    typedef int (*tg_set_base)(PyObject *array, PyObject *base);  /* takes the reference to base */
    """
    ctypedef struct tg_array:
        char* data
        int nd
        Py_ssize_t* dimensions
        Py_ssize_t* strides
        PyObject* descr
        int flags
    ctypedef struct tg_array_dtype:
        char byteorder
        int type_num
    ctypedef object (*tg_new_array)(PyTypeObject*, int, const Py_ssize_t*, int, const Py_ssize_t*, void*, int, int,
                                    PyObject*)
    ctypedef int (*tg_set_base)(PyObject*, PyObject*) except -1

cdef enum:
    API_ARRAY_TYPE = 2
    API_NEW_ARRAY = 93
    API_SET_BASE = 282
    ARRAY_WRITEABLE = 0x0400
    ARRAY_TYPES = 24

cdef void** _numpy_api = NULL
cdef int _dtype_of_number[ARRAY_TYPES]   # NumPy's number of a type -> index of the dtype, or -1
cdef int _number_of_dtype[MAX_DTYPES]


cdef int load_numpy() except -1:
    """Find NumPy's table of functions, and which of its types are which of ours."""
    global _numpy_api
    import numpy as np
    cdef int i
    core = getattr(np, "_core", None) or np.core
    table = PyCapsule_GetPointer(core._multiarray_umath._ARRAY_API, NULL)
    for i in range(ARRAY_TYPES):
        _dtype_of_number[i] = -1
    for i in range(MAX_DTYPES):
        _number_of_dtype[i] = -1
    for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
                 "float64", "complex64", "complex128"):
        i = np.dtype(name).num
        _dtype_of_number[i] = dtype_by_name(name).index
        _number_of_dtype[_dtype_of_number[i]] = i
    _numpy_api = <void**>table
    return 0


def tensor_of_array(object given):
    """Return a tensor on the memory of a NumPy array.

    Returns None for whatever is not a writable array of our strides and dtypes with elements:
    `tangrad.from_numpy` knows what to do or say then.
    """
    cdef tg_array* array
    cdef tg_array_dtype* kind
    cdef UntypedStorage s
    cdef Tensor t
    cdef int i, index
    cdef int64_t nbytes, step, size
    if _numpy_api == NULL:
        if "numpy" not in sys_modules:
            return None
        load_numpy()
    if <void*>Py_TYPE(given) != _numpy_api[API_ARRAY_TYPE]:
        return None
    array = <tg_array*><PyObject*>given
    kind = <tg_array_dtype*>array.descr
    if not array.flags & ARRAY_WRITEABLE or kind.byteorder not in (c"=", c"|") or array.nd > MAX_DIMS \
            or not 0 <= kind.type_num < ARRAY_TYPES:
        return None
    index = _dtype_of_number[kind.type_num]
    if index < 0:
        return None
    nbytes = size = ITEMSIZE[index]
    for i in range(array.nd):
        step = array.strides[i]
        if step < 0 or step % size or array.dimensions[i] == 0:
            return None
        nbytes += (array.dimensions[i] - 1) * step
    s = UntypedStorage.__new__(UntypedStorage)
    s.dev = runtime_of(device(_initial_device))
    s.owner = given
    s.handle, s.nbytes_, s.data = <size_t>array.data, nbytes, array.data
    t = bare_tensor(<dtype>DTYPES[index], s.dev.slot)
    reserve_dims(t, array.nd)
    t.storage_ = s
    for i in range(array.nd):
        t.shape_[i], t.stride_[i] = array.dimensions[i], array.strides[i] // size
    t.numel_ = count_elements(array.nd, t.shape_)
    t.flags = CONTIGUOUS if geometry_contiguous(array.nd, t.shape_, t.stride_) else 0
    return t


def array_of_tensor(Tensor t not None):
    """Return a NumPy array on the memory of a tensor, or None where `exchange.numpy` must look closer."""
    cdef Py_ssize_t strides[MAX_DIMS]
    cdef Py_ssize_t shape[MAX_DIMS]
    cdef int i, index = t.dtype_.index
    if t.numel_ == 0 or t.flags & (CONJ | NEG) or t.level_ is not None or not exact_tensor(<PyObject*>t) \
            or requires_grad(t) or host_pointer(t) == NULL or t.storage_.dev.type.name != _initial_device \
            or t.slot_ != t.storage_.dev.slot:
        return None
    if _numpy_api == NULL:
        load_numpy()
    if _number_of_dtype[index] < 0:
        return None
    tg_tls.reads += 1
    t.storage_.lent = True
    for i in range(t.ndim_):
        shape[i], strides[i] = t.shape_[i], t.stride_[i] * ITEMSIZE[index]
    made = (<tg_new_array>_numpy_api[API_NEW_ARRAY])(
        <PyTypeObject*>_numpy_api[API_ARRAY_TYPE], t.ndim_, shape, _number_of_dtype[index], strides, host_pointer(t),
        0, ARRAY_WRITEABLE, NULL)
    Py_INCREF(t.storage_)
    (<tg_set_base>_numpy_api[API_SET_BASE])(<PyObject*>made, <PyObject*>t.storage_)
    return made
