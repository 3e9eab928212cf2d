# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
"""The queue of pointwise work: ops over the elements of one space of one dtype, run together.

The core offers an op when its result is made, checked and recorded; what is left is the loop over
elements. Taken work is a step over slots, one per storage, whose memory the core hides until the
queue is settled: whoever looks at it, in any thread, has the steps run first. Results of few bytes
get their memory only then, and those that nobody holds any more none at all. A queue that was
compiled runs as one kernel, which writes only what somebody still holds; any other one runs step
by step, by the kernels that eager calls.

Folds of contiguous rows are steps, too: they give an element for each row, as do pointwise ops on
what they gave.

All is done with the GIL held, and nothing that may run Python happens while memory waits.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from tangrad cimport api as tg
from tangrad_jit.capture.source import line_of_program

cdef const tg.tg_api* API = tg.tg_import_api(3)

cdef enum:
    STEPS = 40
    SLOTS = 56                    # a step adds at most nine
    OPERANDS = 8
    WORDS = STEPS * (3 * OPERANDS + 2) + 8
    SPARES = STEPS + 1
    LATER_BYTES = 65536           # tg.TG_LATER_BYTES, which Cython does not know
    KNOWN = 1000                  # queues that are remembered; further ones run step by step
    PLACES = 4096                 # of the table of known queues, a power of two

ctypedef int (*group_entry)(void* context, char** outs, char** ins, const tg.tg_scalar* numbers, int64_t rows,
                            int64_t columns) noexcept nogil

cdef extern from "Python.h":
    void Py_INCREF(PyObject*)
    void Py_DECREF(PyObject*)
    Py_ssize_t Py_REFCNT(PyObject*)
    PyObject* PyErr_Occurred()
    void PyErr_Clear()
    bint PyFloat_CheckExact(PyObject*)
    long long PyLong_AsLongLongAndOverflow(PyObject*, int*)
    double PyFloat_AsDouble(PyObject*) except? -1.0

cdef struct Slot:
    PyObject* storage
    char* address
    int lies
    bint bare                     # its result has no memory yet

# Where results go for which there is no memory when the queue is settled, which cannot fail.
cdef char spare[SPARES * LATER_BYTES]
cdef int nspent = 0, nbare = 0    # spare pieces in use for good; slots without memory

cdef struct Step:
    tg.tg_loop_kernel kernel
    void* context
    PyObject* op
    int nin
    int to
    int folds, nparams
    tg.tg_scalar params[2]        # of a fold
    int source[OPERANDS]          # slots; -1: a number
    PyObject* number[OPERANDS]

cdef Slot slots[SLOTS]
cdef Step steps[STEPS]
cdef int nslots = 0, nsteps = 0
cdef int64_t numel = 0, columns = 0     # columns: of a row; 0 as long as no operand lies in rows
cdef int dtype = 0
cdef int64_t words[WORDS]               # what tells a queue from others, and a digest of it
cdef int nwords = 0
cdef uint64_t digest = 0
cdef bint running = False

cdef struct Known:
    uint64_t digest
    int nwords
    int64_t* words
    PyObject* queue

cdef Known table_of_known[PLACES]
cdef list known = []
cdef list wanted = []             # queues that ran twice and have no kernel yet
cdef tuple CAUSES = ("its memory was looked at",
                     "another number of elements, dtype, view or length of rows", "it was full",
                     "the call ended")
cdef tuple LIES = ("full", "scalar", "column", "row")    # by what the core calls them
cdef enum:
    LOOKED = 0
    OTHER = 1
    FULL = 2
    ENDED = 3
cdef int64_t float32 = API.dtype_by_name(b"float32")
cdef int64_t queued_ops = 0, settled_queues = 0, compiled_runs = 0


cdef class Queue:
    """What is known of a queue: its steps, how often it ran, its kernel.

    Attributes:
        steps: (op, place of the result, places of the operands, numbers in the places of -1).
        lies: of each slot "full", "scalar", "column" (the same in each row) or "row".
        living: places of slots that somebody held when it was settled.
        dtype: name of its dtype. runs: how often it ran.
        line, cause: where the program first had it settled, and why.
        refused: why it has no kernel, or "".
    """
    cdef readonly list steps
    cdef readonly tuple lies
    cdef readonly tuple living
    cdef readonly str dtype
    cdef readonly str line, cause
    cdef public str refused
    cdef public int64_t runs, compiled_runs
    cdef object owner
    cdef group_entry entry
    cdef void* context
    cdef int nin, nout
    cdef int ins[SLOTS]
    cdef int outs[SLOTS]

    def compiled(self, owner, size_t entry, size_t context, ins, outs):
        """Run by a kernel from now on: (its owner, address, context), places of operands and results."""
        cdef int k
        self.owner, self.context = owner, <void*>context
        self.nin, self.nout = len(ins), len(outs)
        for k in range(self.nin):
            self.ins[k] = ins[k]
        for k in range(self.nout):
            self.outs[k] = outs[k]
        self.entry = <group_entry>entry

    @property
    def has_kernel(self):
        """Whether it runs as one kernel."""
        return self.entry != NULL


cdef void settle_before(tg.tg_queued* work, int cause) noexcept:
    """Run the queue; operands that had no memory have it now."""
    cdef bint bare[OPERANDS + 1]
    cdef tg.tg_queued_operand* one
    cdef int i
    for i in range(work.nin + 1):
        one = &work.operands[i]
        bare[i] = one.storage != NULL and one.waits and slots[one.waits - 1].bare
    run_queue(cause)
    for i in range(work.nin + 1):
        one = &work.operands[i]
        one.waits = 0
        if bare[i]:
            one.address = API.set_waiting(one.storage, 0, NULL) + <size_t>one.address


cdef inline bint fits(const tg.tg_queued* work) noexcept:
    """Whether work goes over the queue's rows and columns, or has an element for each of its rows."""
    if dtype != work.dtype:
        return False
    if numel != work.numel:
        return of_rows(work)
    return columns == 0 or work.columns == 0 or columns == work.columns


