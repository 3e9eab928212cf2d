"""Elementwise functions of the standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_array_api import arithmetic, dtypes
from tangrad_array_api.array import BINARY, Array, absolute, operands, wrap

UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "abs": ("numeric", absolute),
    "acos": ("floating", lambda x: tangrad.acos(x)),
    "acosh": ("floating", lambda x: tangrad.acosh(x)),
    "asin": ("floating", lambda x: tangrad.asin(x)),
    "asinh": ("floating", lambda x: tangrad.asinh(x)),
    "atan": ("floating", lambda x: tangrad.atan(x)),
    "atanh": ("floating", lambda x: tangrad.atanh(x)),
    "bitwise_invert": ("integer or boolean", lambda x: tangrad.bitwise_not(x)),
    "ceil": ("real numeric", arithmetic.whole(lambda x: tangrad.ceil(x))),
    "conj": ("numeric", lambda x: tangrad.conj_physical(x)),
    "cos": ("floating", lambda x: tangrad.cos(x)),
    "cosh": ("floating", lambda x: tangrad.cosh(x)),
    "exp": ("floating", lambda x: tangrad.exp(x)),
    "expm1": ("floating", arithmetic.expm1),
    "floor": ("real numeric", arithmetic.whole(lambda x: tangrad.floor(x))),
    "imag": ("complex", lambda x: x.imag),
    "isfinite": ("numeric", lambda x: tangrad.isfinite(x)),
    "isinf": ("numeric", lambda x: tangrad.isinf(x)),
    "isnan": ("numeric", lambda x: tangrad.isnan(x)),
    "log": ("floating", lambda x: tangrad.log(x)),
    "log1p": ("floating", arithmetic.log1p),
    "log2": ("floating", lambda x: tangrad.log2(x)),
    "log10": ("floating", lambda x: tangrad.log10(x)),
    "logical_not": ("boolean", lambda x: tangrad.logical_not(x)),
    "negative": ("numeric", lambda x: tangrad.negative(x)),
    "positive": ("numeric", lambda x: x.clone()),
    "real": ("numeric", lambda x: x.real),
    "reciprocal": ("floating", lambda x: tangrad.reciprocal(x)),
    "round": ("numeric", arithmetic.whole(lambda x: tangrad.round(x))),
    "sign": ("numeric", arithmetic.sign),
    "signbit": ("real floating", lambda x: tangrad.signbit(x)),
    "sin": ("floating", lambda x: tangrad.sin(x)),
    "sinh": ("floating", lambda x: tangrad.sinh(x)),
    "sqrt": ("floating", lambda x: tangrad.sqrt(x)),
    "square": ("numeric", lambda x: x * x),
    "tan": ("floating", lambda x: tangrad.tan(x)),
    "tanh": ("floating", arithmetic.tanh),
    "trunc": ("real numeric", arithmetic.whole(lambda x: tangrad.trunc(x))),
}


def unary(name: str, accepted: str, compute: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Return the function of one array that checks its dtype."""

    def function(x: Array, /) -> Array:
        dtypes.require(name, accepted, x)
        return wrap(compute(x.tensor))

    function.__doc__ = f"Return {name} of every element; takes {accepted} dtypes."
    return named(function, name)


def binary(
    name: str, accepted: str, compute: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Array]:
    """Return the function of two operands, one of which may be a Python scalar."""

    def function(x1: Any, x2: Any, /) -> Array:
        return wrap(compute(*operands(name, accepted, x1, x2)))

    function.__doc__ = f"Return {name} of two operands; takes {accepted} dtypes."
    return named(function, name)


