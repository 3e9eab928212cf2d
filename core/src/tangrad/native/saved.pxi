# What a node saves of its inputs and results, and how it gives it back.

cdef enum:
    ANY_VERSION = -1


cdef object save_tensor(Node node, Tensor t, int edge):
    cdef Saved s = Saved.__new__(Saved)
    s.version = version_of(t)
    s.output_nr = t.output_nr_
    s.unpacked = type(t.grad_fn_) is AccumulateGrad
    if t.flags & INFERENCE and not tg_tls.inference:
        raise RuntimeError("Inference tensors cannot be saved for backward. To work around you can make a clone to get "
                           "a normal tensor and use it in autograd.")
    if saved_hooks_everywhere:
        hooks = getattr(_saved_hooks, "stack", None)
        if hooks:
            pack, unpack = hooks[len(hooks) - 1]
            packed = pack_without_grad(pack, t if edge != EDGE_RESULT else alias_saved(t))
            if not t.flags & INFERENCE and version_of(t) != s.version:
                raise RuntimeError("A saved tensor pack hook is modifying its input in place: it has to return another "
                                   f"tensor ({describe_tensor(t)}, saved by {op_title(node)})")
            if not isinstance(packed, SavedAsItIs):
                s.packed = (unpack, packed)
                s.edge = edge
                return s
    # An input that is a wrapper is saved itself: what it wraps is known to its object alone.
    s.data = t if t.flags & PY_DISPATCH and edge != EDGE_RESULT else alias_saved(t)
    if t.flags & PY_DISPATCH:
        s.version = version_of(s.data)  # what its handler gave for a result counts its own writes
    s.data.flags |= t.flags & CONSTANT
    s.edge = edge
    hide_saved(s)
    return s


cdef object pack_without_grad(pack, Tensor t):
    """Call a hook with an input itself, or with a result that has no history: it would hold its node."""
    cdef bint enabled = tg_tls.grad_enabled
    tg_tls.grad_enabled = False
    try:
        return pack(t)
    finally:
        tg_tls.grad_enabled = enabled


cdef Tensor alias_saved(Tensor t):
    """The same tensor without history; of a wrapper, what its handler gives."""
    if not t.flags & PY_DISPATCH:
        return alias_whole(t)
    from tangrad.dispatch.python_dispatch import detached
    return <Tensor?>detached(t)


class SavedAsItIs:
    """What a pack hook returns to leave the tensor where it is."""


_saved_hooks = _thread_local()
cdef int saved_hooks_everywhere = 0     # pairs installed in all threads together: 0 costs one load


def is_backward_watched():
    """Return whether each op's backward is looked at: in anomaly mode, or by this thread's hooks of saved tensors."""
    return anomaly_mode or (saved_hooks_everywhere != 0 and bool(getattr(_saved_hooks, "stack", None)))


def push_saved_tensor_hooks(pack, unpack):
    """Let `pack(tensor)` make what this thread's nodes save, and `unpack` the tensor again."""
    global saved_hooks_everywhere
    if getattr(_saved_hooks, "disabled", None):
        raise RuntimeError(_saved_hooks.disabled)
    if not hasattr(_saved_hooks, "stack"):
        _saved_hooks.stack = []
    _saved_hooks.stack.append((pack, unpack))
    saved_hooks_everywhere += 1


def pop_saved_tensor_hooks():
    """Remove the pair installed last in this thread."""
    global saved_hooks_everywhere
    _saved_hooks.stack.pop()
    saved_hooks_everywhere -= 1


def disable_saved_tensor_hooks(message):
    """Make installing hooks an error with this message (None: allow again); returns the previous one."""
    old = getattr(_saved_hooks, "disabled", None)
    if message is not None and getattr(_saved_hooks, "stack", None):
        raise RuntimeError(message)
    _saved_hooks.disabled = message
    return old


