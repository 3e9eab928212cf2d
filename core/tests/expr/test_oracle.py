"""The oracles, and the special functions' errors measured with mpmath."""

import math

import mpmath
import numpy as np
import pytest
from primitive_cases import (
    COMPUTE_TYPES,
    SCALAR_PRIMITIVES,
    accepts,
    expression,
    operand_types,
    operands,
    smooth_operands,
)
from scalar_oracle import oracle_of

from tangrad.expr import gamma, parse, special
from tangrad.expr.composed import COMPOSED
from tangrad.expr.dtypes import KINDS

EXACT = [
    (name, dtype)
    for name in SCALAR_PRIMITIVES
    for dtype in COMPUTE_TYPES
    if KINDS[dtype] in "bui" and accepts(name, dtype)
]


@pytest.mark.parametrize(("name", "dtype"), EXACT)
def test_integers_are_exact(name, dtype):
    program = expression(name).typed(operand_types(name, dtype), dtype)
    arrays = operands(name, dtype)
    (expected,) = program.numpy()(*arrays)
    oracle = oracle_of(program)
    actual = [oracle(*(v.item() for v in row))[0] for row in zip(*arrays, strict=True)]
    assert actual == expected.tolist()


# test_special_functions.py has the budgets of composed ones.
# And nextafter tells a property of the representation.
OTHERS = {"angle", "complex", "nextafter", *COMPOSED}
REAL = [n for n in SCALAR_PRIMITIVES if accepts(n, "float64") and n not in OTHERS]


@pytest.mark.parametrize("name", REAL)
def test_float64_is_within_its_budget_of_mpmath(name):
    program = expression(name).typed(operand_types(name, "float64"), "float64")
    arrays = smooth_operands(name, 40, seed=5)
    (actual,) = program.numpy()(*arrays)
    oracle, python = oracle_of(program, 200), oracle_of(program)
    for value, row in zip(actual, zip(*arrays, strict=True), strict=True):
        row = [v.item() for v in row]
        exact = oracle(*row)[0]
        assert python(*row)[0] == pytest.approx(float(exact), rel=1e-13, abs=1e-15)
        assert ulps(value, exact) <= 6


def ulps(value, exact):
    if isinstance(exact, (bool, int)) or not math.isfinite(exact):
        return 0 if value == exact else math.inf
    return abs(float((mpmath.mpf(float(value)) - exact) / np.spacing(abs(float(exact)))))


