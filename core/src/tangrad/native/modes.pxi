# The thread's switches, and entrances for the Python parts of dispatch and autograd.

cdef extern from "threads.h":
    int tg_ask_threads(object) except -1


def is_grad_enabled():
    """Return whether operations are recorded in this thread."""
    return bool(tg_tls.grad_enabled)


def _set_grad_enabled(bint value):
    """Switch recording; returns the previous state."""
    cdef bint old = tg_tls.grad_enabled
    tg_tls.grad_enabled = value
    return old


def is_inference_mode_enabled():
    """Return whether inference mode is on in this thread."""
    return bool(tg_tls.inference)


def _set_inference(bint value):
    cdef bint old = tg_tls.inference
    tg_tls.inference = value
    return old


def set_intercept(stack, bint more=True, Observers observers=None):
    """Install this thread's stack of interceptors (None: nothing stands between).

    The caller keeps the objects alive while they are installed.

    Args:
        more: whether it holds more than observers. observers: those on it, or None.
    """
    tg_tls.intercept = NULL if stack is None else <void*>stack
    tg_tls.standing = more
    tg_tls.observers = NULL if observers is None else <void*>observers


def leave_thread(stack):
    """Let nothing stand between in this thread any more if it is this stack, which is about to go."""
    if tg_tls.intercept == <void*>stack:
        tg_tls.intercept = tg_tls.observers = tg_tls.finite = NULL


def ask_threads(function):
    """Have the other threads of Python call a function, each at its next call or return, once."""
    tg_ask_threads(function)


def get_intercept():
    """Return this thread's stack of interceptors, or None where it holds none but observers."""
    return <object>tg_tls.intercept if standing() else None


def value_reads():
    """Return how often Python has looked at elements in this thread: `item`, `tolist`, `numpy`, ...

    A tracer that finds more of them than before knows that the program depends on values.
    """
    return tg_tls.reads


def is_intercepted():
    """Return whether anything at all stands between the calls of this thread and their kernels."""
    return tg_tls.intercept != NULL


def dispatch(Op op not None, Op functional not None, tuple args not None, object out):
    """Run a bound call through everything that stands between it and its kernel."""
    return _slow_hook(op, functional, args, out)


def grad_fn_of_tensor(Tensor t not None):
    return grad_fn_of(t)


# --- transform levels: wrappers of tensors -----------------------------------------------------

def wrap_level(Tensor inner not None, object record, shape=None):
    """Return a tensor of a transform level around `inner`.

    It shares the storage (for versions) and carries its own gradient record.

    Args:
        record: object with `.inner` and `.level`.
        shape: the logical shape, where it differs from inner's (a batch dimension hidden).
    """
    cdef Tensor t
    cdef int i, n
    if shape is None:
        t = alias_whole(inner)
    else:
        n = len(shape)
        t = alias_geometry(inner, n, inner.offset_)
        strides = record.strides
        for i in range(n):
            t.shape_[i], t.stride_[i] = shape[i], strides[i]
        finish_alias(t, inner)
    t.flags = (t.flags & ~<uint32_t>(CONJ | NEG)) | (inner.flags & (CONJ | NEG))
    t.level_ = record
    return t


def level_of(t):
    """Return the level record of a tensor, or None."""
    if not isinstance(t, Tensor) or type((<Tensor>t).level_) is LayoutContents:
        return None
    return (<Tensor>t).level_


def contents_of(t):
    """Return the LayoutContents of a tensor of another layout, or None."""
    return (<Tensor>t).level_ if isinstance(t, Tensor) and type((<Tensor>t).level_) is LayoutContents else None


