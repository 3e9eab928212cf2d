"""The ops of PyTorch's `torch.ops.quantized`, with its names and its order of arguments.

Modules written for PyTorch call these with tensors, packed weights, scales and zero points by
position. Each is a few words around a function of `functional`. Where PyTorch has overloads, one
function tells them apart by its arguments; `.default` is the function itself.
"""

from __future__ import annotations

from typing import Any

from tangrad_quantization.operators import convolution, embedding, linear, pointwise, recurrent

__all__: list[str] = []


def _show(module: Any) -> None:
    for name in module.__all__:
        function = getattr(module, name)
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
