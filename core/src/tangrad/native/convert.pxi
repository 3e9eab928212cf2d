# Copies between tensors: conversion, devices, cloning, resizing.

cdef int CONVERSION_ROW[MAX_DTYPES]
for _i in range(MAX_DTYPES):
    CONVERSION_ROW[_i] = -1
for _i, _name in enumerate(("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32",
                            "float64", "float16", "bfloat16", "complex64", "complex128")):
    CONVERSION_ROW[_index_of(_name)] = _i


cdef inline int tell_of_imaginary(int old, int new) except -1:
    """Warn of a cast to a dtype without imaginary parts; a truth is of both parts."""
    if KIND[old] == KIND_COMPLEX and KIND_BOOL < KIND[new] < KIND_COMPLEX:
        from tangrad.tensor.caller import warn_once
        warn_once("Casting complex values to real discards the imaginary part")
    return 0


cdef int tell_of_scalar(Tensor t) except -1:
    """Warn of a number that is made of a tensor which needs a gradient."""
    if tg_tls.grad_enabled and requires_grad(t):
        from tangrad.tensor.caller import warn_once
        warn_once("Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
                  "Consider using tensor.detach() first.")
    return 0


cdef int copy_into(Tensor dst, Tensor src) except -1:
    """Write src, broadcast and converted, into dst (same or other device), without recording."""
    cdef DeviceRuntime dd = dst.storage_.dev, sd = src.storage_.dev
    cdef Op op
    require_elements(dst, "a copy")
    require_elements(src, "a copy")
    if dd.type.meta:
        return 0
    if sd.type.meta:
        raise NotImplementedError("Cannot copy out of meta tensor; no data! "
                                  f"([{describe_tensor(src)}] into [{describe_tensor(dst)}])")
    if dst.numel_ == 0:
        return 0
    tell_of_imaginary(src.dtype_.index, dst.dtype_.index)
    if dst.flags & (CONJ | NEG):
        src = as_held_by(dst, src)
        dst = without_flags(dst)
    elif src.flags & (CONJ | NEG):
        src = resolved(src)
    op = <Op>_op_cache.get("copy_")
    if op is None and dd is sd and not dd.type.host:
        op = lookup_op("copy_")  # its kernels are known from when it is made
    if op is not None and dd is sd and serves_copies(op, dst, src):
        return copy_by_kernel(op, op.rows[dd.slot][dst.dtype_.index], dst, src)
    if dd.type.host and sd.type.host:
        return host_copy(dst, src)
    return copy_on_device(dst, src) if dd.type is sd.type else staged_copy(dst, src)


cdef bint serves_copies(Op op, Tensor dst, Tensor src) noexcept:
    """Whether the device has kernels of copy_ for both dtypes: one for one of them may not know the other."""
    cdef int slot = dst.storage_.dev.slot
    return slot < op.nrows and op.rows[slot] != NULL and is_copy_kernel(op.rows[slot][dst.dtype_.index]) \
        and (dst.dtype_ is src.dtype_ or is_copy_kernel(op.rows[slot][src.dtype_.index]))


cdef bint is_copy_kernel(tg_kernel* kernel) noexcept:
    return kernel != NULL and kernel.kind != 0 and kernel.callable != <PyObject*>_copy_fallback


# What stands in the tables where a device has no kernel of copy_: a function (targets, arguments).
cdef object _copy_fallback = None


def set_copy_fallback(fallback):
    """Install what tells of, and makes, copies on a device that go by way of the host."""
    global _copy_fallback
    _copy_fallback = fallback


cdef int copy_on_device(Tensor dst, Tensor src) except -1:
    """Copy within a type of device, whose memory the host cannot reach, where no kernel is registered."""
    cdef DeviceRuntime dd = dst.storage_.dev, sd = src.storage_.dev
    cdef Tensor whole
    cdef Op op
    if dst.dtype_ is src.dtype_ and same_order(dst, src):
        dd.type.driver.copy_within(dst.storage_.handle, dst.storage_.offset + dst.offset_ * dst.dtype_.itemsize,
                                   src.storage_.handle, src.storage_.offset + src.offset_ * src.dtype_.itemsize,
                                   dst.numel_ * dst.dtype_.itemsize)
        return 0
    if dd is not sd:
        # Bytes alone go between two devices: what else there is to do is done on either side.
        whole = empty_contiguous(src.ndim_, src.shape_, dst.dtype_.index,
                                 dd if dst.dtype_ is src.dtype_ and src.flags & CONTIGUOUS else sd)
        copy_into(whole, src)
        return copy_into(dst, whole)
    op = lookup_op("copy_")
    find_kernel(op, dd.slot, dst.dtype_.index)
    find_kernel(op, dd.slot, src.dtype_.index)
    if serves_copies(op, dst, src):
        return copy_by_kernel(op, op.rows[dd.slot][dst.dtype_.index], dst, src)
    _copy_fallback((dst,), (dst, src, False))
    return 0


