# cython: language_level=3, initializedcheck=False, cdivision=True, legacy_implicit_noexcept=False
"""Run compiled groups: executable memory, tiles, and calls of emitted code and compiled loops, without the GIL.

`Kernel.entry` and `Kernel.context` are for executors in C: the entry is an `int (*)(void *context,
char *const *outs, char *const *ins, const tg_scalar *numbers, int64_t rows, int64_t columns)`. `outs` and `ins` are the
addresses of contiguous tensors in the group's order (those of numbers are not read); `numbers` has a number for each
input, in `f` where the input's dtype is float64, else in `i`. It may be called from several threads at once, without
the GIL, which up to 16,384 elements may be held, too. It returns 0, or -1 with an exception set. The context lives as
long as the kernel.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from tangrad.api cimport (
    TG_ABI_VERSION, TG_KERNEL_LOOP, tg_api, tg_found_kernel, tg_import_api, tg_loop, tg_loop_kernel, tg_operand,
    tg_scalar, tg_scratch)

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/mman.h>
    #include <unistd.h>
    #ifndef MAP_ANONYMOUS
    #define MAP_ANONYMOUS MAP_ANON
    #endif

    /* Memory that is written first and made executable then, never both; NULL where that is refused. */
    static void *tgj_code(const void *code, size_t size, size_t *mapped)
    {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        *mapped = (size + page - 1) / page * page;
        void *memory = mmap(NULL, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
        memcpy(memory, code, size);
        if (mprotect(memory, *mapped, PROT_READ | PROT_EXEC) != 0) {
            munmap(memory, *mapped);
            return NULL;
        }
        return memory;
    }
    static void tgj_release(void *memory, size_t mapped) { munmap(memory, mapped); }

    typedef void (*tgj_function)(int64_t rows, int64_t columns, char **streams, const int64_t *steps,
                                 const void *numbers);
    """
    void* tgj_code(const void*, size_t, size_t*)
    void tgj_release(void*, size_t)
    ctypedef void (*tgj_function)(int64_t, int64_t, char**, const int64_t*, const void*) noexcept nogil

cdef enum:
    MOST = 64  # streams of an emitted program, and values of a group's kernel
    MOST_LOOP = 20
    MOST_PARAMS = 12

cdef const tg_api* core = tg_import_api(TG_ABI_VERSION)

# Where the value of an operand is.
cdef enum:
    IN_INPUT
    IN_OUTPUT
    IN_TEMPORARY
    IN_CONSTANT
    IN_NUMBER

# How a number of the call is written for whom it is.
cdef enum:
    AS_FLOAT
    AS_DOUBLE
    AS_INT
    AS_MASK
    AS_BYTE

# Bytes of a row from which on the compiled reductions may cut what they fold into parts.
cdef enum:
    PARTED_BYTES = 131072
# Bytes of a row up to which the order of a compiled reduction depends on whether there are 64 rows.
cdef enum:
    SHORT_BYTES = 1024
cdef enum:
    MANY_ROWS = 64
# Random numbers of one counter: tiles of what draws them begin at multiples of as many elements.
cdef enum:
    COUNTED = 4
# Up to so many elements a call runs on one thread, and with the GIL if it is held.
cdef enum:
    SMALL = 16384

cdef struct Operand:
    int place, index, itemsize, dtype
    int row, column
    int number_as
    tg_scalar value

cdef struct Param:
    int number        # the input that gives it, -1: constant
    int number_as
    tg_scalar value

cdef struct Stage:
    tgj_function emitted
    tg_loop_kernel called
    void* context
    int noperands, nnumbers, nout, nparams, reduces, compute
    int counter  # the parameter that counts random numbers from an element's place, -1: none
    Operand operands[MOST]
    Param numbers[MOST]     # of emitted code: 8 bytes each; of a loop: its parameters

cdef struct Temporary:
    int itemsize, row, column

cdef struct Plan:
    int nstages, ntemporaries, folds, called_folds, flat, counted, fold_bytes
    int64_t tile, grain
    int64_t least_columns, most_columns
    Temporary temporaries[MOST]
    Stage* stages

cdef struct Shape:
    int itemsize, row, column

cdef struct Group:
    int nplans, nin, nout, hazard
    Plan* plans
    Shape ins[MOST]
    Shape outs[MOST]
    uint8_t integral[MOST]  # of inputs that are numbers: whether `i` holds them
    void* device
    PyObject* kernel        # whom a plan is asked of that is made when it is first needed