cdef inline bint of_rows(const tg.tg_queued* work) noexcept:
    return columns > 1 and work.columns == 0 and work.numel * columns == numel


cdef bint find_places(const tg.tg_queued* work, int* places, int* lies) noexcept:
    """Fill in the slots of operands, -1 for new ones and numbers, and how each lies over the queue's rows and columns.

    Returns False where memory is seen in two ways.
    """
    cdef bint rows = nsteps != 0 and work.numel != numel
    cdef const tg.tg_queued_operand* one
    cdef int i, j, how
    for i in range(work.nin + 1):
        one = &work.operands[i]
        places[i] = -1
        if one.storage == NULL:
            continue
        how = <int>one.lies
        if rows and how == tg.TG_LIES_FULL:
            how = tg.TG_LIES_ONE_PER_ROW
        lies[i] = how
        if one.waits:
            j = <int>one.waits - 1
            if how != slots[j].lies:
                if how != tg.TG_LIES_ONCE or slots[j].lies != tg.TG_LIES_ONE_PER_ROW or columns != numel:
                    return False
                lies[i] = tg.TG_LIES_ONE_PER_ROW      # of the only row
            if slots[j].address != one.address:
                return False
            places[i] = j
            continue
        if one.address == NULL:
            continue                                  # a result that is no operand
        for j in range(i):
            if work.operands[j].storage == one.storage and (work.operands[j].address != one.address
                                                            or lies[j] != lies[i]):
                return False
    return True


cdef inline void note(int64_t word) noexcept:
    """Add a word to what tells the queue from others."""
    global nwords, digest
    words[nwords] = word
    nwords += 1
    digest = (digest ^ <uint64_t>word) * <uint64_t>0x9E3779B97F4A7C15
    digest ^= digest >> 32


