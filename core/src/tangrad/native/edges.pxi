# The edges of the graph: where a tensor's gradient goes, what a recorded op leaves on its results.

cdef Node grad_fn_of(Tensor t):
    """The node that made t; a view of a base written meanwhile gets a new one."""
    cdef int64_t version
    cdef Node remade
    if t.base_ is None:
        return t.grad_fn_
    version = version_of(t)
    if t.view_version == version:
        return t.grad_fn_
    if t.grad_fn_ is None and not requires_grad(t.base_):
        return None
    if t.flags & (NO_GRAD_VIEW | MULTI_VIEW):
        raise view_error(t, "its base or another view of its base has been", f"[{describe_tensor(t)}]")
    remade = strided_view_node(t)
    move_retained(t, remade)
    t.grad_fn_ = remade
    t.output_nr_ = 0
    t.flags &= ~<uint32_t>REQUIRES_GRAD
    t.view_version = version
    return remade


cdef Node strided_view_node(Tensor t):
    if t.dtype_ is not t.base_.dtype_ or (t.flags ^ t.base_.flags) & (CONJ | NEG):
        return reinterpreting_view_node(t)
    cdef Op op = lookup_op("as_strided")
    cdef PyObject* flat[4]
    cdef object shape, stride, offset
    shape, stride, offset = tg_make_size(t.ndim_, t.shape_), tuple(shape_list(t.ndim_, t.stride_)), t.offset_
    flat[0] = <PyObject*>t.base_
    flat[1] = <PyObject*>shape
    flat[2] = <PyObject*>stride
    flat[3] = <PyObject*>offset
    cdef Node node = record_inputs(op, flat, 1)
    set_output_meta(node, t)
    return node


cdef Node reinterpreting_view_node(Tensor t):
    """The node of a view of other numbers than the base's: pairs, conjugates, negations."""
    from tangrad.dispatch.slices import seen_as
    cdef tg_thread_state outer = tg_tls
    tg_tls.intercept = NULL
    tg_tls.grad_enabled, tg_tls.below_autograd = 1, 0
    try:
        return (<Tensor>seen_as(t.base_, meta_of(t), t.offset_)).grad_fn_
    finally:
        tg_tls.intercept, tg_tls.grad_enabled = outer.intercept, outer.grad_enabled
        tg_tls.below_autograd = outer.below_autograd


cdef inline Node edge_of(Tensor t, uint32_t* nr):
    cdef Node node = grad_fn_of(t)
    if node is not None:
        nr[0] = t.output_nr_
        return node
    nr[0] = 0
    # Not requires_grad(): a view made under no_grad says it requires a gradient because its base
    # does, but has no history and is no leaf of ours; its gradient goes nowhere, as in PyTorch.
    if t.flags & REQUIRES_GRAD:
        return accumulator_of(t)
    return None


cdef Node accumulator_of(Tensor t):
    cdef AccumulateGrad node
    if t.accumulator_ != NULL:
        return <Node><object>t.accumulator_
    node = AccumulateGrad.__new__(AccumulateGrad)
    node.variable_ = t
    node.seq = UINT64_MAX
    node.nout = 1
    t.accumulator_ = <void*>node
    return node


cdef inline void set_output_meta(Node node, Tensor t):
    node.nout = 1
    node.meta_ndim = t.ndim_
    node.meta_dtype = t.dtype_.index
    node.meta_dev = t.storage_.dev
    if t.ndim_ <= INLINE_DIMS:
        memcpy(node.meta_shape, t.shape_, t.ndim_ * sizeof(int64_t))
    else:
        node.meta_large = meta_of(t)


cdef TensorMeta output_meta(Node node, int nr):
    cdef TensorMeta m
    if isinstance(node, AccumulateGrad):
        return meta_of((<AccumulateGrad>node).variable_)
    if node.metas is not None:
        return node.metas[nr]
    if node.meta_large is not None:
        return node.meta_large
    if node.meta_dev is None:
        return None
    m = TensorMeta.__new__(TensorMeta)
    m.shape = tg_make_size(node.meta_ndim, node.meta_shape)
    m.strides = None
    m.dtype = <dtype>DTYPES[node.meta_dtype]
    m.dev = node.meta_dev
    return m


