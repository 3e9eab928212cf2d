# Tensors made of numbers and of memory of others; memory and values handed to Python.

def empty(tuple shape, dtype d, where):
    """Return an uninitialised contiguous tensor."""
    cdef int64_t c[MAX_DIMS]
    cdef int i, n = len(shape)
    if n > MAX_DIMS:
        raise RuntimeError(f"tensors have at most {MAX_DIMS} dimensions, got {n}")
    for i in range(n):
        c[i] = shape[i]
    return empty_contiguous(n, c, default_dtype if d is None else d.index, runtime_of(where))


def empty_strided(shape, stride, dtype d, where):
    """Return an uninitialised tensor with the given strides (elements)."""
    cdef int64_t a[MAX_DIMS]
    cdef int64_t b[MAX_DIMS]
    cdef int i, n = len(shape)
    if len(stride) != n:
        raise RuntimeError(f"dimensionality of sizes ({n}) must match dimensionality of strides ({len(stride)})")
    for i in range(n):
        a[i], b[i] = shape[i], stride[i]
    return empty_strided_c(n, a, b, default_dtype if d is None else d.index, runtime_of(where))


def tensor_of_numbers(list numbers not None, bint alone=False):
    """Return a tensor of a flat list of Python floats, or of ints, on the default device.

    Args:
        alone: make a zero-dimensional tensor of the single number in the list.

    Returns None where the list holds anything else, the device is not the host's, or a transform
    acts: `tangrad.tensor` knows what to do then.
    """
    cdef DeviceRuntime dev
    cdef Tensor t
    cdef Py_ssize_t i
    cdef int64_t n = len(numbers)
    cdef int index = default_dtype, overflow = 0
    if n == 0 or standing():
        return None
    if PyFloat_CheckExact(<object>PyList_GET_ITEM(numbers, 0)):
        if index != FLOAT32 and index != FLOAT64:
            return None
        for i in range(n):
            if not PyFloat_CheckExact(<object>PyList_GET_ITEM(numbers, i)):
                return None
    else:
        index = INT64
        for i in range(n):
            if not PyLong_CheckExact(<object>PyList_GET_ITEM(numbers, i)):
                return None
    dev = runtime_of(None)
    if not dev.type.host:
        return None
    t = empty_contiguous(0 if alone else 1, &n, index, dev)
    for i in range(n):
        if index == FLOAT32:
            (<float*>t.storage_.data)[i] = <float>PyFloat_AS_DOUBLE(<object>PyList_GET_ITEM(numbers, i))
        elif index == FLOAT64:
            (<double*>t.storage_.data)[i] = PyFloat_AS_DOUBLE(<object>PyList_GET_ITEM(numbers, i))
        else:
            (<int64_t*>t.storage_.data)[i] = PyLong_AsLongLongAndOverflow(
                <object>PyList_GET_ITEM(numbers, i), &overflow)
            if overflow:
                return None
    return t


def tensor_from_bytes(buffer, dtype d not None, shape, where=None):
    """Copy packed bytes into a new contiguous tensor."""
    cdef Tensor t
    cdef Py_buffer view
    t = empty(tuple(shape), d, where)
    if t.numel_ == 0 or t.storage_.dev.type.meta:
        return t
    data = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
    if data.nbytes != t.numel_ * d.itemsize:
        raise ValueError(f"{data.nbytes} bytes do not hold a tensor of shape {list(shape)} and dtype {d!r}")
    if t.storage_.data != NULL:
        # Not a typed memoryview: the only one would bring 100 KB of code for all that they can do.
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        memcpy(host_pointer(t), view.buf, view.len)
        PyBuffer_Release(&view)
    else:
        t.storage_.dev.type.driver.copy_from_host(t.storage_.handle, t.storage_.offset, data)
    return t


cdef class _BufferOwner:
    """Keeps a foreign buffer exported while a storage uses it."""
    cdef Py_buffer view
    cdef bint held
    cdef object extra

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


