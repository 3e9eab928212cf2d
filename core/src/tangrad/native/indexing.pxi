# Indexing: the forms that programs use most, in C. Every other form, and what is wrong, is `tensor/indexing.py`'s.

cdef object _getitem_hook = None
cdef object _setitem_hook = None
cdef Op OP_SELECT = None
cdef Op OP_SLICE = None
cdef Op OP_UNSQUEEZE = None
cdef Op OP_INDEX = None
cdef Op OP_INDEX_PUT = None
cdef Op OP_MASKED_FILL = None
cdef Op OP_MASKED_SELECT = None
cdef Op OP_FILL = None
cdef Op OP_COPY = None

cdef enum:
    MAX_INDICES = 16

cdef struct tg_index:
    int ndim                             # the view that integers, slices, None and ... leave
    int64_t offset
    int64_t shape[MAX_DIMS]
    int64_t stride[MAX_DIMS]
    bint moved                           # whether it is another than the tensor itself
    int first, picked                    # its dimensions that are indexed by tensors, neighbours all
    PyObject* tensors[MAX_INDICES]


def set_indexing(getitem, setitem):
    """Install the general indexing functions."""
    global _getitem_hook, _setitem_hook
    _getitem_hook, _setitem_hook = getitem, setitem


def _install_indexing():
    from tangrad.tensor import install_indexing
    install_indexing()


cdef inline PyObject** tuple_items(object items) noexcept:
    return (<PyTupleObject*>items).ob_item


cdef inline bint plain_bound(PyObject* x) noexcept:
    return x == Py_None_ptr or PyLong_CheckExact(<object>x)


cdef inline bint plain_slice(object index) noexcept:
    """Whether a slice has Python ints for its ends and a step that goes forward."""
    cdef PySliceObject* s = <PySliceObject*>index
    cdef int overflow = 0
    if not plain_bound(s.start) or not plain_bound(s.stop) or not plain_bound(s.step):
        return False
    return s.step == Py_None_ptr or PyLong_AsLongLongAndOverflow(<object>s.step, &overflow) > 0


cdef inline bint plain_positions(PyObject* item, Tensor t) noexcept:
    """Whether an index is a tensor as the kernels want it: int64, with dimensions, where the indexed one is."""
    cdef Tensor x
    if not exact_tensor(item):
        return False
    x = <Tensor>item
    return x.dtype_.index == INT64 and x.ndim_ > 0 and x.storage_.dev is t.storage_.dev and x.level_ is None \
        and not x.flags & PY_DISPATCH


cdef inline int keep_dimension(tg_index* v, int64_t size, int64_t stride) noexcept:
    v.shape[v.ndim], v.stride[v.ndim] = size, stride
    v.ndim += 1
    return v.ndim


