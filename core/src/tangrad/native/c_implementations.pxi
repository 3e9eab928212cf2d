# C implementations of ops, which answer in place of a definition's Python, for the calls that programs make
# most. A definition names it (`c_implementation="matmul"`) and the op reads its arguments where the
# definition's signature has them; every other call, and every error, is the definition's.

_SIZED = "int[] size, dtype? dtype, layout? layout, device? device, bool requires_grad"
_DRAWN = _SIZED + ", generator? generator, Tensor? out"
_BESIDE = _SIZED + ", Tensor self"
_LIKE = "Tensor input, dtype? dtype, layout? layout, device? device, bool requires_grad, memory_format? memory_format"
_PLAIN = "plain sizes, a strided layout, no gradient asked for and no out="
_FLOATING = "floating tensors of one dtype and device with nothing left to resolve, in front of a kernel in C"
_ALL = "all calls"

# {name: (kind of the op, number, the parameters that it reads, the calls that it answers)}
C_IMPLEMENTATIONS = {
    "matmul": ("composite", SHORT_MATMUL, "Tensor self, Tensor other",
               "two matrices, a matrix by a vector, two stacks of equal length"),
    "softmax": ("composite", SHORT_SOFTMAX, "Tensor self, dim dim, dtype? dtype", "no dtype is asked for"),
    "log_softmax": ("composite", SHORT_LOG_SOFTMAX, "Tensor self, dim dim, dtype? dtype", "no dtype is asked for"),
    "reshape": ("composite", SHORT_RESHAPE, "Tensor self, int[] shape", "a contiguous tensor and a size that fits"),
    "flatten": ("composite", SHORT_FLATTEN, "Tensor self, dim start_dim, dim end_dim",
                "a contiguous tensor of which dimensions are merged"),
    "contiguous": ("composite", SHORT_CONTIGUOUS, "Tensor self, memory_format? memory_format",
                   "a contiguous tensor, no format is asked for"),
    "stack": ("composite", SHORT_STACK, "Tensor[] tensors, dim dim",
              "contiguous tensors of one shape, along dimension 0"),
    "masked_fill": ("composite", SHORT_MASKED_FILL, "Tensor self, Tensor mask, Operand value",
                    "a floating tensor, a mask of bools, a number that it holds; also in place"),
    "zero": ("composite", SHORT_ZERO, "Tensor self", _ALL),
    "movedim": ("composite", SHORT_MOVEDIM, "Tensor self, dim[] source, dim[] destination",
                "as many sources as destinations, of a tensor with dimensions"),
    "empty": ("composite", SHORT_EMPTY, _SIZED + ", memory_format? memory_format, Tensor? out", _PLAIN),
    "zeros": ("composite", SHORT_ZEROS, _SIZED + ", Tensor? out", _PLAIN),
    "ones": ("composite", SHORT_ONES, _SIZED + ", Tensor? out", _PLAIN),
    "rand": ("composite", SHORT_RAND, _DRAWN, _PLAIN),
    "randn": ("composite", SHORT_RANDN, _DRAWN, _PLAIN),
    "randint_below": ("composite", SHORT_RANDINT_BELOW, _DRAWN + ", int high", _PLAIN),
    "randint_between": ("composite", SHORT_RANDINT, _DRAWN + ", int high, int low", _PLAIN),
    "zeros_like": ("composite", SHORT_ZEROS_LIKE, _LIKE, "a contiguous tensor, at most another dtype"),
    "ones_like": ("composite", SHORT_ONES_LIKE, _LIKE, "a contiguous tensor, at most another dtype"),
    "new_empty": ("composite", SHORT_NEW_EMPTY, _BESIDE, _PLAIN),
    "new_zeros": ("composite", SHORT_NEW_ZEROS, _BESIDE, _PLAIN),
    "new_ones": ("composite", SHORT_NEW_ONES, _BESIDE, _PLAIN),
    "power": ("pointwise", SHORT_POWER, "Operand self, Operand exponent",
              "a tensor by a number for which there is a product or root"),
    "mm": ("kernel", PLAIN_MM, "Tensor self, Tensor mat2", _FLOATING),
    "bmm": ("kernel", PLAIN_BMM, "Tensor self, Tensor mat2", _FLOATING),
    "mv": ("kernel", PLAIN_MV, "Tensor self, Tensor vec", _FLOATING),
    "dot": ("kernel", PLAIN_DOT, "Tensor self, Tensor tensor", _FLOATING),
    "linear": ("kernel", PLAIN_LINEAR, "Tensor input, Tensor weight, Tensor? bias", _FLOATING),
    "same_shape": ("kernel", PLAIN_SAME, "Tensor self", _FLOATING),
    "alike": ("kernel", PLAIN_ALIKE, "Tensor grad_output, Tensor output", _FLOATING),
    "layer_norm": ("kernel", PLAIN_LAYER_NORM, "Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias",
                   _FLOATING),
    "cat": ("kernel", PLAIN_CAT, "Tensor[] tensors, dim dim", "contiguous tensors of one dtype, device and rank"),
    "nll_loss": ("kernel", PLAIN_NLL, "Tensor self, Tensor target, Tensor? weight", "int64 classes, no weights"),
    "index_select": ("kernel", PLAIN_INDEX_SELECT, "Tensor self, dim dim, Tensor index",
                     "an index of one dimension, int64"),
    "gather": ("kernel", PLAIN_GATHER, "Tensor self, dim dim, Tensor index", "an int64 index that fits"),
    "scatter_add": ("kernel", PLAIN_SCATTER, "Tensor self, dim dim, Tensor index, Tensor src",
                    "an int64 index that fits, values of the same dtype"),
    "to_copy": ("kernel", PLAIN_COPY, "Tensor self, dtype? dtype, device? device, memory_format? memory_format",
                "another dtype on the same device"),
    "transpose": ("view", VIEW_TRANSPOSE, "Tensor self, dim dim0, dim dim1", _ALL),
    "t": ("view", VIEW_T, "Tensor self", _ALL),
    "select": ("view", VIEW_SELECT, "Tensor self, dim dim, int index", _ALL),
    "slice": ("view", VIEW_SLICE, "Tensor self, dim dim, int? start, int? end, int step", _ALL),
    "unsqueeze": ("view", VIEW_UNSQUEEZE, "Tensor self, dim dim", _ALL),
    "permute": ("view", VIEW_PERMUTE, "Tensor self, dim[] dims", _ALL),
    "expand": ("view", VIEW_EXPAND, "Tensor self, int[] size", _ALL),
    "view": ("view", VIEW_VIEW, "Tensor self, int[] size", "plain sizes"),
    "as_strided": ("view", VIEW_STRIDED, "Tensor self, int[] size, int[] stride, int? storage_offset",
                   "a geometry within the storage"),
    "squeeze": ("view", VIEW_SQUEEZE, "Tensor self, dim[]? dim", _ALL),
    "diagonal": ("view", VIEW_DIAGONAL, "Tensor self, int offset, dim dim1, dim dim2", _ALL),
    "unfold": ("view", VIEW_UNFOLD, "Tensor self, dim dimension, int size, int step", "windows that fit"),
    "detach": ("view", VIEW_DETACH, "Tensor self", _ALL),
    "view_as_real": ("view", VIEW_PARTS, "Tensor self", "complex numbers that are not conjugated"),
    "split_size": ("view", VIEW_SPLIT, "Tensor self, int split_size_or_sections, dim dim", "pieces that fit"),
    "split_with_sizes": ("view", VIEW_PIECES, "Tensor self, int[] split_size_or_sections, dim dim", "pieces that fit"),
    "unbind": ("view", VIEW_UNBIND, "Tensor self, dim dim", "a tensor with dimensions"),
}

