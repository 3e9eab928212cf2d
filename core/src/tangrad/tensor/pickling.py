"""Copies of tensors: pickle, copy.copy, copy.deepcopy.

A tensor is stored as (storage, geometry) and the storage as an object of its own. Pickle's and
deepcopy's memory of what they have seen then keeps shared storages shared, provided that
``x.untyped_storage()`` returns the same object for tensors that share one.
"""

from __future__ import annotations

import copyreg
from typing import Any

from tangrad.tensor.exchange import dtype_named, name_of
from tangrad.tensor.on_storage import bytes_of, on_storage

__all__ = ["deepcopy_tensor", "rebuild_of_layout", "reduce_storage", "reduce_tensor"]


def reduce_tensor(x: Any, protocol: int = 2) -> tuple[Any, ...]:
    """Return what ``__reduce_ex__`` of a tensor returns: how to rebuild it on its storage.

    Args:
        x: a strided tensor of any class. Its history and hooks are not kept; its attributes are.
        protocol: pickle's; all are served alike.
    """
    _warn_of_hooks(x)
    held = contents_of(x)
    if held is not None:
        return _rebuild_of_layout, (
            type(x),
            held.layout,
            held.components,
            held.metadata,
            tuple(x.shape),
            name_of(x.dtype),
            x.requires_grad,
            attributes_of(x),
        )
    if is_wrapper(x):
        return rebuild_wrapper, (*wrapper_parts(x), attributes_of(x))
    source = x.detach()
    arguments = (
        type(x),
        _copyable_storage(source),
        name_of(x.dtype),
        source.storage_offset(),
        tuple(x.shape),
        tuple(source.stride()),
        x.requires_grad,
        attributes_of(x),
    )
    lazy = (x.is_conj(), x.is_neg())
    return _rebuild_tensor, (*arguments, lazy) if any(lazy) else arguments


def wrapper_parts(x: Any) -> tuple[Any, ...]:
    """Return what `rebuild_wrapper` makes a wrapper without memory of: all but its attributes."""
    geometry = (tuple(x.shape), tuple(x.stride()), x.storage_offset())
    return type(x), x.dtype, *geometry, x.layout, x.device, x.requires_grad


def rebuild_wrapper(cls: Any, dtype: Any, size: Any, stride: Any, offset: Any, *rest: Any) -> Any:
    """Return a wrapper of a class of tensors, as `Tensor._make_wrapper_subclass` makes it."""
    from tangrad import _C

    if not (isinstance(cls, type) and issubclass(cls, _C.Tensor)):
        raise TypeError(f"a wrapper of tensors is of {cls!r}, which is no tensor class")
    layout, device, needs, *attributes = rest
    made = _C.make_wrapper(cls, tuple(size), tuple(stride), offset, dtype, device, needs, layout)
    set_attributes(made, *attributes or ({},))
    return made


def _copyable_storage(x: Any) -> Any:
    storage = x.untyped_storage()
    copyreg.dispatch_table.setdefault(type(storage), reduce_storage)
    return storage


def attributes_of(x: Any) -> dict[str, Any]:
    """Return what a program has set on a tensor, in its dictionary and the slots of its class."""
    slots = copyreg._slotnames(type(x))  # type: ignore[attr-defined]
    held = {slot: getattr(x, slot) for slot in slots if hasattr(x, slot)}
    return {**getattr(x, "__dict__", {}), **held}


def set_attributes(made: Any, attributes: dict[str, Any]) -> None:
    """Set what `attributes_of` returned on another tensor of the class."""
    slots = copyreg._slotnames(type(made))  # type: ignore[attr-defined]
    for name, value in attributes.items():
        (made.__setattr__ if name in slots else made.__dict__.__setitem__)(name, value)


def _warn_of_hooks(x: Any) -> None:
    if not getattr(x, "_backward_hooks", None):
        return
    import warnings

    warnings.warn(
        "backward hooks on a tensor are not serialized; register them again after loading",
        UserWarning,
        stacklevel=4,
    )


def _rebuild_of_layout(
    cls: type,
    layout: Any,
    components: dict[str, Any],
    metadata: dict[str, Any],
    size: tuple[int, ...],
    dtype: str,
    requires_grad: bool,
    attributes: dict[str, Any],
) -> Any:
    made = rebuild_of_layout(layout, components, metadata, size, dtype_named(dtype))
    made = _dressed(made, cls, requires_grad)
    if attributes:
        set_attributes(made, attributes)
    return made


