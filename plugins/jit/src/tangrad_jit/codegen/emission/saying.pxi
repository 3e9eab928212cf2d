# What a listing is told of what is written: `listing.py` makes text of it. Nothing where no list is given.

cdef void say(Writer* w, const char* text) noexcept:
    """Tell of code as text, or of what follows."""
    if w.said != NULL and not w.quiet:
        (<list>w.said).append((w.code.size, text.decode()))


cdef void say_line(Writer* w, const Line* line) noexcept:
    """Tell of an instruction."""
    cdef const Row* row
    if w.quiet:
        return
    if line.rm.base == IN_REGISTER:
        rm = line.rm.reg
    else:
        rm = (line.rm.base, line.rm.disp, line.rm.index, line.rm.scale)
    if line.what == GENERAL:
        told = (w.code.size, "general", line.opcode, line.reg, rm)
    elif line.what == IMMEDIATE:
        told = (w.code.size, "immediate", line.reg, rm, line.imm)
    else:
        row = &rows[line.what]
        to_mask = w.evex and line.what in (vcmpps, vcmppd, vpcmpd, vpcmpq, vpmovd2m, vpmovq2m)
        told = (w.code.size, "vector", row.name.decode(), row.form, line.length, line.reg, line.second, rm, line.imm,
                line.mask, line.zero, to_mask)
    (<list>w.said).append(told)


cdef void say_jump(Writer* w, int opcode, int number, int behind) noexcept:
    """Tell of a push, a pop or a shift by its opcode, or of a jump, whose target follows by the place behind it."""
    what = "push" if opcode == 0x50 else "pop" if opcode == 0x58 else "shift" if opcode == 0xC1 else "jump"
    (<list>w.said).append((w.code.size, what, number, behind))


cdef void say_frame(Writer* w, int size) noexcept:
    """Tell, where the frame is made, how large it is."""
    cdef list said = <list>w.said
    for k in range(len(said)):
        if said[k][1] == "sub rsp":
            said[k] = (said[k][0], f"sub rsp, {size}")
            return


cdef void say_target(Writer* w, int jump, int to) noexcept:
    (<list>w.said).append((jump, "target", to))


cdef void say_copy(Writer* w, int copy) noexcept:
    """Tell of a copy of a body, and of nothing until it ends."""
    if w.said != NULL:
        (<list>w.said).append((w.code.size, f"; the same for vector {copy}" if copy else "; the body, with mask k7"))
        w.quiet = 1


cdef void say_pass(Writer* w, int time, const char* text) noexcept:
    if w.said != NULL:
        (<list>w.said).append((w.code.size, f"{text.decode()} {time}"))
