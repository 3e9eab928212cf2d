"""Special functions as ONNX: by the steps, in float64, of which the library makes them.

Loops over elements become `Loop`, which runs until no element goes on. Functions that the library
takes from elsewhere have texts of their own here, in the language of expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import tangrad
from tangrad.plugin.render import own_program, parse, repeated
from tangrad_onnx.writing.graph import Writer, type_of

__all__ = ["SPECIAL", "divisor", "looped", "program_of"]

_SHIFT = 7
# Stirling's series (DLMF 5.11.1) and that of its derivative (5.11.2), by powers of 1 / y^2.
_LOG_GAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_PSI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
# B(2k) / (2k)! of Euler and Maclaurin's formula.
_MACLAURIN = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
)
_TERMS = 12


def _horner(numbers: Sequence[float], variable: str) -> str:
    return f"polynomial({variable}, {', '.join(map(repr, numbers))})"


def _log_gamma() -> str:
    product = " * ".join(["z"] + [f"(z + {k})" for k in range(1, _SHIFT)])
    series = f"{_horner(_LOG_GAMMA, '1 / (y * y)')} / y"
    return (
        "z = where(a < 0.5, 1 - a, a); large = z > 1000; small = where(large, 1.0, z);"
        f" y = where(large, z, z + {_SHIFT});"
        f" p = where(large, 1.0, {product.replace('z', 'small')});"
        f" s = (y - 0.5) * log(y) - y + 0.9189385332046727 + {series} - log(p);"
        " r = log(3.141592653589793 / abs(sin(3.141592653589793 * (a - floor(a))))) - s;"
        " where(isinf(a), inf, where((a <= 0) & (a == floor(a)), inf, where(a < 0.5, r, s)))"
    )


def _psi() -> str:
    terms = " + ".join(["1 / z"] + [f"1 / (z + {k})" for k in range(1, _SHIFT)])
    series = f"{_horner(_PSI, '1 / (y * y)')} / (y * y)"
    return (
        f"z = where(a < 0.5, 1 - a, a); y = z + {_SHIFT};"
        f" s = log(y) - 0.5 / y - {series} - ({terms});"
        " r = s - 3.141592653589793 / tan(3.141592653589793 * (a - floor(a)));"
        " where(a == 0, copysign(inf, -a), where((a < 0) & (a == floor(a)), nan,"
        " where(a < 0.5, r, s)))"
    )


def _euler_maclaurin(b: str) -> str:
    """Write Hurwitz' zeta of `a` and a positive variable (DLMF 25.11.5); `c` is `a`, but finite."""
    terms = " + ".join(f"({b} + {k}) ** -a" for k in range(_TERMS))
    w, rest, factor = f"({b} + {_TERMS})", [], "c"
    for k, number in enumerate(_MACLAURIN):
        rest.append(f"{number!r} * {factor} * {w} ** (-a - {2 * k + 1})")
        factor += f" * (c + {2 * k + 1}) * (c + {2 * k + 2})"
    return f"{terms} + {w} ** (1 - a) / (a - 1) + 0.5 * {w} ** -a + {' + '.join(rest)}"


def _zeta() -> str:
    """Write Hurwitz' zeta; below zero by the terms on both sides of it, of positive variables.

    They begin `f` above zero and `d` below it, and those from `e` on are too many.
    """
    f, d, e = (_euler_maclaurin(name) for name in "fde")
    return (
        "c = where(a < 1e18, a, 1e18); f = where(b > 0, b, b - floor(b));"
        " d = where(b > 0, 1.0, ceil(b) - b); e = where(b > 0, 1.0, 1 - b);"
        f" above = {f}; sign = where(a * 0.5 == floor(a * 0.5), 1.0, -1.0);"
        f" below = (above + sign * ({d})) - sign * ({e});"
        " where(a == 1, inf, where(a < 1, nan, where(b > 0, above,"
        " where(b == floor(b), inf, where((a == floor(a)) & (a < inf), below, nan)))))"
    )


