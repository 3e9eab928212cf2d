"""The accuracy of the special functions that the expression language writes, against mpmath."""

import math

import mpmath
import numpy as np
import pytest
from scalar_oracle import oracle_of

from tangrad.expr import parse
from tangrad.expr.composed import COMPOSED
from tangrad.expr.primitives import PRIMITIVES

EPS = {"float32": 2.0**-23, "float64": 2.0**-52}


def uniform(*ranges, count=25):
    """Return numbers uniform in each of the ranges."""
    rng = np.random.default_rng(7)
    return np.concatenate([rng.uniform(low, high, count) for low, high in ranges])


def logarithmic(low, high, count=25):
    """Return numbers whose logarithms are uniform between those of powers of ten."""
    return 10.0 ** np.random.default_rng(8).uniform(low, high, count)


def evaluate(name, dtype, *operands):
    """Return the function's values and mpmath's, as (value, exact) pairs."""
    names = ("a", "b")[: PRIMITIVES[name].arity]
    program = parse(f"{name}({', '.join(names)})", names).typed(dict.fromkeys(names, dtype), dtype)
    operands = [np.asarray(x, dtype) for x in operands]
    (values,) = program.numpy()(*operands)
    assert values.dtype == dtype
    exact = oracle_of(program, 300)
    rows = zip(*operands, strict=True)
    return list(zip(values.tolist(), (exact(*map(float, row))[0] for row in rows), strict=True))


def relative(value, exact, dtype):
    """Return the error in units of the least significant digit of a number near 1."""
    return float(abs(mpmath.mpf(value) / exact - 1)) / EPS[dtype]


SMALL = logarithmic(-300, -1)
# name: (operands, error in float64 relative to the value, in units of 2 ** -52)
RELATIVE = {
    "i0": (uniform((-700, 700), (-9, 9)), 4),
    "i0e": (np.concatenate([uniform((-900, 900), (-9, 9)), SMALL]), 4),
    "i1": (uniform((-700, 700), (-9, 9)), 4),
    "i1e": (np.concatenate([uniform((-900, 900), (-9, 9)), SMALL]), 4),
    "modified_bessel_k0": (np.concatenate([uniform((0, 3), (3, 600)), SMALL]), 4),
    "modified_bessel_k1": (np.concatenate([uniform((0, 3), (3, 600)), SMALL]), 4),
    "scaled_modified_bessel_k0": (np.concatenate([uniform((0, 3), (3, 9000)), SMALL]), 4),
    "scaled_modified_bessel_k1": (np.concatenate([uniform((0, 3), (3, 9000)), SMALL]), 4),
    "erfcx": (uniform((-26, 60), (-3, 3), (1e3, 1e9)), 4),
    "log_ndtr": (uniform((-38, -1), (-1, 1), (-1e5, -38)), 4),
    "ndtri": (np.concatenate([SMALL, uniform((0, 1)), 1 - logarithmic(-15, -1)]), 4),
}
# name: (operands, error in float64 relative to the largest value nearby, likewise)
ABSOLUTE = {
    "bessel_j0": (uniform((-9, 9), (-90, 90)), 4),
    "bessel_j1": (uniform((-9, 9), (-90, 90)), 4),
    "bessel_y0": (uniform((0.4, 9), (9, 90)), 4),
    "bessel_y1": (uniform((1, 9), (9, 90)), 4),
    "airy_ai": (uniform((-5, 3), (-12, 12)), 8),
}


