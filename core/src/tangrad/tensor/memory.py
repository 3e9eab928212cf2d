"""Methods of Tensor about its memory: geometry, storage, elements one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tangrad import _C
from tangrad.tensor.on_storage import storage_as

# Whether new memory is filled with what stands out: see `settings.use_deterministic_algorithms`.
fills_memory = False


def _lookup(name: str) -> Any:
    return _C.lookup_op(name)


def fill_new(t: Any) -> Any:
    """Fill new memory: NaN, or the largest integer, or True."""
    if t.is_meta:
        return t
    if t.is_floating_point() or t.is_complex():
        return t.fill_(float("nan"))
    if t.dtype is _C.dtype_by_name("bool"):
        return t.fill_(True)
    from tangrad.tensor.finfo import iinfo

    return t.fill_(iinfo(t.dtype).max)


def new_memory(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """Return a tensor that nobody wrote, filled if that is wished."""
    made = _C.empty(shape, dtype, device)
    return fill_new(made) if fills_memory else made


def _resize(t: Any, shape: tuple[int, ...]) -> None:
    """Give the tensor a dense shape; what its storage gains is filled if that is wished."""
    if not fills_memory:
        _C.resize(t, shape)
        return
    before = t.untyped_storage().nbytes()
    _C.resize(t, shape)
    storage = t.untyped_storage()
    first = before // t.element_size()
    count = storage.nbytes() // t.element_size() - first
    if count > 0:
        empty = _C.empty((0,), t.dtype, t.device)
        fill_new(_C.set_storage(empty, storage, first, (count,), (1,)))


def set_(
    self: Any, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> _C.Tensor:
    """Point the tensor at the storage of another (or at a storage) with a geometry.

    Raises:
        RuntimeError: the source has another dtype, the geometry is none, or it is the tensor's own
            and the storage does not reach so far.
    """
    if source is None:
        empty = _C.empty((0,), self.dtype, self.device)
        return _C.set_storage(self, empty.untyped_storage(), 0, (0,), (1,))
    if isinstance(source, _C.Tensor):
        if source.dtype is not self.dtype:
            raise RuntimeError(
                f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}"
            )
        size = tuple(source.shape) if size is None else tuple(size)
        stride = source.stride() if stride is None and size == tuple(source.shape) else stride
        storage_offset = source.storage_offset() + storage_offset
        source = source.untyped_storage()
    source = storage_as("set_", source, self.dtype)
    size = (source.nbytes() // self.element_size(),) if size is None else tuple(size)
    if stride is None:
        stride = _C.format_strides(size, _C.contiguous_format)
    if size == tuple(self.shape) and tuple(stride) == self.stride():
        _require_reach(self, source, storage_offset)
    return _C.set_storage(self, source, storage_offset, size, tuple(stride))


def _require_reach(t: Any, storage: Any, offset: int) -> None:
    """Refuse an offset at which a storage does not hold a tensor, whose geometry stays.

    Only another geometry makes a storage grow: an offset alone is more likely wrong than meant.
    """
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    needed = (offset + last + 1) * t.element_size() if t.numel() else 0
    if t.device.type != "meta" and needed > storage.nbytes():
        raise RuntimeError(
            f"setStorage: sizes {list(t.shape)}, strides {list(t.stride())}, storage offset "
            f"{offset}, and itemsize {t.element_size()} requiring a storage size of {needed} are "
            f"out of bounds for storage of size {storage.nbytes()}; call storage.resize_() first"
        )


def _sizes(given: tuple[Any, ...], name: str) -> tuple[int, ...]:
    if not given:
        raise TypeError(f"{name}() missing 1 required positional arguments: 'size'")
    first = given[0]
    return tuple(first) if len(given) == 1 and isinstance(first, (tuple, list)) else tuple(given)


def resize_(self: Any, *size: Any, memory_format: Any = None) -> _C.Tensor:
    """Give the tensor another shape, dense in a memory format, growing its storage where needed.

    Raises:
        RuntimeError: the tensor requires a gradient, a size is negative, or the memory format is
            `preserve_format`.
    """
    shape = _sizes(size, "resize_")
    if any(n < 0 for n in shape):
        raise RuntimeError(f"resize_: Trying to create tensor with negative dimension: {shape}")
    if memory_format is _C.preserve_format:
        raise RuntimeError("Unsupported memory format: preserve_format, for there is no source")
    if memory_format is None and tuple(self.shape) == shape and not self.requires_grad:
        return self  # with its strides, whatever they are
    if _C.level_of(self) is not None:
        if memory_format not in (None, _C.contiguous_format):
            raise RuntimeError("resize_: inside a transform only contiguous_format is supported")
        return _C.level_of(self).level.resize(self, shape)
    _resize(self, shape)
    if memory_format is None or memory_format is _C.contiguous_format:
        return self
    stride = tuple(_C.format_strides(shape, memory_format))
    return _C.set_storage(self, self.untyped_storage(), self.storage_offset(), shape, stride)


def resize_as_(self: Any, the_template: Any, *, memory_format: Any = None) -> _C.Tensor:
    """Resize to the shape of another tensor, in its layout for `preserve_format`."""
    if self.layout is not _C.strided:
        return self.resize_as_sparse_(the_template)
    shape = tuple(the_template.shape)
    if memory_format is not _C.preserve_format:
        return resize_(self, shape, memory_format=memory_format)
    stride = tuple(_lookup("empty_like")(the_template).stride())
    _resize(self, shape)
    return _C.set_storage(self, self.untyped_storage(), self.storage_offset(), shape, stride)


def resize(self: Any, *sizes: Any) -> _C.Tensor:
    """View the tensor in another shape, as `view` does; an old name of it."""
    return self.view(_sizes(sizes, "resize"))


def resize_as(self: Any, tensor: Any) -> _C.Tensor:
    """View the tensor in the shape of another, as `view_as` does; an old name of it."""
    return self.view(tuple(tensor.shape))


def _ambiguous(self: Any) -> bool:
    stride = self.stride()
    same = any(a == b for a, b in pairwise(stride))
    return same or any(n == 1 for n in self.shape)


def dim_order(self: Any, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """Return the dimensions as they lie in memory, the one with the largest stride first.

    Args:
        ambiguity_check: True refuses tensors that several orders fit; so does a list of memory
            formats, unless exactly one of them fits.

    Raises:
        RuntimeError: the order is ambiguous.
        TypeError: the check is neither a bool nor a list of memory formats.
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or any(
        not isinstance(f, _C.memory_format) for f in formats
    ):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    if ambiguity_check is not False and _ambiguous(self):
        fitting = [f for f in formats if self.is_contiguous(memory_format=f)]
        if len(fitting) != 1:
            raise RuntimeError(
                "The tensor does not have unique dim order, or cannot map to exact one of the "
                f"given memory formats: shape {list(self.shape)}, strides {list(self.stride())}"
            )
    contiguous = self.is_contiguous()
    channels_last = self.ndim == 4 and self.is_contiguous(memory_format=_C.channels_last)
    if contiguous and not channels_last:
        return tuple(range(self.ndim))
    if channels_last and not contiguous:
        return 0, 2, 3, 1
    shape, stride = tuple(self.shape), self.stride()
    order = _order(shape, stride)
    if ambiguity_check is not False and any(
        _goes_outside(shape, stride, b, a) is not True or stride[a] == stride[b]
        for a, b in pairwise(order)
    ):
        raise RuntimeError(
            f"The tensor does not have unique dim order: shape {list(shape)}, strides "
            f"{list(stride)}"
        )
    return order


