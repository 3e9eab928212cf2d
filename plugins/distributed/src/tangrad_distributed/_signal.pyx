# cython: language_level=3, boundscheck=False, wraparound=False
"""What ranks tell of each collective before it begins, what is kept of it, and how ranks meet.

All of it is done for every collective, however small, so what was seen before is found without a
step in Python: the line that asked for it by the place in its code, arguments by their hash.

Ranks of a machine meet by counters in memory that they map: written once, waited for, in any
order. What a process writes before it counts up is seen by whoever reads after it saw the counter
(release and acquire of C11).
"""

import hashlib

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <time.h>
    static double tgd_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }
    static void tgd_little_endian(char *at, uint64_t value) {
        for (int k = 0; k < 8; ++k) at[k] = (char)(value >> (8 * k));
    }
    static PyObject *tgd_frame(void) {
        PyObject *frame = (PyObject *)PyEval_GetFrame();
        Py_XINCREF(frame);
        return frame;
    }
    static PyObject *tgd_back(PyObject *frame) {
        return (PyObject *)PyFrame_GetBack((PyFrameObject *)frame);
    }
    static PyObject *tgd_code(PyObject *frame) {
        return (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    }
    static int tgd_at(PyObject *frame) {
        return PyFrame_GetLasti((PyFrameObject *)frame);
    }
    """
    double tgd_now() nogil
    void tgd_little_endian(char *at, uint64_t value) nogil
    PyObject *tgd_frame()
    PyObject *tgd_back(PyObject *frame)
    PyObject *tgd_code(PyObject *frame)
    int tgd_at(PyObject *frame)


cdef extern from "Python.h":
    Py_hash_t PyObject_Hash(object) except -1


cdef extern from *:
    """
    #include <limits.h>
    #include <linux/futex.h>
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    #if defined(__x86_64__) || defined(__i386__)
    #define tgd_relax() __builtin_ia32_pause()
    #else
    #define tgd_relax() __asm__ __volatile__("" ::: "memory")
    #endif
    static inline void tgd_store(uint64_t *at, uint64_t value) {
        __atomic_store_n(at, value, __ATOMIC_RELEASE);
    }
    static inline uint64_t tgd_load(const uint64_t *at) {
        return __atomic_load_n(at, __ATOMIC_ACQUIRE);
    }
    /* The half of a counter that changes with each step. */
    static inline uint32_t *tgd_word(uint64_t *at) {
        return (uint32_t *)at + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    }
    static int tgd_reached(const char *base, uint64_t stride, uint64_t count, uint64_t value,
                           uint64_t *from) {
        while (*from < count && tgd_load((const uint64_t *)(base + *from * stride)) >= value)
            ++*from;
        return *from == count;
    }
    static void tgd_wake(uint64_t *at) {
        syscall(SYS_futex, tgd_word(at), FUTEX_WAKE, INT_MAX, 0, 0, 0);
    }
    /* Spin while a peer that runs is about to come, then sleep until the one that is behind counts
       up: the kernel wakes this process as soon as it does. */
    static int tgd_wait(const char *base, uint64_t stride, uint64_t count, uint64_t value,
                        uint64_t spins, double seconds) {
        uint64_t from = 0;
        for (uint64_t k = 0; k < spins; ++k) {
            if (tgd_reached(base, stride, count, value, &from)) return 1;
            tgd_relax();
        }
        struct timespec start, now;
        clock_gettime(CLOCK_MONOTONIC, &start);
        while (!tgd_reached(base, stride, count, value, &from)) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            double waited = (now.tv_sec - start.tv_sec) + 1e-9 * (now.tv_nsec - start.tv_nsec);
            double left = seconds - waited;
            if (left <= 0) return 0;
            struct timespec most = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
            uint64_t *late = (uint64_t *)(base + from * stride);
            uint64_t seen = tgd_load(late);
            if (seen < value)
                syscall(SYS_futex, tgd_word(late), FUTEX_WAIT, (uint32_t)seen, &most, 0, 0);
        }
        return 1;
    }
    """
    void tgd_store(uint64_t *at, uint64_t value) nogil
    void tgd_wake(uint64_t *at) nogil
    uint64_t tgd_load(const uint64_t *at) nogil
    int tgd_reached(const char *base, uint64_t stride, uint64_t count, uint64_t value,
                    uint64_t *start) nogil
    int tgd_wait(const char *base, uint64_t stride, uint64_t count, uint64_t value,
                 uint64_t spins, double seconds) nogil


# Bytes of what ranks compare, and of the text that tells it.
SIGNATURE, TEXT = 64, 320
cdef enum:
    _SIGNATURE = 64
    _TEXT = 320
    _SEQUENCE = 8
    _PLACES = 1024
    _SAID = 1024

# Modules that are not the program's: a collective of backward is called by them.
_OURS = ("tangrad_distributed", "tangrad.")


# Places in code, by the address of the code and of the instruction; a new one takes the place of
# one with the same hash. `line` is NULL for those of tangrad.
cdef struct Place:
    PyObject *code
    PyObject *line
    int at

cdef Place _places[_PLACES]


cdef Place *_place(PyObject *frame):
    cdef PyObject *code = tgd_code(frame)
    cdef int at = tgd_at(frame)
    cdef Place *found = &_places[((<size_t>code >> 4) * 31 + <size_t>at) % _PLACES]
    if found.code == code and found.at == at:
        Py_DECREF(<object>code)
        return found
    shown = <object>frame
    cdef PyObject *line = NULL
    if not f"{shown.f_globals.get('__name__', '')}.".startswith(_OURS) or shown.f_back is None:
        text = f"{shown.f_code.co_filename}:{shown.f_lineno}"
        line = <PyObject *>text
        Py_INCREF(text)
    cdef PyObject *code_before = found.code
    cdef PyObject *line_before = found.line
    # Held, so that no other code gets its address.
    found.code, found.line, found.at = code, line, at
    Py_XDECREF(code_before)
    Py_XDECREF(line_before)
    return found


def call_site():
    """Return "file:line" of the innermost frame that is not of tangrad."""
    cdef PyObject *frame = tgd_frame()
    cdef PyObject *back
    cdef Place *place
    while True:
        place = _place(frame)
        if place.line != NULL:
            break
        back = tgd_back(frame)
        Py_DECREF(<object>frame)
        frame = back
    line = <object>place.line
    Py_DECREF(<object>frame)
    return line


def text_of(kind, shapes, dtype, op, root):
    """Return the text of a collective's arguments."""
    said = [f"{dtype.name}{list(shape)}" for shape in shapes]
    said += [f"op={op.name}"] if op is not None else []
    said += [f"root={root}"] if root >= 0 else []
    return f"{kind}({', '.join(said)})"