def make_of_layout(layout which not None, dict components, dict metadata, tuple shape, dtype d not None, where):
    """Return a tensor of another layout: a shape, a dtype, a device, and components in place of elements."""
    cdef Tensor t = bare_tensor(d, 0)
    cdef UntypedStorage s = UntypedStorage.__new__(UntypedStorage)
    cdef LayoutContents contents = LayoutContents.__new__(LayoutContents)
    contents.layout, contents.components, contents.metadata = which, components, metadata
    s.dev = runtime_of(where)
    t.storage_, t.level_ = s, contents
    t.slot_ = register_slot(s.dev.type.name, which.name)
    set_logical_shape(t, shape)
    if tg_tls.inference:
        t.flags |= INFERENCE
    return t


cdef int set_logical_shape(Tensor t, tuple shape) except -1:
    cdef int i
    reserve_dims(t, len(shape))
    for i in range(t.ndim_):
        t.shape_[i] = shape[i]
    t.numel_ = count_elements(t.ndim_, t.shape_)
    contiguous_strides(t.ndim_, t.shape_, t.stride_)
    t.flags |= CONTIGUOUS
    return 0


def replace_contents(Tensor t not None, dict components, dict metadata, tuple shape, str writer):
    """Write into a tensor of another layout: give it, and its aliases, other components; counts as a write."""
    cdef int64_t geometry[MAX_DIMS]
    cdef int64_t stride[MAX_DIMS]
    cdef LayoutContents contents = <LayoutContents?>t.level_
    cdef int i
    check_inference(t, writer)
    if tg_tls.grad_enabled:
        check_writable(t, writer, False)
    for i in range(len(shape)):
        geometry[i] = shape[i]
    count_elements(len(shape), geometry)
    contiguous_strides(len(shape), geometry, stride)
    set_geometry(t, len(shape), geometry, stride, 0)
    contents.components, contents.metadata = components, metadata
    bump_version(t, writer)
    return t


def kernel_at(Op op not None, int slot, dtype d not None):
    """Return the Python kernel that is registered for (op, slot, dtype), or None."""
    cdef tg_kernel* entry = NULL
    if slot < op.nrows and op.rows[slot] != NULL:
        entry = op.rows[slot][d.index]
    return None if entry == NULL or entry.kind != KERNEL_PYTHON else <object>entry.callable


def record_call(Op op not None, tuple args, outputs):
    """Record an op whose results were computed elsewhere (a grad level): connect and save."""
    cdef PyObject* flat[MAX_PARAMS]
    cdef int i
    cdef uint64_t needs
    for i in range(op.nparams):
        flat[i] = PyTuple_GET_ITEM(args, i)
    needs = needs_of(op, flat)
    if needs and op.has_rule and tg_tls.grad_enabled:
        node = record_inputs(op, flat, needs)
        connect_outputs(node, outputs)
    return outputs


def needs_gradient(Op op not None, tuple args):
    """Return the bit mask of the op's tensor parameters that require gradients."""
    cdef PyObject* flat[MAX_PARAMS]
    cdef int i
    for i in range(op.nparams):
        flat[i] = PyTuple_GET_ITEM(args, i)
    return needs_of(op, flat)


def mark_as_view(Tensor t not None, Tensor base not None, bint multiple=False):
    """Make t a differentiable view of base, one of several if `multiple` (used by levels)."""
    mark_view(t, base)
    if multiple:
        t.flags |= MULTI_VIEW
    return t


def saves_first_input(Op op not None, tuple args):
    """Return whether recording this call would save the op's first tensor."""
    cdef uint64_t needs
    if not op.has_rule or not tg_tls.grad_enabled:
        return False
    needs = needs_gradient(op, args)
    return bool(needs and rule_for(op, needs).saves_first_input)


def record_write(Op op not None, tuple args, Tensor t not None, str name, bint overwrites=False):
    """Begin an in-place write by a level: refuse what loses history, save what backward needs.

    Args:
        op: the op that writes. args: its arguments. t: the tensor written to.
        name: the op's name for messages.
        overwrites: nothing of t's old values remains.

    Returns:
        The node for `finish_write`, or None where nothing is recorded.
    """
    cdef PyObject* flat[MAX_PARAMS]
    cdef uint64_t needs
    cdef int i
    check_inference(t, name)
    if not tg_tls.grad_enabled:
        return None
    for i in range(op.nparams):
        flat[i] = PyTuple_GET_ITEM(args, i)
    needs = needs_of(op, flat)
    check_writable(t, name, needs != 0)
    if not needs or not op.has_rule:
        return None
    if overwrites:
        needs &= ~<uint64_t>1
    return record_inputs(op, flat, needs)


