# Views: geometry in C for the hot ones, by the definition's rule for the rest.

cdef enum:
    VIEW_TRANSPOSE = 1
    VIEW_T = 2
    VIEW_SELECT = 3
    VIEW_SLICE = 4
    VIEW_UNSQUEEZE = 5
    VIEW_PERMUTE = 6
    VIEW_EXPAND = 7
    VIEW_VIEW = 8
    VIEW_STRIDED = 9
    VIEW_SQUEEZE = 10
    VIEW_DIAGONAL = 11
    VIEW_UNFOLD = 12
    VIEW_DETACH = 13
    VIEW_PARTS = 14
    VIEW_SPLIT = 20                      # this and those behind give several views
    VIEW_PIECES = 21
    VIEW_UNBIND = 22


cdef object call_view(Op op, PyObject** flat, uint64_t needs, bint inplace):
    cdef Tensor src = <Tensor>flat[0], t
    cdef Node node = None
    cdef list views
    if needs and not src.flags & INFERENCE:  # whose views are such tensors again
        node = record_inputs(op, flat, needs)
    if op.native_view >= VIEW_SPLIT:
        views = native_views(op, flat, src)
        if views is not None:
            return finish_views(op, src, views, node)
    elif op.native_view:
        t = native_view(op, flat, src)
        if t is not None:
            if inplace:
                return adopt_geometry(op, src, t, node)
            if op.has_rule and not op.forgets_base:
                mark_view(t, src)
            if node is not None:
                set_output_meta(node, t)
                attach(node, t, 0)
            return t
    if inplace:
        return adopt_geometry(op, src, view_by_rule(op, flat, src, None), node)
    return view_by_rule(op, flat, src, node)


cdef Tensor adopt_geometry(Op op, Tensor src, Tensor view, Node node):
    """The in-place form of a view op: the tensor itself takes the view's geometry."""
    check_inference(src, op.inplace.title)
    if tg_tls.grad_enabled:
        check_writable(src, op.inplace.title, node is not None)
    set_geometry(src, view.ndim_, view.shape_, view.stride_, view.offset_)
    bump_version(src, op.inplace.title)
    if node is not None:
        set_output_meta(node, src)
        attach(node, src, 0)
        src.flags &= ~<uint32_t>REQUIRES_GRAD
    return src


cdef inline void mark_view(Tensor t, Tensor src):
    if src.flags & INFERENCE:  # tracks neither versions nor views
        return
    t.base_ = src if src.base_ is None else src.base_
    t.view_version = version_of(t)
    t.flags |= src.flags & (NO_GRAD_VIEW | MULTI_VIEW | INFERENCE_VIEW)
    if not tg_tls.grad_enabled and not tg_tls.below_autograd:
        t.flags |= NO_GRAD_VIEW | (INFERENCE_VIEW if tg_tls.inference else 0)


cdef object view_by_rule(Op op, PyObject** flat, Tensor src, Node node):
    cdef int i
    cdef Tensor t
    args = tuple([<object>flat[i] for i in range(op.nparams)])
    op.definition.check_arguments(args)
    geometry = op.definition.view_geometry(args)
    if isinstance(geometry, list):
        return finish_views(op, src, [view_of_geometry(op, src, g) for g in geometry], node)
    t = view_of_geometry(op, src, geometry)
    if op.has_rule and not op.forgets_base:
        mark_view(t, src)
    if node is not None:
        set_output_meta(node, t)
        attach(node, t, 0)
    return t


cdef object finish_views(Op op, Tensor src, list views, Node node):
    """Let several views of one call know their base and their history."""
    cdef Tensor t
    for t in views:
        mark_view(t, src)
        t.flags |= MULTI_VIEW
    if node is not None and views:
        connect_outputs(node, views)
    return tuple(views)


