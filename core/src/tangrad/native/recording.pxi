# From the values of an op's parameters to the kernel: what stands between, recording, results given.

# --- the slow path: everything that can stand between ----------------------------------------

cdef object _slow_hook = None
cdef object _offered_hook = None


def set_slow_dispatch(dispatch, offered=None):
    """Install the function (op, functional, args, out) that runs what stands between.

    Args:
        dispatch: for calls that nobody was offered yet.
        offered: for calls that `__torch_function__` has left.
    """
    global _slow_hook, _offered_hook
    _slow_hook, _offered_hook = dispatch, dispatch if offered is None else offered


cdef object dispatch_offered(Op op, Op target, PyObject** flat, object out):
    cdef int i
    return _offered_hook(op, target, tuple([<object>flat[i] for i in range(target.nparams)]), out)


cdef object dispatch_slow(Op op, Op target, PyObject** flat, object out):
    cdef int i
    args = tuple([<object>flat[i] for i in range(target.nparams)])
    return _slow_hook(op, target, args, out)


def call_recorded(Op op not None, tuple args, out=None, bint inplace=False):
    """Run an op from the stage of recording on: record if needed, then the kernel.

    Args:
        op: the functional op. args: all its arguments in schema order, bound.
        out: tensor(s) to write to, or None. inplace: `out` is the op's first tensor.
    """
    cdef PyObject* flat[MAX_PARAMS]
    cdef int i
    for i in range(op.nparams):
        flat[i] = PyTuple_GET_ITEM(args, i)
    return call_flat(op, flat, out, inplace)


def call_unrecorded(function, *args):
    """Call a function whose ops record nothing; unlike under `no_grad`, the views it makes may be written later."""
    cdef int saved = tg_tls.grad_enabled
    tg_tls.below_autograd += 1
    tg_tls.grad_enabled = 0
    try:
        return function(*args)
    finally:
        tg_tls.below_autograd -= 1
        tg_tls.grad_enabled = saved


def bind_arguments(Op op not None, tuple args, dict kwargs):
    """Return (bound arguments in schema order, out) of a call."""
    cdef PyObject* flat[MAX_PARAMS]
    cdef PyObject** values = <PyObject**>malloc((len(args) + len(kwargs) + 1) * sizeof(PyObject*))
    cdef PyObject* out = NULL
    cdef int slow = 0, i, n = 0
    if values == NULL:
        raise MemoryError("arguments of a call")
    try:
        for item in args:
            values[n] = <PyObject*>item
            n += 1
        names = tuple(kwargs)
        for name in names:
            values[n] = <PyObject*>kwargs[name]
            n += 1
        keep = bind(op, values, len(args), <PyObject*>names if names else NULL, flat, &slow, &out)
    finally:
        free(values)
    return tuple([<object>flat[i] for i in range(op.nparams)]), (<object>out if out != NULL else None)


# --- recording ---------------------------------------------------------------------------------

cdef inline uint64_t needs_of(Op op, PyObject** flat) except? 0xFFFFFFFFFFFF:
    cdef uint64_t needs = 0
    cdef PyObject* x
    cdef int i
    for i in range(op.ntensors):
        x = flat[op.tensor_param[i]]
        if op.ptype[op.tensor_param[i]] == P_TENSORS:
            for member in <list>x:
                if isinstance(member, Tensor) and requires_grad(<Tensor>member):
                    needs |= <uint64_t>1 << i
        elif x != Py_None_ptr and isinstance(<object>x, Tensor) and requires_grad(<Tensor>x):
            needs |= <uint64_t>1 << i
    return needs


cdef Rule rule_for(Op op, uint64_t needs):
    found = op.rules.get(needs)
    if found is None:
        found = op.definition.backward_rule(needs)
        op.rules[needs] = found
    return <Rule>found


cdef Tensor drawn_into(Op op, Tensor out, Tensor drawn):
    """Write what a sequential engine drew into the tensor given as out=."""
    prepare_out(op, out, drawn.ndim_, drawn.shape_, drawn.dtype_.index)
    copy_into(out, drawn)
    return out


cdef int64_t ops_called = 0              # counted with the GIL


