# Observers: what is told of every op of a thread, walked at the op's entrance.

cdef enum:
    MOST_OBSERVERS = 16
    WATCH_PAIR = 0                       # C functions of version 1 of the table
    WATCH_TABLE = 1                      # a tg_observer
    WATCH_PYTHON = 2                     # enter(op), leave(op, token)
    WATCH_CALL = 3                       # enter_call(op, args), leave_call(op, token, result)
    WATCH_FINITE = 4                     # a FiniteWatch

cdef struct tg_observing:
    int kind
    const tg_observer* table
    tg_enter enter
    tg_leave leave
    void* context
    PyObject* begin                      # of observers in Python, kept alive by Observers.methods
    PyObject* end
    PyObject* begin_node
    PyObject* end_node


cdef class CInterceptor:
    """C functions around every op of a thread: a pair, or a tg_observer."""
    cdef tg_enter enter_
    cdef tg_leave leave_
    cdef const tg_observer* table
    cdef void* context


cdef class FiniteWatch:
    """FiniteWatch(owner)\n--\n\nLook for NaN and infinity in what the ops and the steps of backward of a thread give.

    Args:
        owner: is asked about what is, or may be, not finite: `call(op, args, result, had)`, where
            `had` is whether the tensor that the op overwrote was so before, and `step(node, grads,
            which, gradient)`. It raises, or lets it pass.
    """
    cdef object owner
    cdef public object module            # what steps of backward that are recorded belong to
    cdef public int away                 # > 0 while nothing is looked at

    def __init__(self, owner):
        self.owner = owner

    cdef bint before(self, tg_observed* call) except -1:
        """Whether an op is about to overwrite what is not finite."""
        if self.away or (<Op>call.op).functional is None:
            return False
        return suspicious(<object>call.args[0], None)

    cdef int after(self, tg_observed* call, bint had) except -1:
        cdef UntypedStorage seen = None
        if self.away or call.result == NULL:
            return 0
        if call.nargs and isinstance(<object>call.args[0], Tensor) and (<Op>call.op).functional is None:
            seen = (<Tensor>call.args[0]).storage_
        if not suspicious(<object>call.result, seen):
            return 0
        self.away += 1
        try:
            self.owner.call(<object>call.op, tuple_of(<PyObject**>call.args, call.nargs), <object>call.result, had)
        finally:
            self.away -= 1
        return 0


cdef class Observers:
    """Observers(observers)\n--\n\nThe observers of a thread, outermost first; never changed once made.

    Args:
        observers: objects with `enter(op) -> token` and `leave(op, token)`, or, for those that ask
            for arguments and results, `enter_call(op, args) -> token` and
            `leave_call(op, token, result)`, where `result` is None if the op raised. With
            `enter_node(node) -> token` and `leave_node(node, token)` they are told of the steps of
            backward, too.
    """
    cdef int count
    cdef bint watches_nodes
    cdef tg_observing watches[MOST_OBSERVERS]
    cdef list methods

    def __init__(self, observers):
        cdef int i
        if len(observers) > MOST_OBSERVERS:
            raise RuntimeError(f"a thread has at most {MOST_OBSERVERS} observers of its ops, not {len(observers)}: "
                               "leave some before you enter others")
        self.methods = []
        for i, observer in enumerate(observers):
            if isinstance(observer, CInterceptor):
                self.watch_functions(&self.watches[i], <CInterceptor>observer)
            elif isinstance(observer, FiniteWatch):
                memset(&self.watches[i], 0, sizeof(tg_observing))
                self.watches[i].kind, self.watches[i].context = WATCH_FINITE, <void*>observer
                self.methods.append(observer)
            else:
                self.watch_methods(&self.watches[i], observer)
        self.count = <int>len(observers)

    cdef int watch_functions(self, tg_observing* watch, CInterceptor c) except -1:
        memset(watch, 0, sizeof(tg_observing))
        watch.kind = WATCH_PAIR if c.table == NULL else WATCH_TABLE
        watch.table, watch.enter, watch.leave, watch.context = c.table, c.enter_, c.leave_, c.context
        self.methods.append(c)
        if c.table != NULL and c.table.enter_node != NULL:
            self.watches_nodes = True
        return 0

    cdef int watch_methods(self, tg_observing* watch, observer) except -1:
        memset(watch, 0, sizeof(tg_observing))
        watch.kind = WATCH_CALL if hasattr(observer, "enter_call") else WATCH_PYTHON
        names = ("enter_call", "leave_call") if watch.kind == WATCH_CALL else ("enter", "leave")
        watch.begin, watch.end = self.method(observer, names[0]), self.method(observer, names[1])
        if hasattr(observer, "enter_node"):
            watch.begin_node = self.method(observer, "enter_node")
            watch.end_node = self.method(observer, "leave_node")
            self.watches_nodes = True
        return 0

    cdef PyObject* method(self, observer, str name) except NULL:
        found = getattr(observer, name)
        self.methods.append(found)
        return <PyObject*>found