cdef Tensor view_of_geometry(Op op, Tensor src, tuple geometry):
    """Make the view (shape, stride, offset[, dtype[, flags]])."""
    cdef Tensor t
    cdef int i, n
    shape, stride, offset = geometry[0], geometry[1], geometry[2]
    n = len(shape)
    t = alias_geometry(src, n, offset)
    if len(geometry) > 3 and geometry[3] is not None:
        t.dtype_ = geometry[3]
    for i in range(n):
        t.shape_[i] = shape[i]
        t.stride_[i] = stride[i]
    count_elements(n, t.shape_)
    finish_alias(t, src)
    if len(geometry) > 4:
        t.flags = (t.flags & ~<uint32_t>(CONJ | NEG)) | <uint32_t>geometry[4]
    if not src.storage_.dev.type.meta and not geometry_within(t, n, t.shape_, t.stride_, t.offset_):
        raise RuntimeError(f"{op.title}: sizes {shape_list(n, t.shape_)}, strides {shape_list(n, t.stride_)}, storage "
                           f"offset {t.offset_} requiring a storage size beyond the {src.storage_.nbytes_} bytes of "
                           "the storage are out of bounds")
    return t


cdef Tensor native_view(Op op, PyObject** flat, Tensor src):
    cdef int which = op.native_view
    if which == VIEW_TRANSPOSE:
        return view_transpose(src, <object>given(op, flat, 1), <object>given(op, flat, 2))
    if which == VIEW_T:
        if src.ndim_ > 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {src.ndim_}D "
                               f"([{describe_tensor(src)}])")
        if src.ndim_ < 2:
            return view_copy_geometry(src)
        return view_transpose(src, 0, 1)
    if which == VIEW_SELECT:
        return view_select(src, <object>given(op, flat, 1), <object>given(op, flat, 2))
    if which == VIEW_SLICE:
        return view_slice(src, <object>given(op, flat, 1), <object>given(op, flat, 2), <object>given(op, flat, 3),
                          <object>given(op, flat, 4))
    if which == VIEW_UNSQUEEZE:
        return view_unsqueeze(src, wrap_dim(<object>given(op, flat, 1), src.ndim_ + 1, op.title))
    if which == VIEW_PERMUTE:
        return view_permute(src, <tuple>given(op, flat, 1))
    if which == VIEW_EXPAND:
        return view_expand(src, <tuple>given(op, flat, 1))
    if which == VIEW_VIEW and isinstance(<object>given(op, flat, 1), tuple):
        return view_view(src, <tuple>given(op, flat, 1))
    if which == VIEW_SQUEEZE:
        return view_squeeze(src, <object>given(op, flat, 1))
    if which == VIEW_DIAGONAL:
        return view_diagonal(src, <object>given(op, flat, 1), <object>given(op, flat, 2), <object>given(op, flat, 3))
    if which == VIEW_STRIDED:
        return view_strided(src, <tuple>given(op, flat, 1), <tuple>given(op, flat, 2), <object>given(op, flat, 3))
    if which == VIEW_UNFOLD:
        return view_unfold(src, <object>given(op, flat, 1), <object>given(op, flat, 2), <object>given(op, flat, 3))
    if which == VIEW_DETACH:
        return view_copy_geometry(src)
    if which == VIEW_PARTS and src.dtype_.kind_ == KIND_COMPLEX and not src.flags & CONJ:
        return view_parts(src)
    return None


cdef list native_views(Op op, PyObject** flat, Tensor src):
    """The views of an op that returns several; None leaves what is wrong to the definition's rule."""
    cdef int dim
    cdef int64_t i
    if src.ndim_ == 0:
        return None
    if op.native_view == VIEW_UNBIND:
        dim = <object>given(op, flat, 1)
        return [view_select(src, dim, i) for i in range(src.shape_[dim])]
    dim = <object>given(op, flat, 2)
    if op.native_view == VIEW_SPLIT:
        return view_split(src, <object>given(op, flat, 1), dim)
    return view_pieces(src, <tuple>given(op, flat, 1), dim)


cdef Tensor view_copy_geometry(Tensor src):
    cdef Tensor t = alias_geometry(src, src.ndim_, src.offset_)
    memcpy(t.shape_, src.shape_, src.ndim_ * sizeof(int64_t))
    memcpy(t.stride_, src.stride_, src.ndim_ * sizeof(int64_t))
    finish_alias(t, src)
    return t


cdef Tensor view_parts(Tensor src):
    """Complex numbers as pairs of real ones, in a last dimension."""
    cdef Tensor t = alias_geometry(src, src.ndim_ + 1, 2 * src.offset_)
    cdef int d
    t.dtype_ = <dtype>DTYPES[REAL_OF[src.dtype_.index]]
    for d in range(src.ndim_):
        t.shape_[d], t.stride_[d] = src.shape_[d], 2 * src.stride_[d]
    t.shape_[src.ndim_], t.stride_[src.ndim_] = 2, 1
    finish_alias(t, src)
    return t


