# One stage of a plan over one tile: emitted code, or a compiled loop.

cdef void encode(int how, const tg_scalar* number, bint integral, void* to) noexcept nogil:
    """Write a number of the call as code expects it."""
    cdef double f = <double>number.i if integral else number.f
    cdef float single
    cdef int64_t i
    if how == AS_FLOAT:
        single = <float>f
        memcpy(to, &single, 4)
    elif how == AS_DOUBLE:
        memcpy(to, &f, 8)
    elif how == AS_MASK:
        i = -1 if f != 0 else 0
        memcpy(to, &i, 8)
    elif how == AS_BYTE:
        (<uint8_t*>to)[0] = f != 0
    else:
        i = number.i if integral else <int64_t>f
        memcpy(to, &i, 8)


cdef inline int64_t extent(int row, int column, int64_t rows, int64_t columns) noexcept nogil:
    return (rows if row else 1) * (columns if column else 1)


cdef char* locate(const Call* call, const Operand* o, char* scratch, int64_t row, int64_t column, int64_t columns,
                  int64_t* step) noexcept nogil:
    """Return where a tile begins in an operand, and the bytes between its rows."""
    cdef char* base
    cdef int64_t width = call.columns
    if o.place == IN_TEMPORARY:
        step[0] = o.row * (columns if o.column else 1) * o.itemsize
        return scratch + call.offsets[o.index]
    base = call.ins[o.index] if o.place == IN_INPUT else call.outs[o.index]
    if not o.column:
        width = 1
        column = 0
    step[0] = o.row * width * o.itemsize
    return base + (row * step[0] + column * o.itemsize)


cdef int run_emitted(const Call* call, const Stage* stage, char* scratch, int64_t row, int64_t column, int64_t rows,
                     int64_t columns) noexcept nogil:
    cdef char* streams[MOST]
    cdef int64_t steps[MOST]
    cdef int64_t words[MOST]
    cdef int k
    for k in range(stage.noperands):
        streams[k] = locate(call, &stage.operands[k], scratch, row, column, columns, &steps[k])
    for k in range(stage.nnumbers):
        words[k] = 0
        encode(stage.numbers[k].number_as, &call.numbers[stage.numbers[k].number],
               call.group.integral[stage.numbers[k].number], &words[k])
    stage.emitted(rows, columns, streams, steps, words)
    return 0


cdef int run_called(const Call* call, const Stage* stage, char* scratch, int64_t row, int64_t column, int64_t rows,
                    int64_t columns) noexcept nogil:
    cdef tg_loop loop
    cdef int64_t shape[2]
    cdef int64_t strides[MOST_LOOP][2]
    cdef tg_scalar params[MOST_PARAMS]
    cdef const Operand* o
    cdef tg_operand* to
    cdef int64_t step
    cdef bint flat = not stage.reduces, narrow = not stage.reduces
    cdef int k
    for k in range(stage.noperands):
        narrow = narrow and not stage.operands[k].column
    if narrow:
        columns = 1
    for k in range(stage.noperands):
        o, to = &stage.operands[k], &loop.operands[k]
        to.handle, to.offset, to.dtype, to.is_scalar = 0, 0, o.dtype, 0
        to.strides = strides[k]
        strides[k][0] = strides[k][1] = 0
        if o.place == IN_CONSTANT or o.place == IN_NUMBER:
            to.is_scalar = 1
            to.value = o.value
            if o.place == IN_NUMBER:
                encode(o.number_as, &call.numbers[o.index], call.group.integral[o.index], &to.value)
            to.data = &to.value
            continue
        to.data = locate(call, o, scratch, row, column, columns, &step)
        strides[k][0] = step
        strides[k][1] = o.itemsize if o.column else 0
        flat = flat and (rows == 1 or step == columns * strides[k][1])
    for k in range(stage.nparams):
        params[k] = stage.numbers[k].value
        if stage.numbers[k].number >= 0:
            encode(stage.numbers[k].number_as, &call.numbers[stage.numbers[k].number],
                   call.group.integral[stage.numbers[k].number], &params[k])
    if stage.counter >= 0:
        # Four numbers have one counter, and the loop counts from the tile's first element.
        params[stage.counter].i += (row * call.columns + column) / COUNTED
    loop.version, loop.device_index = 1, 0
    loop.nout, loop.nin = stage.nout, stage.noperands - stage.nout
    loop.compute_dtype = stage.compute
    loop.numel = rows * columns
    loop.params, loop.nparams = params, stage.nparams
    loop.nreduced = stage.reduces
    loop.shape = shape
    if narrow or flat:
        loop.ndim = 1
        shape[0] = rows * columns
        if not narrow:
            for k in range(stage.noperands):
                strides[k][0] = strides[k][1]
    else:
        loop.ndim = 2
        shape[0], shape[1] = rows, columns
    if loop.numel == 0 and not stage.reduces:
        return 0
    return stage.called(&loop, stage.context)