def told_bytes(text, line):
    """Return text and line of a signature in a field of fixed size."""
    return f"{text}\n{line}".encode()[:TEXT].ljust(TEXT, b"\0")


cdef class _Said:
    """Hold a collective's arguments, and what is told of them at one line."""

    cdef object kind, shapes, dtype, op, line
    cdef long root
    cdef str text
    cdef bytes told
    cdef char digest[_SIGNATURE - _SEQUENCE]


cdef list _said = [None] * _SAID


cdef inline uint64_t _mixed(uint64_t hashed, uint64_t more) noexcept:
    return (hashed ^ (more >> 4)) * <uint64_t>0x9E3779B97F4A7C15


cdef _Said _find(kind, shapes, dtype, op, long root, line):
    cdef uint64_t mixed = <uint64_t>PyObject_Hash(shapes)
    mixed = _mixed(mixed, <uint64_t><size_t><PyObject *>kind)
    mixed = _mixed(mixed, <uint64_t><size_t><PyObject *>dtype)
    mixed = _mixed(mixed, <uint64_t><size_t><PyObject *>op)
    mixed = _mixed(mixed, <uint64_t><size_t><PyObject *>line)
    mixed = (_mixed(mixed, <uint64_t>root << 4) >> 40) % _SAID
    found = _said[mixed]
    cdef _Said said
    if found is not None:
        said = <_Said>found
        if (said.kind is kind and said.dtype is dtype and said.op is op and said.root == root
                and said.line is line and said.shapes == shapes):
            return said
    said = _Said()
    said.kind, said.shapes, said.dtype, said.op = kind, shapes, dtype, op
    said.root, said.line = root, line
    # One shape may come by itself. Ranks compare what is written here, so as plain tuples.
    listed = shapes if type(shapes) is tuple else (shapes,)
    plain = tuple([tuple(shape) for shape in listed])
    key = repr((kind, plain, dtype, op, root)).encode()
    cdef bytes digest = hashlib.blake2b(key, digest_size=_SIGNATURE - _SEQUENCE).digest()
    memcpy(said.digest, <const char *>digest, _SIGNATURE - _SEQUENCE)
    said.text = text_of(kind, plain, dtype, op, root)
    said.told = told_bytes(said.text, line)
    _said[mixed] = said
    return said


