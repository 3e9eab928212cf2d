"""Random expressions mean the same in text, NumPy, Python and C, and so do their derivatives."""

import shutil

import mpmath
import numpy as np
import pytest
from compiled import compile_programs
from scalar_oracle import oracle_of

from tangrad.expr import parse

UNARY = ["sin({})", "tanh({})", "abs({})", "-{}", "sigmoid({})", "square({})", "exp(-abs({}))"]
BINARY = ["({} + {})", "({} - {})", "({} * {})", "maximum({}, {})", "({} / (2 + cos({})))"]
INTEGER = ["({} + {})", "({} * {})", "({} & {})", "({} ^ {})", "minimum({}, {})", "({} >> {})"]
CONDITION = ["{} < {}", "logical_and({} > 0, {} > 1)", "not {} >= {}"]


def random_source(rng, binary, unary, depth=4):
    """Return the text of a random expression in x, y and z."""

    def term(depth):
        if depth == 0 or rng.random() < 0.1:
            return str(rng.choice(["x", "y", "z", "2", "3"]))
        left, right = term(depth - 1), term(depth - 1)
        choice = rng.random()
        if choice < 0.2:
            condition = str(rng.choice(CONDITION)).format(left, right)
            return f"where({condition}, {term(depth - 1)}, {right})"
        if choice < 0.5 and unary:
            return str(rng.choice(unary)).format(left)
        return str(rng.choice(binary)).format(left, right)

    return f"t = {term(depth - 1)}; {term(depth)} + t; t"


def floats(seed):
    return parse(random_source(np.random.default_rng(seed), BINARY, UNARY), ("x", "y", "z"))


def arrays(e, dtype, count=20):
    rng = np.random.default_rng(7)
    return [(rng.uniform(-2, 2, count) * 10).astype(dtype) / dtype(5) for _ in e.inputs]


def typed(e, dtype):
    return e.typed(dict.fromkeys(e.inputs, dtype), dtype)


@pytest.mark.parametrize("seed", range(60))
def test_floats_in_text_numpy_and_python(seed):
    e = floats(seed)
    again = e.substitute({})
    assert parse(again.source, e.inputs) == e == again
    columns = arrays(e, np.float64)
    results = typed(e, "float64").numpy()(*columns)
    oracle = oracle_of(typed(e, "float64"))
    rows = [oracle(*map(float, row)) for row in zip(*columns, strict=True)]
    np.testing.assert_allclose(results, np.transpose(rows), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_integers_are_exact_in_numpy_and_python(seed):
    source = random_source(np.random.default_rng(seed), INTEGER, ["-{}", "~{}", "abs({})"])
    e = parse(source, ("x", "y", "z"))
    dtype = ["int8", "int32", "int64"][seed % 3]
    columns = np.random.default_rng(seed).integers(-100, 100, (3, 30)).astype(dtype)
    results = typed(e, dtype).numpy()(*columns)
    oracle = oracle_of(typed(e, dtype))
    rows = [oracle(*map(int, row)) for row in columns.T]
    assert np.transpose(results).tolist() == [list(row) for row in rows]


@pytest.mark.parametrize("seed", range(60))
def test_derivatives_are_limits_of_differences(seed):
    e = floats(seed)
    columns = arrays(e, np.float64)
    f = oracle_of(typed(e, "float64"), 200)
    value = typed(e.partial("x"), "float64").numpy()(*columns)[0]
    reverse = typed(e.select([0]).vjp(("x",)), "float64")
    inputs = dict(zip(e.inputs, columns, strict=True)) | {"g": np.ones(20)}
    np.testing.assert_array_equal(reverse.numpy()(*(inputs[n] for n in reverse.inputs))[0], value)
    h = 2.0**-60
    for k, row in enumerate(zip(*columns, strict=True)):
        x, *rest = map(float, row)
        up, down = _around(f, x, rest, h)
        slopes = [float(a - b) / (2 * h) for a, b in zip(up, down, strict=True)]
        # At a kink the two sides differ, and the derivative is one's choice.
        if abs(slopes[0] - value[k]) > 1e-6 * max(1, abs(value[k])):
            assert _has_kink(f, x, rest, h)


def _around(f, x, rest, h):
    with mpmath.workprec(200):
        return f(mpmath.mpf(x) + h, *rest), f(mpmath.mpf(x) - h, *rest)


def _has_kink(f, x, rest, h):
    with mpmath.workprec(200):
        x = mpmath.mpf(x)
        left, middle, right = (f(at, *rest)[0] for at in (x - h, x, x + h))
        return abs((right - middle) - (middle - left)) / h > 1e-6


def test_c_computes_the_same(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    expressions = {f"p{seed}": floats(seed) for seed in range(60)}
    expressions |= {f"d{seed}": floats(seed).vjp(("x", "y")) for seed in range(60)}
    programs = {name: typed(e, "float64") for name, e in expressions.items()}
    compiled = compile_programs(programs, tmp_path)
    for name, program in programs.items():
        columns = arrays(program, np.float64)
        expected, actual = program.numpy()(*columns), compiled[name](*columns)
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)
