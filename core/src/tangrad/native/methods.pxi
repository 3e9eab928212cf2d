# What Tensor's own methods and operators call.

cdef object no_dimension(dim):
    raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")


cdef bint is_contiguous_in(Tensor t, format):
    cdef int64_t expected = 1
    if format is channels_last and t.ndim_ == 4:
        order = (1, 3, 2, 0)
    elif format is channels_last_3d and t.ndim_ == 5:
        order = (1, 4, 3, 2, 0)
    else:
        return format is preserve_format and t.flags & CONTIGUOUS != 0
    for d in order:
        if t.shape_[d] != 1:
            if t.stride_[d] != expected:
                return False
            expected *= t.shape_[d]
    return True


cdef int set_requires_grad(Tensor t, bint value) except -1:
    if value and not differentiable(t.dtype_.index):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients "
                           f"([{describe_tensor(t)}])")
    if grad_fn_of(t) is not None:
        if not value:
            raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a "
                               "computed variable in a subgraph that doesn't require differentiation use "
                               "var_no_grad = var.detach().")
        return 0
    if value and t.flags & INFERENCE and not tg_tls.inference:
        raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
    if value:
        t.flags |= REQUIRES_GRAD
    else:
        t.flags &= ~<uint32_t>REQUIRES_GRAD
    return 0


cdef object warn_non_leaf_grad():
    import warnings
    warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
                  "won't be populated during autograd.backward(). If you indeed want the .grad field to be populated "
                  "for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor.", UserWarning, stacklevel=2)


cdef int tell_of_gradient(Tensor t) except -1:
    """Tell this thread's tracer that a program looks at `.grad`, or sets it."""
    if standing():
        (<object>tg_tls.intercept).tell_of_gradient(t)
    return 0


cdef int set_grad(Tensor t, value) except -1:
    cdef Tensor g
    if value is None:
        t.grad_ = None
        return 0
    if not isinstance(value, Tensor):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {_type_name(value)}")
    g = value
    if g is t:
        raise RuntimeError("can't assign Variable as its own grad")
    if g.dtype_ is not t.dtype_:
        raise RuntimeError(f"attempting to assign a gradient of dtype '{g.dtype_!r}' to a tensor with grad dtype "
                           f"'{t.dtype_!r}'. The gradient must match the tensor's dtype.")
    if g.storage_.dev.type is not t.storage_.dev.type:
        raise RuntimeError(f"assigned grad has data located on a different device: {g.storage_.dev.device} and "
                           f"{t.storage_.dev.device}")
    if g.ndim_ != t.ndim_ or memcmp(g.shape_, t.shape_, t.ndim_ * 8) != 0:
        raise RuntimeError(f"assigned grad has data of a different size: {shape_list(g.ndim_, g.shape_)} and "
                           f"{shape_list(t.ndim_, t.shape_)}")
    t.grad_ = g
    return 0


cdef Tensor detached(Tensor t):
    return alias_whole(t)


cdef Tensor data_of(Tensor t):
    cdef Tensor d = alias_whole(t)
    d.version_cell = VersionCell.__new__(VersionCell)
    return d


cdef int replace_data(Tensor t, Tensor value) except -1:
    if value.dtype_ is not t.dtype_ and requires_grad(t) and not differentiable(value.dtype_.index):
        raise RuntimeError(f"data set to a tensor that requires gradients must be floating point or complex dtype, "
                           f"got {value.dtype_!r}")
    if (value.flags ^ t.flags) & PY_DISPATCH:
        raise RuntimeError(f"data of a tensor of {type(t)} cannot be replaced by that of one of {type(value)}, for "
                           f"only one of them has memory of its own; unwrap it first")
    if holds_other(t) != holds_other(value):
        raise RuntimeError(f"data of a tensor cannot be replaced by that of one of an incompatible tensor type: "
                           f"[{describe_tensor(t)}] by [{describe_tensor(value)}]")
    if holds_other(t):
        t.level_ = value.level_
    t.storage_ = value.storage_
    t.dtype_ = value.dtype_
    t.slot_ = value.slot_
    t.flags = (t.flags & ~<uint32_t>(CONTIGUOUS | CONJ | NEG)) | (value.flags & (CONTIGUOUS | CONJ | NEG))
    set_geometry(t, value.ndim_, value.shape_, value.stride_, value.offset_)
    return 0


