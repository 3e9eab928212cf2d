# Folds along the columns, in the order of tangrad-cpu's compiled reductions.
#
# Those fold a contiguous row into lanes (`_line` in backend_cpu's render/reductions.py): sums of float32 take four
# vectors, add their elements in float32, and add that to lanes of float64; other folds have four vectors of lanes, into
# which elements go in turn. What does not fill four vectors enters afterwards, eight elements at a time; lanes are
# folded by halves; the last elements follow one by one. Any other order would round otherwise.
#
# While the loops run, what does not fill four vectors is kept in the frame.

cdef enum:
    SUM, MEAN, MAXIMUM, MINIMUM
cdef enum:
    FEW = 8
    MOST_FOLDS = 8

cdef struct Fold:
    int value     # the value that is the result, of operation FOLD
    int kind, size
    bint widens   # whether elements of float32 are added in float64
    int buffer    # the offset in the frame of the elements that are kept
    int offset    # the same from the first fold's of the pass
    int lanes[4]
    int carry


cdef uint64_t identity(const Fold* f) noexcept:
    """Return the bits of what changes no element: -0 for sums, as adding to 0 would make 0 of -0."""
    if f.kind <= MEAN:
        return <uint64_t>1 << 63
    if f.size == 4:
        return 0xFF800000 if f.kind == MAXIMUM else 0x7F800000
    return <uint64_t>(0xFFF if f.kind == MAXIMUM else 0x7FF) << 52


cdef void begin_fold(Writer* w, Fold* f) noexcept:
    """Write what sets the lanes to nothing."""
    cdef Operand at = all_of(w, identity(f), 8 if f.kind <= MEAN else f.size)
    cdef int k
    for k in range(2 if f.widens else 4):
        vector(w, vmovups, w.whole, f.lanes[k], 0, at)


cdef void keep_element(Writer* w, const Fold* f, int reg) noexcept:
    """Write the store of elements that do not fill four vectors."""
    vector(w, vmovups_store, w.whole, reg, 0, memory(RDI, f.offset))


cdef void add_vector(Writer* w, const Fold* f, int reg, int copy) noexcept:
    """Write what folds one of four vectors."""
    if not f.widens:
        combine(w, f, f.lanes[copy], reg, w.whole)
    elif copy == 0:
        vectors(w, vmovaps, w.whole, f.carry, 0, reg)
    else:
        vectors(w, vaddps, w.whole, f.carry, f.carry, reg)
        if copy == 3:
            widen(w, f)


cdef void widen(Writer* w, const Fold* f) noexcept:
    """Add a vector of float32 to the lanes of float64."""
    vectors(w, vcvtps2pd, w.whole, 0, 0, f.carry)
    vectors(w, vaddpd, w.whole, f.lanes[0], f.lanes[0], 0)
    vectors_by(w, vextractf64x4 if w.evex else vextractf128, w.whole, f.carry, 0, 1, 1)
    vectors(w, vcvtps2pd, w.whole, 1, 0, 1)
    vectors(w, vaddpd, w.whole, f.lanes[1], f.lanes[1], 1)


cdef void combine(Writer* w, const Fold* f, int to, int other, int length) noexcept:
    """Fold one register into another."""
    cdef bint small = f.size == 4
    if f.kind <= MEAN:
        vectors(w, vaddpd, length, to, to, other)
        return
    vectors_by(w, vcmpps if small else vcmppd, length, 1, other, other, WHERE_UNORDERED)
    if f.kind == MAXIMUM:
        vectors(w, vmaxps if small else vmaxpd, length, to, other, to)
    else:
        vectors(w, vminps if small else vminpd, length, to, other, to)
    if w.evex:
        masked(w, vblendmps if small else vblendmpd, length, to, to, register(other), 1)
    else:
        vectors_by(w, vblendvps if small else vblendvpd, length, to, to, other, 1 << 4)


# --- after the loops -----------------------------------------------------------------------------

