# cython: language_level=3, boundscheck=False, wraparound=False
"""Read and write the memory of other processes of this machine (process_vm_readv(2))."""

from libc.stdint cimport uint64_t


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <stdint.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <unistd.h>
    /* The C libraries of some systems have no functions of these names. */
    static int tgd_copy(int writes, long pid, uint64_t there, uint64_t here, uint64_t nbytes) {
        while (nbytes) {
            struct iovec local = {(void *)here, nbytes}, remote = {(void *)there, nbytes};
            long done = syscall(writes ? SYS_process_vm_writev : SYS_process_vm_readv, pid,
                                &local, 1L, &remote, 1L, 0L);
            if (done <= 0) return done ? errno : EFAULT;
            there += (uint64_t)done, here += (uint64_t)done, nbytes -= (uint64_t)done;
        }
        return 0;
    }
    /* Whoever closes its memory either is seen here, or sees that it is being written. */
    static int tgd_write(uint64_t *writes, uint64_t target, const uint64_t *open, uint64_t step,
                         long pid, uint64_t there, uint64_t here, uint64_t nbytes) {
        int failed = -1;
        __atomic_store_n(writes, target, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(open, __ATOMIC_SEQ_CST) == step)
            failed = tgd_copy(1, pid, there, here, nbytes);
        __atomic_store_n(writes, 0, __ATOMIC_SEQ_CST);
        return failed;
    }
    static void tgd_set(uint64_t *at, uint64_t value) {
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
    }
    static uint64_t tgd_get(const uint64_t *at) {
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);
    }
    #ifndef PR_SET_PTRACER
    #define PR_SET_PTRACER 0x59616d61
    #endif
    static void tgd_let(long pid) {
        prctl(PR_SET_PTRACER, pid, 0L, 0L, 0L);
    }
    """
    int tgd_copy(int writes, long pid, uint64_t there, uint64_t here, uint64_t nbytes) nogil
    int tgd_write(uint64_t *writes, uint64_t target, const uint64_t *open, uint64_t step,
                  long pid, uint64_t there, uint64_t here, uint64_t nbytes) nogil
    void tgd_set(uint64_t *at, uint64_t value) nogil
    uint64_t tgd_get(const uint64_t *at) nogil
    void tgd_let(long pid) nogil


def read(long pid, uint64_t there, uint64_t here, uint64_t nbytes):
    """Copy from a process's memory into this one's; return 0 or the error's number."""
    cdef int failed
    with nogil:
        failed = tgd_copy(0, pid, there, here, nbytes)
    return failed


def write(uint64_t writes, uint64_t target, uint64_t open, uint64_t step, long pid,
          uint64_t there, uint64_t here, uint64_t nbytes):
    """Copy into a process's memory while it is open.

    Args:
        writes: address of the counter that tells others which rank's memory is written.
        target: what that counter is meanwhile; 0 before and after.
        open: address of the counter that has to be `step`.
        step: for which step the memory has to be open.
        pid: whose memory it is.
        there: the address in that process.
        here: the address in this one.
        nbytes: how much to copy.

    Returns:
        0, the error's number, or -1 where the memory is not open.
    """
    cdef int failed
    with nogil:
        failed = tgd_write(<uint64_t *>writes, target, <const uint64_t *>open, step, pid, there,
                           here, nbytes)
    return failed


def put(uint64_t address, uint64_t value):
    """Write a counter, before all that comes after."""
    tgd_set(<uint64_t *>address, value)


def get(uint64_t address):
    """Return a counter, after all that came before."""
    return tgd_get(<const uint64_t *>address)


def let_trace(long pid):
    """Let a process and those that it started read and write this one, where Linux asks for it."""
    tgd_let(pid)
