"""Pointwise ops for which ONNX has one operator of the same meaning.

Others are written from their expressions, which would do for these, too, in more nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Writer


def _single(operator: str, **attributes: str | float) -> Callable[..., Any]:
    """Return the form of one operator whose attributes are parameters of the op, or numbers."""

    def call(w: Writer, a: Any, out: Any) -> Any:
        given: dict[str, Any] = {
            key: float(getattr(a, value)) if isinstance(value, str) else value
            for key, value in attributes.items()
        }
        return w.op(operator, a.self.name, **given)

    return call


form("relu")(_single("Relu"))
form("leaky_relu")(_single("LeakyRelu", alpha="negative_slope"))
form("celu")(_single("Celu", alpha="alpha"))
form("hardsigmoid")(_single("HardSigmoid", alpha=1 / 6, beta=0.5))
form("softsign")(_single("Softsign"))


@form("gelu_none")
def _gelu(w: Writer, a: Any, out: Any) -> Any:
    return _gelu_by(w, a, out, "none")


@form("gelu_tanh")
def _gelu_tanh(w: Writer, a: Any, out: Any) -> Any:
    return _gelu_by(w, a, out, "tanh")


def _gelu_by(w: Writer, a: Any, out: Any, approximate: str) -> Any:
    if w.opset < 20:
        return None  # by its expression
    return w.op("Gelu", a.self.name, approximate=approximate)


@form("hardswish")
def _hardswish(w: Writer, a: Any, out: Any) -> Any:
    return w.op("HardSwish", a.self.name) if w.opset >= 14 else None


@form("clamp_both")
def _clamp(w: Writer, a: Any, out: Any) -> Any:
    numbers = all(isinstance(x, (int, float)) for x in (a.min, a.max))
    if not numbers or not out.dtype.is_floating_point or a.self.dtype != out.dtype:
        return None
    return w.op("Clip", a.self.name, *(w.constant(x, out.dtype) for x in (a.min, a.max)))
