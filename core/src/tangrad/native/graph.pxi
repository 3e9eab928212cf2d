# The graph: nodes hang on tensors, a dead part frees itself.

cdef enum:
    SAVE_INPUT = 0
    SAVE_RESULT = 1
    SAVE_META = 2
    SAVE_UNREAD = 3          # an input whose dtype and shape are used, and not its elements
    ARG_GRAD = 0
    ARG_SAVED = 1
    ARG_NEEDS = 2
    ARG_GRADS = 3            # the list of all gradients, None where there is none
    EDGE_NONE = -1
    EDGE_RESULT = -2

cdef uint64_t node_counter = 0


cdef class TensorMeta:
    """Shape, dtype and device of a tensor, without its data.

    Attributes:
        shape: Size. dtype: dtype. device: device. strides: tuple of ints in elements.
        offset: storage offset in elements. flags: CONJ and NEG, where it is such a view.
    """
    cdef readonly object shape
    cdef readonly dtype dtype
    cdef DeviceRuntime dev
    cdef readonly object strides
    cdef readonly int64_t offset
    cdef readonly uint32_t flags

    @property
    def device(self):
        return self.dev.device

    @property
    def ndim(self):
        return len(self.shape)

    def dim(self):
        return len(self.shape)

    def numel(self):
        n = 1
        for size in self.shape:
            n *= size
        return n

    def stride(self):
        return self.strides

    def new_zeros(self, shape=None):
        """Return zeros of this (or the given) shape with this dtype on this device."""
        made = zeros_of(self.shape if shape is None else shape, self.dtype, self.dev)
        if traced():
            (<object>tg_tls.intercept).tell_of_constant(made)
        return made

    def new_empty_strided(self):
        """Return an uninitialised tensor of this shape and these strides, which shows memory as this one did."""
        cdef Tensor made = empty_strided(self.shape, self.strides, self.dtype, self.dev.device)
        made.flags |= self.flags
        return made

    def __repr__(self):
        return f"TensorMeta(shape={list(self.shape)}, dtype={self.dtype}, device={self.dev.device})"


cdef TensorMeta meta_of(Tensor t):
    cdef TensorMeta m = TensorMeta.__new__(TensorMeta)
    m.shape = tg_make_size(t.ndim_, t.shape_)
    m.strides = tuple(shape_list(t.ndim_, t.stride_))
    m.offset = t.offset_
    m.flags = t.flags & (CONJ | NEG)
    m.dtype = t.dtype_
    m.dev = t.storage_.dev
    return m


@cython.freelist(64)
cdef class Saved:
    """What backward needs of a tensor: storage, geometry and version, never the object."""
    cdef Tensor data
    cdef int64_t version
    cdef int edge
    cdef uint32_t output_nr
    cdef bint unpacked          # a hook gave it in place of a leaf, whose history it has
    cdef object packed          # (unpack hook, packed value) under saved-tensor hooks


cdef class Formula:
    """One backward formula: which inputs it serves, what it is called with."""
    cdef tuple targets          # positions among the op's tensor parameters
    cdef Op op                  # a pointwise op on the arguments, or None
    cdef object function        # tensor code, or None
    cdef int identity           # >= 0: the gradient of that result passes unchanged
    cdef int nargs
    cdef int arg_kind[24]
    cdef int arg_index[24]


cdef class Rule:
    """How an op goes backward for one set of inputs that need gradients."""
    cdef int nsaves
    cdef int save_kind[24]
    cdef int save_index[24]
    cdef tuple formulas
    cdef tuple formula_needs
    cdef bint passes_through     # every formula is the identity of gradient 0
    cdef bint saves_first_input  # the op's first tensor is saved (in-place forms copy it)


