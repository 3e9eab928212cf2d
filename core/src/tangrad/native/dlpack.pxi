# Memory through DLPack's capsules (https://dmlc.github.io/dlpack/latest/c_api.html), for host memory.

cdef extern from *:
    """
    typedef struct { int32_t type, id; } tg_dl_device;
    typedef struct { uint8_t code, bits; uint16_t lanes; } tg_dl_type;
    typedef struct {
        void *data;
        tg_dl_device device;
        int32_t ndim;
        tg_dl_type dtype;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } tg_dl_tensor;
    typedef struct tg_dl_managed {
        tg_dl_tensor tensor;
        void *context;
        void (*deleter)(struct tg_dl_managed *);
    } tg_dl_managed;
    typedef struct tg_dl_versioned {
        struct { uint32_t major, minor; } version;
        void *context;
        void (*deleter)(struct tg_dl_versioned *);
        uint64_t flags;
        tg_dl_tensor tensor;
    } tg_dl_versioned;
    """
    ctypedef struct tg_dl_device:
        int32_t type
        int32_t id
    ctypedef struct tg_dl_type:
        uint8_t code
        uint8_t bits
        uint16_t lanes
    ctypedef struct tg_dl_tensor:
        void* data
        tg_dl_device device
        int32_t ndim
        tg_dl_type dtype
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset
    ctypedef struct tg_dl_managed:
        tg_dl_tensor tensor
        void* context
        void (*deleter)(tg_dl_managed*) noexcept nogil
    ctypedef struct tg_dl_version:
        uint32_t major
    ctypedef struct tg_dl_versioned:
        tg_dl_version version
        void* context
        void (*deleter)(tg_dl_versioned*) noexcept nogil
        uint64_t flags
        tg_dl_tensor tensor

cdef enum:
    DL_HOST = 1
    DL_MAJOR = 1
    DL_READ_ONLY = 1

cdef dict _dl_dtype_names = {(code, bits): f"{kind}{bits}" for kind, code, sizes in (
    ("int", 0, (8, 16, 32, 64)), ("uint", 1, (8, 16, 32, 64)), ("float", 2, (16, 32, 64)), ("bfloat", 4, (16,)),
    ("complex", 5, (64, 128))) for bits in sizes}
_dl_dtype_names[6, 8] = "bool"
cdef dict _dl_dtypes = {name: key for key, name in _dl_dtype_names.items()}


cdef void dl_release(tg_dl_managed* managed) noexcept with gil:
    Py_XDECREF(<PyObject*>managed.context)
    free(managed)


cdef void dl_capsule_unused(PyObject* capsule) noexcept:
    """Release what nobody has taken out of a capsule."""
    cdef tg_dl_managed* managed
    if PyCapsule_IsValid(<object>capsule, "dltensor"):
        managed = <tg_dl_managed*>PyCapsule_GetPointer(<object>capsule, "dltensor")
        managed.deleter(managed)


def dlpack_capsule(Tensor t not None):
    """Return a capsule of a tensor in host memory; it keeps the storage until it is released.

    Raises:
        BufferError: DLPack has no number for the dtype.
    """
    cdef tg_dl_managed* managed
    cdef int i, n = t.ndim_
    tg_tls.reads += 1
    key = _dl_dtypes.get(t.dtype_.name)
    if key is None:
        raise BufferError(f"Cannot export a tensor of {t.dtype_} by DLPack, which has no such dtype; convert it "
                          "with x.to(), for example to float32")
    managed = <tg_dl_managed*>malloc(sizeof(tg_dl_managed) + 2 * n * sizeof(int64_t))
    if managed == NULL:
        raise MemoryError()
    t.storage_.lent = True
    managed.tensor.data = host_pointer(t)
    managed.tensor.device.type, managed.tensor.device.id = DL_HOST, 0
    managed.tensor.dtype.code, managed.tensor.dtype.bits, managed.tensor.dtype.lanes = key[0], key[1], 1
    managed.tensor.ndim, managed.tensor.byte_offset = n, 0
    managed.tensor.shape = <int64_t*>(managed + 1)
    managed.tensor.strides = managed.tensor.shape + n
    for i in range(n):
        managed.tensor.shape[i], managed.tensor.strides[i] = t.shape_[i], t.stride_[i]
    managed.context, managed.deleter = <void*>t.storage_, dl_release
    Py_INCREF(t.storage_)
    try:
        return PyCapsule_New(managed, "dltensor", <PyCapsule_Destructor>dl_capsule_unused)
    except BaseException:
        dl_release(managed)
        raise