# Ops that C calls by place, and the parameters that it gives: {op: names, the first ones}.
CALLED = {
    "mm": "self mat2", "mv": "self vec", "bmm": "self mat2", "_softmax": "self dim", "_log_softmax": "self dim",
    "_unsafe_view": "self size", "permute": "self dims", "fill_": "self value", "view_size": "self size",
    "_masked_fill": "self mask value", "cat": "tensors dim", "random_between_": "self from_ to generator seed offset",
    "uniform_": "self from_ to generator seed offset", "normal_": "self mean std generator seed offset",
    "select": "self dim index", "slice": "self dim start end step", "unsqueeze": "self dim", "index": "self indices",
    "as_strided": "self size stride storage_offset", "copy_": "self src non_blocking", "_to_copy": "self dtype device",
    "_index_put": "self indices values accumulate", "square": "self", "_cube": "self", "sqrt": "self", "rsqrt": "self",
    "reciprocal": "self", "_bool_power": "self",
}


def c_implementations():
    """Return {name: (kind of op, the parameters that it reads, the calls that it answers)} of all C implementations."""
    return {name: (kind, reads, calls) for name, (kind, number, reads, calls) in C_IMPLEMENTATIONS.items()}


def called_ops():
    """Return {op: the names of the parameters that C gives to it by place}."""
    return {name: tuple(names.split()) for name, names in CALLED.items()}


def use_c_implementation(Op op not None, bint used):
    """Say whether C answers the calls of an op that it is for, or the definition all of them."""
    if op.c_implementation is not None:
        set_c_implementation(op, C_IMPLEMENTATIONS[op.c_implementation][1] if used else 0)


cdef int set_c_implementation(Op op, int number) except -1:
    if op.kind_ == OP_VIEW:
        op.native_view = number
    elif op.kind_ == OP_KERNEL:
        op.plain = number
    else:
        op.shortcut = number
    return 0


cdef int find_c_implementation(Op op, list params) except -1:
    """Find the places of the arguments that it reads.

    Raises:
        TypeError: there is no such C implementation, or it was not written for this kind of op or signature.
    """
    cdef int k
    op.c_implementation = op.definition.c_implementation
    if op.c_implementation is None:
        return 0
    if op.c_implementation not in C_IMPLEMENTATIONS:
        raise TypeError(f"'{op.name}': there is no C implementation '{op.c_implementation}'")
    kind, number, reads, _ = C_IMPLEMENTATIONS[op.c_implementation]
    if kind != op.kind:
        raise TypeError(f"'{op.name}' is of kind {op.kind}: its C implementation '{op.c_implementation}' stands in for "
                        f"a {kind}")
    types = {p[0]: p[1] for p in params}
    for k, declared in enumerate(reads.split(", ")):
        type_, name = declared.split(" ")
        if types.get(name) != type_:
            raise TypeError(f"'{op.name}': its C implementation '{op.c_implementation}' (native/c_implementations.pxi) "
                            f"reads '{declared}', which the signature does not have; change both together")
        op.at[k] = op.names.index(name)
    return set_c_implementation(op, number)


cdef inline PyObject* given(Op op, PyObject** flat, int k) noexcept:
    """The argument for the C implementation's parameter number k."""
    return flat[op.at[k]]
