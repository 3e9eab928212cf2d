"""How a module's parameters take what a conversion, or a state dict, makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.__future__ import get_overwrite_module_params_on_conversion
from tangrad.nn.parameter import Parameter, is_lazy
from tangrad.plugin import dtype_of_type
from tangrad.utils.swap import swap_tensors


def converted(parameter: Any, fn: Callable[[Any], Any], what: str) -> Any:
    """Return `parameter` with its memory, and its gradient's, replaced by `fn` of it."""
    with tangrad.no_grad():
        data = fn(parameter)
        grad = None if parameter.grad is None else fn(parameter.grad)
    # A tensor without memory cannot be given some by assigning to `data`.
    moved = (data.device.type == "meta") != (parameter.device.type == "meta")
    moved = moved or data.layout is not parameter.layout  # nor one another layout
    if moved or get_overwrite_module_params_on_conversion():
        if is_lazy(parameter):
            return type(parameter)(parameter.requires_grad, data.device, data.dtype)
        parameter = Parameter(data, requires_grad=parameter.requires_grad)
        parameter.grad = grad
        return parameter
    parameter.data = data
    if grad is not None:
        parameter.grad.data = grad
    return parameter


def swapped(parameter: Any, fn: Callable[[Any], Any], what: str) -> Any:
    """Return `parameter`, which became `fn` of it by an exchange, and so did its gradient.

    Raises:
        RuntimeError: one of them cannot be swapped; `what` names the parameter.
    """
    if is_lazy(parameter):
        return converted(parameter, fn, what)
    grad = parameter.grad
    with tangrad.no_grad():
        made = Parameter(fn(parameter), requires_grad=parameter.requires_grad)
    _exchange(parameter, made, what)
    if grad is not None:
        with tangrad.no_grad():
            made_grad = fn(grad).requires_grad_(grad.requires_grad)
        _exchange(grad, made_grad, f"{what}.grad")
        parameter.grad = grad
    return parameter


def _exchange(old: Any, new: Any, what: str) -> None:
    try:
        swap_tensors(old, new)
    except Exception as error:
        raise RuntimeError(f"_apply(): Couldn't swap {what}") from error


def take_loaded(target: Any, source: Any, assign: bool) -> None:
    """Turn a parameter or buffer into what `Tensor.module_load` makes of a state dict's value.

    Raises:
        RuntimeError: `module_load` returned one of the two, or the target cannot be swapped.
    """
    made = target.module_load(source, assign=assign)
    if made is source or made is target:
        raise RuntimeError(
            "module_load returned one of self or other, please .detach() the result if returning "
            "one of the inputs in module_load"
        )
    if isinstance(target, Parameter):
        if isinstance(made, Parameter):
            made.requires_grad_(target.requires_grad)
        else:
            made = Parameter(made, requires_grad=target.requires_grad)
    swap_tensors(target, made)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool, Any]:
    """Return (device, dtype, non_blocking, memory_format) of the arguments of `to`."""
    args = tuple(dtype_of_type(given) or given for given in args)
    options = dict(kwargs)
    memory_format = options.pop("memory_format", None)
    if (args and isinstance(args[0], tangrad.Tensor)) or "tensor" in options:
        names: tuple[str, ...] = ("tensor", "non_blocking", "copy")
    elif args and isinstance(args[0], tangrad.dtype):
        names = ("dtype", "non_blocking", "copy")
    else:
        names = ("device", "dtype", "non_blocking", "copy")
    if len(args) > len(names):
        raise TypeError(f"to() takes at most {len(names)} arguments here, got {len(args)}")
    for name, value in zip(names, args, strict=False):
        if name in options:
            raise TypeError(f"to() got multiple values for argument '{name}'")
        options[name] = value
    unknown = set(options) - {*names, "device", "dtype"}
    if unknown:
        raise TypeError(f"to() got an unexpected keyword argument '{min(unknown)}'")
    if "tensor" in options:
        tensor = options["tensor"]
        options.update(device=tensor.device, dtype=tensor.dtype)
    if options.get("copy"):
        raise RuntimeError("Module.to() does not accept copy: it changes the module in place")
    device = options.get("device")
    if device is not None and not isinstance(device, tangrad.device):
        device = tangrad.device(device)
    dtype = options.get("dtype")
    dtype = dtype_of_type(dtype) or dtype
    if dtype is not None and not isinstance(dtype, tangrad.dtype):
        raise TypeError(f"to(): dtype must be a tangrad.dtype, got {type(dtype).__name__}")
    return device, dtype, bool(options.get("non_blocking", False)), memory_format
