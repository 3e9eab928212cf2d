# The versioned C function table, and the interceptors that C code pushes.

cdef tg_api API

cdef int register_c_kernel(Op op, const char* device_name, const char* layout_name, const char* dt,
                           tg_loop_kernel fn, tg_call_kernel call, void* context) except -1:
    """Enter a C kernel into an op's table; refuses the form of kernel that the op is never called by."""
    cdef tg_kernel* entry
    cdef bint loops = op.kind_ == OP_POINTWISE or op.kind_ == OP_REDUCTION or op.name == "copy_"
    if op.kind_ == OP_VIEW or op.kind_ == OP_COMPOSITE:
        raise TypeError(f"'{op.title}' is an op of kind {op.kind}, which has no kernels")
    if loops != (fn != NULL) or loops == (call != NULL):
        raise TypeError(f"'{op.title}' is an op of kind {op.kind}: its C kernel is a "
                        f"{'loop' if loops else 'call'} kernel")
    entry = kernel_entry(op, register_slot((<bytes>device_name).decode(), (<bytes>layout_name).decode()),
                         dtype_by_name((<bytes>dt).decode()).index, True)
    Py_XDECREF(entry.callable)
    entry.kind = KERNEL_C if loops else KERNEL_CALL
    entry.fn, entry.call, entry.context, entry.callable = fn, call, context, NULL
    return 0


cdef Op op_with_kernels(const char* name):
    cdef Op op = lookup_op((<bytes>name).decode())
    while op.kind_ == OP_OVERLOAD:
        op = op.overloads[0]
    return op


cdef int api_register_loop_kernel(const char* op, const char* device_name, const char* layout_name, const char* dt,
                                  tg_loop_kernel fn, void* context) except -1 with gil:
    return register_c_kernel(op_with_kernels(op), device_name, layout_name, dt, fn, NULL, context)


cdef int api_register_call_kernel(const char* op, const char* device_name, const char* layout_name, const char* dt,
                                  tg_call_kernel call, void* context) except -1 with gil:
    return register_c_kernel(op_with_kernels(op), device_name, layout_name, dt, NULL, call, context)


cdef int api_register_kernel_of(PyObject* op, const char* device_name, const char* layout_name, const char* dt,
                                tg_loop_kernel fn, tg_call_kernel call, void* context) except -1 with gil:
    return register_c_kernel(<Op?>op, device_name, layout_name, dt, fn, call, context)


cdef int api_is_tensor(PyObject* x) noexcept:
    return isinstance(<object>x, Tensor)


cdef int api_ndim(PyObject* t) noexcept:
    return (<Tensor>t).ndim_


cdef const int64_t* api_shape(PyObject* t) noexcept:
    return (<Tensor>t).shape_


cdef const int64_t* api_strides(PyObject* t) noexcept:
    return (<Tensor>t).stride_


cdef int64_t api_numel(PyObject* t) noexcept:
    return (<Tensor>t).numel_


cdef int api_dtype_index(PyObject* t) noexcept:
    return (<Tensor>t).dtype_.index


cdef void* api_host_data(PyObject* t) noexcept:
    return host_pointer(<Tensor>t)


cdef int api_dtype_by_name(const char* name) noexcept with gil:
    found = _dtype_names.get((<bytes>name).decode())
    return -1 if found is None else (<dtype>found).index


cdef PyObject* api_empty(int ndim, const int64_t* shape, int dtype_index, PyObject* like) except NULL:
    result = empty_contiguous(ndim, shape, dtype_index, (<Tensor>like).storage_.dev)
    Py_INCREF(result)
    return <PyObject*>result


cdef class CInterceptor:
    """A pair of C functions around every op of a thread."""
    cdef tg_enter enter_
    cdef tg_leave leave_
    cdef void* context

    def enter(self, op):
        return <size_t>self.enter_(self.context, <PyObject*>op)

    def leave(self, op, token):
        self.leave_(self.context, <PyObject*>op, <void*><size_t>token)


cdef int api_push_interceptor(tg_enter enter, tg_leave leave, void* context) except -1 with gil:
    from tangrad.dispatch.intercept import push_observer
    cdef CInterceptor c = CInterceptor.__new__(CInterceptor)
    c.enter_, c.leave_, c.context = enter, leave, context
    push_observer(c)
    return 0


cdef int api_pop_interceptor(void* context) except -1 with gil:
    from tangrad.dispatch.intercept import pop_c_observer
    pop_c_observer(<size_t>context)
    return 0


def _c_interceptor_context(CInterceptor c):
    return <size_t>c.context


API.version = TG_ABI_VERSION
API.size = sizeof(tg_api)
API.register_loop_kernel = api_register_loop_kernel
API.is_tensor = api_is_tensor
API.ndim = api_ndim
API.shape = api_shape
API.strides = api_strides
API.numel = api_numel
API.dtype_index = api_dtype_index
API.host_data = api_host_data
API.dtype_by_name = api_dtype_by_name
API.empty = api_empty
API.push_interceptor = api_push_interceptor
API.pop_interceptor = api_pop_interceptor
API.register_call_kernel = api_register_call_kernel
API.register_kernel_of = api_register_kernel_of
_API = PyCapsule_New(&API, TG_CAPSULE_NAME, NULL)
