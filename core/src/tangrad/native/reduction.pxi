# Reductions, scans and general kernel ops below recording.

cdef object run_reduction(Op op, PyObject** flat, object out):
    """Normalise dims, allocate, and hand a ready loop to the kernel."""
    cdef Tensor x = <Tensor>flat[0], o
    cdef DeviceRuntime dev = x.storage_.dev
    cdef int64_t kept_shape[MAX_DIMS]
    cdef int64_t shape[MAX_DIMS]
    cdef unsigned char reduced[MAX_DIMS]
    cdef int common, ndim = x.ndim_, nkept = 0, i, d, want
    cdef bint keepdim = False
    cdef tg_kernel* kernel
    cdef tuple outs
    dims = None
    override = None
    if op.dim_param > 0:
        dims = <object>flat[op.dim_param]
    if op.keepdim_param > 0:
        keepdim = <object>flat[op.keepdim_param]
    if op.dtype_param > 0:
        override = <object>flat[op.dtype_param]
    if x.flags & (CONJ | NEG):
        x = resolved(x)
    if override is not None:
        common = (<dtype>override).index
        if not op.accepted >> KIND[COMPUTE[common]] & 1:
            raise not_implemented_for(op, common, flat)
    else:
        promote_operands(op, flat, &common)
    if x.dtype_.index != common:
        x = cast_tensor(x, common)
    for d in range(ndim):
        reduced[d] = 0
    if dims is None or (type(dims) is tuple and len(dims) == 0 and not op.definition.keeps_without_dims):
        for d in range(ndim):
            reduced[d] = 1
        dims = tuple(range(ndim))
    else:
        if not isinstance(dims, tuple):
            dims = (dims,)
        for dim in dims:
            d = dim
            if d < ndim:
                reduced[d] = 1
        dims = tuple([d for d in dims if d < ndim])
    if op.definition.needs_elements:
        for d in range(ndim):
            if reduced[d] and x.shape_[d] == 0:
                raise empty_reduction(op, x, d, len(dims) == ndim)
    for d in range(ndim):
        shape[d] = 1 if reduced[d] else x.shape_[d]
    for d in range(ndim):
        if not reduced[d] or keepdim:
            kept_shape[nkept] = shape[d]
            nkept += 1
    kernel = find_kernel(op, dev.slot, common)
    made, targets = [], []
    for i in range(op.nout):
        want = result_dtype(op, i, common)
        if out is not None:
            o = out[i] if op.nout > 1 else out
            prepare_out(op, o, nkept, kept_shape, want)
            if o.storage_.dev.type is not dev.type:
                raise RuntimeError(f"{op.title}: expected out tensor to have device {dev.device}, "
                                   f"but got {o.storage_.dev.device} instead")
            if o.dtype_.index != want or o.storage_ is x.storage_ or o.flags & (CONJ | NEG):
                targets.append((o, len(made)))
                o = empty_contiguous(nkept, kept_shape, want, dev)
        else:
            o = empty_contiguous(nkept, kept_shape, want, dev)
        made.append(o)
    outs = tuple(made)
    if not dev.type.meta:
        launch_reduction(op, kernel, dev, x, outs, dims, reduced, shape, common, flat)
    for o, i in targets:
        copy_into(o, made[i])
    if out is not None:
        return out
    if op.nout == 1:
        return made[0]
    return op.return_type(*outs) if op.return_type is not None else outs