def finish_write(Node node, Tensor t not None):
    """End an in-place write by a level: t's history is now the writer's."""
    if node is not None:
        rebase_history(t, node)


def adopt(Tensor t not None, Tensor other not None):
    """Let t become what `other` is: geometry, level and history (in-place forms of views in levels)."""
    set_geometry(t, other.ndim_, other.shape_, other.stride_, other.offset_)
    t.level_ = other.level_
    t.grad_fn_, t.output_nr_ = other.grad_fn_, other.output_nr_
    if other.base_ is not t:  # nor does a tensor become a view of itself
        t.base_ = other.base_
    t.view_version = other.view_version
    t.flags = (t.flags & ~<uint32_t>(REQUIRES_GRAD | CONJ | NEG)) | (
        other.flags & (REQUIRES_GRAD | CONJ | NEG | MULTI_VIEW))
    return t


def plain_alias(Tensor t not None):
    """Return an alias of the same geometry without history."""
    return alias_whole(t)


def with_own_version(Tensor t not None):
    """Let writes to a tensor count for itself alone, not for others with its memory; returns it."""
    t.version_cell = VersionCell.__new__(VersionCell)
    return t


def view_of_whole(Tensor t not None, bint recorded):
    """Return a view of all of t; unless recorded, as no_grad makes one: it must not be written, nor its base."""
    cdef Tensor view = alias_whole(t)
    mark_view(view, t)
    if not recorded:
        view.flags |= NO_GRAD_VIEW
    return view


def returned_by_function(Tensor t not None):
    """Note that a Function returns t, which may be a view that it made, and is not recorded."""
    if t.flags & NO_GRAD_VIEW:
        t.flags |= FUNCTION_VIEW


def as_class(Tensor t not None, cls):
    """Return an alias of t that is an instance of a subclass."""
    cdef Tensor new
    if not issubclass(cls, Tensor):
        raise TypeError(f"as_subclass expects a subclass of Tensor, not {cls!r}")
    new = tensor_like_type(<PyTypeObject*>cls)
    copy_fields(new, t)
    return new


cdef int copy_fields(Tensor new, Tensor t) except -1:
    new.dtype_, new.slot_, new.storage_ = t.dtype_, t.slot_, t.storage_
    reserve_dims(new, t.ndim_)
    memcpy(new.shape_, t.shape_, t.ndim_ * sizeof(int64_t))
    memcpy(new.stride_, t.stride_, t.ndim_ * sizeof(int64_t))
    new.offset_, new.numel_, new.flags = t.offset_, t.numel_, t.flags & (CONTIGUOUS | CONJ | NEG | INFERENCE)
    new.version_cell, new.level_ = t.version_cell, t.level_
    return 0


def make_wrapper(cls, tuple shape, tuple strides, int64_t offset, dtype d not None, where, bint requires_grad=False,
                 layout which=None):
    """Return an instance of a subclass with geometry but without memory (see _make_wrapper_subclass)."""
    cdef Tensor t = tensor_like_type(<PyTypeObject*>cls)
    cdef UntypedStorage s = UntypedStorage.__new__(UntypedStorage)
    cdef int i
    s.dev = runtime_of(where)
    t.dtype_, t.slot_, t.storage_ = d, s.dev.slot, s
    if which is not None and which is not strided:
        t.slot_ = register_slot(s.dev.type.name, which.name)
    reserve_dims(t, len(shape))
    for i in range(len(shape)):
        t.shape_[i], t.stride_[i] = shape[i], strides[i]
    t.offset_ = offset
    t.numel_ = count_elements(t.ndim_, t.shape_)
    if not s.dev.type.meta:
        s.stated = bytes_reached(t.ndim_, t.shape_, t.stride_, offset, d.itemsize)
    t.flags = PY_DISPATCH | (CONTIGUOUS if geometry_contiguous(t.ndim_, t.shape_, t.stride_) else 0)
    if requires_grad:
        t.flags |= REQUIRES_GRAD
    return t


