"""See every op below recording: `__torch_dispatch__` modes, and subclasses that wrap tensors."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.dispatch.python_dispatch import TorchDispatchMode
from tangrad.dispatch.stack import current

__all__ = [
    "TorchDispatchMode",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "transform_subclass",
]


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Return whether a dispatch mode is active in this thread."""
    return bool(current().dispatch_modes)


def is_traceable_wrapper_subclass_type(t: Any) -> bool:
    """Return whether a class of tensors says of which tensors its objects are made.

    It does by `__tensor_flatten__` and `__tensor_unflatten__`.
    """
    methods = ("__tensor_flatten__", "__tensor_unflatten__")
    return issubclass(t, _C.Tensor) and all(hasattr(t, name) for name in methods)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Return whether an object is a tensor of such a class."""
    return isinstance(t, _C.Tensor) and is_traceable_wrapper_subclass_type(type(t))


def transform_subclass(
    t: Any, callback: Any, outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """Return a tensor like one that wraps others, made of what a function makes of them.

    Args:
        t: a tensor of a class with `__tensor_flatten__` and `__tensor_unflatten__`.
        callback: (name of the inner tensor, inner tensor) -> tensor.
        outer_size: of the result; by default that of `t`.
        outer_stride: so is it.
    """
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(inner, context, size, stride)