cdef Node record_inputs(Op op, PyObject** flat, uint64_t needs):
    """Make the node of a call: edges, and what its rule saves of the inputs."""
    cdef Node node = Node.__new__(Node)
    cdef Tensor t
    cdef Node source
    cdef uint32_t nr
    cdef int i, k, edges = 0
    cdef PyObject* x
    cdef list numbers = None
    node.op = op
    node.rule = rule_for(op, needs)
    node.list_length = -1
    if op.list_param >= 0:
        record_edges_with_list(node, op, flat, needs)
    else:
        node.next_ = PyTuple_New(op.ntensors)
        for i in range(op.ntensors):
            x = flat[op.tensor_param[i]]
            source = None
            nr = 0
            if needs >> i & 1:
                source = edge_of(<Tensor>x, &nr)
            Py_INCREF(source)
            PyTuple_SET_ITEM(node.next_, i, source)
            if i < 6:
                node.nr_small[i] = nr
            elif nr:
                if numbers is None:
                    numbers = [node.nr_small[k] for k in range(6)] + [0] * (op.ntensors - 6)
                numbers[i] = nr
        if numbers is not None:
            node.nr_large = tuple(numbers)
    # Numbered after its edges: reading one may make a node, and children come before parents.
    node.seq = next_sequence()
    if anomaly_mode:
        remember_origin(node)
    if node.rule.nsaves:
        save_inputs(node, flat)
    track_lightly(node)
    return node


cdef int record_edges_with_list(Node node, Op op, PyObject** flat, uint64_t needs) except -1:
    cdef uint32_t nr
    sources, numbers = [], []
    for i in range(op.ntensors):
        value = <object>flat[op.tensor_param[i]]
        members = value if op.ptype[op.tensor_param[i]] == P_TENSORS else (value,)
        if op.tensor_param[i] == op.list_param:
            node.list_length = len(members)
        for member in members:
            nr = 0
            source = edge_of(<Tensor>member, &nr) if needs >> i & 1 and isinstance(member, Tensor) else None
            sources.append(source)
            numbers.append(nr)
    node.next_ = tuple(sources)
    node.nr_large = tuple(numbers)
    return 0


# --- connecting ---------------------------------------------------------------------------

cdef inline void attach(Node node, Tensor t, uint32_t nr):
    t.grad_fn_ = node
    t.output_nr_ = nr
    t.view_version = version_of(t)


cdef int connect_outputs(Node node, object outputs) except -1:
    """Make node the grad_fn of its differentiable outputs and let it save results."""
    cdef Tensor t
    cdef uint32_t nr = 0
    if isinstance(outputs, Tensor):
        if not differentiable((<Tensor>outputs).dtype_.index):
            return 0  # floats made integers: nothing flows back
        set_output_meta(node, <Tensor>outputs)
        attach(node, <Tensor>outputs, 0)
    else:
        metas = []
        for x in outputs:
            t = x
            metas.append(meta_of(t))
            if differentiable(t.dtype_.index):
                attach(node, t, nr)
            nr += 1
        node.metas = tuple(metas)
        node.nout = nr
    if node.rule is not None and node.rule.nsaves:
        save_results(node, outputs)
    return 0


cdef inline bint differentiable(int dtype_index) noexcept:
    cdef int kind = KIND[COMPUTE[dtype_index]]
    return kind == KIND_FLOAT or kind == KIND_COMPLEX


cdef int connect_function(Node node, first, outputs, dirty) except -1:
    cdef uint32_t nr
    cdef Tensor t
    node.seq = next_sequence()
    if anomaly_mode:
        remember_origin(node)
    node.nout = len(outputs)
    if len(outputs) == 1 and outputs[0][0] is not None:
        set_output_meta(node, <Tensor>outputs[0][0])
    else:
        node.metas = tuple([None if x is None else meta_of(<Tensor>x) for x, _ in outputs])
    for nr, (x, is_differentiable) in enumerate(outputs):
        if not is_differentiable:
            continue
        t = x
        if not any([t is d for d in dirty]):
            attach(node, t, nr)
            continue
        # Written or not, all that share this memory find the history that begins here.
        bump_version(t, node_name(node))
        if t.base_ is None:
            move_retained(t, node)
            attach(node, t, nr)
            t.flags &= ~<uint32_t>REQUIRES_GRAD
        elif len(outputs) > 1 or first is not t:
            raise RuntimeError("a Function that writes to a view in place must take it as its first input and return "
                               "nothing else; write to a clone instead")
        else:
            rebase_history(t, node)
    return 0


def check_dirty(Tensor t not None, str name):
    """Refuse to let a Function write in place what records or views forbid."""
    check_inference(t, name)
    check_writable(t, name, False)


