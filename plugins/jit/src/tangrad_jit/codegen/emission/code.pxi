# Writing code: instructions as lines, which are encoded at once or kept, to be written in copies.

# General registers.
cdef enum:
    RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15
# Conditions of jumps.
cdef enum:
    ALWAYS = -1
    BELOW = 2
    NOT_BELOW = 3
    EQUAL = 4
    NOT_EQUAL = 5
    LESS = 12
    LESS_EQUAL = 14
    GREATER = 15
# Bases of operands beside general registers: `disp` counts in the constants behind the code; a vector register.
cdef enum:
    IN_CONSTANTS = -1
    IN_REGISTER = -2
# Lines that are no instruction of vectors: one of general registers, by its opcode; an operation with a number.
cdef enum:
    GENERAL = 240
    IMMEDIATE = 241
# The arithmetic of `immediate`, as the digit of its opcode.
cdef enum:
    PLUS = 0
    BITS = 4
    MINUS = 5
    COMPARE = 7

cdef struct Operand:
    int8_t reg     # the vector register, where base says so
    int8_t base    # [base + index << scale + disp]
    int8_t index   # -1: none
    int8_t scale
    int32_t disp
    int32_t unit   # by how much `disp` grows for the next copy of a body

cdef struct Line:
    uint8_t what     # an instruction of the table, GENERAL or IMMEDIATE
    int8_t length    # 0, 1, 2: registers of 128, 256, 512 bits
    int8_t reg       # destination, but the source of stores; of IMMEDIATE the operation
    int8_t second    # second source
    int8_t mask      # mask register of EVEX
    int8_t zero      # whether masked elements become zero
    int8_t streams   # in masked copies: 1 a load under mask k7, 2 a store
    int8_t begins    # whether it computes another value than the line before
    int16_t opcode   # of GENERAL
    int8_t wide, escape, half
    int32_t imm      # -1: none
    Operand rm

cdef struct Fixup:
    int place, offset

cdef struct Buffer:
    char* data
    int size, room


cdef void reserve(Writer* w, Buffer* b, int more) noexcept:
    """Make room for so many bytes, 1,024 at most; without memory, the writer has failed, and begins anew."""
    cdef char* data
    if b.size + more > b.room:
        data = <char*>realloc(b.data, 2 * b.room)
        if data == NULL:
            w.failed, b.size = NO_MEMORY, 0
        else:
            b.data, b.room = data, 2 * b.room


cdef inline void byte(Buffer* b, int value) noexcept:
    b.data[b.size] = <char>value
    b.size += 1


cdef inline void four(Buffer* b, int32_t value) noexcept:
    memcpy(b.data + b.size, &value, 4)
    b.size += 4


cdef inline Operand register(int number) noexcept:
    return Operand(<int8_t>number, IN_REGISTER, -1, 0, 0, 0)


cdef inline Operand memory(int base, int disp) noexcept:
    return Operand(0, <int8_t>base, -1, 0, disp, 0)


cdef void put_address(Writer* w, int reg, Operand at, int short, int followed) noexcept:
    """Write ModRM, SIB and displacement.

    Args:
        reg: the other operand.
        short: what a displacement of one byte counts in, 0: there is none.
        followed: how many bytes of the instruction are still to come.
    """
    cdef Buffer* b = &w.code
    cdef int low = at.base & 7, mode = 0
    if at.base == IN_CONSTANTS:
        byte(b, reg << 3 | 5)
        note_fixup(w, b.size, at.disp - followed)
        four(b, 0)
        return
    if at.disp != 0 and not (short and at.disp % short == 0 and -128 <= at.disp / short < 128):
        mode = 0x80
    elif at.disp != 0 or low == 5:
        mode = 0x40
    if at.index >= 0:
        byte(b, mode | reg << 3 | 4)
        byte(b, at.scale << 6 | (at.index & 7) << 3 | low)
    else:
        byte(b, mode | reg << 3 | low)
        if low == 4:
            byte(b, 0x24)
    if mode == 0x80:
        four(b, at.disp)
    elif mode == 0x40:
        byte(b, at.disp / short if short else 0)


cdef void note_fixup(Writer* w, int place, int offset) noexcept:
    cdef Fixup one = Fixup(place, offset)
    memcpy(w.fixups.data + w.fixups.size, &one, sizeof(Fixup))
    w.fixups.size += sizeof(Fixup)


