# Shape rules in C of the ops that small models call most: the plain case of what their definitions
# check and say, and nothing where a definition would have to decide.

cdef enum:
    PLAIN_NONE = 0
    PLAIN_MM = 1
    PLAIN_BMM = 2
    PLAIN_MV = 3
    PLAIN_DOT = 4
    PLAIN_LINEAR = 5
    PLAIN_SAME = 6
    PLAIN_CAT = 7
    PLAIN_LAYER_NORM = 8
    PLAIN_ALIKE = 9
    PLAIN_NLL = 10                      # this and those behind take indices
    PLAIN_INDEX_SELECT = 11
    PLAIN_GATHER = 12
    PLAIN_SCATTER = 13
    PLAIN_COPY = 14                     # computed by the core itself


cdef bint alike(Tensor t, Tensor first) noexcept:
    """Whether a tensor is as plain as the first: its device and dtype, nothing left to resolve."""
    return t.storage_.dev is first.storage_.dev and t.dtype_ is first.dtype_ and not t.flags & (CONJ | NEG)


cdef int plain_shape(Op op, PyObject** flat, Tensor first, int64_t* shape) except -2:
    """Write the shape of the result and return its rank, or -1 where the definition has to be asked."""
    cdef Tensor a = first, b, c
    cdef int d, dim
    cdef int64_t total = 0
    if first.flags & (CONJ | NEG):
        return -1
    if op.plain >= PLAIN_NLL:
        return plain_indexed(op, flat, first, shape)
    if op.plain == PLAIN_CAT:
        dim = <object>given(op, flat, 1)
        if a.ndim_ == 0 or dim < 0 or dim >= a.ndim_:
            return -1
        memcpy(shape, a.shape_, a.ndim_ * sizeof(int64_t))
        for member in <list>given(op, flat, 0):
            b = member
            if not alike(b, a) or b.ndim_ != a.ndim_ or not b.flags & CONTIGUOUS:
                return -1
            for d in range(a.ndim_):
                if d != dim and b.shape_[d] != a.shape_[d]:
                    return -1
            total += b.shape_[dim]
        shape[dim] = total
        return a.ndim_
    if KIND[first.dtype_.index] != KIND_FLOAT:
        return -1
    if op.plain == PLAIN_LAYER_NORM:
        return plain_layer_norm(op, flat, first, shape)
    if op.plain == PLAIN_SAME:
        memcpy(shape, a.shape_, a.ndim_ * sizeof(int64_t))
        return a.ndim_
    if not isinstance(<object>given(op, flat, 1), Tensor):
        return -1
    b = <Tensor>given(op, flat, 1)
    if not alike(b, a):
        return -1
    if op.plain == PLAIN_ALIKE:
        if b.ndim_ != a.ndim_ or memcmp(b.shape_, a.shape_, a.ndim_ * sizeof(int64_t)) != 0:
            return -1
        memcpy(shape, a.shape_, a.ndim_ * sizeof(int64_t))
        return a.ndim_
    if op.plain == PLAIN_MM:
        if a.ndim_ != 2 or b.ndim_ != 2 or a.shape_[1] != b.shape_[0]:
            return -1
        shape[0], shape[1] = a.shape_[0], b.shape_[1]
        return 2
    if op.plain == PLAIN_BMM:
        if a.ndim_ != 3 or b.ndim_ != 3 or a.shape_[0] != b.shape_[0] or a.shape_[2] != b.shape_[1]:
            return -1
        shape[0], shape[1], shape[2] = a.shape_[0], a.shape_[1], b.shape_[2]
        return 3
    if op.plain == PLAIN_MV:
        if a.ndim_ != 2 or b.ndim_ != 1 or a.shape_[1] != b.shape_[0]:
            return -1
        shape[0] = a.shape_[0]
        return 1
    if op.plain == PLAIN_DOT:
        return 0 if a.ndim_ == 1 and b.ndim_ == 1 and a.shape_[0] == b.shape_[0] else -1
    if a.ndim_ < 1 or b.ndim_ != 2 or a.shape_[a.ndim_ - 1] != b.shape_[1]:
        return -1
    if given(op, flat, 2) != Py_None_ptr:
        c = <Tensor>given(op, flat, 2)
        if not alike(c, a) or c.ndim_ != 1 or c.shape_[0] != b.shape_[0]:
            return -1
    memcpy(shape, a.shape_, (a.ndim_ - 1) * sizeof(int64_t))
    shape[a.ndim_ - 1] = b.shape_[0]
    return a.ndim_