cdef inline bint standing() noexcept:
    """Whether anything but observers stands between a call and its kernel."""
    return tg_tls.intercept != NULL and tg_tls.standing


cdef inline bint traced():
    """Whether a tracer follows this thread: copies that C makes by itself are then calls of ops."""
    return standing() and len((<object>tg_tls.intercept).tracers) > 0


cdef int enter_all(Observers w, tg_observed* call, void** tokens, int* entered) except -1:
    cdef tg_observing* watch
    cdef object token
    while entered[0] < w.count:
        watch = &w.watches[entered[0]]
        if watch.kind == WATCH_TABLE:
            if watch.table.enter(watch.context, call, &tokens[entered[0]]) != 0:
                raise_current()
        elif watch.kind == WATCH_PAIR:
            tokens[entered[0]] = watch.enter(watch.context, call.op)
        elif watch.kind == WATCH_FINITE:
            tokens[entered[0]] = <void*><Py_ssize_t>(<FiniteWatch>watch.context).before(call)
        else:
            if watch.kind == WATCH_PYTHON:
                token = (<object>watch.begin)(<object>call.op)
            else:
                token = (<object>watch.begin)(<object>call.op, tuple_of(<PyObject**>call.args, call.nargs))
            Py_INCREF(token)
            tokens[entered[0]] = <void*>token
        entered[0] += 1
    return 0


cdef int leave_all(Observers w, tg_observed* call, void** tokens, int entered) except -1:
    """Leave the observers that were entered, innermost first, all of them even if one raises."""
    cdef tg_observing* watch
    cdef object error = None
    while entered > 0:
        entered -= 1
        watch = &w.watches[entered]
        if watch.kind == WATCH_TABLE:
            watch.table.leave(watch.context, call, tokens[entered])
        elif watch.kind == WATCH_PAIR:
            watch.leave(watch.context, call.op, tokens[entered])
        elif watch.kind == WATCH_FINITE:
            try:
                (<FiniteWatch>watch.context).after(call, tokens[entered] != NULL)
            except BaseException as unlike:
                error = unlike if error is None else error
        else:
            failed = leave_in_python(watch, call, tokens[entered])
            error = failed if error is None else error
    if error is not None:
        raise error
    return 0


cdef object leave_in_python(tg_observing* watch, tg_observed* call, void* taken):
    """Return what the observer raised, or None."""
    token = <object>taken
    Py_DECREF(token)                     # the reference of enter_all
    try:
        if watch.kind == WATCH_PYTHON:
            (<object>watch.end)(<object>call.op, token)
        else:
            (<object>watch.end)(<object>call.op, token, None if call.result == NULL else <object>call.result)
    except BaseException as error:
        return error
    return None


cdef inline void describe_call(tg_observed* call, Op op, Op target, PyObject** flat, object out) noexcept:
    call.size, call.nargs = sizeof(tg_observed), target.nparams
    call.op, call.args = <PyObject*>op, flat
    call.out = NULL if out is None else <PyObject*>out
    call.result = NULL


