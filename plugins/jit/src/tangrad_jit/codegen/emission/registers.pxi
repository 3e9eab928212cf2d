# Assign registers to a straight run of values while their instructions are written.
#
# Linear scan: values leave their register after the last use; where none is free, the one goes whose next use is
# farthest (Belady, "A study of replacement algorithms", IBM Systems Journal 5, 1966). Constants and slots are at home
# in memory and leave without a store.

cdef enum:
    NEVER = 1 << 30

cdef struct Registers:
    int owner[32]      # the value that a register holds, -1: none
    int8_t free[32]    # those that may be used, the next one last
    int count          # how many those are
    uint32_t locked    # those that the instruction under way reads
    uint32_t pinned    # those whose values stay where they are


cdef inline int length_of(Writer* w, int type) noexcept:
    """Return the encoded length of the registers that hold a type."""
    return 0 if w.single else w.lengths[type & 1]


cdef inline int next_use(Writer* w, int value) noexcept:
    cdef const Value* v = &w.values[value]
    return w.places[v.use] if v.use < v.end else NEVER


cdef int room(Writer* w, int size) noexcept:
    """Return the offset of new room in the frame."""
    w.stack += size
    return w.stack - size


cdef Operand slot(Writer* w, int value) noexcept:
    """Return the slot of a uniform value."""
    if w.values[value].slot < 0:
        w.values[value].slot = room(w, 64)
    return memory(RSP, w.values[value].slot)


cdef Operand all_of(Writer* w, uint64_t bits, int size) noexcept:
    """Return where a vector is of which all elements have some bits."""
    cdef uint64_t[8] wanted
    cdef int k, at
    for k in range(8):
        wanted[k] = bits if size == 8 else bits << 32 | bits
    for at in range(0, w.pool.size, 64):
        if memcmp(w.pool.data + at, wanted, 64) == 0:
            return memory(IN_CONSTANTS, at)
    return memory(IN_CONSTANTS, add_constant(w, wanted))


cdef int add_constant(Writer* w, const void* data) noexcept:
    reserve(w, &w.pool, 64)
    memcpy(w.pool.data + w.pool.size, data, 64)
    w.pool.size += 64
    return w.pool.size - 64


cdef Operand constant(Writer* w, int value) noexcept:
    """Return where a constant is: each has a whole vector."""
    cdef Value* v = &w.values[value]
    if v.constant < 0 and v.op == CONST:
        v.constant = all_of(w, v.bits, 8 if v.type & 1 else 4).disp
    elif v.constant < 0:
        v.constant = add_constant(w, w.tables.data + 64 * v.bits)
    return memory(IN_CONSTANTS, v.constant)


cdef bint find_home(Writer* w, int value, Operand* at) noexcept:
    """Find where in memory a value is; return whether it is anywhere."""
    cdef const Value* v = &w.values[value]
    if v.spilled >= 0:
        at[0] = memory(RSP, v.spilled)
    elif v.op == CONST or v.op == TABLE:
        at[0] = constant(w, value)
    elif v.slot >= 0:
        at[0] = memory(RSP, v.slot)
    else:
        return False
    return True


cdef void load_home(Writer* w, int value, int reg) noexcept:
    cdef Operand at
    if not find_home(w, value, &at):
        at = slot(w, value)
    vector(w, vmovups, length_of(w, w.values[value].type), reg, 0, at)


cdef inline void give(Writer* w, int value, int reg) noexcept:
    w.values[value].where = reg
    w.registers.owner[reg] = value


cdef inline void forget(Writer* w, int value) noexcept:
    """Let a register hold its value no more, without being free."""
    w.registers.owner[w.values[value].where] = -1
    w.values[value].where = -1


cdef int take(Writer* w) noexcept:
    """Return a register that may be written."""
    cdef Registers* r = &w.registers
    cdef Operand at
    cdef int k, far = -1, reg = -1, value
    if r.count:
        r.count -= 1
        return r.free[r.count]
    for k in range(32):
        if r.owner[k] < 0 or (r.locked | r.pinned) >> k & 1:
            continue
        if next_use(w, r.owner[k]) > far:
            far, reg = next_use(w, r.owner[k]), k
    if reg < 0:
        w.failed = TOO_MANY
        return 2
    value = r.owner[reg]
    if far < NEVER and not find_home(w, value, &at):
        w.values[value].spilled = room(w, 64)
        vector(w, vmovups_store, length_of(w, w.values[value].type), reg, 0, memory(RSP, w.values[value].spilled))
    forget(w, value)
    return reg


cdef int get(Writer* w, int value) noexcept:
    """Return the register of a value, which is loaded if need be, and lock it."""
    cdef int reg = w.values[value].where
    if reg < 0:
        reg = take(w)
        load_home(w, value, reg)
        give(w, value, reg)
    w.registers.locked |= <uint32_t>1 << reg
    return reg


cdef Operand either(Writer* w, int value) noexcept:
    """Return a value's register, or its place in memory."""
    cdef Operand at
    if w.values[value].where >= 0 or not find_home(w, value, &at):
        return register(get(w, value))
    return at


cdef bint dies(Writer* w, int value, int times) noexcept:
    """Tell whether an instruction that uses a value some times is the last that does."""
    cdef const Value* v = &w.values[value]
    return v.end - v.use <= times and v.where >= 0 and not w.registers.pinned >> v.where & 1


cdef void used(Writer* w, const int* values, int count) noexcept:
    """Note one use of each operand, and free the registers of those that had their last."""
    cdef Registers* r = &w.registers
    cdef Value* v
    cdef int k
    for k in range(count):
        v = &w.values[values[k]]
        v.use += 1
        if v.use >= v.end and v.where >= 0 and not r.pinned >> v.where & 1:
            r.free[r.count] = v.where
            r.count += 1
            forget(w, values[k])
    r.locked = 0


cdef void keep_in(Writer* w, int value, int reg) noexcept:
    """Note that a register holds a value; if nobody uses it, it is free again."""
    if w.values[value].use < w.values[value].end:
        give(w, value, reg)
    else:
        w.registers.free[w.registers.count] = reg
        w.registers.count += 1
