# Starting, stopping and reading the log, for the rest of the package.

cdef log_thread* new_log(int64_t ident) except NULL:
    global logs
    cdef log_thread* t = <log_thread*>calloc(1, sizeof(log_thread))
    if t == NULL:
        raise MemoryError("a log of the profiler")
    cdef log_thread* earlier = logs
    t.session, t.ident, t.steps = session, ident, core.nodes_made()
    while earlier != NULL and earlier.ident != ident:
        earlier = earlier.next
    if earlier != NULL:                  # the thread was here before: its events go on being counted
        t.made = earlier.made
    t.next = logs
    logs = t
    return t


def start(bint shapes, bint memory, bint stacks_too):
    """Begin a session, in no thread yet."""
    global session, recording, wanted, outside, began_ticks, began_ns, ended_ticks
    if recording:
        raise RuntimeError("a profiler is running already: only one at a time records a process; leave it before "
                           "you enter another one")
    session += 1
    wanted = (SHAPES if shapes else 0) | (MEMORY if memory else 0) | (STACKS if stacks_too else 0)
    for store in (names, signatures, stacks, codes):
        del store[:]
    name_numbers.clear()
    forget(&signature_table)
    forget(&stack_table)
    for i in range(ops_known):
        op_names[i] = node_names[i] = -1
    free_logs()
    outside = new_log(0)
    began_ns, began_ticks, ended_ticks = log_nanoseconds(), log_now(), 0
    recording = True
    if memory:
        core.watch_memory(&watch)


cdef int free_logs() except -1:
    """Give the records of the session before back; its threads may still point at their logs."""
    global logs
    cdef log_thread* t = logs
    while t != NULL:
        log_free(t)
        t = t.next
    logs = NULL
    return 0


def attach():
    """Observe the calling thread."""
    global log_mine
    if not recording:
        raise RuntimeError("no profiler is running that this thread could be recorded by")
    if listening(log_mine):
        raise RuntimeError("this thread is being recorded already")
    log_mine = new_log(threading.get_ident())
    core.push_observer(&observer)


def detach():
    """Observe the calling thread no longer."""
    global log_mine
    log_mine = NULL
    core.pop_observer(&observer)


def attached():
    """Return whether the calling thread is being recorded."""
    return listening(log_mine)


def stop():
    """End the session; what was recorded stays until the next one."""
    global recording, ended_ticks, ended_ns
    if not recording:
        return
    recording = False
    ended_ns, ended_ticks = log_nanoseconds(), log_now()
    if wanted & MEMORY:
        core.unwatch_memory(&watch)


def is_recording():
    """Return whether a session runs in this process."""
    return recording


def forget_after_fork():
    """In a child of fork nothing is recorded: the log belongs to the parent."""
    global recording, log_mine
    if recording:
        recording = False
        if wanted & MEMORY:
            core.unwatch_memory(&watch)
    log_mine = NULL


def drain():
    """Return [(thread, ident, bytes)] of what was recorded since the last call."""
    cdef log_thread* t = logs
    cdef size_t size
    cdef bytes data
    found = []
    while t != NULL:
        size = log_waiting(t)
        if size:
            data = bytes(size)
            size = log_drain(t, <unsigned char*>data, size)
            found.append((t.ident, data[:size]))
        t = t.next
    found.reverse()                      # the oldest thread first
    return found


def lost():
    """Return how many records found no memory."""
    cdef log_thread* t = logs
    n = 0
    while t != NULL:
        n += t.lost
        t = t.next
    return n


def clock():
    """Return (ticks and nanoseconds of the monotonic clock at the beginning, and at the end or now)."""
    if ended_ticks:
        return began_ticks, began_ns, ended_ticks, ended_ns
    return began_ticks, began_ns, log_now(), log_nanoseconds()


def tables():
    """Return the lists of names, signatures and stacks, which grow."""
    return names, signatures, stacks


def begin(str name, int kind):
    """Enter a range of the calling thread; returns whether it is recorded."""
    cdef log_thread* t = log_mine
    cdef unsigned char* at
    if not listening(t):
        return 0
    number = number_of_name(name)
    at = log_begin(t, LOG_RANGE)
    if at == NULL:
        return 0
    at = log_number(at, number)
    log_end(t, log_number(at, kind))
    t.made += 1
    return t.session


def end(uint64_t token):
    """Leave the range for which `begin` returned the token."""
    cdef log_thread* t = log_mine
    if t != NULL and token == t.session:
        t.depth += 1                     # ranges count for no depth: stacks are of outermost ops
        leave_record(<void*>token)


def elsewhere(str name, int64_t process, int64_t began, int64_t ended):
    """Write down what another process did, in nanoseconds of the monotonic clock."""
    cdef log_thread* t = log_mine
    cdef unsigned char* at
    if not listening(t):
        return
    number = number_of_name(name)
    at = log_begin(t, LOG_ELSEWHERE)
    if at != NULL:
        at = log_number(log_number(at, number), process)
        at = log_number(at, log_zigzag(began - <int64_t>began_ns))
        log_end(t, log_number(at, log_zigzag(ended - <int64_t>began_ns)))


def mark(int64_t allocator, uint64_t address, int64_t nbytes, int purpose):
    """Write down what a block of memory is for."""
    cdef log_thread* t = log_mine
    cdef unsigned char* at
    if not listening(t):
        return
    at = log_begin(t, LOG_MARK)
    if at != NULL:
        at = log_number(log_number(at, <uint64_t>allocator), address)
        log_end(t, log_number(log_number(at, <uint64_t>nbytes), purpose))


def kernel(int64_t ident, int64_t event, int64_t allocator, uint64_t stream, int64_t began, int64_t ended):
    """Write down when a device worked for an event of a thread, in nanoseconds of the monotonic clock.

    For the calling thread while it is recorded; for others when recording has stopped, before they are drained.
    """
    cdef log_thread* t = logs
    cdef unsigned char* at
    while t != NULL and (t.ident != ident or t.session != session):
        t = t.next
    if t == NULL or recording and t != log_mine:
        return
    at = log_begin(t, LOG_KERNEL)
    if at != NULL:
        at = log_number(log_number(log_number(at, <uint64_t>event), <uint64_t>allocator), stream)
        at = log_number(at, log_zigzag(began - <int64_t>began_ns))
        log_end(t, log_number(at, log_zigzag(ended - <int64_t>began_ns)))


def latest():
    """Return the number of the event of this thread that was begun last, -1 if there is none."""
    return log_mine.made - 1 if listening(log_mine) else -1