def spread(*ranges):
    """Return numbers uniform in linear, or for exponents in logarithmic, ranges."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.uniform(low, high, 150) for low, high in ranges])


TINY = 10.0 ** np.linspace(-300, -1, 60)


@pytest.mark.parametrize(
    ("name", "numbers", "budget"),
    [
        ("erf", np.concatenate([spread((-3, 3), (0.9, 1.1)), TINY]), 4),
        ("erfc", np.concatenate([spread((-3, 3), (3, 26)), TINY]), 4),
        (
            "erfinv",
            np.concatenate([spread((-1, 1)), TINY, 1 - 10.0 ** np.linspace(-15, -1, 30)]),
            4,
        ),
        ("lgamma", np.concatenate([spread((0, 3), (0.99, 1.01), (1.99, 2.01), (3, 200)), TINY]), 4),
        ("digamma", np.concatenate([spread((0, 3), (1.46, 1.463), (3, 200)), TINY]), 4),
        ("trigamma", np.concatenate([spread((0, 3), (3, 200), (-9, 0)), TINY[30:]]), 4),
    ],
)
def test_special_functions_to_a_few_ulp(name, numbers, budget):
    mpmath.mp.prec = 200
    exact = {
        "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
        "trigamma": lambda x: mpmath.psi(1, x),
    }.get(name) or getattr(mpmath, name)
    with np.errstate(all="ignore"):
        actual = getattr(special, name)(numbers)
    worst = max(ulps(v, exact(mpmath.mpf(float(x)))) for x, v in zip(numbers, actual, strict=True))
    assert worst <= budget


@pytest.mark.parametrize("order", [1, 2, 3, 10, 50, 100, 170])
def test_polygamma_to_a_few_ulp_beside_poles_and_of_high_orders(order):
    near = 10.0 ** np.linspace(-12, -1, 12)
    above = np.concatenate([spread((0, 3), (3, 400)), near, 1 + near, [1e3, 1e5]])
    below = -np.concatenate([spread((0, 12)), near, 1 - near, 5 + near, [1e3 + 0.3]])
    numbers = np.concatenate([above, below])[:: 1 + order // 10]
    mpmath.mp.prec = 120 + 2 * order
    with np.errstate(all="ignore"):
        actual = special.polygamma(float(order), numbers)
    for x, value in zip(numbers, actual, strict=True):
        point = mpmath.mpf(float(x))
        exact = mpmath.psi(order, point)
        if not 1e-307 < abs(exact) < 1e308:  # beyond what numbers can tell
            assert abs(value) < 1e-306 or np.isinf(value)
            continue
        # Orders that are even have zeros below 0, where digits of x are lost.
        lost = abs(point * mpmath.psi(order + 1, point) / exact) if x < 0 and order % 2 == 0 else 0
        assert ulps(value, exact) <= 5 * (1 + lost), x


def test_polygamma_of_orders_beyond_the_largest_factorial():
    for order, x in [(171, 2.5), (171, 1e3), (300, 83.7), (1000, 370.0), (10**9, 1e300)]:
        mpmath.mp.prec = 200
        leading = mpmath.factorial(order) if order < 2000 else mpmath.mpf(0)
        exact = (-1) ** (order + 1) * leading * mpmath.zeta(min(order, 2000) + 1, x)
        with np.errstate(all="ignore"):
            found = special.polygamma(float(order), np.array(x))
        assert found == pytest.approx(float(exact), rel=1e-11)


@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("erf", [np.inf, -np.inf, np.nan, 0], [1, -1, np.nan, 0]),
        ("erfc", [np.inf, -np.inf, np.nan, 0], [0, 2, np.nan, 1]),
        ("erfinv", [1, -1, 2, np.nan, 0], [np.inf, -np.inf, np.nan, np.nan, 0]),
        ("lgamma", [0, -1, np.inf, -np.inf, np.nan], [np.inf, np.inf, np.inf, np.inf, np.nan]),
        ("digamma", [0.0, -0.0, -1, np.inf, -np.inf], [-np.inf, np.inf, np.nan, np.inf, np.nan]),
        ("trigamma", [0, np.inf, np.nan], [np.inf, 0, np.nan]),
    ],
)
def test_special_functions_at_the_edges(name, numbers, expected):
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(getattr(special, name)(np.array(numbers)), expected)


def test_zeta_and_polygamma_are_nan_outside_their_domain():
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            special.zeta(np.array([0.5, 1.0, 2.0, 2.5, 2.0]), np.array([2.0, 2, -1, -1.5, -1e9])),
            [np.nan, np.inf, np.inf, np.nan, np.inf],
        )
        assert np.isnan(special.polygamma(0.5, np.array(1.0)))
        far = special.zeta(np.array(2.0), np.array(-1e5 - 0.5))
        assert far == pytest.approx(np.pi**2, rel=1e-4)


def test_oracle_takes_parameters_and_the_index():
    e = parse("where(philox_uniform(seed, 0) < p, 0, x)", ("x",), ("p", "seed"))
    program = e.typed({"x": "float32"}, "float32")
    index = np.arange(50)
    (expected,) = program.numpy()(np.ones(50, np.float32), index=index, p=0.5, seed=-3)
    oracle = oracle_of(program)
    assert [oracle(1.0, index=k, p=0.5, seed=-3)[0] for k in range(50)] == expected.tolist()


def test_complex_numbers_in_the_oracle():
    program = parse("exp(z) * conj(z) / abs(z)", ("z",)).typed({"z": "complex64"}, "complex64")
    value = oracle_of(program)(1 + 2j)[0]
    assert complex(oracle_of(program, 100)(1 + 2j)[0]) == pytest.approx(value)
    assert program.numpy()(np.complex64([1 + 2j]))[0][0] == pytest.approx(value, rel=1e-6)


def test_sums_end_for_infinite_exponents():
    q = np.array([0.5, 1.0, 2.0, np.inf])
    with np.errstate(all="ignore"):
        assert gamma.zeta(np.inf, q).tolist() == [np.inf, 1.0, 0.0, 0.0]
        assert np.isnan(gamma.polygamma(np.inf, q)).all()
