# The reader: records become columns, or sums.

cdef enum:
    COLUMNS = 10
    MEMORY_COLUMNS = 7
    ELSEWHERE = 4                        # kind of a range, after those that recording.py names

# Numbers of a record by its tag, 0: there is no such tag.
cdef int[10] NUMBERS = [0, 0, 5, 2, 3, 3, 5, 5, 5, 6]
NEWEST = LOG_KERNEL

EVENT_COLUMNS = ("kind", "name", "thread", "start", "end", "parent", "signature", "stack", "first_step", "last_step")
CHANGE_COLUMNS = ("thread", "time", "allocator", "address", "nbytes", "allocated", "event")
MARK_COLUMNS = ("time", "allocator", "address", "nbytes", "purpose")
KERNEL_COLUMNS = ("thread", "event", "allocator", "stream", "start", "end")


class DamagedRecord(ValueError):
    """Raised when bytes are no records."""


cdef class Decoder:
    """Turn records into columns.

    Args:
        began: (ticks, nanoseconds) at the beginning. scale: nanoseconds per tick.
    """
    cdef int64_t* events
    cdef int64_t* changes
    cdef int64_t count, room, changed, changes_room
    cdef uint64_t ticks0
    cdef double scale
    cdef dict threads                    # ident -> [ticks, steps, [open events]]
    cdef readonly list marks             # rows of MARK_COLUMNS
    cdef readonly list kernels           # rows of KERNEL_COLUMNS; an event is counted in its thread

    def __init__(self, began_ticks, double scale):
        self.ticks0, self.scale = began_ticks, scale
        self.threads, self.marks, self.kernels = {}, [], []

    def __dealloc__(self):
        free(self.events)
        free(self.changes)

    cdef int64_t time_of(self, uint64_t ticks) noexcept:
        return <int64_t>(<double><int64_t>(ticks - self.ticks0) * self.scale)

    cdef int64_t* event(self) except NULL:
        if self.count == self.room:
            self.room = 2 * self.room + 4096
            self.events = <int64_t*>realloc(self.events, self.room * COLUMNS * sizeof(int64_t))
            if self.events == NULL:
                raise MemoryError("events of a profile")
        self.count += 1
        return self.events + (self.count - 1) * COLUMNS

    cdef int64_t* change(self) except NULL:
        if self.changed == self.changes_room:
            self.changes_room = 2 * self.changes_room + 4096
            self.changes = <int64_t*>realloc(self.changes, self.changes_room * MEMORY_COLUMNS * sizeof(int64_t))
            if self.changes == NULL:
                raise MemoryError("changes of memory of a profile")
        self.changed += 1
        return self.changes + (self.changed - 1) * MEMORY_COLUMNS

    def feed(self, int64_t ident, bytes data):
        """Read the records of a thread that follow those read before.

        Raises:
            DamagedRecord: these are no records.
        """
        cdef const unsigned char* at = data
        cdef const unsigned char* stop = at + len(data)
        cdef uint64_t ticks, steps
        cdef uint64_t value[6]
        cdef int64_t* e
        cdef int tag, i, count
        state = self.threads.setdefault(ident, [0, 0, []])
        ticks, steps, opened = state[0], state[1], <list>state[2]
        while at < stop:
            tag = at[0]
            at += 1
            if tag == LOG_CLOCK:
                if stop - at < 16:
                    raise DamagedRecord("a record of the clock is cut off")
                memcpy(&ticks, at, 8)
                memcpy(&steps, at + 8, 8)
                at += 16
                continue
            count = NUMBERS[tag] if tag < 10 else 0
            if count == 0:
                raise DamagedRecord(f"there is no record with the tag {tag}")
            for i in range(count):
                at = read_number(at, stop, &value[i])
                if at == NULL:
                    raise DamagedRecord("a record is cut off")
            ticks += value[0]
            if tag == LOG_MEMORY:
                self.read_change(ident, ticks, value, opened[len(opened) - 1] if opened else -1)
                continue
            if tag == LOG_MARK:
                self.marks.append((self.time_of(ticks), value[1], value[2], value[3], value[4]))
                continue
            if tag == LOG_KERNEL:
                self.kernels.append((ident, value[1], value[2], value[3], unzigzag(value[4]), unzigzag(value[5])))
                continue
            if tag == LOG_ELSEWHERE:
                self.read_elsewhere(value)
                continue
            if tag == LOG_LEAVE:
                steps += value[1]
                if not opened:
                    raise DamagedRecord("something is left that was not entered")
                e = self.events + <int64_t>opened.pop() * COLUMNS
                e[4] = self.time_of(ticks)
                if e[0] == LOG_OP:
                    e[9] = steps
                continue
            e = self.event()
            e[0], e[2], e[3], e[4] = tag, ident, self.time_of(ticks), -1
            e[5] = opened[len(opened) - 1] if opened else -1
            e[6] = e[7] = -1
            e[8] = e[9] = 0
            if tag == LOG_OP:
                steps += value[1]
                e[1], e[6], e[7] = value[2], <int64_t>value[3] - 1, <int64_t>value[4] - 1
                e[8] = e[9] = steps
            else:
                e[1], e[8] = value[1], value[2]
            opened.append(self.count - 1)
        state[0], state[1] = ticks, steps

    cdef int read_change(self, int64_t ident, uint64_t ticks, uint64_t* value, int64_t event) except -1:
        cdef int64_t* c = self.change()
        c[0], c[1], c[2], c[3] = ident, self.time_of(ticks), value[1], value[2]
        c[4], c[5] = unzigzag(value[3]), value[4]
        c[6] = event
        return 0

    cdef int read_elsewhere(self, uint64_t* value) except -1:
        cdef int64_t* e = self.event()
        e[0], e[1], e[2] = LOG_RANGE, value[1], -<int64_t>value[2]
        e[3], e[4] = unzigzag(value[3]), unzigzag(value[4])
        e[5] = e[6] = e[7] = -1
        e[8], e[9] = ELSEWHERE, 0
        return 0

    def finish(self, ticks):
        """Close what is open, and return (events, changes) as bytes of rows of int64, and how many were open."""
        cdef int64_t last = self.time_of(ticks), i
        cdef int64_t unfinished = 0
        for i in range(self.count):
            if self.events[i * COLUMNS + 4] < 0:
                self.events[i * COLUMNS + 4] = max(last, self.events[i * COLUMNS + 3])
                unfinished += 1
        return ((<char*>self.events)[:self.count * COLUMNS * sizeof(int64_t)] if self.count else b"",
                (<char*>self.changes)[:self.changed * MEMORY_COLUMNS * sizeof(int64_t)] if self.changed else b"",
                unfinished)


