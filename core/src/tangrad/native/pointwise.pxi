# Pointwise ops: promotion, broadcasting, the output's allocation.

cdef enum:
    MAX_OPERANDS = 20

cdef struct operand_set:
    int n                       # inputs that are tensors or numbers
    PyObject* item[16]          # the tensor (cast where needed) or the number
    int common                  # promoted dtype
    int nparams
    int param[MAX_PARAMS]       # parameters of the op that are plain numbers


cdef int promote_operands(Op op, PyObject** flat, int* common) except -1:
    """PyTorch's promotion: tensors with dimensions, zero-dimensional ones, then numbers."""
    cdef int dim_type = -1, zero_type = -1, scalar_type = -1, code, i, p, result, kind
    cdef PyObject* x
    for i in range(op.ntensors):
        p = op.tensor_param[i]
        if op.fixed[p] >= 0:
            continue
        x = flat[p]
        if isinstance(<object>x, Tensor):
            code = (<Tensor>x).dtype_.index
            if (<Tensor>x).ndim_ > 0:
                dim_type = code if dim_type < 0 else common_dtype(dim_type, code)
            else:
                zero_type = code if zero_type < 0 else common_dtype(zero_type, code)
        elif x != Py_None_ptr:
            code = number_dtype(<object>x)
            scalar_type = code if scalar_type < 0 else common_dtype(scalar_type, code)
    result = combine_categories(combine_categories(dim_type, zero_type), scalar_type)
    if result < 0:
        raise RuntimeError(f"{op.title}: no operand takes part in promotion")
    if dim_type < 0 and zero_type < 0 and not op.definition.numbers:
        raise TypeError(f"{op.title}(): one of the arguments must be a Tensor, got only numbers ({op.names[0]}="
                        f"{<object>flat[0]!r})")
    kind = KIND[result]
    if op.promote == PROMOTE_FLOAT and kind <= KIND_INT:
        result = default_dtype
    elif op.promote == PROMOTE_SUM and kind <= KIND_INT or op.promote == PROMOTE_NUMBER and result == BOOL:
        result = INT64
    if not op.accepted >> KIND[result if KIND[result] != KIND_FOREIGN else COMPUTE[result]] & 1:
        raise not_implemented_for(op, result, flat)
    common[0] = result
    return 0


cdef object not_implemented_for(Op op, int index, PyObject** flat):
    operands = ", ".join([describe_tensor(<Tensor>flat[op.tensor_param[i]]) for i in range(op.ntensors)
                          if isinstance(<object>flat[op.tensor_param[i]], Tensor)])
    custom = op.definition.rejection(<object>DTYPES[index])
    if custom is not None:
        return custom
    name = (<dtype>DTYPES[index]).name
    return NotImplementedError(f"\"{op.title}\" not implemented for '{name}' (operands: {operands}); "
                               "convert with .to(dtype)")


cdef int number_dtype(object x) except -1:
    if PyBool_Check(x):
        return BOOL
    if PyFloat_Check(x):
        return default_dtype
    if PyLong_Check(x):
        return INT64
    if PyComplex_Check(x):
        return default_complex()
    raise TypeError(f"expected a number, got {_type_name(x)}")


cdef inline int category(int index) noexcept:
    cdef int kind = KIND[COMPUTE[index]]
    if kind == KIND_BOOL:
        return 0
    if kind <= KIND_INT:
        return 1
    return kind


cdef int combine_categories(int higher, int lower) except -2:
    """The higher-priority type wins unless the lower has a higher category."""
    if higher < 0:
        return lower
    if lower < 0:
        return higher
    if category(lower) > category(higher):
        if category(higher) == KIND_FLOAT:  # only the kind is taken over, not the width
            return dtype_by_name("complex128" if COMPUTE[higher] == FLOAT64 else "complex64").index
        return common_dtype(higher, lower)
    return higher


def result_type(tensor1, tensor2):
    """Return the dtype that arithmetic on the two (tensors or numbers) gives."""
    cdef int dim_type = -1, zero_type = -1, scalar_type = -1, code
    for x in (tensor1, tensor2):
        if isinstance(x, Tensor):
            code = (<Tensor>x).dtype_.index
            if (<Tensor>x).ndim_:
                dim_type = code if dim_type < 0 else common_dtype(dim_type, code)
            else:
                zero_type = code if zero_type < 0 else common_dtype(zero_type, code)
        else:
            code = number_dtype(x)
            scalar_type = code if scalar_type < 0 else common_dtype(scalar_type, code)
    return <object>DTYPES[combine_categories(combine_categories(dim_type, zero_type), scalar_type)]


