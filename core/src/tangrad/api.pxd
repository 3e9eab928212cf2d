"""The C function table for backends in Cython: `from tangrad cimport api`.

`native/tangrad_abi.h` says what every function and field means, and how the table grows. Compile
with `tangrad.plugin.include_directory()` among the include directories, take the table once with
`tg_import_api`, and keep the pointer.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "native/tangrad_abi.h":
    enum:
        TG_ABI_VERSION
        TG_MAX_OPERANDS
        TG_MAX_PARAMS
        TG_MAX_DIMS
    const char* TG_CAPSULE_NAME
    ctypedef union tg_scalar:
        double f
        int64_t i
        uint64_t u
        double c[2]
        unsigned char bytes[16]
    ctypedef struct tg_operand:
        void* data
        uint64_t handle
        int64_t offset
        int32_t dtype
        int32_t is_scalar
        const int64_t* strides
        tg_scalar value
    ctypedef struct tg_loop:
        int32_t version
        int32_t ndim
        int32_t nout
        int32_t nin
        int32_t compute_dtype
        int32_t device_index
        int64_t numel
        const int64_t* shape
        int32_t nreduced
        int32_t nparams
        const tg_scalar* params
        tg_operand operands[20]
    ctypedef int (*tg_loop_kernel)(const tg_loop*, void*) noexcept nogil
    ctypedef struct tg_view:
        void* data
        uint64_t handle
        int64_t offset
        int32_t dtype
        int32_t ndim
        const int64_t* shape
        const int64_t* strides
        int64_t numel
    enum:
        TG_ARG_NONE
        TG_ARG_TENSOR
        TG_ARG_TENSORS
        TG_ARG_INT
        TG_ARG_INTS
        TG_ARG_FLOAT
        TG_ARG_BOOL
        TG_ARG_TEXT
        TG_ARG_DTYPE
        TG_ARG_OTHER
        TG_ARG_COMPLEX
        TG_DECLINED
    ctypedef union tg_argument_value:
        int64_t i
        double f
        const int64_t* ints
        const tg_view* tensors
        const char* text
        const double* parts
    ctypedef struct tg_argument:
        int32_t kind
        int32_t count
        tg_argument_value value
    ctypedef struct tg_call:
        int32_t version
        int32_t nout
        int32_t nargs
        int32_t device_index
        const tg_view* outs
        const tg_argument* args
    ctypedef int (*tg_call_kernel)(const tg_call*, void*) noexcept nogil
    ctypedef void* (*tg_enter)(void*, PyObject*) except? NULL
    ctypedef void (*tg_leave)(void*, PyObject*, void*) noexcept
    ctypedef struct tg_api:
        int32_t version
        int32_t size
        int (*register_loop_kernel)(const char*, const char*, const char*, const char*, tg_loop_kernel, void*) except -1
        int (*is_tensor)(PyObject*) noexcept
        int (*ndim)(PyObject*) noexcept
        const int64_t* (*shape)(PyObject*) noexcept
        const int64_t* (*strides)(PyObject*) noexcept
        int64_t (*numel)(PyObject*) noexcept
        int (*dtype_index)(PyObject*) noexcept
        void* (*host_data)(PyObject*) noexcept
        int (*dtype_by_name)(const char*) noexcept
        PyObject* (*empty)(int, const int64_t*, int, PyObject*) except NULL
        int (*push_interceptor)(tg_enter, tg_leave, void*) except -1
        int (*pop_interceptor)(void*) except -1
        int (*register_call_kernel)(const char*, const char*, const char*, const char*, tg_call_kernel, void*) except -1
        int (*register_kernel_of)(PyObject*, const char*, const char*, const char*, tg_loop_kernel, tg_call_kernel,
                                  void*) except -1
    const tg_api* tg_import_api(int needed) except NULL