cdef void encode_vector(Writer* w, const Line* line) noexcept:
    cdef const Row* row = &rows[line.what]
    cdef Buffer* b = &w.code
    cdef int reg = line.reg, second = line.second, opcode = row.opcode, low, high, short = 1, form
    if row.form == SHIFT:
        second, reg, opcode = reg, opcode >> 8, opcode & 255
    if line.rm.base == IN_REGISTER:
        low, high = line.rm.reg & 8, line.rm.reg >> 1 & 8
    else:
        low = line.rm.base & 8 if line.rm.base >= 0 else 0
        high = line.rm.index & 8 if line.rm.index >= 0 else 0
    if w.evex:
        byte(b, 0x62)
        byte(b, row.map | (~reg & 8) << 4 | (~high & 8) << 3 | (~low & 8) << 2 | (~reg & 16))
        byte(b, row.w << 7 | (~second & 15) << 3 | 4 | row.prefix)
        byte(b, line.zero << 7 | line.length << 5 | (~second & 16) >> 1 | line.mask)
        short = 16 << line.length if row.reach else 0
    else:
        if line.rm.base == IN_REGISTER:
            high = 0
        form = (~second & 15) << 3 | line.length << 2 | row.prefix
        if row.map == 1 and not (low or high or row.vex_w):
            byte(b, 0xC5)
            byte(b, (~reg & 8) << 4 | form)
        else:
            byte(b, 0xC4)
            byte(b, row.map | (~reg & 8) << 4 | (~high & 8) << 3 | (~low & 8) << 2)
            byte(b, row.vex_w << 7 | form)
    byte(b, opcode)
    if line.rm.base == IN_REGISTER:
        byte(b, 0xC0 | (reg & 7) << 3 | (line.rm.reg & 7))
    else:
        put_address(w, reg & 7, line.rm, short, line.imm >= 0)
    if line.imm >= 0:
        byte(b, line.imm)


cdef void encode_general(Writer* w, int opcode, int reg, Operand rm, bint wide, bint escape) noexcept:
    cdef Buffer* b = &w.code
    cdef int of_register = rm.base == IN_REGISTER, prefix
    cdef int low = (rm.reg if of_register else max(0, rm.base)) >> 3 & 1
    cdef int high = rm.index >> 3 & 1 if rm.index >= 0 else 0
    prefix = 0x40 | wide << 3 | (reg >> 3 & 1) << 2 | high << 1 | low
    if prefix != 0x40 or (opcode == 0x88 and not escape):
        byte(b, prefix)  # a byte of rsi or rdi has no encoding without REX
    if escape:
        byte(b, 0x0F)
    byte(b, opcode)
    if of_register:
        byte(b, 0xC0 | (reg & 7) << 3 | (rm.reg & 7))
    else:
        put_address(w, reg & 7, rm, 1, 0)


cdef void encode_immediate(Writer* w, int operation, Operand rm, int value) noexcept:
    cdef bint short = -128 <= value < 128
    encode_general(w, 0x83 if short else 0x81, operation, rm, True, False)
    if short:
        byte(&w.code, value)
    else:
        four(&w.code, value)


cdef void encode(Writer* w, const Line* line) noexcept:
    """Write an instruction."""
    reserve(w, &w.code, 64)
    reserve(w, &w.fixups, sizeof(Fixup))
    if w.said != NULL:
        say_line(w, line)
    if line.what == GENERAL:
        if line.half:
            byte(&w.code, 0x66)
        encode_general(w, line.opcode, line.reg, line.rm, line.wide, line.escape)
    elif line.what == IMMEDIATE:
        encode_immediate(w, line.reg, line.rm, line.imm)
    else:
        encode_vector(w, line)


cdef void put(Writer* w, Line* line) noexcept:
    """Write an instruction, or keep it while a body is made."""
    if not w.keeps:
        encode(w, line)
        return
    line.begins, w.begins = w.begins, 0
    reserve(w, &w.body, sizeof(Line))
    memcpy(w.body.data + w.body.size, line, sizeof(Line))
    w.body.size += sizeof(Line)


cdef void vector_of(Writer* w, int what, int length, int reg, int second, Operand rm, int imm, int streams) noexcept:
    """Write an instruction of vectors; `streams` as lines have it."""
    cdef Line line
    memset(&line, 0, sizeof(Line))
    line.what, line.length, line.reg, line.second, line.imm = what, length, reg, second, imm
    line.streams, line.rm = streams, rm
    put(w, &line)


cdef void masked(Writer* w, int what, int length, int reg, int second, Operand rm, int mask) noexcept:
    """Write an instruction of vectors under a mask register."""
    cdef Line line
    memset(&line, 0, sizeof(Line))
    line.what, line.length, line.reg, line.second, line.imm = what, length, reg, second, -1
    line.mask, line.rm = mask, rm
    put(w, &line)


