# What a node does with the gradients that reach it: its rule, applied.

cdef list apply_node(Node node, list grads, Run run=None):
    """Return the gradients of the node's edges (None where there is none, or `run` needs none)."""
    if node.rule is not None:
        return apply_rule(node, grads, run)
    if type(node) is CopySlices:
        return apply_slices(<CopySlices>node, grads[0])
    if isinstance(node, AccumulateGrad):
        raise RuntimeError("AccumulateGrad cannot be called outside of a backward pass")
    results = (<object>node).apply(*grads)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    while len(results) > len(node.next_) and results[len(results) - 1] is None:
        results.pop()
    if len(results) != len(node.next_):
        raise RuntimeError(f"function {node_name(node)} returned an incorrect number of gradients "
                           f"(expected {len(node.next_)}, got {len(results)})")
    for i, r in enumerate(results):
        if r is not None and not isinstance(r, Tensor):
            raise TypeError(f"function {node_name(node)} returned a {_type_name(r)} as gradient {i}: "
                            "expected a Tensor or None")
    return results


cdef list apply_rule(Node node, list grads, Run run):
    cdef Rule rule = node.rule
    cdef tuple saved
    if rule.nsaves and stale(node) or node.nout > 1 and node.op.kind_ == OP_POINTWISE and some_missing(grads):
        rule = narrower_rule(node, grads, run)
        saved = unpack_saved(node, rule)
    elif rule.nsaves or node.released:
        saved = unpack_saved(node)
    else:
        saved = ()
    if node.nout > 1:
        grads = materialised(node, rule, grads)
    if not any_wrapper(grads) and not any_wrapper(saved):
        return apply_formulas(node, rule, grads, saved)
    # The formulas lie below `__torch_function__`, which would make plain results wrappers of nothing.
    from tangrad.dispatch.overrides import DisableTorchFunctionSubclass
    with DisableTorchFunctionSubclass():
        return apply_formulas(node, rule, grads, saved)


cdef Rule narrower_rule(Node node, list grads, Run run):
    """Return the rule for those gradients alone that a run needs, of the results' that there are.

    The node's own serves all inputs at once, and reads what this run may do without.
    """
    cdef Rule found
    cdef uint64_t needs = 0
    cdef int i
    if node.list_length >= 0 or len(node.next_) != node.op.ntensors:
        return node.rule
    for i, child in enumerate(node.next_):
        if child is not None and (run is None or not run.selective or run.state_of(<Node>child).needed):
            needs |= <uint64_t>1 << i
    if needs == 0:
        return node.rule
    found = rule_for(node.op, needs)
    if some_missing(grads):
        found = node.op.definition.rule_without(needs, tuple([g is not None for g in grads])) or found
    for i in range(found.nsaves):
        if place_of(node.rule, found.save_kind[i], found.save_index[i]) < 0:
            return node.rule
    return found


cdef bint some_missing(list grads):
    return any([g is None for g in grads])


cdef bint any_wrapper(values):
    for x in values:
        if isinstance(x, Tensor) and (<Tensor>x).flags & PY_DISPATCH:
            return True
    return False


cdef list apply_formulas(Node node, Rule rule, list grads, tuple saved):
    cdef Formula f
    cdef list results = [None] * PyTuple_GET_SIZE(node.next_)
    cdef PyObject* flat[24]
    cdef int i, k
    cdef tuple args
    for k in range(len(rule.formulas)):
        f = <Formula>rule.formulas[k]
        if f.identity >= 0:
            put_result(node, results, <int>f.targets[0], grads[f.identity])
            continue
        if f.op is not None:
            for i in range(f.nargs):
                if f.arg_kind[i] == ARG_GRAD:
                    flat[i] = PyList_GET_ITEM(grads, f.arg_index[i])
                else:
                    flat[i] = <PyObject*>PyTuple_GET_ITEM(saved, f.arg_index[i])
            out = call_between(f.op, flat, f.nargs)
        else:
            args = PyTuple_New(f.nargs)
            for i in range(f.nargs):
                if f.arg_kind[i] == ARG_GRAD:
                    item = <object>PyList_GET_ITEM(grads, f.arg_index[i])
                elif f.arg_kind[i] == ARG_SAVED:
                    item = <object>PyTuple_GET_ITEM(saved, f.arg_index[i])
                elif f.arg_kind[i] == ARG_GRADS:
                    item = grads
                else:
                    item = rule.formula_needs[k]
                Py_INCREF(item)
                PyTuple_SET_ITEM(args, i, item)
            out = PyObject_CallObject(f.function, args)
        if len(f.targets) == 1:
            if isinstance(out, tuple) and not isinstance(out, list):
                out = out[0]
            put_result(node, results, <int>f.targets[0], out)
        else:
            for i, target in enumerate(f.targets):
                put_result(node, results, target, out[i])
    return results


