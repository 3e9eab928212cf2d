# Choose the instructions of each value, and the registers that they read and write.

# Predicates of comparisons.
cdef enum:
    WHERE_EQUAL = 0
    WHERE_UNORDERED = 3


cdef void finish_value(Writer* w, int value, int what, int type, int second, Operand rm, int imm, const int* args,
                       int count) noexcept:
    """Let the operands go, and write the instruction that makes a value of them."""
    cdef int to
    used(w, args, count)
    to = take(w)
    vector_of(w, what, length_of(w, type), to, second, rm, imm, 0)
    keep_in(w, value, to)


cdef void emit_binary(Writer* w, int value, const int* args, int what, int type, bint swaps, int imm) noexcept:
    cdef int a = args[0], b = args[1], first
    if swaps and w.values[a].where < 0 and w.values[b].where >= 0:
        a, b = b, a
    first = get(w, a)
    finish_value(w, value, what, type, first, either(w, b), imm, args, 2)


cdef void emit_product(Writer* w, int value, const int* args) noexcept:
    """A b + c: the destination is one of the three, so one that is not needed again is chosen."""
    cdef const Value* v = &w.values[value]
    cdef int a = args[0], b = args[1], c = args[2], first, to, form
    cdef int what = plain_of(v.op, v.type), length = length_of(w, v.type)
    cdef bint dying_a = dies(w, a, 1 + (a == b) + (a == c)), dying_c = dies(w, c, 1 + (c == a) + (c == b))
    cdef Operand second, third
    if not dying_c and not dying_a and dies(w, b, 1 + (b == a) + (b == c)):
        a, b, dying_a = b, a, True
    if dying_c or not dying_a:
        if w.values[a].where < 0 and w.values[b].where >= 0:
            a, b = b, a
        first = get(w, a)
        second = either(w, b)
        if dying_c:
            to = get(w, c)
            forget(w, c)
        else:
            third = either(w, c)
            to = take(w)
            vector(w, vmovups, length, to, 0, third)
        form = 2  # 231: the destination is added to
    else:
        to = get(w, a)
        if w.values[c].where >= 0 and w.values[b].where < 0:
            form, first, second = 0, get(w, c), either(w, b)
        else:
            form, first, second = 1, get(w, b), either(w, c)
        forget(w, a)
    used(w, args, 3)
    vector(w, what + 2 * form, length, to, first, second)
    keep_in(w, value, to)


cdef void emit_ternary(Writer* w, int value, const int* args) noexcept:
    cdef const Value* v = &w.values[value]
    cdef int a = args[0], second = get(w, args[1]), to
    cdef Operand third = either(w, args[2]), source
    if dies(w, a, 1 + (a == args[1]) + (a == args[2])):
        to = get(w, a)
        forget(w, a)
    else:
        source = either(w, a)
        to = take(w)
        vector(w, vmovups, length_of(w, v.type), to, 0, source)
    used(w, args, 3)
    vector_of(w, vpternlogd, length_of(w, v.type), to, second, third, <int>v.bits, 0)
    keep_in(w, value, to)


cdef void compare_to_mask(Writer* w, int value, int first, Operand second) noexcept:
    """Write a comparison into k1."""
    cdef const Value* v = &w.values[value]
    cdef int operand = w.values[v.args[0]].type, what
    if operand <= F8:
        what = vcmpps if operand == F4 else vcmppd
    else:
        what = vpcmpd if v.type == M4 else vpcmpq
    vector_of(w, what, length_of(w, v.type), 1, first, second, <int>v.bits, 0)


cdef void emit_comparison(Writer* w, int value, const int* args) noexcept:
    cdef const Value* v = &w.values[value]
    cdef int operand = w.values[v.args[0]].type, first, predicate = <int>v.bits
    cdef bint small = v.type == M4
    if w.evex:
        first = get(w, args[0])
        compare_to_mask(w, value, first, either(w, args[1]))
        finish_value(w, value, vpmovm2d if small else vpmovm2q, v.type, 0, register(1), -1, args, 2)
    elif operand <= F8:
        emit_binary(w, value, args, vcmpps if operand == F4 else vcmppd, v.type, False, predicate)
    elif predicate == WHERE_EQUAL:
        emit_binary(w, value, args, vpcmpeqd if small else vpcmpeqq, v.type, True, -1)
    else:  # a < b is b > a
        first = get(w, args[1])
        finish_value(w, value, vpcmpgtd if small else vpcmpgtq, v.type, first, either(w, args[0]), -1, args, 2)


