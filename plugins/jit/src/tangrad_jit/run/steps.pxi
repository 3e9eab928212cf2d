# What the steps of a program are, and how those run that are kernels.

cdef enum:
    LOOP = 0
    CALL = 1
    COPY = 2
    PYTHON = 3
    FRESH = 4
    GROUP = 5
    GROUPS = 6
    LET_GO = 7
    PARALLEL_REGION = 8
    # Below this many elements giving up the GIL costs more than it frees.
    HELD_ELEMENTS = 16384

ctypedef int (*groups_entry)(void* context, const void* segments, int count) noexcept nogil
ctypedef int (*group_entry)(void* context, void** outs, void** ins, const tg.tg_scalar* numbers, int64_t rows,
                            int64_t columns) noexcept nogil

cdef struct tg_number:
    int register
    int integral
    tg.tg_argument* argument
    tg.tg_scalar* scalar

cdef struct tg_step:
    int kind
    int big
    void* function
    void* context
    void* data                    # tg_loop, tg_call, tg_copy or tg_group
    int item                      # PYTHON, FRESH: place in `items`; CALL: where it declines; GROUPS: how many
    int nnumbers                  # CALL: how many arguments are numbers of registers
    tg_number* numbers

cdef struct tg_copy:
    void* to
    void* source
    int64_t nbytes

cdef struct tg_group:            # a `Segment` of `codegen/_execute.pyx`
    void** outs
    void** ins
    tg.tg_scalar* numbers
    int64_t rows
    int64_t columns


cdef inline bint is_native(const tg_step* s) noexcept nogil:
    return s.kind == LOOP or s.kind == CALL or s.kind == COPY or s.kind == GROUP or s.kind == GROUPS


cdef int run_native(const tg_step* s) noexcept nogil:
    """Run a step's kernel; return its status."""
    cdef tg.tg_loop* loop
    cdef tg_copy* copy
    cdef tg_group* group
    if s.kind == LOOP:
        loop = <tg.tg_loop*>s.data
        if loop.numel == 0 and loop.nreduced == 0:
            return 0
        return (<tg.tg_loop_kernel>s.function)(loop, s.context)
    if s.kind == CALL:
        return (<tg.tg_call_kernel>s.function)(<tg.tg_call*>s.data, s.context)
    if s.kind == COPY:
        copy = <tg_copy*>s.data
        memcpy(copy.to, copy.source, copy.nbytes)
        return 0
    if s.kind == GROUP:
        group = <tg_group*>s.data
        return (<group_entry>s.function)(s.context, group.outs, group.ins, group.numbers, group.rows, group.columns)
    return (<groups_entry>s.function)(s.context, s.data, s.item)