cdef int place_of(const tg.tg_queued* work, int* places, int i, int lies) noexcept:
    """Return the slot of an operand that `find_places` has none for, adding it where it is new."""
    global nslots, nbare
    cdef const tg.tg_queued_operand* one = &work.operands[i]
    cdef Slot* slot = &slots[nslots]
    cdef int j
    slot.bare = one.address == NULL
    if slot.bare:
        nbare += 1      # a result that is no operand
    else:
        for j in range(work.nin + 1):
            if places[j] >= 0 and work.operands[j].storage == one.storage:
                places[i] = places[j]
                return places[i]
    slot.storage, slot.address, slot.lies = one.storage, one.address, lies
    Py_INCREF(one.storage)
    API.set_waiting(one.storage, nslots + 1, NULL)
    places[i] = nslots
    nslots += 1
    return places[i]


cdef inline bint small(PyObject* number) noexcept:
    """Whether a number is a float, or an integer that a double holds."""
    cdef int overflow = 0
    cdef long long value
    if PyFloat_CheckExact(number):
        return True
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and -(1 << 53) <= value <= (1 << 53)


cdef int offer(const tg.tg_queued* offered) noexcept:
    global nsteps, numel, columns, dtype, nwords, digest, queued_ops
    cdef tg.tg_queued* work = <tg.tg_queued*>offered     # addresses are told anew in it
    cdef int places[OPERANDS + 1]
    cdef int lies[OPERANDS + 1]
    cdef Step* step
    cdef int i, bits = 8
    cdef int64_t told, value
    cdef double number
    if running or (work.operands[0].address == NULL and work.operands[0].waits == 0 and nspent + nbare >= SPARES):
        return 0
    for i in range(1, work.nin + 1):
        if work.operands[i].storage == NULL and not small(work.operands[i].number):
            return 0
    if nsteps:
        if nsteps == STEPS or nslots + 9 > SLOTS:
            settle_before(work, FULL)
        elif not fits(work):
            settle_before(work, OTHER)
    if not find_places(work, places, lies):
        if nsteps == 0:
            return 0
        settle_before(work, OTHER)
        if not find_places(work, places, lies):
            return 0
    if nsteps == 0:
        numel, columns, dtype = work.numel, work.columns, work.dtype
        nwords, digest = 0, 0
        note(dtype)
    elif work.columns:
        columns = work.columns
    step = &steps[nsteps]
    step.kernel, step.context, step.op, step.nin = work.kernel, work.context, work.op, work.nin
    step.folds = work.folds
    if work.folds:
        step.nparams = work.nparams
        memcpy(step.params, work.params, sizeof(step.params))
    for i in range(1, work.nin + 1):
        if work.operands[i].storage != NULL and places[i] < 0:
            place_of(work, places, i, lies[i])
    step.to = places[0] if places[0] >= 0 else place_of(work, places, 0, lies[0])
    note(<int64_t>work.op)
    told = 4 * step.to + lies[0]
    for i in range(work.nin):
        if bits == 64:
            note(told)
            told, bits = 0, 0
        if work.operands[i + 1].storage != NULL:
            step.source[i] = places[i + 1]
            told |= <int64_t>(4 * step.source[i] + lies[i + 1]) << bits
        else:
            step.source[i], step.number[i] = -1, work.operands[i + 1].number
            Py_INCREF(step.number[i])
            number = PyFloat_AsDouble(step.number[i])
            memcpy(&value, &number, 8)
            note(value)
            told |= <int64_t>(255 - PyFloat_CheckExact(step.number[i])) << bits
        bits += 8
    note(told)
    nsteps += 1
    queued_ops += 1
    return 1


cdef void settle() noexcept:
    run_queue(LOOKED)


