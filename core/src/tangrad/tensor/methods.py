"""Methods and properties of Tensor that are neither ops nor hot enough to be compiled."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.tensor.caller import warn_once
from tangrad.tensor.memory import suggested_format
from tangrad.tensor.on_storage import TYPE_NAMES
from tangrad.tensor.transfers import copied, is_pinned, pin_memory


def _lookup(name: str) -> Any:
    return _C.lookup_op(name)


def to(
    self: Any,
    *args: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> _C.Tensor:
    """Return the tensor with a dtype and device: itself where nothing changes.

    Forms: to(dtype), to(device, dtype=None), to(other); further arguments non_blocking, copy,
    memory_format.

    Raises:
        TypeError: the arguments fit no form.
    """
    if len(args) == 1 and not copy and dtype is device is memory_format is None:
        # The usual forms; those of a tensor or of another device need more questions.
        if isinstance(args[0], _C.dtype):
            return self if args[0] is self.dtype else _lookup("_to_copy")(self, dtype=args[0])
        if type(args[0]) is str and args[0] == self.device.type:
            return self
    rest = [_C.dtype_of_type(given) or given for given in args]
    dtype = _C.dtype_of_type(dtype) or dtype
    if rest and isinstance(rest[0], _C.Tensor):
        other = rest.pop(0)
        dtype, device = other.dtype, other.device
    elif rest and isinstance(rest[0], (_C.device, str, int)) and not isinstance(rest[0], bool):
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], _C.dtype)):
            dtype = rest.pop(0)
    elif rest and rest[0] is None:
        rest.pop(0)
        if rest and isinstance(rest[0], _C.dtype):
            dtype = rest.pop(0)
    elif rest and isinstance(rest[0], _C.dtype):
        dtype = rest.pop(0)
    elif rest and not isinstance(rest[0], bool):
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({type(rest[0]).__name__}), "
            "but expected (dtype), (device, dtype) or (Tensor other)"
        )
    if rest:
        non_blocking = rest.pop(0)
    if rest:
        copy = rest.pop(0)
    if device is not None and not isinstance(device, _C.device):
        device = _C.device(device)
    same_device = (
        device is None
        or device == self.device
        or (device.index is None and device.type == self.device.type)
    )
    same_format = (
        memory_format is None
        or memory_format is _C.preserve_format
        or suggested_format(self) is memory_format
    )
    if not copy and same_device and (dtype is None or dtype is self.dtype) and same_format:
        return self
    if non_blocking and not same_device:
        return copied(self, dtype, device, memory_format)
    device = None if same_device else device
    return _lookup("_to_copy")(self, dtype=dtype, device=device, memory_format=memory_format)


def _converter(alias: str, name: str) -> Any:
    wanted = _C.dtype_by_name(name)

    def convert(self: Any, memory_format: Any = None) -> _C.Tensor:
        if memory_format is None:
            return self if self.dtype is wanted else _lookup("_to_copy")(self, dtype=wanted)
        return to(self, wanted, memory_format=memory_format)

    convert.__name__ = alias
    convert.__doc__ = f"Convert to {name}; same as to(tangrad.{name})."
    return convert


def cpu(self: Any, memory_format: Any = None) -> _C.Tensor:
    """Return the tensor on the host device."""
    if memory_format is None and self.device.type == "cpu":
        return self
    return to(self, "cpu", memory_format=memory_format)


def type_(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Return the type's name, or, given a dtype or type name, the tensor converted to it."""
    if dtype is None:
        return type_name(self)
    if isinstance(dtype, str):
        dtype = dtype_of_type_name(dtype)
    elif isinstance(dtype, type) and hasattr(dtype, "dtype"):
        dtype = _C.get_default_dtype() if dtype is _C.Tensor else dtype.dtype
    return to(self, dtype)


def type_name(self: Any) -> str:
    """Return e.g. "tangrad.FloatTensor"."""
    place = "" if self.device.type == "cpu" else f"{self.device.type}."
    return _C.shown(f"{place}{TYPE_NAMES.get(self.dtype.name, self.dtype.name)}Tensor")


def dtype_of_type_name(name: str) -> Any:
    """Return the dtype that a name such as "tangrad.FloatTensor" stands for.

    Raises:
        ValueError: the name is no type name.
    """
    short = name.rpartition(".")[2].removesuffix("Tensor")
    for dtype, label in TYPE_NAMES.items():
        if label == short:
            return _C.dtype_by_name(dtype)
    raise ValueError(
        f"invalid type: '{name}'; known: "
        f"{', '.join(_C.shown(f'{v}Tensor') for v in TYPE_NAMES.values())}"
    )


def numpy(self: Any, *, force: bool = False) -> Any:
    """Return an array that shares the tensor's memory; force allows a copy where it must be one."""
    shared = _C.array_of_tensor(self)
    if shared is not None:
        return shared
    from tangrad.tensor.exchange import numpy as convert

    return convert(self, force=force)