def tensor_from_buffer(owner, dtype d not None, shape, strides, int64_t offset_bytes=0, extra=None):
    """Share the memory of an object with the buffer protocol.

    Args:
        strides: in elements. offset_bytes: of the first element in the buffer.
    """
    cdef _BufferOwner holder = _BufferOwner.__new__(_BufferOwner)
    try:
        PyObject_GetBuffer(owner, &holder.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    except BufferError:
        PyObject_GetBuffer(owner, &holder.view, PyBUF_SIMPLE)
    holder.held = True
    holder.extra = extra
    return tensor_from_pointer(<size_t>holder.view.buf, holder.view.len, holder, d, shape, strides, offset_bytes, None)


def tensor_from_pointer(size_t address, size_t nbytes, owner, dtype d not None, shape, strides, int64_t offset_bytes,
                        where):
    """Share foreign memory, kept alive by `owner`."""
    cdef UntypedStorage s = UntypedStorage.__new__(UntypedStorage)
    cdef Tensor t
    cdef int i, n = len(shape)
    s.dev = runtime_of(device(_initial_device) if where is None else where)
    s.owner = owner
    s.handle, s.nbytes_, s.data = address + offset_bytes, nbytes - offset_bytes, <char*>(address + offset_bytes)
    if not s.dev.type.host:
        s.data = NULL
    t = bare_tensor(d, s.dev.slot)
    reserve_dims(t, n)
    t.storage_ = s
    for i in range(n):
        t.shape_[i], t.stride_[i] = shape[i], strides[i]
        if t.stride_[i] < 0:
            raise ValueError("at least one of the strides of the given array is negative; tensors with negative "
                             "strides are not supported. Make a copy first, e.g. with array.copy().")
    t.numel_ = count_elements(n, t.shape_)
    t.flags = CONTIGUOUS if geometry_contiguous(n, t.shape_, t.stride_) else 0
    if not geometry_within(t, n, t.shape_, t.stride_, 0):
        raise ValueError(f"shape {list(shape)} with strides {list(strides)} does not fit into {nbytes} bytes")
    return t


cdef class host_buffer:
    """The buffer protocol over a host tensor's elements, whatever its gradient state.

    Elements that Python's struct does not know are exported as unsigned integers.
    """
    cdef Tensor t

    def __init__(self, Tensor t not None):
        if host_pointer(t) == NULL and t.numel_:
            raise TypeError(f"the host cannot reach the memory of [{describe_tensor(t)}]; copy it with .cpu() first")
        self.t = t

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        export_buffer(self.t, buffer, self)

    def __releasebuffer__(self, Py_buffer* buffer):
        free(buffer.internal)


cdef dict _raw_formats = {1: b"B", 2: b"H", 4: b"I", 8: b"Q"}
# NumPy's int64 and uint64 are C's long where that has 64 bits; other libraries know only those.
cdef dict _numpy_formats = {"q": b"l", "Q": b"L"} if sizeof(long) == 8 else {}
cdef list _format_cache = [None] * MAX_DTYPES


cdef int export_buffer(Tensor t, Py_buffer* buffer, object owner) except -1:
    cdef int64_t* geometry = <int64_t*>malloc((2 * t.ndim_ + 1) * sizeof(int64_t))
    cdef int i, index = t.dtype_.index
    if geometry == NULL:
        raise MemoryError("buffer export")
    for i in range(t.ndim_):
        geometry[i] = t.shape_[i]
        geometry[t.ndim_ + i] = t.stride_[i] * ITEMSIZE[index]
    if _format_cache[index] is None:
        _format_cache[index] = _numpy_formats.get(t.dtype_.format, t.dtype_.format.encode()) \
            if t.dtype_.codec is None else _raw_formats.get(ITEMSIZE[index], f"{ITEMSIZE[index]}s".encode())
    t.storage_.lent = True
    buffer.buf = host_pointer(t) if t.numel_ else <void*>geometry
    buffer.obj = owner
    buffer.len = t.numel_ * ITEMSIZE[index]
    buffer.readonly = 0
    buffer.itemsize = ITEMSIZE[index]
    buffer.format = <char*>(<bytes>_format_cache[index])
    buffer.ndim = t.ndim_
    buffer.shape = <Py_ssize_t*>geometry
    buffer.strides = <Py_ssize_t*>(geometry + t.ndim_)
    buffer.suboffsets = NULL
    buffer.internal = geometry
    return 0


cdef int fill_buffer(Tensor t, Py_buffer* buffer, int flags) except -1:
    if holds_other(t):
        raise BufferError(f"a tensor of layout {t.layout} has no elements in memory; call to_dense() first")
    if requires_grad(t):
        raise BufferError("Can't export the buffer of a Tensor that requires grad. Use tensor.detach() first.")
    if host_pointer(t) == NULL and t.numel_:
        raise BufferError(f"the host cannot reach the memory of [{describe_tensor(t)}]; copy it with .cpu() first")
    if t.level_ is not None or t.flags & (CONJ | NEG):
        raise BufferError("cannot export the buffer of a transformed, conjugated or negated tensor; resolve it first")
    if not flags & PyBUF_STRIDES and not t.flags & CONTIGUOUS:
        raise BufferError("the tensor is not contiguous; call .contiguous() first")
    tg_tls.reads += 1
    return export_buffer(t, buffer, t)


cdef object tensor_item(Tensor t):
    tg_tls.reads += 1
    if tg_tls.intercept != NULL or t.level_ is not None or t.flags & PY_DISPATCH:
        handled, value = _intercept_item(t)
        if handled:
            return value
    return _item_of_memory(t)


def _item_of_memory(Tensor t not None):
    """Return the only element, whatever else the tensor may stand for."""
    if t.numel_ != 1:
        raise RuntimeError(f"a Tensor with {t.numel_} elements cannot be converted to Scalar ([{describe_tensor(t)}])")
    if t.flags & (CONJ | NEG):
        t = resolved(t)
    t = to_host(t)
    return decode_scalar(t.dtype_.index, host_pointer(t))


cdef object tensor_tolist(Tensor t):
    tg_tls.reads += 1
    if type(t.level_) is LayoutContents:
        return (<LayoutContents>t.level_).layout.definition.tolist(t)
    if t.level_ is not None:
        return t.level_.tolist()
    if t.flags & PY_DISPATCH:
        handled, value = _intercept_item(t)
    if t.flags & (CONJ | NEG):
        t = resolved(t)
    t = to_host(t)
    if t.ndim_ == 0:
        return decode_scalar(t.dtype_.index, host_pointer(t))
    return nested_list(t, host_pointer(t), 0)


cdef list nested_list(Tensor t, char* data, int d):
    cdef int64_t i, step = t.stride_[d] * ITEMSIZE[t.dtype_.index]
    cdef int index = t.dtype_.index
    out = []
    for i in range(t.shape_[d]):
        if d == t.ndim_ - 1:
            out.append(decode_scalar(index, data + i * step))
        else:
            out.append(nested_list(t, data + i * step, d + 1))
    return out