cdef bint same_order(Tensor dst, Tensor src) except -1:
    """Whether the elements of both lie in one piece each, in the same order."""
    if dst.flags & src.flags & CONTIGUOUS and dst.numel_ == src.numel_:
        check_expand(dst, src)
        return True
    return same_geometry(dst, src) and non_overlapping_and_dense(dst)


def copy_staged(Tensor dst not None, Tensor src not None):
    """Copy within a device by way of the host."""
    staged_copy(dst, src)


cdef Tensor as_held_by(Tensor dst, Tensor src):
    """What memory has to hold for dst, a conjugate or negative view, to show the values of src."""
    if src.dtype_ is not dst.dtype_:
        src = cast_tensor(src, dst.dtype_.index)
    src = alias_whole(src)
    src.flags ^= dst.flags & (CONJ | NEG)
    return resolved(src)


cdef Tensor without_flags(Tensor t):
    """The tensor that shows the memory of t as it is."""
    t = alias_whole(t)
    t.flags &= ~<uint32_t>(CONJ | NEG)
    return t


cdef int copy_by_kernel(Op op, tg_kernel* kernel, Tensor dst, Tensor src) except -1:
    cdef PyObject* item[1]
    cdef PyObject* flat[3]
    if kernel.kind == KERNEL_PYTHON:
        if src.storage_ is dst.storage_ and (src.offset_ != dst.offset_ or not same_geometry(src, dst)):
            src = detached_clone(src)  # a kernel may then go over the elements in any order
        call_python_kernel(op, kernel, ((dst,), (dst, src, False)))
        return 0
    check_expand(dst, src)
    item[0] = <PyObject*>src
    flat[0], flat[1], flat[2] = <PyObject*>dst, <PyObject*>src, Py_None_ptr
    return call_c_loop(op, kernel, dst.storage_.dev, item, 1, dst.dtype_.index, flat, <PyObject*>dst, None, dst.ndim_,
                       dst.shape_, 0)


cdef int host_copy(Tensor dst, Tensor src) except -1:
    cdef int64_t shape[MAX_DIMS]
    cdef int64_t strides[2][MAX_DIMS]
    cdef int64_t index[MAX_DIMS]
    cdef int ndim = dst.ndim_, d, k, a = dst.dtype_.index, b = src.dtype_.index, size = ITEMSIZE[dst.dtype_.index]
    cdef char* to = host_pointer(dst)
    cdef char* source = host_pointer(src)
    cdef int64_t count = 1, i, inner
    cdef tg_copy_loop convert = NULL
    check_expand(dst, src)
    if a != b:
        if CONVERSION_ROW[a] < 0 or CONVERSION_ROW[b] < 0:
            return foreign_copy(dst, src)
        convert = tg_conversions[CONVERSION_ROW[a]][CONVERSION_ROW[b]]
    if src.storage_ is dst.storage_ and (src.offset_ != dst.offset_ or not same_geometry(src, dst)):
        src = detached_clone(src)
        source = host_pointer(src)
    for d in range(ndim):
        shape[d] = dst.shape_[d]
        strides[0][d] = dst.stride_[d] * size
        k = d - (ndim - src.ndim_)
        strides[1][d] = 0 if k < 0 or (src.shape_[k] == 1 and shape[d] != 1) else src.stride_[k] * ITEMSIZE[b]
    if ndim == 0:
        shape[0], strides[0][0], strides[1][0] = 1, size, size
        ndim = 1
    ndim = coalesce(ndim, shape, strides, 2, True)
    inner = shape[ndim - 1]
    for d in range(ndim - 1):
        count *= shape[d]
        index[d] = 0
    with nogil:
        for i in range(count):
            if convert == NULL:
                tg_copy_same(to, strides[0][ndim - 1], source, strides[1][ndim - 1], inner, size)
            else:
                convert(to, strides[0][ndim - 1], source, strides[1][ndim - 1], inner)
            for d in range(ndim - 2, -1, -1):
                index[d] += 1
                to += strides[0][d]
                source += strides[1][d]
                if index[d] < shape[d]:
                    break
                to -= strides[0][d] * shape[d]
                source -= strides[1][d] * shape[d]
                index[d] = 0
    return 0


