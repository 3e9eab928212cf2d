# The tensor: a strided view of a storage, with one gradient record.

cdef enum:
    REQUIRES_GRAD = 1
    CONTIGUOUS = 2
    CONJ = 4
    NEG = 8
    RETAIN_GRAD = 16
    INFERENCE = 32
    PY_DISPATCH = 64
    NO_GRAD_VIEW = 128      # made as a view while recording was off
    MULTI_VIEW = 256        # one of several views made by one op
    INFERENCE_VIEW = 512    # made as a view in inference mode
    FUNCTION_VIEW = 2048    # made as a view by a Function that nothing was recorded of
    CONSTANT = 1024         # small, and made of an op's own numbers: backward need not free it
    INLINE_DIMS = 5
    MAX_DIMS = 64


cdef class VersionCell:
    """The version of what `.data` detached: counted apart from the storage's."""
    cdef int64_t version


@cython.freelist(64)
@cython.c_api_binop_methods(True)
cdef class Tensor:
    """Tensor(*args, **kwargs)\n--\n\nA multi-dimensional array of one dtype on one device; see the
    function `tensor`."""
    cdef UntypedStorage storage_
    cdef dtype dtype_
    cdef int64_t offset_
    cdef int64_t numel_
    cdef int64_t* shape_
    cdef int64_t* stride_
    cdef int64_t inline_[10]
    cdef int ndim_
    cdef int slot_
    cdef uint32_t flags
    cdef uint32_t output_nr_
    cdef Node grad_fn_
    cdef void* accumulator_          # AccumulateGrad, borrowed: it clears this when it dies
    cdef object grad_
    cdef Tensor base_
    cdef VersionCell version_cell
    cdef int64_t view_version        # version at which grad_fn_ of a view was right
    cdef object hooks_               # None, or the dict of hooks by kind
    cdef object level_               # None, the record of the transform level that wraps it, or LayoutContents
    cdef void* attributes            # the instance's dict, made on first use (see state.h)
    cdef object __weakref__

    # --- geometry

    @property
    def shape(self):
        return tg_make_size(self.ndim_, self.shape_)

    def size(self, dim=None):
        """Return the shape as a Size, or the size of one dimension."""
        if dim is None:
            return tg_make_size(self.ndim_, self.shape_)
        return self.shape_[wrap_dim(op_index(dim), self.ndim_, "size") if self.ndim_ else no_dimension(dim)]

    def stride(self, dim=None):
        """Return the strides in elements as a tuple, or one of them."""
        if self.slot_ != self.storage_.dev.slot and type(self.level_) is LayoutContents:
            told = (<LayoutContents>self.level_).layout.definition.strides(self)
            if told is not None:
                return told if dim is None else told[wrap_dim(op_index(dim), self.ndim_, "stride")]
        if dim is None:
            return tuple(shape_list(self.ndim_, self.stride_))
        return self.stride_[wrap_dim(op_index(dim), self.ndim_, "stride") if self.ndim_ else no_dimension(dim)]

    @property
    def ndim(self):
        return self.ndim_

    def dim(self):
        """Return the number of dimensions."""
        return self.ndim_

    def numel(self):
        """Return the number of elements."""
        return self.numel_

    def storage_offset(self):
        """Return the offset in the storage, in elements."""
        return self.offset_

    def is_contiguous(self, memory_format=None):
        """Return whether elements lie in memory in the order of the format (None: the usual one)."""
        if self.slot_ != self.storage_.dev.slot and type(self.level_) is LayoutContents:
            told = (<LayoutContents>self.level_).layout.definition.is_contiguous(self, memory_format)
            if told is not None:
                return told
        if memory_format is None or memory_format is contiguous_format:
            return bool(self.flags & CONTIGUOUS)
        return is_contiguous_in(self, memory_format)

    @property
    def dtype(self):
        return self.dtype_

    @property
    def device(self):
        return self.storage_.dev.device

    @property
    def layout(self):
        return layout_named((<tuple>_slots[self.slot_])[1])

    @property
    def itemsize(self):
        return self.dtype_.itemsize

    def element_size(self):
        """Return the bytes of one element."""
        return self.dtype_.itemsize

    @property
    def nbytes(self):
        return self.numel_ * self.dtype_.itemsize

    def data_ptr(self):
        """Return handle + offset of the first element, its address on host devices; 0 if there is none."""
        settle(self.storage_)
        return 0 if self.numel_ == 0 or self.storage_.nbytes_ == 0 or self.storage_.dev.type.meta else \
            self.storage_.handle + self.storage_.offset + self.offset_ * self.dtype_.itemsize

    def untyped_storage(self):
        """Return the storage."""
        require_elements(self, "its storage")
        return self.storage_

    def is_floating_point(self):
        """Return whether the dtype is a floating-point one."""
        return self.dtype_.is_floating_point

    def is_complex(self):
        """Return whether the dtype is complex."""
        return self.dtype_.is_complex

    def is_conj(self):
        """Return whether the conjugate flag is set."""
        return bool(self.flags & CONJ)

    def is_neg(self):
        """Return whether the negation flag is set."""
        return bool(self.flags & NEG)

    # --- history

    @property
    def requires_grad(self):
        return requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, value):
        if value is not True and value is not False:
            raise RuntimeError(f"requires_grad must be a bool, not {type(value).__name__}")
        set_requires_grad(self, value)

    @requires_grad.deleter
    def requires_grad(self):
        raise RuntimeError("requires_grad of a tensor cannot be deleted; set it to False")

    def requires_grad_(self, requires_grad=True):
        """Set whether a leaf records operations; returns self."""
        if requires_grad is not True and requires_grad is not False:
            raise TypeError("requires_grad_(): argument 'requires_grad' (position 1) must be bool, "
                            f"not {type(requires_grad).__name__}")
        if standing():
            (<object>tg_tls.intercept).refuse_in_transforms(
                "requires_grad_() (or perhaps using torch.autograd.functional.* APIs)")
        set_requires_grad(self, requires_grad)
        return self

    @property
    def grad(self):
        tell_of_gradient(self)
        if self.grad_ is None and grad_fn_of(self) is not None and not self.flags & RETAIN_GRAD and self.level_ is None:
            warn_non_leaf_grad()
        return self.grad_

    @grad.setter
    def grad(self, value):
        tell_of_gradient(self)
        set_grad(self, value)

    @grad.deleter
    def grad(self):
        tell_of_gradient(self)
        self.grad_ = None

    @property
    def grad_fn(self):
        return shown_node(grad_fn_of(self))

    @property
    def is_leaf(self):
        return grad_fn_of(self) is None

    @property
    def output_nr(self):
        return self.output_nr_

    @property
    def retains_grad(self):
        return bool(self.flags & RETAIN_GRAD)

    @property
    def _version(self):
        if self.flags & INFERENCE:
            raise RuntimeError("Inference tensors do not track version counter.")
        return version_of(self)

    @property
    def _base(self):
        return self.base_

    def _is_view(self):
        return self.base_ is not None

    @property
    def data(self):
        if self.flags & PY_DISPATCH:  # what it holds is known to its class alone
            return lookup_op("detach")(self)
        made = None if self.level_ is None or holds_other(self) else self.level_.data()
        return data_of(self) if made is None else made

    @data.setter
    def data(self, Tensor value not None):
        replace_data(self, value)

    @data.deleter
    def data(self):
        raise RuntimeError("data of a tensor cannot be deleted; set it to other data")

    def detach(self):
        """Return a view without history (shares storage and version)."""
        if tg_tls.intercept != NULL or not exact_tensor(<PyObject*>self) or self.level_ is not None:
            return lookup_op("detach")(self)
        return detached(self)

    def is_inference(self):
        """Return whether the tensor was made in inference mode."""
        return bool(self.flags & INFERENCE)

    def retain_grad(self):
        """Keep the gradient of this non-leaf in `.grad`."""
        retain_grad(self)

    def register_hook(self, hook):
        """Call `hook(grad)` when the gradient is complete; it may return a replacement.

        Raises:
            RuntimeError: the tensor does not require gradients.
        """
        return register_tensor_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook):
        """Call `hook(tensor)` after its gradient was accumulated (leaves only)."""
        if grad_fn_of(self) is not None or not requires_grad(self):
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        return _removable(hooks_of(self).setdefault("post_accumulate", {}), hook)

    @property
    def _backward_hooks(self):
        return None if self.hooks_ is None else (<dict>self.hooks_).get("grad")

    @_backward_hooks.setter
    def _backward_hooks(self, value):
        hooks_of(self)["grad"] = {} if value is None else value

    @_backward_hooks.deleter
    def _backward_hooks(self):
        raise RuntimeError("_backward_hooks of a tensor cannot be deleted; remove hooks by their handles")

    @property
    def _post_accumulate_grad_hooks(self):
        return None if self.hooks_ is None else (<dict>self.hooks_).get("post_accumulate")

    # --- values

    def item(self):
        """Return the only element as a Python number."""
        return tensor_item(self)

    def tolist(self):
        """Return the elements as nested lists of Python numbers (a number for 0-d)."""
        return tensor_tolist(self)

    def __bool__(self):
        if taken(<PyObject*>self):
            found = offer_member("__bool__", (self,))
            if found is not NotImplemented:
                return found
        if self.numel_ == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        if self.numel_ > 1:
            raise RuntimeError(f"Boolean value of Tensor with more than one value is ambiguous "
                               f"([{describe_tensor(self)}]); use .any() or .all()")
        return bool(tensor_item(self))

    def __int__(self):
        if taken(<PyObject*>self):
            found = offer_member("__int__", (self,))
            if found is not NotImplemented:
                return found
        value = only_element(self)
        return int(real_of(value, "int64_t") if isinstance(value, complex) else value)

    def __float__(self):
        if taken(<PyObject*>self):
            found = offer_member("__float__", (self,))
            if found is not NotImplemented:
                return found
        tell_of_scalar(self)
        value = only_element(self)
        return real_of(value, "double") if isinstance(value, complex) else float(value)

    def __complex__(self):
        tell_of_scalar(self)
        return complex(only_element(self))

    def __index__(self):
        if taken(<PyObject*>self):
            found = offer_member("__index__", (self,))
            if found is not NotImplemented:
                return found
        if KIND[self.dtype_.index] > KIND_INT or self.numel_ != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(tensor_item(self))

    def __len__(self):
        if taken(<PyObject*>self):
            found = offer_member("__len__", (self,))
            if found is not NotImplemented:
                return found
        if self.ndim_ == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.shape_[0]

    def __hash__(self):
        return <Py_hash_t>(<size_t><void*>self >> 4)

    def __getitem__(self, index):
        return tensor_getitem(self, index)

    def __setitem__(self, index, value):
        tensor_setitem(self, index, value)

    def __delitem__(self, index):
        raise TypeError("Tensor does not support deleting items")

    def __iter__(self):
        if self.ndim_ == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(lookup_op("unbind")(self, 0))

    def __getattr__(self, name):
        return _find_attribute(self, name)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Run `func` with overrides of subclasses off and give results the class `cls`."""
        return _default_torch_function(cls, func, types, args, kwargs)

    # --- operators

    def __add__(left, right):
        return binary_operator(0, left, right)

    def __sub__(left, right):
        return binary_operator(1, left, right)

    def __mul__(left, right):
        return binary_operator(2, left, right)

    def __truediv__(left, right):
        return binary_operator(3, left, right)

    def __floordiv__(left, right):
        return binary_operator(4, left, right)

    def __mod__(left, right):
        return binary_operator(5, left, right)

    def __pow__(left, right, modulo):
        return binary_operator(6, left, right)

    def __matmul__(left, right):
        return binary_operator(7, left, right)

    def __and__(left, right):
        return binary_operator(8, left, right)

    def __or__(left, right):
        return binary_operator(9, left, right)

    def __xor__(left, right):
        return binary_operator(10, left, right)

    def __lshift__(left, right):
        return binary_operator(11, left, right)

    def __rshift__(left, right):
        return binary_operator(12, left, right)

    def __iadd__(self, other):
        return inplace_operator(0, self, other)

    def __isub__(self, other):
        return inplace_operator(1, self, other)

    def __imul__(self, other):
        return inplace_operator(2, self, other)

    def __itruediv__(self, other):
        return inplace_operator(3, self, other)

    def __ifloordiv__(self, other):
        return inplace_operator(4, self, other)

    def __imod__(self, other):
        return inplace_operator(5, self, other)

    def __ipow__(self, other):
        return inplace_operator(6, self, other)

    def __iand__(self, other):
        return inplace_operator(8, self, other)

    def __ior__(self, other):
        return inplace_operator(9, self, other)

    def __ixor__(self, other):
        return inplace_operator(10, self, other)

    def __ilshift__(self, other):
        return inplace_operator(11, self, other)

    def __irshift__(self, other):
        return inplace_operator(12, self, other)

    def __neg__(self):
        return method_of(lookup_op("neg"))(self)

    def __pos__(self):
        return method_of(lookup_op("positive"))(self)

    def __abs__(self):
        return method_of(lookup_op("abs"))(self)

    def __invert__(self):
        if taken(<PyObject*>self):
            found = offer_member("__invert__", (self,))
            if found is not NotImplemented:
                return found
        if (<Tensor>self).dtype_.kind_ >= KIND_FLOAT:
            raise TypeError(f"~ (operator.invert) is only implemented on integer and Boolean-type tensors, got "
                            f"{(<Tensor>self).dtype_}; compare first, as in ~(x > 0)")
        return lookup_op("bitwise_not")(self)

    def __richcmp__(self, other, int which):
        return binary_operator(13 + which, self, other)

    # --- exchange

    __array_priority__ = 1000  # NumPy's numbers and arrays leave an operator to the tensor beside

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if taken(<PyObject*>self):
            raise BufferError("its class takes over what is read of it: ask __array__")
        fill_buffer(self, buffer, flags)

    def __releasebuffer__(self, Py_buffer* buffer):
        free(buffer.internal)

    def __array__(self, dtype=None, copy=None):
        return _to_array(self, dtype, copy)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return _from_array(array)

    def __dlpack__(self, **kwargs):
        return _to_dlpack(self, kwargs)

    def __dlpack_device__(self):
        return _dlpack_device(self)

    def __reduce_ex__(self, protocol):
        return _reduce_tensor(self, protocol)

    def __deepcopy__(self, memo):
        return _deepcopy_tensor(self, memo)

    def __setstate__(self, state):
        _set_state(self, state)

    def __format__(self, spec):
        if self.ndim_ == 0 and self.level_ is None and not self.storage_.dev.type.meta and exact_tensor(
                <PyObject*>self):
            return format(tensor_item(self), spec)
        return format(repr(self), spec) if not spec else object.__format__(self, spec)

    def __reversed__(self):
        if self.ndim_ == 0:
            return self
        return lookup_op("flip")(self, (0,))

    def __contains__(self, element):
        if taken(<PyObject*>self) or takes_over(<PyObject*>element):
            found = offer_member("__contains__", (self, element))
            if found is not NotImplemented:
                return found
        if isinstance(element, (Tensor, float, int, complex)):
            return bool(lookup_op("any")(lookup_op("eq")(self, element)))
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


cdef class Parameter(Tensor):
    """Parameter(data=None, requires_grad=True)\n--\n\nA tensor that is a parameter of a module: it requires gradients
    by default."""
    pass


cdef void release_geometry(PyObject* x) noexcept:
    if (<Tensor>x).shape_ != (<Tensor>x).inline_ and (<Tensor>x).shape_ != NULL:
        free((<Tensor>x).shape_)


cdef PyTypeObject* TENSOR = <PyTypeObject*>Tensor
cdef PyTypeObject* PARAMETER = <PyTypeObject*>Parameter
