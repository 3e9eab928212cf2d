"""Where a model's numbers become quantized, and numbers again."""

from __future__ import annotations

from typing import Any

from tangrad import nn

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class _Stub(nn.Module):
    """Stand for what `convert` puts here.

    Args:
        qconfig: the configuration; that of the model by default.
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """Return the tensor."""
        return x


class QuantStub(_Stub):
    """Stand where numbers are to be quantized; `convert` makes a `Quantize` of it."""


class DeQuantStub(_Stub):
    """Stand where quantized values become numbers; `convert` makes a `DeQuantize` of it."""


class QuantWrapper(nn.Module):
    """A module between a `QuantStub` and a `DeQuantStub`.

    Args:
        module: the module.
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.add_module("quant", QuantStub(qconfig))
        self.add_module("dequant", DeQuantStub(qconfig))
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        """Quantize, call the module, and return numbers."""
        return self.dequant(self.module(self.quant(X)))
