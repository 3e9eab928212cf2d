# The kernels of an op, by slot and dtype.

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
