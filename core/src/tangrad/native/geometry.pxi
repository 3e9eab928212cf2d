# How tensors lie in their storages: making them, strides, overlap.

cdef inline bint exact_tensor(PyObject* x) noexcept:
    return Py_TYPE(<object>x) == TENSOR or Py_TYPE(<object>x) == PARAMETER


cdef inline int reserve_dims(Tensor t, int ndim) except -1:
    if ndim <= INLINE_DIMS:
        t.shape_ = t.inline_
        t.stride_ = t.inline_ + INLINE_DIMS
    else:
        if ndim > MAX_DIMS:
            raise RuntimeError(f"tensors have at most {MAX_DIMS} dimensions, got {ndim}")
        t.shape_ = <int64_t*>malloc(2 * ndim * sizeof(int64_t))
        if t.shape_ == NULL:
            raise MemoryError(f"cannot allocate the shape of a tensor of {ndim} dimensions")
        t.stride_ = t.shape_ + ndim
    t.ndim_ = ndim
    return 0


cdef inline bint geometry_contiguous(int ndim, const int64_t* shape, const int64_t* stride) noexcept:
    cdef int64_t expected = 1
    cdef bint dense = True
    cdef int i
    for i in range(ndim - 1, -1, -1):
        if shape[i] == 0:
            return True
        if shape[i] != 1:
            if stride[i] != expected:
                dense = False
            expected *= shape[i]
    return dense


cdef inline int64_t count_elements(int ndim, const int64_t* shape) except -1:
    cdef int64_t n = 1
    cdef int i
    for i in range(ndim):
        if shape[i] < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {shape[i]}: {shape_list(ndim, shape)}")
        if __builtin_mul_overflow(n, shape[i], &n):
            if 0 in shape_list(ndim, shape):
                n = 0
                break
            raise RuntimeError(f"Storage size calculation overflowed: sizes {shape_list(ndim, shape)} have more "
                               "elements than 64 bits count")
    if n == 0:
        check_strides_of_nothing(ndim, shape)
    return n


cdef int check_strides_of_nothing(int ndim, const int64_t* shape) except -1:
    cdef int64_t step = 1
    cdef int i
    for i in range(ndim - 1, 0, -1):
        if shape[i] > 1 and __builtin_mul_overflow(step, shape[i], &step):
            raise RuntimeError(f"Stride calculation overflowed: sizes {shape_list(ndim, shape)} have longer strides "
                               "than 64 bits count")
    return 0


cdef inline void contiguous_strides(int ndim, const int64_t* shape, int64_t* stride) noexcept:
    cdef int64_t step = 1
    cdef int i
    for i in range(ndim - 1, -1, -1):
        stride[i] = step
        if shape[i] > 1:
            step *= shape[i]


cdef list shape_list(int ndim, const int64_t* shape):
    return [shape[i] for i in range(ndim)]


cdef inline Tensor bare_tensor(dtype d, int slot):
    cdef Tensor t = <Tensor>tensor_plain_new()
    t.dtype_ = d
    t.slot_ = slot
    return t


cdef Tensor tensor_plain_new():
    if tg_plain_new != NULL:
        return <Tensor>new_from(tg_plain_new, TENSOR)
    return Tensor.__new__(Tensor)


cdef Tensor tensor_like_type(PyTypeObject* kind):
    return <Tensor>new_from(tg_plain_new, kind)


cdef Tensor empty_contiguous(int ndim, const int64_t* shape, int dtype_index, DeviceRuntime dev):
    cdef Tensor t = contiguous_without_memory(ndim, shape, dtype_index, dev)
    storage_attach(t.storage_, t.storage_.nbytes_)
    return t


cdef Tensor contiguous_without_memory(int ndim, const int64_t* shape, int dtype_index, DeviceRuntime dev):
    """A tensor whose storage `storage_attach` gives its memory, or queued work does."""
    cdef Tensor t = bare_tensor(<dtype>DTYPES[dtype_index], dev.slot)
    cdef int64_t nbytes
    reserve_dims(t, ndim)
    memcpy(t.shape_, shape, ndim * sizeof(int64_t))
    t.numel_ = count_elements(ndim, shape)
    contiguous_strides(ndim, shape, t.stride_)
    if __builtin_mul_overflow(t.numel_, <int64_t>ITEMSIZE[dtype_index], &nbytes):
        raise out_of_memory(f"Storage size calculation overflowed: a tensor of shape {shape_list(ndim, shape)} and "
                            f"dtype {t.dtype_!r} has more bytes than can be addressed")
    t.storage_ = storage_without_memory(dev, nbytes)
    t.flags = CONTIGUOUS
    if tg_tls.inference:
        t.flags |= INFERENCE
    return t