@pytest.mark.parametrize("name", RELATIVE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_relative_to_the_value(name, dtype):
    operands, budget = RELATIVE[name]
    for value, exact in evaluate(name, dtype, operands):
        if not 1e-37 < abs(exact) < 1e38 and dtype == "float32":
            continue  # out of the dtype's range
        assert relative(value, exact, dtype) <= (1 if dtype == "float32" else budget)


@pytest.mark.parametrize("name", ABSOLUTE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_relative_to_the_waves(name, dtype):
    operands, budget = ABSOLUTE[name]
    for value, exact in evaluate(name, dtype, operands):
        assert abs(float(value - exact)) <= (1 if dtype == "float32" else budget) * EPS[dtype]


ZEROS = {
    "bessel_j0": lambda k: mpmath.besseljzero(0, k),
    "bessel_j1": lambda k: mpmath.besseljzero(1, k),
    "bessel_y0": lambda k: mpmath.besselyzero(0, k),
    "bessel_y1": lambda k: mpmath.besselyzero(1, k),
    "airy_ai": lambda k: mpmath.airyaizero(k),
}


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 10, 100, 1000])
def test_error_relative_to_the_value_near_a_zero(name, k):
    """Below 8 (Airy's above -4.5) up to the last place; beyond, the phase has 11 more bits."""
    with mpmath.workdps(40):
        exact_zero = ZEROS[name](k)
    zero, small = float(exact_zero), 4.5 if name == "airy_ai" else 8
    steps = np.array([0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7, 1e-5, 1e-3, 1e-2])
    operands = np.concatenate([zero * (1 + steps), zero * (1 - steps)])
    for (value, exact), x in zip(evaluate(name, "float64", operands), operands, strict=True):
        lost = (
            0
            if abs(zero) < small
            else 2.0**-11 / abs(float(mpmath.fsub(x, exact_zero, exact=True)))
        )
        assert relative(value, exact, "float64") <= 10 + lost


def test_airy_decays_from_where_its_parts_meet():
    for value, exact in evaluate("airy_ai", "float64", uniform((2.4, 2.6))):
        assert relative(value, exact, "float64") <= 8


@pytest.mark.parametrize(("name", "low"), [("airy_ai", 2), ("bessel_y0", 0), ("bessel_y1", 0)])
def test_error_where_the_function_has_no_zeros(name, low):
    operands = uniform((low, 12)) if low else logarithmic(-300, -1)
    for value, exact in evaluate(name, "float64", operands):
        assert relative(value, exact, "float64") <= 100  # exp(-z), z up to 30; else log(x)


def test_log_ndtr_in_the_upper_tail():
    """It is -erfc(t) / 2: rounding t = a / sqrt(2) costs 2 t^2 = a^2 units."""
    operands = uniform((1, 8))
    for (value, exact), a in zip(evaluate("log_ndtr", "float64", operands), operands, strict=True):
        assert relative(value, exact, "float64") <= 4 + a * a


GAMMA = [
    (logarithmic(-6, 1), logarithmic(-3, 3)[::-1], "small"),
    (logarithmic(0, 2.5), logarithmic(0, 2.5) * uniform((0.3, 3.0)), "middle"),
    (logarithmic(2, 5), logarithmic(2, 5) * uniform((0.6, 1.4)), "large"),
    (logarithmic(2, 5), logarithmic(2, 5) * (1 + uniform((-0.01, 0.01))), "near"),
    (logarithmic(-2, 4), logarithmic(-2, 4), "equal"),
    (np.arange(0.25, 3.25, 0.25).repeat(12), np.tile(np.arange(0.25, 3.25, 0.25), 12), "grid"),
]


@pytest.mark.parametrize(("a", "x", "which"), GAMMA, ids=[case[2] for case in GAMMA])
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_keep_their_digits(name, a, x, which):
    """An exponential of that size has lost its logarithm's digits; the rest is a few units."""
    for value, exact in evaluate(name, "float64", a, x):
        if exact < 1e-290:
            assert 0 <= value < 1e-289
            continue
        size = abs(float(mpmath.log(exact)))
        assert relative(value, exact, "float64") <= 30 + 5 * size
        if size < 0.5:
            assert relative(value, exact, "float64") <= 20


