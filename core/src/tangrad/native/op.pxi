# Ops: signature binding, kernel tables, and the way from a call to the kernel.

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

    RESULT_PROMOTED = -1
    RESULT_REAL = -2
    RESULT_COMPLEX = -4

    KERNEL_C = 1
    KERNEL_PYTHON = 2

PARAM_TYPES = ("Tensor", "Tensor?", "Tensor[]", "Operand", "Scalar", "Scalar?", "int", "int?", "int[]", "int[]?",
               "float", "float?", "bool", "bool?", "str", "str?", "dim", "dim?", "dim[]", "dim[]?", "dtype?",
               "device?", "layout?", "memory_format?", "generator?", "any")
_EXPECTED = ("Tensor", "Tensor or None", "tuple of Tensors", "Tensor or Number", "Number", "Number or None", "int",
             "int or None", "tuple of ints", "tuple of ints or None", "float", "float or None", "bool", "bool or None",
             "str", "str or None", "int", "int or None", "tuple of ints", "tuple of ints or None", "tangrad.dtype",
             "tangrad.device", "tangrad.layout", "tangrad.memory_format", "tangrad.Generator", "anything")

cdef struct tg_kernel:
    int kind
    tg_loop_kernel fn
    void* context
    PyObject* callable


class _Missing:
    def __repr__(self):
        return "<required>"

MISSING = _Missing()
cdef PyObject* MISSING_ptr = <PyObject*>MISSING
cdef PyObject* Py_None_ptr = <PyObject*>None


cdef class Op:
    """A callable op: one name, one signature, a kernel per slot and dtype.

    Made by `tangrad.ops.define`; `definition` holds everything that is true of it.
    """
    cdef void* vectorcall
    cdef readonly str name
    cdef public str node_name
    cdef readonly object definition
    cdef readonly Op functional          # in-place form: the op it is a form of
    cdef readonly Op inplace             # the in-place form of this op, or None
    cdef readonly tuple overloads
    cdef int kind_
    cdef int nparams
    cdef int npositional
    cdef int varargs                     # index of the int[] parameter that may be given as varargs, or -1
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
    cdef int nout
    cdef int promote
    cdef int results[8]
    cdef uint32_t accepted               # bit per kind of promoted dtype
    cdef int fixed[MAX_PARAMS]           # dtype of an input that takes no part in promotion, or -1
    cdef bint identity_of_self           # the expression is its first input: a cast or copy
    cdef bint has_rule
    cdef bint has_check
    cdef bint takes_out
    cdef object geometry                 # view ops: the Python rule
    cdef int native_view                 # view ops: number of the C twin of the geometry, or 0
    cdef tg_kernel*** rows
    cdef int nrows
    cdef dict rules
    cdef object native                   # kernel ops that the core computes itself on every device
    cdef bint random                     # its last two parameters are the drawn (seed, offset)
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
        return self.name

    @property
    def __qualname__(self):
        return self.name

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