cdef int64_t bytes_reached(int ndim, const int64_t* shape, const int64_t* stride, int64_t offset,
                           int64_t itemsize) except -1:
    """Count the bytes from a storage's begin to the end of a tensor's last element; 0 without any."""
    cdef int64_t extent = 1, step, nbytes
    cdef int i
    if count_elements(ndim, shape) == 0:
        return 0
    for i in range(ndim):
        if __builtin_mul_overflow(shape[i] - 1, stride[i], &step) or __builtin_add_overflow(extent, step, &extent):
            raise too_many_bytes(ndim, shape, stride)
    if __builtin_add_overflow(extent, offset, &extent) or __builtin_mul_overflow(extent, itemsize, &nbytes):
        raise too_many_bytes(ndim, shape, stride)
    return nbytes


cdef object too_many_bytes(int ndim, const int64_t* shape, const int64_t* stride):
    return out_of_memory(f"Storage size calculation overflowed: shape {shape_list(ndim, shape)} with strides "
                         f"{shape_list(ndim, stride)} addresses more bytes than exist")


cdef Tensor empty_strided_c(int ndim, const int64_t* shape, const int64_t* stride, int dtype_index, DeviceRuntime dev):
    cdef Tensor t = bare_tensor(<dtype>DTYPES[dtype_index], dev.slot)
    cdef int i
    reserve_dims(t, ndim)
    memcpy(t.shape_, shape, ndim * sizeof(int64_t))
    memcpy(t.stride_, stride, ndim * sizeof(int64_t))
    t.numel_ = count_elements(ndim, shape)
    for i in range(ndim):
        if stride[i] < 0:
            raise RuntimeError(f"as_strided: negative strides are not supported, got {shape_list(ndim, stride)}")
    t.storage_ = new_storage(dev, bytes_reached(ndim, shape, stride, 0, ITEMSIZE[dtype_index]))
    t.flags = CONTIGUOUS if geometry_contiguous(ndim, shape, stride) else 0
    if tg_tls.inference:
        t.flags |= INFERENCE
    return t


cdef inline Tensor alias_geometry(Tensor src, int ndim, int64_t offset):
    """Share the storage of src; the caller fills shape and stride, then calls finish_alias."""
    cdef Tensor t = bare_tensor(src.dtype_, src.slot_)
    reserve_dims(t, ndim)
    t.storage_ = src.storage_
    t.offset_ = offset
    t.version_cell = src.version_cell
    t.level_ = src.level_
    return t


cdef inline void finish_alias(Tensor t, Tensor src) noexcept:
    cdef int64_t n = 1
    cdef int i
    for i in range(t.ndim_):
        n *= t.shape_[i]
    t.numel_ = n
    t.flags = (src.flags & (CONJ | NEG | INFERENCE)) | (
        CONTIGUOUS if geometry_contiguous(t.ndim_, t.shape_, t.stride_) else 0)


cdef inline Tensor alias_whole(Tensor src):
    """The same geometry on the same storage, without history."""
    cdef Tensor t = alias_geometry(src, src.ndim_, src.offset_)
    memcpy(t.shape_, src.shape_, src.ndim_ * sizeof(int64_t))
    memcpy(t.stride_, src.stride_, src.ndim_ * sizeof(int64_t))
    t.numel_ = src.numel_
    t.flags = src.flags & (CONJ | NEG | INFERENCE | CONTIGUOUS)
    return t


cdef inline bint holds_other(Tensor t) noexcept:
    """Whether a tensor of another layout holds components in place of elements."""
    return t.slot_ != t.storage_.dev.slot and not t.flags & PY_DISPATCH