cdef DeviceRuntime common_device(Op op, PyObject** flat):
    """The device of all operands; a zero-dimensional host tensor may accompany others."""
    cdef Tensor t, first = None
    cdef PyObject* x
    cdef int i
    for i in range(op.ntensors):
        x = flat[op.tensor_param[i]]
        if not isinstance(<object>x, Tensor):
            continue
        t = <Tensor>x
        if first is None:
            first = t
        elif t.storage_.dev is not first.storage_.dev:
            if first.ndim_ == 0 and first.storage_.dev.type.host and t.storage_.dev.type is not first.storage_.dev.type:
                first = t
            elif t.ndim_ == 0 and t.storage_.dev.type.host and t.storage_.dev.type is not first.storage_.dev.type:
                pass
            elif t.storage_.dev.type is not first.storage_.dev.type or t.storage_.dev.index != first.storage_.dev.index:
                raise RuntimeError(
                    f"{op.title}: expected all tensors to be on the same device, but found at least two devices, "
                    f"{first.storage_.dev.device} and {t.storage_.dev.device}! Move one with .to(device).")
    if first is None:
        return runtime_of(None)
    return first.storage_.dev


cdef int result_dtype(Op op, int which, int common) noexcept:
    cdef int r = op.results[which]
    if r == RESULT_PROMOTED:
        return common
    if r == RESULT_REAL:
        return REAL_OF[common]
    if r == RESULT_COMPLEX:
        return common if KIND[common] == KIND_COMPLEX else COMPLEX128 if common == FLOAT64 else COMPLEX64
    if r == RESULT_TRUTH:  # PyTorch's bytes of before there was a bool
        return UINT8 if common == UINT8 else BOOL
    return r


cdef int broadcast_shapes_c(Op op, PyObject** item, int n, int64_t* shape) except -1:
    """Broadcast the shapes of the tensors among the operands; returns the rank."""
    cdef int ndim = 0, i, d
    cdef int64_t size
    cdef Tensor t
    for i in range(n):
        if isinstance(<object>item[i], Tensor) and (<Tensor>item[i]).ndim_ > ndim:
            ndim = (<Tensor>item[i]).ndim_
    for d in range(ndim):
        shape[d] = 1
    for i in range(n):
        if not isinstance(<object>item[i], Tensor):
            continue
        t = <Tensor>item[i]
        for d in range(t.ndim_):
            size = t.shape_[d]
            if size != 1:
                if shape[ndim - t.ndim_ + d] == 1:
                    shape[ndim - t.ndim_ + d] = size
                elif shape[ndim - t.ndim_ + d] != size:
                    raise broadcast_error(op, item, n, ndim - t.ndim_ + d)
    return ndim


cdef object broadcast_error(Op op, PyObject** item, int n, int dim):
    cdef int i, j
    sizes = []
    for i in range(n):
        if isinstance(<object>item[i], Tensor):
            j = dim - (max_rank(item, n) - (<Tensor>item[i]).ndim_)
            if j >= 0:
                sizes.append((<Tensor>item[i]).shape_[j])
    distinct = [s for s in dict.fromkeys(sizes) if s != 1]
    operands = ", ".join([describe_tensor(<Tensor>item[i]) for i in range(n) if isinstance(<object>item[i], Tensor)])
    return RuntimeError(f"The size of tensor a ({distinct[0]}) must match the size of tensor b ({distinct[1]}) at "
                        f"non-singleton dimension {dim} ({op.title} of {operands}); reshape or unsqueeze one of them")


cdef int max_rank(PyObject** item, int n):
    cdef int r = 0
    for i in range(n):
        if isinstance(<object>item[i], Tensor):
            r = max(r, (<Tensor>item[i]).ndim_)
    return r