cdef void finish_fold(Writer* w, const Fold* f, int block) noexcept:
    """Write what follows the loops: rest, lanes, last elements, and the result in its slot."""
    cdef int total = f.lanes[0]
    load(w, RCX, memory(RSP, COLUMNS))
    immediate(w, BITS, register(RCX), block - 1)
    general(w, 0x8D, RSI, memory(RSP, f.buffer))
    if f.widens:
        each_kept(w, f, w.lanes, vector_widened)
        if w.evex:
            each_kept(w, f, FEW, few_widened)
    else:
        each_kept(w, f, FEW, few)
        combine(w, f, f.lanes[0], f.lanes[2], w.whole)
        combine(w, f, f.lanes[1], f.lanes[3], w.whole)
    fold_halves(w, f, total)
    each_kept(w, f, 1, last)
    if f.kind == MEAN:
        raw(w, b"\xc4\xe1\xfb\x2a\x44\x24\x10", 7, b"vcvtsi2sd xmm0, xmm0, [rsp+16]")
        vectors(w, vdivsd, 0, total, total, 0)
    if f.widens:
        vectors(w, vcvtsd2ss, 0, total, total, total)
    vectors(w, vbroadcastss if f.size == 4 else vbroadcastsd, w.whole, total, 0, total)
    vector(w, vmovups_store, w.whole, total, 0, slot(w, f.value))


cdef void each_kept(Writer* w, const Fold* f, int count, void (*body)(Writer*, const Fold*) noexcept) noexcept:
    """Write a loop over the kept elements, some at a time, while there are so many."""
    cdef int start = w.code.size, done
    immediate(w, COMPARE, register(RCX), count)
    done = jump(w, LESS)
    body(w, f)
    immediate(w, PLUS, register(RSI), count * f.size)
    immediate(w, MINUS, register(RCX), count)
    land(w, jump(w, ALWAYS), start)
    land(w, done, w.code.size)


cdef void vector_widened(Writer* w, const Fold* f) noexcept:
    vector(w, vmovups, w.whole, f.carry, 0, memory(RSI, 0))
    widen(w, f)


cdef void few_widened(Writer* w, const Fold* f) noexcept:
    vector(w, vcvtps2pd, 2, 0, 0, memory(RSI, 0))
    vectors(w, vaddpd, 2, f.lanes[0], f.lanes[0], 0)


cdef void few(Writer* w, const Fold* f) noexcept:
    """Fold eight elements into the first eight lanes."""
    cdef int k
    if w.lanes == 8:
        vector(w, vmovups, w.whole, 0, 0, memory(RSI, 0))
        combine(w, f, f.lanes[0], 0, w.whole)
    elif w.lanes == 4:
        for k in range(2):
            vector(w, vmovups, 1, 0, 0, memory(RSI, 32 * k))
            combine(w, f, f.lanes[k], 0, 1)
    else:
        raw(w, b"\xb8\xff\0\0\0\xc5\xf8\x92\xf0", 9, b"mov eax, 255; kmovw k6, eax")
        # The other lanes take the identity, which changes none.
        vector(w, vmovups, 2, 0, 0, all_of(w, identity(f), 4))
        masked(w, vmovups, 2, 0, 0, memory(RSI, 0), 6)
        combine(w, f, f.lanes[0], 0, 2)


cdef void fold_halves(Writer* w, const Fold* f, int total) noexcept:
    """Fold the lanes of all registers into the first lane of one."""
    fold_pair(w, f, total, f.lanes[1], w.whole)
    if w.evex:
        vectors_by(w, vextractf64x4, 2, total, 0, 0, 1)
        fold_pair(w, f, total, 0, 1)
    vectors_by(w, vextractf32x4 if w.evex else vextractf128, 1, total, 0, 0, 1)
    fold_pair(w, f, total, 0, 0)
    vectors(w, vunpckhpd, 0, 0, total, total)
    fold_pair(w, f, total, 0, 0)
    if f.size == 4 and not f.widens:
        vectors_by(w, vshufps, 0, 0, total, total, 0x55)
        fold_pair(w, f, total, 0, 0)


cdef void fold_pair(Writer* w, const Fold* f, int to, int other, int length) noexcept:
    if f.widens:
        vectors(w, vaddpd, length, to, to, other)
    else:
        combine(w, f, to, other, length)


cdef void last(Writer* w, const Fold* f) noexcept:
    cdef int total = f.lanes[0]
    if f.widens:
        vector(w, vcvtss2sd, 0, 0, 0, memory(RSI, 0))
        vectors(w, vaddsd, 0, total, total, 0)
    else:
        vector(w, vmovss if f.size == 4 else vmovsd, 0, 0, 0, memory(RSI, 0))
        combine(w, f, total, 0, 0)
