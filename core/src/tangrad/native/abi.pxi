# The versioned C function table, and the interceptors that C code pushes.

cdef tg_api API

cdef int register_c_kernel(Op op, const char* device_name, const char* layout_name, const char* dt,
                           tg_loop_kernel fn, tg_call_kernel call, void* context) except -1:
    """Enter a C kernel into an op's table; refuses the form of kernel that the op is never called by."""
    cdef tg_kernel* entry
    cdef bint loops = op.kind_ == OP_POINTWISE or op.kind_ == OP_REDUCTION or op.loops
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
    return <size_t>c.context if c.table == NULL else <size_t>c.table


# --- version 3 ---------------------------------------------------------------------------------

cdef int api_push_observer(const tg_observer* observer) except -1 with gil:
    from tangrad.dispatch.intercept import push_observer
    cdef CInterceptor c = CInterceptor.__new__(CInterceptor)
    if (observer.enter == NULL or observer.leave == NULL
            or (observer.enter_node == NULL) != (observer.leave_node == NULL)):
        raise ValueError("push_observer: an observer has `enter` and `leave`, and both or none of `enter_node` and "
                         "`leave_node`")
    c.table, c.context = observer, observer.context
    push_observer(c)
    return 0


cdef int api_pop_observer(const tg_observer* observer) except -1 with gil:
    from tangrad.dispatch.intercept import pop_c_observer
    pop_c_observer(<size_t>observer)
    return 0


cdef void* api_device(const char* kind, int index) except NULL with gil:
    # The registry of devices keeps what it has opened.
    cdef DeviceRuntime found = runtime_of(device((<bytes>kind).decode(), index))
    return <void*>found


cdef void* api_device_of(PyObject* t) noexcept:
    return <void*>(<Tensor>t).storage_.dev


cdef int api_current_stream(void* where, uint64_t* stream) except -1 nogil:
    stream[0] = 0
    if (<DeviceRuntime>where).type.host or (<DeviceRuntime>where).type.meta:
        return 0
    return ask_current_stream(<PyObject*>where, stream)


cdef int ask_current_stream(PyObject* where, uint64_t* stream) except -1 with gil:
    stream[0] = (<DeviceRuntime>where).type.driver.current_stream((<DeviceRuntime>where).index)
    return 0


cdef int api_scratch(void* where, size_t nbytes, uint64_t stream, tg_scratch* made) except -1 nogil:
    cdef tg_block* block = NULL
    cdef int status
    if (<DeviceRuntime>where).type.meta:
        return refuse_scratch(<PyObject*>where, TG_OK, nbytes)
    status = tg_allocate((<DeviceRuntime>where).allocator.ptr, nbytes, stream, &block)
    if status != TG_OK:
        return refuse_scratch(<PyObject*>where, status, nbytes)
    made.handle, made.offset, made.nbytes, made.block = block.handle, <int64_t>block.offset, <int64_t>block.size, block
    made.data = <char*><size_t>block.handle + block.offset if (<DeviceRuntime>where).type.host else NULL
    return 0


cdef int refuse_scratch(PyObject* where, int status, size_t nbytes) except -1 with gil:
    if (<DeviceRuntime>where).allocator is None:
        raise RuntimeError(f"a tensor on {(<DeviceRuntime>where).device} has no memory, and neither has a kernel there")
    (<DeviceRuntime>where).allocator.check(status, "allocate", nbytes)
    return 0


cdef void api_release_scratch(tg_scratch* scratch) noexcept nogil:
    if scratch.block != NULL:
        tg_release((<tg_block*>scratch.block).owner, <tg_block*>scratch.block)
        scratch.block = NULL


cdef int one_thread() noexcept nogil:
    return 1


cdef void run_in_line(int64_t tasks, tg_task task, void* context) noexcept nogil:
    cdef int64_t i
    for i in range(tasks):
        task(i, context)


cdef tg_pool serial_pool
serial_pool.size, serial_pool.flags = sizeof(tg_pool), 0
serial_pool.instruction_set = b"baseline"
serial_pool.threads, serial_pool.run = one_thread, run_in_line
cdef const tg_pool* host_pool = &serial_pool


cdef int api_install_pool(const tg_pool* pool) except -1 with gil:
    global host_pool
    if pool.threads == NULL or pool.run == NULL or pool.instruction_set == NULL:
        raise ValueError("install_pool: a pool has `instruction_set`, `threads` and `run`")
    host_pool = pool
    return 0


cdef const tg_pool* api_pool() noexcept nogil:
    return host_pool


cdef struct tg_pieces:
    int64_t begin, end, grain
    tg_range body
    void* context


cdef void run_piece(int64_t index, void* context) noexcept nogil:
    cdef tg_pieces* p = <tg_pieces*>context
    cdef int64_t begin = p.begin + index * p.grain
    p.body(begin, begin + p.grain if p.end - begin > p.grain else p.end, p.context)