def as_subclass(self: Any, cls: type) -> Any:
    """Return the tensor as an instance of a subclass, sharing data and history."""
    return _C.share_history(_C.as_class(self, cls), self)


def _make_subclass(cls: type, data: Any, require_grad: bool = False) -> Any:
    """Return an alias of data, cut from its history, that is an instance of cls."""
    made = _C.as_class(data.detach(), cls)
    # Past `__torch_function__`, which may look for what cls has yet to add.
    return _C.new_parameter(made, True, cls) if require_grad else made


def before_wrapping() -> None:
    """Prepare for handlers of wrappers; dispatch replaces this."""


def _make_wrapper_subclass(
    cls: type,
    size: Any,
    strides: Any = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **unused: Any,
) -> Any:
    """Return an instance of cls with geometry and no memory: its `__torch_dispatch__` computes."""
    before_wrapping()
    shape = tuple(size)
    if strides is None:
        strides = _C.format_strides(shape, memory_format or _C.contiguous_format)
    if layout is not None and not isinstance(layout, _C.layout):
        raise TypeError(
            "_make_wrapper_subclass(): argument 'layout' must be tangrad.layout, not "
            f"{type(layout).__name__}"
        )
    return _C.make_wrapper(
        cls,
        shape,
        tuple(strides),
        storage_offset or 0,
        dtype or _C.get_default_dtype(),
        device,
        requires_grad,
        layout,
    )


def detach_(self: Any) -> _C.Tensor:
    """Cut the tensor itself from its history, and from its tangent.

    Raises:
        RuntimeError: it is a view, whose base would keep the history.
    """
    if self._is_view():
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    record = _C.level_of(self)
    if record is not None and hasattr(record, "set_tangent"):
        detach_(record.inner)
        record.set_tangent(None)
    _C.forget_history(self)
    return self


def _keep_history(self: Any) -> None:
    raise RuntimeError("Deletion of _grad_fn not allowed: detach the tensor instead")


def get_device(self: Any) -> int:
    """Return the device's index, -1 on the host."""
    return -1 if self.device.index is None else self.device.index


def device_flag(device: str) -> property:
    """Return the property that tells whether a tensor lives on a type of device."""
    return property(lambda self: self.device.type == device)


def layout_flag(name: str) -> property:
    """Return the property that is true where a tensor's layout says so among its methods."""

    def flag(self: Any) -> bool:
        definition = self.layout.definition
        return definition is not None and bool(definition.methods.get(name))

    return property(flag)


def device_mover(name: str) -> Any:
    """Return the method that moves a tensor to a type of device."""

    def move(
        self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Any:
        if not isinstance(device, _C.device):
            index = device if isinstance(device, int) else None
            device = _C.device(device if isinstance(device, str) else name)
            if index is not None:
                device = _C.device(name, index)
        return to(self, device, non_blocking=non_blocking, memory_format=memory_format)

    move.__name__ = name
    move.__doc__ = f"Return the tensor on a device of type {name}: the current one by default."
    return move


def _identity_of_number(self: Any, name: str, instead: str) -> _C.Tensor:
    warn_once(f"{name} is deprecated on 0-D tensors. {instead}")
    return self.conj() if "conj" in instead else self


_AS_IT_IS = "This function is the identity in these cases."


def _transposed(self: Any) -> _C.Tensor:
    if self.ndim == 0:
        _identity_of_number(self, "Tensor.T", _AS_IT_IS)  # a view all the same
    elif self.ndim != 2:
        warn_once(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
            "deprecated and it will throw an error in a future release. Consider `x.mT` to "
            "transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to "
            "reverse the dimensions of a tensor."
        )
    return _lookup("permute")(self, tuple(range(self.ndim - 1, -1, -1)))


def _matrix_transposed(self: Any) -> _C.Tensor:
    if self.ndim == 0:
        return _identity_of_number(self, "Tensor.mT", _AS_IT_IS)
    if self.ndim < 2:
        raise RuntimeError(
            f"tensor.mT is only supported on matrices or batches of matrices. Got {self.ndim}-D "
            "tensor."
        )
    return _lookup("transpose")(self, -2, -1)


def _adjoint(self: Any) -> _C.Tensor:
    if self.ndim not in (0, 2):
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor."
        )
    return _conjugate_transposed(self, "Tensor.H")


def _conjugate_transposed(self: Any, name: str = "Tensor.mH") -> _C.Tensor:
    if self.ndim == 0:
        return _identity_of_number(self, name, "Consider using x.conj().")
    return _matrix_transposed(self).conj()


def _real(self: Any) -> _C.Tensor:
    return _lookup("real")(self)


def _set_real(self: Any, value: Any) -> None:
    _lookup("copy_")(_lookup("real")(self), _as_tensor(self, value))


def _imag(self: Any) -> _C.Tensor:
    return _lookup("imag")(self)


def _set_imag(self: Any, value: Any) -> None:
    _lookup("copy_")(_lookup("imag")(self), _as_tensor(self, value))


