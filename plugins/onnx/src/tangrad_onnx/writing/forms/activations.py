"""Pointwise ops for which ONNX has one operator of the same meaning.

Others are written from their expressions, which would do for these, too, in more nodes: runtimes
know these operators, fuse them with what stands before, and quantize them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Writer


def _single(operator: str, **attributes: str | float) -> Callable[..., Any]:
    """Return the form of one operator whose attributes are parameters of the op, or constants."""

    def call(w: Writer, a: Any, out: Any) -> Any:
        if not w.accepts(operator, a.self.dtype):
            return None  # by its expression
        given: dict[str, Any] = {
            key: float(getattr(a, value)) if isinstance(value, str) else value
            for key, value in attributes.items()
        }
        return w.op(operator, a.self.name, **given)

    return call


form("relu")(_single("Relu"))
form("leaky_relu")(_single("LeakyRelu", alpha="negative_slope"))
form("elu")(_single("Elu", alpha="alpha"))
form("selu")(_single("Selu"))
form("celu")(_single("Celu", alpha="alpha"))
form("mish")(_single("Mish"))
form("hardsigmoid")(_single("HardSigmoid", alpha=1 / 6, beta=0.5))
form("hardswish")(_single("HardSwish"))
form("softsign")(_single("Softsign"))


def _gelu(approximate: str) -> Callable[..., Any]:
    def call(w: Writer, a: Any, out: Any) -> Any:
        if not w.accepts("Gelu", a.self.dtype):
            return None
        return w.op("Gelu", a.self.name, approximate=approximate)

    return call


form("gelu_none")(_gelu("none"))
form("gelu_tanh")(_gelu("tanh"))


@form("softplus")
def _softplus(w: Writer, a: Any, out: Any) -> Any:
    # Above a threshold of 20 the function and its argument are the same number in single
    # precision, and the operator has no threshold.
    if a.beta != 1 or a.threshold < 20 or a.self.dtype.itemsize > 4:
        return None
    return w.op("Softplus", a.self.name) if w.accepts("Softplus", a.self.dtype) else None


@form("prelu_elements")
def _prelu(w: Writer, a: Any, out: Any) -> Any:
    x, slope = a.self, a.weight
    same = len(slope.shape) <= len(x.shape) and x.dtype == slope.dtype
    ends = zip(reversed(slope.shape), reversed(x.shape), strict=False)
    if not same or not all(n == 1 or n is m or n == m for n, m in ends):
        return None
    return w.op("PRelu", x.name, slope.name) if w.accepts("PRelu", x.dtype) else None


def _clip(w: Writer, x: Any, low: Any, high: Any, out: Any) -> Any:
    numbers = all(isinstance(bound, (int, float, type(None))) for bound in (low, high))
    if not numbers or not out.dtype.is_floating_point or x.dtype != out.dtype:
        return None
    if not w.accepts("Clip", x.dtype):
        return None
    bounds = [None if bound is None else w.constant(bound, out.dtype) for bound in (low, high)]
    return w.op("Clip", x.name, *(bounds if high is not None else bounds[:1]))


form("relu6")(lambda w, a, out: _clip(w, a.self, 0, 6, out))
form("hardtanh")(lambda w, a, out: _clip(w, a.self, a.min_val, a.max_val, out))
form("clamp_both")(lambda w, a, out: _clip(w, a.self, a.min, a.max, out))
form("clamp_min")(lambda w, a, out: _clip(w, a.self, a.min, None, out))
form("clamp_max")(lambda w, a, out: _clip(w, a.self, None, a.max, out))
