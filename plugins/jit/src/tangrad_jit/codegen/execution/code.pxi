# Executable memory, which is written first.

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