cdef object call_between(Op op, PyObject** flat, int nargs):
    """Call an op of a formula; through what stands between, if anything does."""
    cdef bint slow = standing()
    cdef int i
    for i in range(nargs):
        if isinstance(<object>flat[i], Tensor) and (not exact_tensor(flat[i]) or (<Tensor>flat[i]).level_ is not None):
            slow = True
    if slow:
        return dispatch_slow(op, op, flat, None)
    return call_inner(op, flat, None, False)


cdef int put_result(Node node, list results, int target, object value) except -1:
    """Place the gradient of tensor parameter `target` on its edge (a list on several)."""
    cdef int start = target, list_at
    if node.list_length >= 0:
        list_at = node.op.tensor_position_of_list
        if target > list_at:
            start = target - 1 + node.list_length
        elif target == list_at:
            for i, member in enumerate(value):
                results[list_at + i] = member
            return 0
    if value is not None and not isinstance(value, Tensor):
        raise TypeError(f"the backward rule of '{node.op.name}' returned {_type_name(value)} instead of a Tensor")
    results[start] = value
    return 0


cdef list materialised(Node node, Rule rule, list grads):
    """Zeros for the gradients of unused results where a formula asks for them."""
    cdef Formula f
    cdef int i
    cdef list out = list(grads)
    if node.op.definition.accepts_missing_grads:
        return out
    for f in rule.formulas:
        if f.identity >= 0:
            continue
        for i in range(f.nargs):
            if f.arg_kind[i] == ARG_GRAD and out[f.arg_index[i]] is None:
                out[f.arg_index[i]] = output_meta(node, f.arg_index[i]).new_zeros()
    return out


cdef list apply_slices(CopySlices node, Tensor g):
    """Hand the written slice's gradient to the writer, the rest to the old base."""
    cdef TensorMeta base = node.base_meta, view = node.view_meta
    cdef Tensor whole, piece
    if g.level_ is not None or standing():
        return _apply_slices_in_levels(node, g)
    whole = base.new_empty_strided()
    lookup_op("copy_")(whole, g)
    if view.dtype is base.dtype and view.flags == base.flags:
        piece = lookup_op("as_strided")(whole, view.shape, view.strides, view.offset - base.offset)
    else:
        from tangrad.dispatch.slices import offset_within, seen_as
        piece = seen_as(whole, view, offset_within(base, view))
    results = apply_node(node.writer, [clone_tensor(piece)])
    if len(results) and results[0] is not None:
        lookup_op("copy_")(piece, fit_gradient_to(results[0], view, node.writer))
    else:
        lookup_op("zero_")(piece)
    if node.next_[0] is not None:
        results[0] = whole
    return results


def _apply_slices_in_levels(CopySlices node, g):
    from tangrad.dispatch.slices import split_gradient

    def write(piece):
        return apply_node(node.writer, [piece])

    return split_gradient(g, node.base_meta, node.view_meta, write, node.next_[0] is not None)


cdef Tensor fit_gradient_to(Tensor g, TensorMeta m, Node source):
    if tuple(m.shape) != tuple(shape_list(g.ndim_, g.shape_)):
        g = sum_to_shape(g, tuple(m.shape), source)
    return fit_dtype(g, m.dtype.index)