def set_storage(Tensor t not None, UntypedStorage storage not None, int64_t offset, tuple shape, tuple stride):
    """Point a tensor at a storage (Tensor.set_)."""
    cdef int64_t a[MAX_DIMS]
    cdef int64_t b[MAX_DIMS]
    cdef int64_t nbytes
    cdef int i
    check_geometry("set_", shape, stride, offset)
    for i in range(len(shape)):
        a[i], b[i] = shape[i], stride[i]
    nbytes = bytes_reached(len(shape), a, b, offset, t.dtype_.itemsize)
    if not placed(storage).dev.type.meta and nbytes > <int64_t>storage.nbytes_ \
            and not (t.flags & PY_DISPATCH and nbytes <= <int64_t>storage.stated):
        storage_resize(storage, nbytes)
    t.storage_ = placed(storage)
    t.slot_ = storage.dev.slot
    set_geometry(t, len(shape), a, b, offset)
    t.accumulator_ = NULL  # what was computed before does not depend on what it is now
    return t


def record_stream(Tensor t not None, uint64_t stream):
    """Keep a tensor's memory, after its release, until what a stream has been given is done."""
    cdef UntypedStorage s = t.storage_
    if s.block != NULL:
        s.dev.allocator.check(tg_use_on_stream(s.block.owner, s.block, stream), "record_stream")


cdef int check_geometry(str name, tuple shape, tuple stride, offset) except -1:
    """Refuse a geometry that would not be one, or see memory before the storage."""
    if len(shape) > MAX_DIMS:
        raise RuntimeError(f"{name}: a tensor has at most {MAX_DIMS} dimensions, got {len(shape)}")
    if stride is not None and len(stride) != len(shape):
        raise RuntimeError(f"{name}: mismatch in length of strides and shape: got size {list(shape)} and stride "
                           f"{list(stride)}")
    if offset < 0:
        raise RuntimeError(f"{name}: Tensor: invalid storage offset {offset}")
    if any([n < 0 for n in shape]) or (stride is not None and any([n < 0 for n in stride])):
        raise RuntimeError(f"{name}: sizes and strides must be non-negative, got size {list(shape)} and stride "
                           f"{None if stride is None else list(stride)}")
    return 0


def resize(Tensor t not None, tuple shape):
    """Give a tensor another shape, contiguous, growing its storage (Tensor.resize_)."""
    cdef int64_t a[MAX_DIMS]
    cdef int i
    if requires_grad(t) and not tg_tls.inference:
        raise RuntimeError(f"cannot resize variables that require grad ([{describe_tensor(t)}])")
    check_geometry("resize_", shape, None, 0)
    for i in range(len(shape)):
        a[i] = shape[i]
    check_inference(t, "resize_")
    resize_tensor(t, len(shape), a)
    bump_version(t, "resize_")
    return t


cdef dict hooks_of(Tensor t):
    if t.hooks_ is None:
        t.hooks_ = {}
    return <dict>t.hooks_


cdef object register_tensor_hook(Tensor t, hook):
    cdef Node node
    if not requires_grad(t):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node = grad_fn_of(t)
    if node is None:
        return _removable(hooks_of(t).setdefault("grad", {}), hook)
    by_result = node_hooks(node).setdefault("tensor", {})
    return _removable(by_result.setdefault(t.output_nr_, {}), hook)