def rebuild_of_layout(
    layout: Any, components: Any, metadata: Any, size: tuple[int, ...], dtype: Any
) -> Any:
    """Return a tensor of another layout from what was stored of it, once its layout checked it.

    Raises:
        What the layout raises for components that are none of its tensors.
    """
    from tangrad import _C

    if layout.definition is None:
        raise NotImplementedError(f"{layout}: install the package that brings its tensors")
    layout.definition.check(components, metadata, tuple(size))
    device = next(iter(components.values())).device
    return _C.make_of_layout(layout, components, metadata, tuple(size), dtype, device)


def contents_of(x: Any) -> Any:
    """Return what a tensor of another layout holds, or None."""
    if str(x.layout).endswith(".strided"):
        return None
    from tangrad import _C

    return _C.contents_of(x)


def _rebuild_tensor(
    cls: type,
    storage: Any,
    dtype: str,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    attributes: dict[str, Any],
    lazy: tuple[bool, bool] = (False, False),
) -> Any:
    from tangrad import _C

    x = on_storage(storage, dtype_named(dtype), offset, size, stride)
    if any(lazy):
        _C.set_flags(x, *lazy)
    made = _dressed(x, cls, requires_grad)
    if attributes:
        set_attributes(made, attributes)
    return made


def _dressed(x: Any, cls: type, requires_grad: bool) -> Any:
    if type(x) is not cls:
        x = x.as_subclass(cls)
    # Only this way round: a Parameter may be born requiring grad, which integers cannot.
    if x.requires_grad != requires_grad:
        x.requires_grad = requires_grad
    return x


def reduce_storage(storage: Any) -> tuple[Any, ...]:
    """Return what ``__reduce__`` of an untyped storage returns: its bytes and device.

    Args:
        storage: of any device; of one without memory (meta) only the size is kept.
    """
    device, length = str(storage.device), storage.nbytes()
    if storage.device.type == "meta":
        return _rebuild_storage_without_memory, (length, device)
    return _rebuild_storage, (_host_bytes(storage), device)


def _host_bytes(storage: Any) -> bytes:
    from tangrad import _C

    return bytes(_C.host_buffer(bytes_of(storage).cpu()))


def _rebuild_storage(content: bytes, device: str) -> Any:
    from tangrad import _C

    flat = _C.tensor_from_bytes(content, dtype_named("uint8"), (len(content),), _C.device(device))
    return flat.untyped_storage()


def _rebuild_storage_without_memory(length: int, device: str) -> Any:
    from tangrad import _C

    return _C.empty((length,), dtype_named("uint8"), _C.device(device)).untyped_storage()


def deepcopy_tensor(x: Any, memo: dict[int, Any]) -> Any:
    """Return what ``__deepcopy__`` of a tensor returns.

    Args:
        x: a leaf.
        memo: what is already copied, by id.

    Returns:
        A tensor of the same class, geometry and requires_grad on a copy of the storage, with
        deep copies of attributes, slots and gradient. Tensors that share a storage have copies that
        share one. A Parameter is copied alone and without its gradient, as in PyTorch.

    Raises:
        RuntimeError: the tensor has a history.
    """
    import copy

    if id(x) in memo:
        return memo[id(x)]
    if not x.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. Copy x.detach() instead"
        )
    source = x.detach()
    is_parameter = any(cls.__name__ == "Parameter" for cls in type(x).__mro__)
    # What a wrapper wraps is known to its class alone.
    alone = is_parameter or is_wrapper(source)
    made = source.clone() if alone else _on_copied_storage(source, memo)
    made = _dressed(made, type(x), x.requires_grad)
    memo[id(x)] = made
    attributes = attributes_of(x)
    if attributes:
        set_attributes(made, copy.deepcopy(attributes, memo))
    if x.grad is not None and not is_parameter:
        made.grad = deepcopy_tensor(x.grad if x.grad.is_leaf else x.grad.detach(), memo)
    return made


def is_wrapper(x: Any) -> bool:
    """Whether `__torch_dispatch__` of its class stands for values that a tensor does not have."""
    if not hasattr(type(x), "__torch_dispatch__") or x.device.type == "meta" or not x.numel():
        return False
    try:
        return not x.untyped_storage().data_ptr()
    except RuntimeError:  # there is no memory that it could be the place of
        return True


def _on_copied_storage(source: Any, memo: dict[int, Any]) -> Any:
    import copy

    if contents_of(source) is not None:
        return source.clone()
    source = source.resolve_conj().resolve_neg()
    storage = copy.deepcopy(_copyable_storage(source), memo)
    geometry = (source.storage_offset(), tuple(source.shape), tuple(source.stride()))
    return on_storage(storage, source.dtype, *geometry)
