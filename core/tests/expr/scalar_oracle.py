"""Evaluate typed programs on Python scalars: the oracle that tests measure against.

Integers are exact and wrap around at the end of each operation. Floats are not rounded to the
program's types: they are float64, or mpmath numbers of as many bits as wanted. Only casts to the
half types round, because a program that has them means it.
"""

from __future__ import annotations

import cmath
import math
import struct
from collections.abc import Callable
from typing import Any

from tangrad.expr.composed import COMPOSED
from tangrad.expr.dtypes import BITS, KINDS
from tangrad.expr.infer import typed_body
from tangrad.expr.loop import loop_of
from tangrad.expr.primitives import PRIMITIVES
from tangrad.expr.scalar_eval import NAMESPACE, evaluate
from tangrad.expr.steps import Instruction, Steps


def oracle_of(program: Steps, prec: int | None = None) -> Callable[..., tuple]:
    """Return the function of scalars, in float64, or of mpmath with ``prec`` bits."""
    return _runner(program, _Float64() if prec is None else _MultiplePrecision(prec))


def _runner(program: Steps, arithmetic: Any) -> Callable[..., tuple]:
    def run(*scalars: Any, index: int = 0, **params: Any) -> tuple:
        named = dict(zip(program.inputs, scalars, strict=True)) | params
        values: list[Any] = []
        for step in program.instructions:
            operands = [values[arg] for arg in step.args]
            values.append(_value(step, operands, named, index, arithmetic))
        return tuple(values[k] for k in program.results)

    return run


def _value(
    step: Instruction, operands: list[Any], named: dict[str, Any], index: int, arithmetic: Any
) -> Any:
    if step.op in ("load", "param"):
        return _convert(named[str(step.value)], step.type, arithmetic)
    if step.op == "literal":
        return _convert(step.value, step.type, arithmetic)
    if step.op == "convert":
        return _convert(operands[0], step.type, arithmetic)
    if step.op == "cast":
        return arithmetic.number(round_to_half(float(operands[0]), str(step.value)))
    if step.op == "iterate":
        return _iterate(step, operands, arithmetic)
    text = PRIMITIVES[step.op].text("python", KINDS[step.operand])
    namespace = arithmetic.namespace(KINDS[step.operand]) | {"index": index}
    return _convert(evaluate(str(text), operands, namespace), step.type, arithmetic)


def _iterate(step: Instruction, operands: list[Any], arithmetic: Any) -> Any:
    loop = loop_of(str(step.value))
    body = _runner(typed_body(str(step.value), step.type), arithmetic)
    states, constants = operands[: loop.states], operands[loop.states :]
    for k in range(loop.bound):
        more, *following = body(k, *states, *constants)
        if not more:
            break
        states = following
    return states[0]


def _convert(value: Any, dtype: str, arithmetic: Any) -> Any:
    kind = KINDS[dtype]
    if kind == "b":
        return bool(value)
    if kind == "c":
        return arithmetic.complex_number(value)
    value = getattr(value, "real", value)
    if kind == "f":
        return arithmetic.number(value)
    wrapped = int(value) & ((1 << BITS[dtype]) - 1)
    negative = kind == "i" and wrapped >> (BITS[dtype] - 1)
    return wrapped - (1 << BITS[dtype]) if negative else wrapped


