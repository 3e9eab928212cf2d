"""What the compiled Tensor asks of Python: text, attributes loaded on first use, exchange."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tangrad import _C

# The modules whose TABLE holds methods of Tensor; the package adds those of its higher parts.
METHOD_MODULES = ["tangrad.tensor.methods"]


def represent(t: Any) -> str:
    """Return repr(t); tensors of a transform level show what they wrap."""
    record = _C.level_of(t)
    if record is not None:
        return record.represent(t)
    from tangrad.tensor.printing import tensor_repr

    return tensor_repr(t)


def find_attribute(t: Any, name: str) -> Any:
    """Return an attribute that was not found on the type: an op or method not loaded yet.

    Raises:
        AttributeError: nobody defines it.
    """
    found = class_attribute(name)
    if found is None:
        raise AttributeError(f"'{type(t).__name__}' object has no attribute '{name}'")
    return found.__get__(t, type(t)) if hasattr(found, "__get__") else found


def class_attribute(name: str) -> Any:
    """Load a method or property of Tensor by name and put it on the type; None if unknown."""
    if name.startswith("__") and name not in ("__cuda_array_interface__",):
        return None
    found = next(filter(None, (table.get(name) for table in _method_tables())), None)
    if found is None:
        from tangrad.ops import registry

        try:
            found = registry.method(name)
        except AttributeError:
            found = _device_flag(name)
    if found is not None:
        setattr(_C.Tensor, name, found)
    return found


def _method_tables() -> list[dict[str, Any]]:
    return [import_module(module).TABLE for module in METHOD_MODULES]


def _device_flag(name: str) -> Any:
    """Return the property is_NAME for a device that is installed or could be, else None."""
    prefix, _, device = name.partition("is_")
    if prefix or not device:
        return None
    from tangrad.plugins.namespaces import is_known_device
    from tangrad.tensor.methods import device_flag

    known = device in _C.device_types() or is_known_device(device)
    return device_flag(device) if known else None


class TensorMeta(type):
    """The metaclass of Tensor: finds methods on the class that were not loaded yet."""

    __slots__ = ()

    def __getattr__(cls, name: str) -> Any:
        found = class_attribute(name)
        if found is None:
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
        return getattr(cls, name)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(name, bases, namespace, **kwargs)
        load_methods()

    def __dir__(cls) -> list[str]:
        load_methods()
        return sorted(set(super().__dir__()))


_loaded = False


def load_methods() -> None:
    """Put every method on the type, so that super() of a subclass finds them all."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    from tangrad.ops import registry
    present = _C.Tensor.__dict__
    for table in _method_tables():
        for name, value in table.items():
            if name not in present:
                setattr(_C.Tensor, name, value)
    for name, op in registry.load_all().items():
        if name not in present and op.definition.is_method:
            setattr(_C.Tensor, name, op)


def to_array(t: Any, dtype: Any, copy: bool | None) -> Any:
    """Answer `__array__`."""
    from tangrad.tensor.exchange import array_protocol

    return array_protocol(t, dtype, copy)


def to_dlpack(t: Any, **kwargs: Any) -> Any:
    """Answer `__dlpack__`."""
    from tangrad.tensor.exchange import dlpack

    return dlpack(t, **kwargs)


def dlpack_device(t: Any) -> tuple[int, int]:
    """Answer `__dlpack_device__`."""
    from tangrad.tensor.exchange import dlpack_device as answer

    return answer(t)


def construct(cls: type, args: tuple[Any, ...], **kwargs: Any) -> Any:
    """Answer `Tensor(...)`, `Parameter(...)` and calls of their subclasses."""
    from tangrad.tensor.legacy import construct as legacy

    return legacy(cls, args, kwargs)
