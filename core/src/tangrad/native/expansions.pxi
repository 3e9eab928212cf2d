# Expansions: the ops that a composite called, kept to be called again without its Python.

cdef enum:
    EXPANSIONS = 128                     # kept per op; where programs need more, all are forgotten
    EXPANSION_VALUES = 64                # arguments and results


cdef object expanded(Op op, PyObject** flat):
    """Call a composite's Python, or what it called in a call that its rules cannot tell from this one."""
    cdef tg_plan_key key
    cdef object form = None, found = False
    if plan_key(op, flat, &key) and (op.generator_param < 0 or flat[op.generator_param] == Py_None_ptr) \
            and key_put(&key, <int64_t>needs_of(op, flat)) \
            and key_put(&key, tg_tls.grad_enabled | tg_tls.inference << 1):
        form = PyBytes_FromStringAndSize(<char*>key.word, key.words * sizeof(int64_t))
        found = op.expansions.get(form)
        if type(found) is tuple:
            return call_again(<tuple>found, op.nparams, flat)
    if found is True:
        from tangrad.dispatch.expansion import followed
        standing, observers = tg_tls.standing, <size_t>tg_tls.observers  # of a kernel's caller
        try:
            result, found = followed(op, tuple_of(flat, op.nparams))
        finally:
            tg_tls.intercept, tg_tls.standing, tg_tls.observers = NULL, standing, <void*><size_t>observers
        op.expansions[form] = found if key.reads == tg_tls.reads else False
        return result
    if found is None:                    # a form that never comes again is not worth a look
        if len(op.expansions) >= EXPANSIONS:
            op.expansions.clear()
        op.expansions[form] = True
    return PyObject_CallObject(op.function, tuple_of(flat, op.nparams))


cdef object call_again(tuple steps, int nvalues, PyObject** flat):
    """Take the steps of an expansion: an op, a byte per parameter, constants; at the end the bytes of the result.

    A byte is the number of a value, the arguments first and then what earlier steps gave, or 255 for the constant.
    """
    cdef PyObject* values[EXPANSION_VALUES]
    cdef PyObject* inner[MAX_PARAMS]
    cdef list made = []                  # keeps the values alive
    cdef tuple constants
    cdef const unsigned char* places
    cdef int i, k, last = <int>len(steps) - 1
    memcpy(values, flat, nvalues * sizeof(PyObject*))
    for k in range(last):
        op, which, constants = <tuple>steps[k]
        places = <bytes>which
        for i in range(<int>len(constants)):
            inner[i] = values[places[i]] if places[i] != 255 else PyTuple_GET_ITEM(constants, i)
        result = call_inner(<Op>op, inner, None, False)
        made.append(result)
        for i in range(<int>len(<tuple>result) if isinstance(result, tuple) else 1):
            values[nvalues] = PyTuple_GET_ITEM(result, i) if isinstance(result, tuple) else <PyObject*>result
            nvalues += 1
    places = <bytes>steps[last]
    if len(<bytes>steps[last]) == 1:
        return <object>values[places[0]]
    return tuple([<object>values[places[i]] for i in range(<int>len(<bytes>steps[last]))])