def round_to_half(value: float, dtype: str) -> float:
    """Round to float16 or bfloat16, half to even."""
    if dtype == "float16":
        try:
            return float(struct.unpack("e", struct.pack("e", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    if not math.isfinite(value):
        return value
    bits = struct.unpack("I", struct.pack("f", value))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(struct.unpack("f", struct.pack("I", bits))[0])


def _shift_left(a: int, b: int) -> int:
    return a << b if 0 <= b < 64 else 0


def _shift_right(a: int, b: int) -> int:
    return a >> (b if 0 <= b < 64 else 64)


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and b >= 0:
        return pow(a, b, 1 << 64)
    return NAMESPACE["power"](a, b)


def _philox_uniform(seed: int, offset: int, index: int) -> float:
    counter = (offset + index // 4) % (1 << 64)
    low = (1 << 32) - 1
    x = [counter & low, counter >> 32, 0, 0]
    key = [seed & low, seed >> 32 & low]
    for _ in range(10):
        p0, p1 = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
        x = [(p1 >> 32) ^ x[1] ^ key[0], p1 & low, (p0 >> 32) ^ x[3] ^ key[1], p0 & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return float((x[index % 4] >> 8) * 2.0**-24)


_INTEGER = {
    "lshift": _shift_left,
    "rshift": _shift_right,
    "power": _power,
    "philox_uniform": _philox_uniform,
}


class _Float64:
    """Compute in Python's floats."""

    def __init__(self) -> None:
        from fractions import Fraction

        names = ("exp log sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh").split()
        special = "erfinv digamma trigamma polygamma zeta"
        self._real = NAMESPACE | _INTEGER
        self._real |= {name: _special(name) for name in special.split()}
        self._real |= {name: _composed(name) for name in COMPOSED}
        self._real["fma"] = lambda a, b, c: float(Fraction(a) * Fraction(b) + Fraction(c))
        self._complex = NAMESPACE | {name: getattr(cmath, name) for name in names}
        own: dict[str, Callable[..., Any]] = {
            "exp2": lambda a: 2**a,
            "expm1": lambda a: cmath.exp(a) - 1,
            "log2": lambda a: cmath.log(a) / math.log(2),
            "log10": cmath.log10,
            "log1p": lambda a: cmath.log(a + 1),
            "rsqrt": lambda a: 1 / cmath.sqrt(a),
            "sigmoid": lambda a: 1 / (cmath.exp(a * -1) + 1),
            "sigmoid_slope": lambda a: 0.25 / cmath.cosh(a * 0.5) ** 2,
            "isnan": cmath.isnan,
            "isinf": cmath.isinf,
            "isfinite": cmath.isfinite,
        }
        self._complex |= own

    def number(self, value: Any) -> float:
        return float(value)

    def complex_number(self, value: Any) -> complex:
        return complex(value)

    def namespace(self, kind: str) -> dict[str, Any]:
        return self._complex if kind == "c" else self._real


def _special(name: str) -> Callable[..., float]:
    def function(*operands: float) -> float:
        import numpy as np

        from tangrad.expr import special

        return float(getattr(special, name)(*map(np.float64, operands)))

    return function


def _composed(name: str) -> Callable[..., float]:
    def function(*operands: float) -> float:
        from tangrad.expr.numpy_eval import composed

        return float(composed(name, *operands))

    return function


class _MultiplePrecision:
    """Compute in mpmath's numbers."""

    def __init__(self, prec: int) -> None:
        import mpmath

        self.mp = mp = mpmath.mp.clone()
        mp.prec = prec
        names = (
            "exp expm1 log log10 log1p sqrt cbrt sin cos tan asin acos atan sinh cosh tanh asinh"
            " acosh atanh atan2 hypot erf erfc erfinv digamma zeta isnan isinf isfinite"
        ).split()
        table = (
            {name: getattr(mp, name) for name in names}
            | {
                "exp2": lambda a: mp.power(2, a),
                "log2": lambda a: mp.log(a) / mp.log(2),
                "rsqrt": lambda a: 1 / mp.sqrt(a),
                "lgamma": lambda a: mp.re(mp.loggamma(a)),
                "trigamma": lambda a: mp.psi(1, a),
                "polygamma": lambda n, a: mp.psi(int(n), a),
                "sigmoid": lambda a: 1 / (1 + mp.exp(-a)),
                "sigmoid_slope": lambda a: 1 / (2 + mp.exp(a) + mp.exp(-a)),
                "log_sigmoid": lambda a: -mp.log1p(mp.exp(-a)),
                "xlogy": lambda a, b: mp.mpf(0) if a == 0 else a * mp.log(b),
                "power": mp.power,
                "truediv": lambda a, b: a / b,
                "floor_divide": lambda a, b: mp.floor(a / b),
                "fmod": lambda a, b: a - b * self._trunc(a / b),
                "remainder": lambda a, b: a - b * mp.floor(a / b),
                "trunc_divide": lambda a, b: self._trunc(a / b),
                "frexp": mp.frexp,
                "trunc": self._trunc,
                "floor": mp.floor,
                "ceil": mp.ceil,
                "round": mp.nint,
                "sign": mp.sign,
                "sgn": lambda a: a / abs(a) if a else a,
                "angle": mp.arg,
                "real": mp.re,
                "imag": mp.im,
                "conj": mp.conj,
                "complex": mp.mpc,
                "fma": lambda a, b, c: a * b + c,
                "copysign": lambda a, b: abs(a) * (1 if b >= 0 else -1),
                "signbit": lambda a: a < 0,
            }
            | _special_functions(mp)
        )
        self._integers = NAMESPACE | _INTEGER
        self._numbers = self._integers | table

    def _trunc(self, a: Any) -> Any:
        return self.mp.floor(a) if a >= 0 else self.mp.ceil(a)

    def number(self, value: Any) -> Any:
        return self.mp.mpf(value)

    def complex_number(self, value: Any) -> Any:
        return self.mp.mpc(value)

    def namespace(self, kind: str) -> dict[str, Any]:
        return self._numbers if kind in "fc" else self._integers


def _special_functions(mp: Any) -> dict[str, Callable[..., Any]]:
    """Return mpmath's own form of the functions of ``composed.py``."""

    def polynomial(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a, b: function(int(b), a) if b >= 0 else mp.mpf(0)

    def chebyshev_v(n: int, a: Any) -> Any:
        return mp.chebyu(n, a) - (mp.chebyu(n - 1, a) if n else 0)

    def chebyshev_w(n: int, a: Any) -> Any:
        return mp.chebyu(n, a) + (mp.chebyu(n - 1, a) if n else 0)

    def ndtri(a: Any) -> Any:
        with mp.extraprec(1100):  # 1 - 2a has the digits of the smallest float64
            return mp.sqrt(2) * mp.erfinv(2 * a - 1)

    def igamma(a: Any, b: Any) -> Any:
        front = mp.exp(a * mp.log(b) - b - mp.loggamma(a + 1))
        return front * mp.hyp1f1(1, a + 1, b, maxterms=10**7)

    def igammac(a: Any, b: Any) -> Any:
        with mp.extraprec(1100):
            return 1 - igamma(a, b)

    def hermite_he(n: int, a: Any) -> Any:
        return mp.hermite(n, a / mp.sqrt(2)) / mp.sqrt(2) ** n

    return {
        "i0": lambda a: mp.besseli(0, a),
        "i0e": lambda a: mp.besseli(0, a) * mp.exp(-abs(a)),
        "i1": lambda a: mp.besseli(1, a),
        "i1e": lambda a: mp.besseli(1, a) * mp.exp(-abs(a)),
        "modified_bessel_k0": lambda a: mp.besselk(0, a),
        "modified_bessel_k1": lambda a: mp.besselk(1, a),
        "scaled_modified_bessel_k0": lambda a: mp.besselk(0, a) * mp.exp(a),
        "scaled_modified_bessel_k1": lambda a: mp.besselk(1, a) * mp.exp(a),
        "bessel_j0": lambda a: mp.besselj(0, a),
        "bessel_j1": lambda a: mp.besselj(1, a),
        "bessel_y0": lambda a: mp.bessely(0, a),
        "bessel_y1": lambda a: mp.bessely(1, a),
        "airy_ai": mp.airyai,
        "erfcx": lambda a: mp.exp(a * a) * mp.erfc(a),
        "ndtri": ndtri,
        "log_ndtr": lambda a: mp.log(mp.erfc(-a / mp.sqrt(2)) / 2),
        "gamma_density": lambda a, b: mp.exp((a - 1) * mp.log(b) - b - mp.loggamma(a)),
        "igamma": igamma,
        "igammac": igammac,
        "chebyshev_polynomial_t": polynomial(mp.chebyt),
        "chebyshev_polynomial_u": polynomial(mp.chebyu),
        "chebyshev_polynomial_v": polynomial(chebyshev_v),
        "chebyshev_polynomial_w": polynomial(chebyshev_w),
        "hermite_polynomial_h": polynomial(mp.hermite),
        "hermite_polynomial_he": polynomial(hermite_he),
        "laguerre_polynomial_l": polynomial(lambda n, a: mp.laguerre(n, 0, a)),
        "legendre_polynomial_p": polynomial(mp.legendre),
    }