cdef bint same_geometry(Tensor a, Tensor b) noexcept:
    return a.ndim_ == b.ndim_ and memcmp(a.shape_, b.shape_, a.ndim_ * 8) == 0 \
        and memcmp(a.stride_, b.stride_, a.ndim_ * 8) == 0


cdef int check_expand(Tensor dst, Tensor src) except -1:
    """Raise unless src broadcasts to the shape of dst."""
    cdef int lead = dst.ndim_ - src.ndim_, d
    cdef bint fits = lead >= 0
    if fits:
        for d in range(src.ndim_):
            if src.shape_[d] != 1 and src.shape_[d] != dst.shape_[lead + d]:
                fits = False
    if not fits:
        raise RuntimeError(
            f"The expanded size of the tensor ({shape_list(dst.ndim_, dst.shape_)}) must match the existing size "
            f"({shape_list(src.ndim_, src.shape_)}): copy_ of [{describe_tensor(src)}] into [{describe_tensor(dst)}]")
    return 0


cdef int foreign_copy(Tensor dst, Tensor src) except -1:
    from tangrad.tensor.foreign import convert
    convert(alias_whole(dst), alias_whole(src))
    return 0


cdef Tensor host_image(Tensor t, Py_ssize_t* first, Py_ssize_t* length):
    """A host tensor with the bytes spanned by t on another device, same strides."""
    cdef Tensor image
    cdef DeviceRuntime host = host_runtime()
    cdef int64_t extent = 1
    cdef int d, size = t.dtype_.itemsize
    for d in range(t.ndim_):
        extent += (t.shape_[d] - 1) * t.stride_[d]
    image = bare_tensor(t.dtype_, host.slot)
    reserve_dims(image, t.ndim_)
    memcpy(image.shape_, t.shape_, t.ndim_ * sizeof(int64_t))
    memcpy(image.stride_, t.stride_, t.ndim_ * sizeof(int64_t))
    image.numel_ = t.numel_
    image.flags = t.flags & (CONTIGUOUS | CONJ | NEG)
    image.storage_ = new_storage(host, extent * size)
    first[0] = t.storage_.offset + t.offset_ * size
    length[0] = extent * size
    t.storage_.dev.type.driver.copy_to_host(t.storage_.handle, first[0], host_memory(image.storage_))
    return image


cdef object host_memory(UntypedStorage s):
    settle(s)
    return PyMemoryView_FromMemory(s.data, s.nbytes_, PyBUF_WRITE)


cdef DeviceRuntime host_runtime():
    return runtime_of(device(_initial_device))


cdef int staged_copy(Tensor dst, Tensor src) except -1:
    """Copy where one side at least is out of the host's reach."""
    cdef Py_ssize_t first = 0, length = 0
    cdef Tensor image
    cdef DeviceRuntime dd = dst.storage_.dev
    if not src.storage_.dev.type.host:
        src = host_image(src, &first, &length)
    if dd.type.host:
        return host_copy(dst, src)
    if dst.flags & CONTIGUOUS:
        image = empty_contiguous(dst.ndim_, dst.shape_, dst.dtype_.index, host_runtime())
        first = dst.storage_.offset + dst.offset_ * dst.dtype_.itemsize
    else:
        image = host_image(dst, &first, &length)
    host_copy(image, src)
    dd.type.driver.copy_from_host(dst.storage_.handle, first, host_memory(image.storage_))
    return 0


cdef Tensor to_host(Tensor t):
    """The tensor itself where the host reaches it, else a copy on the host."""
    cdef Py_ssize_t first = 0, length = 0
    if t.storage_.dev.type.meta:
        raise NotImplementedError(f"Cannot copy out of meta tensor; no data! ([{describe_tensor(t)}])")
    if t.storage_.dev.type.host:
        return t
    if t.numel_ == 0:
        return empty_contiguous(t.ndim_, t.shape_, t.dtype_.index, host_runtime())
    return host_image(t, &first, &length)


cdef Tensor cast_tensor(Tensor t, int dtype_index):
    """Convert the dtype on the same device; recorded when recording."""
    if tg_tls.below_autograd == 0 and tg_tls.grad_enabled and requires_grad(t) or t.level_ is not None:
        return lookup_op("_to_copy")(t, dtype=<object>DTYPES[dtype_index])
    return converted(t, dtype_index, t.storage_.dev)