def op_calls():
    """Return how many ops this process has called so far, those within composites among them."""
    return ops_called


cdef bint written_by_places(Tensor t) except -1:
    """Whether elements of a tensor share memory, and a write to some of them is to be seen in the others."""
    return not t.flags & (CONTIGUOUS | PY_DISPATCH) and t.level_ is None and overlaps_itself(t)


cdef object call_flat(Op op, PyObject** flat, object out, bint inplace):
    global ops_called
    cdef uint64_t needs = 0
    cdef Node node = None
    cdef Tensor t
    cdef int i
    cdef object drawn
    cdef PyObject* copied[MAX_PARAMS]
    ops_called += 1
    if inplace and op.overlapping is not None and written_by_places(<Tensor>out):
        return PyObject_CallObject(op.overlapping, tuple_of(flat, op.nparams))
    if op.kind_ == OP_COMPOSITE:
        return call_composite(op, flat, out, inplace)
    if op.shortcut == SHORT_POWER:
        power = power_of_number(op, flat)
        if power is not None:
            return call_flat(power, flat, out, inplace)
    if op.random and flat[op.nparams - 1] == Py_None_ptr:
        drawn = drawn_as_before(op, flat)
        if drawn is None:
            drawn = op.definition.draw_or_answer(tuple_of(flat, op.nparams))
        if not isinstance(drawn, tuple):
            return drawn if out is None or drawn is out else drawn_into(op, <Tensor>out, <Tensor>drawn)
        flat[op.nparams - 2] = PyTuple_GET_ITEM(drawn, 0)
        flat[op.nparams - 1] = PyTuple_GET_ITEM(drawn, 1)
    if tg_tls.grad_enabled and op.has_rule:
        needs = needs_of(op, flat)
    if op.kind_ == OP_VIEW:
        return call_view(op, flat, needs, inplace)
    if op.written_lists:
        return call_writing_lists(op, flat)
    if out is None:
        if not needs or op.written >= 0:
            if op.written >= 0:
                return call_writing(op, flat, needs)
            return run_op(op, flat, None)
        node = record_inputs(op, flat, needs)
        result = run_op(op, flat, None)
        connect_outputs(node, result)
        return result
    if not inplace:
        return call_out(op, flat, out, needs)
    t = out
    check_inference(t, op.inplace.title)
    if op.apart:
        check_apart(op, tuple_of(flat, op.nparams), [t], True)
    if tg_tls.grad_enabled:
        check_writable(t, op.inplace.title, needs != 0)
    if needs:
        if rule_for(op, needs).saves_first_input:
            memcpy(copied, flat, op.nparams * sizeof(PyObject*))
            keep = with_history_of(copy_seen(alias_whole(t)), t)
            copied[op.tensor_param[0]] = <PyObject*>keep
            node = record_inputs(op, copied, needs)
        else:
            node = record_inputs(op, flat, needs)
    run_op(op, flat, out)
    bump_version(t, op.inplace.title)
    if node is not None:
        rebase_history(t, node)
    return out


cdef Tensor with_history_of(Tensor copy, Tensor t):
    """A copy that stands in for t in a node: same edge."""
    cdef Node source = grad_fn_of(t)
    copy.grad_fn_ = source
    copy.output_nr_ = t.output_nr_
    return copy


cdef object call_writing(Op op, PyObject** flat, uint64_t needs):
    """An op whose definition says that it writes one of its arguments (fill_, copy_, ...)."""
    cdef Tensor t = <Tensor>flat[op.written]
    cdef Node node = None
    check_inference(t, op.name)
    if tg_tls.grad_enabled:
        check_writable(t, op.name, needs != 0)
        if needs:
            node = record_inputs(op, flat, needs)
    run_op(op, flat, t)
    bump_version(t, op.name)
    if node is not None:
        rebase_history(t, node)
    return t


