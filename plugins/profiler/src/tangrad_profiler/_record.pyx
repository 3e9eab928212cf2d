# cython: language_level=3, initializedcheck=False, cdivision=True, legacy_implicit_noexcept=False
"""Recording: observers as C functions that append a few bytes to a log per thread, and the reader of those bytes."""
from cpython.ref cimport PyObject
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

import threading

from tangrad.api cimport (tg_api, tg_import_api, tg_memory_change, tg_memory_watch, tg_observed, tg_observer)

cdef extern from "Python.h":
    bint PyLong_CheckExact(object)
    bint PyBool_Check(object)
    bint PyTuple_CheckExact(object)
    bint PyList_CheckExact(object)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    ctypedef struct PyFrameObject:
        pass
    ctypedef struct PyCodeObject:
        pass
    PyFrameObject* PyEval_GetFrame()
    PyFrameObject* PyFrame_GetBack(PyFrameObject*)
    PyCodeObject* PyFrame_GetCode(PyFrameObject*)
    int PyFrame_GetLasti(PyFrameObject*)
    int PyFrame_GetLineNumber(PyFrameObject*)
    void Py_XDECREF(void*)
    void Py_DECREF_void "Py_DECREF"(void*)

cdef extern from "log.h":
    enum:
        LOG_CHUNK
        LOG_CLOCK
        LOG_OP
        LOG_LEAVE
        LOG_NODE
        LOG_RANGE
        LOG_MEMORY
        LOG_ELSEWHERE
        LOG_MARK
        LOG_KERNEL
    ctypedef struct log_thread:
        log_thread* next
        uint64_t ticks
        uint64_t steps
        uint64_t session
        int64_t ident
        int64_t depth
        int64_t made
        int64_t lost
    log_thread* log_mine
    int log_counts_ticks
    void log_choose_clock()
    uint64_t log_nanoseconds() nogil
    uint64_t log_now() nogil
    unsigned char* log_number(unsigned char*, uint64_t) nogil
    uint64_t log_zigzag(int64_t) nogil
    unsigned char* log_begin(log_thread*, int) nogil
    void log_end(log_thread*, unsigned char*) nogil
    size_t log_drain(log_thread*, unsigned char*, size_t) nogil
    size_t log_waiting(const log_thread*) nogil
    void log_free(log_thread*) nogil

cdef extern from *:
    """
    #include <pthread.h>
    static pthread_mutex_t tgp_outside = PTHREAD_MUTEX_INITIALIZER;
    static void tgp_lock(void) { pthread_mutex_lock(&tgp_outside); }
    static void tgp_unlock(void) { pthread_mutex_unlock(&tgp_outside); }
    """
    void tgp_lock() nogil
    void tgp_unlock() nogil

cdef const tg_api* core = tg_import_api(3)
log_choose_clock()

cdef enum:
    SHAPES = 1
    MEMORY = 2
    STACKS = 4
    DEEPEST = 96                         # frames of a stack
    KEY = 2048                           # bytes of a signature

# --- the session ---------------------------------------------------------------------------------

cdef uint64_t session = 0                # counts sessions; a log of an earlier one is not written to
cdef bint recording = False
cdef int wanted = 0                      # SHAPES | MEMORY | STACKS
cdef log_thread* logs = NULL             # of this session
cdef log_thread* outside = NULL          # for changes of memory in threads that are not attached
cdef list names = []                     # by number
cdef dict name_numbers = {}
cdef list signatures = []                # [(shapes, dtypes, integers)]
cdef list stacks = []                    # [((file, function, line), ...)], innermost first
cdef list codes = []                     # keeps the code objects of stacks alive
cdef int* op_names = NULL                # number of a name by number of an op, -1: not named yet
cdef int* node_names = NULL
cdef int ops_known = 0
cdef uint64_t began_ticks = 0, began_ns = 0
cdef uint64_t ended_ticks = 0, ended_ns = 0  # 0: it has not ended


