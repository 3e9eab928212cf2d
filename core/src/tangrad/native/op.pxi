# Ops: what a definition is made into; ops by name.

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
    cdef readonly object overlapping     # the function for an in-place form whose target shares its own memory, or None
    cdef bint apart                      # in place, no input may share memory with the target
    cdef bint has_check
    cdef readonly bint takes_out
    cdef object geometry                 # view ops: the Python rule
    cdef bint forgets_base               # view ops: the result is no view of its input
    cdef int native_view                 # view ops: number of the C implementation of the geometry, or 0
    cdef int dim_param                   # reductions: place of the parameter `dim`, or -1; and so on
    cdef int keepdim_param
    cdef int dtype_param
    cdef int pin_param
    cdef int shortcut                    # number of what stands in for the usual form of a call, or 0
    cdef readonly object c_implementation            # name of what C computes in the place of the definition, or None
    cdef signed char at[MAX_PARAMS]      # places of the parameters that the C implementation reads
    cdef bint checks_kinds               # the check is about kinds of numbers only
    cdef bint loops                      # not pointwise, but its kernels are loops all the same
    cdef int old_form                    # may be called in another form than its schema has
    cdef bint plannable                  # kernel ops: rules say all of the results
    cdef tg_plan* plans                  # kernel ops: what the rules said of calls, or NULL
    cdef int plan_bits                   # there are 2 ** plan_bits of them
    cdef int plans_lost                  # since the table has this size
    cdef int plain                       # kernel ops: number of the C implementation of the shape rule, or 0
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
        # Classes hold ops as they hold PyTorch's builtin functions, which bind to no instance.
        return PyMethod_New(self, instance) if isinstance(instance, Tensor) else self

    @property
    def overloadpacket(self):
        """All overloads of the op's name, as `torch.ops.aten` has them."""
        from tangrad import ops
        return getattr(ops.aten, self.name)

    namespace, _overloadname = "aten", "default"

    @property
    def _overloadpacket(self):
        return self.overloadpacket

    @property
    def _opname(self):
        return self.name

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
    def tags(self):
        # What PyTorch says of ops beside their signatures, as far as the kind of a kernel tells it.
        import tangrad
        of_kind = {OP_POINTWISE: tangrad.Tag.pointwise, OP_REDUCTION: tangrad.Tag.reduction}
        return [tangrad.Tag.pt2_compliant_tag] + [of_kind[kind] for kind in of_kind if kind == self.kind_]

    @property
    def parameter_names(self):
        return self.names

    def __repr__(self):
        return f"<op {self.name}>"

    def __str__(self):
        # Programs look for PyTorch's names in the text of a node's target.
        return f"aten.{self.name}.default" if shown_as == "torch." else self.__repr__()

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
    op.apart = definition.strict_out == "in place"
    op.overlapping = definition.overlapping
    op.has_check = spec.get("has_check", False)
    op.takes_out = spec["takes_out"]
    if op.written_lists:
        op.takes_out = False
    op.geometry = spec.get("geometry")
    op.dim_param = op.names.index("dim") if "dim" in op.names else -1
    op.keepdim_param = op.names.index("keepdim") if "keepdim" in op.names else -1
    op.dtype_param = op.names.index("dtype") if "dtype" in op.names else -1
    op.pin_param = op.names.index("pin_memory") if "pin_memory" in op.names else -1
    find_c_implementation(op, list(params))
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
