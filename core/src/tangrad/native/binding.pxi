# From the arguments of a Python call to the flat values of a schema's parameters.

cdef PyObject* op_vectorcall(PyObject* callable, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL:
    result = call_op(<Op>callable, <Op>callable, args, nargsf & ~(<size_t>1 << 63), kwnames)
    Py_INCREF(result)
    return <PyObject*>result


cdef PyObject* method_vectorcall(PyObject* callable, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL:
    result = call_op((<OpMethod>callable).op, <Op>callable, args, nargsf & ~(<size_t>1 << 63), kwnames)
    Py_INCREF(result)
    return <PyObject*>result


cdef enum:
    OLD_NONE = 0
    OLD_FACTORS = 1                      # factors in front of tensors
    OLD_LABELS = 2                       # operands, each followed by its labels


cdef inline bint other_form(Op op, PyObject** args, Py_ssize_t nargs):
    """Whether a call may be one of those that dispatch/old_forms.py knows."""
    if op.old_form == OLD_LABELS:
        return nargs > 0 and isinstance(<object>args[0], Tensor)
    return nargs > 2 and not (isinstance(<object>args[0], Tensor) and isinstance(<object>args[1], Tensor))


cdef object call_in_old_form(Op op, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    """Call an op whose factors stand in front of tensors; NotImplemented for any other call."""
    from tangrad.dispatch.old_forms import modern
    cdef Py_ssize_t i
    found = modern(op, tuple_of(args, nargs))
    if found is None:
        return NotImplemented
    positional, keywords = found
    if kwnames != NULL:
        for i, key in enumerate(<tuple>kwnames):
            keywords[key] = <object>args[nargs + i]
    return op(*positional, **keywords)


cdef object call_op(Op op, Op called, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    cdef PyObject* flat[MAX_PARAMS]
    cdef object keep
    cdef Op target
    cdef int state = 0
    cdef PyObject* out = NULL
    if op.kind_ == OP_POINTWISE and nargs == op.nparams and nargs <= 2 and kwnames == NULL and tg_tls.intercept == NULL:
        result = fast_pointwise(op, args, <int>nargs)
        if result is not None:
            return result
    # Before anything is examined: objects that are no tensors may stand for any argument.
    if (tg_tls.intercept != NULL and (<object>tg_tls.intercept).function_modes) \
            or any_takes_over(args, nargs if kwnames == NULL else nargs + PyTuple_GET_SIZE(<object>kwnames)):
        result = offer(called, args, nargs, kwnames)
        if result is not NotImplemented:
            return result
    if op.old_form and other_form(op, args, nargs):
        result = call_in_old_form(op, args, nargs, kwnames)
        if result is not NotImplemented:
            return result
    if op.kind_ == OP_OVERLOAD:
        return call_overload(op, args, nargs, kwnames)
    target = op if op.functional is None else op.functional
    keep = bind(target, args, nargs, kwnames, flat, &state, &out)
    if state:
        return dispatch_between(state, op, target, flat, <object>out if out != NULL else None)
    if op.functional is not None:
        return call_flat(target, flat, written_in_place(op, flat[target.tensor_param[0]]), True)
    if out != NULL and out != Py_None_ptr:
        return call_flat(target, flat, <object>out, False)
    return call_flat(target, flat, None, False)


cdef object written_in_place(Op op, PyObject* first):
    """The tensor that an in-place form writes: for the functional form it may be a number."""
    if not isinstance(<object>first, Tensor):
        raise TypeError(f"{op.title}(): argument 'self' (position 1) must be Tensor, not {_type_name(<object>first)}; "
                        "only a tensor can be written in place")
    return <object>first


cdef object call_overload(Op op, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    cdef PyObject* flat[MAX_PARAMS]
    cdef Op member, target
    cdef int state
    cdef PyObject* out
    cdef object keep
    if op.sizes_first and kwnames == NULL and nargs > 1 and not standing() \
            and exact_tensor(args[0]) and (<Tensor>args[0]).level_ is None and plain_sizes(args + 1, nargs - 1):
        return call_sizes(<Op>PyTuple_GET_ITEM(op.overloads, 0), args, nargs)
    failures = []
    cdef bint passed_over = False
    for o in op.overloads:
        member = o
        target = member if member.functional is None else member.functional
        if kwnames != NULL and meant_for_another(op, target, <tuple>kwnames) or cannot_be_meant(target, nargs, kwnames):
            passed_over = True
            continue
        state = 0
        out = NULL
        try:
            keep = bind(target, args, nargs, kwnames, flat, &state, &out)
        except TypeError as error:
            failures.append(error)
            continue
        if state:
            return dispatch_between(state, member, target, flat, <object>out if out != NULL else None)
        if member.functional is not None:
            return call_flat(target, flat, written_in_place(member, flat[target.tensor_param[0]]), True)
        if out != NULL and out != Py_None_ptr:
            return call_flat(target, flat, <object>out, False)
        return call_flat(target, flat, None, False)
    if len(failures) == 1 and not passed_over:
        raise failures[0]
    given = [_type_name(<object>args[i]) for i in range(nargs)]
    if kwnames != NULL:
        for i, k in enumerate(<tuple>kwnames):
            given.append(f"{k}={_type_name(<object>args[nargs + i])}")
    forms = "\n".join([f" * ({(<Op>o).definition.signature_text()})" for o in op.overloads])
    raise TypeError(f"{op.title}() received an invalid combination of arguments - got ({', '.join(given)}), "
                    f"but expected one of:\n{forms}")


cdef inline bint cannot_be_meant(Op target, Py_ssize_t nargs, PyObject* kwnames) noexcept:
    """Whether there are too few arguments for a form, or too many: an exception would say so, at some cost."""
    cdef Py_ssize_t given = nargs if kwnames == NULL else nargs + PyTuple_GET_SIZE(<object>kwnames)
    return target.varargs < 0 and (given < target.nrequired or nargs > target.npositional)


cdef bint meant_for_another(Op op, Op target, tuple keywords) except -1:
    """Whether a keyword belongs to another form of an overload and not to this one."""
    cdef Op member
    for key in keywords:
        if key in target.names or key == "out":
            continue
        for o in op.overloads:
            member = o if (<Op>o).functional is None else (<Op>o).functional
            if key in member.names:
                return True
    return False


cdef inline bint plain_sizes(PyObject** args, Py_ssize_t nargs) noexcept:
    """Whether arguments are a tuple of ints or nothing but ints: no other form could be meant."""
    cdef Py_ssize_t i
    if nargs == 1 and plain_ints(args[0]):
        return True
    for i in range(nargs):
        if not PyLong_CheckExact(<object>args[i]):
            return False
    return True


cdef object call_sizes(Op member, PyObject** args, Py_ssize_t nargs):
    """Call a form of a tensor and sizes, for arguments that need neither checks nor conversion."""
    cdef PyObject* flat[2]
    cdef object size
    flat[0] = args[0]
    if nargs == 2 and PyTuple_CheckExact(<object>args[1]):
        size = <object>args[1]
    else:
        size = tuple_of(args + 1, nargs - 1)
    flat[1] = <PyObject*>size
    return call_inner(member, flat, None, False)


cdef object bind(Op op, PyObject** args, Py_ssize_t nargs, PyObject* kwnames, PyObject** flat, int* slow,
                 PyObject** out):
    """Lay arguments out in schema order, converted and checked.

    `slow` says whether something stands between: a subclass, a mode, a level, an observer. What is returned
    keeps converted arguments alive.
    """
    cdef Py_ssize_t i, nkw, used = 0
    cdef object keep = None
    cdef PyObject* value
    cdef int k, code
    for k in range(op.nparams):
        flat[k] = NULL
    if tg_tls.intercept != NULL:
        slow[0] = SLOW_BETWEEN
    if nargs > op.npositional:
        if op.varargs >= 0 and op.varargs == op.npositional - 1 or (op.varargs >= 0 and nargs > op.varargs):
            used = op.varargs
            rest = tuple_of(args + used, nargs - used)
            keep = rest
            flat[op.varargs] = <PyObject*>rest
            nargs_bound = used
        else:
            raise TypeError(f"{op.title}() takes {op.npositional} positional arguments but {nargs} were given: "
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
                        slow[0] = SLOW_ARGUMENT
                    continue
                raise TypeError(f"{op.title}() got an unexpected keyword argument '{key}': "
                                f"{op.definition.signature_text()}")
            if flat[k] != NULL:
                raise TypeError(f"{op.title}() got multiple values for argument '{op.names[k]}'")
            flat[k] = args[nargs + i]
    for k in range(op.nparams):
        value = flat[k]
        if value == NULL:
            value = <PyObject*>PyTuple_GET_ITEM(op.defaults, k)
            if value == MISSING_ptr:
                raise TypeError(f"{op.title}() missing 1 required positional arguments: '{op.names[k]}' "
                                f"({op.definition.signature_text()})")
            flat[k] = value
            code = op.ptype[k]
            if code < P_DIM or code > P_DIMS_OPT:
                continue
        code = op.ptype[k]
        if code == P_TENSOR or code == P_OPERAND or code == P_TENSOR_OPT:
            if Py_TYPE(<object>value) == TENSOR or Py_TYPE(<object>value) == PARAMETER:
                if (<Tensor>value).level_ is not None:
                    slow[0] = SLOW_ARGUMENT
                continue
            if isinstance(<object>value, Tensor):
                slow[0] = SLOW_ARGUMENT
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


cdef inline bint fits_int64(PyObject* value) noexcept:
    """Whether a Python int is one that sizes and dimensions can have."""
    cdef int overflow = 0
    PyLong_AsLongLongAndOverflow(<object>value, &overflow)
    return overflow == 0


cdef inline bint plain_ints(PyObject* value) noexcept:
    """Whether a value is a tuple of Python ints of 64 bits and nothing else."""
    cdef Py_ssize_t i
    cdef PyObject* item
    if not PyTuple_CheckExact(<object>value):
        return False
    for i in range(PyTuple_GET_SIZE(<object>value)):
        item = PyTuple_GET_ITEM(<object>value, i)
        if not PyLong_CheckExact(<object>item) or not fits_int64(item):
            return False
    return True


cdef bint plain_tensors(PyObject* value) noexcept:
    """Whether a value is a list or tuple of tensors of no subclass and no level."""
    cdef Py_ssize_t i, n
    cdef PyObject* item
    cdef bint is_list = PyList_CheckExact(<object>value)
    if not is_list and not PyTuple_CheckExact(<object>value):
        return False
    n = PyList_GET_SIZE(<object>value) if is_list else PyTuple_GET_SIZE(<object>value)
    for i in range(n):
        item = PyList_GET_ITEM(<object>value, i) if is_list else PyTuple_GET_ITEM(<object>value, i)
        if not exact_tensor(item) or (<Tensor>item).level_ is not None:
            return False
    return n > 0


cdef int keyword_index(Op op, object key) except -2:
    cdef int k
    for k in range(op.nparams):
        if <PyObject*>PyTuple_GET_ITEM(op.names, k) == <PyObject*>key:
            return k
    for k in range(op.nparams):
        if op.names[k] == key:
            return k
    alias = op.definition.keyword_aliases.get(key)
    return op.names.index(alias) if alias in op.names else -1


cdef object wrong_type(Op op, int k, PyObject* value):
    got = _type_name(<object>value)
    if isinstance(<object>value, (tuple, list)) and len(<object>value):
        got = f"{got} of {_type_name((<object>value)[0])}"
    return TypeError(f"{op.title}(): argument '{op.names[k]}' (position {k + 1}) must be {_EXPECTED[op.ptype[k]]}, "
                     f"not {got}")


cdef bint is_number(object value):
    return PyFloat_Check(value) or PyLong_Check(value) or PyComplex_Check(value)


cdef object beyond_int64(Op op, int k, PyObject* value):
    """The error for an int of more than 64 bits: as PyTorch's, of one type alone, of another in a list."""
    kind = TypeError if op.ptype[k] in (P_INTS, P_INTS_OPT, P_DIMS, P_DIMS_OPT) else ValueError
    return kind(f"{op.title}(): argument '{op.names[k]}' (position {k + 1}): Overflow when unpacking long long: "
                f"{<object>value} has more than 64 bits")


cdef object as_int(Op op, int k, PyObject* value):
    if PyLong_Check(<object>value) and not PyBool_Check(<object>value):
        if not fits_int64(value):
            raise beyond_int64(op, k, value)
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
    if hasattr(type(<object>value), "__len__"):  # an array of one element is no number
        raise wrong_type(op, k, value)
    for caster, method in ((op_index, "__index__"), (float, "__float__"), (complex, "__complex__")):
        if hasattr(type(<object>value), method):
            if hasattr(type(<object>value), "dtype") and hasattr(type(<object>value), "item"):
                return (<object>value).item()
            return caster(<object>value)
    raise wrong_type(op, k, value)


cdef object as_ints(Op op, int k, PyObject* value):
    cdef Py_ssize_t i
    if PyLong_Check(<object>value) and not PyBool_Check(<object>value):
        return (as_int(op, k, value),) * max(op.plength[k], 1)
    if PyTuple_CheckExact(<object>value) or isinstance(<object>value, (tuple, list)):
        items = <object>value
        if len(items) == 1 and isinstance(items[0], (tuple, list)) and k == op.varargs:
            items = items[0]
        for item in items:
            if not PyLong_CheckExact(item) or not fits_int64(<PyObject*>item):
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
    if hasattr(<object>value, "__index__") and not PyBool_Check(<object>value):
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
    # Without any tensor no dimension is wrong: the op's own check refuses the empty list.
    return MAX_DIMS if op.ptype[op.dim_tensor] == P_TENSORS else 0


cdef inline bint overrides(object value):
    """Whether an object that is no tensor takes part in `__torch_function__`."""
    return not isinstance(value, (Tensor, float, int, tuple, list)) and hasattr(type(value), "__torch_function__")


cdef object convert(Op op, int k, int code, PyObject* value, PyObject** flat, int* slow):
    cdef int64_t n, rank
    if code <= P_SCALAR_OPT and overrides(<object>value):
        slow[0] = SLOW_ARGUMENT
        return <object>value
    if P_DIM <= code <= P_DIMS_OPT and op.dim_tensor >= 0 and overrides(<object>flat[op.dim_tensor]):
        return <object>value  # whoever takes the call over knows its own dimensions
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
        if plain_tensors(value):
            if op.written_lists >> k & 1 and PyList_CheckExact(<object>value):
                return <object>value  # what a call in place returns
            return list(<object>value)
        if not isinstance(<object>value, (tuple, list)):
            if isinstance(<object>value, Tensor) and k != op.varargs or not hasattr(<object>value, "__iter__"):
                raise wrong_type(op, k, value)
        items = [<object>value] if isinstance(<object>value, Tensor) else list(<object>value)
        if len(items) == 1 and k == op.varargs and isinstance(items[0], (tuple, list)):
            items = list(items[0])
        for n, item in enumerate(items):
            if overrides(item):
                slow[0] = SLOW_ARGUMENT
                continue
            if not isinstance(item, Tensor) and not (item is None and op.definition.allows_none_in_list):
                raise TypeError(f"{op.title}(): expected Tensor as element {n} in argument "
                                f"'{op.names[k]}' (position {k + 1}), but got {_type_name(item)}")
            if isinstance(item, Tensor) and (not exact_tensor(<PyObject*>item) or (<Tensor>item).level_ is not None):
                slow[0] = SLOW_ARGUMENT
        return items
    if code == P_INT:
        return as_int(op, k, value)
    if code == P_DIM:
        n = as_int(op, k, value)
        rank = dims_of_first(op, flat) + op.definition.extra_dims
        if not -rank <= n < rank and op.definition.any_dim is not None and \
                op.definition.any_dim(<object>flat[op.dim_tensor]):
            return 0
        return wrap_dim(n, rank, op.title)
    if value == Py_None_ptr:
        if code in (P_INT, P_INTS, P_FLOAT, P_BOOL, P_STR, P_DIMS):
            raise wrong_type(op, k, value)
        return None
    if code == P_INT_OPT:
        return as_int(op, k, value)
    if code == P_DIM_OPT:
        n = as_int(op, k, value)
        n = wrap_dim(n, dims_of_first(op, flat) + op.definition.extra_dims, op.title)
        return n
    if code == P_INTS or code == P_INTS_OPT:
        if op.plength[k] == 0 and plain_ints(value):
            return <object>value
        return as_ints(op, k, value)
    if code == P_DIMS or code == P_DIMS_OPT:
        dims = as_ints(op, k, value)
        n = dims_of_first(op, flat) + op.definition.extra_dims
        wrapped = tuple([wrap_dim(d, n, op.title) for d in dims])
        if len(set(wrapped)) != len(wrapped):
            twice = [d for d in wrapped if wrapped.count(d) > 1][0]
            raise RuntimeError(f"{op.title}: repeated dim in `{op.names[k]}`: dim {twice} appears multiple times in "
                               f"the list of dims {list(dims)}")
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
        named = dtype_of_type(<object>value)
        if named is not None:
            return named
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
                slow[0] = SLOW_ARGUMENT
    return <object>value