cdef object run_pointwise(Op op, PyObject** flat, object out):
    cdef operand_set s
    cdef int64_t shape[MAX_DIMS]
    cdef DeviceRuntime dev
    cdef Tensor t, o
    cdef PyObject* x
    cdef int i, p, ndim, want, lead = 0
    cdef list keep = None
    cdef tg_kernel* kernel
    cdef bint same = True, numbers = False
    cdef int narrow = -1
    dev = None
    t = None
    for i in range(op.ntensors):
        x = flat[op.tensor_param[i]]
        s.item[i] = x
        if isinstance(<object>x, Tensor):
            if t is None:
                t = <Tensor>x
                dev = t.storage_.dev
            elif (<Tensor>x).storage_.dev is not dev:
                same = False
            if (<Tensor>x).flags & (CONJ | NEG):
                same = False
        elif x != Py_None_ptr:
            numbers = True
    s.n = op.ntensors
    if t is None or not same:
        dev = common_device(op, flat)
    promote_operands(op, flat, &s.common)
    if op.bounded or numbers and KIND[s.common] <= KIND_INT:
        narrow = s.common
        keep = beyond_numbers(op, flat, &s, dev.type.meta)
        if keep is not None:
            if keep[0] is None:
                return given_result(op, keep[1], out)
            op = <Op>keep[0]
    for i in range(s.n):
        x = s.item[i]
        if not isinstance(<object>x, Tensor):
            if (s.common == BFLOAT16 or s.common == FLOAT16) and not op.exact_numbers and x != Py_None_ptr:
                if keep is None:
                    keep = []
                number = rounded_number(<object>x, s.common)
                keep.append(number)
                s.item[i] = <PyObject*>number
            continue
        p = op.tensor_param[i]
        want = op.fixed[p] if op.fixed[p] >= 0 else s.common
        t = <Tensor>x
        if t.storage_.dev is not dev and t.storage_.dev.type is not dev.type:
            number = tensor_item(t)
            if keep is None:
                keep = []
            keep.append(number)
            s.item[i] = <PyObject*>number
            continue
        if t.flags & (CONJ | NEG) or (t.dtype_.index != want and not op.identity_of_self):
            t = resolved(t)
            if t.dtype_.index != want and not op.identity_of_self:
                t = cast_tensor(t, want)
            if keep is None:
                keep = []
            keep.append(t)
            s.item[i] = <PyObject*>t
    ndim = broadcast_shapes_c(op, s.item, s.n, shape)
    kernel = find_kernel(op, dev.slot, s.common)
    if out is None and op.nout == 1:
        o = allocate_like_operands(ndim, shape, result_dtype(op, 0, s.common), dev, s.item, s.n)
        launch_pointwise(op, kernel, dev, &s, flat, <PyObject*>o, None, ndim, shape)
        return o if keep is None or narrow < 0 or narrow == s.common else converted(o, narrow, dev)
    return run_pointwise_outs(op, kernel, dev, &s, flat, out, ndim, shape)


cdef object given_result(Op op, Tensor result, object out):
    """A result, or `out` that it is written to."""
    if out is None:
        return result
    prepare_out(op, out, result.ndim_, result.shape_, result.dtype_.index)
    copy_into(out, result)
    return out


cdef object rounded_number(object number, int index):
    """Return a number as an element of the dtype has it, so that `x == 0.1` is true of an x made of 0.1."""
    cdef tg_scalar value
    encode_scalar(number, index, value.bytes)
    return decode_scalar(index, value.bytes)


cdef object run_pointwise_outs(Op op, tg_kernel* kernel, DeviceRuntime dev, operand_set* s, PyObject** flat, object out,
                               int ndim, int64_t* shape):
    cdef Tensor o, temporary
    cdef int i, want
    cdef bint cast
    outs, targets = [], []
    for i in range(op.nout):
        want = result_dtype(op, i, s.common)
        if out is None:
            o = allocate_like_operands(ndim, shape, want, dev, s.item, s.n)
            outs.append(o)
            continue
        o = out[i] if op.nout > 1 else out
        if <PyObject*>out == flat[op.tensor_param[0]]:
            check_inplace_shape(op, o, ndim, shape)
        # A modulus is cast, as in PyTorch, by ops that cast nothing else.
        cast = op.results[i] == RESULT_REAL and want != s.common and <PyObject*>out != flat[op.tensor_param[0]] and \
            can_cast_index(want, o.dtype_.index) and \
            (KIND[o.dtype_.index] != KIND_COMPLEX or o.dtype_.index == s.common)
        prepare_out(op, o, ndim, shape, o.dtype_.index if cast else want)
        if o.storage_.dev.type is not dev.type:
            raise RuntimeError(f"{op.title}: expected out tensor to have device {dev.device}, "
                               f"but got {o.storage_.dev.device} instead")
        if o.dtype_.index != want or o.flags & (CONJ | NEG) or overlaps_partly(op, o, s):
            temporary = empty_contiguous(ndim, shape, want, dev)
            targets.append((o, temporary))
            outs.append(temporary)
        else:
            outs.append(o)
    if op.nout == 1:
        launch_pointwise(op, kernel, dev, s, flat, <PyObject*>outs[0], None, ndim, shape)
    else:
        launch_pointwise(op, kernel, dev, s, flat, NULL, tuple(outs), ndim, shape)
    for o, temporary in targets:
        copy_into(o, temporary)
    if out is not None:
        return out
    return op.return_type(*outs) if op.return_type is not None else tuple(outs)