cdef struct Segment:        # one group of several that are one call
    char* const* outs
    char* const* ins
    const tg_scalar* numbers
    int64_t rows, columns

cdef struct Call:
    const Group* group
    const Plan* plan
    char* const* outs
    char* const* ins
    const tg_scalar* numbers
    int64_t rows, columns, tile_rows, tile_columns, row_tiles, column_tiles
    int64_t offsets[MOST]
    int64_t scratch
    int failed
    int64_t failed_tile
    PyObject* error


cdef class Code:
    """Machine code in executable memory; refused where the system refuses that.

    Raises:
        PermissionError: there is no executable memory to be had.
    """
    cdef void* memory
    cdef size_t mapped
    cdef readonly int size

    def __init__(self, bytes code):
        self.size = len(code)
        self.memory = tgj_code(<const char*>code, len(code), &self.mapped)
        if self.memory == NULL:
            raise PermissionError("the system refuses memory that is executable")

    def __dealloc__(self):
        if self.memory != NULL:
            tgj_release(self.memory, self.mapped)

    @property
    def bytes(self):
        """The code, with its constants behind it."""
        return (<char*>self.memory)[:self.size]

    @property
    def address(self):
        """Where the code is."""
        return <size_t>self.memory


def find_loop(op, str dtype):
    """Return (address, context) of the compiled loop of an op on the CPU, None where there is none."""
    cdef tg_found_kernel found
    try:
        core.find_kernel(<PyObject*>op, b"cpu", b"strided", dtype.encode(), &found)
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    if found.kind != TG_KERNEL_LOOP or found.loop == NULL:
        return None
    return <size_t>found.loop, <size_t>found.context


def find_copy(str dtype):
    """Return (address, context) of the loop that copies into a dtype and converts what it reads."""
    return find_loop(<object>core.op(b"copy_"), dtype)


def dtype_index(str dtype):
    """Return the core's number of a dtype."""
    return core.dtype_by_name(dtype.encode())


def instruction_set():
    """Return the level of the CPU backend's kernels, "" where there are none."""
    core.device(b"cpu", 0)
    return "" if core.pool().instruction_set == NULL else core.pool().instruction_set.decode()


cdef void encode(int how, const tg_scalar* number, bint integral, void* to) noexcept nogil:
    """Write a number of the call as code expects it."""
    cdef double f = <double>number.i if integral else number.f
    cdef float single
    cdef int64_t i
    if how == AS_FLOAT:
        single = <float>f
        memcpy(to, &single, 4)
    elif how == AS_DOUBLE:
        memcpy(to, &f, 8)
    elif how == AS_MASK:
        i = -1 if f != 0 else 0
        memcpy(to, &i, 8)
    elif how == AS_BYTE:
        (<uint8_t*>to)[0] = f != 0
    else:
        i = number.i if integral else <int64_t>f
        memcpy(to, &i, 8)


cdef inline int64_t extent(int row, int column, int64_t rows, int64_t columns) noexcept nogil:
    return (rows if row else 1) * (columns if column else 1)


cdef char* locate(const Call* call, const Operand* o, char* scratch, int64_t row, int64_t column, int64_t columns,
                  int64_t* step) noexcept nogil:
    """Return where a tile begins in an operand, and the bytes between its rows."""
    cdef char* base
    cdef int64_t width = call.columns
    if o.place == IN_TEMPORARY:
        step[0] = o.row * (columns if o.column else 1) * o.itemsize
        return scratch + call.offsets[o.index]
    base = call.ins[o.index] if o.place == IN_INPUT else call.outs[o.index]
    if not o.column:
        width = 1
        column = 0
    step[0] = o.row * width * o.itemsize
    return base + (row * step[0] + column * o.itemsize)


cdef int run_emitted(const Call* call, const Stage* stage, char* scratch, int64_t row, int64_t column, int64_t rows,
                     int64_t columns) noexcept nogil:
    cdef char* streams[MOST]
    cdef int64_t steps[MOST]
    cdef int64_t words[MOST]
    cdef int k
    for k in range(stage.noperands):
        streams[k] = locate(call, &stage.operands[k], scratch, row, column, columns, &steps[k])
    for k in range(stage.nnumbers):
        words[k] = 0
        encode(stage.numbers[k].number_as, &call.numbers[stage.numbers[k].number],
               call.group.integral[stage.numbers[k].number], &words[k])
    stage.emitted(rows, columns, streams, steps, words)
    return 0