cdef object run_plain_reduction(Op op, PyObject** flat):
    """Fold a tensor by a C kernel into one fresh result; None where `run_reduction` has to decide."""
    cdef Tensor x = <Tensor>flat[0], o
    cdef DeviceRuntime dev = x.storage_.dev
    cdef int64_t kept_shape[MAX_DIMS]
    cdef int64_t loop_shape[MAX_DIMS]
    cdef int64_t strides[2][MAX_DIMS]
    cdef unsigned char reduced[MAX_DIMS]
    cdef int64_t step = 1
    cdef int common, want, ndim = x.ndim_, nkept = 0, n = 0, d, nreduced = 0
    cdef bint whole = True, keepdim
    cdef PyObject* dims = Py_None_ptr
    cdef tg_kernel* kernel
    cdef tg_loop loop
    if x.flags & (CONJ | NEG) or x.numel_ == 0 or (op.dtype_param > 0 and flat[op.dtype_param] != Py_None_ptr):
        return None
    promote_operands(op, flat, &common)
    if x.dtype_.index != common or dev.type.meta:
        return None
    kernel = find_kernel(op, dev.slot, common)
    if kernel.kind != KERNEL_C:
        return None
    if op.dim_param > 0:
        dims = flat[op.dim_param]
        whole = dims == Py_None_ptr or (PyTuple_CheckExact(<object>dims) and PyTuple_GET_SIZE(<object>dims) == 0
                                        and not op.definition.keeps_without_dims)
    memset(reduced, whole, MAX_DIMS)
    if not whole:
        for dim in (<object>dims if PyTuple_CheckExact(<object>dims) else (<object>dims,)):
            d = dim
            if d < ndim:
                reduced[d] = 1
    keepdim = op.keepdim_param > 0 and <object>flat[op.keepdim_param] is True
    for d in range(ndim):
        if not reduced[d]:
            loop_shape[n] = x.shape_[d]
            strides[1][n] = x.stride_[d] * x.dtype_.itemsize
            n += 1
            kept_shape[nkept] = x.shape_[d]
            nkept += 1
        elif keepdim:
            kept_shape[nkept] = 1
            nkept += 1
    if whole and x.flags & CONTIGUOUS:
        loop_shape[0], strides[1][0], nreduced = x.numel_, x.dtype_.itemsize, 1
    else:
        for d in range(ndim):
            if reduced[d]:
                loop_shape[n + nreduced] = x.shape_[d]
                strides[1][n + nreduced] = x.stride_[d] * x.dtype_.itemsize
                nreduced += 1
    want = result_dtype(op, 0, common)
    o = contiguous_without_memory(nkept, kept_shape, want, dev)
    if queue_places() and nreduced == 1 and (n == 0 or reduced[ndim - 1]) \
            and o.storage_.nbytes_ <= TG_LATER_BYTES \
            and queued_fold(op, kernel, x, o, loop_shape[n], flat):
        return o
    storage_attach(o.storage_, o.storage_.nbytes_)
    memset(strides[0], 0, (n + nreduced) * sizeof(int64_t))
    for d in range(n - 1, -1, -1):
        strides[0][d] = step * ITEMSIZE[want]
        step *= loop_shape[d]
    loop.numel = x.numel_
    loop.ndim = n + nreduced
    loop.shape = loop_shape
    loop.nreduced = nreduced
    loop.nout = loop.nin = 1
    fill_operand(&loop.operands[0], o, strides[0])
    fill_operand(&loop.operands[1], x, strides[1])
    run_c_loop(op, kernel, dev, common, flat, &loop)
    return o


cdef object empty_reduction(Op op, Tensor x, int d, bint whole):
    if whole:
        return RuntimeError(f"{op.title}(): Expected reduction dim to be specified for input.numel() == 0. "
                            f"Specify the reduction dim with the 'dim' argument ([{describe_tensor(x)}]).")
    return IndexError(f"{op.title}(): Expected reduction dim {d} to have non-zero size ([{describe_tensor(x)}]).")


cdef int launch_reduction(Op op, tg_kernel* kernel, DeviceRuntime dev, Tensor x, tuple outs, tuple dims,
                          unsigned char* reduced, int64_t* shape, int common, PyObject** flat) except -1:
    cdef int64_t order_shape[MAX_DIMS]
    cdef PyObject* item[1]
    cdef Tensor view, o
    cdef int d, n = 0, nreduced = 0, ndim = x.ndim_
    if kernel.kind == KERNEL_PYTHON:
        keep = [keepdim_view(<Tensor>o, ndim, shape) for o in outs]
        call_python_kernel(op, kernel, (tuple(keep), x, dims, plain_params(op, flat)))
        return 0
    view = alias_geometry(x, ndim, x.offset_)
    for d in range(ndim):
        if not reduced[d]:
            view.shape_[n], view.stride_[n] = x.shape_[d], x.stride_[d]
            n += 1
    for d in range(ndim):
        if reduced[d]:
            view.shape_[n], view.stride_[n] = x.shape_[d], x.stride_[d]
            n += 1
            nreduced += 1
    finish_alias(view, x)
    for d in range(ndim):
        order_shape[d] = view.shape_[d]
    padded = []
    for o in outs:
        padded.append(reduction_output(o, view, ndim - nreduced))
    item[0] = <PyObject*>view
    if len(padded) == 1:
        return call_c_loop(op, kernel, dev, item, 1, common, flat, <PyObject*>padded[0], None, ndim, order_shape,
                           nreduced)
    return call_c_loop(op, kernel, dev, item, 1, common, flat, NULL, tuple(padded), ndim, order_shape, nreduced)