cdef void api_parallel_for(int64_t begin, int64_t end, int64_t grain, tg_range body, void* context) noexcept nogil:
    cdef tg_pieces p
    if end <= begin:
        return
    p.begin, p.end, p.grain, p.body, p.context = begin, end, grain if grain > 0 else 1, body, context
    host_pool.run((end - begin - 1) // p.grain + 1, run_piece, &p)


cdef PyObject* api_op(const char* name) except NULL with gil:
    cdef Op found = op_with_kernels(name)
    return <PyObject*>found


cdef const char* api_op_name(PyObject* op) except NULL:
    return PyUnicode_AsUTF8((<Op>op).title)


cdef int api_op_number(PyObject* op) noexcept:
    return (<Op>op).number


cdef int api_find_kernel(PyObject* op, const char* device_name, const char* layout_name, const char* dt,
                         tg_found_kernel* found) except -1 with gil:
    cdef DeviceType kind = _find_device_type((<bytes>device_name).decode())
    cdef int slot = register_slot(kind.name, (<bytes>layout_name).decode())
    cdef tg_kernel* kernel
    if (<Op?>op).kind_ == OP_VIEW or (<Op>op).kind_ == OP_COMPOSITE or (<Op>op).kind_ == OP_OVERLOAD:
        raise TypeError(f"'{(<Op>op).title}' is an op of kind {(<Op>op).kind}, which has no kernels")
    kernel = find_kernel(<Op>op, slot, dtype_by_name((<bytes>dt).decode()).index)
    found.kind, found.reserved = kernel.kind, 0
    found.loop, found.call, found.context, found.callable = kernel.fn, kernel.call, kernel.context, kernel.callable
    return 0


cdef uint64_t api_nodes_made() noexcept:
    return node_counter


cdef uint64_t api_node_number(PyObject* node) noexcept:
    return (<Node>node).seq


cdef PyObject* api_node_op(PyObject* node) noexcept:
    return <PyObject*>(<Node>node).op if (<Node>node).op is not None else NULL


cdef PyObject* api_node_name(PyObject* node) except NULL:
    name = node_name(<Node>node)
    Py_INCREF(name)
    return <PyObject*>name


cdef void tell_change(void* context, const tg_allocator* allocator, int sign, const tg_block* block,
                      int64_t allocated) noexcept nogil:
    cdef const tg_memory_watch* watch = <const tg_memory_watch*>context
    cdef tg_memory_change change
    change.size, change.sign = sizeof(tg_memory_change), sign
    change.allocator, change.allocated = tg_allocator_number(allocator), allocated
    change.address, change.nbytes = block.handle + block.offset, <int64_t>block.size
    watch.changed(watch.context, &change)


cdef int api_watch_memory(const tg_memory_watch* watch) except -1 with gil:
    if tg_watch(tell_change, <void*>watch) != TG_OK:
        raise RuntimeError("watch_memory: four watchers of memory are there already")
    return 0


cdef int api_unwatch_memory(const tg_memory_watch* watch) except -1 with gil:
    if tg_unwatch(tell_change, <void*>watch) != TG_OK:
        raise RuntimeError("unwatch_memory: this watcher is not there")
    return 0


cdef const tg_queue* api_offer_to(const tg_queue* queue) noexcept:
    global work_queue
    cdef const tg_queue* before = <const tg_queue*>tg_tls.queue
    if queue != NULL:
        work_queue = queue
    tg_tls.queue = queue
    return before


cdef char* api_set_waiting(PyObject* storage, int64_t waits, char* spare) noexcept:
    cdef UntypedStorage s = <UntypedStorage>storage
    s.waits = waits
    if waits:
        s.data = NULL
    elif s.handle == 0 and storage_take(s, s.dev.home_stream) != 0:
        s.handle, s.data = <uint64_t><size_t>spare, spare
    else:
        s.data = <char*>(s.handle + s.offset)
    return <char*>(s.handle + s.offset)


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
API.device = api_device
API.device_of = api_device_of
API.current_stream = api_current_stream
API.scratch = api_scratch
API.release_scratch = api_release_scratch
API.install_pool = api_install_pool
API.pool = api_pool
API.parallel_for = api_parallel_for
API.op = api_op
API.op_name = api_op_name
API.op_number = api_op_number
API.find_kernel = api_find_kernel
API.push_observer = api_push_observer
API.pop_observer = api_pop_observer
API.nodes_made = api_nodes_made
API.node_number = api_node_number
API.node_op = api_node_op
API.node_name = api_node_name
API.watch_memory = api_watch_memory
API.unwatch_memory = api_unwatch_memory
API.offer_to = api_offer_to
API.set_waiting = api_set_waiting
_API = PyCapsule_New(&API, TG_CAPSULE_NAME, NULL)
