# The backward walk: nodes run in the reverse order of their making, without recursion.

@cython.freelist(64)
cdef class State:
    """What one run knows of one node: edges still to come, gradients gathered."""
    cdef Run run
    cdef int waiting
    cdef bint needed
    cdef Tensor grad            # of a node with one result
    cdef list grads             # of a node with several


cdef int64_t runs = 0


cdef class Run:
    """One call of backward or grad."""
    cdef bint active
    cdef bint keep_graph
    cdef bint create_graph
    cdef bint selective          # only nodes on a path to the inputs run
    cdef bint accumulates        # leaves among the inputs take their gradients
    cdef bint stops              # nothing flows on from an input to what it was computed from
    cdef list callbacks          # None, or what is called when the walk has ended
    cdef list heap
    cdef dict overflow           # states of nodes that another run occupies
    cdef dict captures           # (node, nr) -> list of positions
    cdef int64_t number          # of this run among all
    cdef Run outer               # the one within which it was called, or None
    cdef list captured
    cdef Node current

    cdef State state_of(self, Node node):
        cdef State s = node.state
        if s is not None and s.run is self:
            return s
        if s is None or not s.run.active:
            s = State.__new__(State)
            # There is one per node of the walk, and none is left when it ends: collections in
            # between need not look at them.
            PyObject_GC_UnTrack(<void*>s)
            s.run = self
            node.state = s
            return s
        found = self.overflow.get(node)
        if found is None:
            found = State.__new__(State)
            (<State>found).run = self
            self.overflow[node] = found
        return <State>found

    cdef bint visited(self, Node node):
        return (node.state is not None and node.state.run is self) or node in self.overflow


cdef int push_ready(list heap, Node node) except -1:
    """Binary heap by sequence number, the largest first."""
    cdef Py_ssize_t i = len(heap), parent
    heap.append(node)
    while i:
        parent = (i - 1) >> 1
        if (<Node>PyList_GET_ITEM(heap, parent)).seq >= node.seq:
            break
        heap[i] = <Node>PyList_GET_ITEM(heap, parent)
        i = parent
        heap[i] = node
    return 0


cdef Node pop_ready(list heap):
    cdef Node top = heap[0], last = heap.pop()
    cdef Py_ssize_t n = len(heap), i = 0, child
    if n == 0:
        return top
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and (<Node>PyList_GET_ITEM(heap, child + 1)).seq > (<Node>PyList_GET_ITEM(heap, child)).seq:
            child += 1
        if (<Node>PyList_GET_ITEM(heap, child)).seq <= last.seq:
            break
        heap[i] = <Node>PyList_GET_ITEM(heap, child)
        i = child
    heap[i] = last
    return top


cdef int count_dependencies(Run run, list roots) except -1:
    cdef list stack = list(roots)
    cdef Node node, child
    cdef State s
    cdef Py_ssize_t i
    for node in roots:
        run.state_of(node)
    while stack:
        node = stack.pop()
        if node.next_ is None:
            continue
        for i in range(PyTuple_GET_SIZE(node.next_)):
            if <PyObject*>PyTuple_GET_ITEM(node.next_, i) == Py_None_ptr:
                continue
            child = <Node>PyTuple_GET_ITEM(node.next_, i)
            if not run.visited(child):
                stack.append(child)
            s = run.state_of(child)
            s.waiting += 1
    return 0


cdef int forget(Run run, list roots) except -1:
    """Take what a run that failed knows off the nodes, for no collection would find it there."""
    cdef list stack = list(roots)
    cdef set seen = set()
    cdef Node node
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.state is not None and node.state.run is run:
            node.state = None
        stack.extend([child for child in node.next_ or () if child is not None])
    return 0


cdef int mark_needed(Run run, list roots) except -1:
    """Mark the nodes from which a captured edge is reachable (children come before parents)."""
    cdef Node node, child
    cdef State s
    wanted = set([key[0] for key in run.captures])
    order, seen, stack = [], set(), list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        order.append(node)
        for child_or_none in node.next_ or ():
            if child_or_none is not None and child_or_none not in seen:
                stack.append(child_or_none)
    order.sort(key=_sequence_of)
    for entry in order:
        node = entry
        s = run.state_of(node)
        if node in wanted:
            s.needed = True
            continue
        for child_or_none in node.next_ or ():
            if child_or_none is not None:
                child = child_or_none
                if run.state_of(child).needed:
                    s.needed = True
                    break
    return 0


def _sequence_of(Node node):
    return -1 if node.seq == UINT64_MAX else node.seq


