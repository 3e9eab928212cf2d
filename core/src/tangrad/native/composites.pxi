# Composites in C in the form that programs use most; every other form runs the definition's Python.

cdef enum:
    SHORT_NONE = 0
    SHORT_MATMUL = 1
    SHORT_SOFTMAX = 2
    SHORT_RESHAPE = 3
    SHORT_FLATTEN = 4
    SHORT_CONTIGUOUS = 5
    SHORT_EMPTY = 6
    SHORT_POWER = 7
    SHORT_STACK = 8
    SHORT_MASKED_FILL = 9
    SHORT_ZERO = 10
    SHORT_ZEROS = 11
    SHORT_ONES = 12
    SHORT_ZEROS_LIKE = 13
    SHORT_ONES_LIKE = 14
    SHORT_MOVEDIM = 15
    SHORT_RAND = 16
    SHORT_RANDN = 17
    SHORT_RANDINT_BELOW = 18
    SHORT_RANDINT = 19
    SHORT_NEW_EMPTY = 20                 # this and two more take what they leave open from a tensor
    SHORT_NEW_ZEROS = 21
    SHORT_NEW_ONES = 22
    SHORT_LOG_SOFTMAX = 23


cdef object shortcut(Op op, PyObject** flat):
    """Return the result of a composite's usual form, or NotImplemented for any other.

    Inner ops start at recording: only where nothing but observers stands between may this be used. A wrapper has
    its own handler there, whatever the thread's switches say.
    """
    cdef PyObject* inner[MAX_PARAMS]
    cdef Tensor t, u
    cdef object zero = 0
    if op.shortcut == SHORT_EMPTY:
        return empty_of_size(op, flat)
    if op.shortcut == SHORT_ZEROS or op.shortcut == SHORT_ONES:
        return filled_of_size(op, flat, op.shortcut == SHORT_ONES)
    if op.shortcut == SHORT_STACK:
        return stacked(op, flat)
    if SHORT_RAND <= op.shortcut <= SHORT_RANDINT:
        return drawn_of_size(op, flat)
    t = <Tensor>given(op, flat, 5 if SHORT_NEW_EMPTY <= op.shortcut <= SHORT_NEW_ONES else 0)
    if t.flags & PY_DISPATCH or holds_other(t):
        return NotImplemented
    inner[0] = <PyObject*>t
    if op.shortcut == SHORT_ZEROS_LIKE or op.shortcut == SHORT_ONES_LIKE:
        return filled_like(op, t, flat, op.shortcut == SHORT_ONES_LIKE)
    if SHORT_NEW_EMPTY <= op.shortcut <= SHORT_NEW_ONES:
        return made_beside(op, t, flat)
    if op.shortcut == SHORT_MOVEDIM:
        order = moved(t.ndim_, <tuple>given(op, flat, 1), <tuple>given(op, flat, 2))
        if order is None:
            return NotImplemented
        inner[1] = <PyObject*>order
        return call_inner(lookup_op("permute"), inner, None, False)
    if op.shortcut == SHORT_MASKED_FILL:
        return masked_filled(op, flat, None)
    if op.shortcut == SHORT_ZERO:
        inner[1] = <PyObject*>zero
        return call_inner(lookup_op("fill_"), inner, None, False)
    if op.shortcut == SHORT_CONTIGUOUS:
        return t if given(op, flat, 1) == Py_None_ptr and t.flags & CONTIGUOUS else NotImplemented
    if op.shortcut == SHORT_SOFTMAX or op.shortcut == SHORT_LOG_SOFTMAX:
        if given(op, flat, 2) != Py_None_ptr:
            return NotImplemented
        inner[1] = given(op, flat, 1)
        return call_inner(lookup_op("_softmax" if op.shortcut == SHORT_SOFTMAX else "_log_softmax"), inner, None, False)
    if op.shortcut == SHORT_MATMUL:
        u = <Tensor>given(op, flat, 1)
        inner[1] = <PyObject*>u
        if u.flags & PY_DISPATCH or holds_other(u):
            return NotImplemented
        if t.ndim_ == 2 and u.ndim_ == 2:
            return call_inner(lookup_op("mm"), inner, None, False)
        if t.ndim_ == 2 and u.ndim_ == 1:
            return call_inner(lookup_op("mv"), inner, None, False)
        if t.ndim_ == 3 and u.ndim_ == 3 and t.shape_[0] == u.shape_[0] and t.shape_[2] == u.shape_[1]:
            product = call_inner(lookup_op("bmm"), inner, None, False)
            size = shape_of(<Tensor>product)
            inner[0], inner[1] = <PyObject*>product, <PyObject*>size
            return call_inner(lookup_op("_unsafe_view"), inner, None, False)
        return NotImplemented
    if not t.flags & CONTIGUOUS:
        return NotImplemented
    size = flattened(op, t, flat) if op.shortcut == SHORT_FLATTEN else inferred(t, <tuple>given(op, flat, 1))
    if size is None:
        return NotImplemented
    inner[1] = <PyObject*>size
    return call_inner(<Op>lookup_op("view").overloads[0], inner, None, False)


