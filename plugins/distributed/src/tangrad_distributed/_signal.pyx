# cython: language_level=3, boundscheck=False, wraparound=False
"""Counters in memory that several processes map: written once, waited for, in any order.

What a process writes before `post` is seen by whoever reads after it saw the counter (release and
acquire of C11).
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy


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


def post(size_t address, uint64_t value):
    """Write a counter, and show all that was written before."""
    tgd_store(<uint64_t *>address, value)


def post_and_wake(size_t address, uint64_t value):
    """Write a counter, and wake those who sleep until it is written."""
    tgd_store(<uint64_t *>address, value)
    tgd_wake(<uint64_t *>address)


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
    """Show what this rank does, wait for all others, and see that they do the same.

    Args:
        base: address of the memory; the control page of rank r begins `r * page` behind it, with
            its counter.
        page: bytes of a control page.
        shown: where in a page the signatures of two steps in turn stand, `told` bytes each.
        told: bytes of a signature and the text that tells it.
        rank: this process's.
        size: how many there are.
    """
    cdef char *base
    cdef uint64_t page, shown, told, rank, size

    def __init__(self, size_t base, page, shown, told, rank, size):
        self.base, self.page, self.shown, self.told = <char *>base, page, shown, told
        self.rank, self.size = rank, size

    def show(self, uint64_t step, bytes content, bytes told):
        """Write what this rank does in a step: its signature, and the text behind it."""
        cdef char *at = self.base + self.rank * self.page + self.shown + (step & 1) * self.told
        memcpy(at, <const char *>content, len(content))
        memcpy(at + len(content), <const char *>told, len(told))

    def meet(self, uint64_t step, uint64_t spins, double seconds):
        """Count up and wait for all others.

        Returns:
            Whether all have come.
        """
        post_and_wake(<size_t>(self.base + self.rank * self.page), step)
        return wait_for_all(<size_t>self.base, self.page, self.size, step, spins, seconds)

    def unlike(self, uint64_t step, bytes content):
        """Return a rank that does something else in a step; -1: all do the same."""
        cdef uint64_t rank
        cdef const char *at
        for rank in range(self.size):
            at = self.base + rank * self.page + self.shown + (step & 1) * self.told
            if memcmp(at, <const char *>content, len(content)):
                return rank
        return -1