def _goes_outside(shape: Sequence[int], stride: Sequence[int], a: int, b: int) -> bool | None:
    """Tell whether dimension b has the larger stride, and so comes before a; None: either way."""
    if stride[a] == 0 or stride[b] == 0:
        return None
    if stride[a] != stride[b]:
        return stride[b] > stride[a]
    return True if shape[a] < shape[b] else None


def _order(shape: tuple[int, ...], stride: Sequence[int]) -> tuple[int, ...]:
    order = list(range(len(shape)))
    for i in range(len(order) - 2, -1, -1):
        moving = i
        for j in range(i + 1, len(order)):
            verdict = _goes_outside(shape, stride, order[moving], order[j])
            if verdict:
                order[moving], order[j] = order[j], order[moving]
                moving = j
            elif verdict is not None:
                break
    return tuple(order)


def suggested_format(self: Any) -> Any:
    """Return the memory format that results take over: channels last where strides lie so."""
    order = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}.get(self.ndim)
    if order is None or self.is_contiguous():
        return _C.contiguous_format
    shape, stride = self.shape, self.stride()
    least = 1
    for d in order:
        # As PyTorch, which sees no order in a single channel of which the batch follows at once.
        if shape[d] == 0 or stride[d] < least or (d == 0 and least == stride[1]):
            return _C.contiguous_format
        least = stride[d] * max(shape[d], 1)
    return _C.channels_last if self.ndim == 4 else _C.channels_last_3d