cdef class _Imported:
    """Memory that came in a capsule; released with the storage on it."""
    cdef tg_dl_managed* managed
    cdef tg_dl_versioned* versioned

    def __dealloc__(self):
        if self.managed != NULL and self.managed.deleter != NULL:
            self.managed.deleter(self.managed)
        if self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)


def tensor_of_capsule(object capsule):
    """Return a tensor on the memory of a DLPack capsule, which is thereby used, and whether it may be written.

    Raises:
        RuntimeError: it is no capsule of DLPack, or was used before.
        BufferError: the memory is not the host's, or of a dtype or version that is not known here.
        ValueError: a stride is negative.
    """
    cdef _Imported owner = _Imported.__new__(_Imported)
    cdef tg_dl_managed* managed = NULL
    cdef tg_dl_versioned* versioned = NULL
    cdef tg_dl_tensor* given
    cdef int i
    cdef int64_t extent = 1, numel = 1
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        versioned = <tg_dl_versioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")
        if versioned.version.major != DL_MAJOR:
            raise BufferError(f"from_dlpack: a capsule of DLPack's version {versioned.version.major} cannot be read, "
                              f"only those of version {DL_MAJOR}")
        given = &versioned.tensor
    elif PyCapsule_IsValid(capsule, "dltensor"):
        managed = <tg_dl_managed*>PyCapsule_GetPointer(capsule, "dltensor")
        given = &managed.tensor
    else:
        raise RuntimeError("from_dlpack: expected a DLPack capsule that was not used before; a DLTensor capsule can "
                           "be consumed only once")
    if given.device.type != DL_HOST:
        raise BufferError(f"from_dlpack: the memory is of DLPack's device type {given.device.type}, not the host's; "
                          "copy it to the host first")
    name = _dl_dtype_names.get((given.dtype.code, given.dtype.bits)) if given.dtype.lanes == 1 else None
    if name is None:
        raise BufferError(f"from_dlpack: DLPack's dtype of code {given.dtype.code}, {given.dtype.bits} bits and "
                          f"{given.dtype.lanes} lanes has no counterpart here")
    d = dtype_by_name(name)
    shape = [given.shape[i] for i in range(given.ndim)]
    strides = [0] * given.ndim
    for i in range(given.ndim - 1, -1, -1):
        strides[i] = given.strides[i] if given.strides != NULL else numel
        if strides[i] < 0:
            raise ValueError(f"from_dlpack: strides {[given.strides[k] for k in range(given.ndim)]} of shape {shape} "
                             "are negative; make a copy first, e.g. with array.copy()")
        numel *= given.shape[i]
        if given.shape[i] > 0:
            extent += (given.shape[i] - 1) * <int64_t>strides[i]
    if versioned != NULL:
        PyCapsule_SetName(capsule, "used_dltensor_versioned")
    else:
        PyCapsule_SetName(capsule, "used_dltensor")
    owner.managed, owner.versioned = managed, versioned
    nbytes = extent * ITEMSIZE[d.index] if numel else 0
    made = tensor_from_pointer(<size_t>given.data + given.byte_offset, nbytes, owner, d, shape, strides, 0, None)
    return made, versioned == NULL or not versioned.flags & DL_READ_ONLY
