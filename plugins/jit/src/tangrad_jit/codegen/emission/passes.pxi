# Passes over the columns of a row, and what is computed between them.

cdef enum:
    VARYING = 1 << 30  # in the place of a time: what differs between columns


# --- orders and uses ------------------------------------------------------------------------------

cdef void see(Writer* w) noexcept:
    """Let every value be read as itself, or as what has its bits."""
    cdef int k
    for k in range(w.count):
        w.values[k].seen = w.values[k].alias


cdef int put_in_order(Writer* w, const int* wanted, int count, int time) noexcept:
    """Write to `w.order` what has to be computed, operands first; return how much that is.

    Args:
        wanted: the results.
        time: when what is the same for all columns is computed, or VARYING.
    """
    cdef int* stack = w.pending
    cdef int top = 0, found = 0, value, k
    cdef Value* v
    for k in range(w.count):
        w.values[k].done = 0
    for k in range(count - 1, -1, -1):
        stack[top] = w.values[wanted[k]].seen
        top += 1
    while top:
        top -= 1
        value = stack[top]
        if value < 0:  # again, when its operands are in order
            v = &w.values[-1 - value]
            if not v.done:
                v.done = 1
                w.order[found] = -1 - value
                found += 1
            continue
        value = w.values[value].seen
        v = &w.values[value]
        if v.done or v.op == CONST or v.op == TABLE or v.op == FOLD:
            continue
        if not v.varies if time == VARYING else v.varies or v.time != time:
            continue
        stack[top] = -1 - value
        top += 1
        for k in range(v.count - 1, -1, -1):
            stack[top] = v.reads[k]
            top += 1
    return found


cdef void note_uses(Writer* w, int count, int sinks) noexcept:
    """Note where each value is used: places in the order, then those of what is wanted."""
    cdef int place, k, start = 0
    cdef Value* v
    for k in range(w.count):
        w.values[k].end = 0
    for place in range(count):
        v = &w.values[w.order[place]]
        for k in range(v.count):
            w.values[w.values[v.reads[k]].seen].end += 1
    for k in range(sinks):
        w.values[w.sinks[k]].end += 1
    for k in range(w.count):
        v = &w.values[k]
        v.use = start
        start += v.end
        v.end = v.use
    for place in range(count + sinks):
        if place >= count:
            note_use(w, w.sinks[place - count], place)
            continue
        v = &w.values[w.order[place]]
        for k in range(v.count):
            note_use(w, w.values[v.reads[k]].seen, place)


cdef inline void note_use(Writer* w, int value, int place) noexcept:
    w.places[w.values[value].end] = place
    w.values[value].end += 1


# --- one run of values ----------------------------------------------------------------------------

cdef void all_free(Writer* w, Registers* r) noexcept:
    """Let all registers but the scratch registers be free, and hold nothing."""
    cdef int k
    r.locked = r.pinned = 0
    r.count = 0
    for k in range(32):
        r.owner[k] = -1
    for k in range(2, 32 if w.evex else 16):
        r.free[r.count] = k
        r.count += 1


cdef void run(Writer* w, const Registers* start, int count, int sinks, int stores) noexcept:
    """Write a run of values and their stores along the columns."""
    cdef int[4] args
    cdef int k, j, value, to
    cdef Value* v
    note_uses(w, count, sinks)
    memcpy(&w.registers, start, sizeof(Registers))
    for k in range(w.count):
        w.values[k].where = w.values[k].spilled = -1
    for k in range(32):
        if start.owner[k] >= 0:
            w.values[start.owner[k]].where = k
    for k in range(count):
        w.begins = 1
        value = w.order[k]
        v = &w.values[value]
        if v.op == LOAD or v.op == UNIFORM or v.op == NUMBER:
            to = take(w)
            if v.op == LOAD:
                load_stream(w, <int>v.bits, to)
            else:
                load_uniform(w, value, to)
            keep_in(w, value, to)
            continue
        for j in range(v.count):
            args[j] = w.values[v.reads[j]].seen
        emit_value(w, value, args)
    for k in range(stores):
        w.begins = 1
        value = w.sinks[k]
        store_stream(w, w.stored[k], get(w, value))
        used(w, &value, 1)