def is_nonzero(self: Any) -> bool:
    """Return whether the single element is not zero.

    Raises:
        RuntimeError: the tensor has not exactly one element.
    """
    if self.numel() == 0:
        raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
    return bool(self)


def const_data_ptr(self: Any) -> int:
    """Return the address of the first element, for reading."""
    pointer: int = self.data_ptr()
    return pointer


def storage(self: Any) -> Any:
    """Return the storage as elements of the tensor's dtype."""
    from tangrad.tensor.storages import TypedStorage

    return TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True)


def storage_type(self: Any) -> type:
    """Return the class that names storages of the tensor's dtype."""
    from tangrad.tensor.storages import class_of

    return class_of(self.dtype)


def record_stream(self: Any, s: Any) -> None:
    """Keep the memory, after its release, until what stream `s` has been given is done.

    Raises:
        RuntimeError: `s` is no stream, or the device has none.
    """
    number = getattr(s, "stream_id", None)
    if number is None:
        raise RuntimeError(
            f"record_stream(): argument 's' must be a Stream, not {type(s).__name__}"
        )
    _C.record_stream(self, number)


def _grad_dtype(self: Any) -> Any:
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors")
    return self.dtype


def _set_grad_dtype(self: Any, dtype: Any) -> None:
    if dtype is not _grad_dtype(self):
        raise NotImplementedError(
            f"gradients have the dtype of their tensor, {self.dtype}; a grad_dtype of {dtype} is "
            "not supported"
        )


# Elements one by one


def _check_elementwise(self: Any, name: str, others: Sequence[Any]) -> None:
    if self.requires_grad or any(getattr(other, "requires_grad", False) for other in others):
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() "
            "instead."
        )
    for other in others:
        if not isinstance(other, _C.Tensor) or other.dtype is not self.dtype:
            kind = other.type() if isinstance(other, _C.Tensor) else type(other).__name__
            raise TypeError(f"{name}: expected {self.type()} for its tensors (got {kind})")


def _replace(self: Any, name: str, others: Sequence[Any], function: Callable[..., Any]) -> Any:
    _check_elementwise(self, name, others)
    shape = tuple(self.shape)
    columns = [t.expand(shape).reshape(-1).tolist() for t in (self, *others)]
    from tangrad.tensor.construct import tensor

    values = [_number(function(*row), self.dtype) for row in zip(*columns, strict=True)]
    _C.copy_data(self, tensor(values, dtype=self.dtype).reshape(shape))
    return self


def _number(value: Any, dtype: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str):
        raise TypeError(f"expected a number for each element of {dtype}, got the str {value!r}")
    whole = not (dtype.is_floating_point or dtype.is_complex or dtype.name == "bool")
    return int(value) if whole else value


def apply_(self: Any, callable: Callable[[Any], Any]) -> _C.Tensor:
    """Replace each element x by callable(x); slow, on the host only."""
    return _replace(self, "apply_", (), callable)


def map_(self: Any, tensor: Any, callable: Callable[[Any, Any], Any]) -> _C.Tensor:
    """Replace each element x by callable(x, y), y of a second tensor; slow, on the host only."""
    return _replace(self, "map_", (tensor,), callable)


def map2_(self: Any, x: Any, y: Any, callable: Callable[[Any, Any, Any], Any]) -> _C.Tensor:
    """Replace each element by callable(element, x, y); slow, on the host only."""
    return _replace(self, "map2_", (x, y), callable)


TABLE: dict[str, Any] = {
    "set_": set_,
    "resize_": resize_,
    "resize_as_": resize_as_,
    "resize": resize,
    "resize_as": resize_as,
    "dim_order": dim_order,
    "is_nonzero": is_nonzero,
    "const_data_ptr": const_data_ptr,
    "storage": storage,
    "storage_type": storage_type,
    "record_stream": record_stream,
    "grad_dtype": property(_grad_dtype, _set_grad_dtype),
    "apply_": apply_,
    "map_": map_,
    "map2_": map2_,
}