cdef Known* known_place() noexcept:
    """Return where the queue is in the table of known ones, or the free place where it belongs."""
    cdef Known* at
    cdef uint64_t k = digest & (PLACES - 1)
    while True:
        at = &table_of_known[k]
        if at.queue == NULL or (at.digest == digest and at.nwords == nwords
                                and memcmp(at.words, words, nwords * sizeof(int64_t)) == 0):
            return at
        k = (k + 1) & (PLACES - 1)


cdef void remember(int cause) noexcept:
    """Describe the queue in the table of known ones.

    Python runs here, and with it other threads: no memory waits, and nothing is offered meanwhile.
    """
    cdef Known* at
    if len(known) >= KNOWN or PyErr_Occurred() != NULL:
        return
    made = described(cause)
    at = known_place()
    at.words = <int64_t*>malloc(nwords * sizeof(int64_t))
    if at.words == NULL:
        return
    memcpy(at.words, words, nwords * sizeof(int64_t))
    known.append(made)
    at.digest, at.nwords, at.queue = digest, nwords, <PyObject*>made


cdef void place(int k) noexcept:
    """Give the result of a slot its memory."""
    global nspent
    cdef char* piece = spare + nspent * LATER_BYTES
    slots[k].address, slots[k].bare = API.set_waiting(slots[k].storage, 0, piece), False
    nspent += slots[k].address == piece


cdef void run_queue(int cause) noexcept:
    """Run what was taken, and show the memory again; what nobody holds needs none in a kernel."""
    global nsteps, nslots, nbare, running, settled_queues
    cdef int k, i
    cdef int64_t living = 0
    cdef Known* at
    cdef Queue found = None
    if running or nsteps == 0:
        return
    running = True
    settled_queues += 1
    for k in range(nslots):
        if Py_REFCNT(slots[k].storage) > 1:
            living |= <int64_t>1 << k
            if slots[k].bare:
                place(k)
    note(living)
    at = known_place()
    if at.queue != NULL:
        found = <Queue>at.queue
        found.runs += 1
        if found.runs == 2:
            wanted.append(found)
    if found is None or found.entry == NULL or not run_compiled(found):
        for k in range(nslots):
            if slots[k].bare:
                place(k)
        run_steps()
    for k in range(nslots):
        if not slots[k].bare:
            API.set_waiting(slots[k].storage, 0, NULL)
    if found is None:
        remember(cause)
    for k in range(nsteps):
        for i in range(steps[k].nin):
            if steps[k].source[i] < 0:
                Py_DECREF(steps[k].number[i])
    i = nslots
    nsteps = nslots = nbare = 0
    for k in range(i):
        Py_DECREF(slots[k].storage)
    running = False


cdef bint run_compiled(Queue queue) noexcept:
    global compiled_runs
    cdef char* outs[SLOTS]
    cdef char* ins[SLOTS]
    cdef int k
    for k in range(queue.nin):
        ins[k] = slots[queue.ins[k]].address
    for k in range(queue.nout):
        outs[k] = slots[queue.outs[k]].address
    if queue.nout and queue.entry(queue.context, outs, ins, NULL, numel // columns if columns else 1,
                                  columns if columns else numel) != 0:
        PyErr_Clear()             # there was no memory for what it keeps; steps need none
        return False
    queue.compiled_runs += 1
    compiled_runs += 1
    return True