cdef Tensor view_transpose(Tensor src, int d0, int d1):
    cdef Tensor t = alias_geometry(src, src.ndim_, src.offset_)
    memcpy(t.shape_, src.shape_, src.ndim_ * sizeof(int64_t))
    memcpy(t.stride_, src.stride_, src.ndim_ * sizeof(int64_t))
    if src.ndim_:
        t.shape_[d0], t.shape_[d1] = src.shape_[d1], src.shape_[d0]
        t.stride_[d0], t.stride_[d1] = src.stride_[d1], src.stride_[d0]
    finish_alias(t, src)
    return t


cdef Tensor view_select(Tensor src, int dim, int64_t index):
    cdef Tensor t
    cdef int d, k = 0
    cdef int64_t size
    if src.ndim_ == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    size = src.shape_[dim]
    if index < -size or index >= size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {shape_list(src.ndim_, src.shape_)} "
                         f"at dimension {dim}")
    if index < 0:
        index += size
    t = alias_geometry(src, src.ndim_ - 1, src.offset_ + index * src.stride_[dim])
    for d in range(src.ndim_):
        if d != dim:
            t.shape_[k], t.stride_[k] = src.shape_[d], src.stride_[d]
            k += 1
    finish_alias(t, src)
    return t


cdef Tensor view_slice(Tensor src, int dim, object start, object end, int64_t step):
    cdef Tensor t
    cdef int64_t size, a, b
    if src.ndim_ == 0:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError(f"slice step must be positive, got {step}")
    size = src.shape_[dim]
    a = 0 if start is None else clamp_index(start, size)
    b = size if end is None else clamp_index(end, size)
    if b < a:
        b = a
    t = alias_geometry(src, src.ndim_, src.offset_ + a * src.stride_[dim])
    memcpy(t.shape_, src.shape_, src.ndim_ * sizeof(int64_t))
    memcpy(t.stride_, src.stride_, src.ndim_ * sizeof(int64_t))
    t.shape_[dim] = (b - a + step - 1) // step
    t.stride_[dim] = src.stride_[dim] * step
    finish_alias(t, src)
    return t


cdef int64_t clamp_index(object index, int64_t size) except -1:
    cdef int overflow = 0
    cdef long long i = PyLong_AsLongLongAndOverflow(index, &overflow)
    if overflow:
        return size if overflow > 0 else 0
    if i < 0:
        i += size
        return i if i > 0 else 0
    return i if i < size else size


cdef Tensor view_unsqueeze(Tensor src, int dim):
    cdef Tensor t = alias_geometry(src, src.ndim_ + 1, src.offset_)
    cdef int d
    for d in range(dim):
        t.shape_[d], t.stride_[d] = src.shape_[d], src.stride_[d]
    t.shape_[dim] = 1
    t.stride_[dim] = src.shape_[dim] * src.stride_[dim] if dim < src.ndim_ else 1
    for d in range(dim, src.ndim_):
        t.shape_[d + 1], t.stride_[d + 1] = src.shape_[d], src.stride_[d]
    finish_alias(t, src)
    return t


cdef Tensor view_squeeze(Tensor src, object dims):
    cdef Tensor t
    cdef int kept[MAX_DIMS]
    cdef int d, n = 0
    for d in range(src.ndim_):
        if src.shape_[d] != 1 or (dims is not None and d not in <tuple>dims):
            kept[n] = d
            n += 1
    t = alias_geometry(src, n, src.offset_)
    for d in range(n):
        t.shape_[d], t.stride_[d] = src.shape_[kept[d]], src.stride_[kept[d]]
    finish_alias(t, src)
    return t


cdef Tensor view_diagonal(Tensor src, int64_t offset, int dim1, int dim2):
    cdef Tensor t
    cdef int d, k = 0
    cdef int64_t rows, columns, start = src.offset_
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows = src.shape_[dim1] + (offset if offset < 0 else 0)
    columns = src.shape_[dim2] - (offset if offset > 0 else 0)
    rows = columns if columns < rows else rows
    if rows <= 0:
        rows = 0
    elif offset < 0:
        start -= offset * src.stride_[dim1]
    else:
        start += offset * src.stride_[dim2]
    t = alias_geometry(src, src.ndim_ - 1, start)
    for d in range(src.ndim_):
        if d != dim1 and d != dim2:
            t.shape_[k], t.stride_[k] = src.shape_[d], src.stride_[d]
            k += 1
    t.shape_[k] = rows
    t.stride_[k] = src.stride_[dim1] + src.stride_[dim2]
    count_elements(k + 1, t.shape_)
    finish_alias(t, src)
    return t


