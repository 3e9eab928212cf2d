# Ops: their kernel tables, and the way from a call to the kernel.

cdef enum:
    OP_POINTWISE = 0
    OP_REDUCTION = 1
    OP_SCAN = 2
    OP_VIEW = 3
    OP_KERNEL = 4
    OP_COMPOSITE = 5
    OP_OVERLOAD = 6
    MAX_PARAMS = 24

    P_TENSOR = 0
    P_TENSOR_OPT = 1
    P_TENSORS = 2
    P_OPERAND = 3
    P_SCALAR = 4
    P_SCALAR_OPT = 5
    P_INT = 6
    P_INT_OPT = 7
    P_INTS = 8
    P_INTS_OPT = 9
    P_FLOAT = 10
    P_FLOAT_OPT = 11
    P_BOOL = 12
    P_BOOL_OPT = 13
    P_STR = 14
    P_STR_OPT = 15
    P_DIM = 16
    P_DIM_OPT = 17
    P_DIMS = 18
    P_DIMS_OPT = 19
    P_DTYPE_OPT = 20
    P_DEVICE_OPT = 21
    P_LAYOUT_OPT = 22
    P_FORMAT_OPT = 23
    P_GENERATOR_OPT = 24
    P_ANY = 25

    PROMOTE_PLAIN = 0
    PROMOTE_FLOAT = 1
    PROMOTE_INTEGRAL = 2
    PROMOTE_SUM = 3
    PROMOTE_NUMBER = 4

    RESULT_PROMOTED = -1
    RESULT_REAL = -2
    RESULT_COMPLEX = -4
    RESULT_TRUTH = -5

    KERNEL_C = 1
    KERNEL_PYTHON = 2
    KERNEL_CALL = 3

    BEYOND_WRAPPED = 0                   # as BEYOND_WORDS
    BEYOND_REFUSED = 1
    BEYOND_COMPARED = 2
    BEYOND_DIVIDED = 3
    BEYOND_WIDE = 4                      # refused where the dtype computed in has no place for it, halves aside

    SLOW_ARGUMENT = 1                    # what `bind` found: an argument asks for Python
    SLOW_BETWEEN = 2                     # something is active in the thread

BEYOND_WORDS = ("wrapped", "refused", "compared", "divided")
PARAM_TYPES = ("Tensor", "Tensor?", "Tensor[]", "Operand", "Scalar", "Scalar?", "int", "int?", "int[]", "int[]?",
               "float", "float?", "bool", "bool?", "str", "str?", "dim", "dim?", "dim[]", "dim[]?", "dtype?",
               "device?", "layout?", "memory_format?", "generator?", "any")
_EXPECTED = ("Tensor", "Tensor or None", "tuple of Tensors", "Tensor or Number", "Number", "Number or None", "int",
             "int or None", "tuple of ints", "tuple of ints or None", "float", "float or None", "bool", "bool or None",
             "str", "str or None", "int", "int or None", "tuple of ints", "tuple of ints or None", "tangrad.dtype",
             "tangrad.device", "tangrad.layout", "tangrad.memory_format", "tangrad.Generator", "anything")

cdef struct tg_plan                      # plans.pxi

cdef struct tg_kernel:
    int kind
    tg_loop_kernel fn
    tg_call_kernel call
    void* context
    PyObject* callable


class _Missing:
    def __repr__(self):
        return "<required>"


MISSING = _Missing()
cdef PyObject* MISSING_ptr = <PyObject*>MISSING
cdef PyObject* Py_None_ptr = <PyObject*>None
cdef PyObject* Py_Ellipsis_ptr = <PyObject*>Ellipsis


cdef class OpMethod


