# cython: language_level=3, embedsignature=False
"""The compiled kernels: which level of them runs here, and how ops find theirs."""
import os

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t

from tangrad.api cimport tg_api, tg_call, tg_import_api, tg_loop, tg_loop_kernel, tg_pool, tg_task

cdef extern from "tgc.h":
    enum:
        TGC_CALL
        TGC_ANYWHERE
    ctypedef struct tgc_kernel:
        const char* op
        const char* dtype
        int kind
        void* function
        const void* context
    ctypedef struct tgc_fingerprint:
        const char* op
        uint32_t value
    void tgc_set_threads(int)
    int tgc_threads() noexcept nogil
    void tgc_parallel(int64_t, tg_task, void*) noexcept nogil
    void tgc_scratch_fail_after(int64_t)

cdef extern from "matrices/lapack.h":
    ctypedef struct tgc_lapack:
        void* syevd[2]
        void* gesdd[2]
        void* geev[2]
        void* gelsy[2]
        void* sytrf[2]
        int (*threads)() noexcept nogil
        void (*set_threads)(int) noexcept nogil

cdef extern from "aligned.h":
    int tgc_loop_aligned(const tg_loop*, void*) noexcept nogil
    int tgc_call_aligned(const tg_call*, void*) noexcept nogil

cdef extern from *:
    """
    extern const char *const tgc_level_names[];
    extern const tgc_kernel *const *const tgc_level_tables[];
    extern const tgc_fingerprint tgc_fingerprints[];
    #if defined(__x86_64__)
    static int tgc_supports(const char *level)
    {
        __builtin_cpu_init();
        if (level[0] == 'b')
            return 1;
        if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
            return 0;
        return level[3] == '2' || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                                   && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                                   && __builtin_cpu_supports("avx512cd"));
    }
    #else
    static int tgc_supports(const char *level) { return level[0] == 'b'; }
    #endif
    """
    const char* const* tgc_level_names
    const tgc_kernel* const* const* tgc_level_tables
    const tgc_fingerprint* tgc_fingerprints
    int tgc_supports(const char*)

# The order of tgc.h's dtype indices.
DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64",
          "float16", "bfloat16", "complex64", "complex128")

cdef const tg_api* core = tg_import_api(2)
cdef dict found = {}
cdef dict made_for = {}
cdef bytes device = b""
cdef str chosen = ""


def levels():
    """Return {level: whether this machine runs it}, the least first."""
    cdef int i = 0
    result = {}
    while tgc_level_names[i] != NULL:
        result[tgc_level_names[i].decode()] = bool(tgc_supports(tgc_level_names[i]))
        i += 1
    return result


def level():
    """Return the instruction-set level in use."""
    return chosen


def open(str name):
    """Choose the level and collect its kernels.

    Raises:
        tangrad.plugin.SettingError: `TANGRAD_CPU_ISA` is unknown or not supported here.
    """
    from tangrad.plugin import SettingError

    global device, chosen
    cdef const tgc_kernel* const* tables
    cdef const tgc_kernel* kernel
    cdef int i, k
    for i, dtype in enumerate(DTYPES):
        if core.dtype_by_name(dtype.encode()) != i:
            raise ImportError(f"tangrad-cpu counts dtype {dtype} as number {i}, and the core does not: reinstall both")
    known = levels()
    forced = os.environ.get("TANGRAD_CPU_ISA")
    if forced is None:
        wanted = [n for n in known if known[n]][-1]
    elif forced not in known:
        raise SettingError(f"TANGRAD_CPU_ISA='{forced}' is no instruction-set level; known are "
                           f"{', '.join(known)}")
    elif not known[forced]:
        raise SettingError(f"TANGRAD_CPU_ISA='{forced}': this machine runs only "
                           f"{', '.join(n for n in known if known[n])}")
    else:
        wanted = forced
    tables = tgc_level_tables[list(known).index(wanted)]
    found.clear()
    i = 0
    while tables[i] != NULL:
        k = 0
        while tables[i][k].op != NULL:
            kernel = &tables[i][k]
            found[(kernel.op.decode(), kernel.dtype.decode())] = <size_t>kernel
            k += 1
        i += 1
    i = 0
    while tgc_fingerprints[i].op != NULL:
        made_for[tgc_fingerprints[i].op.decode()] = tgc_fingerprints[i].value
        i += 1
    device = name.encode()
    chosen = wanted
    offer_threads(tgc_level_names[list(known).index(wanted)])


cdef tg_pool offered


