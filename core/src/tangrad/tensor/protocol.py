"""What the compiled Tensor asks of Python: text, attributes loaded on first use, exchange."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.tensor.offered import offered


def represent(self: Any, *, tensor_contents: str | None = None) -> str:
    """Return repr(self), with a text in place of the values if one is given.

    Tensors of a transform level show what they wrap.
    """
    record = _C.level_of(self)
    if record is not None and tensor_contents is None:
        return record.represent(self)
    from tangrad.tensor import printing

    if _C.contents_of(self) is not None and tensor_contents is None:
        return printing.layout_repr(self)
    return printing.tensor_repr(self, tensor_contents)


def find_attribute(t: Any, name: str) -> Any:
    """Return an attribute that was not found on the type: an op or method not loaded yet.

    Raises:
        AttributeError: nobody defines it.
    """
    found = class_attribute(name)
    if found is None:
        found = _method_of_layout(t, name)
    if found is None:
        from tangrad.discovery.discovery import failed_ops

        told = f"'{type(t).__name__}' object has no attribute '{name}'"
        raise AttributeError(told if name.startswith("_") else told + failed_ops())
    return found.__get__(t, type(t)) if hasattr(found, "__get__") else found


def _method_of_layout(t: Any, name: str) -> Any:
    """Return a method or property that only tensors of t's layout have, or None."""
    # Not t.layout, which `__torch_function__` might take over: nobody reads that here.
    held = None if name.startswith("__") else _C.contents_of(t)
    return None if held is None else held.layout.definition.methods.get(name)


# The names with underscores that this file finds; Python asks for many more, and must get none.
_DUNDERS = (
    "__cuda_array_interface__",
    "__div__",
    "__rdiv__",
    "__idiv__",
    "__nonzero__",
    "__long__",
)
# Second names, which classes with `__torch_function__` see as the first; and what they must not
# see, for by it they take their class off.
_NOT_OFFERED = ("_grad", "_grad_fn", "as_subclass", *_DUNDERS[1:])


def class_attribute(name: str) -> Any:
    """Load a method or property of Tensor by name and put it on the type; None if unknown."""
    if name.startswith("__") and name not in _DUNDERS:
        return None
    from tangrad.discovery import discovery
    from tangrad.tensor import methods

    found = methods.TABLE.get(name)
    if found is None:
        found = _later(name)
    if found is None:
        found = find_further(name)
    if found is None and name in discovery.known_names(discovery.DEVICES):
        found = methods.device_mover(name)
    if found is None and name.startswith("is_") and name[3:] in device_names():
        found = methods.device_flag(name[3:])
    if found is not None:
        if name not in _NOT_OFFERED and not name.startswith("_repr_"):  # notebooks: as it is
            # `tangrad.dequantize`, the same object, takes a list as well.
            found = offered(found, method=name != "dequantize")
        setattr(_C.Tensor, name, found)
    return found


def _later(name: str) -> Any:
    """Return a method from the tables that few programs need, or None."""
    from tangrad.discovery.neutral import device_methods
    from tangrad.tensor import layouts, memory, methods

    found = memory.TABLE.get(name) or layouts.TABLE.get(name)
    if found is None and name in device_methods():
        found = methods.device_mover(name)
    return found


def _later_names() -> list[str]:
    from tangrad.discovery.neutral import device_methods
    from tangrad.tensor import layouts, memory

    return [*memory.TABLE, *layouts.TABLE, *device_methods()]


def find_further(name: str) -> Any:
    """Return a method that ops or autograd define, or None; they replace this function."""
    return None


def further_names() -> Any:
    """Return the names that `find_further` knows; the part above replaces this."""
    return ()


def device_names() -> Any:
    """Return the names of devices for which Tensor has a flag; the part above replaces this."""
    return _C.registered_devices()


_OURS = __name__.partition(".")[0] + "."


class TensorMeta(type):
    """The metaclass of Tensor: finds methods on the class that were not loaded yet."""

    __slots__ = ()

    def __repr__(cls) -> str:
        ours = cls.__module__ == "tangrad"
        return f"<class '{_C.shown(cls.__qualname__)}'>" if ours else type.__repr__(cls)

    def __getattr__(cls, name: str) -> Any:
        found = class_attribute(name)
        if found is None:
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")
        return getattr(cls, name)

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> None:
        super().__init__(name, bases, namespace, **kwargs)
        load_methods()
        if not cls.__module__.startswith(_OURS) or "__torch_function__" in namespace:
            _C.offer_members()

    def __dir__(cls) -> list[str]:
        load_methods()
        return sorted(set(super().__dir__()))


class ParameterMeta(TensorMeta):
    """The metaclass of Parameter, which counts tensors of other classes that it marked."""

    __slots__ = ()

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        # Plain tensors are asked most, and never marked.
        return (
            cls is _C.Parameter
            and isinstance(instance, _C.Tensor)
            and type(instance) is not _C.Tensor
            and getattr(instance, "_is_param", False)
        )


_loaded = False


def load_methods() -> None:
    """Put every method on the type, so that super() of a subclass finds them all."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    from tangrad.tensor import methods

    present = _C.Tensor.__dict__
    for name in [*methods.TABLE, *_later_names(), *further_names()]:
        if name not in present:
            class_attribute(name)


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


def new_parameter(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
    """Answer `Parameter.__new__(cls, ...)`."""
    return construct(cls, (data, requires_grad))