cdef inline int64_t unzigzag(uint64_t value) noexcept:
    return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)


cdef const unsigned char* read_number(const unsigned char* at, const unsigned char* stop, uint64_t* value) noexcept:
    cdef uint64_t v = 0
    cdef int shift = 0
    while at < stop and shift < 64:
        v |= <uint64_t>(at[0] & 127) << shift
        if at[0] < 128:
            value[0] = v
            return at + 1
        at += 1
        shift += 7
    return NULL


# --- totals ----------------------------------------------------------------------------------------

cdef struct opened_event:
    int64_t key                          # kind and name
    uint64_t start
    uint64_t inner                       # ticks in what was within


cdef class Adder:
    """Add up the records of long runs by kind and name, without keeping them.

    Args:
        scale: nanoseconds per tick.
    """
    cdef double scale
    cdef dict threads                    # ident -> bytearray of opened_event, [ticks, depth]
    cdef dict sums                       # kind << 32 | name -> [count, ticks, own ticks]

    def __init__(self, double scale):
        self.scale, self.threads, self.sums = scale, {}, {}

    def feed(self, int64_t ident, bytes data):
        """Add the records of a thread that follow those added before.

        Raises:
            DamagedRecord: these are no records.
        """
        cdef const unsigned char* at = data
        cdef const unsigned char* stop = at + len(data)
        cdef uint64_t value[6]
        cdef uint64_t ticks, passed
        cdef opened_event* e
        cdef int64_t depth
        cdef int tag, i, count
        state = self.threads.setdefault(ident, [bytearray(DEEPEST * 16 * sizeof(opened_event)), 0, 0])
        ticks, depth = state[1], state[2]
        e = <opened_event*><char*>(<bytearray>state[0])
        while at < stop:
            tag = at[0]
            at += 1
            if tag == LOG_CLOCK and stop - at >= 16:
                memcpy(&ticks, at, 8)
                at += 16
                continue
            count = NUMBERS[tag] if tag < 10 else 0
            if count == 0:
                raise DamagedRecord(f"there is no record with the tag {tag}")
            for i in range(count):
                at = read_number(at, stop, &value[i])
                if at == NULL:
                    raise DamagedRecord("a record is cut off")
            ticks += value[0]
            if tag >= LOG_MEMORY:
                continue
            if tag != LOG_LEAVE:
                if depth < DEEPEST * 16:
                    e[depth].key = <int64_t>tag << 32 | <int64_t>(value[2] if tag == LOG_OP else value[1])
                    e[depth].start, e[depth].inner = ticks, 0
                depth += 1
            elif depth > 0:
                depth -= 1
                if depth < DEEPEST * 16:
                    passed = ticks - e[depth].start
                    sums = self.sums.setdefault(e[depth].key, [0, 0, 0])
                    sums[0] += 1
                    sums[1] += passed
                    sums[2] += passed - e[depth].inner
                    if depth > 0:
                        e[depth - 1].inner += passed
        state[1], state[2] = ticks, depth

    def totals(self):
        """Return [(kind, name, count, nanoseconds, own nanoseconds)]."""
        return [(key >> 32, key & 0xFFFFFFFF, count, int(whole * self.scale), int(own * self.scale))
                for key, (count, whole, own) in self.sums.items()]
