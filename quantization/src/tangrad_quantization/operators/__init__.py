"""The ops of PyTorch's `torch.ops.quantized`, with its names and its order of arguments.

Modules written for PyTorch call these with tensors, packed weights, scales and zero points by
position. Each is a few words around a function of `functional`. Where PyTorch has overloads, one
function tells them apart by its arguments; `.default` is the function itself.
"""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from typing import Any

from tangrad.overrides import handle_torch_function, has_torch_function
from tangrad.plugin import MissingPluginError
from tangrad_quantization.operators import convolution, embedding, linear, pointwise, recurrent

__all__: list[str] = []


def _as_it_is(name: str, function: Any) -> Any:
    return function


_packing = _as_it_is
with suppress(MissingPluginError):  # of the package that has `tangrad.library`
    from tangrad_quantization.script_forms import packing as _packing


def _overridable(function: Any) -> Any:
    """Let arguments with `__torch_function__`, such as those of traces, take over the call."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        relevant = [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]
        if has_torch_function(relevant):
            return handle_torch_function(call, relevant, *args, **kwargs)
        return function(*args, **kwargs)

    return call


def _show(module: Any) -> None:
    for name in module.__all__:
        function = _overridable(_packing(name, getattr(module, name)))
        function.default = function
        globals()[name] = function
        __all__.append(name)


for _module in (pointwise, linear, convolution, embedding, recurrent):
    _show(_module)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"'_OpNamespace' 'quantized' object has no attribute '{name}': tangrad-quantization has no "
        f"such op; it has {', '.join(sorted(__all__))}"
    )