cdef inline bint has_shape(Tensor o, int ndim, const int64_t* shape) noexcept:
    return o.ndim_ == ndim and memcmp(o.shape_, shape, ndim * sizeof(int64_t)) == 0


cdef int check_inplace_shape(Op op, Tensor o, int ndim, const int64_t* shape) except -1:
    if not has_shape(o, ndim, shape):
        raise RuntimeError(f"output with shape {shape_list(o.ndim_, o.shape_)} doesn't match the broadcast shape "
                           f"{shape_list(ndim, shape)} ({op.title}_ of [{describe_tensor(o)}]); an in-place operation "
                           "cannot grow its tensor")
    return 0


cdef object overlap_error(Op op, Tensor o):
    return RuntimeError(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory "
        f"location. Please clone() the tensor before performing the operation. ({op.title} into "
        f"{describe_tensor(o)} with strides {shape_list(o.ndim_, o.stride_)})")


cdef int prepare_out(Op op, Tensor o, int ndim, const int64_t* shape, int want) except -1:
    """Check that a result fits `out`, resizing an empty or wrongly shaped out= as PyTorch does."""
    cdef int i
    if not can_cast_index(want, o.dtype_.index) and not op.definition.any_out_dtype:
        raise op.definition.out_refusal(f"result type {(<dtype>DTYPES[want]).name} can't be cast to the desired "
                                        f"output type {o.dtype_.name} ({op.title}: {unlike_dtypes(op, want, o)})")
    if o.dtype_.index != want and op.definition.strict_out_dtype:
        kind = "scalar type Long" if op.title == "nonzero" else f"dtype {(<dtype>DTYPES[want]).name}"
        if KIND[want] == KIND_BOOL:
            raise RuntimeError(f"{op.title} only supports bool tensor for result, got: {o.dtype_.name} "
                               f"({unlike_dtypes(op, want, o)})")
        raise RuntimeError(f"{op.title}: Expected out tensor to have {kind}, but got {o.dtype_.name} instead "
                           f"({unlike_dtypes(op, want, o)})")
    if has_shape(o, ndim, shape):
        if overlaps_itself(o):
            raise overlap_error(op, o)
        return 0
    resize_out(op, o, ndim, shape)
    return 0


cdef str unlike_dtypes(Op op, int want, Tensor o):
    """The dtypes of a result and of what was given for it, by the names that programs match on."""
    from tangrad.tensor.on_storage import TYPE_NAMES
    wanted, found = (<dtype>DTYPES[want]).name, o.dtype_.name
    wanted, found = TYPE_NAMES.get(wanted, wanted), TYPE_NAMES.get(found, found)
    if op.name in ("complex", "polar"):
        return f"Expected object of scalar type {wanted} but got scalar type {found} for argument 'out'"
    return f"expected scalar_type {wanted} but found {found}"


cdef int resize_out(Op op, Tensor o, int ndim, const int64_t* shape) except -1:
    if o.numel_ != 0:
        import warnings
        warnings.warn(f"An output with one or more elements was resized since it had shape "
                      f"{shape_list(o.ndim_, o.shape_)}, which does not match the required output shape "
                      f"{shape_list(ndim, shape)}. The out tensor will be resized. ({op.title})", UserWarning,
                      stacklevel=2)
    resize_tensor(o, ndim, shape)
    return 0


cdef bint overlaps_partly(Op op, Tensor o, operand_set* s) except -1:
    """Whether an input may share bytes with the output in another geometry than its own.

    Raises:
        RuntimeError: it does: what is read would depend on the order in which elements are written.
    """
    cdef Tensor t
    cdef int i
    for i in range(s.n):
        if not isinstance(<object>s.item[i], Tensor):
            continue
        t = <Tensor>s.item[i]
        if t.storage_ is not o.storage_:
            continue
        if t.offset_ == o.offset_ and t.ndim_ == o.ndim_ and memcmp(t.shape_, o.shape_, t.ndim_ * 8) == 0 \
                and memcmp(t.stride_, o.stride_, t.ndim_ * 8) == 0 and t.dtype_ is o.dtype_:
            continue
        if shares_extent(t, o):
            raise shared_error(op, t, o)
        return True
    return False