@cython.freelist(16)
cdef class Signature:
    """Tell what a rank does.

    Args:
        content: what must be the same on all ranks, at most 64 bytes.
        text: what it does.
        line: where it was asked to.
    """

    cdef char packed[_SIGNATURE]
    cdef Py_ssize_t size
    cdef uint64_t number
    cdef readonly str text, line
    cdef bytes _told

    def __init__(self, bytes content, str text, str line):
        if len(content) > _SIGNATURE:
            raise ValueError(f"a signature has at most {_SIGNATURE} bytes, got {len(content)}")
        memcpy(self.packed, <const char *>content, len(content))
        self.size = len(content)
        self.text, self.line = text, line
        self._told = told_bytes(text, line)

    @property
    def content(self):
        """Return what must be the same on all ranks."""
        return self.packed[:self.size]

    @property
    def told(self):
        """Return text and line in a field of fixed size."""
        return self._told

    def __repr__(self):
        return f"Signature({self.text} at {self.line})"


cdef struct Entry:
    uint64_t number
    PyObject *text
    PyObject *line
    PyObject *error
    double started
    double ended


cdef class Ring:
    """Keep the last collectives of a group, and make their signatures.

    Args:
        kept: how many.
    """

    cdef Entry *_entries
    cdef uint64_t _kept, _count

    def __cinit__(self, uint64_t kept, *_, **__):
        self._entries = <Entry *>PyMem_Calloc(kept, sizeof(Entry))
        if self._entries == NULL:
            raise MemoryError
        self._kept, self._count = kept, 0

    def __dealloc__(self):
        cdef uint64_t at
        if self._entries != NULL:
            for at in range(self._kept):
                Py_XDECREF(self._entries[at].text)
                Py_XDECREF(self._entries[at].line)
                Py_XDECREF(self._entries[at].error)
            PyMem_Free(self._entries)

    def begin(self, str kind, shapes, dtype, op, long root):
        """Note that a collective has begun, and return its signature.

        Args:
            kind: its name.
            shapes: of its tensors, or of its only one, as far as they have to agree.
            dtype: of its tensors.
            op: the kind of its reduction, or None.
            root: its first or last rank, or -1.
        """
        line = call_site()
        cdef _Said said = _find(kind, shapes, dtype, op, root, line)
        cdef Signature what = Signature.__new__(Signature)
        cdef uint64_t number = self._count
        self._count += 1
        tgd_little_endian(what.packed, number)
        memcpy(what.packed + _SEQUENCE, said.digest, _SIGNATURE - _SEQUENCE)
        what.size = _SIGNATURE
        what.text, what.line, what._told, what.number = said.text, line, said.told, number
        cdef Entry *entry = &self._entries[number % self._kept]
        cdef Entry before = entry[0]
        entry.number, entry.started, entry.ended = number, tgd_now(), 0.0
        entry.text, entry.line, entry.error = <PyObject *>said.text, <PyObject *>line, NULL
        Py_INCREF(said.text)
        Py_INCREF(line)
        Py_XDECREF(before.text)
        Py_XDECREF(before.line)
        Py_XDECREF(before.error)
        return what

    def end(self, Signature what not None, str error=None):
        """Note that a collective ended, and what went wrong."""
        cdef Entry *entry = &self._entries[what.number % self._kept]
        if entry.text == NULL or entry.number != what.number:
            return
        entry.ended = tgd_now()
        if error is not None and entry.error == NULL:
            entry.error = <PyObject *>error
            Py_INCREF(error)

    @property
    def entries(self):
        """Return (sequence, collective, line, started, ended, error) of each, the oldest first."""
        cdef uint64_t number
        cdef Entry *entry
        found = []
        for number in range(max(0, <long long>self._count - <long long>self._kept), self._count):
            entry = &self._entries[number % self._kept]
            found.append((
                entry.number,
                <object>entry.text,
                <object>entry.line,
                entry.started,
                entry.ended,
                "" if entry.error == NULL else <object>entry.error,
            ))
        return found