cdef Tensor fit_gradient(Tensor g, Node target, int nr, Node source):
    """Bring a gradient to the shape and dtype of the tensor it belongs to."""
    cdef int ndim, want
    cdef const int64_t* shape
    cdef Tensor v
    cdef TensorMeta m
    if type(target) is AccumulateGrad:
        v = (<AccumulateGrad>target).variable_
        if not v.flags & REQUIRES_GRAD:  # detached since, and perhaps of another shape
            return g
        ndim, shape, want = v.ndim_, v.shape_, v.dtype_.index
    elif target.metas is None and target.meta_large is None and target.meta_dev is not None:
        ndim, shape, want = target.meta_ndim, target.meta_shape, target.meta_dtype
    else:
        m = output_meta(target, nr)
        if m is None:
            return g
        if tuple(m.shape) != tuple(shape_list(g.ndim_, g.shape_)):
            g = sum_to_shape(g, tuple(m.shape), source)
        return fit_dtype(g, m.dtype.index)
    if g.ndim_ != ndim or memcmp(g.shape_, shape, ndim * sizeof(int64_t)) != 0:
        g = sum_to_shape(g, tuple(shape_list(ndim, shape)), source)
    if g.dtype_.index != want:
        g = fit_dtype(g, want)
    return g


cdef Tensor fit_dtype(Tensor g, int want):
    if g.dtype_.index == want:
        return g
    if KIND[g.dtype_.index] == KIND_COMPLEX and KIND[want] != KIND_COMPLEX:
        g = lookup_op("real")(g)
        if g.dtype_.index == want:
            return g
    return lookup_op("_to_copy")(g, dtype=<object>DTYPES[want]) if traced() else cast_tensor(g, want)


cdef Tensor copy_seen(Tensor g):
    """A copy that shares nothing, which tracers see."""
    return lookup_op("clone")(g) if traced() else clone_tensor(g)


cdef inline bint laid_out_like(Tensor g, Tensor t) noexcept:
    """Whether a gradient has the strides of its leaf, or is contiguous where these are not dense."""
    if g.flags & t.flags & CONTIGUOUS:
        return True
    if t.flags & CONTIGUOUS or not non_overlapping_and_dense(t):
        return g.flags & CONTIGUOUS
    return same_geometry(g, t)


cdef Tensor copy_for_leaf(Tensor g, Tensor t):
    """A copy of a gradient that shares nothing, with the strides that its leaf asks for."""
    if g.flags & PY_DISPATCH:  # its handler knows where its values are
        return lookup_op("clone")(g)
    # A sample of a batch and what is no strided tensor have their own ways to lie in memory.
    if g.ndim_ != t.ndim_ or g.level_ is not None or t.level_ is not None or holds_other(g) or holds_other(t):
        return copy_seen(g)
    if laid_out_like(g, t):
        return copied_like(g, t) if tg_tls.grad_enabled and requires_grad(g) and not traced() else copy_seen(g)
    if traced():
        if t.flags & CONTIGUOUS or not non_overlapping_and_dense(t):
            return lookup_op("clone")(g, memory_format=contiguous_format)
        # Of equal strides the longer dimension is the outer one, as a contiguous copy has it.
        order = sorted(range(t.ndim_), key=lambda d: (-t.stride_[d], -t.shape_[d]))
        whole = lookup_op("clone")(lookup_op("permute")(g, order), memory_format=contiguous_format)
        return lookup_op("permute")(whole, sorted(range(t.ndim_), key=order.__getitem__))
    return copied_like(g, t)


cdef Tensor copied_like(Tensor g, Tensor t):
    """A copy of a gradient with its leaf's strides, whose history is that of a copy."""
    cdef Tensor o
    if t.flags & CONTIGUOUS or not non_overlapping_and_dense(t):
        o = empty_contiguous(g.ndim_, g.shape_, g.dtype_.index, g.storage_.dev)
    else:
        o = empty_strided_c(g.ndim_, g.shape_, t.stride_, g.dtype_.index, g.storage_.dev)
    if tg_tls.below_autograd == 0 and tg_tls.grad_enabled and requires_grad(g):
        lookup_op("copy_")(o, g)
    else:
        copy_into(o, g)
    return o