cdef Tensor keepdim_view(Tensor o, int ndim, int64_t* shape):
    """The output with the reduced dimensions present, of size one."""
    cdef Tensor t = alias_geometry(o, ndim, o.offset_)
    memcpy(t.shape_, shape, ndim * sizeof(int64_t))
    contiguous_strides(ndim, shape, t.stride_)
    if not o.flags & CONTIGUOUS:
        spread_strides(t, o)
    finish_alias(t, o)
    return t


cdef void spread_strides(Tensor t, Tensor o) noexcept:
    cdef int d, k = o.ndim_ - 1
    for d in range(t.ndim_ - 1, -1, -1):
        if o.ndim_ == t.ndim_:
            t.stride_[d] = o.stride_[d]
        elif k >= 0 and t.shape_[d] == o.shape_[k]:
            t.stride_[d] = o.stride_[k]
            k -= 1


cdef Tensor reduction_output(Tensor o, Tensor view, int nkept):
    """The output as an operand of the loop: stride zero along the reduced dimensions."""
    cdef Tensor t = alias_geometry(o, view.ndim_, o.offset_)
    cdef int d, k = 0
    for d in range(view.ndim_):
        t.shape_[d] = view.shape_[d]
        t.stride_[d] = 0
    for d in range(o.ndim_):
        if o.ndim_ == nkept:
            t.stride_[d] = o.stride_[d]
        elif o.shape_[d] != 1 and k < nkept:
            while k < nkept and view.shape_[k] != o.shape_[d]:
                k += 1
            t.stride_[k] = o.stride_[d]
            k += 1
    finish_alias(t, o)
    return t


cdef object call_python_kernel(Op op, tg_kernel* kernel, tuple args):
    """Run a Python kernel: no recording, nothing standing between."""
    cdef int saved = tg_tls.grad_enabled
    cdef void* intercept = tg_tls.intercept
    tg_tls.below_autograd += 1
    tg_tls.grad_enabled = 0
    tg_tls.intercept = NULL
    try:
        result = (<object>kernel.callable)(*args)
    finally:
        tg_tls.below_autograd -= 1
        tg_tls.grad_enabled = saved
        tg_tls.intercept = intercept
    if result is not None and args[0] is not None and len(args[0]):
        check_kernel_result(op, args[0], result)
    return result


cdef object call_native(Op op, tuple args):
    """Run an op that the core computes itself: no recording, nothing standing between."""
    cdef int saved = tg_tls.grad_enabled
    cdef void* intercept = tg_tls.intercept
    tg_tls.below_autograd += 1
    tg_tls.grad_enabled = 0
    tg_tls.intercept = NULL
    try:
        return op.native(*args)
    finally:
        tg_tls.below_autograd -= 1
        tg_tls.grad_enabled = saved
        tg_tls.intercept = intercept


