# A call of a group: cut into tiles, run through all stages, in the pool where that pays.

cdef void run_tiles(int64_t begin, int64_t end, void* context) noexcept nogil:
    """Run tiles begin .. end of a call through all stages."""
    cdef Call* call = <Call*>context
    cdef const Plan* plan = call.plan
    cdef tg_scratch scratch
    cdef int64_t at, r, c, row, rows, column, columns
    cdef int k, status = 0
    scratch.data = NULL
    if call.failed:
        return
    if call.scratch and core.scratch(call.group.device, call.scratch, 0, &scratch) != 0:
        fail(call)
        return
    for at in range(begin, end):
        r, c = at / call.column_tiles, at % call.column_tiles
        # Tiles of rows differ by one at most, so that none is shorter than the others need.
        row = call.rows * r / call.row_tiles
        rows = call.rows * (r + 1) / call.row_tiles - row
        column = c * call.tile_columns
        columns = min(call.tile_columns, call.columns - column)
        for k in range(plan.nstages):
            if plan.stages[k].emitted != NULL:
                status = run_emitted(call, &plan.stages[k], <char*>scratch.data, row, column, rows, columns)
            else:
                status = run_called(call, &plan.stages[k], <char*>scratch.data, row, column, rows, columns)
            if status != 0:
                call.failed_tile = at
                fail(call)
                break
        if status != 0:
            break
    if scratch.data != NULL:
        core.release_scratch(&scratch)


cdef void fail(Call* call) noexcept nogil:
    """Keep the exception of this thread for the one that waits."""
    with gil:
        keep_error(call)


cdef extern from "Python.h":
    PyObject* PyErr_Occurred()
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**)
    void PyErr_Restore(PyObject*, PyObject*, PyObject*)
    void PyErr_NormalizeException(PyObject**, PyObject**, PyObject**)
    void Py_XDECREF(PyObject*)
    void PyErr_SetObject(PyObject*, PyObject*)
    PyObject* Py_TYPE_object "(PyObject *)Py_TYPE"(PyObject*)


cdef void keep_error(Call* call) noexcept:
    cdef PyObject* kind = NULL
    cdef PyObject* value = NULL
    cdef PyObject* trace = NULL
    PyErr_Fetch(&kind, &value, &trace)
    if kind != NULL:
        PyErr_NormalizeException(&kind, &value, &trace)
    call.failed = 1
    if call.error == NULL:
        call.error, value = value, NULL
    Py_XDECREF(kind)
    Py_XDECREF(value)
    Py_XDECREF(trace)


cdef int make_plan(const Group* group, int k) noexcept:
    """Let the kernel make a plan; return -1 with an exception set if it cannot."""
    try:
        (<Kernel><object>group.kernel).complete(k)
    except BaseException as error:
        PyErr_SetObject(Py_TYPE_object(<PyObject*>error), <PyObject*>error)
        return -1
    return 0


cdef int64_t lay_out(Call* call) noexcept nogil:
    """Choose the tiles of a call and lay the temporaries out; return how many tiles there are."""
    cdef const Plan* plan = call.plan
    cdef int64_t rows = call.rows, columns = call.columns, tile = plan.tile, most
    cdef bint whole = plan.counted and columns % COUNTED != 0 and rows != 1
    cdef int k
    if plan.folds or whole:
        most = rows if whole else max(1, tile / max(1, columns))
        if plan.called_folds:
            if columns * plan.fold_bytes > PARTED_BYTES:
                most = rows
            elif columns * plan.fold_bytes <= SHORT_BYTES:
                most = max(most, MANY_ROWS)
        call.tile_columns = columns
        call.row_tiles = max(1, rows / most) if plan.called_folds else (rows + most - 1) / most
        call.column_tiles = 1
    elif columns >= tile or rows == 1:
        call.tile_columns = min(columns, tile)
        call.row_tiles = rows
        call.column_tiles = (columns + call.tile_columns - 1) / call.tile_columns
    else:
        call.tile_columns = columns
        most = max(1, tile / max(1, columns))
        call.row_tiles = (rows + most - 1) / most
        call.column_tiles = 1
    call.tile_rows = (rows + call.row_tiles - 1) / call.row_tiles
    call.scratch = 0
    for k in range(plan.ntemporaries):
        call.offsets[k] = call.scratch
        call.scratch += (extent(plan.temporaries[k].row, plan.temporaries[k].column, call.tile_rows, call.tile_columns)
                         * plan.temporaries[k].itemsize + 127) & ~<int64_t>63
    return call.row_tiles * call.column_tiles


cdef int64_t prepare(Call* call, const Group* group, char* const* outs, char* const* ins, const tg_scalar* numbers,
                     int64_t rows, int64_t columns) noexcept nogil:
    """Fill in a call; return its tiles, or -1 with an exception set."""
    cdef int k = 0
    if rows == 0:
        return 0
    while k < group.nplans - 1 and not group.plans[k].least_columns <= columns <= group.plans[k].most_columns:
        k += 1
    if group.plans[k].stages == NULL:
        with gil:
            if make_plan(group, k) != 0:
                return -1
    call.group, call.plan = group, &group.plans[k]
    call.outs, call.ins, call.numbers = outs, ins, numbers
    call.rows, call.columns = rows, columns
    call.failed, call.error, call.failed_tile = 0, NULL, 0
    if call.plan.flat:
        call.rows, call.columns = 1, rows * columns
    if call.columns == 0 and not call.plan.folds and call.plan.flat:
        return 0
    return lay_out(call)


cdef int run_plan(const Group* group, char* const* outs, char* const* ins, const tg_scalar* numbers, int64_t rows,
                  int64_t columns) noexcept nogil:
    """Run the plan for these sizes, in the pool where that pays."""
    cdef Call call
    cdef int64_t tiles, grain
    tiles = prepare(&call, group, outs, ins, numbers, rows, columns)
    if tiles <= 0:
        return <int>tiles
    grain = max(1, call.plan.grain / max(1, call.tile_rows * call.tile_columns))
    if tiles <= grain or rows * columns <= SMALL:
        run_tiles(0, tiles, &call)
    else:
        core.parallel_for(0, tiles, grain, run_tiles, &call)
    return finished(&call)


cdef int finished(Call* call) noexcept nogil:
    """Return 0 for a call that went well, else -1 with the exception set."""
    if call.failed and call.error == NULL:
        # The exception is gone with the state of the thread that had it: raise it on this one.
        call.failed = 0
        run_tiles(call.failed_tile, call.failed_tile + 1, call)
        call.failed = 1
    if call.failed:
        with gil:
            raise_kept(call)
        return -1
    return 0


cdef void raise_kept(Call* call) noexcept:
    if call.error == NULL:
        PyErr_SetObject(<PyObject*>RuntimeError, <PyObject*>"a compiled group failed")
        return
    PyErr_SetObject(Py_TYPE_object(call.error), call.error)
    Py_XDECREF(call.error)