cdef int plain_layer_norm(Op op, PyObject** flat, Tensor x, int64_t* shape) except -2:
    """The normalized dimensions are the last, and the weights have their shape."""
    cdef tuple normalized = <tuple>given(op, flat, 1)
    cdef int n = <int>len(normalized), d, p
    cdef Tensor w
    if n == 0 or n > x.ndim_ or x.numel_ == 0:
        return -1
    for d in range(n):
        if normalized[d] != x.shape_[x.ndim_ - n + d]:
            return -1
    for p in (2, 3):
        if given(op, flat, p) != Py_None_ptr:
            w = <Tensor>given(op, flat, p)
            if not alike(w, x) or w.ndim_ != n or memcmp(w.shape_, x.shape_ + x.ndim_ - n, n * sizeof(int64_t)) != 0:
                return -1
    memcpy(shape, x.shape_, x.ndim_ * sizeof(int64_t))
    return x.ndim_


cdef int plain_indexed(Op op, PyObject** flat, Tensor x, int64_t* shape) except -2:
    """Classes or places given by an int64 tensor on the same device."""
    cdef Tensor index = <Tensor>given(op, flat, 1 if op.plain == PLAIN_NLL else 2)
    cdef int d, dim
    if index.storage_.dev is not x.storage_.dev or index.dtype_.index != INT64 or x.ndim_ == 0:
        return -1
    if op.plain == PLAIN_NLL:
        if KIND[x.dtype_.index] != KIND_FLOAT or given(op, flat, 2) != Py_None_ptr or index.ndim_ != x.ndim_ - 1 \
                or index.ndim_ == 0 or index.shape_[0] != x.shape_[0] \
                or memcmp(index.shape_ + 1, x.shape_ + 2, (index.ndim_ - 1) * sizeof(int64_t)) != 0:
            return -1
        memcpy(shape, index.shape_, index.ndim_ * sizeof(int64_t))
        return index.ndim_
    dim = <object>given(op, flat, 1)
    if dim < 0 or dim >= x.ndim_:
        return -1
    if op.plain == PLAIN_INDEX_SELECT:
        if index.ndim_ != 1:
            return -1
        memcpy(shape, x.shape_, x.ndim_ * sizeof(int64_t))
        shape[dim] = index.shape_[0]
        return x.ndim_
    if index.ndim_ != x.ndim_:
        return -1
    for d in range(x.ndim_):
        if d != dim and index.shape_[d] > x.shape_[d]:
            return -1
    if op.plain == PLAIN_SCATTER:
        return plain_scatter(index, <Tensor>given(op, flat, 3), x, shape)
    memcpy(shape, index.shape_, x.ndim_ * sizeof(int64_t))
    return x.ndim_


cdef int plain_scatter(Tensor index, Tensor src, Tensor x, int64_t* shape) noexcept:
    """Values for all places of the index."""
    cdef int d
    if not alike(src, x) or src.ndim_ != x.ndim_ or index.numel_ == 0:
        return -1
    for d in range(x.ndim_):
        if index.shape_[d] > src.shape_[d]:
            return -1
    memcpy(shape, x.shape_, x.ndim_ * sizeof(int64_t))
    return x.ndim_


cdef object run_plain(Op op, PyObject** flat):
    """Run an op in its plain case by a call kernel; None where it is not, or there is no such kernel."""
    cdef int64_t shape[MAX_DIMS]
    cdef PyObject* x = given(op, flat, 0)
    cdef Tensor first, o
    cdef tg_kernel* kernel
    cdef int ndim, d
    if op.plain == PLAIN_COPY:
        if given(op, flat, 2) != Py_None_ptr or given(op, flat, 3) != Py_None_ptr or (<Tensor>x).flags & (CONJ | NEG):
            return None
        return converted(<Tensor>x, (<dtype>given(op, flat, 1)).index if given(op, flat, 1) != Py_None_ptr else
                         (<Tensor>x).dtype_.index, (<Tensor>x).storage_.dev)
    if op.list_param == 0:
        if len(<list>x) == 0:
            return None
        x = PyList_GET_ITEM(<object>x, 0)
    if not isinstance(<object>x, Tensor):
        return None
    first = <Tensor>x
    ndim = plain_shape(op, flat, first, shape)
    if ndim < 0:
        return None
    kernel = find_kernel(op, first.storage_.dev.slot, first.dtype_.index)
    if kernel.kind != KERNEL_CALL:
        return None
    o = empty_contiguous(ndim, shape, first.dtype_.index, first.storage_.dev)
    if op.nout == 1:
        return None if call_c_kernel(op, kernel, first.storage_.dev, (o,), flat) == TG_DECLINED else o
    if op.plain == PLAIN_LAYER_NORM:
        for d in range(ndim - <int>len(<tuple>given(op, flat, 1)), ndim):
            shape[d] = 1
    outs = [o]
    for d in range(1, op.nout):
        outs.append(empty_contiguous(ndim, shape, first.dtype_.index, first.storage_.dev))
    if call_c_kernel(op, kernel, first.storage_.dev, outs, flat) == TG_DECLINED:
        return None
    return tuple(outs) if op.return_type is None else op.return_type(*outs)