def make_op(definition, str kind, spec):
    """Build the compiled op of a definition (see tangrad.ops.define, its only caller).

    Args:
        definition: the object that holds what is true of the op.
        kind: "pointwise", "reduction", "scan", "view", "kernel", "composite" or "overload".
        spec: dict of the fields below.
    """
    cdef Op op = Op.__new__(Op)
    cdef int i
    op.vectorcall = <void*>op_vectorcall
    op.definition = definition
    op.name = spec["name"]
    op.node_name = spec["node_name"]
    op.kind_ = ("pointwise", "reduction", "scan", "view", "kernel", "composite", "overload").index(kind)
    op.list_param = op.varargs = op.written = -1
    op.rules = {}
    op.overloads = tuple(spec.get("overloads", ()))
    if op.kind_ == OP_OVERLOAD:
        return op
    params = spec["params"]              # (name, type, default, keyword_only, length)
    op.nparams = len(params)
    if op.nparams > MAX_PARAMS:
        raise ValueError(f"{op.name}: an op has at most {MAX_PARAMS} parameters")
    op.names = tuple([p[0] for p in params])
    op.defaults = tuple([p[2] for p in params])
    op.npositional = len([p for p in params if not p[3]])
    for i, (name, type_, default, keyword_only, length) in enumerate(params):
        op.ptype[i] = PARAM_TYPES.index(type_)
        op.plength[i] = length
        op.edge_param[i] = EDGE_NONE
        op.fixed[i] = -1
        if op.ptype[i] <= P_OPERAND:
            op.edge_param[i] = op.ntensors
            op.tensor_param[op.ntensors] = i
            if op.ptype[i] == P_TENSORS:
                if op.list_param >= 0:
                    raise ValueError(f"{op.name}: at most one Tensor[] parameter")
                op.list_param = i
                op.tensor_position_of_list = op.ntensors
            op.ntensors += 1
    op.varargs = spec.get("varargs", -1)
    op.written = spec.get("written", -1)
    op.dim_tensor = op.tensor_param[0] if op.ntensors else -1
    op.nout = spec.get("nout", 1)
    op.promote = {"promote": PROMOTE_PLAIN, "float": PROMOTE_FLOAT, "integral": PROMOTE_INTEGRAL,
                  "sum": PROMOTE_SUM}[spec.get("promote", "promote")]
    for i, r in enumerate(spec.get("results", ())):
        op.results[i] = {"promoted": RESULT_PROMOTED, "real": RESULT_REAL, "complex": RESULT_COMPLEX}.get(r, -3)
        if op.results[i] == -3:
            op.results[i] = dtype_by_name(r).index
    op.accepted = spec.get("accepted", 0xFFFFFFFF)
    for name, type_ in spec.get("fixed", {}).items():
        op.fixed[op.names.index(name)] = dtype_by_name(type_).index
    op.has_rule = spec.get("has_rule", False)
    op.has_check = spec.get("has_check", False)
    op.takes_out = spec.get("takes_out", op.kind_ <= OP_SCAN or op.kind_ == OP_KERNEL)
    op.geometry = spec.get("geometry")
    op.native_view = NATIVE_VIEWS.get(op.name, 0) if op.kind_ == OP_VIEW else 0
    op.function = spec.get("function")
    op.native = spec.get("native")
    op.random = spec.get("random", False)
    op.return_type = spec.get("return_type")
    return op


def make_inplace(Op functional, str name):
    """Build the in-place form of an op: the result is written to its first tensor."""
    cdef Op op = Op.__new__(Op)
    op.vectorcall = <void*>op_vectorcall
    op.definition = functional.definition
    op.name, op.node_name, op.kind_, op.functional = name, functional.node_name, functional.kind_, functional
    op.rules = {}
    op.written = -1
    if functional.kind_ == OP_OVERLOAD:
        op.overloads = tuple([(<Op>o).inplace for o in functional.overloads if (<Op>o).inplace is not None])
    functional.inplace = op
    return op


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
        entry.kind, entry.fn, entry.context, entry.callable = KERNEL_PYTHON, NULL, NULL, <PyObject*>kernel
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
        raise NotImplementedError(f"'{op.name}' has no kernel for {slot_name(slot)} and {d}")
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


# --- binding --------------------------------------------------------------------------------