cdef int retain_grad(Tensor t) except -1:
    cdef Node node = grad_fn_of(t)
    if standing():
        (<object>tg_tls.intercept).refuse_in_transforms("retain_grad()")
    if not requires_grad(t):
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if node is None:
        return 0
    t.flags |= RETAIN_GRAD
    node_hooks(node).setdefault("retain", {})[t.output_nr_] = PyWeakref_NewRef(t, None)
    return 0


# --- operators -----------------------------------------------------------------------------

cdef tuple OPERATOR_NAMES = ("add", "sub", "mul", "true_divide", "floor_divide", "remainder", "pow", "matmul",
                             "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
                             "lt", "le", "eq", "ne", "gt", "ge")
cdef list operator_ops = [None] * 19
cdef list inplace_ops = [None] * 19


cdef Op operator_op(int which):
    cdef Op op = lookup_op(OPERATOR_NAMES[which])
    while op.kind_ == OP_OVERLOAD:
        op = op.overloads[0]
    operator_ops[which] = op
    return op


cdef object binary_operator(int which, object left, object right):
    cdef PyObject* operands[2]
    cdef Op op
    op = <Op>PyList_GET_ITEM(operator_ops, which)
    if <PyObject*>op == Py_None_ptr:
        op = operator_op(which)
    if tg_tls.intercept == NULL and op.kind_ == OP_POINTWISE:
        operands[0], operands[1] = <PyObject*>left, <PyObject*>right
        result = fast_pointwise(op, operands, 2)
        if result is not None:
            return result
    return binary_operator_general(which, op, left, right)


cdef object binary_operator_general(int which, Op op, object left, object right):
    cdef bint lt = isinstance(left, Tensor), rt = isinstance(right, Tensor)
    # A number has no matrix product, and the shortcut of matmul takes both operands for tensors.
    if not (lt and (rt or is_number(right))) and not (rt and is_number(left)) or which == 7 and not (lt and rt):
        other = right if lt else left
        if which == 15 or which == 16:
            if other is None or isinstance(other, (str, bytes, dict, set)):
                return NotImplemented
        if hasattr(type(other), "__torch_function__"):
            return operator_between(which, op, left, right)
        # NumPy's number is a tensor without dimensions. Beside an array NumPy computes, as PyTorch has it, except
        # in comparisons for equality and where the array is divided.
        if hasattr(type(other), "__array__") and (which == 15 or which == 16 or not hasattr(type(other), "__len__")):
            other = lookup_as_tensor(other)
            return binary_operator(which, left, other) if lt else binary_operator(which, other, right)
        if which == 3 and not lt and hasattr(type(other), "__array__"):
            return lookup_op("reciprocal")(right) * other
        return NotImplemented
    if standing() or (lt and (not exact_tensor(<PyObject*>left) or (<Tensor>left).level_ is not None)) \
            or (rt and (not exact_tensor(<PyObject*>right) or (<Tensor>right).level_ is not None)):
        return operator_between(which, op, left, right)
    cdef PyObject* flat[MAX_PARAMS]
    cdef int i
    flat[0], flat[1] = <PyObject*>left, <PyObject*>right
    for i in range(2, op.nparams):
        flat[i] = PyTuple_GET_ITEM(op.defaults, i)
    if op.kind_ == OP_COMPOSITE or lt or op.ptype[0] == P_OPERAND:
        return call_inner(op, flat, None, False)
    converted_left = number_tensor(left, <Tensor>right)
    flat[0] = <PyObject*>converted_left
    return call_inner(op, flat, None, False)


cdef object operator_between(int which, Op op, object left, object right):
    """An operator whose operands' classes, or a mode, may take it over; else the op's slow way."""
    if taken(<PyObject*>left) or takes_over(<PyObject*>left) or takes_over(<PyObject*>right):
        from tangrad.dispatch.overrides import offer_operator
        result = offer_operator(which, left, right)
        if result is not NotImplemented:
            return result
    return _offered_hook(op, op, (left, right) + op.defaults[2:], None)