cdef struct entry:
    uint64_t hash
    uint8_t* key
    uint32_t size
    uint32_t number


cdef struct table:
    entry* entries
    uint32_t room                        # a power of two, or 0
    uint32_t count


cdef table signature_table
cdef table stack_table


cdef void forget(table* t) noexcept:
    cdef uint32_t i
    for i in range(t.room):
        free(t.entries[i].key)
    free(t.entries)
    t.entries, t.room, t.count = NULL, 0, 0


cdef inline uint64_t hash_of(const uint8_t* key, uint32_t size) noexcept:
    cdef uint64_t h = 0x9E3779B97F4A7C15ULL ^ size, word
    cdef uint32_t i = 0
    while i + 8 <= size:
        memcpy(&word, key + i, 8)
        h = (h ^ word) * 0xFF51AFD7ED558CCDULL
        h ^= h >> 32
        i += 8
    while i < size:
        h = (h ^ key[i]) * 0xFF51AFD7ED558CCDULL
        i += 1
    return h ^ (h >> 29)


cdef int widen(table* t) except -1:
    cdef uint32_t room = 2 * t.room if t.room else 256, i, at
    cdef entry* entries = <entry*>calloc(room, sizeof(entry))
    if entries == NULL:
        raise MemoryError("a table of the profiler")
    for i in range(t.room):
        if t.entries[i].key != NULL:
            at = <uint32_t>t.entries[i].hash & (room - 1)
            while entries[at].key != NULL:
                at = (at + 1) & (room - 1)
            entries[at] = t.entries[i]
    free(t.entries)
    t.entries, t.room = entries, room
    return 0


cdef entry* entry_of(table* t, const uint8_t* key, uint32_t size, bint* fresh) except NULL:
    """The entry of a key, made if it is not there: `number` is then the next one."""
    cdef uint64_t h = hash_of(key, size)
    cdef uint32_t at
    cdef entry* e
    if 2 * t.count >= t.room:
        widen(t)
    at = <uint32_t>h & (t.room - 1)
    while t.entries[at].key != NULL:
        e = &t.entries[at]
        if e.hash == h and e.size == size and memcmp(e.key, key, size) == 0:
            fresh[0] = False
            return e
        at = (at + 1) & (t.room - 1)
    e = &t.entries[at]
    e.key = <uint8_t*>malloc(size + 1)
    if e.key == NULL:
        raise MemoryError("a key of the profiler")
    memcpy(e.key, key, size)
    e.hash, e.size, e.number = h, size, t.count
    t.count += 1
    fresh[0] = True
    return e


cdef int number_of_name(str name) except -1:
    found = name_numbers.get(name)
    if found is None:
        found = len(names)
        name_numbers[name] = found
        names.append(name)
    return found


cdef int learn_op(int op) except -1:
    """Make room for the number of an op."""
    global op_names, node_names, ops_known
    cdef int n = 2 * op + 1024, i
    op_names = <int*>realloc(op_names, n * sizeof(int))
    node_names = <int*>realloc(node_names, n * sizeof(int))
    if op_names == NULL or node_names == NULL:
        raise MemoryError("the names of ops")
    for i in range(ops_known, n):
        op_names[i] = node_names[i] = -1
    ops_known = n
    return 0


cdef inline int name_of_op(PyObject* op) except -1:
    cdef int number = core.op_number(op)
    if number >= ops_known:
        learn_op(number)
    if op_names[number] < 0:
        op_names[number] = number_of_name((<bytes>core.op_name(op)).decode())
    return op_names[number]


cdef int name_of_node(PyObject* node) except -1:
    cdef PyObject* op = core.node_op(node)
    cdef PyObject* text
    cdef int number
    if op != NULL:
        number = core.op_number(op)
        if number >= ops_known:
            learn_op(number)
        if node_names[number] >= 0:
            return node_names[number]
    text = core.node_name(node)
    name = <str><object>text
    Py_DECREF_void(text)
    found = number_of_name(name)
    if op != NULL:
        node_names[core.op_number(op)] = found
    return found


