# Call kernels: a scan or a general op as C sees it.

cdef enum:
    FEW_VIEWS = 24
    FEW_INTS = 96
    # Below this many elements giving up the GIL costs more than it frees.
    HELD_ELEMENTS = 16384


cdef class CallSpace:
    """Memory for the views and integers of a call with more of them than fit the stack."""
    cdef tg_view* views
    cdef int64_t* ints

    def __dealloc__(self):
        free(self.views)
        free(self.ints)


cdef void fill_view(tg_view* view, Tensor t) noexcept:
    view.data = host_pointer(t)
    view.handle = t.storage_.handle
    view.offset = t.storage_.offset + t.offset_ * ITEMSIZE[t.dtype_.index]
    view.dtype = t.dtype_.index
    view.ndim = t.ndim_
    view.shape = t.shape_
    view.strides = t.stride_
    view.numel = t.numel_


cdef int call_c_kernel(Op op, tg_kernel* kernel, DeviceRuntime dev, object outs, PyObject** args) except -1:
    """Lay out a call and run its kernel.

    Args:
        outs: tuple or list of the tensors to write to. args: bound arguments in schema order.

    Returns:
        0, or TG_DECLINED where the kernel leaves the call to the op's tensor code.
    """
    cdef tg_view few_views[FEW_VIEWS]
    cdef int64_t few_ints[FEW_INTS]
    cdef tg_argument arguments[MAX_PARAMS]
    cdef tg_view* views = few_views
    cdef int64_t* ints = few_ints
    cdef tg_call call
    cdef int64_t elements = 0
    cdef Py_ssize_t nviews = len(outs), nints = 0, v = 0, n = 0, i
    cdef int p, status, beyond = 0
    cdef PyObject* x
    cdef CallSpace space = None
    for p in range(op.nparams):
        x = args[p]
        if isinstance(<object>x, Tensor):
            nviews += 1
        elif isinstance(<object>x, list) or isinstance(<object>x, tuple):
            if op.ptype[p] == P_TENSORS:
                nviews += len(<object>x)
            else:
                nints += len(<object>x)
        elif PyComplex_Check(<object>x):
            nints += 2
    if nviews > FEW_VIEWS or nints > FEW_INTS:
        space = CallSpace.__new__(CallSpace)
        space.views = views = <tg_view*>malloc(nviews * sizeof(tg_view))
        space.ints = ints = <int64_t*>malloc((nints + 1) * sizeof(int64_t))
        if views == NULL or ints == NULL:
            raise MemoryError(f"{op.title}: a call with {nviews} tensors")
    for o in outs:
        fill_view(&views[v], <Tensor>o)
        elements += views[v].numel
        v += 1
    for p in range(op.nparams):
        x = args[p]
        arguments[p].count = 0
        if isinstance(<object>x, Tensor):
            fill_view(&views[v], <Tensor>x)
            arguments[p].kind, arguments[p].count, arguments[p].value.tensors = TG_ARG_TENSOR, 1, &views[v]
            elements += views[v].numel
            v += 1
        elif op.ptype[p] == P_TENSORS:
            arguments[p].kind, arguments[p].value.tensors = TG_ARG_TENSORS, &views[v]
            for member in <object>x:
                if member is None:
                    memset(&views[v], 0, sizeof(tg_view))
                    views[v].ndim = -1
                else:
                    fill_view(&views[v], <Tensor>member)
                    elements += views[v].numel
                v += 1
                arguments[p].count += 1
        elif x == Py_None_ptr:
            arguments[p].kind = TG_ARG_NONE
        elif PyBool_Check(<object>x):
            arguments[p].kind, arguments[p].value.i = TG_ARG_BOOL, <object>x is True
        elif PyFloat_Check(<object>x):
            arguments[p].kind, arguments[p].value.f = TG_ARG_FLOAT, <object>x
        elif PyLong_Check(<object>x):
            arguments[p].kind = TG_ARG_INT
            arguments[p].value.i = PyLong_AsLongLongAndOverflow(<object>x, &beyond)
            if beyond and op.ptype[p] in (P_SCALAR, P_SCALAR_OPT, P_OPERAND) and v and KIND[views[0].dtype] > KIND_INT:
                arguments[p].kind, arguments[p].value.f = TG_ARG_FLOAT, <object>x
            elif beyond:
                arguments[p].value.i = <int64_t>PyLong_AsUnsignedLongLongMask(<object>x)
        elif PyComplex_Check(<object>x):
            # Numbers of eight bytes each, as the integers beside them.
            arguments[p].kind, arguments[p].value.parts = TG_ARG_COMPLEX, <double*>&ints[n]
            (<double*>&ints[n])[0], (<double*>&ints[n + 1])[0] = (<object>x).real, (<object>x).imag
            n += 2
        elif isinstance(<object>x, tuple) or isinstance(<object>x, list):
            arguments[p].kind, arguments[p].value.ints = TG_ARG_INTS, &ints[n]
            for i in range(len(<object>x)):
                ints[n] = (<object>x)[i]
                n += 1
            arguments[p].count = <int>len(<object>x)
        elif isinstance(<object>x, str):
            arguments[p].kind, arguments[p].value.text = TG_ARG_TEXT, PyUnicode_AsUTF8(<object>x)
        elif isinstance(<object>x, dtype):
            arguments[p].kind, arguments[p].value.i = TG_ARG_DTYPE, (<dtype>x).index
        else:
            arguments[p].kind = TG_ARG_OTHER
    call.version = 2
    call.nout = <int>len(outs)
    call.nargs = op.nparams
    call.device_index = dev.index
    call.outs = views
    call.args = arguments
    if elements > HELD_ELEMENTS:
        with nogil:
            status = kernel.call(&call, kernel.context)
    else:
        status = kernel.call(&call, kernel.context)
    if status == TG_DECLINED and op.definition.decompose is not None:
        return status
    if status != 0:
        if PyErr_Occurred() == NULL:
            raise RuntimeError(f"{op.title}: the kernel failed with status {status}")
        raise_current()
    return 0


cdef int run_kernel(Op op, tg_kernel* kernel, DeviceRuntime dev, object outs, tuple args) except -1:
    """Run a general op's kernel of either kind into `outs`."""
    cdef PyObject* flat[MAX_PARAMS]
    cdef int i
    if kernel.kind != KERNEL_CALL:
        call_python_kernel(op, kernel, (tuple(outs), args))
        return 0
    for i in range(op.nparams):
        flat[i] = PyTuple_GET_ITEM(args, i)
    if call_c_kernel(op, kernel, dev, outs, flat) == TG_DECLINED:
        run_tensor_code(op, outs, args)
    return 0


cdef int run_tensor_code(Op op, object outs, tuple args) except -1:
    """Run an op's decomposition in place of a kernel that declined."""
    cdef tg_kernel substitute
    from tangrad.dispatch.resolution import decomposition
    code = decomposition(op)
    substitute.callable = <PyObject*>code
    call_python_kernel(op, &substitute, (tuple(outs), args))
    return 0