_TEXTS = {
    "lgamma": _log_gamma(),
    "digamma": _psi(),
    "zeta": _zeta(),
    "trigamma": "zeta(2.0 + 0 * a, a)",
    "polygamma": "where(a == 0, digamma(b), where(a * 0.5 == floor(a * 0.5), -1.0, 1.0)"
    " * exp(lgamma(a + 1)) * zeta(a + 1, b))",
    # Near zero by its series: the quantile of what is near one half loses digits.
    "erfinv": "x = abs(a); where(x < 1e-4,"
    " 0.886226925452758 * (a + 0.2617993877991494 * a * a * a),"
    " -sign(a) * ndtri((1 - x) * 0.5) * 0.7071067811865476)",
    "frexp_exponent": "x = abs(a); plain = (x > 0) & (x < inf);"
    " e = where(plain, floor(log2(where(plain, x, 1.0))) + 1, 0.0);"
    " m = where(plain, x, 0.5) / exp2(e); where(plain, where(m >= 1, e + 1, where(m < 0.5, e - 1,"
    " e)), 0.0)",
    "frexp_mantissa": "e = frexp_exponent(a); where(isinf(a), a, a / exp2(e))",
}
#: Names of the steps that are written here.
SPECIAL = frozenset(
    (
        *_TEXTS,
        *"airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 erfcx gamma_density".split(),
        *("i0", "i0e", "i1", "i1e"),
        *"chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v".split(),
        *"chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he igamma igammac".split(),
        *"laguerre_polynomial_l legendre_polynomial_p log_ndtr modified_bessel_k0".split(),
        *"modified_bessel_k1 ndtri scaled_modified_bessel_k0 scaled_modified_bessel_k1".split(),
    )
)


@cache
def program_of(name: str) -> Any:
    """Return the program in float64 of a special function, None of other steps."""
    if name not in SPECIAL:
        return None
    text = _TEXTS.get(name)
    if text is None:
        return own_program(name)
    inputs = ("a", "b") if name in ("zeta", "polygamma") else ("a",)
    types = dict.fromkeys(inputs, "float64")
    return parse(text, inputs).typed(types, "float64", ["float64"])


Evaluate = Callable[[Any, Sequence[str]], list[str]]


def looped(w: Writer, step: Any, operands: Sequence[str], evaluate: Evaluate) -> str:
    """Write a step "iterate" as `Loop`, and return its first state.

    Args:
        w: the graph.
        step: of a program in float64.
        operands: its operands' names.
        evaluate: writes a program, given names of its inputs, and returns those of its results.
    """
    what = repeated(step)
    dtype = getattr(tangrad, step.type)

    def body(k: str, states: Sequence[str]) -> tuple[str, list[str]]:
        given = [w.cast(k, tangrad.int64, dtype), *states, *operands[what.states :]]
        more, *following = evaluate(what.program, given)
        pairs = zip(states, following, strict=True)
        return more, [str(w.op("Where", more, new, old)) for old, new in pairs]

    states = _of_one_shape(w, operands)[: what.states]
    return _loop(w, what.bound, states, dtype, body)[0]


def _of_one_shape(w: Writer, operands: Sequence[str]) -> list[str]:
    shape = None
    for name in operands:
        is_there = w.op("Equal", name, name)
        shape = is_there if shape is None else w.op("Or", shape, is_there)
    sizes = w.shape(str(shape))
    return [str(w.op("Expand", name, sizes)) for name in operands]


def _loop(
    w: Writer,
    bound: int,
    states: Sequence[str],
    dtype: Any,
    body: Callable[[str, Sequence[str]], tuple[str, list[str]]],
) -> list[str]:
    """Repeat a body, which returns for each element whether it goes on, and the next states."""
    outer, w.nodes = w.nodes, []
    round_, going = w.unique("round"), w.unique("going_on")
    inner = [w.unique("state") for _ in states]
    more, following = body(round_, inner)
    any_more = w.op("ReduceMax", w.cast(more, tangrad.bool, tangrad.int32), keepdims=0)
    results = [
        w.cast(any_more, tangrad.int32, tangrad.bool),
        *(w.op("Identity", name) for name in following),
    ]
    made, w.nodes = w.nodes, outer
    kind = type_of(dtype)
    graph = helper.make_graph(
        made,
        "repeated",
        [
            helper.make_tensor_value_info(round_, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, kind, None) for name in inner),
        ],
        [
            helper.make_tensor_value_info(results[0], TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, kind, None) for name in results[1:]),
        ],
    )
    most, begins = w.size(bound), w.constant(np.array(True))
    found = w.op("Loop", most, begins, *states, outputs=len(states), body=graph)
    return [found] if len(states) == 1 else list(found)


def divisor(w: Writer, a: str, b: str, dtype: Any) -> str:
    """Return the greatest common divisor of integers, by Euclid."""
    start = _of_one_shape(w, [str(w.op("Abs", a)), str(w.op("Abs", b))])
    zero, one = w.constant(0, dtype), w.constant(1, dtype)

    def body(k: str, states: Sequence[str]) -> tuple[str, list[str]]:
        larger, smaller = states
        more = w.op("Not", w.op("Equal", smaller, zero))
        rest = w.op("Mod", larger, w.op("Where", more, smaller, one))
        return more, [w.op("Where", more, smaller, larger), w.op("Where", more, rest, smaller)]

    return _loop(w, 128, start, dtype, body)[0]