# --- signatures and stacks -----------------------------------------------------------------------

cdef inline uint32_t put_tensor(uint8_t* key, uint32_t at, PyObject* t) noexcept:
    cdef int ndim = core.ndim(t)
    if at + 2 + 8 * ndim > KEY:
        return at
    key[at], key[at + 1] = <uint8_t>core.dtype_index(t), <uint8_t>(128 + ndim)
    memcpy(key + at + 2, core.shape(t), 8 * ndim)
    return at + 2 + 8 * ndim


cdef inline uint32_t put_int(uint8_t* key, uint32_t at, object x) except? 0xFFFFFFFF:
    cdef int overflow = 0
    cdef int64_t value
    if at + 9 > KEY:
        return at
    value = PyLong_AsLongLongAndOverflow(x, &overflow)
    key[at] = 2
    memcpy(key + at + 1, &value, 8)
    return at + 9


cdef uint32_t put_argument(uint8_t* key, uint32_t at, PyObject* x) except? 0xFFFFFFFF:
    if core.is_tensor(x):
        return put_tensor(key, at, x)
    if PyLong_CheckExact(<object>x):
        return put_int(key, at, <object>x)
    if PyTuple_CheckExact(<object>x) or PyList_CheckExact(<object>x):
        if at + 1 < KEY:
            key[at] = 3
            at += 1
        for item in <object>x:
            if core.is_tensor(<PyObject*>item):
                at = put_tensor(key, at, <PyObject*>item)
            elif PyLong_CheckExact(item):
                at = put_int(key, at, item)
        return at
    if at < KEY:
        key[at] = 4 if <object>x is None else 5
        at += 1
    return at


cdef int64_t signature_of(const tg_observed* call) except -1:
    cdef uint8_t key[KEY]
    cdef uint32_t at = 0
    cdef bint fresh
    cdef entry* e
    cdef int i
    for i in range(call.nargs):
        at = put_argument(key, at, call.args[i])
    e = entry_of(&signature_table, key, at, &fresh)
    if fresh:
        signatures.append(told_signature(call))
    return e.number


cdef tuple told_signature(const tg_observed* call):
    shapes, dtypes, numbers = [], [], []
    for i in range(call.nargs):
        x = <object>call.args[i]
        if core.is_tensor(call.args[i]):
            shapes.append(list(x.shape))
            dtypes.append(x.dtype.name)
            numbers.append(None)
        elif isinstance(x, list) and x and core.is_tensor(<PyObject*>x[0]):
            shapes.append([list(t.shape) for t in x if t is not None])
            dtypes.append(x[0].dtype.name)
            numbers.append(None)
        else:
            shapes.append([])
            dtypes.append("")
            plain = type(x) is int or type(x) is tuple and all([type(v) is int for v in x])
            numbers.append(x if plain else None)
    return shapes, dtypes, numbers


cdef int64_t stack_here() except -1:
    cdef void* key[2 * DEEPEST]
    cdef PyFrameObject* frame = PyEval_GetFrame()
    cdef PyFrameObject* back
    cdef PyCodeObject* code
    cdef int depth = 0
    cdef bint fresh, owned = False
    cdef entry* e
    while frame != NULL and depth < DEEPEST:
        code = PyFrame_GetCode(frame)
        key[2 * depth], key[2 * depth + 1] = <void*>code, <void*><size_t>PyFrame_GetLasti(frame)
        Py_DECREF_void(code)             # the frame holds it, and for a new stack `codes` will
        depth += 1
        back = PyFrame_GetBack(frame)
        if owned:
            Py_DECREF_void(frame)
        frame, owned = back, True
    if frame != NULL and owned:
        Py_DECREF_void(frame)
    e = entry_of(&stack_table, <uint8_t*>key, 2 * depth * sizeof(void*), &fresh)
    if fresh:
        stacks.append(told_stack())
    return e.number