def post(size_t address, uint64_t value):
    """Write a counter, and show all that was written before."""
    tgd_store(<uint64_t *>address, value)


def read(size_t address):
    """Return a counter."""
    return tgd_load(<const uint64_t *>address)


def wait_for_all(size_t base, uint64_t stride, uint64_t count, uint64_t value, uint64_t spins,
                 double seconds):
    """Wait until `count` counters, `stride` bytes apart, have reached `value`.

    Args:
        base: address of the first.
        stride: bytes from one to the next.
        count: how many there are.
        value: what each has to reach.
        spins: how often to look before the core is given to others.
        seconds: how long to wait at most.

    Returns:
        Whether all have.
    """
    cdef uint64_t start = 0
    cdef int reached
    if tgd_reached(<const char *>base, stride, count, value, &start):
        return True
    with nogil:
        reached = tgd_wait(<const char *>base, stride, count, value, spins, seconds)
    return bool(reached)


cdef class Meeting:
    """Meet the other ranks of a machine, and see that they do the same.

    Args:
        base: address of memory that all map; the page of rank r begins `r * page` behind it, with
            its counter.
        page: bytes of a page.
        shown: where in a page the signatures of two steps in turn stand, with their texts.
        rank: this process's.
        size: how many there are.
    """

    cdef char *base
    cdef uint64_t page, shown, rank, size
    # What stands behind the signatures of even and odd steps.
    cdef bytes even, odd

    def __init__(self, size_t base, page, shown, rank, size):
        self.base, self.page, self.shown = <char *>base, page, shown
        self.rank, self.size = rank, size

    cdef char *place(self, uint64_t rank, uint64_t step) noexcept:
        return self.base + rank * self.page + self.shown + (step & 1) * (_SIGNATURE + _TEXT)

    cpdef show(self, uint64_t step, Signature what):
        """Write what this rank does in a step: its signature, and the text behind it."""
        cdef char *to = self.place(self.rank, step)
        memcpy(to, what.packed, _SIGNATURE)
        if (self.odd if step & 1 else self.even) is what._told:
            return
        memcpy(to + _SIGNATURE, <const char *>what._told, _TEXT)
        if step & 1:
            self.odd = what._told
        else:
            self.even = what._told

    cpdef long unlike(self, uint64_t step, Signature what) except? -2:
        """Return a rank that does something else in a step; -1: all do the same."""
        cdef uint64_t rank
        for rank in range(self.size):
            if memcmp(self.place(rank, step), what.packed, _SIGNATURE):
                return rank
        return -1

    def meet(self, uint64_t step, Signature what not None, uint64_t spins, double seconds):
        """Show what this rank does in a step, count up and wait for all others.

        Args:
            step: which; one more than the last.
            what: the signature.
            spins: how often to look before the core is given to others.
            seconds: how long to wait at most.

        Returns:
            Whether all have come, and do the same.
        """
        cdef char *mine = self.base + self.rank * self.page
        cdef uint64_t start = 0
        cdef int reached
        self.show(step, what)
        tgd_store(<uint64_t *>mine, step)
        tgd_wake(<uint64_t *>mine)
        reached = tgd_reached(self.base, self.page, self.size, step, &start)
        if not reached:
            with nogil:
                reached = tgd_wait(self.base, self.page, self.size, step, spins, seconds)
        return bool(reached) and self.unlike(step, what) < 0