cdef tuple moved(int ndim, tuple source, tuple destination):
    """The order of dimensions that puts some at other places; None where it is not asked for rightly."""
    cdef int taken[MAX_DIMS]
    cdef int i, d, free = 0
    cdef list order = [None] * ndim
    if ndim == 0 or len(source) != len(destination):
        return None
    for d in range(ndim):
        taken[d] = 0
    for i in range(<int>len(source)):
        taken[<int>source[i]] = 1
        order[<int>destination[i]] = source[i]
    for d in range(ndim):
        if not taken[d]:
            while order[free] is not None:
                free += 1
            order[free] = d
    return tuple(order)


cdef object masked_filled(Op op, PyObject** flat, object out):
    """A number where a mask is true, into `out` in place; NotImplemented where the number has to be converted first."""
    cdef PyObject* inner[3]
    cdef Tensor t, mask
    cdef int k
    for k in range(3):
        inner[k] = given(op, flat, k)
    if not isinstance(<object>inner[0], Tensor) or not isinstance(<object>inner[1], Tensor):
        return NotImplemented
    t, mask = <Tensor>inner[0], <Tensor>inner[1]
    # The result is contiguous, as PyTorch's, which programs view.
    if out is None and not t.flags & CONTIGUOUS:
        return NotImplemented
    if holds_other(t) or holds_other(mask) or mask.dtype_.index != BOOL or (t.flags | mask.flags) & PY_DISPATCH \
            or KIND[t.dtype_.index] != KIND_FLOAT or ITEMSIZE[t.dtype_.index] == 1 \
            or not small_for_halves(<object>inner[2]):
        return NotImplemented
    return call_inner(lookup_op("_masked_fill"), inner, out, out is not None)


cdef object stacked(Op op, PyObject** flat):
    """The stack along the first dimension of contiguous tensors: them one after the other, without a view of each."""
    cdef PyObject* inner[MAX_PARAMS]
    cdef list tensors = <list>given(op, flat, 0)
    cdef Tensor first, t
    if <object>given(op, flat, 1) != 0 or not tensors:
        return NotImplemented
    first = tensors[0]
    if first.ndim_ == 0 or first.ndim_ == MAX_DIMS:
        return NotImplemented
    for member in tensors:
        t = member
        if not t.flags & CONTIGUOUS or t.flags & PY_DISPATCH or holds_other(t) or t.ndim_ != first.ndim_ \
                or memcmp(t.shape_, first.shape_, first.ndim_ * sizeof(int64_t)) != 0:
            return NotImplemented
    inner[0], inner[1] = given(op, flat, 0), given(op, flat, 1)
    joined = call_inner(lookup_op("cat"), inner, None, False)
    if not (<Tensor>joined).flags & CONTIGUOUS:
        return NotImplemented
    size = (len(tensors),) + shape_of(first)
    inner[0], inner[1] = <PyObject*>joined, <PyObject*>size
    return call_inner(lookup_op("_unsafe_view"), inner, None, False)


cdef object empty_of_size(Op op, PyObject** flat):
    """An uninitialised tensor of plain sizes: no layout, gradient, memory format or out= is asked for."""
    if given(op, flat, 5) != Py_None_ptr or given(op, flat, 6) != Py_None_ptr:
        return NotImplemented
    return sized(op, flat, NULL, NULL)


cdef object sized(Op op, PyObject** flat, PyObject* dt, PyObject* place):
    """The same for the parameters that the C implementations of all factories of a size begin with.

    A dtype and a device stand for those that are not asked for; NULL: the default ones.
    """
    cdef int64_t shape[MAX_DIMS]
    cdef PyObject* size = given(op, flat, 0)
    cdef Py_ssize_t d, n
    if given(op, flat, 2) != Py_None_ptr or <object>given(op, flat, 4) is not False:
        return NotImplemented
    if not plain_ints(size):
        return NotImplemented
    n = PyTuple_GET_SIZE(<object>size)
    if n > MAX_DIMS:
        return NotImplemented
    for d in range(n):
        shape[d] = <object>PyTuple_GET_ITEM(<object>size, d)
        if shape[d] < 0:
            return NotImplemented
    if given(op, flat, 1) != Py_None_ptr:
        dt = given(op, flat, 1)
    if place == NULL or given(op, flat, 3) != Py_None_ptr:
        place = given(op, flat, 3)
    return empty_contiguous(<int>n, shape, default_dtype if dt == NULL else (<dtype>dt).index,
                            runtime_of(<object>place))


cdef object filled_of_size(Op op, PyObject** flat, bint ones):
    """Zeros or ones of plain sizes."""
    if given(op, flat, 5) != Py_None_ptr:
        return NotImplemented
    made = sized(op, flat, NULL, NULL)
    return made if made is NotImplemented else filled(<Tensor>made, ones)


cdef object made_beside(Op op, Tensor t, PyObject** flat):
    """A tensor of plain sizes with the dtype and device of another, where no others are asked for."""
    cdef object place = t.storage_.dev.device
    made = sized(op, flat, DTYPES[t.dtype_.index], <PyObject*>place)
    if made is NotImplemented or op.shortcut == SHORT_NEW_EMPTY:
        return made
    return filled(<Tensor>made, op.shortcut == SHORT_NEW_ONES)


