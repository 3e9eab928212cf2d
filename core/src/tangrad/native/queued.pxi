# Work that a thread's queue is offered in place of running it: see tg_queue in tangrad_abi.h.

cdef bint queued(Op op, tg_kernel* kernel, DeviceRuntime dev, operand_set* s, Tensor out) noexcept:
    """Whether the thread's queue has taken the work: of one dtype, elements in one order, nothing lent."""
    cdef tg_queued work
    cdef int i
    work.columns = 0
    if op.ordered or op.nparams != op.ntensors or s.n > 8 or out.dtype_.index != s.common or not dev.type.host \
            or KIND[s.common] != KIND_FLOAT or ITEMSIZE[s.common] < 4 \
            or not queued_operand(&work.operands[0], out, out, &work.columns):
        return False
    for i in range(s.n):
        if not isinstance(<object>s.item[i], Tensor):
            if not plain_real(<object>s.item[i]):
                return False
            work.operands[i + 1].storage, work.operands[i + 1].number = NULL, s.item[i]
        elif op.fixed[op.tensor_param[i]] >= 0:
            return False
        elif not queued_operand(&work.operands[i + 1], <Tensor>s.item[i], out, &work.columns):
            return False
    return offered(&work, op, kernel, s, out)


cdef inline bint queue_places() noexcept:
    """Whether the thread has a queue that gives results their memory."""
    return tg_tls.queue != NULL and (<const tg_queue*>tg_tls.queue).flags & TG_QUEUE_PLACES != 0


cdef inline bint offered(tg_queued* work, Op op, tg_kernel* kernel, operand_set* s, Tensor out) noexcept:
    work.size, work.nin, work.op, work.kernel = sizeof(tg_queued), s.n, <PyObject*>op, kernel.fn
    work.context, work.numel, work.dtype, work.device_index = kernel.context, out.numel_, s.common, \
        out.storage_.dev.index
    work.folds = 0
    return (<const tg_queue*>tg_tls.queue).offer(work) != 0


cdef bint queued_plain(Op op, tg_kernel* kernel, operand_set* s, Tensor out) noexcept:
    """The same for operands that `fast_pointwise` has found to be plain and of the result's shape."""
    cdef tg_queued work
    cdef int i
    if op.ordered or out.dtype_.index != s.common or KIND[s.common] != KIND_FLOAT or ITEMSIZE[s.common] < 4 \
            or not out.storage_.dev.type.host or not plain_operand(&work.operands[0], <PyObject*>out):
        return False
    for i in range(s.n):
        if not exact_tensor(s.item[i]):
            work.operands[i + 1].storage, work.operands[i + 1].number = NULL, s.item[i]
        elif not plain_operand(&work.operands[i + 1], s.item[i]):
            return False
    work.columns = 0
    return offered(&work, op, kernel, s, out)


cdef inline bint plain_operand(tg_queued_operand* operand, PyObject* x) noexcept:
    cdef PyObject* s = <PyObject*>(<Tensor>x).storage_
    operand.storage, operand.number, operand.waits = s, NULL, (<UntypedStorage>s).waits
    operand.address = <char*>((<UntypedStorage>s).handle + (<UntypedStorage>s).offset
                              + (<Tensor>x).offset_ * ITEMSIZE[(<Tensor>x).dtype_.index])
    operand.lies = TG_LIES_FULL
    return (<UntypedStorage>s).owner is None and not (<UntypedStorage>s).lent \
        and not (<Tensor>x).flags & PY_DISPATCH


cdef bint queued_fold(Op op, tg_kernel* kernel, Tensor x, Tensor out, int64_t columns, PyObject** flat) noexcept:
    """Whether the thread's queue has taken a fold of contiguous rows, all of one dtype."""
    cdef tg_queued work
    cdef operand_set s
    cdef int i
    s.n, s.common = 1, x.dtype_.index
    work.columns, work.folds, work.nparams = columns, 1, 0
    if out.dtype_ is not x.dtype_ or KIND[s.common] != KIND_FLOAT or ITEMSIZE[s.common] < 4 or columns < 2 \
            or not x.storage_.dev.type.host or not x.flags & CONTIGUOUS \
            or not plain_operand(&work.operands[0], <PyObject*>out) \
            or not plain_operand(&work.operands[1], <PyObject*>x):
        return False
    for i in range(op.nparams):
        if op.edge_param[i] < 0 and is_number(<object>flat[i]):
            # A number that says more than where the fold goes is none that all queues of the op share.
            if i != op.keepdim_param and i != op.dim_param or work.nparams == 2:
                return False
            encode_param(op, i, <object>flat[i], COMPUTE[s.common], 1, &work.params[work.nparams])
            work.nparams += 1
    work.operands[0].lies = TG_LIES_ONE_PER_ROW
    work.size, work.nin, work.op, work.kernel = sizeof(tg_queued), 1, <PyObject*>op, kernel.fn
    work.context, work.numel, work.dtype, work.device_index = kernel.context, x.numel_, s.common, \
        x.storage_.dev.index
    return (<const tg_queue*>tg_tls.queue).offer(&work) != 0


cdef bint queued_operand(tg_queued_operand* operand, Tensor t, Tensor out, int64_t* columns) noexcept:
    cdef UntypedStorage s = t.storage_
    operand.storage, operand.number, operand.waits = <PyObject*>s, NULL, s.waits
    operand.address = <char*>(s.handle + s.offset + t.offset_ * ITEMSIZE[t.dtype_.index])
    operand.lies = TG_LIES_FULL
    if t.numel_ != out.numel_:
        operand.lies = how_it_lies(t, out, columns)
    return operand.lies >= 0 and t.numel_ > 0 and t.flags & CONTIGUOUS != 0 and t.dtype_ is out.dtype_ \
        and s.dev is out.storage_.dev and s.owner is None and not s.lent and not t.flags & (CONJ | NEG | PY_DISPATCH)


cdef int how_it_lies(Tensor t, Tensor out, int64_t* columns) noexcept:
    """How contiguous elements that are broadcast lie, as tangrad_abi.h says; -1: otherwise, or in other rows."""
    cdef int lead = out.ndim_ - t.ndim_, first = 0, last
    cdef int64_t inner = 1
    if t.numel_ <= 1:
        return TG_LIES_ONCE
    while t.shape_[first] == 1:
        first += 1
    last = t.ndim_
    while t.shape_[last - 1] == 1:
        last -= 1
        inner *= out.shape_[lead + last]
    if memcmp(t.shape_ + first, out.shape_ + lead + first, (last - first) * 8) != 0:
        return -1
    if inner == 1:
        inner = t.numel_
        last = -1
    elif inner * t.numel_ != out.numel_:
        return -1
    if columns[0] and columns[0] != inner:
        return -1
    columns[0] = inner
    return TG_LIES_IN_EACH_ROW if last < 0 else TG_LIES_ONE_PER_ROW
