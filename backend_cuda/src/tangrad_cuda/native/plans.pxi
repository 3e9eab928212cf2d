# What a call launched, kept so that a call like it can be replayed.

from struct import pack

cdef enum:
    SLOTS = 128                  # plans of a kernel, a power of two
    PROBES = 4
    TRIES = 2                    # a first call may do more than later ones, such as fill a constant
    MAX_TEMPORARIES = 16
    STEP_LAUNCH = 1
    STEP_COPY = 2
    STEP_TAKE = 3
    STEP_GIVE = 4
    PLAIN = -1000                # a patch whose address is no operand's and no temporary's

cdef struct patch:
    int place                    # which 8 bytes of the parameters
    int source                   # the operand, or ~k for the k-th temporary
    uint64_t delta

cdef struct step:
    int kind
    unsigned int blocks
    int temporary
    int npatches
    uint64_t function
    size_t nbytes                # of the parameters, of a copy, of a temporary
    PyObject* label              # of Plan.labels
    char* packed
    patch* patches

# Numbers that a replay writes at the end of the parameters: what of the call, and as what.
cdef struct number_form:
    int number
    char kind                    # b, i, u, f or c
    int bits

cdef object _recorded_steps      # of the recording of each thread: {address of its record: steps}
_recorded_steps = {}
cdef int _recording_threads = 0
cdef tg_memory_watch _watch


cdef void memory_changed(void* context, const tg_memory_change* change) noexcept nogil:
    note_memory(change.sign, change.address, change.nbytes)


_watch.size, _watch.flags, _watch.context, _watch.changed = sizeof(tg_memory_watch), 0, NULL, memory_changed


cdef bint watch_memory() except -1:
    """Watch the allocators while a thread records; False where too many others do."""
    global _recording_threads
    if _recording_threads == 0:
        try:
            api.watch_memory(&_watch)
        except RuntimeError:
            return False
    _recording_threads += 1
    return True


cdef int unwatch_memory() except -1:
    global _recording_threads
    _recording_threads -= 1
    if _recording_threads == 0:
        api.unwatch_memory(&_watch)
    return 0


cdef int keep_step(tuple made) except -1:
    if this_recording != NULL:
        (<list>_recorded_steps[<size_t>this_recording]).append(made)
        this_recording.steps += 1
    return 0


cdef class Plan:
    """The steps of one kind of call; without any if it cannot be replayed."""
    cdef uint64_t hash
    cdef int nwords, nsteps, nwritten, tries, ntemporaries
    cdef bint usable, reports
    cdef int64_t* words
    cdef step* steps
    cdef number_form* numbers
    cdef list labels

    def __dealloc__(self):
        cdef int i
        for i in range(self.nsteps):
            free(self.steps[i].packed)
            free(self.steps[i].patches)
        free(self.steps)
        free(self.numbers)
        free(self.words)

    cdef bint fits(self, const call* c) noexcept:
        return self.hash == c.hash and self.nwords == c.nwords and \
            memcmp(self.words, c.word, <size_t>c.nwords * 8) == 0


cdef void* taken(size_t count, size_t size) except NULL:
    cdef void* made = calloc(count if count else 1, size)
    if made == NULL:
        raise MemoryError("a plan of launches")
    return made