cdef int run_called(const Call* call, const Stage* stage, char* scratch, int64_t row, int64_t column, int64_t rows,
                    int64_t columns) noexcept nogil:
    cdef tg_loop loop
    cdef int64_t shape[2]
    cdef int64_t strides[MOST_LOOP][2]
    cdef tg_scalar params[MOST_PARAMS]
    cdef const Operand* o
    cdef tg_operand* to
    cdef int64_t step
    cdef bint flat = not stage.reduces, narrow = not stage.reduces
    cdef int k
    for k in range(stage.noperands):
        narrow = narrow and not stage.operands[k].column
    if narrow:
        columns = 1
    for k in range(stage.noperands):
        o, to = &stage.operands[k], &loop.operands[k]
        to.handle, to.offset, to.dtype, to.is_scalar = 0, 0, o.dtype, 0
        to.strides = strides[k]
        strides[k][0] = strides[k][1] = 0
        if o.place == IN_CONSTANT or o.place == IN_NUMBER:
            to.is_scalar = 1
            to.value = o.value
            if o.place == IN_NUMBER:
                encode(o.number_as, &call.numbers[o.index], call.group.integral[o.index], &to.value)
            to.data = &to.value
            continue
        to.data = locate(call, o, scratch, row, column, columns, &step)
        strides[k][0] = step
        strides[k][1] = o.itemsize if o.column else 0
        flat = flat and (rows == 1 or step == columns * strides[k][1])
    for k in range(stage.nparams):
        params[k] = stage.numbers[k].value
        if stage.numbers[k].number >= 0:
            encode(stage.numbers[k].number_as, &call.numbers[stage.numbers[k].number],
                   call.group.integral[stage.numbers[k].number], &params[k])
    if stage.counter >= 0:
        # Four numbers have one counter, and the loop counts from the tile's first element.
        params[stage.counter].i += (row * call.columns + column) / COUNTED
    loop.version, loop.device_index = 1, 0
    loop.nout, loop.nin = stage.nout, stage.noperands - stage.nout
    loop.compute_dtype = stage.compute
    loop.numel = rows * columns
    loop.params, loop.nparams = params, stage.nparams
    loop.nreduced = stage.reduces
    loop.shape = shape
    if narrow or flat:
        loop.ndim = 1
        shape[0] = rows * columns
        if not narrow:
            for k in range(stage.noperands):
                strides[k][0] = strides[k][1]
    else:
        loop.ndim = 2
        shape[0], shape[1] = rows, columns
    if loop.numel == 0 and not stage.reduces:
        return 0
    return stage.called(&loop, stage.context)


cdef void run_tiles(int64_t begin, int64_t end, void* context) noexcept nogil:
    """Run tiles begin .. end of a call through all stages."""
    cdef Call* call = <Call*>context
    cdef const Plan* plan = call.plan
    cdef tg_scratch scratch
    cdef int64_t at, r, c, row, rows, column, columns
    cdef int k, status = 0
    scratch.data = NULL
    if call.failed:
        return
    if call.scratch and core.scratch(call.group.device, call.scratch, 0, &scratch) != 0:
        fail(call)
        return
    for at in range(begin, end):
        r, c = at / call.column_tiles, at % call.column_tiles
        # Tiles of rows differ by one at most, so that none is shorter than the others need.
        row = call.rows * r / call.row_tiles
        rows = call.rows * (r + 1) / call.row_tiles - row
        column = c * call.tile_columns
        columns = min(call.tile_columns, call.columns - column)
        for k in range(plan.nstages):
            if plan.stages[k].emitted != NULL:
                status = run_emitted(call, &plan.stages[k], <char*>scratch.data, row, column, rows, columns)
            else:
                status = run_called(call, &plan.stages[k], <char*>scratch.data, row, column, rows, columns)
            if status != 0:
                call.failed_tile = at
                fail(call)
                break
        if status != 0:
            break
    if scratch.data != NULL:
        core.release_scratch(&scratch)


cdef void fail(Call* call) noexcept nogil:
    """Keep the exception of this thread for the one that waits."""
    with gil:
        keep_error(call)


cdef extern from "Python.h":
    PyObject* PyErr_Occurred()
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**)
    void PyErr_Restore(PyObject*, PyObject*, PyObject*)
    void PyErr_NormalizeException(PyObject**, PyObject**, PyObject**)
    void Py_XDECREF(PyObject*)
    void PyErr_SetObject(PyObject*, PyObject*)
    PyObject* Py_TYPE_object "(PyObject *)Py_TYPE"(PyObject*)


