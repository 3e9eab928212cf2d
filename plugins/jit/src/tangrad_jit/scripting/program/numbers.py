"""Arithmetic of scripts where it is not Python's: 64 bits, IEEE division, C's mathematics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

_BITS = 1 << 64
_HIGH = (1 << 63) - 1
_LOW = -(1 << 63)


def rt_wrap(value: int) -> int:
    """Return an integer as 64 bits hold it."""
    if _LOW <= value <= _HIGH:
        return value
    value &= _BITS - 1
    return value - _BITS if value > _HIGH else value


def rt_lshift(a: int, b: int) -> int:
    """Shift to the left as processors do: by the last six bits of a number."""
    return rt_wrap(a << (b & 63))


def rt_rshift(a: int, b: int) -> int:
    """Shift to the right, as `rt_lshift` does."""
    return a >> (b & 63)


def rt_div(a: float, b: float) -> float:
    """Divide, by zero too."""
    a, b = float(a), float(b)
    if b:
        return a / b
    if a != a or a == 0.0:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def rt_complex_div(a: complex, b: complex) -> complex:
    """Divide complex numbers, by zero too."""
    try:
        return complex(a) / complex(b)
    except ZeroDivisionError:
        return complex(math.nan, math.nan)


def rt_floordiv(a: float, b: float) -> float:
    """Return the floor of a quotient."""
    found = rt_div(a, b)
    return math.copysign(math.floor(found), found) if math.isfinite(found) else found


def rt_remainder(a: float, b: float) -> float:
    """Return the remainder of the sign of the divisor."""
    return rt_fmod(b + rt_fmod(a, b), b)


def rt_fmod(a: float, b: float) -> float:
    """Return the remainder of the sign of the dividend."""
    try:
        return math.fmod(a, b)
    except ValueError:
        return math.nan


def rt_pow(a: float, b: float) -> float:
    """Return a power, as C's `pow`."""
    a, b = float(a), float(b)
    try:
        return math.pow(a, b)
    except OverflowError:
        odd = b.is_integer() and b % 2 == 1
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:
        if a == 0.0:
            odd = b.is_integer() and b % 2 == 1
            return math.copysign(math.inf, a) if odd else math.inf
        return math.nan


def rt_complex_pow(a: complex, b: complex) -> complex:
    """Return a power of complex numbers."""
    try:
        return complex(a) ** complex(b)
    except ZeroDivisionError:
        return complex(math.nan, math.nan)