cdef int save_inputs(Node node, PyObject** flat) except -1:
    cdef Rule rule = node.rule
    cdef Op op = node.op
    cdef int i, kind, param
    cdef bint plain = True
    cdef tuple saved = PyTuple_New(rule.nsaves)
    for i in range(rule.nsaves):
        kind = rule.save_kind[i]
        if kind == SAVE_RESULT:
            item = None
        else:
            param = rule.save_index[i]
            item = <object>flat[param]
            if isinstance(item, Tensor):
                if kind == SAVE_META:
                    item = meta_of(<Tensor>item)
                else:
                    item = save_tensor(node, <Tensor>item, op.edge_of_param(param))
                    if kind == SAVE_UNREAD:
                        (<Saved>item).version = ANY_VERSION
            elif kind == SAVE_META and isinstance(item, (tuple, list)):
                item = [meta_of(<Tensor>x) for x in item]
            elif isinstance(item, list):
                item = _save_list(node, item)
        plain = plain and is_plain(item)
        Py_INCREF(item)
        PyTuple_SET_ITEM(saved, i, item)
    if plain:
        PyObject_GC_UnTrack(<void*>saved)
    node.saved = saved
    return 0


cdef object _save_list(Node node, list items):
    return [save_tensor(node, <Tensor>x, EDGE_NONE if not requires_grad(<Tensor>x) else list_edge(node, x))
            if isinstance(x, Tensor) else x for x in items]


cdef int list_edge(Node node, object member):
    cdef uint32_t nr = 0
    source = edge_of(<Tensor>member, &nr)
    for i, candidate in enumerate(node.next_):
        if candidate is source and node.nr(i) == nr:
            return i
    return EDGE_NONE


cdef int save_results(Node node, outputs) except -1:
    """Save results named by the rule; called when they carry this node as grad_fn."""
    cdef Rule rule = node.rule
    cdef int i
    cdef Tensor t
    for i in range(rule.nsaves):
        if rule.save_kind[i] == SAVE_RESULT:
            t = outputs[rule.save_index[i]] if isinstance(outputs, (tuple, list)) else outputs
            item = save_tensor(node, t, EDGE_RESULT if KIND[t.dtype_.index] >= KIND_FLOAT else EDGE_NONE)
            (<Saved>item).output_nr = rule.save_index[i]
            Py_INCREF(item)
            old = PyTuple_GET_ITEM(node.saved, i)
            PyTuple_SET_ITEM(node.saved, i, item)
            Py_DECREF(<object>old)
            if (<Saved>item).packed is not None:
                show_saved(node)
    return 0


cdef int show_saved(Node node) except -1:
    """Something foreign is among what the node saves from now on."""
    if not PyObject_GC_IsTracked(node.saved):
        PyObject_GC_Track(<void*>node.saved)
    tighten(node)
    return 0


cdef Tensor unpack_tensor(Node node, Saved s, bint read=True):
    """Give a saved tensor back; one that is not read may have been written."""
    cdef Tensor t
    cdef Node source
    if s.packed is not None:
        t = s.packed[0](s.packed[1])
        if t.level_ is not None and t.level_.level.closed:
            return seen_below(t)
        t = alias_saved(t)
    else:
        if read and written_since(s):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{describe_tensor(s.data)}], saved by {op_title(node)}, is at version {version_of(s.data)}; "
                f"expected version {s.version} instead. It was last written by {writer_name(s.data)}. "
                "Clone the tensor before the write, or use the out-of-place form.")
        if s.data.level_ is not None and s.data.level_.level.closed:
            return seen_below(s.data)
        if s.edge == EDGE_NONE or (s.data.flags & PY_DISPATCH and s.edge != EDGE_RESULT):
            return handed_out(s.data)
        t = alias_saved(s.data)
    if s.edge == EDGE_RESULT and node.slices is not None:
        return written_view(t, node)
    if s.edge == EDGE_RESULT:
        t.grad_fn_ = node
        t.output_nr_ = s.output_nr
        return t
    if s.edge < 0:
        return t
    source = node.next_[s.edge]
    if source is None:
        return t
    if isinstance(source, AccumulateGrad):
        if s.packed is None and not s.unpacked:
            return (<AccumulateGrad>source).variable_
        t.flags |= REQUIRES_GRAD
        t.accumulator_ = NULL
    if source.hooks is not None and s.packed is None and s.output_nr in (<dict>source.hooks).get("detached", ()):
        raise RuntimeError("Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(), before "
                           f"{op_title(node)} went backward. Use out-of-place .detach() instead "
                           f"({describe_tensor(s.data)})")
    t.grad_fn_ = source
    t.output_nr_ = s.output_nr
    return t


