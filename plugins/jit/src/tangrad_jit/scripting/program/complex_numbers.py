"""Mathematics of complex numbers in scripts: C's, which gives infinities where Python raises."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import tangrad


def _as_in_c(name: str) -> Callable[[Any], complex]:
    function = getattr(cmath, name)

    def call(a: Any) -> complex:
        try:
            return complex(function(a))
        except (ValueError, OverflowError):
            of_tensors = getattr(tangrad, name)(tangrad.tensor(a, dtype=tangrad.complex128))
            return complex(of_tensors.item())

    return call


rt_complex_sqrt = _as_in_c("sqrt")
rt_complex_exp = _as_in_c("exp")
rt_complex_log = _as_in_c("log")
rt_complex_log10 = _as_in_c("log10")
rt_complex_sin = _as_in_c("sin")
rt_complex_cos = _as_in_c("cos")
rt_complex_tan = _as_in_c("tan")
rt_complex_asin = _as_in_c("asin")
rt_complex_acos = _as_in_c("acos")
rt_complex_atan = _as_in_c("atan")
rt_complex_sinh = _as_in_c("sinh")
rt_complex_cosh = _as_in_c("cosh")
rt_complex_tanh = _as_in_c("tanh")
rt_complex_asinh = _as_in_c("asinh")
rt_complex_acosh = _as_in_c("acosh")
rt_complex_atanh = _as_in_c("atanh")
rt_complex_isnan = cmath.isnan
rt_complex_isinf = cmath.isinf
rt_complex_isfinite = cmath.isfinite


def rt_complex_log_base(a: Any, base: Any) -> complex:
    """Return a logarithm to a base; of base 1 it is nothing that is a number."""
    below = rt_complex_log(base)
    return rt_complex_log(a) / below if below else complex(math.nan, math.nan)


def rt_angle(a: Any) -> float:
    """Return the angle of a number; of a real one 0 or pi, and NaN of NaN."""
    if isinstance(a, complex):
        return math.atan2(a.imag, a.real)
    if a != a:
        return math.nan
    return math.pi if a < 0 else 0.0


def rt_polar(length: float, angle: float) -> complex:
    """Return the complex number of a length at an angle."""
    return complex(length * math.cos(angle), length * math.sin(angle))
