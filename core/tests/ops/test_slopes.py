"""First and second derivatives of pointwise ops, from tail to tail, against mpmath.

The oracle knows only what an op computes: its expression, in numbers of 4,200 bits, of which
differences are taken. A derivative may be off by what rounding its operand does to it anyway.
"""

from __future__ import annotations

import itertools
import math
import os

import mpmath
import pytest
from scalar_oracle import oracle_of

import tangrad
from tangrad.expr.errors import DerivativeError
from tangrad.ops.definition.schema import REQUIRED
from tangrad.plugin import find_op

BITS, EPS = 4200, 2.0**-52
# Of functions that take mpmath seconds at so many.
FEW_BITS, SLOW = 1260, ("bessel", "i0", "i1", "igamma", "zeta", "polygamma", "ndtri", "erfinv")
SIZES = [1e-100, 1e-20, 1e-12, 1e-6, 1e-3, 0.05, 0.3, 0.55, 0.75, 0.97, 0.9999, 1.3, 2.2, 4.1,
         6.3, 8.1, 13.3, 19.5, 25.0, 37.5, 60.0, 200.0, 350.0, 700.0, 1e5, 1e20, 1e100,
         1e160, 1.7e308, 1e300]  # fmt: skip
FEW_SIZES = [1e-100, 1e-6, 0.4, 3.0, 40.0, 300.0, 1e5, 1e100]
TWICE_OVERFLOWS = 8.9e307  # second derivatives hold twice of an operand
# Of both signs, as neighbours differ in it.
STRIDE = 1 if os.environ.get("TANGRAD_TESTS") == "full" else 3
# Parameters that have no default.
PARAMS = {"alpha": 2, "threshold": 0.5, "value": 1.5, "delta": 1.0, "beta": 1.0}
JUDGED = """_cube abs absolute_difference acos acosh addcdiv addcmul angle asin asinh atan atan2
    atanh
    celu copysign cos cosh cross_entropy_of_score deg2rad digamma elu erf erfc erfinv exp
    exp2 expm1 fmax fmod gelu_none gelu_tanh hardshrink hardsigmoid hardswish hardtanh
    huber_difference hypot i0 igamma leaky_relu lerp lgamma log log10 log1p log2 logaddexp
    logaddexp2 logit_plain logsigmoid mish mul pow rad2deg reciprocal relu relu6 remainder
    rsqrt selu sigmoid silu sin sinc sinh smooth_difference softplus softshrink softsign
    special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
    special_ndtr special_ndtri sqrt square squared_difference tan tanh tanhshrink threshold
    true_divide xlogy""".split()
# How many roundings the exponents of powers lose: of what is one less than given, the logarithm.
LOST = {"pow": lambda x, exponent: 3 * abs(math.log(abs(x)))}
# Whose second derivative is a difference that loses digits.
FIRST_ONLY = {
    "cross_entropy_of_score": "where a huge weight and a tiny target make 1 of each other",
}


def given(definition):
    """Return the numbers of an op's parameters."""
    params = {p.name: p.default for p in definition.schema.params if p.name in definition.params}
    found = {n: PARAMS.get(n, 0.7) if d is REQUIRED else d for n, d in params.items()}
    return {n: value for n, value in found.items() if value is not None}


