# Anomaly mode: where the steps of backward were made, which of them makes a NaN, and, if that was asked for, which
# call makes a NaN or an infinity.

cdef extern from "Python.h":
    ctypedef struct PyFrameObject:
        pass
    ctypedef struct PyCodeObject:
        pass
    PyFrameObject* PyEval_GetFrame()
    PyFrameObject* PyFrame_GetBack(PyFrameObject*)
    PyCodeObject* PyFrame_GetCode(PyFrameObject*)
    int PyFrame_GetLasti(PyFrameObject*)

cdef bint anomaly_mode = False
cdef bint anomaly_checks_nan = False


def _set_anomaly(bint mode, bint check_nan):
    """Switch anomaly mode; returns the previous (mode, check_nan)."""
    global anomaly_mode, anomaly_checks_nan
    old = bool(anomaly_mode), bool(anomaly_checks_nan)
    anomaly_mode, anomaly_checks_nan = mode, check_nan
    return old


def _set_finite_watch(watch):
    """Have the steps of backward of this thread looked at, too (None: no longer); return what did so before."""
    old = None if tg_tls.finite == NULL else <object>tg_tls.finite
    if watch is None:
        tg_tls.finite = NULL
    else:
        tg_tls.finite = <void*><FiniteWatch?>watch
    return old


cdef bint suspicious(object x, UntypedStorage seen) except -1:
    """Whether a value holds a number that is not finite, or cannot be looked at from here.

    What shows the memory `seen` is left out: a view, of what was looked at when it was made.
    """
    cdef Tensor t
    cdef int d
    cdef int64_t span = 1
    if not isinstance(x, Tensor):
        return isinstance(x, (list, tuple)) and any([suspicious(y, seen) for y in x])
    t = x
    if not has_numbers(t) or t.storage_ is seen:
        return False
    # The memory from its first element to its last, whatever their order; gaps make it suspicious at worst.
    for d in range(t.ndim_):
        span += (t.shape_[d] - 1) * t.stride_[d]
    if t.storage_.data == NULL or span > 2 * t.numel_:
        return True
    return not all_finite(t.dtype_.index, host_pointer(t), span)


cdef inline bint has_numbers(Tensor t) noexcept:
    """Whether there are elements of its own to look at that could be NaN or infinite."""
    return differentiable(t.dtype_.index) and t.numel_ > 0 and t.level_ is None and not t.flags & PY_DISPATCH \
        and not holds_other(t)


cdef bint all_finite(int index, const void* data, int64_t n) noexcept:
    """Whether numbers in a row are finite; False for a dtype that C does not look at."""
    if index == FLOAT32:
        return tg_all_finite_f32(data, n)
    if index == FLOAT64:
        return tg_all_finite_f64(data, n)
    if index == BFLOAT16:
        return tg_all_finite_bf16(data, n)
    return index == FLOAT16 and tg_all_finite_f16(data, n)


cdef int remember_origin(Node node) except -1:
    """Keep the frames by which a node is made, and the module: they become text only where somebody asks."""
    cdef PyFrameObject* frame = PyEval_GetFrame()
    cdef PyFrameObject* back
    cdef PyObject* code
    cdef bint owned = False
    cdef list frames = []
    while frame != NULL:
        code = <PyObject*>PyFrame_GetCode(frame)
        frames.append(<object>code)
        Py_DECREF(<object>code)
        frames.append(PyFrame_GetLasti(frame))
        back = PyFrame_GetBack(frame)
        if owned:
            Py_DECREF(<object><PyObject*>frame)
        frame, owned = back, True
    frames.append(None if tg_tls.finite == NULL else (<FiniteWatch>tg_tls.finite).module)
    node.origin = frames
    return 0


def told_origin(list frames):
    """Return frames as the lines of a traceback, the innermost last."""
    from traceback import FrameSummary, format_list
    told = []
    for i in range(len(frames) - 3, -1, -2):
        code, place = frames[i], frames[i + 1]
        line = code.co_firstlineno
        for begin, end, number in code.co_lines():
            if begin <= place < end and number is not None:
                line = number
        told.append(FrameSummary(code.co_filename, line, code.co_name))
    return format_list(told)