cdef void pin(Writer* w, int count, Registers* r) noexcept:
    """Load what is read most from memory into registers that the body does not need."""
    cdef int alive = 0, most = 0, k, best, reg
    cdef int* ends = w.pending
    cdef Value* v
    note_uses(w, count, 0)
    for k in range(count):
        ends[k] = 0
    for k in range(w.count):
        w.values[k].done = 0
    for k in range(count):
        v = &w.values[w.order[k]]
        v.done = 1
        if v.use < v.end:
            ends[w.places[v.end - 1]] += 1
    for k in range(count):
        alive += 1
        most = max(most, alive + 1)
        alive -= ends[k]
    while r.count > most + 1:
        best = -1
        for k in range(w.count):
            v = &w.values[k]
            if not v.done and v.use < v.end and (best < 0 or v.end - v.use
                                                 > w.values[best].end - w.values[best].use):
                best = k
        if best < 0:
            return
        w.values[best].done = 1
        reg = r.free[0]
        r.count -= 1
        memmove(r.free, r.free + 1, r.count)
        w.values[best].spilled = -1
        load_home(w, best, reg)
        r.owner[reg] = best
        r.pinned |= <uint32_t>1 << reg


# --- bodies ---------------------------------------------------------------------------------------

cdef struct Body:
    int start, end    # lines that were kept, in bytes
    int[8] folded     # the registers in which it leaves what is folded


cdef void keep_body(Writer* w, Body* body, const Registers* start, int count, int stores, int nfolds) noexcept:
    """Keep the code of one vector of columns."""
    cdef int k
    body.start = w.body.size
    w.keeps = 1
    run(w, start, count, stores + nfolds, stores)
    for k in range(nfolds):
        body.folded[k] = get(w, w.sinks[stores + k])
    w.keeps = 0
    body.end = w.body.size


cdef void write_body(Writer* w, const Body* body, int copy, bint under_mask) noexcept:
    """Write a copy of a body, whose displacements grow; under a mask: with loads and stores that have k7."""
    cdef int at
    cdef Line line
    if copy or under_mask:
        say_copy(w, copy)
    at = body.start
    while at < body.end:
        memcpy(&line, w.body.data + at, sizeof(Line))
        at += sizeof(Line)
        line.rm.disp += copy * line.rm.unit
        if under_mask and line.streams:
            line.mask, line.zero = 7, line.streams == 1
        encode(w, &line)
    w.quiet = 0


cdef void write_pair(Writer* w, const Body* body) noexcept:
    """Write a body for two vectors, of which the second has other registers, in turn.

    Processors look ahead only so far: where one vector takes many instructions that wait for each other, those of a
    second vector have to stand between them. Scratch registers, and the one that holds an address, are used within a
    value alone, so that vectors share them.
    """
    cdef int at = body.start, end, k
    cdef bint beside
    cdef const Line* line
    while at < body.end:
        end, beside = at, True
        while True:
            line = <const Line*>(w.body.data + end)
            beside = (beside and line.what < GENERAL and line.reg > 1
                      and (line.rm.base != IN_REGISTER or line.rm.reg > 1))
            end += sizeof(Line)
            if end >= body.end or (<const Line*>(w.body.data + end)).begins:
                break
        for k in range(at, end, sizeof(Line)):
            line = <const Line*>(w.body.data + k)
            encode(w, line)
            if beside:
                write_second(w, line, True)
        if not beside:
            for k in range(at, end, sizeof(Line)):
                write_second(w, <const Line*>(w.body.data + k), False)
        at = end


cdef enum:
    MOST_SPILLS = 12  # of a body of half of the registers


cdef inline int half(Writer* w) noexcept:
    """Return how many registers each vector of a pair has."""
    return 15 if w.evex else 7


cdef inline int other(Writer* w, int reg) noexcept:
    """Return the register of the second vector of a pair in the place of one of the first."""
    return reg - half(w) if reg >= 2 + half(w) else reg


cdef void write_second(Writer* w, const Line* first, bint beside) noexcept:
    """Write an instruction as the next vector has it."""
    cdef Line line = first[0]
    if line.what < GENERAL:
        line.reg, line.second = other(w, line.reg), other(w, line.second)
        if line.rm.base == IN_REGISTER:
            line.rm.reg = other(w, line.rm.reg)
        elif beside and line.what == vmovups and line.rm.base == IN_CONSTANTS:
            line.what, line.rm = vmovaps, register(first.reg)  # a constant is loaded once
        elif line.rm.base == RSP and line.rm.disp >= w.spilled_from:
            line.rm.disp += w.spills
        line.rm.disp += line.rm.unit
        if line.what == vblendvps or line.what == vblendvpd:
            line.imm = other(w, line.imm >> 4) << 4
    encode(w, &line)


# --- passes ---------------------------------------------------------------------------------------