cdef bint read_slice(Tensor t, int d, object index, tg_index* v) except -1:
    cdef PySliceObject* s = <PySliceObject*>index
    cdef int64_t size = t.shape_[d], step = 1 if s.step == Py_None_ptr else <object>s.step, start, stop
    start = 0 if s.start == Py_None_ptr else clamp_index(<object>s.start, size)
    stop = size if s.stop == Py_None_ptr else clamp_index(<object>s.stop, size)
    stop = start if stop < start else stop
    v.offset += start * t.stride_[d]
    v.moved = v.moved or start != 0 or stop != size or step != 1
    keep_dimension(v, 0 if stop == start else (stop - start - 1) // step + 1, t.stride_[d] * step)
    return True


cdef int consumed_by(Tensor t, PyObject** items, Py_ssize_t n) noexcept:
    """How many dimensions indices stand for; -1: there are others than the usual ones."""
    cdef int consumed = 0, ellipses = 0
    cdef Py_ssize_t i
    for i in range(n):
        if items[i] == Py_None_ptr:
            continue
        if items[i] == Py_Ellipsis_ptr:
            ellipses += 1
        elif PyLong_CheckExact(<object>items[i]) or PySlice_Check(<object>items[i]) and plain_slice(<object>items[i]) \
                or plain_positions(items[i], t):
            consumed += 1
        else:
            return -1
    return consumed if ellipses < 2 and consumed <= t.ndim_ and t.ndim_ + n <= MAX_DIMS else -1


cdef bint read_indices(Tensor t, PyObject** items, Py_ssize_t n, tg_index* v) except -1:
    """Work out what indices mean; False where they are not usual, or wrong."""
    cdef int consumed, d = 0, k, overflow = 0
    cdef Py_ssize_t i
    cdef int64_t place
    cdef PyObject* item
    if n > MAX_INDICES:
        return False
    consumed = consumed_by(t, items, n)
    if consumed < 0:
        return False
    v.ndim, v.offset, v.moved, v.picked = 0, t.offset_, False, 0
    for i in range(n):
        item = items[i]
        if item == Py_None_ptr:
            keep_dimension(v, 1, t.shape_[d] * t.stride_[d] if d < t.ndim_ else 1)
            v.moved = True
        elif item == Py_Ellipsis_ptr:
            for k in range(t.ndim_ - consumed):
                keep_dimension(v, t.shape_[d], t.stride_[d])
                d += 1
        elif PyLong_CheckExact(<object>item):
            place = PyLong_AsLongLongAndOverflow(<object>item, &overflow)
            if overflow or place < -t.shape_[d] or place >= t.shape_[d]:
                return False
            v.offset += (place + t.shape_[d] if place < 0 else place) * t.stride_[d]
            v.moved = True
            d += 1
        elif PySlice_Check(<object>item):
            read_slice(t, d, <object>item, v)
            d += 1
        else:
            if v.picked == 0:
                v.first = v.ndim
            elif v.first + v.picked != v.ndim or not same_shape(<Tensor>v.tensors[0], <Tensor>item):
                return False
            v.tensors[v.picked] = item
            v.picked += 1
            keep_dimension(v, t.shape_[d], t.stride_[d])
            d += 1
    while d < t.ndim_:
        keep_dimension(v, t.shape_[d], t.stride_[d])
        d += 1
    return True


cdef inline bint same_shape(Tensor a, Tensor b) noexcept:
    return a.ndim_ == b.ndim_ and memcmp(a.shape_, b.shape_, a.ndim_ * sizeof(int64_t)) == 0


cdef Tensor indexed_view(Tensor t, PyObject** items, Py_ssize_t n, tg_index* v):
    """The view of a tensor before tensors index it: made at once, or op by op where that is recorded or observed."""
    cdef Tensor view
    if tg_tls.grad_enabled and requires_grad(t) or v.moved and tg_tls.intercept != NULL:
        return viewed_by_ops(t, items, n, v)
    view = alias_geometry(t, v.ndim, v.offset)
    memcpy(view.shape_, v.shape, v.ndim * sizeof(int64_t))
    memcpy(view.stride_, v.stride, v.ndim * sizeof(int64_t))
    finish_alias(view, t)
    mark_view(view, t)
    return view


cdef int load_views() except -1:
    global OP_SELECT, OP_SLICE, OP_UNSQUEEZE
    OP_SELECT, OP_SLICE, OP_UNSQUEEZE = lookup_op("select"), lookup_op("slice"), lookup_op("unsqueeze")
    return 0


cdef Tensor viewed_by_ops(Tensor t, PyObject** items, Py_ssize_t n, tg_index* v):
    cdef PyObject* flat[5]
    cdef object view = t, dim, step
    cdef PySliceObject* s
    cdef PyObject* item
    cdef Py_ssize_t i
    cdef int d = 0
    if OP_SELECT is None:
        load_views()
    for i in range(n):
        item = items[i]
        dim = d
        flat[0], flat[1] = <PyObject*>view, <PyObject*>dim
        if item == Py_None_ptr:
            view = call_inner(OP_UNSQUEEZE, flat, None, False)
            d += 1
        elif item == Py_Ellipsis_ptr:
            d += t.ndim_ - consumed_by(t, items, n)
        elif PyLong_CheckExact(<object>item):
            flat[2] = item
            view = call_inner(OP_SELECT, flat, None, False)
        else:
            if PySlice_Check(<object>item) and not whole((<Tensor>view).shape_[d], <PySliceObject*>item):
                s = <PySliceObject*>item
                step = 1 if s.step == Py_None_ptr else <object>s.step
                flat[2], flat[3], flat[4] = s.start, s.stop, <PyObject*>step
                view = call_inner(OP_SLICE, flat, None, False)
            d += 1
    return <Tensor>view


cdef bint whole(int64_t size, PySliceObject* s) except -1:
    """Whether a slice is all of a dimension."""
    if s.step != Py_None_ptr and <object>s.step != 1:
        return False
    return (s.start == Py_None_ptr or clamp_index(<object>s.start, size) == 0) \
        and (s.stop == Py_None_ptr or clamp_index(<object>s.stop, size) == size)


cdef inline list lowered(tg_index* v):
    """The indices as the kernels see them: a tensor or None per leading dimension."""
    cdef int i
    cdef list indices = [None] * v.first
    for i in range(v.picked):
        indices.append(<object>v.tensors[i])
    return indices


cdef inline bint open_to_indexing(Tensor t) noexcept:
    """Whether nothing stands between a tensor and its views."""
    return not standing() and exact_tensor(<PyObject*>t) and t.level_ is None \
        and not t.flags & PY_DISPATCH


cdef object positions_of(Tensor t, list numbers):
    """A list of ints as the tensor that it stands for where the host reaches the indexed one; None otherwise."""
    cdef int64_t n = PyList_GET_SIZE(numbers), i
    cdef int overflow = 0
    cdef int64_t* positions
    cdef Tensor made
    if n == 0 or t.storage_.data == NULL:
        return None
    for i in range(n):
        if not PyLong_CheckExact(<object>PyList_GET_ITEM(numbers, i)):
            return None
    made = empty_contiguous(1, &n, INT64, t.storage_.dev)
    positions = <int64_t*>host_pointer(made)
    for i in range(n):
        positions[i] = PyLong_AsLongLongAndOverflow(<object>PyList_GET_ITEM(numbers, i), &overflow)
        if overflow:
            return None
    return made


cdef tuple with_positions(Tensor t, PyObject** items, Py_ssize_t n):
    """Indices with tensors in place of lists of ints; None where there are none, or other lists."""
    cdef Py_ssize_t i
    cdef list replaced = None
    for i in range(n):
        if not PyList_CheckExact(<object>items[i]):
            continue
        positions = positions_of(t, <list>items[i])
        if positions is None:
            return None
        if replaced is None:
            replaced = [<object>items[k] for k in range(n)]
        replaced[i] = positions
    return None if replaced is None else tuple(replaced)


cdef object tensor_getitem(Tensor t, object index):
    if not open_to_indexing(t):
        return general_getitem(t, index)
    return usual_getitem(t, index)


cdef inline object usual_getitem(Tensor t, object index):
    """Index a tensor that nothing stands between."""
    global OP_INDEX, OP_MASKED_SELECT
    cdef PyObject* flat[5]
    cdef PyObject* one = <PyObject*>index
    cdef bint several = PyTuple_CheckExact(index)
    cdef PyObject** items = tuple_items(index) if several else &one
    cdef Py_ssize_t n = PyTuple_GET_SIZE(index) if several else 1
    cdef tg_index v
    cdef list indices
    if read_indices(t, items, n, &v):
        if v.picked == 0 and (v.moved or not tg_tls.grad_enabled or not requires_grad(t)):
            return indexed_view(t, items, n, &v)
        if v.picked:
            view = indexed_view(t, items, n, &v) if v.moved else t
            if OP_INDEX is None:
                OP_INDEX = lookup_op("index")
            indices = lowered(&v)
            flat[0], flat[1] = <PyObject*>view, <PyObject*>indices
            return call_inner(OP_INDEX, flat, None, False)
    if not several and is_mask_of(index, t) and not (tg_tls.grad_enabled and requires_grad(t)):
        if OP_MASKED_SELECT is None:
            OP_MASKED_SELECT = lookup_op("masked_select")
        return OP_MASKED_SELECT(t, index)
    replaced = with_positions(t, items, n)
    return general_getitem(t, index) if replaced is None else usual_getitem(t, replaced)


cdef object general_getitem(Tensor t, object index):
    if taken(<PyObject*>t) or takes_over(<PyObject*>index):
        found = offer_member("__getitem__", (t, index))
        if found is not NotImplemented:
            return found
    if _getitem_hook is None:
        _install_indexing()
    return _getitem_hook(t, index)


cdef object tensor_setitem(Tensor t, object index, object value):
    if open_to_indexing(t) and assigned(t, index, value):
        return None
    if taken(<PyObject*>t) or takes_over(<PyObject*>index) or takes_over(<PyObject*>value):
        if offer_member("__setitem__", (t, index, value)) is not NotImplemented:
            return None
    if _setitem_hook is None:
        _install_indexing()
    return _setitem_hook(t, index, value)


cdef bint assigned(Tensor t, object index, object value) except -1:
    """Assign where index and value are usual, and say whether they were."""
    global OP_FILL, OP_COPY
    cdef PyObject* one = <PyObject*>index
    cdef bint several = PyTuple_CheckExact(index)
    cdef PyObject** items = tuple_items(index) if several else &one
    cdef Py_ssize_t n = PyTuple_GET_SIZE(index) if several else 1
    cdef bint number = PyFloat_CheckExact(value) or PyLong_CheckExact(value) or PyBool_Check(value)
    cdef Tensor view
    cdef tg_index v
    if not number and not (exact_tensor(<PyObject*>value) and open_to_indexing(<Tensor>value)):
        return False
    if number and is_mask_of(index, t):
        return assigned_where(t, index, value)
    if not read_indices(t, items, n, &v):
        replaced = with_positions(t, items, n)
        return replaced is not None and assigned(t, replaced, value)
    if v.picked:
        return assigned_at(t, items, n, &v, value)
    view = indexed_view(t, items, n, &v)
    if number:
        if ITEMSIZE[t.dtype_.index] == 2 and not small_for_halves(value):
            return False
        if OP_FILL is None:
            OP_FILL = lookup_op("fill_")
        OP_FILL(view, value)
        return True
    if not same_shape(view, <Tensor>value):
        return False
    if OP_COPY is None:
        OP_COPY = lookup_op("copy_")
    OP_COPY(view, value)
    return True


cdef inline bint is_mask_of(object index, Tensor t) noexcept:
    """Whether an index is a mask of all of a tensor that is open to indexing."""
    return exact_tensor(<PyObject*>index) and (<Tensor>index).dtype_.index == BOOL and t.ndim_ > 0 \
        and same_shape(<Tensor>index, t) and (<Tensor>index).storage_.dev is t.storage_.dev \
        and (<Tensor>index).level_ is None and not (<Tensor>index).flags & PY_DISPATCH


cdef inline bint takes_number(Tensor t, object value) noexcept:
    """Whether a number becomes an element without a rule to ask, and nothing is recorded."""
    return small_for_halves(value) and KIND[t.dtype_.index] == KIND_FLOAT and ITEMSIZE[t.dtype_.index] > 1 \
        and t.storage_.data != NULL and not (tg_tls.grad_enabled and requires_grad(t))


cdef inline bint small_for_halves(object value) noexcept:
    """Whether every floating dtype of two bytes or more has a place for a number: not finite, or not large."""
    cdef double number
    cdef int overflow = 0
    if PyFloat_CheckExact(value):
        number = PyFloat_AS_DOUBLE(value)
        return not (number > 65504 or number < -65504) or number - number != 0
    if not PyLong_CheckExact(value):
        return False
    return -65504 <= PyLong_AsLongLongAndOverflow(value, &overflow) <= 65504 and overflow == 0


cdef bint assigned_where(Tensor t, object mask, object value) except -1:
    global OP_MASKED_FILL
    if not takes_number(t, value):
        return False
    if OP_MASKED_FILL is None:
        OP_MASKED_FILL = lookup_op("masked_fill_")
    OP_MASKED_FILL(t, mask, value)
    return True


cdef bint assigned_at(Tensor t, PyObject** items, Py_ssize_t n, tg_index* v, object value) except -1:
    """Assign at places given by tensors: a number, or a tensor whose dtype and device fit."""
    global OP_INDEX_PUT
    cdef PyObject* flat[4]
    cdef Tensor written = None
    cdef object target = t, accumulate = False
    cdef list indices
    if not isinstance(value, Tensor):
        if not takes_number(t, value):
            return False
        written = empty_contiguous(0, t.shape_, t.dtype_.index, t.storage_.dev)
        encode_scalar(value, t.dtype_.index, host_pointer(written))
    else:
        written = <Tensor>value
        if written.dtype_ is not t.dtype_ or written.storage_.dev is not t.storage_.dev or written.ndim_ > v.ndim \
                or written.ndim_ and written.shape_[0] == 1:
            return False
    if v.moved:
        target = indexed_view(t, items, n, v)
    if OP_INDEX_PUT is None:
        OP_INDEX_PUT = lookup_op("_index_put_")
    indices = lowered(v)
    flat[0], flat[1], flat[2], flat[3] = <PyObject*>target, <PyObject*>indices, <PyObject*>written, \
        <PyObject*>accumulate
    call_inner(OP_INDEX_PUT.functional, flat, target, True)
    return True