def make_rule(saves, formulas):
    """Build a backward rule.

    Args:
        saves: sequence of ("input"|"result"|"meta"|"unread", index); an input that is "unread" may be written.
        formulas: sequence of (targets, op or None, function or None, identity or -1,
            [("grad"|"saved"|"needs"|"grads", index)], needs tuple).
    """
    cdef Rule rule = Rule.__new__(Rule)
    cdef Formula f
    rule.nsaves = len(saves)
    if rule.nsaves > 24:
        raise ValueError("a backward rule saves at most 24 values")
    for i, (kind, index) in enumerate(saves):
        rule.save_kind[i] = ("input", "result", "meta", "unread").index(kind)
        rule.save_index[i] = index
        if kind == "input" and index == 0:
            rule.saves_first_input = True
    built = []
    rule.passes_through = True
    for targets, op, function, identity, args, needs in formulas:
        f = Formula.__new__(Formula)
        f.targets, f.op, f.function, f.identity = tuple(targets), op, function, identity
        f.nargs = len(args)
        if f.nargs > 24:
            raise ValueError("a backward formula takes at most 24 arguments")
        for i, (kind, index) in enumerate(args):
            f.arg_kind[i] = ("grad", "saved", "needs", "grads").index(kind)
            f.arg_index[i] = index
        if identity != 0:
            rule.passes_through = False
        built.append(f)
    rule.formulas = tuple(built)
    rule.formula_needs = tuple(f[5] for f in formulas)
    return rule


@cython.freelist(64)
@cython.trashcan(True)
cdef class Node:
    """Node()\n--\n\nA step of the graph: the gradients of an op's results in, those of its inputs out."""
    cdef Op op
    cdef Rule rule
    cdef tuple saved
    cdef tuple next_            # Node or None per edge
    cdef uint32_t nr_small[6]
    cdef tuple nr_large         # when there are more than six edges
    cdef int list_length        # tensors in the op's Tensor[] parameter, else -1
    cdef uint64_t seq
    cdef int nout
    cdef int meta_ndim
    cdef int meta_dtype
    cdef int64_t meta_shape[INLINE_DIMS]
    cdef TensorMeta meta_large  # more than INLINE_DIMS dimensions
    cdef DeviceRuntime meta_dev
    cdef tuple metas            # several results: TensorMeta each
    cdef State state
    cdef bint released
    cdef bint loose             # hidden from young collections: tracking.pxi
    cdef void* newer            # among the loose ones, borrowed
    cdef void* older
    cdef object slices          # weak reference to the CopySlices that routes into this node
    cdef list origin            # anomaly mode: where it was made, code and place in it per frame
    cdef object hooks           # None or {"pre": dict, "post": dict, "tensor": {nr: dict}, "retain": {nr: weakref}}
    cdef object __weakref__

    def name(self):
        """Return the name, e.g. "MulBackward0"."""
        return node_name(self)

    @property
    def next_functions(self):
        return tuple((n, self.nr(i) if n is not None else 0) for i, n in enumerate(self.next_ or ()))

    cdef int nr(self, int i):
        return self.nr_large[i] if self.nr_large is not None else self.nr_small[i]

    @property
    def metadata(self):
        kept = node_hooks(self).setdefault("metadata", {})
        if self.origin is not None:
            kept.setdefault("traceback_", told_origin(self.origin))
        return kept

    def _sequence_nr(self):
        return self.seq

    @property
    def _input_metadata(self):
        return [output_meta(self, i) for i in range(self.nout)]

    def register_hook(self, hook):
        """Call `hook(grad_inputs, grad_outputs)` after the node ran; it may return new grad_inputs."""
        return _removable(node_hooks(self).setdefault("post", {}), hook)

    def register_prehook(self, hook):
        """Call `hook(grad_outputs)` before the node runs; it may return new grad_outputs."""
        return _removable(node_hooks(self).setdefault("pre", {}), hook)

    def _saved_values(self):
        return unpack_saved(self)

    def __getattr__(self, attribute):
        if attribute.startswith("_saved_") and self.rule is not None:
            return saved_attribute(self, attribute[7:])
        raise AttributeError(f"'{node_name(self)}' object has no attribute '{attribute}'")

    def __call__(self, *grads):
        out = apply_node(self, list(grads))
        return out[0] if len(out) == 1 else tuple(out)

    def __repr__(self):
        return f"<{node_name(self)} object at {<size_t><void*>self:#x}>"