cdef void emit_pass_of(Writer* w, int time) noexcept:
    """Write the pass of a number; it may read from memory what an earlier one has computed."""
    cdef Fold[MOST_FOLDS] folds
    cdef const Loaded* loaded = <const Loaded*>w.loads.data
    cdef int stores = 0, nfolds = 0, needs = 0, k
    see(w)
    for k in range(w.loads.size // <int>sizeof(Loaded)):
        if loaded[k].time == time:
            w.values[loaded[k].value].seen = w.values[w.values[loaded[k].value].alias].seen = loaded[k].load
    for k in range(w.nstores):
        if w.stores[k].time == time:
            w.stored[stores], w.sinks[stores] = w.stores[k].stream, w.values[w.stores[k].value].seen
            stores += 1
    for k in range(w.count):
        if w.values[k].op != FOLD or w.values[k].time != time:
            continue
        if nfolds == MOST_FOLDS:
            w.failed = TOO_MANY
            return
        folds[nfolds].value, folds[nfolds].kind = k, <int>w.values[k].bits
        folds[nfolds].size = 8 if w.values[k].type & 1 else 4
        folds[nfolds].widens = folds[nfolds].kind <= MEAN and folds[nfolds].size == 4
        w.sinks[stores + nfolds] = w.values[w.values[k].args[0]].seen
        needs += 3 if folds[nfolds].widens else 4
        nfolds += 1
    if needs > (30 if w.evex else 14) - LEAST_FREE:
        w.failed = TOO_MANY
    elif stores or nfolds:
        emit_pass(w, stores, folds, nfolds)


cdef void emit_pass(Writer* w, int stores, Fold* folds, int nfolds) noexcept:
    """Write a pass: stores of the first of `w.sinks` to `w.stored`, and folds of the others."""
    cdef int count = put_in_order(w, w.sinks, stores + nfolds, VARYING), copies = copies_of(count, nfolds), k, block
    cdef Registers start
    cdef Body body
    cdef bint paired
    w.body.size = 0
    all_free(w, &start)
    for k in range(nfolds):
        take_lanes(w, &folds[k], &start)
        folds[k].offset = folds[k].buffer - folds[0].buffer
    paired = copies == 1 and keep_half(w, &body, count, stores)
    if not paired:
        pin(w, count, &start)
    for k in range(nfolds):
        begin_fold(w, &folds[k])
    if not paired:
        keep_body(w, &body, &start, count, stores, nfolds)
    block = w.lanes * (2 if paired else copies)
    general_of(w, 0x31, RAX, register(RAX), False, False, False)  # xor eax, eax
    if w.evex and stores and not nfolds:
        align(w, &body, w.stored[0])
    write_loop(w, &body, folds, nfolds, block, 0 if paired else copies, False)
    if nfolds:
        general(w, 0x8D, RDI, memory(RSP, folds[0].buffer))
    if not w.evex and block > w.lanes:
        write_loop(w, &body, folds, nfolds, w.lanes, 1, True)
    if not w.evex:
        w.single = 1
        keep_body(w, &body, &start, count, stores, nfolds)
        w.single = 0
    write_tail(w, &body, folds, nfolds, w.lanes if w.evex else 1)
    for k in range(nfolds):
        finish_fold(w, &folds[k], block)


cdef int copies_of(int count, int nfolds) noexcept:
    """Return how often a body is copied: one that is short, more often; folds take four vectors in turn."""
    if nfolds or count <= 12:
        return 4
    return 2 if count <= 40 else 1


cdef void take_lanes(Writer* w, Fold* f, Registers* start) noexcept:
    """Give a fold registers for the whole pass, and room for what it keeps."""
    cdef int k
    f.buffer = room(w, 4 * w.lanes * f.size + 64)
    for k in range(3 if f.widens else 4):
        start.count -= 1
        f.lanes[k] = start.free[start.count]
    f.carry = f.lanes[2]  # of one that widens


cdef bint keep_half(Writer* w, Body* body, int count, int stores) noexcept:
    """Keep a body that takes half of the registers; return whether those suffice."""
    cdef Registers start
    cdef int before = w.stack
    all_free(w, &start)
    start.count = half(w)
    memmove(start.free, start.free + start.count, start.count)
    keep_body(w, body, &start, count, stores, 0)
    w.spills, w.spilled_from = w.stack - before, before
    if w.spills > 64 * MOST_SPILLS:
        w.body.size = 0
        return False
    w.stack += w.spills  # the second vector has room of its own
    return True


cdef void write_loop(Writer* w, const Body* body, const Fold* folds, int nfolds, int block, int copies,
                     bint keeps) noexcept:
    """Write the loop over whole vectors.

    Args:
        block: how many columns a turn takes.
        copies: how many vectors that is; 0: two, whose instructions take turns.
        keeps: whether what is folded is kept for later.
    """
    cdef int none, start, copy, k
    load(w, RSI, memory(RSP, COLUMNS))
    immediate(w, MINUS, register(RSI), block)
    general(w, 0x39, RSI, register(RAX))  # cmp rax, rsi
    none = jump(w, GREATER)
    start = w.code.size
    if copies == 0:
        write_pair(w, body)
    for copy in range(copies):
        write_body(w, body, copy, False)
        for k in range(nfolds):
            if keeps:
                keep_element(w, &folds[k], body.folded[k])
            else:
                add_vector(w, &folds[k], body.folded[k], copy)
    if keeps and nfolds:
        immediate(w, PLUS, register(RDI), w.lanes * folds[0].size)
    immediate(w, PLUS, register(RAX), block)
    general(w, 0x39, RSI, register(RAX))
    land(w, jump(w, LESS_EQUAL), start)
    land(w, none, w.code.size)


cdef void align(Writer* w, const Body* body, int stream) noexcept:
    """Write the first columns of a row up to where a result is aligned.

    Rows begin anywhere; a vector across the border of two cache lines takes two accesses.
    """
    cdef int shift = shifts[w.streams[stream].dtype], whole, aligned
    if w.streams[stream].base >= 0:
        general(w, 0x8B, RSI, register(w.streams[stream].base))  # mov rsi, base
    else:
        load(w, RSI, memory(RDX, 8 * stream))
    general(w, 0xF7, 3, register(RSI))  # neg rsi
    immediate(w, BITS, register(RSI), (w.lanes << shift) - 1)
    if shift:
        shift_right(w, RSI, shift)
    general(w, 0x3B, RSI, memory(RSP, COLUMNS))
    whole = jump(w, GREATER)  # the row ends before
    general(w, 0x85, RSI, register(RSI))  # test rsi, rsi
    aligned = jump(w, EQUAL)
    general(w, 0x89, RSI, memory(RSP, COUNT))
    mask_of_count(w)
    write_body(w, body, 0, True)
    load(w, RAX, memory(RSP, COUNT))
    land(w, whole, w.code.size)
    land(w, aligned, w.code.size)


cdef void write_tail(Writer* w, const Body* body, const Fold* folds, int nfolds, int step) noexcept:
    """Write the loop over what is left of a row."""
    cdef int none, start, k
    general(w, 0x3B, RAX, memory(RSP, COLUMNS))  # cmp rax, [columns]
    none = jump(w, NOT_BELOW)
    start = w.code.size
    if w.evex:
        load(w, RSI, memory(RSP, COLUMNS))
        general(w, 0x29, RAX, register(RSI))  # sub rsi, rax
        mask_of_count(w)
    write_body(w, body, 0, w.evex)
    for k in range(nfolds):
        keep_element(w, &folds[k], body.folded[k])
    if nfolds:
        immediate(w, PLUS, register(RDI), step * folds[0].size)
    immediate(w, PLUS, register(RAX), step)
    general(w, 0x3B, RAX, memory(RSP, COLUMNS))
    land(w, jump(w, BELOW), start)
    land(w, none, w.code.size)


# --- what is the same for all columns -------------------------------------------------------------

cdef void emit_uniforms(Writer* w, int time) noexcept:
    """Compute the uniform values of a time, keep those that are used later, store results."""
    cdef Registers start
    cdef int count = 0, kept, k, value
    for value in range(w.count):
        if w.values[value].kept and w.values[value].time == time and w.values[value].op != FOLD:
            w.sinks[count] = value
            count += 1
    kept = count
    for k in range(w.nresults):
        value = w.results[2 * k + 1]
        if not w.streams[w.results[2 * k]].column and max(PER_ROW, w.values[value].time) == time:
            w.sinks[count] = w.values[value].alias
            count += 1
    if count == 0:
        return
    see(w)
    all_free(w, &start)
    run(w, &start, put_in_order(w, w.sinks, count, time), count, 0)
    for k in range(kept):
        value = w.sinks[k]
        vector(w, vmovups_store, length_of(w, w.values[value].type), get(w, value), 0, slot(w, value))
    for k in range(w.nresults):
        value = w.results[2 * k + 1]
        if not w.streams[w.results[2 * k]].column and max(PER_ROW, w.values[value].time) == time:
            w.single = 1
            store_stream(w, w.results[2 * k], get(w, w.values[value].alias))
            w.single = 0


cdef void find_kept(Writer* w) noexcept:
    """Find the uniform values that are used at another time than their own."""
    cdef int k, j, count
    cdef Value* user
    cdef Value* v
    for k in range(w.count):
        user = &w.values[k]
        if user.op == AS or user.fused:
            continue
        count = 1 if user.op == FOLD else user.count
        for j in range(count):
            v = &w.values[w.values[user.args[0]].alias if user.op == FOLD else user.reads[j]]
            if not v.varies and v.op != CONST and v.op != TABLE and (
                    user.varies or user.op == FOLD or user.time != v.time):
                v.kept = 1
    for k in range(w.nresults):
        v = &w.values[w.values[w.results[2 * k + 1]].alias]
        if not v.varies and v.op != CONST and v.op != TABLE and (
                w.streams[w.results[2 * k]].column or v.time == PER_CALL):
            v.kept = 1