cdef object drawn_of_size(Op op, PyObject** flat):
    """Random numbers of plain sizes, where no result to write to is given."""
    cdef PyObject* inner[MAX_PARAMS]
    cdef object zero = 0, low = 0.0, high = 1.0
    cdef bint integers = op.shortcut > SHORT_RANDN
    if given(op, flat, 6) != Py_None_ptr:
        return NotImplemented
    made = sized(op, flat, DTYPES[INT64] if integers else NULL, NULL)
    if made is NotImplemented:
        return made
    inner[0], inner[3] = <PyObject*>made, given(op, flat, 5)
    inner[1], inner[2] = <PyObject*>low, <PyObject*>high
    if integers:
        inner[1] = given(op, flat, 8) if op.shortcut == SHORT_RANDINT else <PyObject*>zero
        inner[2] = given(op, flat, 7)
    inner[4] = inner[5] = Py_None_ptr
    name = "random_between_" if integers else "uniform_" if op.shortcut == SHORT_RAND else "normal_"
    return as_new(<Tensor?>call_inner(lookup_op(name), inner, None, False))


cdef object filled_like(Op op, Tensor t, PyObject** flat, bint ones):
    """Zeros or ones like a contiguous tensor, where it is asked for no more than another dtype."""
    if not t.flags & CONTIGUOUS or t.flags & (CONJ | NEG) or given(op, flat, 2) != Py_None_ptr \
            or given(op, flat, 3) != Py_None_ptr or <object>given(op, flat, 4) is not False \
            or given(op, flat, 5) != Py_None_ptr:
        return NotImplemented
    return filled(empty_contiguous(t.ndim_, t.shape_, t.dtype_.index if given(op, flat, 1) == Py_None_ptr else
                                   (<dtype>given(op, flat, 1)).index, t.storage_.dev), ones)


cdef Tensor filled(Tensor t, bint ones):
    """Write zeros or ones into a new tensor, which counts as filled when it was made."""
    cdef object one = 1
    if not ones and t.storage_.data != NULL:
        fill_zero(t)
        return t
    lookup_op("fill_")(t, one if ones else 0)
    return as_new(t)


cdef tuple shape_of(Tensor t):
    return tuple([t.shape_[d] for d in range(t.ndim_)])


cdef tuple flattened(Op op, Tensor t, PyObject** flat):
    """The size after merging dimensions; None where `flatten` has to decide."""
    cdef int start = <object>given(op, flat, 1), end = <object>given(op, flat, 2), d
    cdef int64_t merged = 1
    if start >= end or end >= t.ndim_:
        return None
    for d in range(start, end + 1):
        merged *= t.shape_[d]
    size = [t.shape_[d] for d in range(start)]
    size.append(merged)
    for d in range(end + 1, t.ndim_):
        size.append(t.shape_[d])
    return tuple(size)


cdef tuple inferred(Tensor t, tuple size):
    """The size with -1 replaced; None where it does not fit and `reshape` has to say why."""
    cdef int64_t known = 1, extent
    cdef int unknown = -1, i
    for i in range(<int>len(size)):
        item = size[i]
        if type(item) is not int:
            return None
        extent = item
        if extent < 0:
            if extent != -1 or unknown >= 0:
                return None
            unknown = i
        elif __builtin_mul_overflow(known, extent, &known):
            return None
    if unknown < 0:
        return size if known == t.numel_ else None
    if known == 0 or t.numel_ % known:
        return None
    return size[:unknown] + (t.numel_ // known,) + size[unknown + 1:]


cdef Op power_of_number(Op op, PyObject** flat):
    """The op that computes a tensor's power of a number without a logarithm; None: there is none.

    These are products and roots also in PyTorch, down to the last bit.
    """
    cdef Tensor t
    cdef int kind
    cdef double exponent
    cdef PyObject* number = given(op, flat, 1)
    if not isinstance(<object>given(op, flat, 0), Tensor):
        return None
    t = <Tensor>given(op, flat, 0)
    kind = KIND[t.dtype_.index]
    if isinstance(<object>number, bool):
        return lookup_op("_bool_power") if kind == KIND_BOOL else None
    if not PyLong_CheckExact(<object>number) and not PyFloat_CheckExact(<object>number):
        return None
    if PyLong_CheckExact(<object>number):
        # As objects: a large number fits no C integer.
        if kind != KIND_FLOAT:
            return lookup_op("square") if kind != KIND_BOOL and <object>number == 2 else None
        exponent = 2 if <object>number == 2 else 3 if <object>number == 3 else -1 if <object>number == -1 else 0
    elif kind != KIND_FLOAT:
        return None
    else:
        exponent = PyFloat_AS_DOUBLE(<object>number)
    if exponent == 2:
        return lookup_op("square")
    if exponent == 3:
        return lookup_op("_cube")
    if exponent == 0.5:
        return lookup_op("sqrt")
    if exponent == -0.5:
        return lookup_op("rsqrt")
    return lookup_op("reciprocal") if exponent == -1 else None