cdef Tensor allocate_like_operands(int ndim, const int64_t* shape, int dtype_index, DeviceRuntime dev,
                                   PyObject** item, int n):
    """Allocate a result whose strides keep the order of the operands' (as TensorIterator does)."""
    cdef Tensor t
    cdef int64_t stride[MAX_DIMS]
    cdef int i
    cdef bint plain = True, alike = True, ordered = True, last = ndim == 4 or ndim == 5
    for i in range(n):
        if not isinstance(<object>item[i], Tensor):
            alike = False
            continue
        t = <Tensor>item[i]
        alike = alike and t.ndim_ == ndim and memcmp(t.shape_, shape, ndim * 8) == 0
        if t.ndim_ <= 1:
            continue
        if t.flags & CONTIGUOUS:
            ordered = ordered and strides_are_usual(t)
        else:
            plain = False
            last = last and alike and lies_channels_last(t)
    # Strides of dimensions of one element count where operands are not all of one shape, as there.
    if plain and (alike or ordered):
        return empty_contiguous(ndim, shape, dtype_index, dev)
    if alike and last and not plain:
        for i in range(n):
            last = last and not (<Tensor>item[i]).flags & CONTIGUOUS
        if last:
            channels_last_stride(ndim, shape, stride)
            return empty_strided_c(ndim, shape, stride, dtype_index, dev)
    return allocate_permuted(ndim, shape, dtype_index, dev, item, n)


cdef bint strides_are_usual(Tensor t) noexcept:
    """Whether a contiguous tensor has the strides of a new one also where a dimension has one element."""
    cdef int64_t step = 1
    cdef int i
    if t.numel_ == 0:
        return True
    for i in range(t.ndim_ - 1, -1, -1):
        if t.stride_[i] != step:
            return False
        step *= t.shape_[i]
    return True


cdef void channels_last_stride(int ndim, const int64_t* shape, int64_t* stride) noexcept:
    cdef int64_t step = shape[1]
    cdef int i
    stride[1] = 1
    for i in range(ndim - 1, 1, -1):
        stride[i] = step
        step *= shape[i]
    stride[0] = step


cdef bint lies_channels_last(Tensor t) noexcept:
    """Whether images or volumes lie channels last; dimensions of one element may lie anywhere."""
    cdef int64_t stride[MAX_DIMS]
    cdef int i
    if t.numel_ == 0 or t.ndim_ != 4 and t.ndim_ != 5:
        return False
    channels_last_stride(t.ndim_, t.shape_, stride)
    for i in range(t.ndim_):
        if t.shape_[i] != 1 and t.stride_[i] != stride[i]:
            return False
    return True


cdef Tensor allocate_permuted(int ndim, const int64_t* shape, int dtype_index, DeviceRuntime dev, PyObject** item,
                              int n):
    cdef int order[MAX_DIMS]
    cdef int64_t stride[MAX_DIMS]
    cdef int64_t step = 1
    cdef int i, j, moving, verdict
    for i in range(ndim):
        order[i] = ndim - 1 - i
    for i in range(1, ndim):
        moving = i
        j = i - 1
        while j >= 0:
            verdict = compare_strides(order[j], order[moving], ndim, shape, item, n)
            if verdict > 0:
                order[j], order[moving] = order[moving], order[j]
                moving = j
            elif verdict < 0:
                break
            j -= 1
    for i in range(ndim):
        stride[order[i]] = step
        if shape[order[i]] > 1:
            step *= shape[order[i]]
    return empty_strided_c(ndim, shape, stride, dtype_index, dev)


cdef int compare_strides(int d0, int d1, int ndim, const int64_t* shape, PyObject** item, int n) noexcept:
    """> 0: dimension d0 has larger strides than d1, so d1 goes further in; 0: undecided."""
    cdef int64_t s0, s1
    cdef Tensor t
    cdef int i, a, b
    for i in range(n):
        if not isinstance(<object>item[i], Tensor):
            continue
        t = <Tensor>item[i]
        a = d0 - (ndim - t.ndim_)
        b = d1 - (ndim - t.ndim_)
        s0 = 0 if a < 0 or (t.shape_[a] == 1 and shape[d0] != 1) else t.stride_[a]
        s1 = 0 if b < 0 or (t.shape_[b] == 1 and shape[d1] != 1) else t.stride_[b]
        if s0 == 0 or s1 == 0:
            continue
        if s0 < s1:
            return -1
        if s0 > s1:
            return 1
        if shape[d0] > shape[d1]:
            return 1
    return 0