def _as_tensor(like: Any, value: Any) -> Any:
    if isinstance(value, _C.Tensor):
        return value
    from tangrad.tensor.construct import tensor

    return tensor(value, device=like.device)


def type_as(self: Any, other: Any) -> _C.Tensor:
    """Return the tensor with the dtype and device of another."""
    _require_tensor("type_as", "other", other)
    return to(self, dtype=other.dtype, device=other.device)


def new_tensor(
    self: Any, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> _C.Tensor:
    """Return a new tensor of data with this dtype on this device."""
    from tangrad.tensor.construct import tensor

    return tensor(
        data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad
    )


def _require_tensor(method: str, argument: str, value: Any) -> None:
    if not hasattr(value, "untyped_storage"):
        raise TypeError(
            f"{method}(): argument '{argument}' (position 1) must be Tensor, not "
            f"{type(value).__name__}"
        )


def new(self: Any, *args: Any, device: Any = None, size: Any = None) -> Any:
    """Build a tensor as `FloatTensor(...)` does, of this dtype, class and device (old programs)."""
    from tangrad.tensor.layouts import of_layout
    from tangrad.tensor.legacy import new

    if (method := of_layout(self, "new")) is not None:
        return method(self, *args, device=device, size=size)
    return new(self, *args, device=device, size=size)


def is_same_size(self: Any, other: Any) -> bool:
    """Return whether the shapes are equal."""
    _require_tensor("is_same_size", "other", other)
    return tuple(self.shape) == tuple(other.shape)


def is_set_to(self: Any, tensor: Any) -> bool:
    """Return whether both are the same view of the same storage."""
    _require_tensor("is_set_to", "tensor", tensor)
    return (
        self.data_ptr() == tensor.data_ptr()
        and tuple(self.shape) == tuple(tensor.shape)
        and self.stride() == tensor.stride()
        and self.untyped_storage() is tensor.untyped_storage()
    )


def is_signed(self: Any) -> bool:
    """Return whether the dtype has a sign."""
    return self.dtype.is_signed


def share_memory_(self: Any) -> _C.Tensor:
    """Move the memory, and with it all tensors on it, to where other processes can have it.

    Tensors that are sent to another process by `tangrad.multiprocessing` do so by themselves. On
    a device other than the host, nothing moves.

    Returns:
        The tensor.

    Raises:
        OSError: there is no memory or no descriptor left.
    """
    self.untyped_storage().share_memory_()
    return self


def is_shared(self: Any) -> bool:
    """Return whether other processes can have the memory."""
    shared: bool = self.untyped_storage().is_shared()
    return shared


def where(self: Any, condition: Any, other: Any) -> _C.Tensor:
    """Return the elements of the tensor where `condition` holds, those of `other` elsewhere."""
    return _lookup("where_choice")(condition, self, other)


TABLE: dict[str, Any] = {
    # What Python 2 called the operators, which old programs and PyTorch's own tests call by name.
    "__div__": lambda self, other: self / other,
    "__rdiv__": lambda self, other: self.reciprocal() * other,
    "__idiv__": lambda self, other: self.div_(other),
    "__nonzero__": lambda self: bool(self),
    "__long__": lambda self: int(self),
    "to": to,
    "cpu": cpu,
    "type": type_,
    "numpy": numpy,
    "as_subclass": as_subclass,
    "_make_subclass": staticmethod(_make_subclass),
    "_make_wrapper_subclass": staticmethod(_make_wrapper_subclass),
    "detach_": detach_,
    "get_device": get_device,
    "is_cpu": device_flag("cpu"),
    "is_meta": device_flag("meta"),
    **{
        name: layout_flag(name)
        for name in ("is_sparse", "is_quantized", "is_mkldnn", "is_nested", "is_sparse_csr")
    },
    # A name of PyTorch's for `grad`, which programs write to.
    "_cdata": property(id),  # by which programs tell whether two names are of one tensor
    "_grad": property(lambda self: self.grad, lambda self, grad: setattr(self, "grad", grad)),
    "_grad_fn": property(lambda self: self.grad_fn, None, _keep_history),
    "T": property(_transposed),
    "mT": property(_matrix_transposed),
    "H": property(_adjoint),
    "mH": property(_conjugate_transposed),
    "real": property(_real, _set_real),
    "imag": property(_imag, _set_imag),
    "type_as": type_as,
    "new": new,
    "new_tensor": new_tensor,
    "is_same_size": is_same_size,
    "is_set_to": is_set_to,
    "is_signed": is_signed,
    "is_pinned": is_pinned,
    "pin_memory": pin_memory,
    "nelement": _C.Tensor.numel,
    "ndimension": _C.Tensor.dim,
    "share_memory_": share_memory_,
    "is_shared": is_shared,
    "where": where,
    "name": property(lambda self: None),
    "is_distributed": lambda self: False,
}
for _name, _kind in TYPE_NAMES.items():
    _alias = _kind.lower().replace("complex", "c")
    TABLE[_alias] = _converter(_alias, _name)
