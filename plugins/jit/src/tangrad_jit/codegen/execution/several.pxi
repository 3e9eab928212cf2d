# A group on several sets of operands as one call, whose tiles are shared out as those of one.

cdef struct Calls:
    int count
    int64_t* before     # tiles of the calls before each; one more: of all
    Call* calls


cdef void run_tiles_of_several(int64_t begin, int64_t end, void* context) noexcept nogil:
    """Run tiles begin .. end of several calls, counted through."""
    cdef Calls* all = <Calls*>context
    cdef int k
    for k in range(all.count):
        if all.before[k] < end and begin < all.before[k + 1]:
            run_tiles(max(begin, all.before[k]) - all.before[k], min(end, all.before[k + 1]) - all.before[k],
                      &all.calls[k])


cdef bint writes_apart(const Group* group, const Segment* one) noexcept nogil:
    """Whether each result of a segment is written where no operand is read but at the same element."""
    cdef int k, i
    for k in range(group.nout):
        for i in range(group.nin):
            if group.ins[i].itemsize and clashes(group, k, i, one.outs[k], one.ins[i], one.rows, one.columns):
                return False
    return True


cdef int entry_of_several(void* context, const Segment* segments, int count) noexcept nogil:
    """Run a group on several sets of operands, none of which is another's result, as one call."""
    cdef const Group* group = <const Group*>context
    cdef Calls all
    cdef int64_t elements = 0, grain
    cdef int k, status = 0
    cdef bint apart = True
    for k in range(count):
        elements += segments[k].rows * segments[k].columns
        apart = apart and writes_apart(group, &segments[k])
    all.count, all.before, all.calls = count, NULL, NULL
    if apart and elements > SMALL:
        all.before = <int64_t*>malloc((count + 1) * sizeof(int64_t))
        all.calls = <Call*>malloc(count * sizeof(Call))
    if all.before == NULL or all.calls == NULL:
        free(all.before)
        free(all.calls)
        for k in range(count):
            if entry(context, segments[k].outs, segments[k].ins, segments[k].numbers, segments[k].rows,
                     segments[k].columns) != 0:
                return -1
        return 0
    all.before[0] = 0
    for k in range(count):
        all.calls[k].failed = 0
        grain = prepare(&all.calls[k], group, segments[k].outs, segments[k].ins, segments[k].numbers,
                        segments[k].rows, segments[k].columns)
        if grain < 0:
            status = -1
            break
        all.before[k + 1] = all.before[k] + grain
    if status == 0:
        grain = max(1, all.before[count] * group.plans[group.nplans - 1].grain / max(1, elements))
        core.parallel_for(0, all.before[count], grain, run_tiles_of_several, &all)
        for k in range(count):
            if all.calls[k].failed:
                # Of several exceptions the first is raised, and the others are let go.
                if status == 0:
                    status = finished(&all.calls[k])
                else:
                    with gil:
                        Py_XDECREF(all.calls[k].error)
    free(all.before)
    free(all.calls)
    return status