cdef void emit_selection(Writer* w, int value, const int* args) noexcept:
    cdef const Value* v = &w.values[value]
    cdef int length = length_of(w, v.type), count = v.count, first, other, to
    cdef bint wide = v.type & 1
    cdef Operand chosen
    if not w.evex:
        first = get(w, args[0])
        other = get(w, args[2])
        chosen = either(w, args[1])
        finish_value(w, value, vblendvpd if wide else vblendvps, v.type, other, chosen, first << 4, args, count)
        return
    if w.values[v.args[0]].fused:
        first = get(w, args[0])
        compare_to_mask(w, v.args[0], first, either(w, args[1]))
    else:
        vectors(w, vpmovq2m if wide else vpmovd2m, length, 1, 0, get(w, args[0]))
    w.registers.locked = 0
    other = get(w, args[count - 1])
    chosen = either(w, args[count - 2])
    used(w, args, count)
    to = take(w)
    masked(w, vblendmpd if wide else vblendmps, length, to, other, chosen, 1)
    keep_in(w, value, to)


cdef void emit_conversion(Writer* w, int value, const int* args, int own) noexcept:
    cdef int type = w.values[value].type, what = conversion_of(own, type), source, to
    cdef int length = length_of(w, type | own)
    if what:
        finish_value(w, value, what, type | own, 0, either(w, args[0]), -1, args, 1)
        return
    # The lower halves of lanes of 8 bytes.
    source = get(w, args[0])
    used(w, args, 1)
    to = take(w)
    if w.evex:
        vectors(w, vpmovqd, length, source, 0, to)
    elif length == 0:
        vectors(w, vmovaps, 0, to, 0, source)
    else:
        vectors_by(w, vextractf128, 1, source, 0, 1, 1)
        vectors_by(w, vshufps, 0, to, source, 1, 0x88)
    keep_in(w, value, to)


cdef void emit_half(Writer* w, int value, const int* args) noexcept:
    cdef int source = get(w, args[0]), length = length_of(w, F4), to
    used(w, args, 1)
    to = take(w)
    vectors_by(w, vcvtps2ph, length, source, 0, 0, 0)
    vectors(w, vcvtph2ps, length, to, 0, 0)
    keep_in(w, value, to)


cdef void emit_value(Writer* w, int value, const int* args) noexcept:
    """Write the instructions of a value whose operands are at hand."""
    cdef const Value* v = &w.values[value]
    cdef int op = v.op, type = v.type, what = plain_of(op, type), first
    if op == FMA or op == FNMA:
        emit_product(w, value, args)
    elif op == CMP:
        emit_comparison(w, value, args)
    elif op == SELECT:
        emit_selection(w, value, args)
    elif op == TERN:
        emit_ternary(w, value, args)
    elif op == CONVERT:
        emit_conversion(w, value, args, <int>v.bits)
    elif op == RESIZE:
        emit_conversion(w, value, args, w.values[args[0]].type)
    elif op == HALF:
        emit_half(w, value, args)
    elif op == PERMUTE:
        first = get(w, args[0])
        finish_value(w, value, vpermps, type, first, either(w, args[1]), -1, args, 2)
    elif op == ROUND:
        if w.evex:
            what = vrndscaleps if type == F4 else vrndscalepd
        else:
            what = vroundps if type == F4 else vroundpd
        finish_value(w, value, what, type, 0, either(w, args[0]), <int>v.bits, args, 1)
    elif SHL <= op <= SAR:  # the destination is in the place of the second source
        finish_value(w, value, what, type, 0, register(get(w, args[0])), <int>v.bits, args, 1)
    elif v.count == 1:
        finish_value(w, value, what, type, 0, either(w, args[0]), <int>v.bits, args, 1)
    elif what:
        emit_binary(w, value, args, what, type,
                    op == ADD or op == MUL or (type > F8 and (op == MAX or op == MIN)), -1)
    else:
        what = logic_of(op, 0 if not w.evex else 1 + (type & 1))
        emit_binary(w, value, args, what, type, op != ANDN, -1)