cdef void vector(Writer* w, int what, int length, int reg, int second, Operand rm) noexcept:
    """Write an instruction of vectors with an operand that may be in memory."""
    vector_of(w, what, length, reg, second, rm, -1, 0)


cdef void vectors(Writer* w, int what, int length, int reg, int second, int rm) noexcept:
    """Write an instruction of registers alone."""
    vector_of(w, what, length, reg, second, register(rm), -1, 0)


cdef void vectors_by(Writer* w, int what, int length, int reg, int second, int rm, int imm) noexcept:
    """Write an instruction of registers that a byte follows."""
    vector_of(w, what, length, reg, second, register(rm), imm, 0)


cdef void general_of(Writer* w, int opcode, int reg, Operand rm, bint wide, bint escape, bint half) noexcept:
    """Write an instruction of general registers by its opcode; `escape` puts 0F before it, `half` 66."""
    cdef Line line
    memset(&line, 0, sizeof(Line))
    line.what, line.opcode, line.reg, line.rm, line.imm = GENERAL, opcode, reg, rm, -1
    line.wide, line.escape, line.half = wide, escape, half
    put(w, &line)


cdef void general(Writer* w, int opcode, int reg, Operand rm) noexcept:
    """Write an instruction of general registers of 8 bytes."""
    general_of(w, opcode, reg, rm, True, False, False)


cdef void load(Writer* w, int reg, Operand at) noexcept:
    """Write mov reg, [at]."""
    general(w, 0x8B, reg, at)


cdef void immediate(Writer* w, int operation, Operand rm, int value) noexcept:
    """Write an operation with a number."""
    cdef Line line
    memset(&line, 0, sizeof(Line))
    line.what, line.reg, line.imm, line.rm = IMMEDIATE, operation, value, rm
    put(w, &line)


# --- what is never part of a body ----------------------------------------------------------------

cdef void raw(Writer* w, const char* code, int size, const char* text) noexcept:
    """Write bytes, which a listing calls `text`."""
    reserve(w, &w.code, size)
    say(w, text)
    memcpy(w.code.data + w.code.size, code, size)
    w.code.size += size


cdef void shift_right(Writer* w, int reg, int count) noexcept:
    """Write shr reg, count."""
    reserve(w, &w.code, 16)
    if w.said != NULL:
        say_jump(w, 0xC1, reg, count)
    encode_general(w, 0xC1, 5, register(reg), True, False)
    byte(&w.code, count)


cdef int open_frame(Writer* w) noexcept:
    """Write sub rsp by a size that `size_frame` tells, and return the place of that."""
    reserve(w, &w.code, 16)
    say(w, b"sub rsp")
    encode_general(w, 0x81, MINUS, register(RSP), True, False)
    four(&w.code, 0)
    return w.code.size - 4


cdef void size_frame(Writer* w, int frame, int32_t size) noexcept:
    """Tell how large a frame is."""
    memcpy(w.code.data + frame, &size, 4)
    if w.said != NULL:
        say_frame(w, size)


cdef void push_pop(Writer* w, int opcode, int reg) noexcept:
    """Write push (0x50) or pop (0x58) of a register."""
    reserve(w, &w.code, 4)
    if w.said != NULL:
        say_jump(w, opcode, reg, 0)
    if reg > 7:
        byte(&w.code, 0x41)
    byte(&w.code, opcode | (reg & 7))


cdef int jump(Writer* w, int condition) noexcept:
    """Write a jump and return the place behind it, for `land`."""
    reserve(w, &w.code, 8)
    if w.said != NULL:
        say_jump(w, 0, condition, w.code.size + (5 if condition < 0 else 6))
    if condition < 0:
        byte(&w.code, 0xE9)
    else:
        byte(&w.code, 0x0F)
        byte(&w.code, 0x80 | condition)
    four(&w.code, 0)
    return w.code.size


cdef void land(Writer* w, int jump, int to) noexcept:
    """Let a jump lead to a place."""
    cdef int32_t distance = to - jump
    memcpy(w.code.data + jump - 4, &distance, 4)
    if w.said != NULL:
        say_target(w, jump, to)


cdef void mask_of_count(Writer* w) noexcept:
    """Set as many of the first bits of k7 as rsi says, below 32; rcx is lost."""
    raw(w, b"\xb9\xff\xff\xff\xff\xc4\xe2\x48\xf5\xc9\xc5\xf8\x92\xf9", 14,
        b"mov rcx, -1; bzhi rcx, rcx, rsi; kmovw k7, rcx")
