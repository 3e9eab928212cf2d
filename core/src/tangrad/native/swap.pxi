# Exchange of what two tensor objects are: their fields, attributes and types.

def use_count(Tensor t not None, dict known=None):
    """Count what stands on the object itself: the object, its AccumulateGrad, views, saved values.

    References that Python holds do not count. Who shares no storage with others has neither
    views nor saved values, so only then is it asked what `uses` found. All that lives is looked through once for a
    `known` that is empty, and each time without one.
    """
    cdef Py_ssize_t count = 1 if t.accumulator_ == NULL else 2
    if Py_REFCNT(<PyObject*>t.storage_) == 1:
        return count
    if not known:
        found = uses()
        if known is None:
            known = found
        else:
            known.update(found)
    for owner in (t, t.storage_):
        count += known.get(id(owner), (owner, 0))[1]
    return count


def uses():
    """Count the views of each tensor and the saved values in each storage, among all objects.

    Returns:
        A dictionary from the identity of a tensor or storage to itself and the count.
    """
    from gc import get_objects
    cdef dict found = {0: (None, 0)}  # never empty: that would mean that nobody looked
    for held in get_objects():
        if isinstance(held, Tensor):
            if (<Tensor>held).base_ is not None:
                count_use((<Tensor>held).base_, found)
        elif isinstance(held, Node):
            count_saved((<Node>held).saved, found)
    cdef void* loose = loose_nodes
    while loose != NULL:
        count_saved((<Node>loose).saved, found)
        loose = (<Node>loose).older
    return found


cdef int count_use(object owner, dict found) except -1:
    found[id(owner)] = (owner, found.get(id(owner), (owner, 0))[1] + 1)
    return 0


cdef int count_saved(object values, dict found) except -1:
    """Count the saved values of a node by their storages."""
    if type(values) is Saved:
        if (<Saved>values).data is not None:
            count_use((<Saved>values).data.storage_, found)
    elif type(values) is tuple or type(values) is list:
        for value in values:
            count_saved(value, found)
    return 0


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
