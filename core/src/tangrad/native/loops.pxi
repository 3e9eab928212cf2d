# Kernels called over a loop: operands' strides, coalesced dimensions, encoded parameters.

cdef int launch_pointwise(Op op, tg_kernel* kernel, DeviceRuntime dev, operand_set* s, PyObject** flat,
                          PyObject* single, tuple several, int ndim, const int64_t* shape) except -1:
    if dev.type.meta:
        return 0
    if kernel.kind == KERNEL_PYTHON:
        call_python_pointwise(op, kernel, s, flat, (<object>single,) if several is None else several)
        return 0
    if tg_tls.queue != NULL and single != NULL and kernel.kind == KERNEL_C \
            and queued(op, kernel, dev, s, <Tensor>single):
        return 0
    return call_c_loop(op, kernel, dev, s.item, s.n, s.common, flat, single, several, ndim, shape, 0)


cdef object call_python_pointwise(Op op, tg_kernel* kernel, operand_set* s, PyObject** flat, tuple outs):
    cdef int i
    inputs = tuple([<object>s.item[i] for i in range(s.n)])
    params = plain_params(op, flat)
    tg_tls.below_autograd += 1
    saved, tg_tls.grad_enabled = tg_tls.grad_enabled, 0
    saved_intercept, tg_tls.intercept = <size_t>tg_tls.intercept, NULL
    try:
        result = (<object>kernel.callable)(outs, inputs, params)
    finally:
        tg_tls.below_autograd -= 1
        tg_tls.grad_enabled = saved
        tg_tls.intercept = <void*><size_t>saved_intercept
    if result is not None:
        check_kernel_result(op, outs, result)


cdef int check_kernel_result(Op op, tuple outs, object result) except -1:
    """Tell a kernel that returns values that nobody takes them: it has to write into its outputs."""
    for x in result if isinstance(result, (tuple, list)) else (result,):
        if x is None or any([x is out for out in outs]):
            continue
        raise TypeError(f"the kernel of '{op.name}' on device '{(<Tensor>outs[0]).storage_.dev.device}' returned "
                        f"{_type_name(x)}: a kernel writes into the tensors of `outs`, its first argument, and "
                        "returns nothing")
    return 0


cdef dict plain_params(Op op, PyObject** flat):
    cdef int i
    params = {}
    for i in range(op.nparams):
        if op.edge_param[i] < 0:
            params[op.names[i]] = <object>flat[i]
    return params


cdef int call_c_loop(Op op, tg_kernel* kernel, DeviceRuntime dev, PyObject** item, int nin, int common, PyObject** flat,
                     PyObject* single, tuple several, int ndim, const int64_t* shape, int nreduced) except -1:
    """Lay the loop out: broadcast strides in bytes, merge dimensions, call the C kernel."""
    cdef tg_loop loop
    cdef int64_t loop_shape[MAX_DIMS]
    cdef int64_t strides[MAX_OPERANDS][MAX_DIMS]
    cdef Tensor t
    cdef int nout = 1 if several is None else <int>PyTuple_GET_SIZE(several)
    cdef int total = nout + nin, i, d, k
    cdef int64_t numel = 1
    cdef PyObject* x
    loop.nout, loop.nin = nout, nin
    loop.nreduced = nreduced
    for i in range(total):
        if i < nout:
            x = single if several is None else PyTuple_GET_ITEM(several, i)
        else:
            x = item[i - nout]
        loop.operands[i].strides = strides[i]
        if not isinstance(<object>x, Tensor):
            loop.operands[i].is_scalar = 1
            loop.operands[i].dtype = COMPUTE[common]
            loop.operands[i].data = &loop.operands[i].value
            if x != Py_None_ptr:
                encode_scalar(<object>x, COMPUTE[common], loop.operands[i].value.bytes)
            for d in range(ndim):
                strides[i][d] = 0
            continue
        t = <Tensor>x
        fill_operand(&loop.operands[i], t, strides[i])
        for d in range(ndim):
            k = d - (ndim - t.ndim_)
            strides[i][d] = 0 if k < 0 or (t.shape_[k] == 1 and shape[d] != 1) else \
                t.stride_[k] * ITEMSIZE[t.dtype_.index]
    for d in range(ndim):
        loop_shape[d] = shape[d]
        numel *= shape[d]
    loop.numel = numel
    loop.ndim = coalesce(ndim, loop_shape, strides, total, not op.ordered) if nreduced == 0 else ndim
    loop.shape = loop_shape
    if numel == 0 and nreduced == 0:
        return 0
    return run_c_loop(op, kernel, dev, common, flat, &loop)