cdef Tensor converted(Tensor t, int dtype_index, DeviceRuntime dev):
    """A copy with another dtype or device, in the same order of strides where dense."""
    cdef Tensor o = like_strides(t, dtype_index, dev)
    copy_into(o, t)
    return o


cdef Tensor like_strides(Tensor t, int dtype_index, DeviceRuntime dev):
    """Uninitialised, with t's shape and, where t is dense, t's strides (preserve_format)."""
    cdef PyObject* item[1]
    if t.flags & CONTIGUOUS and strides_are_usual(t):
        return empty_contiguous(t.ndim_, t.shape_, dtype_index, dev)
    if t.flags & CONTIGUOUS or non_overlapping_and_dense(t):
        return empty_strided_c(t.ndim_, t.shape_, t.stride_, dtype_index, dev)
    item[0] = <PyObject*>t
    return allocate_permuted(t.ndim_, t.shape_, dtype_index, dev, item, 1)


cdef bint non_overlapping_and_dense(Tensor t) noexcept:
    cdef int64_t expected = 1, best
    cdef int used[MAX_DIMS]
    cdef int i, j, pick
    if t.numel_ == 0:
        return True
    for i in range(t.ndim_):
        used[i] = t.shape_[i] == 1
    for j in range(t.ndim_):
        pick = -1
        for i in range(t.ndim_):
            if not used[i] and t.stride_[i] == expected:
                pick = i
                break
        if pick < 0:
            break
        used[pick] = 1
        expected *= t.shape_[pick]
    for i in range(t.ndim_):
        if not used[i]:
            return False
    return True


cdef Tensor clone_tensor(Tensor t):
    """A copy of the values; recorded when recording."""
    if t.level_ is not None or (tg_tls.below_autograd == 0 and tg_tls.grad_enabled and requires_grad(t)):
        return lookup_op("clone")(t)
    return detached_clone(t)


cdef Tensor detached_clone(Tensor t):
    return converted(t, t.dtype_.index, t.storage_.dev)


cdef Tensor resolved(Tensor t):
    """Materialise conjugation and negation."""
    cdef Tensor plain
    if not t.flags & (CONJ | NEG):
        return t
    plain = without_flags(t)
    if t.flags & CONJ:
        plain = lookup_op("conj_physical")(plain)
    if t.flags & NEG:
        plain = lookup_op("neg")(plain)
    return plain


cdef int resize_tensor(Tensor t, int ndim, const int64_t* shape) except -1:
    """Give t another shape, contiguous, growing its storage where needed."""
    cdef int64_t stride[MAX_DIMS]
    cdef int64_t nbytes
    contiguous_strides(ndim, shape, stride)
    nbytes = bytes_reached(ndim, shape, stride, t.offset_, t.dtype_.itemsize)
    if nbytes > <int64_t>t.storage_.nbytes_:
        storage_resize(t.storage_, nbytes)
    set_geometry(t, ndim, shape, stride, t.offset_)
    return 0


cdef int set_geometry(Tensor t, int ndim, const int64_t* shape, const int64_t* stride, int64_t offset) except -1:
    cdef int64_t* old = t.shape_ if t.shape_ != t.inline_ else NULL
    cdef int64_t saved[2 * MAX_DIMS]
    memcpy(saved, shape, ndim * sizeof(int64_t))
    memcpy(saved + MAX_DIMS, stride, ndim * sizeof(int64_t))
    reserve_dims(t, ndim)
    if old != NULL:
        free(old)
    memcpy(t.shape_, saved, ndim * sizeof(int64_t))
    memcpy(t.stride_, saved + MAX_DIMS, ndim * sizeof(int64_t))
    t.offset_ = offset
    t.numel_ = count_elements(ndim, t.shape_)
    t.flags &= ~<uint32_t>CONTIGUOUS
    if geometry_contiguous(ndim, t.shape_, t.stride_):
        t.flags |= CONTIGUOUS
    return 0


cdef Tensor zeros_of(object shape, dtype d, DeviceRuntime dev):
    cdef Tensor t = empty(tuple(shape), d, dev.device)
    fill_zero(t)
    return t


cdef int fill_zero(Tensor t) except -1:
    if t.storage_.dev.type.meta or t.numel_ == 0:
        return 0
    if t.storage_.data != NULL and t.flags & CONTIGUOUS:
        memset(host_pointer(t), 0, t.numel_ * t.dtype_.itemsize)
        return 0
    lookup_op("zero_")(t)
    return 0