cdef int offer_threads(const char* level) except -1:
    """Let other packages' kernels run on this pool; a core older than that has nowhere to keep it."""
    if core.version < 3:
        return 0
    offered.size, offered.flags = sizeof(tg_pool), 0
    offered.instruction_set, offered.threads, offered.run = level, tgc_threads, tgc_parallel
    return core.install_pool(&offered)


def kernel_for(op, dtype):
    """Enter the kernel of an op for a dtype into the core's table.

    Returns:
        What stands for it in Python, or None if there is no kernel.
    """
    dynamic = DYNAMIC.get(op.definition.key)
    if dynamic is not None:
        return dynamic
    address = found.get((op.definition.key, dtype.name))
    if address is None or not is_made_for(op.definition):
        return None
    if op.definition.key in OF_LAPACK and not knows_lapack():
        return None
    register(op, dtype.name, address)
    return _entered


def is_made_for(definition):
    """Tell whether the kernels are made for this definition of their op; warn if not."""
    if made_for.get(definition.key) == definition.fingerprint:
        return True
    import warnings

    warnings.warn(f"tangrad-cpu was built for another definition of '{definition.key}' than the installed tangrad has, "
                  "so that the op runs on the reference: install versions of both that belong together",
                  RuntimeWarning, stacklevel=2)
    return False


# What calls LAPACK, and is the reference's where NumPy shows none.
OF_LAPACK = ("linalg_eigh", "linalg_eigvalsh", "linalg_svd", "linalg_svdvals", "linalg_eig", "linalg_eigvals",
             "_linalg_gelsy", "_linalg_pinv", "linalg_ldl_factor_ex")


cdef bint knows_lapack() except -1:
    """Enter the addresses of LAPACK's routines, and tell whether there are any."""
    from tangrad.plugin import lapack_address, lapack_threads

    cdef tgc_lapack* routines = <tgc_lapack*>(<const tgc_kernel*><size_t>found[("lapack", "")]).context
    cdef int i
    for i, dtype in enumerate(("float32", "float64")):
        routines.syevd[i] = <void*><size_t>lapack_address("syevd", dtype)
        routines.gesdd[i] = <void*><size_t>lapack_address("gesdd", dtype)
        routines.geev[i] = <void*><size_t>lapack_address("geev", dtype)
        routines.gelsy[i] = <void*><size_t>lapack_address("gelsy", dtype)
        routines.sytrf[i] = <void*><size_t>lapack_address("sytrf", dtype)
        if not (routines.syevd[i] and routines.gesdd[i] and routines.geev[i] and routines.gelsy[i]
                and routines.sytrf[i]):
            return False
    get, put = lapack_threads()
    routines.threads = <int (*)() noexcept nogil><size_t>get
    routines.set_threads = <void (*)(int) noexcept nogil><size_t>put
    return True


include "_dynamic.pxi"


def _entered(*args):
    """Stand for a C kernel where the resolution of kernels asks for a callable."""
    raise RuntimeError("a compiled kernel was called from Python")


cdef int register(object op, str dtype, size_t address) except -1:
    cdef const tgc_kernel* kernel = <const tgc_kernel*>address
    name = dtype.encode()
    if kernel.kind == TGC_ANYWHERE:
        return core.register_kernel_of(<PyObject*>op, device, b"strided", name, <tg_loop_kernel>kernel.function, NULL,
                                       <void*>kernel.context)
    if kernel.kind == TGC_CALL:
        return core.register_kernel_of(<PyObject*>op, device, b"strided", name, NULL, tgc_call_aligned, <void*>kernel)
    return core.register_kernel_of(<PyObject*>op, device, b"strided", name, tgc_loop_aligned, NULL, <void*>kernel)


def register_copies():
    """Register the kernels of `copy_` for all dtypes."""
    cdef const tgc_kernel* kernel
    for (key, dtype), address in found.items():
        if key == "copy_":
            kernel = <const tgc_kernel*><size_t>address
            core.register_loop_kernel(b"copy_", device, b"strided", kernel.dtype, <tg_loop_kernel>kernel.function,
                                      <void*>kernel.context)


def kernels():
    """Return the (op key, dtype) pairs that have a compiled kernel."""
    return list(found)


def get_num_threads():
    """Return how many threads kernels use, the calling one included."""
    return tgc_threads()


def set_num_threads(int threads):
    """Set how many threads kernels use; results do not depend on it."""
    tgc_set_threads(threads)


def fail_scratch_after(int64_t calls):
    """For tests: let the allocation of working memory after `calls` further ones fail; -1 never."""
    tgc_scratch_fail_after(calls)
