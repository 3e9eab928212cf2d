"""Rewriting by tables: exact rules change no bit, fast ones little, and neither what memory is."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from compiled_ops import bits
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_graphs import names, recorded

import tangrad
from tangrad.plugin import find_op
from tangrad_jit.graph import verify
from tangrad_jit.passes.algebra import EXACT, FAST, rewrite
from tangrad_jit.passes.copy_elimination import eliminate_copies
from tangrad_jit.passes.dead_code import remove_dead_code
from tangrad_jit.passes.patterns import A, B, Letter, Rule
from tangrad_jit.run.interpreter import interpret

SPECIAL = (0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 0.1, 3e38, -3e38, 1e-40, -1e-45, 6e-8, 65504.0,
           math.inf, -math.inf, math.nan)  # fmt: skip
WHOLE = (0, 1, 2, 3, 7, -1, -5, 100, 127, -128, 2**31 - 1, -(2**31))
NUMBERS = (2, 0.25, -4.0, 3, 0.1, -1.75, 1e-30, 2.0**-140, 2.0**127, 1e300, 5e-324, 0.0, -0.0,
           math.inf, math.nan)  # fmt: skip
PAIRS = list(itertools.product(SPECIAL, SPECIAL))


def tensors_of(dtype: str) -> dict[str, Any]:
    """Return a tensor for each letter: all pairs of special values, and masks."""
    kind = getattr(tangrad, dtype)
    if kind.is_floating_point:
        values = [(x, y) for x, y in PAIRS]
    else:
        values = list(itertools.product(WHOLE, WHOLE))
    columns = {
        "x": [x for x, _ in values],
        "y": [y for _, y in values],
        "z": [x for x, _ in reversed(values)],
    }
    wide = tangrad.float64 if kind.is_floating_point else tangrad.int64
    made = {name: tangrad.tensor(column, dtype=wide).to(kind) for name, column in columns.items()}
    made["m"] = tangrad.tensor([k % 3 == 0 for k in range(len(values))])
    return made


def program_of(pattern: Any, numbers: dict[Letter, Any], letters: list[str]) -> Any:
    """Return a pattern as a function of the tensors of its letters."""

    def compute(part: Any, held: dict[str, Any]) -> Any:
        if isinstance(part, Letter):
            return numbers[part] if part.kind == "number" else held[part.name]
        if isinstance(part, tuple):
            return find_op(part[0])(*(compute(one, held) for one in part[1:]))
        return part

    # A copy leaves: what a graph is given does not leave it in the place of a result.
    return lambda *tensors: compute(pattern, dict(zip(letters, tensors, strict=True))).clone()


def letters_of(pattern: Any) -> list[str]:
    if isinstance(pattern, Letter):
        return [] if pattern.kind == "number" else [pattern.name]
    if not isinstance(pattern, tuple):
        return []
    return sorted({name for part in pattern[1:] for name in letters_of(part)})


def runs(rule: Rule, dtype: str) -> Any:
    """Yield (graph, its tensors, how many calls were rewritten, results before and after)."""
    held = tensors_of(dtype)
    for way in rule.ways():
        letters = letters_of(way)
        tensors = [held[name] for name in letters]
        for a, b in itertools.product(NUMBERS, NUMBERS if has(way, B) else (1,)):
            try:
                graph = recorded(program_of(way, {A: a, B: b}, letters), *tensors)
                before = interpret(graph, tensors)
            except (RuntimeError, TypeError, OverflowError):
                break  # an op that refuses the number, or the dtype
            count = rewrite(graph, fast=rule in FAST)
            verify(graph)
            yield graph, count, before, interpret(graph, tensors)
            if not has(way, A):
                break


def has(pattern: Any, letter: Letter) -> bool:
    if isinstance(pattern, Letter) or not isinstance(pattern, tuple):
        return pattern == letter
    return any(has(part, letter) for part in pattern[1:])


def title(rule: Rule) -> str:
    def text(part: Any) -> str:
        if isinstance(part, Letter):
            return part.name
        return f"{part[0]}({','.join(map(text, part[1:]))})" if type(part) is tuple else str(part)

    return text(rule.pattern)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", EXACT, ids=title)
def test_an_exact_rule_is_found_and_changes_no_bit(rule: Rule) -> None:
    found = set()
    for dtype in sorted(rule.dtypes):
        for _, count, before, after in runs(rule, dtype):
            assert bits(before) == bits(after), dtype
            if count:
                found.add(dtype)
    # An op may have no meaning for a dtype; what it is written for, a rule must find.
    assert found >= {"float32"} & rule.dtypes or found >= {"int64"} & rule.dtypes
    assert found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", FAST, ids=title)
def test_a_fast_rule_is_found_on_request_and_is_near(rule: Rule) -> None:
    found = 0
    x = tangrad.linspace(0.25, 4, 61)
    held = {"x": x, "y": x.flip(0) + 0.5, "z": x * 0.75 + 0.5}
    letters = letters_of(rule.pattern)
    tensors = [held[name] for name in letters]
    for a, b in itertools.product((2, 0.3, -1.75, 5.5), repeat=2):
        function = program_of(rule.pattern, {A: a, B: b}, letters)
        graph = recorded(function, *tensors)
        assert rewrite(graph) == 0 or rule.name == "true_divide"
        found += rewrite(graph, fast=True)
        verify(graph)
        after = interpret(graph, tensors)[0]
        assert tangrad.allclose(after, function(*tensors), rtol=3e-6, atol=1e-6)
    assert found


def test_nothing_is_taken_for_what_it_only_resembles() -> None:
    x = tangrad.tensor(SPECIAL)
    whole = tangrad.tensor(WHOLE)

    def f(x):
        kept = [x + 0.0, x - -0.0, x * 0, x.relu().abs(), ~(x < 1), -(x - 1), x / 3]
        return (*kept, x / 2.0**127, x / 2.0**-127, x.double() / 1e-320, x.floor().relu())

    def g(x):
        return x * 1.0, x / 1, x + 0.0, x + True, (x / 1).floor()

    for function, values in ((f, x), (g, whole)):
        graph = recorded(function, values)
        assert rewrite(graph) == 0
        assert bits(interpret(graph, [values])) == bits(list(function(values)))


def test_memory_that_is_written_is_looked_at_as_it_was() -> None:
    def f(x, y):
        a = -x
        x.mul_(3)
        b = y - a
        c = a * 1
        a.add_(1)
        return b, c, a, (y * 1), y.neg().neg()

    x, y = tangrad.tensor(SPECIAL), tangrad.tensor(SPECIAL[::-1])
    graph = recorded(f, x.clone(), y)
    wanted = f(x.clone(), y.clone())
    rewrite(graph)
    verify(graph)
    assert bits(interpret(graph, [x.clone(), y.clone()])) == bits(list(wanted))


def test_results_that_leave_are_tensors_of_their_own() -> None:
    x = tangrad.ones(3)
    fast = tangrad.compile(lambda x: (x * 1, x / 1), fullgraph=True, options={"measure": False})
    for _ in range(3):
        first, second = fast(x)
        first.add_(1)
        assert (x.tolist(), second.tolist()) == ([1.0] * 3, [1.0] * 3)


DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64")  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_conversions_by_way_of_a_wider_dtype_are_one() -> None:
    rewritten = set()
    for first, between, last in itertools.product(DTYPES, repeat=3):
        if first == between or between == last:
            continue
        kind = getattr(tangrad, first)
        values = SPECIAL if kind.is_floating_point else WHOLE
        x = tangrad.tensor(values, dtype=tangrad.float64 if kind.is_floating_point else None)
        x = x.to(kind)

        def f(x, between=between, last=last):
            return x.to(getattr(tangrad, between)).to(getattr(tangrad, last)).clone()

        graph = recorded(f, x)
        before = interpret(graph, [x])
        if rewrite(graph):
            rewritten.add((first, between, last))
            assert bits(interpret(graph, [x])) == bits(before), (first, between, last)
    assert len(rewritten) > 100
    for wanted in (("float16", "float32", "float16"), ("int8", "int32", "float32"),
                   ("float32", "float64", "bfloat16"), ("bool", "float32", "bool")):  # fmt: skip
        assert wanted in rewritten
    for lossy in (("float32", "float16", "float32"), ("int64", "float64", "int64"),
                  ("float16", "float32", "int32"), ("int32", "float32", "int32")):  # fmt: skip
        assert lossy not in rewritten


@pytest.mark.parametrize(
    "joined",
    [
        lambda x: tangrad.cat(x.split(2, 1), 1),
        lambda x: tangrad.cat([x[:1], x[1:4], x[4:]]),
        lambda x: tangrad.cat(x.chunk(3, -1), -1),
        lambda x: tangrad.cat([x], 1),
        lambda x: tangrad.stack(x.unbind(0)),
        lambda x: tangrad.stack(x.unbind(1), 1),
    ],
)
def test_parts_that_are_joined_again_are_the_whole(joined: Any) -> None:
    x = tangrad.randn(5, 7)

    def f(x):
        return joined(x * 2) + 1

    graph = recorded(f, x)
    assert rewrite(graph) == 1
    remove_dead_code(graph)
    assert names(graph) == ["mul", "add_plain"]
    assert tangrad.equal(interpret(graph, [x])[0], f(x))


@pytest.mark.parametrize(
    "joined",
    [
        lambda x: tangrad.cat([x[1:], x[:1]]),
        lambda x: tangrad.cat([x[:2], x[3:]]),
        lambda x: tangrad.cat([x[:, :3], x[:, 3:]], 0) if x.shape[1] == 6 else x[:3] + 0,
        lambda x: tangrad.cat([x[:3], x[2:4]]),
        lambda x: tangrad.stack(x.unbind(0), 1),
    ],
)
def test_parts_that_are_joined_otherwise_are_joined(joined: Any) -> None:
    x = tangrad.randn(5, 5)
    graph = recorded(lambda x: joined(x * 2) + 1, x)
    rewrite(graph)
    assert bits(interpret(graph, [x])) == bits([joined(x * 2) + 1])


def test_a_choice_by_a_constant_mask_is_made_once() -> None:
    x = tangrad.randn(4)

    def f(x):
        every, none = tangrad.tensor([True] * 4), tangrad.tensor([False] * 4)
        some = tangrad.tensor([True, False, True, True])
        a = tangrad.where(every, x * 2, x * 3)
        b = tangrad.where(none, x * 4, x * 5)
        return a + b + tangrad.where(some, x * 6, x * 7)

    graph = recorded(f, x)
    assert rewrite(graph) == 2
    assert names(graph).count("where_choice") == 1
    extra = [entry.tensor for entry in graph.inputs[1:]]
    assert tangrad.equal(interpret(graph, [x, *extra])[0], f(x))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t().t(),
        lambda x: x.permute(1, 0).permute(1, 0),
        lambda x: x.reshape(-1).reshape(x.shape),
        lambda x: x.view(2, -1).view(x.shape),
        lambda x: x.unsqueeze(1).squeeze(1),
        lambda x: x.flatten().unflatten(0, x.shape),
        lambda x: x[:, :],
        lambda x: x[:4][:4],
        lambda x: x.transpose(0, 1).contiguous().transpose(0, 1).contiguous(),
        lambda x: x.expand(4, 6),
    ],
)
def test_views_that_come_to_nothing_are_their_source(view: Any) -> None:
    x = tangrad.randn(4, 6)

    def f(x):
        return (view(x * 2) * 1).exp()

    graph = recorded(f, x)
    for _ in range(2):
        rewrite(graph)
        eliminate_copies(graph)
        remove_dead_code(graph)
    assert tangrad.equal(interpret(graph, [x])[0], f(x))
    copies = names(graph).count("clone")
    assert names(graph) == ["mul", "exp"] or copies == 2


def test_the_sum_of_one_element_many_times_is_a_product() -> None:
    x = tangrad.tensor(0.37)

    def f(x):
        return x.expand(8, 5).sum()

    graph = recorded(f, x)
    assert rewrite(graph) == 0
    assert rewrite(graph, fast=True) == 1
    remove_dead_code(graph)
    assert names(graph) == ["mul"]
    assert interpret(graph, [x])[0].item() == pytest.approx(f(x).item(), rel=1e-6)


# --- random programs ------------------------------------------------------------------------------

UNARY = ("neg", "abs", "relu", "square", "sign", "floor", "ceil", "trunc", "sqrt", "exp",
         "reciprocal")  # fmt: skip
BINARY = ("add_plain", "sub_plain", "mul", "true_divide", "maximum", "minimum")
numbers = st.sampled_from((1, -1, 0, 2, 0.5, -0.0, 4.0, 3, 0.1, -2.0, 2.0**60))
step = st.one_of(
    st.tuples(st.sampled_from(UNARY), st.integers(0, 30)),
    st.tuples(st.sampled_from(BINARY[:4]), st.integers(0, 30), numbers),
    st.tuples(st.sampled_from(BINARY), st.integers(0, 30), st.integers(0, 30).map(lambda k: (k,))),
)
floats = st.one_of(st.sampled_from(SPECIAL), st.floats(width=32))


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.lists(step, min_size=2, max_size=12),
    st.lists(floats, min_size=6, max_size=6),
    st.sampled_from(("float32", "float64", "bfloat16", "float16")),
)
def test_random_programs_keep_every_bit(steps: list[Any], values: list[float], dtype: str) -> None:
    def program(x, y):
        held = [x, y]
        for name, first, *rest in steps:
            a = held[-1 - first % len(held)]
            others = [held[-1 - r[0] % len(held)] if isinstance(r, tuple) else r for r in rest]
            held.append(find_op(name)(a, *others))
        return tuple(held[-3:])

    kind = getattr(tangrad, dtype)
    x = tangrad.tensor(values, dtype=tangrad.float64).to(kind)
    y = x.flip(0)
    graph = recorded(program, x, y)
    before = interpret(graph, [x, y])
    rewrite(graph)
    verify(graph)
    remove_dead_code(graph)
    verify(graph)
    assert bits(interpret(graph, [x, y])) == bits(before)
