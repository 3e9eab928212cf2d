# The forms of an op: in place, and as a method of Tensor.

def make_inplace(Op functional, str name):
    """Build the in-place form of an op: the result is written to its first tensor."""
    cdef Op op = Op.__new__(Op)
    op.vectorcall = <void*>op_vectorcall
    op.number = next_op_number()
    op.definition = functional.definition
    op.name, op.node_name, op.kind_, op.functional = name, functional.node_name, functional.kind_, functional
    op.title = name
    op.old_form = functional.old_form
    op.rules = {}
    op.written = -1
    op.overloads = ()
    if functional.kind_ == OP_OVERLOAD:
        op.overloads = tuple([(<Op>o).inplace for o in functional.overloads if (<Op>o).inplace is not None])
    functional.inplace = op
    return op


cdef class OpMethod(Op):
    """A method of Tensor that computes an op: `__torch_function__` tells it from the function.

    Made by `method_of`; kernels and rules are the op's, which `op` is.
    """
    cdef readonly Op op

    @property
    def __doc__(self):
        return self.op.__doc__

    def __repr__(self):
        return f"<method {self.name} of Tensor>"

    def __reduce__(self):
        return getattr, (Tensor, self.name)

    def kernels(self):
        """Return those of the op."""
        return self.op.kernels()


cpdef OpMethod method_of(Op op):
    """Return the method of Tensor that computes an op, always the same."""
    cdef OpMethod method
    if op.method_ is None:
        method = OpMethod.__new__(OpMethod)
        method.vectorcall = <void*>method_vectorcall
        method.op, method.definition, method.name, method.title = op, op.definition, op.name, op.title
        method.node_name, method.kind_, method.functional, method.inplace = \
            op.node_name, op.kind_, op.functional, op.inplace
        method.overloads, method.names, method.varargs = op.overloads, op.names, op.varargs
        method.takes_out, method.return_type = op.takes_out, op.return_type
        method.c_implementation = op.c_implementation
        op.method_ = method
    return op.method_