@pytest.mark.parametrize("name", [name for name in COMPOSED if "_polynomial_" in name])
def test_orthogonal_polynomials(name):
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-1, 1, 60), rng.uniform(-3, 3, 40)])
    degrees = rng.integers(-1, 25, 100).astype(float)
    for (value, exact), here, n in zip(
        evaluate(name, "float64", x, degrees), x, degrees, strict=True
    ):
        # The largest term of the recurrence bounds what rounding can do.
        scale = max(
            1.0, abs(float(exact)), 4.0**n * math.gamma(n / 2 + 1) if "hermite" in name else 0
        )
        if "chebyshev" in name and abs(here) < 1:
            scale = max(scale, n / math.sqrt(1 - here * here))
        if "laguerre" in name:
            scale = max(scale, math.exp(abs(here)) * n)
        assert abs(float(value - exact)) <= 40 * EPS["float64"] * scale


def test_polynomials_of_a_degree_that_is_no_integer_or_too_high():
    def run(name, x, n):
        program = parse(f"{name}(a, b)", ("a", "b")).typed(
            dict.fromkeys("ab", "float64"), "float64"
        )
        return program.numpy()(np.float64(x), np.float64(n))[0].tolist()

    assert run("legendre_polynomial_p", [0.5, 0.5], [2.0, 2.9]) == [-0.125, -0.125]
    assert run("chebyshev_polynomial_t", [0.3, 0.3, 2.0], [-1.0, np.nan, 0.5]) == [0, 0, 1]
    assert np.isnan(run("hermite_polynomial_h", [0.5], [513.0])).all()
    assert np.isnan(run("laguerre_polynomial_l", [0.5], [1e6])).all()
    assert np.isnan(run("chebyshev_polynomial_u", [np.nan, 1e200], [3.0, 40.0])).all()


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("i0", [[0.0, -0.0, np.nan]], [1, 1, np.nan]),
        ("i0e", [[np.inf, -np.inf]], [0, 0]),
        ("i1e", [[np.inf, -np.inf, 0.0]], [0, 0, 0]),
        ("i0", [[713.0, 714.0]], [6.7051282636709962e307, np.inf]),
        ("modified_bessel_k0", [[0, -1, np.inf, np.nan]], [np.inf, np.nan, 0, np.nan]),
        ("modified_bessel_k1", [[0, -1, np.inf, 1e-310]], [np.inf, np.nan, 0, np.inf]),
        ("bessel_j0", [[0.0, np.nan]], [1, np.nan]),
        ("bessel_y0", [[0, -1, np.nan]], [-np.inf, np.nan, np.nan]),
        ("bessel_y1", [[0, -1]], [-np.inf, np.nan]),
        ("airy_ai", [[np.inf, -np.inf, 200]], [np.nan, np.nan, 0]),
        ("erfcx", [[np.inf, -np.inf, -27, np.nan]], [0, np.inf, np.inf, np.nan]),
        ("log_ndtr", [[np.inf, -np.inf, 0, 50, np.nan]], [0, -np.inf, -math.log(2), 0, np.nan]),
        ("ndtri", [[0, 1, 0.5, -0.1, 1.1, np.nan]], [-np.inf, np.inf, 0, np.nan, np.nan, np.nan]),
        ("igamma", [[0, 0, 1, np.inf, 1, -1, np.inf], [1, 0, 0, 1, np.inf, 1, np.inf]],
         [1, np.nan, 0, 0, 1, np.nan, np.nan]),
        ("igammac", [[0, 0, 1, np.inf, 1, -1, np.inf], [1, 0, 0, 1, np.inf, 1, np.inf]],
         [0, np.nan, 1, 1, 0, np.nan, np.nan]),
    ],
)  # fmt: skip
def test_edges(name, operands, expected):
    names = ("a", "b")[: len(operands)]
    program = parse(f"{name}({', '.join(names)})", names)
    (values,) = program.typed(dict.fromkeys(names, "float64"), "float64").numpy()(
        *(np.array(row, np.float64) for row in operands)
    )
    np.testing.assert_allclose(values, expected, rtol=1e-12)