def share_history(Tensor new not None, Tensor t not None):
    """Give an alias the gradient record of t (same grad_fn, requires_grad and base)."""
    cdef uint32_t nr = 0
    new.grad_fn_ = grad_fn_of(t)
    new.output_nr_ = t.output_nr_
    new.base_, new.view_version = t.base_, t.view_version
    new.flags |= t.flags & (REQUIRES_GRAD | NO_GRAD_VIEW | MULTI_VIEW)
    return new


def stand_in(Tensor copy not None, Tensor t not None):
    """Let a copy of t's values take t's place in a node: same edge, no base of its own."""
    with_history_of(copy, t)
    copy.flags |= t.flags & REQUIRES_GRAD
    return copy


def increment_version(Tensor t not None):
    """Count a write that happened elsewhere."""
    bump_version(t, "increment_version")


def set_flags(Tensor t not None, bint conj, bint neg):
    """Set the lazy conjugation and negation flags of a fresh view."""
    t.flags = (t.flags & ~<uint32_t>(CONJ | NEG)) | (CONJ if conj else 0) | (NEG if neg else 0)
    return t


def resolve_flags(Tensor t not None):
    """Return t with conjugation and negation materialised."""
    return resolved(t)


def copy_data(Tensor dst not None, Tensor src not None):
    """Copy values without recording (any devices, any dtypes, broadcast)."""
    copy_into(dst, src)
    return dst


def copy_checked(Tensor dst not None, source not None, non_blocking=False):
    """Do as `copy_data` does where the source can be broadcast to dst, which holds each element once.

    Args:
        source: a tensor or a number.

    Raises:
        RuntimeError: otherwise, or the source is another dense view of the same memory.
    """
    cdef Tensor src = <Tensor>source if isinstance(source, Tensor) else number_tensor(source, dst)
    cdef int i, lead = dst.ndim_ - src.ndim_
    cdef bint fits = lead >= 0
    for i in range(src.ndim_ if fits else 0):
        fits = fits and (src.shape_[i] == 1 or src.shape_[i] == dst.shape_[lead + i])
    if not fits:
        raise RuntimeError(f"copy_: the shape {shape_list(src.ndim_, src.shape_)} of the source cannot be broadcast to "
                           f"{shape_list(dst.ndim_, dst.shape_)} of the destination")
    for i in range(dst.ndim_ if dst.numel_ else 0):
        if dst.stride_[i] == 0 and dst.shape_[i] > 1:
            raise overlap_error(lookup_op("copy_"), dst)
    if src.storage_ is dst.storage_ and shares_extent(src, dst) \
            and not (src.offset_ == dst.offset_ and same_geometry(src, dst)):
        raise shared_error(lookup_op("copy_"), src, dst)
    if non_blocking and dst.storage_.dev is not src.storage_.dev:
        from tangrad.tensor.transfers import copy_started
        if copy_started(dst, src):
            return dst
    copy_into(dst, src)
    return dst


def copy_with(Tensor t not None, dtype d, where, memory_format=None):
    """Return a copy with another dtype, device or memory format, without recording."""
    cdef DeviceRuntime dev = t.storage_.dev if where is None else runtime_of(where)
    cdef Tensor o
    cdef int index = t.dtype_.index if d is None else d.index
    if memory_format is None or memory_format is preserve_format:
        return converted(t, index, dev)
    if memory_format is contiguous_format:
        o = empty_contiguous(t.ndim_, t.shape_, index, dev)
    else:
        o = empty_in_format(t, memory_format, index, dev)
    copy_into(o, t)
    return o