cdef object call_writing_lists(Op op, PyObject** flat):
    """An op that writes every tensor of some of its lists: never recorded, so nothing may ask for it."""
    cdef int i
    for i in range(op.nparams):
        if op.ptype[i] == P_TENSORS:
            for member in <list>flat[i]:
                if tg_tls.grad_enabled and requires_grad(<Tensor>member):
                    if op.written_lists >> i & 1:
                        check_writable(<Tensor>member, op.name, True)
                    raise RuntimeError(f"{op.title}: an op that writes lists of tensors has no derivative, but a "
                                       f"tensor of '{op.names[i]}' requires grad; call it under no_grad()")
                if op.written_lists >> i & 1:
                    check_inference(<Tensor>member, op.name)
    result = run_op(op, flat, None)
    for i in range(op.nparams):
        if op.written_lists >> i & 1:
            for member in <list>flat[i]:
                bump_version(<Tensor>member, op.name)
    return result


cdef list checked_outs(Op op, object out, Py_ssize_t count, bint needs):
    """The tensors of out=, of which there must be `count`; a recorded call has no out=."""
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(outs) != count:
        raise TypeError(f"{op.title}(): argument 'out' must be {count} Tensor(s), got {len(outs)}")
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{op.title}(): argument 'out' must be Tensor, not {_type_name(o)}")
        if tg_tls.grad_enabled and (needs or requires_grad(<Tensor>o)):
            raise RuntimeError(f"{op.title}(): functions with out=... arguments don't support automatic "
                               "differentiation, but one of the arguments requires grad.")
        check_inference(<Tensor>o, op.name)
    return outs


cdef int check_apart(Op op, tuple args, list outs, bint inplace=False) except -1:
    """Refuse an out= that shares memory with an input, or within itself; the first input may be what is written."""
    cdef Tensor o
    cdef int i
    for given in outs:
        o = given
        if overlaps_itself(o):
            raise overlap_error(op, o)
        for i in range(inplace, op.ntensors):
            value = args[op.tensor_param[i]]
            for t in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(t, Tensor) and shares_extent(<Tensor>t, o):
                    raise shared_error(op, <Tensor>t, o)
    return 0


cdef object shared_error(Op op, Tensor t, Tensor o):
    return RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
        f"location. Please clone() the tensor before performing the operation. ({op.title} of {describe_tensor(t)} "
        f"into {describe_tensor(o)})")


cdef int check_out_dtype(Op op, PyObject** flat, object out) except -1:
    """Refuse a dtype= other than that of out=; if it cannot be cast to that, the result is refused."""
    cdef dtype wanted
    if op.dtype_param > 0 and op.nout == 1 and flat[op.dtype_param] != Py_None_ptr and isinstance(out, Tensor):
        wanted = <dtype>flat[op.dtype_param]
        if (<Tensor>out).dtype_ is not wanted and can_cast_index(wanted.index, (<Tensor>out).dtype_.index):
            raise RuntimeError(f"{op.title}: Expected out tensor to have dtype {wanted.name}, but got "
                               f"{(<Tensor>out).dtype_.name} instead; leave dtype= out, or pass an out= of it")
    return 0


cdef object call_out(Op op, PyObject** flat, object out, uint64_t needs):
    check_out_dtype(op, flat, out)
    outs = checked_outs(op, out, op.nout, needs != 0)
    if op.definition.strict_out is True:
        check_apart(op, tuple_of(flat, op.nparams), outs)
    run_op(op, flat, outs[0] if op.nout == 1 else tuple(outs))
    for o in outs:
        bump_version(<Tensor>o, op.name)
    return out if op.nout == 1 else (op.return_type(*outs) if op.return_type is not None else tuple(outs))


cdef object pinned(Op op, PyObject** flat, object out):
    """The result of a factory in page-locked memory; a device without memory has nothing to lock."""
    cdef object unpinned = False
    flat[op.pin_param] = <PyObject*>unpinned
    result = call_composite(op, flat, out, False)
    return result if (<Tensor>result).storage_.dev.type.meta else result.pin_memory()