cdef tuple told_stack():
    import sys
    frame, told = sys._getframe(), []
    while frame is not None and len(told) < DEEPEST:
        codes.append(frame.f_code)
        told.append((frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return tuple(told)


# --- what the core calls -------------------------------------------------------------------------

cdef inline bint listening(log_thread* t) noexcept:
    return recording and t != NULL and t.session == session


cdef int enter(void* context, const tg_observed* call, void** token) except -1:
    cdef log_thread* t = log_mine
    cdef unsigned char* at
    cdef int64_t signature = 0, stack = 0
    cdef int name
    cdef uint64_t steps
    token[0] = NULL
    if not listening(t):
        return 0
    name = name_of_op(call.op)
    if wanted & SHAPES:
        signature = signature_of(call) + 1
    if wanted & STACKS and t.depth == 0:
        stack = stack_here() + 1
    at = log_begin(t, LOG_OP)
    if at == NULL:
        return 0
    steps = core.nodes_made()
    at = log_number(at, steps - t.steps)
    t.steps = steps
    at = log_number(at, name)
    at = log_number(at, signature)
    log_end(t, log_number(at, stack))
    t.depth += 1
    t.made += 1
    token[0] = <void*>t.session
    return 0


cdef void leave(void* context, const tg_observed* call, void* token) noexcept:
    leave_record(token)


cdef inline void leave_record(void* token) noexcept:
    cdef log_thread* t = log_mine
    cdef unsigned char* at
    cdef uint64_t steps
    if t == NULL or token != <void*>t.session or not listening(t):
        return
    t.depth -= 1
    at = log_begin(t, LOG_LEAVE)
    if at != NULL:
        steps = core.nodes_made()
        log_end(t, log_number(at, steps - t.steps))
        t.steps = steps


cdef int enter_node(void* context, PyObject* node, void** token) except -1:
    cdef log_thread* t = log_mine
    cdef unsigned char* at
    cdef uint64_t number
    cdef int name
    token[0] = NULL
    if not listening(t):
        return 0
    name = name_of_node(node)
    at = log_begin(t, LOG_NODE)
    if at == NULL:
        return 0
    number = core.node_number(node)
    at = log_number(at, name)
    log_end(t, log_number(at, 0 if number == UINT64_MAX else number))
    t.depth += 1
    t.made += 1
    token[0] = <void*>t.session
    return 0


cdef void leave_node(void* context, PyObject* node, void* token) noexcept:
    leave_record(token)


cdef void changed(void* context, const tg_memory_change* change) noexcept nogil:
    cdef log_thread* t = log_mine
    cdef bint mine = t != NULL and t.session == session
    if not recording:
        return
    if not mine:
        tgp_lock()
        t = outside
    if t != NULL:
        write_change(t, change)
    if not mine:
        tgp_unlock()


cdef inline void write_change(log_thread* t, const tg_memory_change* change) noexcept nogil:
    cdef unsigned char* at = log_begin(t, LOG_MEMORY)
    if at == NULL:
        return
    at = log_number(at, <uint64_t>change.allocator)
    at = log_number(at, change.address)
    at = log_number(at, log_zigzag(change.sign * change.nbytes))
    log_end(t, log_number(at, <uint64_t>change.allocated))


cdef tg_observer observer
observer.size, observer.flags, observer.context = sizeof(tg_observer), 0, NULL
observer.enter, observer.leave = enter, leave
observer.enter_node, observer.leave_node = enter_node, leave_node

cdef tg_memory_watch watch
watch.size, watch.flags, watch.context, watch.changed = sizeof(tg_memory_watch), 0, NULL, changed


include "native/control.pxi"
include "native/reader.pxi"
