"""Bounded loops and polynomials of the expression language."""

import math
import shutil

import numpy as np
import pytest
from compiled import compile_programs
from scalar_oracle import oracle_of

from tangrad.expr import DerivativeError, ExpressionError, ExpressionTypeError, parse

EXP = "iterate(200, 'abs(t) > 1e-18 * abs(s); s + t; t * x / (k + 2)', s=1.0, t=x)"
# The integer square root by trial, inside a loop that sums it; k is that of the inner loop there.
NESTED = (
    'iterate(9, \'m = k + x; root = iterate(50, "(r + 1) ** 2 <= m; r + 1", r=0.0);'
    " k < n; total + root', total=0.0, n=n)"
)


def typed(source, *names, dtype="float64"):
    return parse(source, names).typed(dict.fromkeys(names, dtype), dtype)


def test_a_series_ends_for_each_element_by_itself():
    x = np.array([[-2.0, 0.0, 1e-9], [1.0, 30.0, 0.5]])
    (value,) = typed(EXP, "x").numpy()(x)
    np.testing.assert_allclose(value, np.exp(x), rtol=1e-13)


def test_operands_broadcast():
    (value,) = typed("iterate(9, 'k < n; s * x', s=1.0)", "x", "n").numpy()(
        np.float64([[2], [3]]), np.float64([0, 1, 5])
    )
    np.testing.assert_array_equal(value, [[1, 2, 32], [1, 3, 243]])


def test_the_bound_ends_a_loop():
    (value,) = typed("iterate(7, 'True; s + x', s=0.0)", "x").numpy()(np.float64([1, 2]))
    np.testing.assert_array_equal(value, [7, 14])


def test_loops_nest_and_the_body_has_names_of_its_own():
    expected = [sum(math.isqrt(int(k + x)) for k in range(n)) for x, n in ((0, 9), (5, 3))]
    (value,) = typed(NESTED, "x", "n").numpy()(np.float64([0, 5]), np.float64([9, 3]))
    assert value.tolist() == expected
    oracle = oracle_of(typed(NESTED, "x", "n"))
    assert [oracle(0.0, 9.0)[0], oracle(5.0, 3.0)[0]] == expected


def test_the_oracle_iterates_in_its_own_precision():
    program = typed(EXP.replace("1e-18", "1e-60"), "x")
    assert oracle_of(program)(2.0)[0] == pytest.approx(math.exp(2), rel=1e-15)
    assert str(oracle_of(program, 200)(2.0)[0])[:30] == "7.3890560989306502272304274605"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_c_iterates_as_numpy_does(dtype, tmp_path):
    series, nested = typed(EXP, "x", dtype=dtype), typed(NESTED, "x", "n", dtype=dtype)
    compiled = compile_programs({"series": series, "nested": nested}, tmp_path)
    x = np.linspace(-5, 5, 41).astype(dtype)
    np.testing.assert_array_equal(compiled["series"](x)[0], series.numpy()(x)[0])
    operands = np.arange(12).astype(dtype), (np.arange(12) % 10).astype(dtype)
    np.testing.assert_array_equal(compiled["nested"](*operands)[0], nested.numpy()(*operands)[0])


def test_source_parses_to_the_same_loop():
    for source in (EXP, NESTED, f"2 * {EXP} + n"):
        e = parse(source, ("x", "n"))
        derived = e.substitute({"x": parse("y * y", ("y",))})
        assert parse(e.source, e.inputs) == e
        assert parse(derived.source, derived.inputs) == derived
    again = parse(EXP, ("x",)).substitute({"x": parse("y * y", ("y",))})
    (value,) = again.typed({"y": "float64"}, "float64").numpy()(np.float64([1.5]))
    assert value[0] == pytest.approx(math.exp(2.25), rel=1e-14)


def test_equal_loops_run_once():
    program = typed(f"{EXP} + {EXP}", "x")
    assert [step.op for step in program.instructions].count("iterate") == 1


def test_a_loop_has_no_derivative_that_follows():
    with pytest.raises(DerivativeError, match="state the op's"):
        parse(EXP, ("x",)).partial("x")
    assert parse(f"{EXP} * n", ("x", "n")).partial("n").nodes == parse(EXP, ("x",)).nodes


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("iterate(x, 'True; s', s=0.0)", "takes a bound"),
        ("iterate(0, 'True; s', s=0.0)", "takes a bound"),
        ("iterate(10000000, 'True; s', s=0.0)", "bound up to 1000000"),
        ("iterate(10, x, s=0.0)", "text, and states"),
        ("iterate(10, 'True', s=0.0)", "a condition and the next value"),
        ("iterate(10, 'True; s; s', s=0.0)", "a condition and the next value"),
        ("iterate(10, 'True; k', k=0.0)", "other than k"),
        ("iterate(10, 'True; s', **x)", "other than k"),
        ("iterate(10, 'True; s', 3, s=0.0)", "other than k"),
        ("iterate(10, 'True; y', s=0.0)", "unknown name 'y'"),
        ("iterate(10, 'True; (', s=0.0)", "cannot parse"),
        ("iterate(10, 'k = 3; True; s', s=0.0)", "cannot be assigned"),
        ("polynomial(x)", "at least one coefficient"),
    ],
)
def test_what_is_no_loop_is_refused_with_its_place(source, message):
    with pytest.raises(ExpressionError, match=message):
        parse(source, ("x",))


@pytest.mark.parametrize("dtype", ["int64", "complex128"])
def test_loops_compute_in_floating_point(dtype):
    with pytest.raises(ExpressionTypeError, match=f"iterate has no meaning for {dtype}"):
        typed("iterate(9, 'k < 3; s + x', s=x)", "x", dtype=dtype)


def test_a_polynomial_is_horners_rule():
    assert parse("polynomial(x, 1, 2.5, 3)", ("x",)) == parse("(3 * x + 2.5) * x + 1", ("x",))
    assert parse("polynomial(x, 4)", ("x",)).constant() == 4