def rt_divmod(a: int, b: int) -> tuple[int, int]:
    """Return quotient and remainder of integers.

    Raises:
        ZeroDivisionError: the divisor is zero.
    """
    if b == 0:
        raise ZeroDivisionError("ZeroDivisionError: integer division or modulo by zero")
    return rt_wrap(a // b), a % b


def rt_float_divmod(a: float, b: float) -> tuple[float, float]:
    """Return quotient and remainder.

    Raises:
        ZeroDivisionError: the divisor is zero.
    """
    if b == 0:
        raise ZeroDivisionError("ZeroDivisionError: float divmod()")
    rest = rt_remainder(a, b)
    return (float(a) - rest) / b, rest


def rt_round(a: float) -> float:
    """Round half to even; a float, of an integer too."""
    a = float(a)
    return math.copysign(float(round(a)), a) if math.isfinite(a) else a


def rt_gcd(a: int, b: int) -> int:
    """Return the greatest common divisor."""
    return math.gcd(a, b)


def rt_range_length(low: int, high: int, step: int) -> int:
    """Return the number of elements of a range.

    Raises:
        RuntimeError: its step is zero.
    """
    if step == 0:
        raise RuntimeError("range() arg 3 must not be zero")
    return len(range(low, high, step))


def rt_min(a: float, b: float) -> float:
    """Return the smaller number, as a float."""
    return float(a if a < b else b)


def rt_max(a: float, b: float) -> float:
    """Return the greater number, as a float."""
    return float(a if a > b else b)


def rt_least(values: list[Any]) -> Any:
    """Return the least element.

    Raises:
        RuntimeError: there is none.
    """
    if not values:
        raise RuntimeError("min() arg is an empty sequence")
    return min(values)


def rt_greatest(values: list[Any]) -> Any:
    """Return the greatest element.

    Raises:
        RuntimeError: there is none.
    """
    if not values:
        raise RuntimeError("max() arg is an empty sequence")
    return max(values)


def rt_sum(values: list[int]) -> int:
    """Return the sum of integers, as 64 bits hold it."""
    return rt_wrap(sum(values))


def rt_int_of_float(a: float) -> int:
    """Return the integer before the point; beyond 64 bits the least, as processors do."""
    if not math.isfinite(a):
        return _LOW
    found = int(a)
    return found if _LOW <= found <= _HIGH else _LOW


def rt_int_of_str(text: str) -> int:
    """Return the integer that a text begins with.

    Raises:
        RuntimeError: it is none.
    """
    try:
        return rt_wrap(int(text))
    except ValueError:
        raise RuntimeError(f"invalid literal for int() with base 10: '{text}'") from None


def rt_float_of_str(text: str) -> float:
    """Return the number that a text is.

    Raises:
        RuntimeError: it is none.
    """
    try:
        return float(text)
    except ValueError:
        raise RuntimeError(f"could not convert string to float: '{text}'") from None


def _whole(a: float, rounded: Callable[[float], int]) -> int:
    if isinstance(a, int):
        return a
    if not math.isfinite(a):
        raise RuntimeError(f"Cannot convert float {a:f} to integer")
    found = rounded(a)
    if not _LOW <= found <= _HIGH:
        raise RuntimeError(f"Cannot convert float {a:f} to integer")
    return found


def rt_ceil(a: float) -> int:
    """Return the least integer that is no less.

    Raises:
        RuntimeError: it has more than 64 bits.
    """
    return _whole(a, math.ceil)


def rt_floor(a: float) -> int:
    """Return the greatest integer that is no more.

    Raises:
        RuntimeError: it has more than 64 bits.
    """
    return _whole(a, math.floor)


def _as_in_c(function: Callable[..., float], at_zero: float = math.nan) -> Callable[..., float]:
    """Return a function of `math` that gives NaN and infinities where Python raises."""

    def call(*args: float) -> float:
        try:
            return function(*args)
        except ValueError:
            return at_zero if args[0] == 0 else math.nan
        except OverflowError:
            return math.inf

    return call


def _bounded_by_one(a: float) -> float:
    if abs(a) == 1:
        return math.copysign(math.inf, a)
    try:
        return math.atanh(a)
    except ValueError:
        return math.nan


def _log1p(a: float) -> float:
    if a == -1:
        return -math.inf
    try:
        return math.log1p(a)
    except ValueError:
        return math.nan


def _sinh(a: float) -> float:
    try:
        return math.sinh(a)
    except OverflowError:
        return math.copysign(math.inf, a)


rt_sqrt = _as_in_c(math.sqrt)
rt_exp = _as_in_c(math.exp)
rt_expm1 = _as_in_c(math.expm1)
rt_log = _as_in_c(math.log, -math.inf)
rt_log1p = _log1p
rt_log10 = _as_in_c(math.log10, -math.inf)
rt_sin = _as_in_c(math.sin)
rt_cos = _as_in_c(math.cos)
rt_tan = _as_in_c(math.tan)
rt_asin = _as_in_c(math.asin)
rt_acos = _as_in_c(math.acos)
rt_atan = math.atan
rt_atan2 = math.atan2
rt_sinh = _sinh
rt_cosh = _as_in_c(math.cosh)
rt_tanh = math.tanh
rt_asinh = math.asinh
rt_acosh = _as_in_c(math.acosh)
rt_atanh = _bounded_by_one
rt_erf = math.erf
rt_erfc = math.erfc
rt_gamma = _as_in_c(math.gamma, math.inf)
rt_degrees = math.degrees
rt_radians = math.radians
rt_copysign = math.copysign
rt_isnan = math.isnan
rt_isinf = math.isinf
rt_isfinite = math.isfinite
rt_frexp = math.frexp
rt_ldexp = _as_in_c(math.ldexp)
rt_ieee_remainder = _as_in_c(math.remainder)


def rt_lgamma(a: float) -> float:
    """Return the logarithm of the absolute gamma function, infinite at its poles."""
    try:
        return math.lgamma(a)
    except (ValueError, OverflowError):
        return math.inf


def rt_log_base(a: float, base: float) -> float:
    """Return a logarithm to a base."""
    return rt_div(rt_log(a), rt_log(base))


def rt_modf(a: float) -> tuple[float, float]:
    """Return what is behind the point, and what is before it."""
    return math.modf(a)


def rt_factorial(a: int) -> int:
    """Return a factorial, as 64 bits hold it.

    Raises:
        RuntimeError: the number is negative.
    """
    if a < 0:
        raise RuntimeError("factorial() not defined for negative values")
    # From 66 on it is a multiple of 2 ** 64.
    return rt_wrap(math.factorial(a)) if a < 66 else 0


# --- numbers whose kind is known when the program runs


def _are_ints(*numbers: Any) -> bool:
    return all(isinstance(number, int) for number in numbers)


def _are_complex(*numbers: Any) -> bool:
    return any(isinstance(number, complex) for number in numbers)


def rt_scalar_add(a: Any, b: Any) -> Any:
    """Add."""
    return rt_wrap(a + b) if _are_ints(a, b) else a + b


def rt_scalar_sub(a: Any, b: Any) -> Any:
    """Subtract."""
    return rt_wrap(a - b) if _are_ints(a, b) else a - b


def rt_scalar_mul(a: Any, b: Any) -> Any:
    """Multiply."""
    return rt_wrap(a * b) if _are_ints(a, b) else a * b


def rt_scalar_div(a: Any, b: Any) -> Any:
    """Divide; of ints the result is a float."""
    return rt_complex_div(a, b) if _are_complex(a, b) else rt_div(a, b)


def rt_scalar_floordiv(a: Any, b: Any) -> Any:
    """Divide and round down."""
    return rt_wrap(a // b) if _are_ints(a, b) else rt_floordiv(a, b)


def rt_scalar_remainder(a: Any, b: Any) -> Any:
    """Return the remainder, which has the sign of the divisor."""
    return a % b if _are_ints(a, b) else rt_remainder(a, b)


def rt_scalar_pow(a: Any, b: Any) -> Any:
    """Raise to a power; of ints the result is a float."""
    return rt_complex_pow(a, b) if _are_complex(a, b) else rt_pow(a, b)


def rt_scalar_min(a: Any, b: Any) -> Any:
    """Return the smaller number; a float where one is."""
    return min(a, b) if _are_ints(a, b) else rt_min(a, b)


def rt_scalar_max(a: Any, b: Any) -> Any:
    """Return the larger number; a float where one is."""
    return max(a, b) if _are_ints(a, b) else rt_max(a, b)


def rt_scalar_neg(a: Any) -> Any:
    """Return the negative."""
    return rt_wrap(-a) if _are_ints(a) else -a


def rt_scalar_abs(a: Any) -> Any:
    """Return the magnitude."""
    return rt_wrap(abs(a)) if _are_ints(a) else abs(a)