cdef int run_c_loop(Op op, tg_kernel* kernel, DeviceRuntime dev, int common, PyObject** flat, tg_loop* loop) except -1:
    """Complete a loop whose geometry and operands are there, and call the C kernel."""
    cdef tg_scalar params[MAX_PARAMS]
    cdef int i, status
    loop.version = 1
    loop.compute_dtype = COMPUTE[common]
    loop.device_index = dev.index
    loop.nparams = 0
    for i in range(op.nparams):
        if op.edge_param[i] < 0 and loop.nparams < TG_MAX_PARAMS and is_number(<object>flat[i]):
            encode_param(op, i, <object>flat[i], COMPUTE[common], loop.nreduced, &params[loop.nparams])
            loop.nparams += 1
    loop.params = params
    if loop.numel > 16384:
        with nogil:
            status = kernel.fn(loop, kernel.context)
    else:
        status = kernel.fn(loop, kernel.context)
    if status != 0:
        if PyErr_Occurred() == NULL:
            raise RuntimeError(f"{op.title}: the kernel failed with status {status}")
        raise_current()
    return 0


cdef inline int encode_param(Op op, int k, object number, int compute, int nreduced, tg_scalar* out) except -1:
    """Numbers as tangrad_abi.h says: a seed keeps all its bits, a complex number both its parts."""
    if nreduced == 0 and op.ptype[k] == P_INT:
        return encode_scalar(number, INT64, out.bytes)
    if KIND[compute] == KIND_COMPLEX:
        return encode_scalar(number, COMPLEX128, out.bytes)
    if PyFloat_Check(number) and (nreduced or KIND[compute] > KIND_INT):
        out.f = number
        return 0
    return encode_scalar(number, compute if KIND[compute] <= KIND_INT else FLOAT64, out.bytes)


cdef int coalesce(int ndim, int64_t* shape, int64_t[MAX_DIMS]* strides, int total, bint sort) noexcept:
    """Sort dimensions by the first operand's strides, if asked, and merge what is contiguous in all."""
    cdef int d, i, kept = 0
    cdef bint mergeable
    if ndim <= 1:
        return ndim
    if sort:
        sort_dimensions(ndim, shape, strides, total)
    for d in range(1, ndim):
        if shape[d] == 1:
            continue
        if shape[kept] == 1:
            mergeable = True
        else:
            mergeable = True
            for i in range(total):
                if strides[i][kept] != shape[d] * strides[i][d]:
                    mergeable = False
                    break
        if mergeable:
            if shape[kept] == 1:
                shape[kept] = shape[d]
            else:
                shape[kept] *= shape[d]
        else:
            kept += 1
            shape[kept] = shape[d]
        for i in range(total):
            strides[i][kept] = strides[i][d]
    return kept + 1


cdef void sort_dimensions(int ndim, int64_t* shape, int64_t[MAX_DIMS]* strides, int total) noexcept:
    cdef int d, j, i
    cdef int64_t swap
    for d in range(1, ndim):
        j = d
        while j > 0 and outer_smaller(j - 1, j, shape, strides, total):
            swap = shape[j]
            shape[j] = shape[j - 1]
            shape[j - 1] = swap
            for i in range(total):
                swap = strides[i][j]
                strides[i][j] = strides[i][j - 1]
                strides[i][j - 1] = swap
            j -= 1


cdef bint outer_smaller(int a, int b, int64_t* shape, int64_t[MAX_DIMS]* strides, int total) noexcept:
    cdef int i
    for i in range(total):
        if strides[i][a] == 0 or strides[i][b] == 0 or strides[i][a] == strides[i][b]:
            continue
        return strides[i][a] < strides[i][b]
    return False
