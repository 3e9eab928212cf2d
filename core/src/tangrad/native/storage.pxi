# Reference-counted storage.

@cython.no_gc
@cython.freelist(64)
cdef class UntypedStorage:
    """UntypedStorage()\n--\n\nBytes on a device, addressed as handle + byte offset, freed with the last reference."""
    cdef tg_block* block
    cdef char* data            # the place where the host reaches the bytes, or NULL
    cdef uint64_t handle
    cdef size_t offset
    cdef size_t nbytes_
    cdef int64_t version
    cdef object writer         # the op that wrote last, for messages
    cdef DeviceRuntime dev
    cdef object owner          # the foreign object whose memory this is, or None
    cdef bint resizable_
    cdef bint lent             # its address is known to somebody outside, who may look or write
    cdef size_t stated         # bytes of a wrapper subclass, whose storage has no memory
    cdef int64_t waits         # not 0: work on its memory is queued, and `data` is NULL until it is done
    cdef object __weakref__

    def __init__(self, data=0, *, device=None):
        from tangrad.tensor.storages import fill_new
        fill_new(self, data, device)

    @staticmethod
    def from_file(filename, shared=False, nbytes=0):
        """Return a storage whose memory is a file's; see `tangrad.from_file`."""
        from tangrad.tensor.storages import map_file
        return map_file(filename, shared, nbytes)

    @staticmethod
    def from_buffer(buffer, byte_order=None, count=-1, offset=0, dtype=None):
        """Return a storage of a copy of a buffer's elements; see `tangrad.tensor.storages.bytes_in_order`."""
        from tangrad.tensor.storages import storage_of_buffer
        return storage_of_buffer(buffer, byte_order, count, offset, dtype)

    @property
    def device(self):
        return placed(self).dev.device

    def nbytes(self):
        """Return the size in bytes."""
        return self.nbytes_ or self.stated

    def size(self):
        """Return the size in bytes."""
        return self.nbytes_ or self.stated

    def __len__(self):
        return self.nbytes_ or self.stated

    def data_ptr(self):
        """Return handle + offset: on host devices the address of the first byte."""
        settle(self)
        if self.stated:
            raise no_memory("access the data pointer")
        return self.handle + self.offset

    def resizable(self):
        """Return whether `resize_` is allowed (not for memory of foreign objects)."""
        return self.resizable_

    def resize_(self, size_t nbytes):
        """Change the size in bytes, keeping the common prefix."""
        storage_resize(self, nbytes)
        return self

    def __repr__(self):
        return f"<{shown_as}UntypedStorage(device={self.device}, nbytes={self.nbytes()})>"

    @property
    def _handle(self):
        settle(self)
        return (self.handle, self.offset)

    def __getattr__(self, name):
        from tangrad.tensor.storages import storage_attribute
        return storage_attribute(self, name)

    def __getitem__(self, place):
        from tangrad.tensor.storages import read_bytes
        return read_bytes(self, place)

    def __setitem__(self, place, value):
        from tangrad.tensor.storages import write_bytes
        write_bytes(self, place, value)

    def __iter__(self):
        return iter(self.tolist())


cdef const tg_queue* work_queue = NULL   # the queue whose work storages wait for


cdef inline int settle(UntypedStorage s) noexcept:
    """Have queued work done before the memory is looked at."""
    if s.waits:
        work_queue.settle()
    return 0


cdef object no_memory(str what):
    return RuntimeError(f"Attempted to {what} on an invalid python storage: a wrapper subclass has no memory")


cdef void storage_release(PyObject* x) noexcept:
    if (<UntypedStorage>x).block != NULL:
        tg_release((<UntypedStorage>x).block.owner, (<UntypedStorage>x).block)


tg_install_storage(<PyTypeObject*>UntypedStorage, storage_release)


cdef int storage_attach(UntypedStorage s, size_t nbytes) except -1:
    cdef int status
    cdef uint64_t stream = s.dev.home_stream
    s.nbytes_ = nbytes
    s.resizable_ = True
    if s.dev.type.meta:
        return 0
    if s.dev.type.asks_stream:
        stream = s.dev.type.driver.current_stream(s.dev.index)
    status = storage_take(s, stream)
    if status != 0:
        s.dev.allocator.check(status, "allocate", nbytes)
    return 0