cdef object run_scan(Op op, PyObject** flat, object out):
    cdef Tensor x = <Tensor>flat[0], o
    cdef DeviceRuntime dev = x.storage_.dev
    cdef int common, i, want
    cdef tg_kernel* kernel
    cdef PyObject* arguments[MAX_PARAMS]
    override, dim = None, 0
    for i in range(1, op.nparams):
        name = <str>PyTuple_GET_ITEM(op.names, i)
        if name == "dtype":
            override = <object>flat[i]
        elif name == "dim":
            dim = <object>flat[i]
    if x.flags & (CONJ | NEG):
        x = resolved(x)
    if override is not None:
        common = (<dtype>override).index
    else:
        promote_operands(op, flat, &common)
    if x.dtype_.index != common:
        x = cast_tensor(x, common)
    kernel = find_kernel(op, dev.slot, common)
    made, targets = [], []
    for i in range(op.nout):
        want = result_dtype(op, i, common)
        if out is not None:
            o = out[i] if op.nout > 1 else out
            prepare_out(op, o, x.ndim_, x.shape_, want)
            if o.dtype_.index != want or o.storage_ is x.storage_ or o.flags & (CONJ | NEG):
                targets.append((o, len(made)))
                o = empty_contiguous(x.ndim_, x.shape_, want, dev)
        else:
            o = empty_contiguous(x.ndim_, x.shape_, want, dev)
        made.append(o)
    if not dev.type.meta and x.numel_:
        if kernel.kind == KERNEL_CALL:
            memcpy(arguments, flat, op.nparams * sizeof(PyObject*))
            arguments[0] = <PyObject*>x
            call_c_kernel(op, kernel, dev, made, arguments)
        else:
            call_python_kernel(op, kernel, (tuple(made), x, dim, plain_params(op, flat)))
    for o, i in targets:
        copy_into(o, made[i])
    if out is not None:
        return out
    if op.nout == 1:
        return made[0]
    return op.return_type(*made) if op.return_type is not None else tuple(made)


cdef object run_kernel_op(Op op, PyObject** flat, object out):
    """A general op: check, shape rule, allocation, kernel."""
    cdef DeviceRuntime dev
    cdef Tensor o, t, first = None
    cdef int i, p, key
    cdef tg_kernel* kernel
    cdef int64_t shape[MAX_DIMS]
    cdef tuple args
    cdef bint lazy = False
    cdef tg_plan_key plan
    cdef tg_plan* known
    # Of tensors to write to, the one of an in-place form alone is in the key.
    cdef bint planned = op.plannable and (out is None or <PyObject*>out == flat[0]) and plan_key(op, flat, &plan)
    if planned:
        known = plan_of(op, &plan)
        if known != NULL:
            if op.written >= 0:
                return run_planned_writing(op, flat)
            if op.definition.shape_depends_on_data:
                return deliver(op, run_planned_dynamic(op, flat), out)
            if out is None:
                return run_planned(op, known, flat)
            if in_place_of(known, <Tensor>out):
                return run_planned_into(op, flat, <Tensor>out)
    args = PyTuple_New(op.nparams)
    for i in range(op.nparams):
        item = <object>flat[i]
        if isinstance(item, Tensor):
            if first is None:
                first = <Tensor>item
            if (<Tensor>item).flags & (CONJ | NEG) and op.written != i:
                item = resolved(<Tensor>item)
        elif op.ptype[i] == P_TENSORS:
            for member in item:
                if member is not None:
                    if first is None:
                        first = <Tensor>member
                    lazy = lazy or (<Tensor>member).flags & (CONJ | NEG)
            if lazy and not op.written_lists:
                item = [resolved(<Tensor>m) if m is not None and (<Tensor>m).flags & (CONJ | NEG) else m
                        for m in item]
        Py_INCREF(item)
        PyTuple_SET_ITEM(args, i, item)
    dev = kernel_device(op, args)
    definition = op.definition
    if op.has_check:
        definition.check_arguments(args)
    if op.native is not None:
        result = call_native(op, args)
        return result if op.written >= 0 else deliver(op, result, out)
    if op.written_lists:
        if first is not None and not dev.type.meta:
            kernel = find_kernel(op, dev.slot, first.dtype_.index)
            # What is conjugated cannot be resolved into a copy: it is written to.
            if lazy and kernel.kind == KERNEL_CALL:
                run_tensor_code(op, (), args)
            else:
                run_kernel(op, kernel, dev, (), args)
        return args[op.tensor_param[0]] if op.nout else None
    planned = planned and first is not None and not dev.type.meta
    key = first.dtype_.index if first is not None else default_dtype
    kernel = find_kernel(op, dev.slot, key)
    if planned and (op.written >= 0 or definition.shape_depends_on_data):
        keep_plan(op, &plan, [])
    if op.written >= 0:
        t = <Tensor>args[op.written]
        if dev.type.meta:
            return t
        if t.flags & (CONJ | NEG):
            o = resolved(t)
            run_kernel(op, kernel, dev, (o,), args[:op.written] + (o,) + args[op.written + 1:])
            copy_into(t, o)
        else:
            run_kernel(op, kernel, dev, (t,), args)
        return t
    if definition.shape_depends_on_data:
        if dev.type.meta:
            raise NotImplementedError(f"{op.title}: the shape of the result depends on data, which a tensor on "
                                      f"{dev.device} does not have")
        result = call_python_kernel(op, kernel, (None, args))
        return deliver(op, result, out)
    metas = definition.output_metas(args)
    form = definition.result_format(args) if out is None else None
    if form is contiguous_format:
        form = None
    if planned and out is None:
        keep_plan(op, &plan, metas, form is not None)
    made, targets = [], []
    for i, (size, dt) in enumerate(metas):
        for p, extent in enumerate(size):
            shape[p] = extent
        if out is not None:
            o = out[i] if op.nout > 1 else out
            if <PyObject*>out == flat[0]:
                check_inplace_shape(op, o, <int>len(size), shape)
            prepare_out(op, o, len(size), shape, (<dtype>dt).index)
            if definition.strict_out is True:  # once more, for what was resized
                check_apart(op, args, [o])
            if o.storage_.dev.type is not dev.type:
                raise RuntimeError(f"{op.title}: expected out tensor to have device {dev.device}, "
                                   f"but got {o.storage_.dev.device} instead")
            if planned and o.dtype_ is dt and has_shape(o, <int>len(size), shape):
                # The plan serves the form that makes its result, too.
                if definition.memory_format is None or definition.result_format(args) is contiguous_format:
                    keep_plan(op, &plan, metas)
            if o.dtype_ is not dt or o.flags & (CONJ | NEG) or shares_storage(o, args, kernel.kind == KERNEL_CALL):
                targets.append((o, len(made)))
                o = empty_contiguous(len(size), shape, (<dtype>dt).index, dev)
        elif form is not None and len(size) == len(metas[0][0]):
            o = empty_strided(size, format_strides(size, form), dt, dev.device)
        else:
            o = empty_contiguous(len(size), shape, (<dtype>dt).index, dev)
        made.append(o)
    if not dev.type.meta:
        run_kernel(op, kernel, dev, made, args)
    for o, i in targets:
        copy_into(o, made[i])
    if out is not None:
        return out
    if op.nout == 1:
        return made[0]
    return op.return_type(*made) if op.return_type is not None else tuple(made)


