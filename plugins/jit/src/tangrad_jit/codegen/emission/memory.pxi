# Loads and stores of streams: elements of every dtype to and from lanes.

cdef enum:
    FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT8, UINT8, INT16, INT32, INT64, BOOL, DTYPES
cdef extern from *:
    """
    static const char *const tgj_dtype_names[] = {
        "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool"};
    static const uint8_t tgj_shifts[] = {2, 3, 1, 1, 0, 0, 1, 2, 3, 0}; /* of the bytes of an element */
    static const uint8_t tgj_lanes[] = {TGJ_F4, TGJ_F8, TGJ_F4, TGJ_F4, TGJ_I4, TGJ_I4, TGJ_I4, TGJ_I4, TGJ_I8, TGJ_M4};
    """
    const char* const* dtype_names "tgj_dtype_names"
    const uint8_t* shifts "tgj_shifts"
    const uint8_t* lanes_of "tgj_lanes"


cdef inline int lanes_type(Writer* w, int dtype) noexcept:
    """Return the type of the lanes that hold a dtype; masks have the width of the program's widest lanes."""
    return M8 if dtype == BOOL and w.wide else lanes_of[dtype]


cdef Operand place(Writer* w, int stream) noexcept:
    """Return where the element of this column is; the address may be loaded into rcx for it."""
    cdef const Stream* at = &w.streams[stream]
    cdef int base = at.base, shift = shifts[at.dtype]
    if base < 0:
        base = RCX
        load(w, RCX, memory(RDX, 8 * stream))
    if not at.column:
        return memory(base, 0)
    return Operand(0, <int8_t>base, RAX, <int8_t>shift, 0, w.lanes << shift)


cdef void load_stream(Writer* w, int stream, int to) noexcept:
    """Load the elements of this and the next columns, as many as the mode says."""
    cdef int dtype = w.streams[stream].dtype, type = lanes_type(w, dtype), length = length_of(w, type), what
    cdef Operand at = place(w, stream)
    if w.single:
        load_one(w, at, dtype, to)
        return
    if shifts[dtype] >= 2:
        what = vmovupd if shifts[dtype] == 3 else vmovups
    elif dtype == FLOAT16:
        what = vcvtph2ps
    elif dtype == BFLOAT16:
        what = vpmovzxwd
    elif dtype == BOOL:
        what = vpmovzxbq if type == M8 else vpmovzxbd
    else:
        what = vpmovsxwd if dtype == INT16 else vpmovsxbd if dtype == INT8 else vpmovzxbd
    vector_of(w, what, length, to, 0, at, -1, 1)
    if dtype == BFLOAT16:
        vectors_by(w, vpslld, length, to, 0, to, 16)
    elif dtype == BOOL:
        negate(w, type, length, to)


cdef void negate(Writer* w, int type, int length, int to) noexcept:
    """Make masks of ones."""
    vectors(w, vpxorq if w.evex else vpxor, length, 0, 0, 0)
    vectors(w, vpsubq if type & 1 else vpsubd, length, to, 0, to)


cdef void load_one(Writer* w, Operand at, int dtype, int to) noexcept:
    """Load one element into the first lane."""
    cdef int shift = shifts[dtype]
    if dtype <= FLOAT64:
        vector(w, vmovss if shift == 2 else vmovsd, 0, to, 0, at)
    elif shift >= 2:
        vector(w, vmovd if shift == 2 else vmovq, 0, to, 0, at)
    else:
        # movzx or movsx of a byte or two
        general_of(w, (0xBE if dtype == INT8 or dtype == INT16 else 0xB6) + shift, RSI, at, False, True, False)
        vectors(w, vmovd, 0, to, 0, RSI)
        if dtype == FLOAT16:
            vectors(w, vcvtph2ps, 0, to, 0, to)
        elif dtype == BFLOAT16:
            vectors_by(w, vpslld, 0, to, 0, to, 16)
        elif dtype == BOOL:
            negate(w, lanes_type(w, BOOL), 0, to)