cdef class Recorded:
    """A kernel in Python whose calls are replayed in C where that is the same.

    Args:
        kernel: called as the core calls kernels; its result is in its first argument.
        numbers_of: None, or a function of the call's arguments that says which numbers of the call,
            counted from 0, are the last of the kernel's parameters, as (number, kind, bits) in
            their order, or None. Values of numbers may then change from call to call.
    """
    cdef object kernel, numbers_of
    cdef PyObject* slot[SLOTS]
    cdef readonly int64_t replayed, recorded

    def __cinit__(self, kernel, numbers_of=None):
        self.kernel, self.numbers_of = kernel, numbers_of
        memset(self.slot, 0, sizeof(self.slot))

    @property
    def places_of_numbers(self):
        """What says which numbers of a call the kernel gets last, or None."""
        return self.numbers_of

    def __dealloc__(self):
        cdef int i
        for i in range(SLOTS):
            Py_XDECREF(self.slot[i])

    def __call__(self, *args):
        cdef call c
        cdef Plan plan
        if this_recording != NULL or PyTuple_GET_ITEM(args, 0) == Py_None_ptr \
                or not take_call(&c, args, self.numbers_of is not None) or c.device == NULL:
            return self.kernel(*args)
        plan = self.find(&c)
        if plan is None:
            return self.record(&c, args, None)
        if plan.usable:
            if replay(plan, &c):
                self.replayed += 1
                return None
            return self.kernel(*args)
        if plan.tries < TRIES:
            return self.record(&c, args, plan)
        return self.kernel(*args)

    cdef Plan find(self, const call* c):
        cdef int i
        cdef PyObject* found
        for i in range(PROBES):
            found = self.slot[(c.hash + <uint64_t>i) & (SLOTS - 1)]
            if found != NULL and (<Plan>found).fits(c):
                return <Plan>found
        return None

    cdef int keep(self, Plan plan) except -1:
        cdef int i
        cdef uint64_t place = plan.hash & (SLOTS - 1)
        cdef PyObject* old
        for i in range(PROBES):
            if self.slot[(plan.hash + <uint64_t>i) & (SLOTS - 1)] == NULL:
                place = (plan.hash + <uint64_t>i) & (SLOTS - 1)
                break
        else:
            place = (plan.hash + <uint64_t>(self.recorded % PROBES)) & (SLOTS - 1)
        old = self.slot[place]
        Py_INCREF(plan)
        self.slot[place] = <PyObject*>plan
        Py_XDECREF(old)
        return 0

    cdef object record(self, call* c, tuple args, Plan failed):
        """Run the kernel, and keep what it launched."""
        global this_recording
        cdef recording* made
        cdef Plan plan
        if self.recorded > 4 * SLOTS and self.replayed < self.recorded:
            return self.kernel(*args)  # its calls are all different
        made = <recording*>taken(1, sizeof(recording))
        steps = _recorded_steps[<size_t>made] = []
        try:
            if not watch_memory():
                return self.kernel(*args)
            this_recording = made
            try:
                result = self.kernel(*args)
            finally:
                this_recording = NULL
                unwatch_memory()
            self.recorded += 1
            if failed is None:
                plan = Plan()
                plan.hash, plan.nwords = c.hash, c.nwords
                plan.words = <int64_t*>taken(c.nwords, 8)
                memcpy(plan.words, c.word, <size_t>c.nwords * 8)
                self.keep(plan)
            else:
                plan = failed
            plan.tries += 1
            if result is None and not made.spoiled:
                complete(plan, c, made, steps, [] if self.numbers_of is None else self.numbers_of(*args))
            return result
        finally:
            del _recorded_steps[<size_t>made]
            free(made)


cdef int complete(Plan plan, const call* c, recording* made, list steps, list written) except -1:
    """Put a recording's steps into its plan; leaves it unusable where an address is nobody's."""
    cdef list laid = laid_out(c, made, steps)
    cdef int i, k
    cdef step* s
    if laid is None or written is None or written and len(laid) > 1:
        return 0
    plan.steps = <step*>taken(<size_t>len(laid), sizeof(step))
    plan.nsteps = <int>len(laid)
    plan.labels = []
    for i, (kind, function, label, blocks, temporary, nbytes, packed, patches) in enumerate(laid):
        s = &plan.steps[i]
        s.kind, s.function, s.blocks, s.temporary, s.nbytes = kind, function, blocks, temporary, nbytes
        plan.labels.append(label)
        s.label = <PyObject*>label
        s.packed = <char*>taken(<size_t>len(packed), 1)
        memcpy(s.packed, PyBytes_AS_STRING(packed), <size_t>len(packed))
        s.patches = <patch*>taken(<size_t>len(patches), sizeof(patch))
        s.npatches = <int>len(patches)
        for k, (place, source, delta) in enumerate(patches):
            s.patches[k].place, s.patches[k].source, s.patches[k].delta = place, source, delta
        if kind == STEP_TAKE:
            plan.ntemporaries = max(plan.ntemporaries, temporary + 1)
    plan.numbers = <number_form*>taken(<size_t>len(written), sizeof(number_form))
    plan.nwritten = <int>len(written)
    for k, (number, code, bits) in enumerate(written):
        plan.numbers[k].number, plan.numbers[k].kind, plan.numbers[k].bits = number, ord(code), bits
    plan.reports = made.reports
    plan.usable = True
    return 0