cdef Tensor sum_to_shape(Tensor g, tuple shape, Node source):
    """Sum a gradient, which a node `source` gave, over the dimensions along which its tensor was broadcast.

    Raises:
        RuntimeError: the shape cannot have been broadcast to the gradient's.
    """
    cdef int lead = g.ndim_ - len(shape)
    dims = list(range(lead))
    for i, size in enumerate(shape):
        if lead + i < 0 or (size != g.shape_[lead + i] and size != 1):
            rule = "a backward rule" if source is None else f"the backward rule of {op_title(source)}"
            raise RuntimeError(f"{rule} returned an invalid gradient of shape {shape_list(g.ndim_, g.shape_)}, "
                               f"expected shape compatible with {list(shape)}")
        if size == 1 and g.shape_[lead + i] != 1:
            dims.append(lead + i)
    if dims:
        g = lookup_op("sum")(g, dims, True)
    if lead:
        g = lookup_op("reshape")(g, shape)
    return g


cdef int give(Run run, Node target, int nr, Tensor g) except -1:
    """Add a gradient to a node's buffer and count the edge; the node may become ready."""
    cdef State s = run.state_of(target)
    if g is not None and not (run.selective and not s.needed):
        g = fit_gradient(g, target, nr, run.current)
        if target.nout > 1:
            if s.grads is None:
                s.grads = [None] * target.nout
            old = s.grads[nr]
            s.grads[nr] = g if old is None else added(old, g)
        else:
            s.grad = g if s.grad is None else added(s.grad, g)
    s.waiting -= 1
    if s.waiting == 0:
        push_ready(run.heap, target)
    return 0


cdef list run_backward(list roots, list root_numbers, list root_grads, bint keep_graph, bint create_graph,
                       list inputs, bint accumulates, bint stops):
    """Walk the graph from the roots.

    Args:
        roots, root_numbers, root_grads: nodes, result numbers and their gradients.
        inputs: None, or [(node, nr)] whose gradients are captured and returned.
        accumulates: whether leaves among `inputs` take their gradients, with all of their hooks.
        stops: whether the walk ends at `inputs`.
    """
    cdef Run run = Run.__new__(Run)
    cdef int saved_mode = tg_tls.grad_enabled
    cdef State s
    cdef Node node
    cdef Py_ssize_t i
    cdef void* outer = tg_tls.walk
    global runs
    runs += 1
    run.active, run.keep_graph, run.create_graph, run.number = True, keep_graph, create_graph, runs
    run.accumulates, run.stops = accumulates, stops
    run.heap, run.overflow, run.captures = [], {}, {}
    if inputs is not None:
        run.captured = [None] * len(inputs)
        run.selective = True
        for i, key in enumerate(inputs):
            if key is not None:
                run.captures.setdefault(key, []).append(i)
    distinct = list(dict.fromkeys(roots))
    count_dependencies(run, distinct)
    if run.selective:
        mark_needed(run, distinct)
    tg_tls.grad_enabled = create_graph
    run.outer = None if outer == NULL else <Run>outer
    tg_tls.walk = <void*>run
    try:
        for i in range(len(roots)):
            s = run.state_of(roots[i])
            s.waiting += 1
        for i in range(len(roots)):
            give(run, roots[i], root_numbers[i], root_grads[i])
        while run.heap:
            node = pop_ready(run.heap)
            if node_is_observed():
                observed_node(run, node)
            else:
                run_node(run, node)
        for callback in run.callbacks or ():
            callback()
    except BaseException:
        forget(run, distinct)
        raise
    finally:
        tg_tls.walk = outer
        tg_tls.grad_enabled = saved_mode
        run.active = False
        run.overflow.clear()
    return run.captured


cdef int run_node(Run run, Node node) except -1:
    cdef State s = run.state_of(node)
    cdef Tensor g
    cdef Py_ssize_t i
    cdef Node child
    run.current = node
    if node.state is s:
        node.state = None
    if run.selective and not s.needed:
        pass_nothing(run, node)
        return 0
    if node.hooks is None and node.nout <= 1 and not run.captures:
        g = s.grad
        s.grad = None
        if g is None and not isinstance(node, (FunctionNode, AccumulateGrad)):
            pass_nothing(run, node)
            return 0
        if node.rule is not None:
            if node.rule.passes_through and node.list_length < 0 and not anomaly_mode:
                for i in range(PyTuple_GET_SIZE(node.next_)):
                    if <PyObject*>PyTuple_GET_ITEM(node.next_, i) != Py_None_ptr:
                        give(run, <Node>PyTuple_GET_ITEM(node.next_, i), node.nr(i), g)
                if not run.keep_graph:
                    release(node)
                return 0
        elif type(node) is AccumulateGrad:
            accumulate_grad(run, <AccumulateGrad>node, g)
            return 0
        grads = [g]
        g = None
    else:
        grads = s.grads if s.grads is not None else [s.grad] if node.nout <= 1 else [None] * node.nout
        s.grad = None
        s.grads = None
        grads = before_node(run, node, grads)
        if grads is None:
            return 0
    if type(node) is AccumulateGrad:
        g = grads.pop()
        accumulate_grad(run, <AccumulateGrad>node, g)
        after_leaf(node, g)
        return 0
    if none_came(grads) and not isinstance(node, FunctionNode):
        results = [None] * len(node.next_)
    else:
        results = apply_node(node, grads, run) if not anomaly_mode else apply_watched(node, grads, run)
    if node.hooks is not None and (<dict>node.hooks).get("post"):
        results = after_node(node, results, grads)
    if not run.keep_graph:
        release(node)
    for i in range(len(results)):
        if <PyObject*>PyTuple_GET_ITEM(node.next_, i) != Py_None_ptr:
            child = <Node>PyTuple_GET_ITEM(node.next_, i)
            give(run, child, node.nr(i), results[i])
    return 0


