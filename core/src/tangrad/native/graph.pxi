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
        return tuple((shown_node(n), self.nr(i) if n is not None else 0) for i, n in enumerate(self.next_ or ()))

    cdef int nr(self, int i):
        if self.nr_large is not None:
            return self.nr_large[i]
        return self.nr_small[i] if i < 6 else 0  # of further edges all are 0

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
        if len(grads) != self.nout:
            raise TypeError(f"{node_name(self)} expected {self.nout} arguments, got {len(grads)} instead")
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


cdef dict node_types = {}  # name -> the address of a type, which lives as long as the process


cdef Node shown_node(Node node):
    """A node as Python is to see it: the type of an op's node has the node's name."""
    if node is None or type(node) is not Node or node.op is None:
        return node
    cdef str name = node.op.node_name
    found = node_types.get(name)
    if found is None:
        found = node_types[name] = <size_t>tg_node_type(<PyTypeObject*>Node, name.encode())
    tg_set_type(<PyObject*>node, <PyTypeObject*><size_t>found)
    return node


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