cdef void run_steps() noexcept:
    cdef tg.tg_loop loop
    cdef int64_t size = 4 if dtype == float32 else 8
    cdef int64_t shape[2]
    cdef int64_t strides[4][2]    # by how an operand lies
    cdef int64_t none[2]
    cdef tg.tg_operand* operand
    cdef Step* s
    cdef double value
    cdef int k, i, slot, first
    shape[0], shape[1] = numel // columns if columns else 1, columns if columns else numel
    memset(strides, 0, sizeof(strides))
    memset(none, 0, sizeof(none))
    strides[tg.TG_LIES_FULL][0], strides[tg.TG_LIES_FULL][1] = shape[1] * size, size
    strides[tg.TG_LIES_IN_EACH_ROW][1] = strides[tg.TG_LIES_ONE_PER_ROW][0] = size
    for k in range(nsteps):
        s = &steps[k]
        memset(&loop, 0, sizeof(loop))
        loop.version, loop.ndim, loop.nout, loop.nin, loop.compute_dtype = 1, 1, 1, s.nin, dtype
        loop.numel, loop.shape, first = numel, &numel, 1
        if s.folds:
            loop.nreduced, loop.nparams, loop.params = 1, s.nparams, s.params
            loop.ndim, loop.shape, first = 2, shape, 0
        elif slots[s.to].lies == tg.TG_LIES_ONE_PER_ROW:
            loop.numel, loop.shape, first = shape[0], shape, 0
        else:
            for i in range(s.nin):
                if s.source[i] >= 0 and slots[s.source[i]].lies >= tg.TG_LIES_IN_EACH_ROW:
                    loop.ndim, loop.shape, first = 2, shape, 0
        for i in range(s.nin + 1):
            operand = &loop.operands[i]
            operand.dtype = dtype
            if i and s.source[i - 1] < 0:
                operand.is_scalar, operand.strides, operand.data = 1, none, &operand.value
                value = PyFloat_AsDouble(s.number[i - 1])
                if dtype == float32:
                    (<float*>operand.value.bytes)[0] = <float>value
                else:
                    operand.value.f = value
                continue
            slot = s.to if i == 0 else s.source[i - 1]
            operand.strides = strides[slots[slot].lies] + first
            operand.data = slots[slot].address
            operand.handle = <size_t>operand.data
        s.kernel(&loop, s.context)


cdef Queue described(int cause):
    cdef Queue made = Queue.__new__(Queue)
    cdef int k, i
    made.steps = []
    for k in range(nsteps):
        sources = tuple([steps[k].source[i] for i in range(steps[k].nin)])
        numbers = tuple([<object>steps[k].number[i] if steps[k].source[i] < 0 else None for i in range(steps[k].nin)])
        made.steps.append((<object>steps[k].op, steps[k].to, sources, numbers))
    made.lies = tuple([LIES[slots[k].lies] for k in range(nslots)])
    made.living = tuple([k for k in range(nslots) if words[nwords - 1] >> k & 1])
    made.dtype = "float32" if dtype == float32 else "float64"
    made.line, made.cause, made.refused, made.runs = line_of_program(), <str>CAUSES[cause], "", 1
    return made


if LATER_BYTES < tg.TG_LATER_BYTES:
    raise ImportError("results of more bytes come later than there are spare ones for")

cdef tg.tg_queue table
table.size, table.flags = sizeof(tg.tg_queue), tg.TG_QUEUE_PLACES
table.offer, table.settle = offer, settle


def call(function, args, kwargs):
    """Call a function with this thread's pointwise work queued; all of it is done when it returns or raises."""
    cdef const tg.tg_queue* before = API.offer_to(&table)
    try:
        return function(*args, **kwargs)
    finally:
        run_queue(ENDED)
        API.offer_to(before)


def queues():
    """Return the queues that are known."""
    return list(known)


def has_wanted():
    """Return whether queues have run twice since they were asked for last."""
    return len(wanted) != 0


def take_wanted():
    """Return the queues that have run twice since this was asked last."""
    taken = wanted[:]
    wanted.clear()
    return taken


def forget():
    """Forget all queues and their kernels."""
    cdef int k
    for k in range(PLACES):
        if table_of_known[k].queue != NULL:
            free(table_of_known[k].words)
            table_of_known[k].queue = NULL
    known.clear()
    wanted.clear()


def counts():
    """Return how many ops were queued, queues settled, and queues run as one kernel, in this process."""
    return queued_ops, settled_queues, compiled_runs