cdef bint none_came(list grads):  # Functions and hooks hear of it, rules are left out
    return all([g is None for g in grads])


cdef int pass_nothing(Run run, Node node) except -1:
    for i, child in enumerate(node.next_ or ()):
        if child is not None:
            give(run, <Node>child, node.nr(i), None)
    return 0


cdef list before_node(Run run, Node node, list grads):
    """Run hooks, capture, and decide whether the node itself has to run (None: no)."""
    cdef dict hooks
    cdef object tensor_hooks
    if node.hooks is None and none_came(grads) and not isinstance(node, (FunctionNode, AccumulateGrad)):
        pass_nothing(run, node)
        return None
    if isinstance(node, AccumulateGrad):
        variable = (<AccumulateGrad>node).variable_
        if (<Tensor>variable).hooks_ is not None:
            grads = [call_tensor_hooks((<dict>(<Tensor>variable).hooks_).get("grad"), grads[0])]
    if node.hooks is not None:
        hooks = node.hooks
        for nr, tensor_hooks in hooks.get("tensor", {}).items():
            grads[nr] = call_tensor_hooks(tensor_hooks, grads[nr])
        for nr, reference in hooks.get("retain", {}).items():
            kept = reference()
            if kept is not None and grads[nr] is not None:
                store_grad(<Tensor>kept, grads[nr])
    wanted = False
    for nr in range(len(grads)):
        for position in run.captures.get((node, nr), ()):
            if not run.accumulates:
                run.captured[position] = grads[nr]
            wanted = True
        if run.stops and (node, nr) in run.captures:
            grads[nr] = None
    if run.selective:
        if isinstance(node, AccumulateGrad) and not run.accumulates:
            return None
        ended = run.stops and none_came(grads)
        if wanted and not isinstance(node, AccumulateGrad) and (
                ended or not run.accumulates and not needed_below(run, node)):
            pass_nothing(run, node)
            return None
    # Hooks before a node are about its running: where a gradient is only captured, it does not run.
    if node.hooks is not None:
        for hook in list((<dict>node.hooks).get("pre", {}).values()):
            replaced = hook(tuple(grads))
            if replaced is not None:
                grads = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
    return grads


cdef bint needed_below(Run run, Node node):
    for child in node.next_ or ():
        if child is not None and run.state_of(<Node>child).needed:
            return True
    return False


cdef object call_tensor_hooks(hooks, g):
    for hook in () if hooks is None else list((<dict>hooks).values()):
        replaced = hook(g)
        if replaced is not None:
            if not isinstance(replaced, Tensor):
                raise TypeError(f"expected a tensor hook to return a Tensor or None, got {_type_name(replaced)}")
            if g is None:
                raise RuntimeError("can't replace a None gradient with a non-None value, which a hook returned")
            if (<Tensor>replaced).dtype_ is not (<Tensor>g).dtype_:
                raise RuntimeError(f"hook {hook!r} has changed the dtype of a gradient (was {(<Tensor>g).dtype_}, got "
                                   f"{(<Tensor>replaced).dtype_}); return it with .to(dtype)")
            g = replaced
    return g


cdef list after_node(Node node, list results, list grads):
    inputs = tuple(results)
    for hook in list((<dict>node.hooks)["post"].values()):
        replaced = hook(inputs, tuple(grads))
        if replaced is not None:
            replaced = tuple(replaced) if isinstance(replaced, (tuple, list)) else (replaced,)
            if len(replaced) != len(inputs):
                raise RuntimeError(f"a hook of {node_name(node)} returned an incorrect number of gradients (got "
                                   f"{len(replaced)}, but expected {len(inputs)})")
            inputs = replaced
    return list(inputs)