def _module_of(Node node not None):
    """Return the module that a watch named when a node was made, or None."""
    return None if node.origin is None else node.origin[len(node.origin) - 1]


cdef str origin_of(Node node):
    return "" if node.origin is None else "".join(told_origin(node.origin))


cdef list apply_watched(Node node, list grads, Run run):
    """Apply a node in anomaly mode: tell where it was made if it fails or gives NaN."""
    cdef int64_t place
    cdef FiniteWatch watch = None if tg_tls.finite == NULL else <FiniteWatch>tg_tls.finite
    if watch is not None:
        watch.away += 1
    try:
        results = apply_node(node, grads, run)
    except Exception:
        import warnings
        warnings.warn(f"Error detected in {node_name(node)}. Traceback of forward call that caused the "
                      f"error:\n{origin_of(node)}")
        raise
    finally:
        if watch is not None:
            watch.away -= 1
    if watch is not None and watch.away:
        watch = None
    for i, g in enumerate(results):
        if g is None:
            continue
        if watch is not None:
            if suspicious(g, None):
                watch.away += 1
                try:
                    watch.owner.step(node, grads, i, g)
                finally:
                    watch.away -= 1
            elif has_numbers(<Tensor>g):
                continue                 # looked through: it holds no NaN
        if anomaly_checks_nan and differentiable((<Tensor>g).dtype_.index):
            place = first_nan(<Tensor>g)
            if place >= 0:
                raise not_a_number(node, grads, i, <Tensor>g, place)
    return results


cdef int64_t first_nan(Tensor g) except -2:
    """The place of the first NaN, counted in the order of a contiguous tensor; -1: there is none."""
    if host_pointer(g) != NULL and g.flags & CONTIGUOUS and g.level_ is None and not g.flags & PY_DISPATCH:
        if all_finite(g.dtype_.index, host_pointer(g), g.numel_):
            return -1
        if g.dtype_.index == FLOAT32:
            return tg_first_nan_f32(<const float*>host_pointer(g), g.numel_)
        if g.dtype_.index == FLOAT64:
            return tg_first_nan_f64(<const double*>host_pointer(g), g.numel_)
    bad = lookup_op("isnan")(g)
    if not lookup_op("any")(bad).item():
        return -1
    return lookup_op("argmax")(lookup_op("reshape")(bad, (-1,)).to(<object>DTYPES[UINT8])).item() \
        if g.level_ is None else 0


cdef object not_a_number(Node node, list grads, int which, Tensor g, int64_t place):
    cdef list index = []
    cdef int64_t rest = place
    cdef int d
    for d in range(g.ndim_ - 1, -1, -1):
        index.insert(0, rest % g.shape_[d])
        rest //= g.shape_[d]
    ranges = ", ".join([f"[{describe_tensor(<Tensor>t)}] {finite_range(<Tensor>t)}" for t in grads if t is not None])
    return RuntimeError(f"Function '{node_name(node)}' returned nan values in its {which}th output. The first is at "
                        f"{index} of [{describe_tensor(g)}]; the gradients that came in: {ranges}. The forward call "
                        f"that made it:\n{origin_of(node)}")


cdef str finite_range(Tensor t):
    """What the numbers of a tensor lie between, said in words; it is asked for when something is wrong already."""
    if t.numel_ == 0 or t.level_ is not None or t.flags & PY_DISPATCH or KIND[COMPUTE[t.dtype_.index]] != KIND_FLOAT:
        return ""
    low, high = lookup_op("aminmax")(lookup_op("nan_to_num")(t.detach(), 0.0))
    count = lookup_op("isnan")(t).sum().item()
    return f"between {low.item():.6g} and {high.item():.6g}" + (f", {count} of them NaN" if count else "")
