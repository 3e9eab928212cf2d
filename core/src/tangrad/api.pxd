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
    ctypedef struct tg_observed:
        int32_t size
        int32_t nargs
        PyObject* op
        PyObject** args
        PyObject* out
        PyObject* result
    ctypedef struct tg_observer:
        int32_t size
        int32_t flags
        void* context
        int (*enter)(void*, const tg_observed*, void**) except -1
        void (*leave)(void*, const tg_observed*, void*) noexcept
        int (*enter_node)(void*, PyObject*, void**) except -1
        void (*leave_node)(void*, PyObject*, void*) noexcept
    ctypedef struct tg_memory_change:
        int32_t size
        int32_t sign
        int64_t allocator
        uint64_t address
        int64_t nbytes
        int64_t allocated
    ctypedef struct tg_memory_watch:
        int32_t size
        int32_t flags
        void* context
        void (*changed)(void*, const tg_memory_change*) noexcept nogil
    ctypedef struct tg_queued_operand:
        PyObject* storage
        PyObject* number
        char* address
        int64_t waits
        int64_t lies
    ctypedef struct tg_queued:
        int32_t size
        int32_t nin
        PyObject* op
        tg_loop_kernel kernel
        void* context
        int64_t numel
        int32_t dtype
        int32_t device_index
        int64_t columns
        tg_queued_operand operands[9]
        int32_t folds
        int32_t nparams
        tg_scalar params[2]
    ctypedef struct tg_queue:
        int32_t size
        int32_t flags
        int (*offer)(const tg_queued*) noexcept
        void (*settle)() noexcept
    ctypedef struct tg_scratch:
        void* data
        uint64_t handle
        int64_t offset
        int64_t nbytes
        void* block
    ctypedef void (*tg_task)(int64_t, void*) noexcept nogil
    ctypedef void (*tg_range)(int64_t, int64_t, void*) noexcept nogil
    ctypedef struct tg_pool:
        int32_t size
        int32_t flags
        const char* instruction_set
        int (*threads)() noexcept nogil
        void (*run)(int64_t, tg_task, void*) noexcept nogil
    enum:
        TG_LIES_FULL
        TG_LIES_ONCE
        TG_LIES_IN_EACH_ROW
        TG_LIES_ONE_PER_ROW
        TG_LATER_BYTES
        TG_QUEUE_PLACES
    enum:
        TG_KERNEL_LOOP
        TG_KERNEL_PYTHON
        TG_KERNEL_CALL
    ctypedef struct tg_found_kernel:
        int32_t kind
        int32_t reserved
        tg_loop_kernel loop
        tg_call_kernel call
        void* context
        PyObject* callable
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
        void* (*device)(const char*, int) except NULL
        void* (*device_of)(PyObject*) noexcept
        int (*current_stream)(void*, uint64_t*) except -1 nogil
        int (*scratch)(void*, size_t, uint64_t, tg_scratch*) except -1 nogil
        void (*release_scratch)(tg_scratch*) noexcept nogil
        int (*install_pool)(const tg_pool*) except -1
        const tg_pool* (*pool)() noexcept nogil
        void (*parallel_for)(int64_t, int64_t, int64_t, tg_range, void*) noexcept nogil
        PyObject* (*op)(const char*) except NULL
        const char* (*op_name)(PyObject*) except NULL
        int (*op_number)(PyObject*) noexcept
        int (*find_kernel)(PyObject*, const char*, const char*, const char*, tg_found_kernel*) except -1
        int (*push_observer)(const tg_observer*) except -1
        int (*pop_observer)(const tg_observer*) except -1
        uint64_t (*nodes_made)() noexcept
        uint64_t (*node_number)(PyObject*) noexcept
        PyObject* (*node_op)(PyObject*) noexcept
        PyObject* (*node_name)(PyObject*) except NULL
        int (*watch_memory)(const tg_memory_watch*) except -1
        int (*unwatch_memory)(const tg_memory_watch*) except -1
        const tg_queue* (*offer_to)(const tg_queue*) noexcept
        char* (*set_waiting)(PyObject*, int64_t, char*) noexcept
    const tg_api* tg_import_api(int needed) except NULL