cdef object observed_flat(Op op, Op target, PyObject** flat, object out, bint inplace):
    """Run a bound call that nothing but observers stands in front of."""
    cdef Observers w = <Observers>tg_tls.observers
    cdef tg_observed call
    cdef void* tokens[MOST_OBSERVERS]
    cdef int entered = 0
    describe_call(&call, op, target, flat, out)
    try:
        enter_all(w, &call, tokens, &entered)
        result = None
        if target.kind_ == OP_POINTWISE and target.nparams <= 2 and out is None:
            result = fast_pointwise(target, flat, target.nparams)
        if result is None:
            result = call_flat(target, flat, out, inplace)
        call.result = <PyObject*>result
        return result
    finally:
        leave_all(w, &call, tokens, entered)


cdef object dispatch_between(int state, Op op, Op target, PyObject** flat, object out):
    """Run a bound call that something stands in front of, as `bind` found, and that was offered."""
    if state == SLOW_ARGUMENT or tg_tls.standing:
        return dispatch_offered(op, target, flat, out)
    if op.functional is not None:
        return observed_flat(op, target, flat, written_in_place(op, flat[target.tensor_param[0]]), True)
    return observed_flat(op, target, flat, out, False)


cdef inline object call_inner(Op op, PyObject** flat, object out, bint inplace):
    """Run an op that C code calls in place of a composite or an index; observers see it, too."""
    if tg_tls.intercept != NULL:
        return observed_flat(op.inplace if inplace and op.inplace is not None else op, op, flat, out, inplace)
    return call_flat(op, flat, out, inplace)


def observe_call(Observers w not None, Op op not None, Op functional not None, tuple args not None, object out,
                 function, *rest):
    """Run `function(op, functional, args, out, *rest)` between the observers.

    Args:
        op: the op that was called. functional: the op whose signature `args` follow.
    """
    cdef tg_observed call
    cdef void* tokens[MOST_OBSERVERS]
    cdef int entered = 0
    describe_call(&call, op, functional, (<PyTupleObject*>args).ob_item, out)
    try:
        enter_all(w, &call, tokens, &entered)
        result = function(op, functional, args, out, *rest)
        call.result = <PyObject*>result
        return result
    finally:
        leave_all(w, &call, tokens, entered)


cdef inline bint node_is_observed() noexcept:
    return tg_tls.intercept != NULL and tg_tls.observers != NULL and (<Observers>tg_tls.observers).watches_nodes


cdef int observed_node(Run run, Node node) except -1:
    """Run a step of backward between the observers that ask for those."""
    cdef Observers w = <Observers>tg_tls.observers
    cdef void* tokens[MOST_OBSERVERS]
    cdef int entered = 0
    try:
        while entered < w.count:
            tokens[entered] = enter_node(&w.watches[entered], node)
            entered += 1
        return run_node(run, node)
    finally:
        leave_nodes(w, node, tokens, entered)


cdef void* enter_node(tg_observing* watch, Node node) except? NULL:
    cdef void* token = NULL
    if watch.kind == WATCH_TABLE:
        if watch.table.enter_node != NULL and watch.table.enter_node(watch.context, <PyObject*>node, &token) != 0:
            raise_current()
        return token
    if watch.begin_node == NULL:
        return NULL
    made = (<object>watch.begin_node)(node)
    Py_INCREF(made)
    return <void*>made


cdef int leave_nodes(Observers w, Node node, void** tokens, int entered) except -1:
    cdef tg_observing* watch
    cdef object error = None
    while entered > 0:
        entered -= 1
        watch = &w.watches[entered]
        if watch.kind == WATCH_TABLE:
            if watch.table.leave_node != NULL:
                watch.table.leave_node(watch.context, <PyObject*>node, tokens[entered])
        elif watch.begin_node != NULL:
            failed = leave_node_in_python(watch, node, tokens[entered])
            error = failed if error is None else error
    if error is not None:
        raise error
    return 0


cdef object leave_node_in_python(tg_observing* watch, Node node, void* taken):
    token = <object>taken
    Py_DECREF(token)                     # the reference of enter_node
    try:
        (<object>watch.end_node)(node, token)
    except BaseException as error:
        return error
    return None