cdef class Op:
    """A callable op: one name, one signature, a kernel per slot and dtype.

    Made by `tangrad.ops.definition.define`; `definition` holds everything that is true of it.
    """
    cdef void* vectorcall
    cdef readonly str name
    cdef public str node_name
    cdef public str title                # the name in messages: that of the overload it is a form of
    cdef readonly object definition
    cdef readonly Op functional          # in-place form: the op it is a form of
    cdef readonly Op inplace             # the in-place form of this op, or None
    cdef OpMethod method_                # what stands on Tensor in its place, or None
    cdef readonly tuple overloads
    cdef bint sizes_first                # overloads: the first form takes a tensor and sizes, no more
    cdef int kind_
    cdef int nparams
    cdef int npositional
    cdef int nrequired
    cdef readonly int varargs            # index of the int[] parameter that may be given as varargs, or -1
    cdef tuple names
    cdef tuple defaults
    cdef int ptype[MAX_PARAMS]
    cdef int plength[MAX_PARAMS]         # int[2]: an int is repeated
    cdef int ntensors
    cdef int tensor_param[MAX_PARAMS]
    cdef int edge_param[MAX_PARAMS]
    cdef int list_param
    cdef int tensor_position_of_list
    cdef int dim_tensor
    cdef int written                     # parameter that is written to, or -1
    cdef int written_lists               # bit per Tensor[] parameter whose tensors are written to
    cdef int nout
    cdef int promote
    cdef int results[8]
    cdef uint32_t accepted               # bit per kind of promoted dtype
    cdef int fixed[MAX_PARAMS]           # dtype of an input that takes no part in promotion, or -1
    cdef bint identity_of_self           # the expression is its first input: a cast or copy
    cdef bint exact_numbers              # a Python number is not rounded to the dtype computed in
    cdef int beyond[MAX_PARAMS]          # what becomes of a number that the dtype computed in does not hold
    cdef bint bounded                    # some operand or parameter is asked for that
    cdef bint ordered                    # elements depend on their index: loops keep their order
    cdef bint has_rule
    cdef bint has_check
    cdef readonly bint takes_out
    cdef object geometry                 # view ops: the Python rule
    cdef bint forgets_base               # view ops: the result is no view of its input
    cdef int native_view                 # view ops: number of the C twin of the geometry, or 0
    cdef int dim_param                   # reductions: place of the parameter `dim`, or -1; and so on
    cdef int keepdim_param
    cdef int dtype_param
    cdef int pin_param
    cdef int shortcut                    # number of what stands in for the usual form of a call, or 0
    cdef readonly object twin            # name of what C computes in the place of the definition, or None
    cdef signed char at[MAX_PARAMS]      # places of the parameters that the twin reads
    cdef bint checks_kinds               # the check is about kinds of numbers only
    cdef bint loops                      # not pointwise, but its kernels are loops all the same
    cdef int old_form                    # may be called in another form than its schema has
    cdef bint plannable                  # kernel ops: rules say all of the results
    cdef tg_plan* plans                  # kernel ops: what the rules said of calls, or NULL
    cdef int plain                       # kernel ops: number of the C twin of the shape rule, or 0
    cdef int number                      # in the order of their making
    cdef tg_kernel*** rows
    cdef int nrows
    cdef dict rules
    cdef object native                   # kernel ops that the core computes itself on every device
    cdef bint random                     # its last two parameters are the drawn (seed, offset)
    cdef int generator_param             # place of the parameter `generator`, or -1
    cdef public object function          # composites: the Python body
    cdef public object return_type       # named tuple of several results
    cdef dict __dict__

    cdef int edge_of_param(self, int param):
        return self.edge_param[param]

    def __get__(self, instance, owner):
        if instance is None:
            return self
        return PyMethod_New(self, instance)

    @property
    def kind(self):
        return ("pointwise", "reduction", "scan", "view", "kernel", "composite", "overload")[self.kind_]

    @property
    def __name__(self):
        return self.title

    @property
    def __qualname__(self):
        return self.title

    @property
    def __module__(self):
        return "tangrad"

    @property
    def __doc__(self):
        return self.definition.documentation()

    @property
    def __signature__(self):
        return self.definition.inspect_signature()

    @property
    def __text_signature__(self):
        return None

    @property
    def __kwdefaults__(self):
        # Programs ask functions of Python, as some ops are in PyTorch, which keywords they take.
        return {p.name: p.default for p in self.definition.schema.params if p.keyword_only and not p.required} or None

    @property
    def parameter_names(self):
        return self.names

    def __repr__(self):
        return f"<op {self.name}>"

    def __reduce__(self):
        return lookup_op, (self.name,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def kernels(self):
        """Return {(device type, layout): [dtype names]} of the kernels registered so far."""
        found = {}
        for slot in range(self.nrows):
            if self.rows[slot] != NULL:
                names = [(<dtype>DTYPES[i]).name for i in range(DTYPE_COUNT) if self.rows[slot][i] != NULL]
                if names:
                    found[slot_name(slot)] = names
        return found


cdef int ops_made = 0


cdef int next_op_number() noexcept:
    global ops_made
    ops_made += 1
    return ops_made - 1


def make_op(definition, str kind, spec):
    """Build the compiled op of a definition (see tangrad.ops.definition.define, its only caller).

    Args:
        definition: the object that holds what is true of the op.
        kind: "pointwise", "reduction", "scan", "view", "kernel", "composite" or "overload".
        spec: dict of the fields below.
    """
    cdef Op op = Op.__new__(Op)
    cdef int i
    op.vectorcall = <void*>op_vectorcall
    op.number = next_op_number()
    op.definition = definition
    op.name = op.title = spec["name"]
    op.old_form = OLD_NONE if definition.old_form is None else OLD_LABELS if definition.old_form == "labels" else \
        OLD_FACTORS
    op.checks_kinds, op.loops = definition.checks_kinds, definition.loops
    op.node_name = spec["node_name"]
    op.kind_ = ("pointwise", "reduction", "scan", "view", "kernel", "composite", "overload").index(kind)
    op.list_param = op.varargs = op.written = -1
    op.rules = {}
    op.overloads = tuple(spec.get("overloads", ()))
    if op.kind_ == OP_OVERLOAD:
        op.sizes_first = takes_sizes(<Op>PyTuple_GET_ITEM(op.overloads, 0))
        return op
    params = spec["params"]              # (name, type, default, keyword_only, length)
    op.nparams = len(params)
    if op.nparams > MAX_PARAMS:
        raise ValueError(f"{op.title}: an op has at most {MAX_PARAMS} parameters")
    op.names = tuple([p[0] for p in params])
    op.defaults = tuple([p[2] for p in params])
    op.npositional = len([p for p in params if not p[3]])
    op.nrequired = len([p for p in params if p[2] is MISSING])
    for i, (name, type_, default, keyword_only, length) in enumerate(params):
        op.ptype[i] = PARAM_TYPES.index(type_)
        op.plength[i] = length
        op.edge_param[i] = EDGE_NONE
        op.fixed[i] = -1
        if op.ptype[i] <= P_OPERAND:
            op.edge_param[i] = op.ntensors
            op.tensor_param[op.ntensors] = i
            if op.ptype[i] == P_TENSORS:
                if op.list_param >= 0 and isinstance(definition.vjp, dict):
                    raise ValueError(f"{op.title}: an op with a derivative has at most one Tensor[] parameter")
                op.list_param = i
                op.tensor_position_of_list = op.ntensors
            op.ntensors += 1
    op.varargs = spec.get("varargs", -1)
    op.written = spec.get("written", -1)
    for i in spec.get("written_lists", ()):
        op.written_lists |= 1 << i
    if op.written_lists and (spec.get("has_rule") or definition.decompose is None):
        raise ValueError(f"{op.title}: an op that writes lists of tensors has a decomposition, and no derivative")
    op.dim_tensor = op.tensor_param[0] if op.ntensors else -1
    op.nout = spec.get("nout", 1)
    op.promote = {"promote": PROMOTE_PLAIN, "float": PROMOTE_FLOAT, "integral": PROMOTE_INTEGRAL,
                  "sum": PROMOTE_SUM, "number": PROMOTE_NUMBER}[spec.get("promote", "promote")]
    for i, r in enumerate(spec.get("results", ())):
        op.results[i] = {"promoted": RESULT_PROMOTED, "real": RESULT_REAL, "complex": RESULT_COMPLEX,
                         "truth": RESULT_TRUTH}.get(r, -3)
        if op.results[i] == -3:
            op.results[i] = dtype_by_name(r).index
    op.accepted = spec.get("accepted", 0xFFFFFFFF)
    for name, type_ in spec.get("fixed", {}).items():
        op.fixed[op.names.index(name)] = dtype_by_name(type_).index
    op.exact_numbers = spec.get("exact_numbers", True)
    find_bounds(op, spec.get("beyond", "wrapped").split())
    op.ordered = spec.get("ordered", False)
    op.has_rule = spec.get("has_rule", False)
    op.has_check = spec.get("has_check", False)
    op.takes_out = spec["takes_out"]
    if op.written_lists:
        op.takes_out = False
    op.geometry = spec.get("geometry")
    op.dim_param = op.names.index("dim") if "dim" in op.names else -1
    op.keepdim_param = op.names.index("keepdim") if "keepdim" in op.names else -1
    op.dtype_param = op.names.index("dtype") if "dtype" in op.names else -1
    op.pin_param = op.names.index("pin_memory") if "pin_memory" in op.names else -1
    find_twin(op, list(params))
    op.forgets_base = definition.forgets_base
    op.function = spec.get("function")
    op.native = spec.get("native")
    op.random = spec.get("random", False)
    op.generator_param = op.names.index("generator") if "generator" in op.names else -1
    op.plannable = op.kind_ == OP_KERNEL and op.native is None and not op.written_lists
    op.return_type = spec.get("return_type")
    return op


cdef bint takes_sizes(Op op):
    return op.nparams == 2 and op.ptype[0] == P_TENSOR and op.ptype[1] == P_INTS and op.varargs == 1 \
        and op.plength[1] == 0 and op.npositional == 2


# --- kernels by slot and dtype ----------------------------------------------------------

cdef tg_kernel* kernel_entry(Op op, int slot, int dtype_index, bint create) except? NULL:
    cdef tg_kernel*** rows
    cdef int i, n
    if slot >= op.nrows:
        if not create:
            return NULL
        n = slot + 4
        rows = <tg_kernel***>realloc(op.rows, n * sizeof(tg_kernel**))
        if rows == NULL:
            raise MemoryError("kernel table")
        for i in range(op.nrows, n):
            rows[i] = NULL
        op.rows = rows
        op.nrows = n
    if op.rows[slot] == NULL:
        if not create:
            return NULL
        op.rows[slot] = <tg_kernel**>calloc(MAX_DTYPES, sizeof(void*))
        if op.rows[slot] == NULL:
            raise MemoryError("kernel table")
    if op.rows[slot][dtype_index] == NULL and create:
        op.rows[slot][dtype_index] = <tg_kernel*>calloc(1, sizeof(tg_kernel))
        if op.rows[slot][dtype_index] == NULL:
            raise MemoryError("kernel table")
    return op.rows[slot][dtype_index]


def register_kernel(Op op not None, int slot, dtypes, kernel):
    """Register a Python kernel of an op for (slot, dtypes); an earlier one is replaced.

    Args:
        slot: from `register_slot`.
        dtypes: dtype names, or None for all registered dtypes.
        kernel: callable; see docs/add-a-device.md for what it receives.
    """
    cdef tg_kernel* entry
    cdef PyObject* old
    indices = range(DTYPE_COUNT) if dtypes is None else [dtype_by_name(d).index for d in dtypes]
    for i in indices:
        entry = kernel_entry(op, slot, i, True)
        old = entry.callable
        Py_INCREF(kernel)
        entry.kind, entry.fn, entry.call, entry.context = KERNEL_PYTHON, NULL, NULL, NULL
        entry.callable = <PyObject*>kernel
        Py_XDECREF(old)


def forget_kernels(int slot, ops):
    """Drop all kernels of a slot from the given ops (used when a device is replaced)."""
    cdef Op op
    for o in ops:
        op = o
        if slot < op.nrows and op.rows[slot] != NULL:
            for i in range(MAX_DTYPES):
                op.rows[slot][i] = NULL


cdef tg_kernel* find_kernel(Op op, int slot, int dtype_index) except NULL:
    cdef tg_kernel* entry
    if slot < op.nrows and op.rows[slot] != NULL:
        entry = op.rows[slot][dtype_index]
        if entry != NULL and entry.kind != 0:
            return entry
    kernel = _resolve(op, slot, <dtype>DTYPES[dtype_index])
    entry = kernel_entry(op, slot, dtype_index, True)
    if entry.kind == 0:
        Py_INCREF(kernel)
        entry.kind, entry.callable = KERNEL_PYTHON, <PyObject*>kernel
    return entry


cdef object _resolve_hook = None


def set_resolver(resolve):
    """Install the function (op, slot, dtype) -> kernel asked when a table has no entry."""
    global _resolve_hook
    _resolve_hook = resolve


cdef object _resolve(Op op, int slot, dtype d):
    if _resolve_hook is None:
        raise NotImplementedError(f"'{op.title}' has no kernel for {slot_name(slot)} and {d}")
    return _resolve_hook(op, slot, d)


# --- ops by name --------------------------------------------------------------------------

cdef dict _op_cache = {}
cdef object _op_source = None


def set_op_source(find):
    """Install the function name -> Op that loads definitions on first use."""
    global _op_source
    _op_source = find


cpdef Op lookup_op(str name):
    """Return the op of that name, loading its family when needed."""
    found = _op_cache.get(name)
    if found is None:
        found = _op_source(name)
        _op_cache[name] = found
    return <Op>found


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


cdef object call_flat(Op op, PyObject** flat, object out, bint inplace):
    global ops_called
    cdef uint64_t needs = 0
    cdef Node node = None
    cdef Tensor t
    cdef int i
    cdef object drawn
    cdef PyObject* copied[MAX_PARAMS]
    ops_called += 1
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
    return outs


cdef int check_apart(Op op, tuple args, list outs) except -1:
    """Refuse an out= that shares memory with an input, or within itself."""
    cdef Tensor o
    cdef int i
    for given in outs:
        o = given
        if overlaps_itself(o):
            raise overlap_error(op, o)
        for i in range(op.ntensors):
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


cdef object call_out(Op op, PyObject** flat, object out, uint64_t needs):
    outs = checked_outs(op, out, op.nout, needs != 0)
    if op.definition.strict_out:
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
    if inplace and op.definition.writes is not None:
        return PyObject_CallObject(op.definition.writes, tuple_of(flat, op.nparams))
    result = PyObject_CallObject(op.function, tuple_of(flat, op.nparams))
    if op.return_type is not None and type(result) is tuple:
        result = op.return_type(*result)
    if out is None:
        return result
    if op.definition.strict_out and not inplace:
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