def exact(function, point, which, bits):
    """Return a function's value and its first three derivatives by one of its operands."""
    mp = mpmath.mp.clone()
    mp.prec = bits
    step = abs(mp.mpf(point[which])) * mp.mpf(2) ** -(bits // 6)

    def at(k):
        operands = [mp.mpf(x) for x in point]
        operands[which] += k * step
        value = function(*operands)
        if not mp.isfinite(value):
            raise ValueError("out of the function's domain")
        return value

    before2, before, here, after, after2 = map(at, range(-2, 3))
    first, second = (after - before) / (2 * step), (after - 2 * here + before) / step**2
    if is_kink(mp, point[which], here, first, second, bits):
        raise ValueError("the function has a step or a kink here")
    return here, first, second, (after2 - 2 * after + 2 * before - before2) / (2 * step**3)


def is_kink(mp, x, value, first, second, bits):
    """Tell whether differences grow as the step shrinks, not as the function has it."""
    size, large = abs(value) + mp.mpf(2) ** -1000, mp.mpf(2) ** (bits // 7)
    return abs(first * x) > large * size or abs(second * x * x) > large * (size + abs(first * x))


def off(actual, derivative, following, x, lost=0.0):
    """Tell whether a derivative is wrong in relative terms, given the exact one and the next.

    Args:
        x: the size of operands.
        lost: what else it may be off by, in roundings.
    """
    size = abs(derivative)
    if size < 1e-290 or size > 1e290:
        return not (abs(actual) < 1e-289 if size < 1 else abs(actual) > 1e289)
    if not math.isfinite(actual):
        return True
    return abs(actual - derivative) / size > EPS * (
        60 + lost + 20 * abs(x * following / derivative)
    )


def slopes(op, points, which, params):
    """Return the values and their first and second derivatives at all points, by tangrad."""
    columns = [
        tangrad.tensor(list(c), dtype=tangrad.float64, device="reference").requires_grad_(
            k == which
        )
        for k, c in enumerate(zip(*points, strict=True))
    ]
    result = op(**dict(zip(op.definition.inputs, columns, strict=True)), **params)
    (first,) = tangrad.autograd.grad(result.sum(), columns[which], create_graph=True)
    second = tangrad.zeros_like(first)
    if first.requires_grad:
        (second,) = tangrad.autograd.grad(first.sum(), columns[which], allow_unused=True)
        second = tangrad.zeros_like(first) if second is None else second
    return zip(result.tolist(), first.tolist(), second.tolist(), strict=True)


@pytest.mark.parametrize("name", JUDGED)
def test_slopes_keep_their_digits_in_the_tails(name):
    op = find_op(name)
    definition, params = op.definition, given(op.definition)
    names = definition.inputs
    bits = FEW_BITS if any(slow in name for slow in SLOW) else BITS
    program = oracle_of(
        definition.expression.typed(dict.fromkeys(names, "float64"), "float64"), bits
    )
    alone = len(names) == 1
    # Triples of all of them would take minutes.
    sizes = SIZES if alone else FEW_SIZES[:: len(names) - 1]
    signed = [s * x for x in sizes for s in (1, -1)]
    points = [p for p in itertools.product(signed, repeat=len(names)) if alone or p[0] != p[1]]
    points = points[::STRIDE]
    wrong = []
    for which in range(len(names)):
        try:
            found = slopes(op, points, which, params)
        except (DerivativeError, NotImplementedError, RuntimeError):
            continue  # by this input it has none
        for point, (value, first, second) in zip(points, found, strict=True):
            if math.isnan(value) or (name == "pow" and point[0] < 0 and which == 1):
                continue  # out of the function's domain
            try:
                values = exact(lambda *x: program(*x, **params)[0], point, which, bits)
            except (ValueError, ZeroDivisionError, OverflowError, ArithmeticError, TypeError):
                continue
            for order, actual in ((1, first), (2, second)):
                if order == 2 and (name in FIRST_ONLY or max(map(abs, point)) > TWICE_OVERFLOWS):
                    continue
                lost = LOST[name](*point) if name in LOST else 0.0
                if off(actual, values[order], values[order + 1], max(map(abs, point)), lost):
                    wrong.append((order, point, actual, mpmath.nstr(values[order], 5)))
    assert not wrong, f"{len(wrong)} of {len(points)}: {wrong[:8]}"


@pytest.mark.parametrize("s", [1.5, 2.0, 3.0, 20.0])
@pytest.mark.parametrize("q", [1e-10, 0.3, 3.0, 40.0, 1e5, 1e100, 1e145])
def test_slopes_of_zeta_keep_their_digits(s, q):
    with mpmath.workdps(50):
        exact = -s * mpmath.zeta(s + 1, q)
    x = tangrad.tensor(q, dtype=tangrad.float64, requires_grad=True)
    tangrad.special.zeta(s, x).backward()
    if 1e-290 < abs(exact) < 1e290:
        assert abs(x.grad.item() / exact - 1) < EPS * (60 + 20 * (s + 1))