cdef Tensor seen_below(Tensor t):
    """What a tensor of a finished grad level stands for: its graph is walked with the tensors below."""
    while t.level_ is not None and t.level_.level.closed:
        t = t.level_.inner
    return t


cdef Tensor written_view(Tensor t, Node node):
    """A saved result that was written into a view: its history runs through the base."""
    cdef CopySlices c = node.slices()
    cdef TensorMeta m = c.base_meta
    cdef Tensor base = alias_geometry(t, len(m.shape), m.offset)
    base.dtype_ = m.dtype
    for i in range(base.ndim_):
        base.shape_[i], base.stride_[i] = m.shape[i], m.strides[i]
    finish_alias(base, t)
    base.flags = (base.flags & ~<uint32_t>(CONJ | NEG)) | m.flags
    base.grad_fn_ = c
    t.base_ = base
    t.grad_fn_ = strided_view_node(t)
    t.view_version = version_of(t)
    return t


cdef str op_title(Node node):
    return f"the op '{node.op.title}' ({node_name(node)})" if node.op is not None else node_name(node)


cdef str writer_name(Tensor t):
    writer = t.storage_.writer
    return "an unknown writer" if writer is None else f"the op '{writer}'"


cdef inline bint written_since(Saved s):
    return s.packed is None and s.version != ANY_VERSION and version_of(s.data) != s.version


cdef bint stale(Node node):
    """Tell whether a tensor that the node saved was written meanwhile."""
    if node.saved is None:
        return False
    for item in node.saved:
        if type(item) is Saved and written_since(<Saved>item):
            return True
    return False


cdef int place_of(Rule rule, int kind, int index):
    """Return where a rule saves something, -1 if it does not."""
    cdef int i, other
    for i in range(rule.nsaves):
        other = rule.save_kind[i]
        if rule.save_index[i] == index and (other == kind or {other, kind} == {SAVE_INPUT, SAVE_UNREAD}):
            return i
    return -1


cdef tuple unpack_saved(Node node, Rule wanted=None):
    """Give back what a node saved, or what a rule `wanted` for less of its gradients needs of that."""
    cdef Rule rule = node.rule if wanted is None else wanted
    cdef int i, k
    cdef bint read
    if rule is None or rule.nsaves == 0 and (wanted is None or not node.released):
        return ()
    if node.released:
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
            f"if you need to access saved tensors after calling backward. (at {op_title(node)})")
    cdef tuple values = PyTuple_New(rule.nsaves)
    for i in range(rule.nsaves):
        k = i if wanted is None else place_of(node.rule, rule.save_kind[i], rule.save_index[i])
        read = rule.save_kind[i] != SAVE_UNREAD
        item = <object>PyTuple_GET_ITEM(node.saved, k)
        if type(item) is Saved:
            item = unpack_tensor(node, <Saved>item, read)
        elif type(item) is list:
            item = [unpack_tensor(node, <Saved>x) if type(x) is Saved else x for x in item]
        Py_INCREF(item)
        PyTuple_SET_ITEM(values, i, item)
    return values


# --- what has to be kept for another run ------------------------------------------------------

cdef bint holds_tensors(tuple saved):
    if saved is None:
        return False
    for item in saved:
        if type(item) is Saved and not is_constant(<Saved>item) or \
                type(item) is list and any([type(x) is Saved for x in item]):
            return True
    return False


cdef bint is_constant(Saved s):
    return s.data is not None and s.data.flags & CONSTANT


def constant(Tensor t not None):
    """Mark a small tensor of an op's own numbers: nodes that save nothing else can run again unasked.

    Returns:
        The tensor.
    """
    t.flags |= CONSTANT
    return t
