"""Tensors that a module owns: parameters and buffers."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import Parameter as Parameter
from tangrad.plugin import become_plain, new_parameter, offer_members


class _BufferType(type):
    """Let `isinstance(t, Buffer)` be true of every tensor made by `Buffer(...)`."""

    def __instancecheck__(cls, instance: object) -> bool:
        # Of a tensor that has no such attribute `getattr` asks every package for a method.
        return isinstance(instance, tangrad.Tensor) and vars(instance).get("_is_buffer", False)


class Buffer(metaclass=_BufferType):
    """Make a tensor that becomes a buffer when it is assigned to a module.

    The result shares memory with `data`, and is a plain tensor: operations on it take no detour
    through a subclass.

    Args:
        data: the values; an empty tensor when omitted.
        persistent: whether the buffer is part of the module's `state_dict`.
    """

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        """Return `data`, detached and marked as a buffer."""
        if data is None:
            data = tangrad.empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer


class UninitializedTensorMixin:
    """What tensors without a shape share: nearly everything is refused until `materialize`."""

    # No fields of its own: `materialize` turns the object into one of its base.
    __slots__ = ()

    # What may be called: questions about the dtype, conversions, and copying none to none.
    _ALLOWED = frozenset(
        "__hash__ _to_copy bfloat16 char copy_ cpu cuda double float get_device half int "
        "is_complex is_floating_point long requires_grad_ short size to".split()
    )
    data: Any
    requires_grad: bool

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Take memory, uninitialized, and become an ordinary parameter or tensor.

        Args:
            shape: of the tensor.
            device: where; by default where the parameter was declared.
            dtype: by default the declared one.
        """
        declared = self.data
        self.data = tangrad.empty(
            shape, device=device or declared.device, dtype=dtype or declared.dtype
        )
        become_plain(self)

    @property
    def shape(self) -> Any:
        """Raise: there is no shape yet.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def share_memory_(self) -> Any:
        """Raise: there is no memory yet.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            declared, arguments = self.__reduce_ex__(2)
            memo[id(self)] = declared(*arguments)
        return memo[id(self)]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        reads = type(func).__name__ == "method-wrapper"  # `__get__` or `__set__` of an attribute
        if reads or getattr(func, "__name__", "") in cls._ALLOWED:
            made = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc]
            new = isinstance(made, UninitializedParameter) and made is not args[0]
            return made.as_subclass(tangrad.Tensor) if new else made
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you "
            "are using a `LazyModule` or explicitly manipulating `tangrad.nn.parameter."
            f"{cls.__name__}` objects. When using LazyModules Call `forward` with a dummy batch "
            "to initialize the parameters before calling functions of them"
        )


def is_lazy(param: Any) -> bool:
    """Tell whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet: that of a lazy module before its first input.

    Args:
        requires_grad: whether it will require gradients.
        device: where it will be made.
        dtype: its dtype.
    """

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        """Declare a parameter."""
        offer_members()  # that `numel()` and the like ask `__torch_function__`
        return new_parameter(tangrad.empty(0, device=device, dtype=dtype), requires_grad, cls)


class UninitializedBuffer(UninitializedTensorMixin, tangrad.Tensor):
    """A buffer whose shape is not known yet: that of a lazy module before its first input.

    Args:
        requires_grad: whether it will require gradients.
        device: where it will be made.
        dtype: its dtype.
        persistent: whether it is part of the module's `state_dict`.
    """

    __slots__ = ()
    cls_to_become = tangrad.Tensor

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Any:
        """Declare a buffer."""
        offer_members()
        empty = tangrad.empty(0, device=device, dtype=dtype)
        made = new_parameter(empty, requires_grad, cls)
        made.persistent = persistent
        made._is_buffer = True
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind, arguments = super().__reduce_ex__(protocol)
        return kind, (*arguments, self.persistent)
