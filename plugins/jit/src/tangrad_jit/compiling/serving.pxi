# A call that a graph serves, from the choice among the recordings to the result: the usual case, without Python.
from tangrad import are_deterministic_algorithms_enabled, get_default_device, get_default_dtype, is_grad_enabled, \
    is_inference_mode_enabled
from tangrad.plugin import is_backward_watched, is_intercepted
from tangrad_jit.compiling import stance

cdef dict STANCE = stance.__dict__
cdef object USUAL_STANCE = stance.DEFAULT


cdef class Serving:
    """What of a recording is needed to serve a call; `compiling/executable.py` fills it in.

    Attributes:
        pattern, guards, state: what must hold of arguments, of what the program holds, and of the thread.
        numbers: the numbers that the graph is given. trial: what compares calls with eager's, or None.
        backward: the graph of derivatives, or None.
        _run_forward: takes the inputs and returns the outputs.
        _held: what comes behind what a call gives among the inputs.
        _gradients: (place of an input, tensor whose gradient it is).
        _replaced: tensors whose gradient the run makes anew. _new_gradients: (tensor, place among the outputs).
        _equal, _fixed: which arguments must be one tensor, and which lie at an address.
        _graded: (place of an argument, tensor or place of the argument whose gradient it is).
        identities: which arguments are one object, or held. _overlaps: which must not share memory.
        _asks_numbers: whether `numbers` are asked at all.
        _single, _leaves: where the result is.
        _spent: results whose history the run has used up.
    """
    cdef public Pattern pattern
    cdef public Guards guards
    cdef public tuple state
    cdef public object numbers, trial, backward, _run_forward
    cdef public list _held, _gradients, _replaced, _new_gradients, _equal, _fixed, _graded, _leaves, _spent
    cdef public Identities identities
    cdef public Overlaps _overlaps
    cdef public bint _asks_numbers, _single

    def fits(self, tuple args, dict kwargs):
        """Return what the graph is given of a call if this stands for it, else None.

        Returns:
            The tensors among the arguments, then the numbers.
        """
        return self.given_of(args, kwargs)

    cdef list given_of(self, tuple args, dict kwargs):
        cdef list tensors = self.pattern.match(args, kwargs)
        if tensors is None or not self.guards.hold() or not self.is_of_this_thread():
            return None
        if not self.identities.hold(tensors):
            return None
        for a, b in self._equal:
            if tensors[a] is not tensors[b]:
                return None
        for a, address in self._fixed:
            if tensors[a].data_ptr() != address:
                return None
        for a, owner in self._graded:
            grad = (tensors[owner] if type(owner) is int else owner).grad
            if grad is None or grad.data_ptr() != tensors[a].data_ptr():
                return None
        if self._overlaps is not None and self._overlaps.found(tensors):
            return None
        if self._asks_numbers:
            numbers = self.numbers.take(args, kwargs)
            return None if numbers is None else tensors + <list?>numbers
        return tensors

    cdef bint is_of_this_thread(self) except -1:
        return is_grad_enabled() is self.state[0] and is_inference_mode_enabled() is self.state[1] \
            and get_default_dtype() is self.state[2] and get_default_device() == self.state[3] \
            and are_deterministic_algorithms_enabled() is self.state[4]

    def run(self, list given):
        """Return the result for what `fits` has found."""
        return self.result_of(given)

    cdef object result_of(self, list given):
        cdef list inputs = given + self._held
        for place, owner in self._gradients:
            inputs[place] = owner.grad
        for tensor in self._replaced:
            tensor.grad = None  # its memory is free for the run
        if self.backward is not None:
            outs = self._run_recorded(inputs)
        else:
            outs = self._run_forward(inputs)
            if self._spent:
                self._mark_spent(outs)
        for tensor, at in self._new_gradients:
            tensor.grad = None if at is None else outs[at]
        if not self._single:
            return self._result(outs, inputs)
        kind, item = self._leaves[0]
        return outs[item] if kind == "output" else inputs[item] if kind == "input" else item


cdef class Choosing:
    """The choice of a recording for a call; `compiling/compiled.py` does what is seldom.

    Attributes:
        executables: one per recording, latest used first.
        off: why the function runs as it is, or "".
        settled: it does so in all further calls, whatever they are.
    """
    cdef public list executables
    cdef public str off
    cdef public bint settled
    cdef public object function

    def serve(self, tuple args, dict kwargs):
        """Run the function, by a graph where one fits."""
        cdef Serving executable
        cdef Py_ssize_t k
        cdef list given, executables = self.executables
        if self.settled:
            return self.function(*args, **kwargs)
        if self.off or is_intercepted() or is_backward_watched():
            return self._as_it_is(args, kwargs)
        if PyDict_GetItem(STANCE, "current") != <PyObject*>USUAL_STANCE and stance.current == "force_eager":
            return self.function(*args, **kwargs)
        for k in range(len(executables)):
            executable = <Serving?>executables[k]
            given = executable.given_of(args, kwargs)
            if given is None:
                continue
            if executable._asks_numbers and executable.doubtful(given):
                return self._confirm(executable, given, args, kwargs)
            if k > 1:
                self._put_first(executable)
            if executable.trial is not None:
                return self._execute(executable, given, args, kwargs)
            return executable.result_of(given)
        return self._record(args, kwargs)