cdef int storage_take(UntypedStorage s, uint64_t stream) noexcept:
    """Take memory of the allocator; return its status."""
    cdef int status = tg_allocate(s.dev.allocator.ptr, s.nbytes_, stream, &s.block)
    if status != 0:
        s.block = NULL
        return status
    s.handle = s.block.handle
    s.offset = s.block.offset
    if s.dev.type.host:
        s.data = <char*><size_t>(s.handle) + s.offset
    return 0


cdef inline UntypedStorage storage_without_memory(DeviceRuntime dev, size_t nbytes):
    """A storage that `storage_attach` gives its memory, or that queued work does."""
    cdef UntypedStorage s = UntypedStorage.__new__(UntypedStorage)
    s.dev, s.nbytes_, s.resizable_ = dev, nbytes, True
    return s


cdef inline UntypedStorage new_storage(DeviceRuntime dev, size_t nbytes):
    cdef UntypedStorage s = UntypedStorage.__new__(UntypedStorage)
    s.dev = dev
    storage_attach(s, nbytes)
    return s


cdef UntypedStorage placed(UntypedStorage s):
    """Refuse a storage whose `__init__` never ran: it has no device."""
    if s.dev is None:
        raise RuntimeError("Got a null Storage: its __init__ was not called")
    return s


def place_storage(UntypedStorage s not None, UntypedStorage beside not None, size_t nbytes):
    """Give a storage its memory, on the device of another."""
    if s.dev is not None:
        raise RuntimeError(f"the storage has {s.nbytes_} bytes on {s.dev.device} already")
    s.dev = placed(beside).dev
    storage_attach(s, nbytes)


cdef int storage_resize(UntypedStorage s, size_t nbytes) except -1:
    cdef UntypedStorage old
    settle(s)
    if placed(s).stated:
        raise no_memory(f"reach {nbytes} bytes")
    if not s.resizable_:
        raise RuntimeError(f"storage of {s.nbytes_} bytes on {s.dev.device} cannot be resized: "
                           "its memory belongs to another object; copy the tensor with .clone() first")
    old = UntypedStorage.__new__(UntypedStorage)
    old.dev, old.block, old.data, old.handle, old.offset = s.dev, s.block, s.data, s.handle, s.offset
    old.nbytes_ = s.nbytes_
    s.block = NULL
    s.data = NULL
    try:
        storage_attach(s, nbytes)
    except BaseException:
        s.block, s.data, s.handle, s.offset = old.block, old.data, old.handle, old.offset
        s.nbytes_ = old.nbytes_
        old.block = NULL
        raise
    if s.data != NULL:
        memcpy(s.data, old.data, min(nbytes, old.nbytes_))
    elif not s.dev.type.meta and min(nbytes, old.nbytes_):
        s.dev.type.driver.copy_within(s.handle, s.offset, old.handle, old.offset, min(nbytes, old.nbytes_))
    return 0


def storage_owner(UntypedStorage s not None):
    """Return the foreign object whose memory this is, or None."""
    return s.owner


def rebase_storage(UntypedStorage s not None, UntypedStorage onto not None):
    """Let a storage, and so every tensor on it, continue on the memory of another: foreign memory of the same host.

    Nothing is copied, and views of the old memory that others hold outside of tensors are void.

    Raises:
        RuntimeError: the memory is not of the same size, device and kind.
    """
    cdef UntypedStorage old
    settle(s)
    if onto.owner is None or not onto.dev.type.host or s.dev.type is not onto.dev.type or onto.nbytes_ < s.nbytes_:
        raise RuntimeError(f"rebase_storage: {s.nbytes_} bytes on {s.dev.device} cannot continue on {onto.nbytes_} "
                           f"bytes on {onto.dev.device}, which must be foreign memory of the same host device")
    old = UntypedStorage.__new__(UntypedStorage)
    old.dev, old.block, old.owner = s.dev, s.block, s.owner   # freed with `old`
    s.block = NULL
    s.owner, s.data, s.handle, s.offset = onto.owner, onto.data, onto.handle, onto.offset
    s.resizable_ = False
