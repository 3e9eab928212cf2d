# Exchange of what two tensor objects are: their fields, attributes and types.

def use_count(Tensor t not None):
    """Count what stands on the object itself: the object, its AccumulateGrad, views, saved values.

    References that Python holds do not count. Who shares no storage with others has neither
    views nor saved values, so only then is the list of all objects looked through.
    """
    cdef Py_ssize_t count = 1 if t.accumulator_ == NULL else 2
    if Py_REFCNT(<PyObject*>t.storage_) == 1:
        return count
    from gc import get_objects, get_referrers
    for holder in get_referrers(t.storage_):
        if holder is not t and isinstance(holder, Tensor) and (<Tensor>holder).base_ is t:
            count += 1
    # What nodes save is not tracked, and no referrer therefore.
    for node in get_objects():
        if isinstance(node, Node):
            count += saved_of((<Node>node).saved, t.storage_)
    cdef void* loose = loose_nodes
    while loose != NULL:
        count += saved_of((<Node>loose).saved, t.storage_)
        loose = (<Node>loose).older
    return count


cdef Py_ssize_t saved_of(object values, UntypedStorage storage):
    """Count the saved values of a node that lie in a storage."""
    if type(values) is Saved:
        return 1 if (<Saved>values).data is not None and (<Saved>values).data.storage_ is storage else 0
    cdef Py_ssize_t count = 0
    if type(values) is tuple or type(values) is list:
        for value in values:
            count += saved_of(value, storage)
    return count


def accumulator_node(Tensor t not None):
    """Return the AccumulateGrad of a leaf if something holds it, else None."""
    return None if t.accumulator_ == NULL else <object>t.accumulator_


def swap_contents(Tensor a not None, Tensor b not None):
    """Exchange types and all fields of two objects, slots and attributes of subclasses included.

    Both objects must be free of weak references, which would stay with the memory.

    Raises:
        TypeError: objects of one type have not the room for those of the other.
    """
    cdef object first = type(a), second = type(b)
    cdef PyTypeObject* kind = Py_TYPE(a)
    if first.__basicsize__ != second.__basicsize__ or first.__dictoffset__ != second.__dictoffset__:
        raise TypeError(f"objects of {first!r} and {second!r} differ in their layout")
    if a is b:
        return
    cdef bint inline_a = a.shape_ == a.inline_, inline_b = b.shape_ == b.inline_
    cdef size_t begin = sizeof(PyObject), size = first.__basicsize__ - sizeof(PyObject)
    cdef char* one = <char*><void*>a + begin
    cdef char* two = <char*><void*>b + begin
    cdef void* kept = malloc(size)
    if kept == NULL:
        raise MemoryError(f"cannot allocate {size} bytes to swap two tensors")
    memcpy(kept, one, size)
    memcpy(one, two, size)
    memcpy(two, kept, size)
    free(kept)
    # The types go with the fields, and the references to types that instances hold with the types.
    Py_SET_TYPE(a, Py_TYPE(b))
    Py_SET_TYPE(b, kind)
    own_geometry(a, inline_b)
    own_geometry(b, inline_a)


cdef int own_geometry(Tensor t, bint is_inline) except -1:
    """Point what came with the fields of another object to this one."""
    if is_inline:
        t.shape_ = t.inline_
        t.stride_ = t.inline_ + INLINE_DIMS
    if t.accumulator_ != NULL:
        (<AccumulateGrad><object>t.accumulator_).variable_ = t
    return 0