cdef PyObject* op_vectorcall(PyObject* callable, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL:
    result = call_op(<Op>callable, args, nargsf & ~(<size_t>1 << 63), kwnames)
    Py_INCREF(result)
    return <PyObject*>result


cdef object call_op(Op op, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    cdef PyObject* flat[MAX_PARAMS]
    cdef object keep
    cdef Op target
    cdef int state = 0
    cdef PyObject* out = NULL
    if op.kind_ == OP_OVERLOAD:
        return call_overload(op, args, nargs, kwnames)
    target = op if op.functional is None else op.functional
    keep = bind(target, args, nargs, kwnames, flat, &state, &out)
    if state:
        return dispatch_slow(op, target, flat, <object>out if out != NULL else None)
    if op.functional is not None:
        return call_flat(target, flat, <object>flat[target.tensor_param[0]], True)
    if out != NULL and out != Py_None_ptr:
        return call_flat(target, flat, <object>out, False)
    return call_flat(target, flat, None, False)


cdef object call_overload(Op op, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    cdef PyObject* flat[MAX_PARAMS]
    cdef Op member, target
    cdef int state
    cdef PyObject* out
    cdef object keep
    failures = []
    for o in op.overloads:
        member = o
        target = member if member.functional is None else member.functional
        state = 0
        out = NULL
        try:
            keep = bind(target, args, nargs, kwnames, flat, &state, &out)
        except TypeError as error:
            failures.append(error)
            continue
        if state:
            return dispatch_slow(member, target, flat, <object>out if out != NULL else None)
        if member.functional is not None:
            return call_flat(target, flat, <object>flat[target.tensor_param[0]], True)
        if out != NULL and out != Py_None_ptr:
            return call_flat(target, flat, <object>out, False)
        return call_flat(target, flat, None, False)
    if len(failures) == 1:
        raise failures[0]
    given = [_type_name(<object>args[i]) for i in range(nargs)]
    if kwnames != NULL:
        for i, k in enumerate(<tuple>kwnames):
            given.append(f"{k}={_type_name(<object>args[nargs + i])}")
    forms = "\n".join([f" * ({(<Op>o).definition.signature_text()})" for o in op.overloads])
    raise TypeError(f"{op.name}() received an invalid combination of arguments - got ({', '.join(given)}), "
                    f"but expected one of:\n{forms}")


cdef object bind(Op op, PyObject** args, Py_ssize_t nargs, PyObject* kwnames, PyObject** flat, int* slow,
               PyObject** out):
    """Lay arguments out in schema order, converted and checked.

    `slow` is set when something stands between: a subclass, a mode, a level. What is returned
    keeps converted arguments alive.
    """
    cdef Py_ssize_t i, nkw, used = 0
    cdef object keep = None
    cdef PyObject* value
    cdef int k, code
    for k in range(op.nparams):
        flat[k] = NULL
    if tg_tls.intercept != NULL:
        slow[0] = 1
    if nargs > op.npositional:
        if op.varargs >= 0 and op.varargs == op.npositional - 1 or (op.varargs >= 0 and nargs > op.varargs):
            used = op.varargs
            rest = tuple_of(args + used, nargs - used)
            keep = rest
            flat[op.varargs] = <PyObject*>rest
            nargs_bound = used
        else:
            raise TypeError(f"{op.name}() takes {op.npositional} positional arguments but {nargs} were given: "
                            f"{op.definition.signature_text()}")
    elif op.varargs >= 0 and nargs > op.varargs and PyLong_Check(<object>args[op.varargs]):
        rest = tuple_of(args + op.varargs, nargs - op.varargs)
        keep = rest
        flat[op.varargs] = <PyObject*>rest
        used = op.varargs
    else:
        used = nargs
    for i in range(used):
        flat[i] = args[i]
    if kwnames != NULL:
        nkw = PyTuple_GET_SIZE(<object>kwnames)
        for i in range(nkw):
            k = keyword_index(op, <object>PyTuple_GET_ITEM(<object>kwnames, i))
            if k < 0:
                key = <object>PyTuple_GET_ITEM(<object>kwnames, i)
                if key == "out" and op.takes_out:
                    out[0] = args[nargs + i]
                    if isinstance(<object>out[0], Tensor) and not exact_tensor(out[0]):
                        slow[0] = 1
                    continue
                raise TypeError(f"{op.name}() got an unexpected keyword argument '{key}': "
                                f"{op.definition.signature_text()}")
            if flat[k] != NULL:
                raise TypeError(f"{op.name}() got multiple values for argument '{op.names[k]}'")
            flat[k] = args[nargs + i]
    for k in range(op.nparams):
        value = flat[k]
        if value == NULL:
            value = <PyObject*>PyTuple_GET_ITEM(op.defaults, k)
            if value == MISSING_ptr:
                raise TypeError(f"{op.name}() missing 1 required positional argument: '{op.names[k]}' "
                                f"({op.definition.signature_text()})")
            flat[k] = value
            code = op.ptype[k]
            if code < P_DIM or code > P_DIMS_OPT:
                continue
        code = op.ptype[k]
        if code == P_TENSOR or code == P_OPERAND or code == P_TENSOR_OPT:
            if Py_TYPE(<object>value) == TENSOR or Py_TYPE(<object>value) == PARAMETER:
                if (<Tensor>value).level_ is not None:
                    slow[0] = 1
                continue
            if isinstance(<object>value, Tensor):
                slow[0] = 1
                continue
        converted = convert(op, k, code, value, flat, slow)
        if <PyObject*>converted != value:
            keep = converted if keep is None else (keep, converted)
            flat[k] = <PyObject*>converted
    return keep


cdef inline tuple tuple_of(PyObject** items, Py_ssize_t n):
    cdef tuple made = PyTuple_New(n)
    cdef Py_ssize_t i
    for i in range(n):
        item = <object>items[i]
        Py_INCREF(item)
        PyTuple_SET_ITEM(made, i, item)
    return made


cdef inline bint plain_ints(PyObject* value) noexcept:
    """Whether a value is a tuple of Python ints and nothing else."""
    cdef Py_ssize_t i
    if not PyTuple_CheckExact(<object>value):
        return False
    for i in range(PyTuple_GET_SIZE(<object>value)):
        if not PyLong_CheckExact(<object>PyTuple_GET_ITEM(<object>value, i)):
            return False
    return True


cdef int keyword_index(Op op, object key) except -2:
    cdef int k
    for k in range(op.nparams):
        if <PyObject*>PyTuple_GET_ITEM(op.names, k) == <PyObject*>key:
            return k
    for k in range(op.nparams):
        if op.names[k] == key:
            return k
    alias = op.definition.keyword_aliases.get(key)
    if alias is None:
        return -1
    return op.names.index(alias)


cdef object wrong_type(Op op, int k, PyObject* value):
    got = _type_name(<object>value)
    if isinstance(<object>value, (tuple, list)) and len(<object>value):
        got = f"{got} of {_type_name((<object>value)[0])}"
    return TypeError(f"{op.name}(): argument '{op.names[k]}' (position {k + 1}) must be {_EXPECTED[op.ptype[k]]}, "
                     f"not {got}")


cdef bint is_number(object value):
    return PyFloat_Check(value) or PyLong_Check(value) or PyComplex_Check(value)


cdef object as_int(Op op, int k, PyObject* value):
    if PyLong_Check(<object>value) and not PyBool_Check(<object>value):
        return <object>value
    if PyFloat_Check(<object>value) or PyBool_Check(<object>value) and op.ptype[k] not in (P_INT, P_INT_OPT):
        raise wrong_type(op, k, value)
    if isinstance(<object>value, Tensor):
        t = <Tensor>value
        if KIND[(<Tensor>t).dtype_.index] >= KIND_FLOAT or (<Tensor>t).numel_ != 1:
            raise wrong_type(op, k, value)
        return int(<object>value)
    if hasattr(<object>value, "__sym_int__"):
        return <object>value
    try:
        return op_index(<object>value)
    except TypeError:
        raise wrong_type(op, k, value) from None


cdef object as_number(Op op, int k, PyObject* value):
    if isinstance(<object>value, Tensor):
        t = <Tensor>value
        if (<Tensor>t).ndim_ == 0 and not requires_grad(<Tensor>t):
            return tensor_item(<Tensor>t)
        raise wrong_type(op, k, value)
    if hasattr(<object>value, "__sym_int__"):
        return <object>value
    for caster, method in ((op_index, "__index__"), (float, "__float__"), (complex, "__complex__")):
        if hasattr(<object>value, method) and not isinstance(<object>value, (str, bytes)):
            if hasattr(<object>value, "dtype") and hasattr(<object>value, "item"):
                return (<object>value).item()
            return caster(<object>value)
    raise wrong_type(op, k, value)


cdef object as_ints(Op op, int k, PyObject* value):
    cdef Py_ssize_t i
    if PyLong_Check(<object>value) and not PyBool_Check(<object>value):
        if op.plength[k] > 0:
            return (<object>value,) * op.plength[k]
        return (<object>value,)
    if PyTuple_CheckExact(<object>value) or isinstance(<object>value, (tuple, list)):
        items = <object>value
        if len(items) == 1 and isinstance(items[0], (tuple, list)) and k == op.varargs:
            items = items[0]
        for item in items:
            if not PyLong_CheckExact(item):
                break
        else:
            out = items if type(items) is tuple else tuple(items)
            if op.plength[k] > 0 and len(out) == 1:
                return out * op.plength[k]
            return out
        out = tuple([as_int(op, k, <PyObject*>item) for item in items])
        if op.plength[k] > 0 and len(out) == 1:
            return out * op.plength[k]
        return out
    if isinstance(<object>value, Tensor) and (<Tensor>value).ndim_ == 0:
        return (as_int(op, k, value),)
    if isinstance(<object>value, range):
        return tuple(<object>value)
    if hasattr(<object>value, "__sym_int__"):
        return (<object>value,)
    if hasattr(<object>value, "__index__"):
        return as_ints_of_one(op, k, op_index(<object>value))
    raise wrong_type(op, k, value)


cdef object as_ints_of_one(Op op, int k, one):
    return (one,) * max(op.plength[k], 1)


cdef int64_t wrap_dim(int64_t dim, int64_t ndim, str name) except? -1:
    cdef int64_t n = ndim if ndim > 0 else 1
    if dim < -n or dim >= n:
        raise IndexError(f"{name}: Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim + n if dim < 0 else dim


cdef int dims_of_first(Op op, PyObject** flat) except -1:
    cdef PyObject* x
    if op.dim_tensor < 0:
        return 0
    x = flat[op.dim_tensor]
    if isinstance(<object>x, Tensor):
        return (<Tensor>x).ndim_
    if op.ptype[op.dim_tensor] == P_TENSORS and len(<object>x):
        largest = 0
        for t in <object>x:
            if isinstance(t, Tensor):
                largest = max(largest, (<Tensor>t).ndim_)
        return largest
    return 0


cdef object convert(Op op, int k, int code, PyObject* value, PyObject** flat, int* slow):
    cdef int64_t n
    if code == P_TENSOR:
        raise wrong_type(op, k, value)
    if code == P_TENSOR_OPT:
        if value == Py_None_ptr:
            return None
        raise wrong_type(op, k, value)
    if code == P_OPERAND or code == P_SCALAR:
        if is_number(<object>value):
            return <object>value
        return as_number(op, k, value)
    if code == P_SCALAR_OPT:
        if value == Py_None_ptr or is_number(<object>value):
            return <object>value
        return as_number(op, k, value)
    if code == P_TENSORS:
        if not isinstance(<object>value, (tuple, list)):
            if isinstance(<object>value, Tensor) and k != op.varargs or not hasattr(<object>value, "__iter__"):
                raise wrong_type(op, k, value)
        items = [<object>value] if isinstance(<object>value, Tensor) else list(<object>value)
        if len(items) == 1 and k == op.varargs and isinstance(items[0], (tuple, list)):
            items = list(items[0])
        for item in items:
            if not isinstance(item, Tensor) and not (item is None and op.definition.allows_none_in_list):
                raise TypeError(f"{op.name}(): expected Tensor as element {items.index(item)} in argument '{op.names[k]}' "
                                f"(position {k + 1}), but got {_type_name(item)}")
            if item is not None and (not exact_tensor(<PyObject*>item) or (<Tensor>item).level_ is not None):
                slow[0] = 1
        return items
    if code == P_INT:
        return as_int(op, k, value)
    if code == P_DIM:
        n = as_int(op, k, value)
        n = wrap_dim(n, dims_of_first(op, flat) + op.definition.extra_dims, op.name)
        return n
    if value == Py_None_ptr:
        if code in (P_INT, P_INTS, P_FLOAT, P_BOOL, P_STR, P_DIMS):
            raise wrong_type(op, k, value)
        return None
    if code == P_INT_OPT:
        return as_int(op, k, value)
    if code == P_DIM_OPT:
        n = as_int(op, k, value)
        n = wrap_dim(n, dims_of_first(op, flat) + op.definition.extra_dims, op.name)
        return n
    if code == P_INTS or code == P_INTS_OPT:
        if op.plength[k] == 0 and plain_ints(value):
            return <object>value
        return as_ints(op, k, value)
    if code == P_DIMS or code == P_DIMS_OPT:
        dims = as_ints(op, k, value)
        n = dims_of_first(op, flat) + op.definition.extra_dims
        wrapped = tuple([wrap_dim(d, n, op.name) for d in dims])
        if len(set(wrapped)) != len(wrapped):
            raise RuntimeError(f"{op.name}: dim {[d for d in wrapped if wrapped.count(d) > 1][0]} appears multiple times "
                               f"in the list of dims {list(dims)}")
        return wrapped
    if code == P_FLOAT or code == P_FLOAT_OPT:
        if PyFloat_Check(<object>value):
            return <object>value
        if PyLong_Check(<object>value):
            return float(<object>value)
        number = as_number(op, k, value)
        if isinstance(number, complex):
            raise wrong_type(op, k, value)
        return float(number)
    if code == P_BOOL or code == P_BOOL_OPT:
        if PyBool_Check(<object>value):
            return <object>value
        if hasattr(<object>value, "dtype") and _type_name(<object>value) in ("bool_", "bool"):
            return bool(<object>value)
        raise wrong_type(op, k, value)
    if code == P_STR or code == P_STR_OPT:
        if isinstance(<object>value, str):
            return <object>value
        raise wrong_type(op, k, value)
    if code == P_DTYPE_OPT:
        if isinstance(<object>value, dtype):
            return <object>value
        if <object>value in (float, int, bool, complex):
            return {float: <object>DTYPES[default_dtype], int: <object>DTYPES[INT64], bool: <object>DTYPES[BOOL],
                    complex: <object>DTYPES[default_complex()]}[<object>value]
        raise wrong_type(op, k, value)
    if code == P_DEVICE_OPT:
        if isinstance(<object>value, device):
            return <object>value
        if isinstance(<object>value, (str, int)):
            return device(<object>value)
        raise wrong_type(op, k, value)
    if code == P_LAYOUT_OPT:
        if isinstance(<object>value, layout):
            return <object>value
        raise wrong_type(op, k, value)
    if code == P_FORMAT_OPT:
        if isinstance(<object>value, memory_format):
            return <object>value
        raise wrong_type(op, k, value)
    if isinstance(<object>value, (list, tuple)):
        for item in <object>value:
            if isinstance(item, Tensor) and (not exact_tensor(<PyObject*>item) or (<Tensor>item).level_ is not None):
                slow[0] = 1
    return <object>value


# --- the slow path: everything that can stand between ----------------------------------------

cdef object _slow_hook = None


def set_slow_dispatch(dispatch):
    """Install the function (op, functional, args, out) that runs what stands between."""
    global _slow_hook
    _slow_hook = dispatch


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
    cdef PyObject* values[64]
    cdef PyObject* out = NULL
    cdef int slow = 0, i, n = 0
    for item in args:
        values[n] = <PyObject*>item
        n += 1
    names = tuple(kwargs)
    for name in names:
        values[n] = <PyObject*>kwargs[name]
        n += 1
    keep = bind(op, values, len(args), <PyObject*>names if names else NULL, flat, &slow, &out)
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


cdef object call_flat(Op op, PyObject** flat, object out, bint inplace):
    cdef uint64_t needs = 0
    cdef Node node = None
    cdef Tensor t
    cdef int i
    cdef tuple drawn
    cdef PyObject* copied[MAX_PARAMS]
    if op.kind_ == OP_COMPOSITE:
        return call_composite(op, flat, out, inplace)
    if op.random and flat[op.nparams - 1] == Py_None_ptr:
        drawn = op.definition.draw(tuple([<object>flat[i] for i in range(op.nparams)]))
        flat[op.nparams - 2] = PyTuple_GET_ITEM(drawn, 0)
        flat[op.nparams - 1] = PyTuple_GET_ITEM(drawn, 1)
    if tg_tls.grad_enabled and op.has_rule:
        needs = needs_of(op, flat)
    if op.kind_ == OP_VIEW:
        return call_view(op, flat, needs, inplace)
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
    if tg_tls.grad_enabled:
        check_writable(t, op.inplace.name)
    if needs:
        if rule_for(op, needs).saves_first_input:
            memcpy(copied, flat, op.nparams * sizeof(PyObject*))
            keep = with_history_of(clone_tensor(alias_whole(t)), t)
            copied[op.tensor_param[0]] = <PyObject*>keep
            node = record_inputs(op, copied, needs)
        else:
            node = record_inputs(op, flat, needs)
    run_op(op, flat, out)
    bump_version(t, op.inplace.name)
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
    if tg_tls.grad_enabled:
        check_writable(t, op.name)
        if needs:
            node = record_inputs(op, flat, needs)
    run_op(op, flat, t)
    bump_version(t, op.name)
    if node is not None:
        rebase_history(t, node)
    return t


cdef object call_out(Op op, PyObject** flat, object out, uint64_t needs):
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(outs) != op.nout:
        raise TypeError(f"{op.name}(): argument 'out' must be {op.nout} Tensor(s), got {len(outs)}")
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not {_type_name(o)}")
        if tg_tls.grad_enabled and (needs or requires_grad(<Tensor>o)):
            raise RuntimeError(f"{op.name}(): functions with out=... arguments don't support automatic differentiation, "
                               "but one of the arguments requires grad.")
    run_op(op, flat, outs[0] if op.nout == 1 else tuple(outs))
    for o in outs:
        bump_version(<Tensor>o, op.name)
    return out if op.nout == 1 else (op.return_type(*outs) if op.return_type is not None else tuple(outs))


cdef object call_composite(Op op, PyObject** flat, object out, bint inplace):
    result = PyObject_CallObject(op.function, tuple_of(flat, op.nparams))
    if out is None:
        return result
    if inplace:
        check_inplace_shape(op, <Tensor>out, (<Tensor>result).ndim_, (<Tensor>result).shape_)
        prepare_out(op, <Tensor>out, (<Tensor>result).ndim_, (<Tensor>result).shape_, (<Tensor>result).dtype_.index)
        return lookup_op("copy_")(out, result)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    for o, r in zip(outs, results):
        prepare_out(op, <Tensor>o, (<Tensor>r).ndim_, (<Tensor>r).shape_, (<Tensor>r).dtype_.index)
        lookup_op("copy_")((<Tensor>o), r)
    return out


cdef bint plainly_valid(Op op, PyObject** flat) noexcept:
    """Whether a pointwise check has nothing to say: tensors of one floating dtype, no parameters."""
    cdef PyObject* first = NULL
    cdef int i
    if op.kind_ != OP_POINTWISE or op.nparams != op.ntensors:
        return False
    for i in range(op.nparams):
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
        op.definition.check_arguments(tuple([<object>flat[i] for i in range(op.nparams)]))
    if op.kind_ == OP_POINTWISE:
        return run_pointwise(op, flat, out)
    if op.kind_ == OP_REDUCTION:
        return run_reduction(op, flat, out)
    if op.kind_ == OP_SCAN:
        return run_scan(op, flat, out)
    return run_kernel_op(op, flat, out)
