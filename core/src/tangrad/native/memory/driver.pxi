# A driver written in Python, as the allocator in C calls it. Included by allocator.pxi.

_EVENT_METHODS = ("record_event", "query_event", "synchronize_event")


cdef class _PythonDriver:
    """Keep a driver written in Python, and what its methods raised, for the C allocator."""

    cdef object driver, allocate, release, record_event, query_event, synchronize_event
    cdef object destroy_event
    cdef dict raised  # thread -> exception of the allocator call in progress

    def __cinit__(self, driver):
        self.driver = driver
        self.allocate = driver.allocate
        self.release = driver.release
        self.record_event = getattr(driver, "record_event", None)
        self.query_event = getattr(driver, "query_event", None)
        self.synchronize_event = getattr(driver, "synchronize_event", None)
        self.destroy_event = getattr(driver, "destroy_event", None)
        self.raised = {}
        missing = [name for name in _EVENT_METHODS if getattr(driver, name, None) is None]
        if 0 < len(missing) < len(_EVENT_METHODS):
            raise TypeError(
                f"CachingAllocator: {type(driver).__name__} has streams but no method "
                f"{', '.join(missing)}; a driver has all of {', '.join(_EVENT_METHODS)} or none"
            )

    cdef tg_driver table(self) noexcept:
        cdef tg_driver table
        memset(&table, 0, sizeof(table))
        table.ctx = <void *>self
        table.allocate = _driver_allocate
        table.release = _driver_release
        table.close = _driver_close
        if self.record_event is not None:
            table.record_event = _driver_record_event
            table.query_event = _driver_query_event
            table.synchronize_event = _driver_synchronize_event
        if self.destroy_event is not None:
            table.destroy_event = _driver_destroy_event
        return table

    cdef int keep(self, object error) except -1:
        """Keep the exception to be raised; memory errors are the least telling."""
        thread = PyThread_get_thread_ident()
        if not isinstance(error, MemoryError) or thread not in self.raised:
            self.raised[thread] = error
        return 0

    cdef object take(self):
        return self.raised.pop(PyThread_get_thread_ident(), None)


# The driver may be called while an exception is on its way, which has to survive the call.
cdef struct _PendingError:
    PyObject *kind
    PyObject *value
    PyObject *traceback


cdef int _driver_allocate(void *ctx, size_t nbytes, tg_handle *out) noexcept with gil:
    cdef _PythonDriver self = <_PythonDriver>ctx
    cdef _PendingError pending
    PyErr_Fetch(&pending.kind, &pending.value, &pending.traceback)
    cdef int rc = TG_OK
    try:
        out[0] = self.allocate(nbytes)
        self.take()
    except MemoryError as error:
        self.keep(error)
        rc = TG_ENOMEM
    except BaseException as error:
        self.keep(error)
        rc = TG_EDRIVER
    PyErr_Restore(pending.kind, pending.value, pending.traceback)
    return rc


cdef void _driver_release(void *ctx, tg_handle handle, size_t nbytes) noexcept with gil:
    cdef _PythonDriver self = <_PythonDriver>ctx
    cdef _PendingError pending
    PyErr_Fetch(&pending.kind, &pending.value, &pending.traceback)
    try:
        self.release(handle, nbytes)
    except BaseException as error:
        _report_unraisable(error, self.release)
    PyErr_Restore(pending.kind, pending.value, pending.traceback)


cdef int _driver_record_event(void *ctx, uint64_t stream, uint64_t *event) noexcept with gil:
    cdef _PythonDriver self = <_PythonDriver>ctx
    cdef _PendingError pending
    PyErr_Fetch(&pending.kind, &pending.value, &pending.traceback)
    cdef int rc = TG_OK
    try:
        event[0] = self.record_event(stream)
    except BaseException as error:
        self.keep(error)
        rc = TG_EDRIVER
    PyErr_Restore(pending.kind, pending.value, pending.traceback)
    return rc


cdef int _driver_query_event(void *ctx, uint64_t event) noexcept with gil:
    cdef _PythonDriver self = <_PythonDriver>ctx
    cdef _PendingError pending
    PyErr_Fetch(&pending.kind, &pending.value, &pending.traceback)
    cdef int rc = 0
    try:
        rc = bool(self.query_event(event))
    except BaseException as error:
        self.keep(error)
        rc = TG_EDRIVER
    PyErr_Restore(pending.kind, pending.value, pending.traceback)
    return rc


cdef int _driver_synchronize_event(void *ctx, uint64_t event) noexcept with gil:
    cdef _PythonDriver self = <_PythonDriver>ctx
    cdef _PendingError pending
    PyErr_Fetch(&pending.kind, &pending.value, &pending.traceback)
    cdef int rc = TG_OK
    try:
        self.synchronize_event(event)
    except BaseException as error:
        self.keep(error)
        rc = TG_EDRIVER
    PyErr_Restore(pending.kind, pending.value, pending.traceback)
    return rc


cdef void _driver_destroy_event(void *ctx, uint64_t event) noexcept with gil:
    cdef _PythonDriver self = <_PythonDriver>ctx
    cdef _PendingError pending
    PyErr_Fetch(&pending.kind, &pending.value, &pending.traceback)
    try:
        self.destroy_event(event)
    except BaseException as error:
        _report_unraisable(error, self.destroy_event)
    PyErr_Restore(pending.kind, pending.value, pending.traceback)


cdef void _driver_close(void *ctx) noexcept with gil:
    cdef _PendingError pending
    PyErr_Fetch(&pending.kind, &pending.value, &pending.traceback)
    Py_DECREF(<_PythonDriver>ctx)
    PyErr_Restore(pending.kind, pending.value, pending.traceback)


cdef void _report_unraisable(object error, object where) noexcept:
    PyErr_SetObject(type(error), error)
    PyErr_WriteUnraisable(where)