cdef int check_inference(Tensor t, str op_name) except -1:
    """Refuse to write a tensor of inference mode outside of it."""
    if t.flags & INFERENCE and not tg_tls.inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed. You can make a "
                           f"clone to get a normal tensor before doing inplace update. (op '{op_name}')")
    return 0


cdef int check_writable(Tensor t, str op_name, bint records) except -1:
    """Refuse in-place writes that would lose history, as PyTorch does.

    Args:
        records: whether the write itself has a history.
    """
    if t.base_ is not None and (records or requires_grad(t)):
        if t.flags & (NO_GRAD_VIEW | MULTI_VIEW):
            raise view_error(t, "is being", f"op '{op_name}'")
    if t.base_ is not None and t.base_.flags & REQUIRES_GRAD and grad_fn_of(t.base_) is None:
        raise RuntimeError(f"a view of a leaf Variable that requires grad is being used in an in-place operation "
                           f"(op '{op_name}'); write under no_grad() or to a clone.")
    if t.flags & REQUIRES_GRAD and grad_fn_of(t) is None:
        raise RuntimeError(f"a leaf Variable that requires grad is being used in an in-place operation "
                           f"(op '{op_name}'); write under no_grad() or to a clone.")
    return 0


cdef object view_error(Tensor t, str what, str where):
    """The error of a write, to a view or to what it shows, that the view's history cannot follow."""
    cdef bint unrecorded = t.flags & NO_GRAD_VIEW and not t.flags & FUNCTION_VIEW \
        and not isinstance(t.grad_fn_, FunctionNode)
    cdef str made = "inference mode" if t.flags & INFERENCE_VIEW else "no_grad mode"
    cdef str text, block
    if unrecorded:
        block = "inference_mode" if t.flags & INFERENCE_VIEW else "no_grad"
        text = "A view was" if t.grad_fn_ is None else (
            f"Output {t.output_nr_} of {node_name(t.grad_fn_)} is a view of a view which was")
        text += (f" created in {made} and {what} modified inplace "
                 f"{'in normal mode' if t.flags & INFERENCE_VIEW else 'with grad mode enabled'}. Given that this use "
                 "case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the "
                 f"view and the inplace either both inside the {block} block or both outside.")
    else:
        text = (f"Output {t.output_nr_} of {'a function' if t.grad_fn_ is None else node_name(t.grad_fn_)} is a view "
                f"and {what} modified inplace. ")
        text += ("This view was created inside a custom Function (or because an input was returned as-is) and the "
                 "autograd logic to handle view+inplace would override the custom backward associated with the custom "
                 "Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning "
                 "the output of the custom Function." if t.flags & NO_GRAD_VIEW else
                 "This view is the output of a function that returns multiple views. Such functions do not allow the "
                 "output views to be modified inplace. You should replace the inplace operation by an out-of-place "
                 "one.")
    return RuntimeError(f"{text} ({where})")


cdef int rebase_history(Tensor t, Node node) except -1:
    """The written tensor's history is now the writer's; a view's write belongs to its base."""
    cdef CopySlices c
    cdef Node source
    cdef uint32_t nr = 0
    if t.base_ is None:
        move_retained(t, node)
        set_output_meta(node, t)
        attach(node, t, 0)
        t.flags &= ~<uint32_t>REQUIRES_GRAD
        if node.rule is not None and node.rule.nsaves:
            save_results(node, t)
        return 0
    c = CopySlices.__new__(CopySlices)
    source = edge_of(t.base_, &nr)
    c.writer = node
    set_output_meta(node, t)
    c.base_meta = meta_of(t.base_)
    c.view_meta = meta_of(t)
    c.seq = next_sequence()
    c.next_ = (source,) + node.next_[1:]
    c.nr_large = (nr,) + tuple([node.nr(i) for i in range(1, len(node.next_))])
    move_retained(t.base_, c)
    set_output_meta(c, t.base_)
    attach(c, t.base_, 0)
    t.base_.flags &= ~<uint32_t>REQUIRES_GRAD
    if node.rule is not None and node.rule.nsaves:
        save_results(node, t)
    node.slices = PyWeakref_NewRef(c, None)
    grad_fn_of(t)  # now, for the base may lose its history before anybody asks
    return 0


cdef int move_retained(Tensor t, Node node) except -1:
    cdef Node old = t.grad_fn_
    if t.flags & RETAIN_GRAD and old is not None and old.hooks is not None:
        entry = (<dict>old.hooks).get("retain", {}).pop(t.output_nr_, None)
        if entry is not None:
            node_hooks(node).setdefault("retain", {})[0] = entry
    return 0
