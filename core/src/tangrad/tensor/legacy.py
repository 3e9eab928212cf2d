"""The constructors `Tensor(...)`, `Parameter(...)` and `FloatTensor(...)` as PyTorch has them."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.tensor.memory import new_memory
from tangrad.tensor.on_storage import TYPE_NAMES, storage_as


def construct(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Build a tensor of a class.

    `Tensor(2, 3)` is uninitialised, `Tensor([1, 2])` holds data in the default dtype, a subclass
    called with a tensor becomes an alias of it; `Parameter(data=None, requires_grad=True)`.

    Raises:
        TypeError: the arguments fit none of these forms.
    """
    if issubclass(cls, _C.Parameter):
        return _parameter(cls, *args, **kwargs)
    device = kwargs.pop("device", None)
    if "data" in kwargs:
        args = (kwargs.pop("data"), *args)
    if kwargs:
        raise TypeError(
            f"{cls.__name__}() got unexpected keyword arguments {sorted(kwargs)}; use "
            "tangrad.tensor(...)"
        )
    made = _plain(args, device)
    return made if cls is _C.Tensor else _C.share_history(_C.as_class(made, cls), made)


def new(self: Any, *args: Any, device: Any = None, size: Any = None) -> Any:
    """Build a tensor as `FloatTensor(...)` does, of this dtype, class and device."""
    args = args if size is None else tuple(size)
    made = _plain(args, device, self.dtype, self.device)
    cls = type(self)
    return made if cls in (_C.Tensor, _C.Parameter) else _C.as_class(made, cls)


def _plain(args: tuple[Any, ...], device: Any, dtype: Any = None, usual: Any = None) -> Any:
    if device is not None and args and isinstance(args[0], _C.Tensor):
        raise RuntimeError(
            "Legacy tensor constructors of the form Tensor(tensor, device=device) and "
            "new(tensor, device=device) are not supported; use tensor.to(device)"
        )
    device = usual if device is None else device
    if len(args) == 1 and not isinstance(args[0], int):
        data = args[0]
        if isinstance(data, _C.Tensor):
            if dtype not in (None, data.dtype):
                raise TypeError(f"expected a tensor of {dtype}, got one of {data.dtype}")
            return _C.share_history(_C.plain_alias(data), data)
        if type(data).__name__ == "Size":
            return new_memory(tuple(data), dtype, device)
        empty = _C.empty((0,), dtype, device)
        if storage_as(str(empty.dtype), data, empty.dtype) is not None:
            return empty.set_(data)
        from tangrad.tensor.construct import tensor

        return tensor(data, dtype=dtype or _C.get_default_dtype(), device=device)
    if not all(isinstance(a, int) for a in args):
        raise TypeError(
            "Tensor() received an invalid combination of arguments: it takes sizes or one sequence "
            f"of data, got {[type(a).__name__ for a in args]}; use tangrad.tensor(...)"
        )
    return new_memory(tuple(args) or (0,), dtype, device)


def _parameter(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
    if data is None:
        data = _C.empty((0,), None, None)
    if not isinstance(data, _C.Tensor):
        raise TypeError(f"Parameter data must be a Tensor, got {type(data).__name__}")
    if type(data) not in (_C.Tensor, _C.Parameter) and cls is _C.Parameter:
        made = _C.requiring_grad(data.detach(), requires_grad)
        if type(made) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires "
                "that detach() returns an instance of the same type"
            )
        made._is_param = True
        return made
    return _C.new_parameter(data.detach(), requires_grad, cls)


NAMES = {f"{kind}Tensor": name for name, kind in TYPE_NAMES.items() if "Complex" not in kind}
_types: dict[tuple[str, str], type] = {}


class _TensorType(type):
    """The type of FloatTensor and its like, which are asked about and called, and nothing else."""

    dtype: Any
    place: str

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if bases:
            what = f"{_C.shown(bases[0].__name__)}"
            raise TypeError(f"type '{what}' is not an acceptable base type; derive from Tensor")
        return super().__new__(mcs, name, bases, body)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, _C.Tensor)
            and instance.dtype is cls.dtype
            and instance.device.type == cls.place
        )

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        return _plain(args, device, cls.dtype, None if cls.place == "cpu" else cls.place)


def tensor_type(name: str, device_type: str = "cpu") -> type | None:
    """Return the class that stands for the tensors of one dtype on a type of device, or None.

    Args:
        name: such as "FloatTensor"; `device.FloatTensor(2, 3)` makes one on the current device.
        device_type: the type of device, which need not be usable.
    """
    if name not in NAMES:
        return None
    key = device_type, name
    if key not in _types:
        dtype = _C.dtype_by_name(NAMES[name])
        module = "tangrad" if device_type == "cpu" else f"tangrad.{device_type}"
        doc = f"Tensors of {dtype} on {device_type}; `tangrad.tensor(..., dtype=)` makes them."
        body = {"dtype": dtype, "place": device_type, "__module__": module, "__doc__": doc}
        _types[key] = _TensorType(name, (), body)
    return _types[key]


def find(name: str) -> type | None:
    """Return a class of tensors (FloatTensor) or storages (FloatStorage) of one dtype, or None."""
    if name in NAMES:
        return tensor_type(name)
    if not name.endswith("Storage"):
        return None
    from tangrad.tensor.storages import legacy_class

    try:
        return legacy_class(name)
    except AttributeError:
        return None