cdef list laid_out(const call* c, recording* made, list steps):
    """Return the steps with memory taken and given back between them; None if there is no plan."""
    cdef list laid = [], live = []
    cdef set used = set()
    cdef int event = 0, k, temporaries = 0, place
    for k, made_step in enumerate([*steps, None]):
        while event < made.count and made.events[event].step <= k:
            address, nbytes = made.events[event].address, made.events[event].nbytes
            if made.events[event].sign > 0:
                live.append((address, nbytes, temporaries))
                laid.append((STEP_TAKE, 0, "", 0, temporaries, nbytes, b"", ()))
                temporaries += 1
            else:
                # What is not among them was there before, and is nobody's of this call.
                for entry in live:
                    if entry[0] == address:
                        live.remove(entry)
                        laid.append((STEP_GIVE, 0, "", 0, entry[2], 0, b"", ()))
                        break
            event += 1
        if made_step is None:
            break
        patches, numbers = [], b""
        for place, address in enumerate(made_step[1:3] if made_step[0] == "copy" else made_step[4]):
            origin = origin_of(c, live, address, made.reports)
            if origin is None:
                return None
            if origin[0] != PLAIN:
                patches.append((place, *origin))
        used.update([~source for _, source, _ in patches if source < 0])
        if made_step[0] == "copy":
            laid.append((STEP_COPY, 0, "", 0, 0, made_step[3], bytes(16), patches))
            continue
        _, function, label, blocks, buffers, numbers = made_step
        if hides_address(c, live, numbers):
            return None
        packed = pack(f"={len(buffers)}Q", *buffers) + numbers
        laid.append((STEP_LAUNCH, function, label, blocks, 0, len(packed), packed, patches))
    # What is still there was kept by the kernel: it is not the next call's.
    if any([entry[2] in used for entry in live]):
        return None
    return renumbered([entry for entry in laid if entry[0] not in (STEP_TAKE, STEP_GIVE) or entry[4] in used])


cdef list renumbered(list laid):
    """Count temporaries such that those which are not there at once share a number; None if there are too many."""
    cdef dict number = {}
    cdef list made = []
    for kind, function, label, blocks, temporary, nbytes, packed, patches in laid:
        if kind == STEP_TAKE:
            taken_numbers = set(number.values())
            number[temporary] = next(k for k in range(MAX_TEMPORARIES + 1) if k not in taken_numbers)
            if number[temporary] == MAX_TEMPORARIES:
                return None
        patches = [(place, source if source >= 0 else ~number[~source], delta) for place, source, delta in patches]
        made.append((kind, function, label, blocks, number.get(temporary, 0), nbytes, packed, patches))
        if kind == STEP_GIVE:
            del number[temporary]
    return made


cdef tuple origin_of(const call* c, list live, address, bint cells):
    """Return (operand or ~temporary, offset) of an address; None if it is nobody's."""
    cdef int i
    if address == 0:
        return PLAIN, 0
    for i in range(c.ntensors):
        if c.address[i] == address:
            return i, 0
    for start, nbytes, k in live:
        if start <= address < start + nbytes:
            return ~k, address - start
    within = [i for i in range(c.ntensors) if c.address[i] < address < c.end[i]]
    if len(within) == 1:
        return within[0], address - c.address[within[0]]
    if cells and _driver.is_error_cell(address):
        return PLAIN, 0
    return None