cdef Tensor empty_in_format(Tensor t, format, int index, DeviceRuntime dev):
    shape = shape_list(t.ndim_, t.shape_)
    return empty_strided(shape, format_strides(shape, format), <dtype>DTYPES[index], dev.device)


def format_strides(shape, format):
    """Return the strides of a shape in a memory format.

    Raises:
        RuntimeError: the format needs another number of dimensions.
    """
    if format is channels_last:
        order = (0, 2, 3, 1)
    elif format is channels_last_3d:
        order = (0, 2, 3, 4, 1)
    else:
        order = tuple(range(len(shape)))
    if len(order) != len(shape):
        raise RuntimeError(f"required rank {len(order)} tensor to use {format.name} format, got shape {list(shape)}")
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def new_parameter(Tensor data not None, bint requires_grad, cls=Parameter):
    """Return a Parameter sharing the data."""
    cdef Tensor t = tensor_like_type(<PyTypeObject*>cls)
    copy_fields(t, data)
    if requires_grad:
        set_requires_grad(t, True)
    return t


cdef extern from "Python.h":
    void Py_SET_TYPE(object, PyTypeObject*)


def become_plain(Tensor t not None):
    """Make an object of a Python subclass one of Parameter, or of Tensor, which it inherits.

    Python assigns `__class__` between classes made by Python only. An object that adds nothing
    has the layout of its base, so the same exchange of types is sound.

    Raises:
        TypeError: the subclass adds fields.
    """
    cdef object old = type(t)
    cdef PyTypeObject* plain = PARAMETER if isinstance(t, Parameter) else TENSOR
    if Py_TYPE(t) == plain:
        return
    if old.__basicsize__ != (<object>plain).__basicsize__ or old.__dictoffset__ != (<object>plain).__dictoffset__:
        raise TypeError(f"objects of {old!r} have fields that {<object>plain!r} lacks; give the class __slots__ = ()")
    Py_SET_TYPE(t, plain)
    Py_DECREF(old)  # what the object held: those of a class made by Python hold their class


def allocator_of(where):
    """Return the CachingAllocator of a device (None for memory-less ones)."""
    return runtime_of(where).allocator


def private_allocator(where):
    """Return another allocator of a device's memory, which shares nothing with the device's own."""
    cdef DeviceRuntime runtime = runtime_of(where)
    if runtime.type.host or runtime.type.meta:
        raise RuntimeError(f"device '{where}' has no memory of its own")
    return CachingAllocator(_IndexedDriver(runtime.type.driver, runtime.device.index))


def use_allocator(where, CachingAllocator allocator not None):
    """Have all new memory of a device come from an allocator, and return the one before.

    The caller keeps both: a thread may be taking memory of the one before. What it has handed out
    goes back to it.
    """
    cdef DeviceRuntime runtime = runtime_of(where)
    before = runtime.allocator
    runtime.allocator = allocator
    return before


def device_types():
    """Return {name: DeviceType} of the registered device types."""
    return dict(_device_types)


def reference_counts(Tensor t not None):
    """Return (references to the storage, base exists) for tests of lifetime."""
    return Py_REFCNT(<PyObject*>t.storage_), t.base_ is not None


def forget_history(Tensor t not None):
    """Make t a leaf that does not require gradients (Tensor.detach_)."""
    if t.grad_fn_ is not None:
        node_hooks(t.grad_fn_).setdefault("detached", set()).add(t.output_nr_)
    t.grad_fn_ = None
    t.output_nr_ = 0
    t.flags &= ~<uint32_t>(REQUIRES_GRAD | RETAIN_GRAD)


def requiring_grad(Tensor t not None, bint requires=True):
    """Set whether t requires gradients, within transforms of functions too, and return it."""
    set_requires_grad(t, requires)
    return t


def sum_gradient_to(Tensor t not None, tuple shape):
    """Sum over broadcast dimensions so that the result has the given shape (Tensor.sum_to_size)."""
    return sum_to_shape(t, shape, None)
