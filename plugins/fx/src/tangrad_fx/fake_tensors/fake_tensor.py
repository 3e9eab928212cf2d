"""Fake tensors: of a shape, a dtype and a device, but without data.

A fake tensor holds one on device `meta` and the device that it stands for. In a `FakeTensorMode`
whatever is made is fake, and ops tell shapes and dtypes and compute nothing.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.utils import _pytree
from tangrad.utils._python_dispatch import TorchDispatchMode

__all__ = ["FakeTensor", "FakeTensorMode", "UnsupportedFakeTensorException", "is_fake"]


class UnsupportedFakeTensorException(RuntimeError):
    """A fake tensor cannot be made of this one."""


class FakeTensor(tangrad.Tensor):
    """A tensor without data.

    Args:
        fake_mode: the mode that it belongs to.
        elem: the tensor on `meta` that has its shape and dtype.
        device: what it stands for.

    Attributes:
        fake_mode, fake_device: as given.
    """

    fake_mode: FakeTensorMode
    fake_device: Any
    _elem: Any

    @staticmethod
    def __new__(cls, fake_mode: FakeTensorMode, elem: Any, device: Any = "cpu") -> FakeTensor:
        """Make a fake tensor.

        Raises:
            UnsupportedFakeTensorException: `elem` is not on `meta`.
        """
        if elem.device.type != "meta":
            raise UnsupportedFakeTensorException(
                f"FakeTensor holds a tensor on meta, got one on {elem.device}; use "
                "FakeTensorMode.from_tensor"
            )
        made: FakeTensor = tangrad.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device=tangrad.device(device),
            requires_grad=elem.requires_grad,
        )
        made._elem, made.fake_mode, made.fake_device = elem.detach(), fake_mode, made.device
        return made

    @staticmethod
    def from_tensor(t: Any, fake_mode: FakeTensorMode) -> FakeTensor:
        """Return a fake tensor of a mode like one with data."""
        return fake_mode.from_tensor(t)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """Return shape and dtype: there are no elements."""
        return f"FakeTensor(..., size={tuple(self.shape)}, dtype={self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Tell the shape of what an op gives."""
        mode = next(
            leaf.fake_mode
            for leaf in _pytree.tree_leaves((args, kwargs))
            if isinstance(leaf, FakeTensor)
        )
        return mode.fake_call(func, args, kwargs or {})


class FakeTensorMode(TorchDispatchMode):
    """In a `with` block tensors are fake, and nothing is computed.

    Args:
        allow_fallback_kernels: accepted.
        allow_non_fake_inputs: whether tensors with data may be given to ops beside fake ones.
        shape_env: accepted; sizes are numbers.
        static_shapes, export: accepted.
    """

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ) -> None:
        self.allow_non_fake_inputs, self.shape_env = allow_non_fake_inputs, shape_env
        self.static_shapes = static_shapes

    def from_tensor(self, tensor: Any, *args: Any, **kwargs: Any) -> FakeTensor:
        """Return a fake tensor like one with data."""
        if isinstance(tensor, FakeTensor):
            return tensor
        fake = FakeTensor(self, self._bare(tensor), tensor.device)
        fake.requires_grad = tensor.requires_grad
        return fake

    @staticmethod
    def _bare(tensor: Any) -> Any:
        return tangrad.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Tell the shape of what an op gives."""
        return self.fake_call(func, args, kwargs or {})

    def fake_call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an op on `meta`, and return fake tensors on the device of its arguments.

        Raises:
            AssertionError: a tensor with data is among fake ones, and that was not allowed.
        """
        device = self._common_device(func, args, kwargs)
        changed: dict[int, Any] = {}

        def on_meta(value: Any) -> Any:
            if isinstance(value, FakeTensor):
                changed[id(value._elem)] = value
                return value._elem
            if isinstance(value, tangrad.Tensor):
                return self._bare(value)
            return value

        given = _pytree.tree_map(on_meta, tuple(args))
        named = {
            k: tangrad.device("meta") if k == "device" else _pytree.tree_map(on_meta, v)
            for k, v in kwargs.items()
        }
        if "device" not in named and not changed:
            with tangrad.device("meta"):
                result = func(*given, **named)
        else:
            result = func(*given, **named)

        def faked(value: Any) -> Any:
            if not isinstance(value, tangrad.Tensor):
                return value
            return changed.get(id(value)) or FakeTensor(self, value.to("meta"), device)

        return _pytree.tree_map(faked, result)

    def _common_device(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if kwargs.get("device") is not None:
            return tangrad.device(kwargs["device"])
        tensors = [
            leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, tangrad.Tensor)
        ]
        fake = [t for t in tensors if isinstance(t, FakeTensor)]
        plain = next((t for t in tensors if not isinstance(t, FakeTensor)), None)
        if fake and plain is not None and plain.dim() and not self.allow_non_fake_inputs:
            raise AssertionError(
                "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode "
                f"with 'allow_non_fake_inputs'. Found in {func}"
            )
        if not tensors:
            return tangrad.get_default_device()
        return next((t.device for t in tensors if t.dim()), tensors[0].device)


def is_fake(x: object) -> bool:
    """Return whether a tensor has no data but remembers a device."""
    return isinstance(x, FakeTensor)