def named(function: Any, name: str) -> Any:
    """Give a function the name it is known by."""
    function.__name__ = function.__qualname__ = name
    return function


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: unary(name, *rest) for name, rest in UNARY.items()},
    **{name: binary(name, rest[1], rest[2]) for name, rest in BINARY.items()},
}


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """Return elements no less than `min` and no more than `max`, in the dtype of x.

    Raises:
        TypeError: If a bound is of another kind than x.
    """
    dtypes.require("clip", "real numeric", x)
    found = x.tensor
    for bound, apply in ((min, tangrad.maximum), (max, tangrad.minimum)):
        if bound is None:
            continue
        if isinstance(bound, Array):
            dtypes.promote(x.dtype, bound.dtype)
            other = bound.tensor.to(x.dtype)
        else:
            dtypes.scalar_dtype(bound, x.dtype)
            other = tangrad.tensor(bound, dtype=x.dtype, device=x.device)
        found = apply(found, other)
    return wrap(found.clone() if found is x.tensor else found)


# The functions by name, for the namespace.
abs = FUNCTIONS["abs"]
acos = FUNCTIONS["acos"]
acosh = FUNCTIONS["acosh"]
add = FUNCTIONS["add"]
asin = FUNCTIONS["asin"]
asinh = FUNCTIONS["asinh"]
atan = FUNCTIONS["atan"]
atan2 = FUNCTIONS["atan2"]
atanh = FUNCTIONS["atanh"]
bitwise_and = FUNCTIONS["bitwise_and"]
bitwise_invert = FUNCTIONS["bitwise_invert"]
bitwise_left_shift = FUNCTIONS["bitwise_left_shift"]
bitwise_or = FUNCTIONS["bitwise_or"]
bitwise_right_shift = FUNCTIONS["bitwise_right_shift"]
bitwise_xor = FUNCTIONS["bitwise_xor"]
ceil = FUNCTIONS["ceil"]
conj = FUNCTIONS["conj"]
copysign = FUNCTIONS["copysign"]
cos = FUNCTIONS["cos"]
cosh = FUNCTIONS["cosh"]
divide = FUNCTIONS["divide"]
equal = FUNCTIONS["equal"]
exp = FUNCTIONS["exp"]
expm1 = FUNCTIONS["expm1"]
floor = FUNCTIONS["floor"]
floor_divide = FUNCTIONS["floor_divide"]
greater = FUNCTIONS["greater"]
greater_equal = FUNCTIONS["greater_equal"]
hypot = FUNCTIONS["hypot"]
imag = FUNCTIONS["imag"]
isfinite = FUNCTIONS["isfinite"]
isinf = FUNCTIONS["isinf"]
isnan = FUNCTIONS["isnan"]
less = FUNCTIONS["less"]
less_equal = FUNCTIONS["less_equal"]
log = FUNCTIONS["log"]
log10 = FUNCTIONS["log10"]
log1p = FUNCTIONS["log1p"]
log2 = FUNCTIONS["log2"]
logaddexp = FUNCTIONS["logaddexp"]
logical_and = FUNCTIONS["logical_and"]
logical_not = FUNCTIONS["logical_not"]
logical_or = FUNCTIONS["logical_or"]
logical_xor = FUNCTIONS["logical_xor"]
maximum = FUNCTIONS["maximum"]
minimum = FUNCTIONS["minimum"]
multiply = FUNCTIONS["multiply"]
negative = FUNCTIONS["negative"]
nextafter = FUNCTIONS["nextafter"]
not_equal = FUNCTIONS["not_equal"]
positive = FUNCTIONS["positive"]
pow = FUNCTIONS["pow"]
real = FUNCTIONS["real"]
reciprocal = FUNCTIONS["reciprocal"]
remainder = FUNCTIONS["remainder"]
round = FUNCTIONS["round"]
sign = FUNCTIONS["sign"]
signbit = FUNCTIONS["signbit"]
sin = FUNCTIONS["sin"]
sinh = FUNCTIONS["sinh"]
sqrt = FUNCTIONS["sqrt"]
square = FUNCTIONS["square"]
subtract = FUNCTIONS["subtract"]
tan = FUNCTIONS["tan"]
tanh = FUNCTIONS["tanh"]
trunc = FUNCTIONS["trunc"]