cdef inline int require_elements(Tensor t, str what) except -1:
    if holds_other(t):
        raise NotImplementedError(f"a tensor of layout {t.layout} has no elements in memory ({what} was asked for; "
                                  f"[{describe_tensor(t)}]); call to_dense() first")
    return 0


cdef object real_of(object number, str kind):
    """The real part of a complex number that has no other."""
    if number.imag:
        raise RuntimeError(f"value cannot be converted to type {kind} without overflow: {number} has an imaginary part")
    return number.real


cdef object only_element(Tensor t):
    """The element that a Python number is made of."""
    if t.numel_ != 1:
        raise ValueError(f"only one element tensors can be converted to Python scalars ([{describe_tensor(t)}])")
    return tensor_item(t)


cdef inline int64_t version_of(Tensor t) noexcept:
    return t.version_cell.version if t.version_cell is not None else t.storage_.version


cdef inline void bump_version(Tensor t, object writer):
    if t.version_cell is not None:
        t.version_cell.version += 1
    else:
        t.storage_.version += 1
    t.storage_.writer = writer


def as_new(Tensor t not None):
    """Return a tensor that was filled when it was made, at version 0: nobody saw it unfilled."""
    t.storage_.version = 0
    t.storage_.writer = None
    return t


cdef inline char* host_pointer(Tensor t) noexcept:
    if t.storage_.data == NULL:
        if not t.storage_.waits:
            return NULL
        settle(t.storage_)
    return t.storage_.data + t.offset_ * ITEMSIZE[t.dtype_.index]


cdef inline bint requires_grad(Tensor t):
    if t.flags & REQUIRES_GRAD or t.grad_fn_ is not None:
        return True
    return t.base_ is not None and requires_grad(t.base_)


cdef bint overlaps_itself(Tensor t):
    """Whether two elements share memory, by the strides; for odd strides, by listing the offsets."""
    cdef int64_t reach = 0, stride
    cdef int i
    if t.flags & CONTIGUOUS or t.numel_ < 2:
        return False
    for stride, size in sorted([(t.stride_[i], t.shape_[i]) for i in range(t.ndim_) if t.shape_[i] > 1]):
        if stride <= reach:
            return offsets_repeat(t)
        reach += stride * (size - 1)
    return False


cdef bint shares_extent(Tensor a, Tensor b):
    """Whether two dense tensors occupy bytes in common; for those with gaps nothing is said."""
    cdef int64_t first, second
    if a.storage_ is not b.storage_ or a.numel_ == 0 or b.numel_ == 0:
        return False
    if not (non_overlapping_and_dense(a) and non_overlapping_and_dense(b)):
        return False
    first = a.offset_ * ITEMSIZE[a.dtype_.index]
    second = b.offset_ * ITEMSIZE[b.dtype_.index]
    return first < second + b.numel_ * ITEMSIZE[b.dtype_.index] and second < first + a.numel_ * ITEMSIZE[a.dtype_.index]


cdef bint offsets_repeat(Tensor t):
    cdef int i
    offsets = {0}
    for i in range(t.ndim_):
        if t.stride_[i] == 0 and t.shape_[i] > 1:
            return True
    if t.numel_ > 65536:
        return True
    for i in range(t.ndim_):
        offsets = {o + k * t.stride_[i] for o in offsets for k in range(t.shape_[i])}
    return len(offsets) < t.numel_


cdef object describe_tensor(Tensor t):
    """Text of a tensor for messages: dtype, shape and device."""
    return f"{t.dtype_.name}{shape_list(t.ndim_, t.shape_)} on {t.storage_.dev.device}"


cdef bint geometry_within(Tensor t, int ndim, const int64_t* shape, const int64_t* stride, int64_t offset) noexcept:
    """Whether every element of the geometry lies inside the storage."""
    cdef int64_t room = <int64_t>t.storage_.nbytes_ // ITEMSIZE[t.dtype_.index] - 1 - offset
    cdef int i
    if offset < 0:
        return False
    for i in range(ndim):
        if shape[i] == 0:
            return True
    for i in range(ndim):  # by division, for a product might overflow
        if stride[i] > 0 and shape[i] > 1:
            if shape[i] - 1 > room // stride[i]:
                return False
            room -= (shape[i] - 1) * stride[i]
    return room >= 0