cdef void keep_error(Call* call) noexcept:
    cdef PyObject* kind = NULL
    cdef PyObject* value = NULL
    cdef PyObject* trace = NULL
    PyErr_Fetch(&kind, &value, &trace)
    if kind != NULL:
        PyErr_NormalizeException(&kind, &value, &trace)
    call.failed = 1
    if call.error == NULL:
        call.error, value = value, NULL
    Py_XDECREF(kind)
    Py_XDECREF(value)
    Py_XDECREF(trace)


cdef int make_plan(const Group* group, int k) noexcept:
    """Let the kernel make a plan; return -1 with an exception set if it cannot."""
    try:
        (<Kernel><object>group.kernel).complete(k)
    except BaseException as error:
        PyErr_SetObject(Py_TYPE_object(<PyObject*>error), <PyObject*>error)
        return -1
    return 0


cdef int64_t lay_out(Call* call) noexcept nogil:
    """Choose the tiles of a call and lay the temporaries out; return how many tiles there are."""
    cdef const Plan* plan = call.plan
    cdef int64_t rows = call.rows, columns = call.columns, tile = plan.tile, most
    cdef bint whole = plan.counted and columns % COUNTED != 0 and rows != 1
    cdef int k
    if plan.folds or whole:
        most = rows if whole else max(1, tile / max(1, columns))
        if plan.called_folds:
            if columns * plan.fold_bytes > PARTED_BYTES:
                most = rows
            elif columns * plan.fold_bytes <= SHORT_BYTES:
                most = max(most, MANY_ROWS)
        call.tile_columns = columns
        call.row_tiles = max(1, rows / most) if plan.called_folds else (rows + most - 1) / most
        call.column_tiles = 1
    elif columns >= tile or rows == 1:
        call.tile_columns = min(columns, tile)
        call.row_tiles = rows
        call.column_tiles = (columns + call.tile_columns - 1) / call.tile_columns
    else:
        call.tile_columns = columns
        most = max(1, tile / max(1, columns))
        call.row_tiles = (rows + most - 1) / most
        call.column_tiles = 1
    call.tile_rows = (rows + call.row_tiles - 1) / call.row_tiles
    call.scratch = 0
    for k in range(plan.ntemporaries):
        call.offsets[k] = call.scratch
        call.scratch += (extent(plan.temporaries[k].row, plan.temporaries[k].column, call.tile_rows, call.tile_columns)
                         * plan.temporaries[k].itemsize + 127) & ~<int64_t>63
    return call.row_tiles * call.column_tiles


cdef int64_t prepare(Call* call, const Group* group, char* const* outs, char* const* ins, const tg_scalar* numbers,
                     int64_t rows, int64_t columns) noexcept nogil:
    """Fill in a call; return its tiles, or -1 with an exception set."""
    cdef int k = 0
    if rows == 0:
        return 0
    while k < group.nplans - 1 and not group.plans[k].least_columns <= columns <= group.plans[k].most_columns:
        k += 1
    if group.plans[k].stages == NULL:
        with gil:
            if make_plan(group, k) != 0:
                return -1
    call.group, call.plan = group, &group.plans[k]
    call.outs, call.ins, call.numbers = outs, ins, numbers
    call.rows, call.columns = rows, columns
    call.failed, call.error, call.failed_tile = 0, NULL, 0
    if call.plan.flat:
        call.rows, call.columns = 1, rows * columns
    if call.columns == 0 and not call.plan.folds and call.plan.flat:
        return 0
    return lay_out(call)


cdef int run_plan(const Group* group, char* const* outs, char* const* ins, const tg_scalar* numbers, int64_t rows,
                  int64_t columns) noexcept nogil:
    """Run the plan for these sizes, in the pool where that pays."""
    cdef Call call
    cdef int64_t tiles, grain
    tiles = prepare(&call, group, outs, ins, numbers, rows, columns)
    if tiles <= 0:
        return <int>tiles
    grain = max(1, call.plan.grain / max(1, call.tile_rows * call.tile_columns))
    if tiles <= grain or rows * columns <= SMALL:
        run_tiles(0, tiles, &call)
    else:
        core.parallel_for(0, tiles, grain, run_tiles, &call)
    return finished(&call)


