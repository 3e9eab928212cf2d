"""Operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad_onnx.limits import check_broadcast
from tangrad_onnx.operators.registry import broadcasting, operator
from tangrad_onnx.values import to_array, to_number

_UNARY = {
    "Abs": tangrad.abs,
    "Acos": tangrad.acos,
    "Acosh": tangrad.acosh,
    "Asin": tangrad.asin,
    "Asinh": tangrad.asinh,
    "Atan": tangrad.atan,
    "Atanh": tangrad.atanh,
    "BitwiseNot": tangrad.bitwise_not,
    "Ceil": tangrad.ceil,
    "Cos": tangrad.cos,
    "Cosh": tangrad.cosh,
    "Erf": tangrad.erf,
    "Exp": tangrad.exp,
    "Floor": tangrad.floor,
    "IsNaN": tangrad.isnan,
    "Log": tangrad.log,
    "Neg": tangrad.neg,
    "Not": tangrad.logical_not,
    "Reciprocal": tangrad.reciprocal,
    "Relu": tangrad.relu,
    "Round": tangrad.round,
    "Sigmoid": tangrad.sigmoid,
    "Sin": tangrad.sin,
    "Sinh": tangrad.sinh,
    "Sqrt": tangrad.sqrt,
    "Tan": tangrad.tan,
    "Tanh": tangrad.tanh,
    "Softsign": F.softsign,
    "HardSwish": F.hardswish,
    "Mish": F.mish,
}
_HOST_UNARY = {"Abs": np.abs, "Neg": np.negative, "Not": np.logical_not, "Ceil": np.ceil}
_HOST_UNARY |= {"Floor": np.floor, "Sqrt": np.sqrt}

for _name, _function in _UNARY.items():
    operator(_name, host=_HOST_UNARY.get(_name))(
        lambda x, _function=_function: _function(x)  # an op of its own takes more than a tensor
    )


def _aligned(a: Any, b: Any, axis: int | None) -> Any:
    """Return the second operand as it broadcast before opset 7: from `axis` on, or at the end."""
    if axis is None:
        return b
    behind = a.ndim - (axis % max(a.ndim, 1)) - b.ndim
    return b.reshape((*b.shape, *(1 for _ in range(behind))))


def _alike(a: Any, b: Any) -> None:
    if a.dtype != b.dtype:
        kinds = f"{a.dtype.name} and {b.dtype.name}"
        raise TypeError(f"the operands have different dtypes: {kinds}; insert a Cast")


def _binary(name: str, function: Callable[..., Any], host: Callable[..., Any] | None) -> None:
    def on_host(a: Any, b: Any, *, axis: int | None = None) -> Any:
        return host(a, _aligned(a, b, axis))  # type: ignore[misc]

    @broadcasting(name, host=on_host if host is not None else None)
    def call(a: Any, b: Any, *, axis: int | None = None) -> Any:
        _alike(a, b)
        return function(a, b if axis is None else _aligned(a, b, axis))


def _divided(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point() or a.is_complex():
        return a / b
    return tangrad.div(a, b, rounding_mode="trunc")


def _divided_on_host(a: Any, b: Any) -> Any:
    if a.dtype.kind in "iu":
        return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)
    return a / b


for _name, _function, _host in (
    ("Add", tangrad.add, np.add),
    ("Sub", tangrad.sub, np.subtract),
    ("Mul", tangrad.mul, np.multiply),
    ("Div", _divided, _divided_on_host),
    ("And", tangrad.logical_and, np.logical_and),
    ("Or", tangrad.logical_or, np.logical_or),
    ("Xor", tangrad.logical_xor, np.logical_xor),
    ("Greater", tangrad.gt, np.greater),
    ("GreaterOrEqual", tangrad.ge, np.greater_equal),
    ("Less", tangrad.lt, np.less),
    ("LessOrEqual", tangrad.le, np.less_equal),
    ("BitwiseAnd", tangrad.bitwise_and, None),
    ("BitwiseOr", tangrad.bitwise_or, None),
    ("BitwiseXor", tangrad.bitwise_xor, None),
):
    _binary(_name, _function, _host)


@operator(raw=True)
def Equal(a: Any, b: Any, *, axis: int | None = None) -> Any:
    check_broadcast(a, b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.asarray(a == _aligned(a, b, axis))
    return _tensors_equal(a, b, axis=axis)


def _equal(a: Any, b: Any, *, axis: int | None = None) -> Any:
    _alike(a, b)
    return tangrad.eq(a, _aligned(a, b, axis))


_tensors_equal = operator("_Equal")(_equal)


@broadcasting(host=lambda a, b, axis=None: np.power(a, _aligned(a, b, axis)).astype(a.dtype))
def Pow(a: Any, b: Any, *, axis: int | None = None) -> Any:
    b = _aligned(a, b, axis)
    if a.is_floating_point():
        return tangrad.pow(a, b.to(a.dtype))
    if b.is_floating_point():
        return tangrad.pow(a.to(b.dtype), b).to(a.dtype)
    return tangrad.pow(a, b.to(a.dtype))


@broadcasting(host=lambda a, b, fmod=0: np.fmod(a, b) if fmod else np.mod(a, b))
def Mod(a: Any, b: Any, *, fmod: int = 0) -> Any:
    _alike(a, b)
    if fmod:
        return tangrad.fmod(a, b)
    rest = tangrad.remainder(a, b)
    if not a.is_floating_point():
        return rest
    # The result has the sign of the divisor, also where it is zero or the divisor infinite.
    rest = tangrad.where(rest == 0, tangrad.copysign(rest, b), rest)
    beyond = tangrad.isinf(b) & tangrad.isfinite(a) & (a != 0)
    return tangrad.where(beyond, tangrad.where((a < 0) == (b < 0), a, b), rest)


@broadcasting()
def BitShift(x: Any, y: Any, *, direction: str) -> Any:
    bits = x.element_size() * 8
    outside = (y < 0) | (y >= bits) if _is_signed(y) else y >= bits
    by = tangrad.where(outside, tangrad.zeros_like(y), y)
    if direction == "RIGHT":
        last = tangrad.zeros_like(x)
        if _is_signed(x):
            last = tangrad.where(x < 0, tangrad.full_like(x, -1), last)
        return tangrad.where(outside, last, tangrad.bitwise_right_shift(x, by))
    return tangrad.where(outside, tangrad.zeros_like(x), tangrad.bitwise_left_shift(x, by))


def _is_signed(x: Tensor) -> bool:
    return not x.dtype.name.startswith("u")


def _fold(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        for other in operands[1:]:
            _alike(operands[0], other)
        return reduce(function, operands)

    return call


broadcasting("Max", host=lambda *xs: reduce(np.maximum, xs))(_fold(tangrad.maximum))
broadcasting("Min", host=lambda *xs: reduce(np.minimum, xs))(_fold(tangrad.minimum))
broadcasting("Sum", host=lambda *xs: reduce(np.add, xs))(_fold(tangrad.add))


@broadcasting()
def Mean(*operands: Any) -> Any:
    return _fold(tangrad.add)(*operands) / len(operands)


@broadcasting()
def Clip(x: Any, low: Any = None, high: Any = None) -> Any:
    if isinstance(low, (int, float)) or isinstance(high, (int, float)):
        return tangrad.clamp(x, low, high)
    if low is not None:
        x = tangrad.maximum(x, low.to(x.dtype))
    return x if high is None else tangrad.minimum(x, high.to(x.dtype))


@operator()
def Celu(x: Any, *, alpha: float = 1.0) -> Any:
    return F.celu(x, alpha)


@operator()
def Elu(x: Any, *, alpha: float = 1.0) -> Any:
    return F.elu(x, alpha)


@operator()
def Selu(x: Any, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Any:
    return gamma * tangrad.where(x > 0, x, alpha * tangrad.expm1(x))


@operator()
def Gelu(x: Any, *, approximate: str = "none") -> Any:
    return F.gelu(x, approximate=approximate)


@operator()
def HardSigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return tangrad.clamp(alpha * x + beta, 0, 1)


@operator()
def LeakyRelu(x: Any, *, alpha: float = 0.01) -> Any:
    return F.leaky_relu(x, alpha)


@broadcasting()
def PRelu(x: Any, slope: Any, *, of_channels: bool = False) -> Any:
    if of_channels and slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape(-1, *(1 for _ in range(x.ndim - 2)))
    return tangrad.where(x < 0, slope * x, x)


@operator()
def Shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    zero = tangrad.zeros_like(x)
    result = tangrad.where(x < -lambd, x + bias, tangrad.where(x > lambd, x - bias, zero))
    return result.to(x.dtype)


@operator()
def Sign(x: Any) -> Any:
    sign = tangrad.sign(x)
    return tangrad.where(tangrad.isnan(x), x, sign) if x.is_floating_point() else sign


@operator()
def Softplus(x: Any) -> Any:
    return tangrad.clamp(x, min=0) + tangrad.log1p(tangrad.exp(-tangrad.abs(x)))


@operator()
def Swish(x: Any, *, alpha: float = 1.0) -> Any:
    return x * tangrad.sigmoid(alpha * x)


@broadcasting()
def SwiGLU(a: Any, b: Any, *, alpha: float = 1.0) -> Any:
    return a * tangrad.sigmoid(alpha * a) * b


@operator()
def ThresholdedRelu(x: Any, *, alpha: float = 1.0) -> Any:
    return tangrad.where(x > alpha, x, tangrad.zeros_like(x))


@operator()
def IsInf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    found = tangrad.isinf(x)
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)


@broadcasting("Where", moves=True, host=np.where)
def Where(condition: Any, x: Any, y: Any) -> Any:
    _alike(x, y)
    return tangrad.where(condition, x, y)


@operator()
def Softmax(x: Any, *, axis: int = -1, flat: bool = False) -> Any:
    return _over_rows(x, axis, flat, lambda rows, dim: tangrad.softmax(rows, dim))


@operator()
def LogSoftmax(x: Any, *, axis: int = -1, flat: bool = False) -> Any:
    return _over_rows(x, axis, flat, lambda rows, dim: tangrad.log_softmax(rows, dim))


@operator()
def Hardmax(x: Any, *, axis: int = -1, flat: bool = False) -> Any:
    def first_greatest(rows: Any, dim: int) -> Any:
        at = tangrad.argmax(rows, dim, keepdim=True)
        return tangrad.zeros_like(rows).scatter(dim, at, 1)

    return _over_rows(x, axis, flat, first_greatest)


def _over_rows(x: Any, axis: int, flat: bool, function: Callable[[Any, int], Any]) -> Any:
    """Apply a function along an axis; as before opset 13, along all axes from it on."""
    if not flat:
        return function(x, axis)
    axis = axis % x.ndim if x.ndim else 0
    rows = int(np.prod(x.shape[:axis]))
    return function(x.reshape(rows, -1), 1).reshape(x.shape)


@operator(raw=True)
def Dropout(
    x: Any,
    ratio: Any = None,
    training: Any = None,
    *,
    seed: int | None = None,
    mask: bool = True,
) -> Any:
    x = x if isinstance(x, Tensor) else tangrad.tensor(to_array(x))
    share = 0.5 if ratio is None else float(to_number(ratio))
    if training is None or not bool(to_number(training)) or share == 0:
        return x, tangrad.ones(x.shape, dtype=tangrad.bool, device=x.device) if mask else None
    if seed is None:
        kept = tangrad.rand(x.shape, device=x.device) >= share
    else:  # as the reference evaluator draws, which makes models with a seed comparable
        drawn = np.random.RandomState(int(seed) % 2**32).uniform(0, 1, tuple(x.shape))
        kept = tangrad.tensor(drawn >= share, device=x.device)
    return tangrad.where(kept, x / (1 - share), tangrad.zeros_like(x)), kept
