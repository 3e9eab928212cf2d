# Divide the values of a program among passes over the columns and what lies between them.

# When a uniform value is computed; else after the pass of that number.
cdef enum:
    PER_CALL = -2
    PER_ROW = -1
cdef enum:
    CHEAP = 6  # operations of what may be computed again in a later pass; else it is kept in memory
    DEAR = 1000

cdef struct Store:
    int time    # the pass that writes it
    int stream
    int value

cdef struct Loaded:
    int time    # the pass that reads it
    int value
    int load    # in its place


cdef void date(Writer* w) noexcept:
    """Find which values differ between columns, and when each is computed."""
    cdef int k, j, time
    cdef Value* v
    cdef const Value* arg
    for k in range(w.count):
        v = &w.values[k]
        v.varies = v.op == LOAD
        v.time = PER_ROW if v.op == UNIFORM and w.streams[v.bits].row else PER_CALL
        for j in range(v.nargs):
            v.varies |= w.values[v.args[j]].varies
            v.time = max(v.time, w.values[v.args[j]].time)
        if not v.varies and v.op != FOLD:
            v.cost = 0
            continue
        # What is the same for all columns is known after the pass of its time.
        time = 0
        v.cost = 6 if v.op == DIV else 8 if v.op == SQRT else 0 if v.op == LOAD else 2 if v.op == HALF else 1
        for j in range(v.nargs):
            arg = &w.values[v.args[j]]
            time = max(time, arg.time if arg.varies else arg.time + 1)
            if not (j and v.args[j] == v.args[j - 1]):
                v.cost = min(DEAR, v.cost + arg.cost)
        v.time = time
        if v.op == FOLD:
            v.varies = v.cost = 0


cdef int store_time(Writer* w, int value) noexcept:
    """Return the pass in which a value, uniform or not, can be stored along the columns."""
    cdef const Value* v = &w.values[value]
    return max(0, v.time if v.varies else v.time + 1)


cdef void plan_passes(Writer* w) noexcept:
    """Find the passes, what each stores, and what is kept for later ones."""
    cdef int k, value, time, top
    cdef Value* v
    date(w)
    for k in range(w.nresults):
        if w.streams[w.results[2 * k]].column:
            value = w.results[2 * k + 1]
            add_store(w, store_time(w, value), w.results[2 * k], value)
            w.values[value].stored = w.results[2 * k]
    for k in range(w.count):
        if w.values[k].op == FOLD:
            w.passes = max(w.passes, w.values[k].time + 1)
    w.passes = max(w.passes, 1)
    for time in range(1, w.passes):
        for k in range(w.count):
            w.values[k].done = 0
        top = 0
        for k in range(w.nstores):
            if w.stores[k].time == time:
                w.pending[top] = w.stores[k].value
                top += 1
        for k in range(w.count):
            if w.values[k].op == FOLD and w.values[k].time == time:
                w.pending[top] = w.values[k].args[0]
                top += 1
        while top:
            top -= 1
            value = w.pending[top]
            v = &w.values[value]
            if v.done or not v.varies:
                continue
            v.done = 1
            if v.op == LOAD or v.time == time or v.cost <= CHEAP:
                for k in range(v.nargs):
                    w.pending[top] = v.args[k]
                    top += 1
                continue
            keep_for(w, value, time)


cdef void keep_for(Writer* w, int value, int time) noexcept:
    """Let a pass load what an earlier one has computed and stored."""
    cdef Value* v = &w.values[value]
    cdef Value* loaded
    cdef Loaded one
    if v.stored < 0:
        v.stored = w.nstreams
        w.streams[v.stored].dtype = stored_as(v.type)
        w.streams[v.stored].row, w.streams[v.stored].column, w.streams[v.stored].base = False, True, -1
        w.nstreams += 1
        add_store(w, v.time, v.stored, value)
    if v.load < 0:
        v.load = w.count
        loaded = &w.values[w.count]
        w.count += 1
        loaded.op, loaded.type, loaded.bits = LOAD, v.type, v.stored
        loaded.varies, loaded.time, loaded.alias = 1, 0, v.load
        loaded.slot = loaded.constant = loaded.stored = loaded.load = -1
    one = Loaded(time, value, v.load)
    reserve(w, &w.loads, sizeof(Loaded))
    memcpy(w.loads.data + w.loads.size, &one, sizeof(Loaded))
    w.loads.size += sizeof(Loaded)


cdef inline int stored_as(int type) noexcept:
    """Return the dtype that holds a type in memory."""
    return BOOL if type >= M4 else (FLOAT64 if type & 1 else FLOAT32) if type <= F8 else INT64 if type & 1 else INT32


cdef void add_store(Writer* w, int time, int stream, int value) noexcept:
    w.stores[w.nstores].time, w.stores[w.nstores].stream, w.stores[w.nstores].value = time, stream, value
    w.nstores += 1
    w.passes = max(w.passes, time + 1)