cdef bint hides_address(const call* c, list live, bytes numbers) except -1:
    """Whether a kernel's numbers may hold an address, which a replay would not put right."""
    cdef int i
    cdef const uint64_t* word = <const uint64_t*>PyBytes_AS_STRING(numbers)
    cdef Py_ssize_t k
    for k in range(PyBytes_GET_SIZE(numbers) // 8):
        for i in range(c.ntensors):
            if c.address[i] and c.address[i] <= word[k] < c.end[i]:
                return True
        for start, nbytes, _ in live:
            if start <= word[k] < start + nbytes:
                return True
    return False


cdef bint as_double(PyObject* x, double* value) except -1:
    """Convert a number to the nearest of float64; False for what Python has to convert."""
    cdef int overflow = 0
    cdef long long number
    if PyFloat_CheckExact(<object>x):
        value[0] = PyFloat_AS_DOUBLE(<object>x)
        return True
    if x == Py_None_ptr:
        value[0] = 0
        return True
    if not (PyLong_CheckExact(<object>x) or PyBool_Check(<object>x)):
        return False
    number = PyLong_AsLongLongAndOverflow(<object>x, &overflow)
    value[0] = <double>number
    return overflow == 0


cdef bint write_number(const number_form* w, PyObject* x, char* target, int* size) except -1:
    """Write a number as the kernel reads it; False for what Python has to convert."""
    cdef double parts[2]
    cdef uint64_t bits = 0
    size[0] = 8
    if w.kind == b"f":
        if not as_double(x, parts):
            return False
        memcpy(target, parts, 8)
        return True
    if w.kind == b"c":
        parts[1] = 0
        if isinstance(<object>x, complex):
            parts[0], parts[1] = (<object>x).real, (<object>x).imag
        elif not as_double(x, parts):
            return False
        size[0] = 16
        memcpy(target, parts, 16)
        return True
    if PyLong_CheckExact(<object>x) or PyBool_Check(<object>x):
        bits = PyLong_AsUnsignedLongLongMask(<object>x)
    elif x != Py_None_ptr:
        return False
    if w.kind == b"b":
        bits = bits != 0
    elif w.bits < 64:
        bits &= (<uint64_t>1 << w.bits) - 1
        if w.kind == b"i" and bits >> (w.bits - 1):
            bits |= ~((<uint64_t>1 << w.bits) - 1)
    memcpy(target, &bits, 8)
    return True


cdef bint write_numbers(Plan plan, const call* c, char* end) except -1:
    """Write the numbers of a call before `end`; False where the kernel has to be asked."""
    cdef char words[MAX_NUMBERS * 16]
    cdef int k, size, used = 0
    for k in range(plan.nwritten):
        size = 0
        if not write_number(&plan.numbers[k], c.number[plan.numbers[k].number], words + used, &size):
            return False
        used += size
    memcpy(end - used, words, <size_t>used)
    return True


cdef inline uint64_t address_of(const patch* p, const call* c, const tg_scratch* temporary) noexcept:
    if p.source >= 0:
        return c.address[p.source] + p.delta
    return temporary[~p.source].handle + <uint64_t>temporary[~p.source].offset + p.delta


cdef bint replay(Plan plan, const call* c) except -1:
    """Launch what a plan says for the operands of a call; False before anything was done if it cannot."""
    cdef char packed[4352]
    cdef tg_scratch temporary[MAX_TEMPORARIES]
    cdef int index = device_index(c.device), i, k, status = 0
    cdef uint64_t stream, handle
    cdef step* s
    if this_entered != index:
        _driver.enter(index)
    stream = stream_of(index)
    handle = handle_of(stream)
    memset(temporary, 0, sizeof(tg_scratch) * <size_t>plan.ntemporaries)
    try:
        for i in range(plan.nsteps):
            s = &plan.steps[i]
            if s.kind == STEP_TAKE:
                api.scratch(c.device, s.nbytes, stream, &temporary[s.temporary])
                continue
            if s.kind == STEP_GIVE:
                api.release_scratch(&temporary[s.temporary])
                continue
            memcpy(packed, s.packed, s.nbytes if s.kind == STEP_LAUNCH else 16)
            for k in range(s.npatches):
                (<uint64_t*>packed)[s.patches[k].place] = address_of(&s.patches[k], c, temporary)
            if s.kind == STEP_COPY:
                with nogil:
                    status = copy_bytes((<uint64_t*>packed)[0], (<uint64_t*>packed)[1], s.nbytes, handle)
            else:
                # Kernels that get numbers of the call launch once.
                if plan.nwritten and not write_numbers(plan, c, packed + s.nbytes):
                    return False
                note(index, s.label)
                with nogil:
                    status = launch_packed(s.function, s.blocks, _lanes, handle, packed, s.nbytes)
            if status:
                raise _driver.refused(status, "cuMemcpyAsync" if s.kind == STEP_COPY else "cuLaunchKernel", index)
    finally:
        for k in range(plan.ntemporaries):
            api.release_scratch(&temporary[k])
    if plan.reports:
        _driver.reports.expect(index)
    return True


cdef void* _known_devices[64]


cdef int device_index(void* device) except -1:
    cdef int i
    for i in range(64):
        if _known_devices[i] == device:
            return i
        if _known_devices[i] == NULL:
            break
    return learn_device(device)


cdef int learn_device(void* device) except -1:
    cdef int index
    for index in range(_driver.device_count()):
        _known_devices[index] = api.device(_driver.name.encode(), index)
    for index in range(64):
        if _known_devices[index] == device:
            return index
    raise RuntimeError("a tensor of a device that the driver does not show")