cdef int finished(Call* call) noexcept nogil:
    """Return 0 for a call that went well, else -1 with the exception set."""
    if call.failed and call.error == NULL:
        # The exception is gone with the state of the thread that had it: raise it on this one.
        call.failed = 0
        run_tiles(call.failed_tile, call.failed_tile + 1, call)
        call.failed = 1
    if call.failed:
        with gil:
            raise_kept(call)
        return -1
    return 0


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


cdef void raise_kept(Call* call) noexcept:
    if call.error == NULL:
        PyErr_SetObject(<PyObject*>RuntimeError, <PyObject*>"a compiled group failed")
        return
    PyErr_SetObject(Py_TYPE_object(call.error), call.error)
    Py_XDECREF(call.error)


cdef bint clashes(const Group* group, int k, int i, const char* out, const char* given, int64_t rows,
                  int64_t columns) noexcept nogil:
    """Whether result k, written at an address, spoils operand i at another that is still read."""
    cdef int64_t size = extent(group.outs[k].row, group.outs[k].column, rows, columns) * group.outs[k].itemsize
    cdef int64_t other = extent(group.ins[i].row, group.ins[i].column, rows, columns) * group.ins[i].itemsize
    if out >= given + other or given >= out + size:
        return False
    return (group.hazard or out != given or group.ins[i].itemsize != group.outs[k].itemsize
            or group.ins[i].row != group.outs[k].row or group.ins[i].column != group.outs[k].column)


cdef int entry(void* context, char* const* outs, char* const* ins, const tg_scalar* numbers, int64_t rows,
               int64_t columns) noexcept nogil:
    """Run a group; what is written over an operand that is still read is written elsewhere first."""
    cdef const Group* group = <const Group*>context
    cdef char* targets[MOST]
    cdef tg_scratch held[MOST]
    cdef int64_t size
    cdef int k, i, status = 0, moved = 0
    for k in range(group.nout):
        targets[k] = outs[k]
        held[k].data = NULL
        size = extent(group.outs[k].row, group.outs[k].column, rows, columns) * group.outs[k].itemsize
        for i in range(group.nin):
            if group.ins[i].itemsize == 0 or not clashes(group, k, i, outs[k], ins[i], rows, columns):
                continue
            if core.scratch(group.device, size, 0, &held[k]) != 0:
                status = -1
                break
            targets[k] = <char*>held[k].data
            break
        if status:
            break
        moved += held[k].data != NULL
    if status == 0:
        status = run_plan(group, targets, ins, numbers, rows, columns)
    if moved or status:
        for k in range(group.nout):
            if held[k].data == NULL:
                continue
            if status == 0:
                memcpy(outs[k], held[k].data,
                       extent(group.outs[k].row, group.outs[k].column, rows, columns) * group.outs[k].itemsize)
            core.release_scratch(&held[k])
    return status


_PLACES = {"in": IN_INPUT, "out": IN_OUTPUT, "temporary": IN_TEMPORARY, "constant": IN_CONSTANT, "number": IN_NUMBER}
_FORMS = {"f4": AS_FLOAT, "f8": AS_DOUBLE, "i4": AS_INT, "i8": AS_INT, "m4": AS_MASK, "m8": AS_MASK, "byte": AS_BYTE}


cdef int fill_scalar(tg_scalar* to, bytes data) except -1:
    memset(to, 0, sizeof(tg_scalar))
    memcpy(to, <const char*>data, min(16, len(data)))
    return 0


