"""Modules that compute one after the other, and will be one when quantized."""

from __future__ import annotations

from typing import Any

from tangrad import nn
from tangrad.nn.utils.parametrize import type_before_parametrizations


class _FusedModule(nn.Sequential):
    """Modules that are observed and converted as one."""

    _kinds: tuple[type, ...] = ()

    def _require(self, *modules: Any) -> None:
        found = [type_before_parametrizations(module) for module in modules]
        if found != list(self._kinds):
            raise AssertionError(
                f"{type(self).__name__} is of {', '.join(k.__name__ for k in self._kinds)}, got "
                f"{', '.join(kind.__name__ for kind in found)}"
            )


def _fused(name: str, *kinds: type, parameters: str) -> type:
    """Return a class of fused modules whose constructor has these parameters, PyTorch's."""
    names = parameters.split()

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        given = [*args, *(kwargs.pop(key) for key in names[len(args) :] if key in kwargs)]
        if kwargs or len(given) != len(names):
            raise TypeError(f"{name}() takes {', '.join(names)}")
        self._require(*given)
        nn.Sequential.__init__(self, *given)

    doc = f"{', '.join(kind.__name__ for kind in kinds)} in a row, to be quantized as one module."
    body = {"__init__": construct, "_kinds": kinds, "__doc__": doc, "__module__": __name__}
    return type(name, (_FusedModule,), body)


ConvReLU1d = _fused("ConvReLU1d", nn.Conv1d, nn.ReLU, parameters="conv relu")
ConvReLU2d = _fused("ConvReLU2d", nn.Conv2d, nn.ReLU, parameters="conv relu")
ConvReLU3d = _fused("ConvReLU3d", nn.Conv3d, nn.ReLU, parameters="conv relu")
LinearReLU = _fused("LinearReLU", nn.Linear, nn.ReLU, parameters="linear relu")
ConvBn1d = _fused("ConvBn1d", nn.Conv1d, nn.BatchNorm1d, parameters="conv bn")
ConvBn2d = _fused("ConvBn2d", nn.Conv2d, nn.BatchNorm2d, parameters="conv bn")
ConvBn3d = _fused("ConvBn3d", nn.Conv3d, nn.BatchNorm3d, parameters="conv bn")
ConvBnReLU1d = _fused("ConvBnReLU1d", nn.Conv1d, nn.BatchNorm1d, nn.ReLU, parameters="conv bn relu")
ConvBnReLU2d = _fused("ConvBnReLU2d", nn.Conv2d, nn.BatchNorm2d, nn.ReLU, parameters="conv bn relu")
ConvBnReLU3d = _fused("ConvBnReLU3d", nn.Conv3d, nn.BatchNorm3d, nn.ReLU, parameters="conv bn relu")
BNReLU2d = _fused("BNReLU2d", nn.BatchNorm2d, nn.ReLU, parameters="batch_norm relu")
BNReLU3d = _fused("BNReLU3d", nn.BatchNorm3d, nn.ReLU, parameters="batch_norm relu")
LinearBn1d = _fused("LinearBn1d", nn.Linear, nn.BatchNorm1d, parameters="linear bn")
LinearLeakyReLU = _fused("LinearLeakyReLU", nn.Linear, nn.LeakyReLU, parameters="linear leaky_relu")
LinearTanh = _fused("LinearTanh", nn.Linear, nn.Tanh, parameters="linear tanh")


class ConvAdd2d(_FusedModule):
    """A convolution and the sum of its output and a second input.

    Args:
        conv: the convolution.
        add: function of two tensors.
    """

    def __init__(self, conv: Any, add: Any) -> None:
        super().__init__(conv)
        self.add = add

    def forward(self, x1: Any, x2: Any) -> Any:
        """Return `add(conv(x1), x2)`."""
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(_FusedModule):
    """A convolution, the sum of its output and a second input, and a ReLU.

    Args:
        conv: the convolution.
        add: function of two tensors.
        relu: the ReLU.
    """

    def __init__(self, conv: Any, add: Any, relu: Any) -> None:
        super().__init__(conv)
        self.add = add
        self.relu = relu

    def forward(self, x1: Any, x2: Any) -> Any:
        """Return `relu(add(conv(x1), x2))`."""
        return self.relu(self.add(self[0](x1), x2))