cdef object lookup_as_tensor(x):
    from tangrad.tensor.construct import as_tensor
    return as_tensor(x)


cdef Tensor number_tensor(object number, Tensor like):
    """A zero-dimensional tensor of a Python number on the device of another tensor."""
    cdef int index = number_dtype(number)
    cdef tg_scalar value
    encode_scalar(number, index, value.bytes)
    return tensor_from_bytes((<char*>value.bytes)[:ITEMSIZE[index]], <dtype>DTYPES[index], (), like.storage_.dev.device)


cdef object inplace_operator(int which, object left, object right):
    cdef Op op
    found = inplace_ops[which]
    if found is None:
        found = lookup_op(OPERATOR_NAMES[which] + "_")
        inplace_ops[which] = found
    if not isinstance(right, Tensor) and not is_number(right):
        if hasattr(type(right), "__array__") and not hasattr(type(right), "__len__"):
            right = lookup_as_tensor(right)
        elif not hasattr(type(right), "__torch_function__"):
            return NotImplemented
    if taken(<PyObject*>left) or takes_over(<PyObject*>right):
        from tangrad.dispatch.overrides import offer_in_place
        result = offer_in_place(which, left, right)
        if result is not NotImplemented:
            return result
    return (<object>found)(left, right)


cdef object fast_pointwise(Op op, PyObject** item, int n):
    """Contiguous tensors of one dtype, shape and device, two at most, or one and a number, with a C kernel; else None.

    A thread's queue is offered the work. Checks have nothing to say of tensors of one floating dtype and of numbers
    beside them.
    """
    global ops_called
    cdef operand_set s
    cdef tg_kernel* kernel
    cdef PyObject* first = NULL
    cdef uint64_t needs = 0
    cdef Node node = None
    cdef Tensor t, o
    cdef bint records = tg_tls.grad_enabled and op.has_rule
    cdef int i, index
    if op.nparams != n or op.ntensors != n or op.nout != 1:
        return None
    for i in range(n):
        s.item[i] = item[i]
        if not exact_tensor(item[i]):
            if not plain_real(<object>item[i]) or op.shortcut or op.ptype[i] != P_OPERAND:
                return None
        elif (<Tensor>item[i]).flags & (CONTIGUOUS | CONJ | NEG) != CONTIGUOUS or (<Tensor>item[i]).level_ is not None \
                or op.fixed[i] >= 0:
            return None
        elif first == NULL:
            first = item[i]
        elif not same_form(<Tensor>first, <Tensor>item[i]):
            return None
        if records and exact_tensor(item[i]) and requires_grad(<Tensor>item[i]):
            needs |= <uint64_t>1 << i
    if first == NULL:
        return None
    t = <Tensor>first
    index = t.dtype_.index
    if (KIND[index] != KIND_FLOAT or ITEMSIZE[index] < 4) and not (exact_tensor(item[0]) and exact_tensor(item[n - 1])):
        return None
    if op.bounded and index == FLOAT32 and n == 2:
        for i in range(2):
            if not exact_tensor(item[i]) and not holds_number(FLOAT32, <object>item[i], True):
                return None
    if KIND[index] != KIND_FLOAT and (op.has_check or op.promote != PROMOTE_PLAIN and KIND[index] < KIND_FLOAT):
        return None
    if t.slot_ >= op.nrows or op.rows[t.slot_] == NULL:
        return None
    kernel = op.rows[t.slot_][index]
    if kernel == NULL or kernel.kind != KERNEL_C or not op.accepted >> KIND[COMPUTE[index]] & 1:
        return None
    ops_called += 1
    if needs:
        node = record_inputs(op, item, needs)
    o = contiguous_without_memory(t.ndim_, t.shape_, result_dtype(op, 0, index), t.storage_.dev)
    s.n, s.common = n, index
    if not queue_places() or t.numel_ == 0 or o.storage_.nbytes_ > TG_LATER_BYTES \
            or not queued_plain(op, kernel, &s, o):
        storage_attach(o.storage_, o.storage_.nbytes_)
        if t.numel_ and (tg_tls.queue == NULL or not queued_plain(op, kernel, &s, o)):
            run_contiguous(kernel, &s, t, o)
    if node is not None:
        connect_outputs(node, o)
    return o