@cython.no_gc_clear
cdef class AccumulateGrad(Node):
    """Add the arriving gradient into `.grad` of a leaf."""
    cdef Tensor variable_

    @property
    def variable(self):
        return self.variable_


cdef class CopySlices(Node):
    """The history of a base one of whose views was written: routes the slice through the writer."""
    cdef Node writer
    cdef TensorMeta base_meta, view_meta


cdef class FunctionNode(Node):
    """A node with a rule written in Python: `apply` of a subclass receives the gradients."""
    cdef dict __dict__

    def _take_edges(self, inputs):
        """Take edges from `inputs` (None: no edge), as they are before forward may write them."""
        cdef uint32_t nr
        sources, numbers = [], []
        for x in inputs:
            nr = 0
            sources.append(edge_of(<Tensor>x, &nr) if isinstance(x, Tensor) else None)
            numbers.append(nr)
        self.next_, self.nr_large = tuple(sources), tuple(numbers)

    def _connect(self, first, outputs, dirty):
        """Become the grad_fn of outputs.

        Args:
            first: the first argument, which alone may be a view written in place.
            outputs: (tensor, differentiable) pairs; (None, False) for a result that is no tensor.
            dirty: outputs that are inputs written in place.
        """
        connect_function(self, first, outputs, dirty)

    def _save(self, tensors, edges):
        """Save tensors; each with the number of its input, -2 - k for result k, or -1 for others."""
        saved = []
        for t, edge in zip(tensors, edges):
            if t is None or edge == -1 and requires_grad(<Tensor>t):
                saved.append(t)
            elif edge < -1:
                item = save_tensor(self, <Tensor>t, EDGE_RESULT)
                (<Saved>item).output_nr = -2 - edge
                saved.append(item)
            else:
                recorded = edge >= 0 and requires_grad(<Tensor>t)
                saved.append(save_tensor(self, <Tensor>t, edge if recorded else EDGE_NONE))
        self.saved = tuple(saved)

    def _saved(self):
        """Return the saved tensors, or None where nothing was saved.

        Raises:
            RuntimeError: they were freed, or written meanwhile.
        """
        if self.released:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
                f"if you need to access saved tensors after calling backward. (at {op_title(self)})")
        if self.saved is None:
            return None
        return tuple([unpack_tensor(self, <Saved>x) if type(x) is Saved else x for x in self.saved])

    def _zeros(self, int nr):
        """Return zeros like result `nr`."""
        return output_meta(self, nr).new_zeros()


cdef object saved_attribute(Node node, str name):
    values = unpack_saved(node)
    names = node.op.definition.parameter_names
    for i in range(node.rule.nsaves):
        if node.rule.save_kind[i] in (SAVE_INPUT, SAVE_UNREAD) and names[node.rule.save_index[i]] == name:
            return values[i]
        if node.rule.save_kind[i] == SAVE_RESULT and name in ("result", f"result{node.rule.save_index[i]}"):
            return values[i]
    raise AttributeError(f"'{node_name(node)}' saved nothing called '{name}'")


cdef str node_name(Node node):
    if node.op is not None:
        return node.op.node_name
    return type(node).__name__


cdef dict node_hooks(Node node):
    if node.hooks is None:
        node.hooks = {}
        tighten(node)
    return <dict>node.hooks


cdef uint64_t next_sequence() noexcept:
    global node_counter
    node_counter += 1
    return node_counter


cdef object _removable(dict hooks, hook):
    from tangrad.autograd.hooks import RemovableHandle
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


# --- edges -------------------------------------------------------------------------------

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
    cdef bint unrecorded = t.flags & NO_GRAD_VIEW and not isinstance(t.grad_fn_, FunctionNode)
    cdef str made = "inference mode" if t.flags & INFERENCE_VIEW else "no_grad mode"
    cdef str text
    if unrecorded:
        text = (f"A view was created in {made} and {what} modified inplace "
                f"{'in normal mode' if t.flags & INFERENCE_VIEW else 'with grad mode enabled'}. Given that this use "
                "case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view "
                f"and the inplace either both inside the {made.split(' ')[0]} block or both outside.")
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
