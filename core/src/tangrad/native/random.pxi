# Random state: where a stream stands, and what a call like one before takes of it.

cdef class Stream:
    """Hold where a counter-based random stream stands: its seed, and how many counters are used up.

    No method runs another program's code half way, so no two threads are given the same counters.

    Attributes:
        sequential: the engine that makes numbers one after the other instead, or None.
        device_type: name of the type of device that it is for.
    """
    cdef uint64_t seed_
    cdef uint64_t offset_
    cdef public object sequential, device_type

    def place(self, uint64_t seed, uint64_t offset):
        """Continue the stream of a seed at a counter."""
        self.seed_, self.offset_ = seed, offset

    def standing(self):
        """Return (seed, offset)."""
        return self.seed_, self.offset_

    def reserve(self, uint64_t counters):
        """Return (seed, offset) and use up counters from there, modulo 2**64."""
        cdef uint64_t start = self.offset_
        self.offset_ = start + counters
        return self.seed_, start


cdef Stream stream_of(Op op, DeviceRuntime dev, PyObject** flat):
    """The generator that a call draws from, or None where the definition has to say what is wrong."""
    given = <object>flat[op.generator_param]
    if given is not None:
        if isinstance(given, Stream) and (<Stream>given).device_type == dev.device.type:
            return <Stream>given
        return None
    if dev.stream is None:
        dev.stream = op.definition.generator_of(tuple_of(flat, op.nparams))
    return <Stream>dev.stream


cdef tuple drawn_as_before(Op op, PyObject** flat):
    """Take (seed, offset) for a call that there is a plan for; None where the definition has to be asked."""
    cdef tg_plan_key key
    cdef tg_plan* plan
    cdef Tensor first
    cdef Stream stream
    cdef int64_t counters
    if not op.plannable or op.generator_param < 0 or not plan_key(op, flat, &key):
        return None
    plan = plan_of(op, &key)
    if plan == NULL:
        return None
    first = first_of(op, flat)
    if first is None:
        return None
    counters = plan.counters
    stream = stream_of(op, first.storage_.dev, flat)
    if stream is None or stream.sequential is not None:
        return None
    if counters < 0:
        counters = op.definition.counters(tuple_of(flat, op.nparams))
        # Programs have run: another plan may be kept in this place by now.
        plan = plan_of(op, &key)
        if plan != NULL and key.reads == tg_tls.reads:
            plan.counters = counters
    return stream.reserve(counters)