cdef void load_uniform(Writer* w, int value, int to) noexcept:
    """Load an element, or a number of the call, into all lanes."""
    cdef const Value* v = &w.values[value]
    cdef int type = v.type, length = length_of(w, type), dtype = -1
    cdef Operand at
    if v.op == NUMBER:
        load(w, RCX, memory(RSP, NUMBERS))
        at = memory(RCX, 8 * <int>v.bits)
    else:
        dtype = w.streams[v.bits].dtype
        at = place(w, <int>v.bits)
    if dtype >= 0 and shifts[dtype] < 2:
        load_one(w, at, dtype, to)
    else:
        vector(w, vmovsd if type & 1 else vmovss, 0, to, 0, at)
    if type & 1:
        vectors(w, vbroadcastsd if length else vmovddup, length, to, 0, to)
    else:
        vectors(w, vbroadcastss, length, to, 0, to)


cdef void store_stream(Writer* w, int stream, int source) noexcept:
    """Store the elements of this and the next columns, as many as the mode says."""
    cdef int dtype = w.streams[stream].dtype, type = lanes_type(w, dtype), length = length_of(w, type)
    cdef Operand at = place(w, stream)
    if w.single:
        store_one(w, at, dtype, source)
    elif shifts[dtype] >= 2:
        vector_of(w, vmovupd_store if shifts[dtype] == 3 else vmovups_store, length, source, 0, at, -1, 2)
    elif dtype == FLOAT16:
        vector_of(w, vcvtps2ph, length, source, 0, at, 0, 2)
    elif w.evex:
        store_narrow_512(w, at, dtype, type, source, length)
    else:
        store_narrow(w, at, dtype, type, source, length)


cdef void store_narrow_512(Writer* w, Operand at, int dtype, int type, int source, int length) noexcept:
    cdef int what = vpmovdw if shifts[dtype] == 1 else vpmovqb if type == M8 else vpmovdb
    if dtype == BOOL:
        vectors(w, vpabsq if type == M8 else vpabsd, length, 0, 0, source)
        source = 0
    elif dtype == BFLOAT16:
        vectors_by(w, vpsrld, length, 0, 0, source, 16)
        source = 0
    vector_of(w, what, length, source, 0, at, -1, 2)


cdef void store_narrow(Writer* w, Operand at, int dtype, int type, int source, int length) noexcept:
    """Store lanes cut to their lower bytes: by packing, which saturates what is not cut before."""
    cdef bint words = shifts[dtype] == 1, signed_ = dtype == BOOL
    if dtype == BOOL and type == M8:
        vectors_by(w, vextractf128, 1, source, 0, 1, 1)
        vectors_by(w, vshufps, 0, 0, source, 1, 0x88)
        length = 0
    elif dtype == BOOL:
        vectors(w, vmovaps, length, 0, 0, source)
    elif dtype == BFLOAT16:
        vectors_by(w, vpsrld, length, 0, 0, source, 16)
    else:
        vectors_by(w, vpslld, length, 0, 0, source, 16 if words else 24)
        vectors_by(w, vpsrld, length, 0, 0, 0, 16 if words else 24)
    if length:
        vectors_by(w, vextractf128, 1, 0, 0, 1, 1)
    vectors(w, vpackssdw if signed_ else vpackusdw, 0, 0, 0, 1 if length else 0)
    if words:
        vector(w, vmovups_store if length else vmovq_store, 0, 0, 0, at)
        return
    vectors(w, vpacksswb if signed_ else vpackuswb, 0, 0, 0, 0)
    if signed_:
        vectors(w, vpabsb, 0, 0, 0, 0)
    vector(w, vmovq_store if w.lanes == 8 else vmovd_store, 0, 0, 0, at)


cdef void store_one(Writer* w, Operand at, int dtype, int source) noexcept:
    """Store the first lane."""
    cdef int shift = shifts[dtype]
    if shift >= 2:
        vector(w, vmovsd_store if shift == 3 else vmovss_store, 0, source, 0, at)
        return
    if dtype == FLOAT16:
        vectors_by(w, vcvtps2ph, 0, source, 0, 0, 0)
        source = 0
    elif dtype == BFLOAT16:
        vectors_by(w, vpsrld, 0, 0, 0, source, 16)
        source = 0
    vectors(w, vmovd_store, 0, source, 0, RSI)
    if dtype == BOOL:
        immediate(w, BITS, register(RSI), 1)
    general_of(w, 0x89 if shift else 0x88, RSI, at, False, False, shift == 1)