cdef int after_leaf(Node node, Tensor g) except -1:
    """Run the hooks behind a leaf's accumulation, also of one that was reached without a gradient."""
    if node.hooks is not None and (<dict>node.hooks).get("post"):
        after_node(node, [], [g])
    return 0


cdef int store_grad(Tensor t, Tensor g) except -1:
    # A copy, for others hold g: hooks, and the caller who captures it.
    t.grad_ = copy_for_leaf(g, t) if t.grad_ is None else OP_ADD(t.grad_, g)
    return 0


cdef int accumulate_grad(Run run, AccumulateGrad node, Tensor g) except -1:
    cdef Tensor t = node.variable_, old
    cdef dict hooks
    if t.hooks_ is not None and not run.captures:
        hooks = t.hooks_
        if node.hooks is None:
            g = call_tensor_hooks(hooks.get("grad"), g)
    if g is None:
        return 0
    # A leaf that was detached since it was used wants no gradient any more.
    if not t.flags & REQUIRES_GRAD:
        return 0
    old = t.grad_
    if old is None:
        # Nobody else has it: the second reference is this function's own.
        if not run.create_graph and Py_REFCNT(<PyObject*>g) <= 2 and Py_REFCNT(<PyObject*>g.storage_) == 1 \
                and laid_out_like(g, t) and not g.flags & (CONJ | NEG) and g.level_ is None and g.base_ is None \
                and g.numel_ * ITEMSIZE[g.dtype_.index] == <int64_t>g.storage_.nbytes_:
            g.grad_fn_ = None
            t.grad_ = g
        else:
            t.grad_ = copy_for_leaf(g, t)
    elif run.create_graph or holds_other(old) != holds_other(g):
        t.grad_ = added(old, g)
    else:
        lookup_op("add_")(old, g)
    if t.hooks_ is not None:
        hooks = t.hooks_
        for hook in list(hooks.get("post_accumulate", {}).values()):
            if hook(t) is not None:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")
    return 0


cdef int release(Node node) except -1:
    """Free what the node saved; one that saved no tensor can run again."""
    if type(node) is CopySlices:
        return release((<CopySlices>node).writer)
    if node.rule is not None and not holds_tensors(node.saved):
        return 0
    node.saved = None
    node.released = True
    return 0


# --- the entrances ---------------------------------------------------------------------------

cdef Node end_of(object value, uint32_t* nr):
    """Return the node where the gradient of a tensor or of a GradientEdge arrives, None if nowhere."""
    cdef Node node
    if isinstance(value, Tensor):
        return edge_of(<Tensor>value, nr)
    node, nr[0] = <Node?>value.node, value.output_nr
    if <int64_t>nr[0] >= node.nout:
        raise IndexError(f"{node_name(node)} has {node.nout} results, the gradient edge is of result {nr[0]}")
    return node


def engine_run(roots, grads, bint keep_graph, bint create_graph, inputs=None, bint accumulates=False, bint stops=False):
    """Run backward from tensors.

    Args:
        roots: tensors that require gradients, or gradient edges.
        grads: their gradients, one tensor each (shapes checked by the caller).
        inputs: tensors or gradient edges whose gradients are wanted, or None to accumulate into
            all leaves.
        accumulates: whether leaves among `inputs` take their gradients, with all of their hooks.
        stops: whether the walk ends at `inputs`, as if they were all leaves.

    Returns:
        None, or the list of gradients of `inputs` (None where unreachable, or if `accumulates`).
    """
    cdef uint32_t nr
    cdef Node node
    nodes, numbers, keys = [], [], None
    for t in roots:
        nr = 0
        node = end_of(t, &nr)
        if node is None:
            raise RuntimeError(f"element {len(nodes)} of tensors does not require grad and does not have a grad_fn "
                               f"([{describe_tensor(<Tensor>t)}])")
        nodes.append(node)
        numbers.append(nr)
    if inputs is not None:
        keys = []
        for t in inputs:
            nr = 0
            node = end_of(t, &nr)
            if node is None and isinstance(t, Tensor) and requires_grad(<Tensor>t):
                keys.append(None)  # a view made under no_grad, which nothing was computed from
                continue
            if node is None:
                raise RuntimeError("One of the differentiated Tensors does not require grad "
                                   f"([{describe_tensor(<Tensor>t)}])")
            keys.append((node, nr))
    return run_backward(nodes, numbers, list(grads), keep_graph, create_graph, keys, accumulates, stops)