cdef Tensor view_strided(Tensor src, tuple size, tuple stride, object offset):
    """None where the definition's rule finds something wrong."""
    cdef Tensor t
    cdef int d, n = len(size)
    if n != len(stride) or n > MAX_DIMS:
        return None
    t = alias_geometry(src, n, src.offset_ if offset is None else offset)
    for d in range(n):
        t.shape_[d], t.stride_[d] = size[d], stride[d]
        if t.shape_[d] < 0 or t.stride_[d] < 0:
            return None
    count_elements(n, t.shape_)
    finish_alias(t, src)
    if t.offset_ < 0 or src.storage_.dev.type.meta or not geometry_within(t, n, t.shape_, t.stride_, t.offset_):
        return None
    return t


cdef Tensor view_unfold(Tensor src, int dim, int64_t size, int64_t step):
    """None where the definition's rule finds something wrong."""
    cdef Tensor t
    cdef int n = src.ndim_
    if n == 0 or size < 0 or size > src.shape_[dim] or step <= 0:
        return None
    t = alias_geometry(src, n + 1, src.offset_)
    memcpy(t.shape_, src.shape_, n * sizeof(int64_t))
    memcpy(t.stride_, src.stride_, n * sizeof(int64_t))
    t.shape_[dim] = (src.shape_[dim] - size) // step + 1
    t.stride_[dim] = src.stride_[dim] * step
    t.shape_[n] = size
    t.stride_[n] = src.stride_[dim]
    count_elements(n + 1, t.shape_)
    finish_alias(t, src)
    return t


cdef Tensor view_piece(Tensor src, int dim, int64_t start, int64_t size):
    cdef Tensor t = alias_geometry(src, src.ndim_, src.offset_ + start * src.stride_[dim])
    memcpy(t.shape_, src.shape_, src.ndim_ * sizeof(int64_t))
    memcpy(t.stride_, src.stride_, src.ndim_ * sizeof(int64_t))
    t.shape_[dim] = size
    finish_alias(t, src)
    return t


cdef list view_split(Tensor src, int64_t size, int dim):
    """The pieces of a dimension, all of one size but the last."""
    cdef list views = []
    cdef int64_t total = src.shape_[dim], start = 0
    if size < 0 or (size == 0 and total):
        return None
    while start < total:
        views.append(view_piece(src, dim, start, min(size, total - start)))
        start += size
    return views or [view_piece(src, dim, 0, 0)]


cdef list view_pieces(Tensor src, tuple sizes, int dim):
    """The pieces of a dimension, of given sizes."""
    cdef list views = []
    cdef int64_t size, start = 0
    for size in sizes:
        if size < 0 or size > src.shape_[dim] - start:
            return None
        views.append(view_piece(src, dim, start, size))
        start += size
    return views if start == src.shape_[dim] else None


cdef Tensor view_permute(Tensor src, tuple dims):
    cdef Tensor t
    cdef int i, d
    if len(dims) != src.ndim_:
        raise RuntimeError(f"permute(): number of dimensions in the tensor input does not match the length of "
                           f"the desired ordering of dimensions i.e. input.dim() = {src.ndim_} is not equal to "
                           f"len(dims) = {len(dims)}")
    t = alias_geometry(src, src.ndim_, src.offset_)
    for i in range(src.ndim_):
        d = dims[i]
        t.shape_[i], t.stride_[i] = src.shape_[d], src.stride_[d]
    finish_alias(t, src)
    return t