cdef bint shares_storage(Tensor o, tuple args, bint inplace):
    """Whether writing o might change an argument.

    Args:
        inplace: o may be the first argument itself.
    """
    cdef Py_ssize_t i
    for i, a in enumerate(args):
        if inplace and i == 0 and a is o:
            continue
        if isinstance(a, Tensor) and (<Tensor>a).storage_ is o.storage_:
            return True
        if type(a) is list:
            for m in a:
                if isinstance(m, Tensor) and (<Tensor>m).storage_ is o.storage_:
                    return True
    return False


cdef object deliver(Op op, object result, object out):
    results = result if isinstance(result, (tuple, list)) else (result,)
    if out is not None:
        outs = out if isinstance(out, (tuple, list)) else (out,)
        for o, r in zip(outs, results):
            prepare_out(op, <Tensor>o, (<Tensor>r).ndim_, (<Tensor>r).shape_, (<Tensor>r).dtype_.index)
            copy_into(<Tensor>o, <Tensor>r)
        return out
    if op.nout == 1:
        return results[0]
    return op.return_type(*results) if op.return_type is not None else tuple(results)


cdef DeviceRuntime kernel_device(Op op, tuple args):
    cdef Tensor first = None, t
    for a in args:
        members = a if type(a) is list else (a,)
        for m in members:
            if not isinstance(m, Tensor):
                continue
            t = m
            if first is None:
                first = t
            elif t.storage_.dev.type is not first.storage_.dev.type or t.storage_.dev.index != first.storage_.dev.index:
                mixes = op.definition.mixes_devices
                if not mixes or mixes == "cpu" and t.storage_.dev.type.name != "cpu":
                    raise RuntimeError(
                        f"{op.title}: expected all tensors to be on the same device, but found at least two devices, "
                        f"{first.storage_.dev.device} and {t.storage_.dev.device}! Move one with .to(device).")
    return runtime_of(None) if first is None else first.storage_.dev