cdef class Kernel:
    """A compiled group; see the module's docstring for its use from C.

    Args:
        plans: as `tiles.py` describes them, the last for all sizes that no other is for; None for one
            that `make` returns when it is first needed.
        ins, outs: (itemsize, whether it moves by row, by column) of each; the itemsize of a number is 0.
        integral: of each input whether its number is an integer.
        hazard: whether an operand may be read after the result has been written.
    """
    cdef Group group
    cdef readonly list plans
    cdef object make

    def __cinit__(self):
        memset(&self.group, 0, sizeof(Group))

    def __init__(self, list plans, list ins, list outs, list integral, bint hazard, make=None):
        cdef int k
        self.plans, self.make = plans, make
        self.group.kernel = <PyObject*>self
        self.group.nin, self.group.nout, self.group.hazard = len(ins), len(outs), hazard
        self.group.device = core.device(b"cpu", 0)
        for k in range(len(ins)):
            self.group.ins[k].itemsize, self.group.ins[k].row, self.group.ins[k].column = ins[k]
            self.group.integral[k] = integral[k]
        for k in range(len(outs)):
            self.group.outs[k].itemsize, self.group.outs[k].row, self.group.outs[k].column = outs[k]
        self.group.plans = <Plan*>calloc(len(plans), sizeof(Plan))
        if self.group.plans == NULL:
            raise MemoryError
        self.group.nplans = len(plans)
        for k in range(len(plans)):
            if plans[k] is not None:
                self.fill(&self.group.plans[k], plans[k])

    cdef complete(self, int k):
        """Make a plan, unless another thread has."""
        if self.group.plans[k].stages == NULL:
            plan = self.make()
            if self.group.plans[k].stages == NULL:
                self.plans[k] = plan
                self.fill(&self.group.plans[k], plan)

    cdef int fill(self, Plan* to, plan) except -1:
        cdef int k
        cdef Stage* stages
        to.tile, to.grain = plan.tile, plan.grain
        to.folds, to.called_folds, to.flat = plan.folds, plan.called_folds, plan.flat
        to.counted = plan.counted
        to.fold_bytes = plan.fold_bytes
        to.least_columns, to.most_columns = plan.columns
        to.ntemporaries, to.nstages = len(plan.temporaries), len(plan.stages)
        for k in range(to.ntemporaries):
            to.temporaries[k].itemsize, to.temporaries[k].row, to.temporaries[k].column = plan.temporaries[k]
        stages = <Stage*>calloc(max(1, to.nstages), sizeof(Stage))
        if stages == NULL:
            raise MemoryError
        for k in range(to.nstages):
            self.fill_stage(&stages[k], plan.stages[k])
        to.stages = stages  # last: other threads look at it
        return 0

    cdef int fill_stage(self, Stage* to, stage) except -1:
        cdef int k
        to.emitted = <tgj_function><size_t>(0 if stage.code is None else stage.code.address)
        to.called = <tg_loop_kernel><size_t>stage.loop[0]
        to.context = <void*><size_t>stage.loop[1]
        to.noperands, to.nout, to.reduces, to.compute = len(stage.operands), stage.nout, stage.reduces, stage.compute
        to.counter = stage.counter
        for k in range(to.noperands):
            o = stage.operands[k]
            to.operands[k].place, to.operands[k].index = _PLACES[o.place], o.index
            to.operands[k].itemsize, to.operands[k].dtype = o.itemsize, o.dtype
            to.operands[k].row, to.operands[k].column = o.row, o.column
            to.operands[k].number_as = _FORMS[o.form]
            fill_scalar(&to.operands[k].value, o.value)
        to.nnumbers = to.nparams = len(stage.numbers)
        for k in range(to.nparams):
            to.numbers[k].number, form, data = stage.numbers[k]
            to.numbers[k].number_as = _FORMS[form]
            fill_scalar(&to.numbers[k].value, data)
        return 0

    def __dealloc__(self):
        cdef int k
        for k in range(self.group.nplans):
            free(self.group.plans[k].stages)
        free(self.group.plans)

    @property
    def entry(self):
        """The address of the C function."""
        return <size_t>&entry

    @property
    def entry_of_several(self):
        """The address of the C function that takes segments."""
        return <size_t>&entry_of_several

    @property
    def context(self):
        """The address of its context."""
        return <size_t>&self.group

    def run(self, outs, ins, int64_t rows, int64_t columns):
        """Compute; the tensors are contiguous, of the sizes and dtypes that the group says (this is not checked)."""
        cdef char* targets[MOST]
        cdef char* sources[MOST]
        cdef tg_scalar numbers[MOST]
        cdef int k, status
        for k in range(self.group.nout):
            targets[k] = <char*>core.host_data(<PyObject*>outs[k])
        for k in range(self.group.nin):
            sources[k] = NULL
            if self.group.ins[k].itemsize:
                sources[k] = <char*>core.host_data(<PyObject*>ins[k])
            elif self.group.integral[k]:
                numbers[k].i = ins[k]
            else:
                numbers[k].f = ins[k]
        if rows * columns > SMALL:
            with nogil:
                status = entry(&self.group, targets, sources, numbers, rows, columns)
        else:
            status = entry(&self.group, targets, sources, numbers, rows, columns)
        if status != 0:
            raise_pending()


cdef int raise_pending() except -1:
    if PyErr_Occurred() == NULL:
        raise RuntimeError("a compiled group failed")
    return reraise()


cdef extern from *:
    """
    static int tgj_minus_one(void) { return -1; }
    """
    int reraise "tgj_minus_one"() except -1