cdef Tensor view_expand(Tensor src, tuple size):
    cdef Tensor t
    cdef int i, k, n = len(size)
    cdef int64_t want
    if n < src.ndim_:
        raise RuntimeError(f"expand([{describe_tensor(src)}], size={list(size)}): the number of sizes provided ({n}) "
                           f"must be greater or equal to the number of dimensions in the tensor ({src.ndim_})")
    t = alias_geometry(src, n, src.offset_)
    for i in range(n):
        k = i - (n - src.ndim_)
        want = size[i]
        if k < 0:
            if want < 0:
                raise RuntimeError(f"The expanded size of the tensor ({want}) isn't allowed in a leading, non-existing "
                                   f"dimension {i}")
            t.shape_[i], t.stride_[i] = want, 0
        elif want == -1 or want == src.shape_[k]:
            t.shape_[i], t.stride_[i] = src.shape_[k], src.stride_[k]
        elif src.shape_[k] == 1 and want >= 0:
            t.shape_[i], t.stride_[i] = want, 0
        else:
            raise RuntimeError(f"The expanded size of the tensor ({want}) must match the existing size "
                               f"({src.shape_[k]}) at non-singleton dimension {i}.  Target sizes: {list(size)}.  "
                               f"Tensor sizes: {shape_list(src.ndim_, src.shape_)}")
    # A new dimension of size one steps as unsqueeze has it, over all that follows.
    for i in range(n - src.ndim_ - 1 if src.ndim_ else -1, -1, -1):
        if t.shape_[i] == 1:
            t.stride_[i] = t.shape_[i + 1] * t.stride_[i + 1]
    count_elements(n, t.shape_)
    finish_alias(t, src)
    return t


cdef Tensor view_view(Tensor src, tuple size):
    cdef Tensor t
    cdef int64_t shape[MAX_DIMS]
    cdef int i, n = len(size), unknown = -1
    cdef int64_t known = 1
    if n > MAX_DIMS:
        raise RuntimeError(f"view: at most {MAX_DIMS} dimensions, got {n}")
    for i in range(n):
        shape[i] = size[i]
        if shape[i] == -1:
            if unknown >= 0:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif shape[i] < 0:
            raise RuntimeError(f"invalid shape dimension {shape[i]} at index {i} of shape {list(size)}")
        elif __builtin_mul_overflow(known, shape[i], &known):
            raise invalid_shape(size, src)
    if unknown >= 0:
        if known == 0:
            if src.numel_ == 0:
                raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(size)} because the "
                                   "unspecified dimension size -1 can be any value and is ambiguous")
            raise invalid_shape(size, src)
        if src.numel_ % known:
            raise invalid_shape(size, src)
        shape[unknown] = src.numel_ // known
    elif known != src.numel_:
        raise invalid_shape(size, src)
    t = alias_geometry(src, n, src.offset_)
    memcpy(t.shape_, shape, n * sizeof(int64_t))
    if src.flags & CONTIGUOUS:
        contiguous_strides(n, shape, t.stride_)
    elif not view_strides(src, n, shape, t.stride_):
        raise RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension "
                           "spans across two contiguous subspaces). Use .reshape(...) instead. (view of "
                           f"[{describe_tensor(src)}] with strides {shape_list(src.ndim_, src.stride_)} as "
                           f"{list(size)})")
    finish_alias(t, src)
    return t


cdef object invalid_shape(tuple size, Tensor src):
    return RuntimeError(f"shape '{list(size)}' is invalid for input of size {src.numel_}")


cdef bint view_strides(Tensor src, int n, int64_t* shape, int64_t* stride) noexcept:
    """Strides of the reshaped view, or False where a copy would be needed."""
    cdef int view_d = n - 1, d
    cdef int64_t chunk_base, tensor_numel = 1, view_numel = 1
    if src.numel_ == 0:
        contiguous_strides(n, shape, stride)
        return True
    if src.ndim_ == 0:
        for d in range(n):
            stride[d] = 1
        return True
    chunk_base = src.stride_[src.ndim_ - 1]
    for d in range(src.ndim_ - 1, -1, -1):
        tensor_numel *= src.shape_[d]
        if d == 0 or (src.shape_[d - 1] != 1 and src.stride_[d - 1] != tensor_numel * chunk_base):
            while view_d >= 0 and (view_numel < tensor_numel or shape[view_d] == 1):
                stride[view_d] = view_numel * chunk_base
                view_numel *= shape[view_d]
                view_d -= 1
            if view_numel != tensor_numel:
                return False
            if d > 0:
                chunk_base = src.stride_[d - 1]
                tensor_numel = 1
                view_numel = 1
    return view_d == -1