cdef object call_composite(Op op, PyObject** flat, object out, bint inplace):
    if op.pin_param > 0 and <object>flat[op.pin_param] is True:
        return pinned(op, flat, out)
    if op.shortcut and not standing() and (out is None or inplace and op.shortcut == SHORT_MASKED_FILL):
        result = shortcut(op, flat) if out is None else masked_filled(op, flat, out)
        if result is not NotImplemented:
            return result
    if out is not None and not inplace:
        check_out_dtype(op, flat, out)
    if inplace and op.apart:
        check_apart(op, tuple_of(flat, op.nparams), [out], True)
    if inplace and op.definition.writes is not None:
        return PyObject_CallObject(op.definition.writes, tuple_of(flat, op.nparams))
    arguments = tuple_of(flat, op.nparams)
    if inplace and tg_tls.grad_enabled and requires_grad(<Tensor>out):
        # What the calls inside save must outlive the write.
        arguments = (with_history_of(copy_seen(alias_whole(<Tensor>out)), <Tensor>out), *arguments[1:])
    result = PyObject_CallObject(op.function, arguments)
    if op.return_type is not None and type(result) is tuple:
        result = op.return_type(*result)
    if out is None:
        return result
    if op.definition.strict_out is True and not inplace:
        check_apart(op, tuple_of(flat, op.nparams), checked_outs(op, out, op.nout, False))
    if inplace:
        check_inplace_shape(op, <Tensor>out, (<Tensor>result).ndim_, (<Tensor>result).shape_)
        prepare_out(op, <Tensor>out, (<Tensor>result).ndim_, (<Tensor>result).shape_, (<Tensor>result).dtype_.index)
        return lookup_op("copy_")(out, result)
    return deliver_composite(op, result, out)


cdef object deliver_composite(Op op, object result, object out):
    """Copy the results of tensor code into the tensors of out=."""
    cdef Tensor o, r
    cdef bint several = isinstance(result, (tuple, list))
    results = list(result) if several else [result]
    outs = checked_outs(op, out, len(results), any([requires_grad(<Tensor>t) for t in results]))
    for given, made in zip(outs, results):
        o, r = given, made
        if o.storage_.dev.type is not r.storage_.dev.type:
            raise RuntimeError(f"{op.title}: expected out tensor to have device {r.storage_.dev.device}, "
                               f"but got {o.storage_.dev.device} instead")
        if o is r:
            continue
        prepare_out(op, o, r.ndim_, r.shape_, r.dtype_.index)
        lookup_op("copy_")(o, r)
    if not several:
        return out
    return op.return_type(*outs) if op.return_type is not None else tuple(outs)


cdef inline bint plain_real(object number) noexcept:
    return PyFloat_CheckExact(number) or PyLong_CheckExact(number)


cdef bint plainly_valid(Op op, PyObject** flat) noexcept:
    """Whether a pointwise check has nothing to say: tensors of one floating dtype, no parameters."""
    cdef PyObject* first = NULL
    cdef int i
    if op.kind_ != OP_POINTWISE:
        return False
    if op.nparams != op.ntensors:
        if not op.checks_kinds or not plain_real(<object>flat[op.nparams - 1]):
            return False
    for i in range(op.ntensors):
        # A mask of floating numbers is not plain, though all dtypes are the same.
        if op.fixed[i] >= 0:
            return False
        if not isinstance(<object>flat[i], Tensor) or KIND[(<Tensor>flat[i]).dtype_.index] != KIND_FLOAT:
            return False
        if first != NULL and <PyObject*>(<Tensor>flat[i]).dtype_ != first:
            return False
        first = <PyObject*>(<Tensor>flat[i]).dtype_
    return True


cdef object run_op(Op op, PyObject** flat, object out):
    """Below recording: compute, into `out` where given."""
    cdef int i
    if op.has_check and op.kind_ <= OP_SCAN and not plainly_valid(op, flat):
        check_once(op, flat)
    if op.kind_ == OP_POINTWISE:
        return run_pointwise(op, flat, out)
    if op.kind_ == OP_REDUCTION:
        if out is None and op.nout == 1:
            result = run_plain_reduction(op, flat)
            if result is not None:
                return result
        return run_reduction(op, flat, out)
    if op.kind_ == OP_SCAN:
        return run_scan(op, flat, out)
    if op.plain and out is None:
        result = run_plain(op, flat)
        if result is not None:
            return result
    return run_kernel_op(op, flat, out)
