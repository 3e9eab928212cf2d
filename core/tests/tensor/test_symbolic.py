"""Symbolic sizes compute as integers do and remember what was assumed."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tangrad.tensor import symbolic
from tangrad.tensor.symbolic import ShapeEnv, SymBool, SymInt, sym_max, sym_min, sym_not

HINTS = {"a": 6, "b": 4, "c": 1}
OPERATIONS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    sym_max,
    sym_min,
]
programs = st.recursive(
    st.integers(-3, 9) | st.sampled_from(sorted(HINTS)),
    lambda inner: (
        st.tuples(st.sampled_from(OPERATIONS), inner, inner)
        | st.tuples(st.just(operator.pow), inner, st.integers(0, 2))
        | st.tuples(st.just(operator.neg), inner)
        | st.tuples(st.just(abs), inner)
    ),
    max_leaves=8,
)


def run(program, symbols):
    if isinstance(program, str):
        return symbols[program]
    if isinstance(program, int):
        return program
    return program[0](*(run(part, symbols) for part in program[1:]))


def symbols():
    env = ShapeEnv()
    return env, {name: env.symbol(hint, name) for name, hint in HINTS.items()}


sizes = st.fixed_dictionaries({name: st.integers(1, 9) for name in HINTS})


@settings(max_examples=500, deadline=None)
@given(programs, sizes)
def test_any_arithmetic_has_the_value_of_the_integers(program, other_sizes):
    env, names = symbols()
    try:
        expected = run(program, HINTS)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            run(program, names)
        return
    result = run(program, names)
    assert (result.hint if isinstance(result, SymInt) else result) == expected
    assert env.guards == []
    if isinstance(result, SymInt):
        check_elsewhere(result, program, other_sizes)


def check_elsewhere(result, program, other_sizes):
    try:
        expected = run(program, other_sizes)
    except ZeroDivisionError:
        return
    assert result.evaluate(other_sizes) == expected
    # The text is the expression: Python reads it back to the same value.
    assert eval(repr(result), {"max": max, "min": min}, other_sizes) == expected


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda a, b: a + 1, "a + 1"),
        (lambda a, b: 2 * (a + b), "2*(a + b)"),
        (lambda a, b: (a + 2 * 1 - 3) // 2 + 1, "(a + 2 - 3)//2 + 1"),
        (lambda a, b: a - (b - 1), "a - (b - 1)"),
        (lambda a, b: sym_max(a, b * 2), "max(a, b*2)"),
        (lambda a, b: -a % b, "-a % b"),
        (lambda a, b: (a + b) ** 2, "(a + b)**2"),
        (lambda a, b: (a < b) & (b != 3), "a < b and b != 3"),
        (lambda a, b: ~(a < b), "a >= b"),
        (lambda a, b: sym_not((a < b) | (b == 1)), "not (a < b or b == 1)"),
        (lambda a, b: +a, "a"),
        (lambda a, b: (a + 0) * 1 - 0, "a"),
        (lambda a, b: 0 + 1 * a // 1, "a"),
    ],
)
def test_expressions_read_like_python(build, text):
    env = ShapeEnv()
    assert repr(build(env.symbol(6, "a"), env.symbol(4, "b"))) == text
    assert env.guards == []


def test_a_branch_records_the_side_taken():
    env, s = symbols()
    assert s["a"] > s["b"]
    assert not s["a"] == 3  # noqa: SIM201
    assert env.guards == ["a > b", "a != 3"]
    assert env.holds({"a": 9, "b": 2, "c": 1})
    assert not env.holds({"a": 2, "b": 2, "c": 1})


def test_a_guard_is_recorded_once():
    env, s = symbols()
    for _ in range(3):
        assert s["a"] > 1
    assert env.guards == ["a > 1"]


def test_negated_conditions_are_guards_too():
    env, s = symbols()
    assert not ((s["a"] < 2) & (s["b"] < 2))
    assert not ~~((s["a"] < 2) | (s["b"] < 2))
    assert env.guards == ["not (a < 2 and b < 2)", "not (a < 2 or b < 2)"]
    assert env.holds(HINTS)


def test_truth_of_an_integer_is_that_it_is_not_zero():
    env, s = symbols()
    assert s["a"]
    assert not s["a"] - 6
    assert env.guards == ["a != 0", "a - 6 == 0"]


def test_what_holds_by_structure_needs_no_guard():
    env, s = symbols()
    assert s["a"] + 1 == s["a"] + 1
    assert not s["a"] != s["a"]  # noqa: SIM202
    assert s["a"] <= s["a"]
    assert env.guards == []


@pytest.mark.parametrize("use", [int, operator.index, range])
def test_becoming_a_number_specialises(use):
    env, s = symbols()
    use(s["a"] + 1)
    assert env.guards == ["a + 1 == 7"]


def test_hash_is_by_structure():
    _, s = symbols()
    assert hash(s["a"] + 1) == hash(s["a"] + 1)
    assert len({s["a"] * 2, s["a"] * 2}) == 1
    assert isinstance(s["a"] < 2, SymBool)


def test_symbols_are_named_in_order_and_names_are_taken_once():
    env = ShapeEnv()
    assert [repr(env.symbol(n)) for n in (3, 4)] == ["s0", "s1"]
    with pytest.raises(ValueError, match="'s0' is taken"):
        env.symbol(5, "s0")


def test_plain_integers_pass_through():
    assert sym_max(2, 3) == 3
    assert sym_min(2, 3) == 2
    assert sym_not(False) is True


@pytest.mark.parametrize("other", ["a", None])
def test_only_numbers_mix(other):
    _, s = symbols()
    with pytest.raises(TypeError):
        s["a"] + other
    assert (s["a"] == other) is False
    assert (s["a"] != other) is True
    with pytest.raises(TypeError):
        s["a"] ** -1


def test_floats_of_symbols_keep_their_expression():
    env = symbolic.ShapeEnv()
    size = env.symbol(7)
    ratio = size / 2
    assert isinstance(ratio, symbolic.SymFloat)
    assert (repr(ratio), ratio.hint) == ("s0/2", 3.5)
    assert ratio.evaluate({"s0": 10}) == 5.0
    cut = symbolic.sym_int(symbolic.sym_float(size) * 0.5)
    assert isinstance(cut, symbolic.SymInt)
    assert (cut.hint, cut.evaluate({"s0": 9})) == (3, 4)
    assert symbolic.sym_float(3) == 3.0
    assert symbolic.sym_int(-2.5) == -2
    assert (1.5 + ratio - size).hint == -2.0
    assert not env.guards
    assert float(ratio) == 3.5
    assert env.guards == ["s0/2 == 3.5"]


def test_choices_and_sums_of_symbols_need_no_guard():
    env = symbolic.ShapeEnv()
    size = env.symbol(7)
    chosen = symbolic.sym_ite(size > 3, size, size + 1)
    assert [chosen.evaluate({"s0": n}) for n in (2, 8)] == [3, 8]
    assert symbolic.sym_sum([size, 1, 2]).evaluate({"s0": 4}) == 7
    assert symbolic.sym_sum(1, 2.5) == 3.5
    assert symbolic.sym_sqrt(9) == 3.0
    assert symbolic.sym_sqrt(size).evaluate({"s0": 16}) == 4.0
    assert symbolic.sym_sum([]) == 0
    assert symbolic.sym_ite(True, 1, 2) == 1
    assert not env.guards
    with pytest.raises(TypeError, match="mismatch"):
        symbolic.sym_ite(True, 1, 2.0)
    with pytest.raises(TypeError, match="SymBool"):
        symbolic.sym_ite(1, 1, 2)