cdef inline bint same_form(Tensor a, Tensor b) noexcept:
    return a.dtype_ is b.dtype_ and a.storage_.dev is b.storage_.dev and has_shape(b, a.ndim_, a.shape_)


cdef int run_contiguous(tg_kernel* kernel, operand_set* s, Tensor t, Tensor o) except -1:
    """Run a kernel over operands that `fast_pointwise` has found to be plain."""
    cdef tg_loop loop
    cdef int64_t step = ITEMSIZE[s.common], out_step = ITEMSIZE[o.dtype_.index], none = 0
    cdef tg_operand* operand
    cdef int i, status
    loop.version, loop.ndim, loop.nout, loop.nin, loop.nreduced, loop.nparams = 1, 1, 1, s.n, 0, 0
    loop.compute_dtype = COMPUTE[s.common]
    loop.device_index = t.storage_.dev.index
    loop.numel = t.numel_
    loop.shape = &t.numel_
    fill_operand(&loop.operands[0], o, &out_step)
    for i in range(s.n):
        operand = &loop.operands[i + 1]
        if exact_tensor(s.item[i]):
            fill_operand(operand, <Tensor>s.item[i], &step)
            continue
        operand.is_scalar, operand.dtype, operand.data, operand.strides = 1, COMPUTE[s.common], &operand.value, &none
        encode_scalar(<object>s.item[i], COMPUTE[s.common], operand.value.bytes)
    if t.numel_ > 16384:
        with nogil:
            status = kernel.fn(&loop, kernel.context)
    else:
        status = kernel.fn(&loop, kernel.context)
    if status != 0:
        raise_current()
    return 0


cdef inline void fill_operand(tg_operand* operand, Tensor t, const int64_t* step) noexcept:
    operand.data = host_pointer(t)
    operand.handle = t.storage_.handle
    operand.offset = t.storage_.offset + t.offset_ * ITEMSIZE[t.dtype_.index]
    operand.dtype = t.dtype_.index
    operand.is_scalar = 0
    operand.strides = step


# --- hooks into Python parts -----------------------------------------------------------------

def _find_attribute(t, name):
    from tangrad.tensor.protocol import find_attribute
    return find_attribute(t, name)


def _set_state(t, state):
    for name, value in state.items():
        setattr(t, name, value)


def _default_torch_function(cls, func, types, args, kwargs):
    from tangrad.dispatch.overrides import default_torch_function
    return default_torch_function(cls, func, types, args, kwargs or {})


def _intercept_item(t):
    from tangrad.dispatch.intercept import intercept_item
    return intercept_item(t)


def _to_array(t, dtype, copy):
    from tangrad.tensor.protocol import to_array
    return to_array(t, dtype, copy)


def _from_array(array):
    from tangrad.tensor.construct import from_numpy
    return from_numpy(array)


def _to_dlpack(t, kwargs):
    from tangrad.tensor.protocol import to_dlpack
    return to_dlpack(t, **kwargs)


def _dlpack_device(t):
    from tangrad.tensor.protocol import dlpack_device
    return dlpack_device(t)


def _reduce_tensor(t, protocol):
    from tangrad.tensor.pickling import reduce_tensor
    return reduce_tensor(t, protocol)


def _deepcopy_tensor(t, memo):
    from tangrad.tensor.pickling import deepcopy_tensor
    return deepcopy_tensor(t, memo)


cdef str _type_name(object x):
    return type(x).__name__
