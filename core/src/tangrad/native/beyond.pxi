# Numbers beside the tensors of a pointwise op that the dtype computed in has no place for.
#
# What becomes of them is the definition's to say (`beyond`): refused; wrapped around, as PyTorch's operators have it;
# compared or divided by as numbers are.

# {comparison: by a number above the greatest of a dtype, by one below the least}: for all elements but infinities and
# NaN the answer is known, and the comparison with the bound itself gives the right one of those, too.
_COMPARED = {"lt": ("le", "lt"), "le": ("le", "lt"), "gt": ("gt", "ge"), "ge": ("gt", "ge")}


cdef list beyond_numbers(Op op, PyObject** flat, operand_set* s, bint meta):
    """None where all numbers are the dtype's; else [the op to run instead, what the operands now refer to].

    In place of an op there may be None, and then the result.
    """
    cdef bint whole = KIND[s.common] <= KIND_INT
    cdef list found = None
    cdef int i, p, what
    for i in range(op.nparams):
        if op.edge_param[i] < 0 and op.beyond[i] != BEYOND_WRAPPED and is_number(<object>flat[i]):
            require_place(op, op.beyond[i], <object>flat[i], s.common)
    for i in range(s.n):
        p = op.tensor_param[i]
        what = op.beyond[p]
        if isinstance(<object>s.item[i], Tensor) or s.item[i] == Py_None_ptr or op.fixed[p] >= 0 \
                or not whole and (what == BEYOND_WRAPPED or what == BEYOND_DIVIDED):
            continue
        number = <object>s.item[i]
        if what == BEYOND_REFUSED or what == BEYOND_WIDE:
            require_place(op, what, number, s.common)
            continue
        if holds_number(s.common, number, False):
            continue
        if what == BEYOND_COMPARED:
            found = compared_with(op.name, number, s.common)
        elif what == BEYOND_WRAPPED or meta:
            found = [op, wrapped_number(op, number, s.common)]
        elif ITEMSIZE[s.common] < 8 and holds_number(INT64, number, False):
            s.common = INT64
            return [op]
        else:
            from tangrad.tensor.ranges import divided
            dtype = <object>DTYPES[s.common]
            return [None, divided(op.title, <object>flat[0], <object>flat[1], op.definition.name, dtype)]
        s.item[i] = <PyObject*>found[1]
    return found


cdef list compared_with(str name, object number, int index):
    """The comparison that says the same as one with a number beyond the dtype, and the number that it takes."""
    cdef bint above
    if name == "eq" or name == "ne":
        if KIND[index] > KIND_INT:
            return [lookup_op(name), INF - INF]
        return [lookup_op("lt" if name == "eq" else "ge"), LEAST[index]]
    above = number > 0
    if KIND[index] > KIND_INT:
        bound = MOST[index] if above else -MOST[index]
    elif not above:
        bound = LEAST[index]
    else:
        bound = _COUNTS[8] - 1 if index == UINT64 else GREATEST[index]
    return [lookup_op(_COMPARED[name][0 if above else 1]), bound]


cdef object wrapped_number(Op op, object number, int index):
    """An integer of the dtype that differs by a multiple of 2 to the power of its bits."""
    count, most = _COUNTS[ITEMSIZE[index]], _COUNTS[8]
    if not -most <= 2 * number or not number < most:
        raise OverflowError(f"{op.title}: the number {number} does not fit in 64 bits")
    rest = number % count
    return rest - count if KIND[index] == KIND_INT and 2 * rest >= count else rest


cdef int require_place(Op op, int what, object number, int index) except -1:
    """Raise for a number that the dtype has no place for, or that in which it is computed."""
    if not holds_number(COMPUTE[index] if what == BEYOND_WIDE else index, number, True):
        raise RuntimeError(f"{op.title}: value {number} cannot be converted to type {<object>DTYPES[index]!r} without "
                           "overflow")
    return 0


cdef int find_bounds(Op op, list words) except -1:
    """Note what each operand and Scalar of a pointwise op does with a number beyond the dtype computed in."""
    cdef int i, k = 0, n = 0
    scalars = [word for word in words if word in ("wide", "narrow")] or ["wide"]
    words = [word for word in words if word not in scalars]
    for i in range(op.nparams):
        op.beyond[i] = BEYOND_WRAPPED
        if op.kind_ != OP_POINTWISE:
            continue
        if op.ptype[i] == P_SCALAR or op.ptype[i] == P_SCALAR_OPT:
            op.beyond[i] = BEYOND_WIDE if scalars[min(n, len(scalars) - 1)] == "wide" else BEYOND_REFUSED
            n += 1
        elif op.ptype[i] == P_OPERAND:
            op.beyond[i] = BEYOND_WORDS.index(words[min(k, len(words) - 1)])
            if op.exact_numbers and op.beyond[i] == BEYOND_REFUSED:
                op.beyond[i] = BEYOND_WIDE
            k += 1
        op.bounded |= op.beyond[i] != BEYOND_WRAPPED
    return 0
