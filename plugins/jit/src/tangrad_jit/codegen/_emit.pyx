# cython: language_level=3, initializedcheck=False, cdivision=True, legacy_implicit_noexcept=False
"""From a row program to machine code.

The function is `void f(int64 rows, int64 columns, char **streams, const int64 *steps, const void *numbers)` by the
System V convention: `streams` are the addresses of the first row, which it advances, `steps` how many bytes each moves
from row to row, `numbers` 8 bytes for each number of the call. It computes on one thread, allocates nothing and never
fails.

A pass is a loop whose body is written once and copied, so that several vectors are under way, and once more for what is
left of a row: masked with AVX-512, element by element with AVX2. A body so long that a processor does not look ahead to
its copy has the instructions of two vectors in turn.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from tangrad_jit.codegen.vector import Unsupported

# What the frame holds at its lower end, by offset.
cdef enum:
    OLD_STACK = 0
    ROWS = 8
    COLUMNS = 16
    STEPS = 24
    NUMBERS = 32
    COUNT = 40
    FIRST_SLOT = 64
cdef enum:
    LEAST_FREE = 6  # vector registers that the body of a pass needs at least
# Why there is no code.
cdef enum:
    NO_MEMORY = 1
    TOO_MANY = 2

cdef struct Value:
    uint8_t op, type
    uint8_t varies   # whether it differs between columns
    uint8_t fused    # a comparison that becomes a mask register where it is used: in selections
    uint8_t done, kept
    int time         # when it is computed, as planning.pxi counts
    int cost         # about how many operations it takes in each column
    int args[3]
    int nargs
    int reads[4]     # the values that its instructions read, and how many they are
    int count
    uint64_t bits    # its immediate
    int alias        # what has its bits: of one that is only seen as another type, that one
    int seen         # what is read in its place in this pass
    int slot, spilled, constant  # where it is in memory, -1: nowhere
    int where        # its register, -1: none
    int use, end     # the places where it is used
    int stored, load  # the stream that holds it along the columns, and the value that loads that, -1: none

cdef struct Stream:
    int dtype
    bint row, column
    int base         # the general register that holds it, -1: none

cdef struct Writer

include "emission/instructions.pxi"
include "emission/code.pxi"
include "emission/registers.pxi"
include "emission/select.pxi"
include "emission/memory.pxi"
include "emission/folds.pxi"
include "emission/planning.pxi"
include "emission/passes.pxi"
include "emission/saying.pxi"

cdef struct Writer:
    bint evex, wide
    int lanes            # how many columns a vector holds
    int[2] lengths       # of vectors of elements of 4 bytes and of 8
    int whole            # the length of a whole vector
    bint single          # whether one element is computed at a time
    bint keeps           # whether lines are kept as a body
    bint begins          # whether the next line computes another value
    int failed
    int stack            # bytes of the frame
    int spilled_from     # where the first vector of a pair has what it spills, and how much that is
    int spills
    Buffer code, fixups, body, pool, tables
    Buffer loads         # what passes load of what earlier ones have computed
    Value* values
    int count
    Stream* streams
    int nstreams
    int* results         # (stream, value) of each
    int nresults
    int passes
    Store* stores        # what passes write
    int nstores
    int* order           # of what is computed
    int* places          # of uses
    int* pending         # scratch memory
    int* sinks           # what a run is for: what is stored, then what is folded
    int* stored          # the streams of what is stored
    Registers registers
    PyObject* said       # the list of a listing, or NULL
    bint quiet


ctypedef Buffer* BufferPointer


cdef class Workspace:
    """The memory of one writer."""
    cdef Writer w

    def __cinit__(self):
        cdef Buffer* b
        cdef Writer* w = &self.w
        cdef BufferPointer[6] buffers = [&w.code, &w.fixups, &w.body, &w.pool, &w.tables, &w.loads]
        memset(&self.w, 0, sizeof(Writer))
        for b in buffers:
            b.room = 4096
            b.data = <char*>malloc(4096)
            if b.data == NULL:
                raise MemoryError

    def __dealloc__(self):
        cdef Buffer* b
        cdef Writer* w = &self.w
        cdef BufferPointer[6] buffers = [&w.code, &w.fixups, &w.body, &w.pool, &w.tables, &w.loads]
        for b in buffers:
            free(b.data)
        free(self.w.values)
        free(self.w.streams)
        free(self.w.results)
        free(self.w.stores)


def emit(program, list said=None):
    """Return the code of a program, its constants behind it; the dtypes of rows that it keeps; and its passes.

    What is kept lies in streams behind those of the program, an element for each column.

    Args:
        program: a `RowProgram`.
        said: what is written is appended, for a listing.

    Raises:
        Unsupported: it folds more at a time than there are registers.
    """
    cdef Workspace space = Workspace()
    cdef Writer* w = &space.w
    w.said = <PyObject*>said if said is not None else NULL
    read_program(w, program)
    write_function(w)
    if w.failed == TOO_MANY:
        raise Unsupported("more folds at a time than there are registers")
    if w.failed:
        raise MemoryError
    kept = [dtype_names[w.streams[k].dtype].decode() for k in range(len(program.streams), w.nstreams)]
    return w.code.data[:w.code.size] + w.pool.data[:w.pool.size], kept, w.passes


cdef dict OPS = {operation_names[k].decode(): k for k in range(OPERATIONS)}
cdef dict KINDS = {type_names[k].decode(): k for k in range(TYPES)}
cdef dict NAMED = {dtype_names[k].decode(): k for k in range(DTYPES)}
cdef dict FOLDS = {"sum": SUM, "mean": MEAN, "maximum": MAXIMUM, "minimum": MINIMUM}


cdef int read_program(Writer* w, program) except -1:
    """Take values, streams and results of a program, and plan its passes."""
    cdef list ops = program.builder.ops, streams = program.streams, results = program.results
    cdef int k, whole
    w.evex, w.wide = program.builder.evex, program.wide
    w.lanes = (64 if w.evex else 32) // (8 if w.wide else 4)
    w.whole = 2 if w.evex else 1
    w.lengths[0], w.lengths[1] = w.whole - w.wide, w.whole
    w.stack = FIRST_SLOT
    w.count, w.nstreams, w.nresults = len(ops), len(streams), len(results)
    # Each value may be kept, which takes a stream, a store and a value that is loaded.
    w.values = <Value*>calloc(2 * w.count + 1, sizeof(Value))
    w.streams = <Stream*>calloc(w.nstreams + w.count + 1, sizeof(Stream))
    whole = 3 * w.count + w.nresults + 8
    w.results = <int*>calloc(15 * whole, sizeof(int))
    w.stores = <Store*>calloc(whole, sizeof(Store))
    if w.values == NULL or w.streams == NULL or w.results == NULL or w.stores == NULL:
        raise MemoryError
    w.order, w.places, w.pending = w.results + 2 * whole, w.results + 3 * whole, w.results + 8 * whole
    w.sinks, w.stored = w.results + 13 * whole, w.results + 14 * whole
    for k in range(w.nstreams):
        _, dtype, row, column = <tuple>streams[k]
        w.streams[k].dtype, w.streams[k].row, w.streams[k].column, w.streams[k].base = NAMED[dtype], row, column, -1
    for k in range(w.nresults):
        w.results[2 * k], w.results[2 * k + 1] = <tuple>results[k]
    for k in range(w.count):
        read_value(w, &w.values[k], <tuple>ops[k])
        w.values[k].alias = w.values[w.values[k].args[0]].alias if w.values[k].op == AS else k
    plan_passes(w)
    return 0


cdef int read_value(Writer* w, Value* v, tuple one) except -1:
    op, type, args, imm = one
    v.op, v.type = OPS[op], KINDS[type]
    v.slot = v.constant = v.stored = v.load = -1
    for arg in <tuple>args:
        v.args[v.nargs] = arg
        v.nargs += 1
    if imm is None:
        v.bits = <uint64_t>-1
    elif v.op == CONVERT:
        v.bits = KINDS[imm]
    elif v.op == FOLD:
        v.bits = FOLDS[imm]
    elif v.op == TABLE:
        v.bits = w.tables.size // 64
        reserve(w, &w.tables, 64)
        for bits in <tuple>imm:
            four(&w.tables, <int32_t><uint32_t>bits)
    else:
        v.bits = imm
    return 0


cdef void find_operands(Writer* w) noexcept:
    """Find the comparisons that become mask registers, what instructions read, and what is kept in slots."""
    cdef int k, j
    cdef Value* v
    for k in range(w.count):
        w.values[k].fused = w.evex and w.values[k].op == CMP
    for k in range(w.nresults):
        w.values[w.results[2 * k + 1]].fused = 0
    for k in range(w.nstores):
        w.values[w.stores[k].value].fused = 0
    for k in range(w.count):
        v = &w.values[k]
        for j in range(v.op == SELECT, v.nargs):
            w.values[v.args[j]].fused = 0
    for k in range(w.count):
        v = &w.values[k]
        j = 0
        if v.op == FOLD:
            continue
        if v.op == SELECT and w.values[v.args[0]].fused:
            for j in range(2):
                v.reads[j] = w.values[w.values[v.args[0]].args[j]].alias
            v.count = 2
            j = 1
        for j in range(j, v.nargs):
            v.reads[v.count] = w.values[v.args[j]].alias
            v.count += 1
    find_kept(w)


cdef void write_function(Writer* w) noexcept:
    cdef int[6] saved = [RBX, RBP, R12, R13, R14, R15]
    cdef int k, frame, nothing, row
    find_operands(w)
    for k in range(6):
        push_pop(w, 0x50, saved[k])
    general(w, 0x89, RSP, register(RAX))  # mov rax, rsp
    frame = open_frame(w)
    immediate(w, BITS, register(RSP), -64)
    general(w, 0x89, RAX, memory(RSP, OLD_STACK))
    general(w, 0x89, RDI, memory(RSP, ROWS))
    general(w, 0x89, RSI, memory(RSP, COLUMNS))
    general(w, 0x89, RCX, memory(RSP, STEPS))
    general(w, 0x89, R8, memory(RSP, NUMBERS))
    general(w, 0x85, RDI, register(RDI))  # test rdi, rdi
    nothing = jump(w, LESS_EQUAL)
    say(w, b"; numbers and scalars")
    emit_uniforms(w, PER_CALL)
    say(w, b"; rows")
    row = w.code.size
    write_row(w)
    immediate(w, MINUS, memory(RSP, ROWS), 1)
    land(w, jump(w, NOT_EQUAL), row)
    land(w, nothing, w.code.size)
    load(w, RSP, memory(RSP, OLD_STACK))
    for k in range(5, -1, -1):
        push_pop(w, 0x58, saved[k])
    raw(w, b"\xc5\xf8\x77\xc3", 4, b"vzeroupper; ret")
    size_frame(w, frame, (w.stack + 63 & ~63) + 64)
    place_constants(w)


cdef void write_row(Writer* w) noexcept:
    """Write what is computed for a row, and the steps to the next."""
    cdef int[10] bases = [RBX, RBP, R8, R9, R10, R11, R12, R13, R14, R15]
    cdef int k, time, found = 0
    for k in range(w.nstreams):
        # The others of a pass are read from their array when they are used.
        if w.streams[k].column and found < 10:
            w.streams[k].base = bases[found]
            found += 1
            load(w, w.streams[k].base, memory(RDX, 8 * k))
    emit_uniforms(w, PER_ROW)
    for time in range(w.passes):
        say_pass(w, time, b"; pass")
        emit_pass_of(w, time)
        say_pass(w, time, b"; after pass")
        emit_uniforms(w, time)
    found = 0
    for k in range(w.nstreams):
        if not w.streams[k].row:
            continue
        if not found:
            load(w, RCX, memory(RSP, STEPS))
        found = 1
        load(w, RAX, memory(RCX, 8 * k))
        general(w, 0x01, RAX, memory(RDX, 8 * k))  # add [rdx + 8 k], rax


cdef void place_constants(Writer* w) noexcept:
    """Fill the code up to whole cache lines, and have its operands find the constants behind it."""
    cdef const Fixup* fixup = <const Fixup*>w.fixups.data
    cdef int32_t distance
    cdef int k
    reserve(w, &w.code, 64)
    while w.code.size & 63:
        byte(&w.code, 0xCC)
    for k in range(w.fixups.size // <int>sizeof(Fixup)):
        distance = w.code.size + fixup[k].offset - fixup[k].place - 4
        memcpy(w.code.data + fixup[k].place, &distance, 4)


def replay(builder, list ops, list values):
    """Append the values of a template to a program: see `lower.py`.

    Args:
        builder: the program's `Builder`.
        ops: the template's.
        values: the operands; the template's values are appended.
    """
    cdef dict known = builder._known
    cdef list made = builder.ops
    for op, kind, args, imm in ops:
        args = tuple([values[a] for a in <tuple>args])
        if op == "resize":  # of what may be a constant, or have been resized before
            values.append(builder.resized(args[0], kind))
            continue
        if (op == "max" or op == "min" or op == "select") and (<tuple>args)[-1] == (<tuple>args)[-2]:
            values.append(args[-1])  # there is but one to choose
            continue
        key = (op, kind, args, imm)
        found = known.get(key)
        if found is None:
            found = known[key] = len(made)
            made.append(key)
        values.append(found)


# --- for listings and tests -----------------------------------------------------------------------

FORMS = (BINARY, UNARY, STORE, SHIFT)


def table():
    """Return {name: (form, whether a byte follows)} of the instructions of vectors."""
    return {rows[k].name.decode(): (rows[k].form, bool(rows[k].imm)) for k in range(1, INSTRUCTIONS)}


def assemble(bint evex, list instructions, list copies=None):
    """Return the code of instructions, filled up to whole cache lines.

    Args:
        evex: whether vectors are encoded by EVEX (else VEX).
        instructions: ("vector", name, length, reg, second, operand, imm, streams, mask, zero), ("general", opcode, reg,
            operand, wide, escape, half), ("immediate", operation, operand, value), ("shift", reg, count),
            ("push", reg), ("pop", reg), ("jump", condition, number of the instruction it leads to) or ("mask",). An
            operand is a register, or (base, displacement, index, scale, unit) as the struct `Operand` says.
        copies: (number, whether masked) of each copy of them as a body; None to write them once.
    """
    cdef Workspace space = Workspace()
    cdef Writer* w = &space.w
    cdef Body body
    cdef Line line
    cdef list places = [], jumps = []
    cdef dict names = {rows[k].name.decode(): k for k in range(INSTRUCTIONS)}
    w.evex, w.keeps = evex, copies is not None
    memset(&line, 0, sizeof(Line))
    for what, *rest in instructions:
        places.append(w.code.size)
        if what == "vector":
            name, line.length, line.reg, line.second, at, line.imm, line.streams, line.mask, line.zero = rest
            line.what, line.rm = names[name], operand(at)
            put(w, &line)
        elif what == "general":
            opcode, reg, at, wide, escape, half = rest
            general_of(w, opcode, reg, operand(at), wide, escape, half)
        elif what == "immediate":
            operation, at, value = rest
            immediate(w, operation, operand(at), value)
        elif what == "mask":
            mask_of_count(w)
        elif what == "shift":
            shift_right(w, rest[0], rest[1])
        elif what == "jump":
            jumps.append((jump(w, rest[0]), rest[1]))
        else:
            push_pop(w, 0x50 if what == "push" else 0x58, rest[0])
    places.append(w.code.size)
    for behind, number in jumps:
        land(w, behind, places[number])
    w.keeps = 0
    body.start, body.end = 0, w.body.size
    for number, masks in copies or ():
        write_body(w, &body, number, masks)
    place_constants(w)
    return w.code.data[:w.code.size]


cdef Operand operand(at):
    cdef Operand found = register(0)
    if isinstance(at, int):
        found.reg = at
        return found
    found.base, found.disp, found.index, found.scale, found.unit = at
    return found
