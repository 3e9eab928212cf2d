"""Evaluate primitives on Python scalars: constant folding and the exact oracle."""

from __future__ import annotations

import math

from tangrad.expr.primitives import Primitive

TYPE_CHECKING = False  # importing typing would double the time to import this package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Scalar = bool | int | float | complex | str

_MAX_FOLDED_BITS = 256


def _sign(a: Any) -> Any:
    return type(a)((a > 0) - (a < 0))


def _sgn(a: Any) -> Any:
    if isinstance(a, complex):
        return a / abs(a) if a else a
    return _sign(a)


def _truediv(a: Any, b: Any) -> Any:
    if b != 0 or isinstance(b, complex):
        return a / b
    if a == 0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _floor_divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return _truediv(a, b) if b == 0 or math.isinf(a) else float(a // b)


def _fmod(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


def _remainder(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    rest = _fmod(a, b)
    return rest + b if rest != 0 and (b < 0) != (rest < 0) else rest


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and b < 0:
        return a if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0
    if isinstance(a, complex) or isinstance(b, complex) or isinstance(a, int):
        return a**b
    return math.pow(a, b)


def _maximum(a: Any, b: Any) -> Any:
    return a if a != a or (b == b and a > b) else b


def _minimum(a: Any, b: Any) -> Any:
    return a if a != a or (b == b and a < b) else b


def _angle(a: Any) -> float:
    if isinstance(a, complex):
        return math.atan2(a.imag, a.real)
    return a if a != a else (math.pi if a < 0 else 0.0)


def _sigmoid(a: Any) -> Any:
    e = math.exp(-abs(a))
    return (1.0 if a >= 0 else e) / (1.0 + e)


def _integer_or(function: Callable[[float], int]) -> Callable[[Any], Any]:
    def rounded(a: Any) -> Any:
        if isinstance(a, int) or not math.isfinite(a):
            return a
        return math.copysign(float(function(a)), a)

    return rounded


def _trunc_divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return _integer_or(math.trunc)(_truediv(a, b))


NAMESPACE: dict[str, Any] = {
    name: getattr(math, name)
    for name in (
        "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan asin acos atan sinh cosh tanh"
        " asinh acosh atanh atan2 hypot erf erfc lgamma gcd lcm copysign isnan isinf"
        " isfinite nextafter"
    ).split()
} | {
    "rsqrt": lambda a: 1.0 / math.sqrt(a),
    "truediv": _truediv,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "fmod": _fmod,
    "trunc_divide": _trunc_divide,
    "frexp": math.frexp,
    "power": _power,
    "maximum": _maximum,
    "minimum": _minimum,
    "fmax": lambda a, b: b if a != a else (a if b != b or a >= b else b),
    "fmin": lambda a, b: b if a != a else (a if b != b or a <= b else b),
    "sign": _sign,
    "sgn": _sgn,
    "angle": _angle,
    "real": lambda a: a.real,
    "imag": lambda a: a.imag,
    "conj": lambda a: a.conjugate(),
    "floor": _integer_or(math.floor),
    "ceil": _integer_or(math.ceil),
    "trunc": _integer_or(math.trunc),
    "round": _integer_or(round),
    "signbit": lambda a: math.copysign(1.0, a) < 0,
    "sigmoid": _sigmoid,
    "sigmoid_slope": lambda a: _sigmoid(a) * _sigmoid(-a),
    "log_sigmoid": lambda a: min(a, 0.0) - math.log1p(math.exp(-abs(a))),
    "xlogy": lambda a, b: b if b != b else (0.0 if a == 0 else a * math.log(b)),
}

_compiled: dict[str, Any] = {}


def evaluate(text: str, operands: list[Any], namespace: dict[str, Any]) -> Any:
    """Evaluate the Python column of a primitive; ``operands`` are called a, b, c."""
    code = _compiled.get(text)
    if code is None:
        code = _compiled[text] = compile(text, "<primitive>", "eval")
    return eval(code, namespace, dict(zip("abc", operands, strict=False)))  # the table's own text


def _too_large(primitive: Primitive, operands: list[Any]) -> bool:
    if primitive.name != "pow" or not isinstance(operands[0], int):
        return False
    exponent = operands[1]
    if not isinstance(exponent, int):
        return False
    # 2 ** -1 is 0 in integers and 0.5 in floats: only the type can tell.
    return exponent < 0 or exponent * operands[0].bit_length() > _MAX_FOLDED_BITS


def fold(primitive: Primitive, operands: list[Scalar]) -> Scalar | None:
    """Return the primitive's value on literals, None where it depends on the type or is undefined.

    Real functions are evaluated in float64 and so rounded once when the program is typed.
    """
    if any(isinstance(operand, str) for operand in operands):
        return _fold_strings(primitive, operands)
    if not primitive.folds or _too_large(primitive, operands):
        return None
    floating = any(isinstance(operand, float) for operand in operands)
    text = primitive.text("python", "f" if floating else "i")
    if text is None or (
        "c" not in primitive.kinds and any(isinstance(operand, complex) for operand in operands)
    ):
        return None
    try:
        value = evaluate(text, list(operands), NAMESPACE)
    except (ValueError, OverflowError, ArithmeticError, TypeError, NameError):
        return None
    if isinstance(value, complex) and not any(isinstance(o, complex) for o in operands):
        return None
    if floating and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _fold_strings(primitive: Primitive, operands: list[Scalar]) -> bool | None:
    if primitive.name == "eq":
        return operands[0] == operands[1]
    return operands[0] != operands[1] if primitive.name == "ne" else None
