"""The graph: its text reads back, the verifier finds what is wrong, passes keep its meaning."""

from __future__ import annotations

import random

import pytest
from recorded_graphs import names, recorded

import tangrad
from tangrad.plugin import find_op
from tangrad_jit.graph import Graph, GraphError, Node, parse, text_of, verify
from tangrad_jit.graph.drawing import svg_of
from tangrad_jit.graph.fx_conversion import from_fx, to_fx
from tangrad_jit.graph.parser import ParseError
from tangrad_jit.passes.common_subexpressions import merge_common_subexpressions
from tangrad_jit.passes.constant_folding import fold_constants
from tangrad_jit.passes.copy_elimination import eliminate_copies
from tangrad_jit.passes.dead_code import remove_dead_code
from tangrad_jit.passes.functional_form import make_functional
from tangrad_jit.passes.memory_plan import Life, place
from tangrad_jit.passes.needed_bytes import bytes_of
from tangrad_jit.passes.pipeline import optimize
from tangrad_jit.passes.schedule import (
    _dependencies,
    _greedily,
    _Uses,
    arena_of,
    reorder,
    roots_of,
)
from tangrad_jit.passes.shape_propagation import propagate_shapes
from tangrad_jit.run.interpreter import interpret
from tangrad_jit.run.plan import Plan


def agrees(graph, function, *tensors):
    wanted = function(*[t.clone() for t in tensors])
    several = wanted if isinstance(wanted, tuple) else (wanted,)
    graph = verify(graph)
    extra = [e.tensor for e in graph.inputs if e.kind == "constant"]
    ways = (interpret, lambda g, inputs: Plan(g).run(inputs))
    return all(
        (a == b).all()
        for way in ways
        for a, b in zip(way(graph, [*[t.clone() for t in tensors], *extra]), several, strict=True)
    )


def program(x, y):
    a = x.mul(2).add_(y)
    b = a.t().contiguous().relu()
    a[0] = 1.0
    return b.sum(0), tangrad.cat([a, a], 1), x.mul(2)


@pytest.fixture
def tensors():
    tangrad.manual_seed(0)
    return tangrad.randn(3, 4), tangrad.randn(3, 4)


def test_the_text_of_a_graph_reads_back(tensors):
    x = tensors[0].clone().requires_grad_()

    def f(x, y):
        return tangrad.autograd.grad((x.gelu() if hasattr(x, "gelu") else x.tanh() * y).sum(), x)[0]

    for graph in (recorded(program, *tensors), recorded(f, x, tensors[1])):
        text = text_of(graph)
        assert text_of(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "graph f() {\n}",
        "graph f() {\n  return %0\n}",
        "graph f() {\n  nothing(3)\n  return\n}",
        'graph f(%0: float32[2] argument "x") {\n  %1: float32[2] = relu(%0\n  return %1\n}',
    ],
)
def test_what_is_no_graph_is_refused(text):
    with pytest.raises(ParseError):
        parse(text)


def test_the_verifier_finds_what_is_wrong(tensors):
    graph = recorded(program, *tensors)
    graph.nodes.reverse()
    with pytest.raises(GraphError, match="not made before"):
        verify(graph)
    graph = recorded(program, *tensors)
    graph.nodes[0].args = graph.nodes[0].args[:1]
    with pytest.raises(GraphError, match="arguments"):
        verify(graph)


def test_a_graph_runs_as_the_program_does(tensors):
    graph = recorded(program, *tensors)
    assert agrees(graph, program, *tensors)
    better, groups, _ = optimize(graph.copy())
    assert agrees(better, program, *tensors)
    extra = [e.tensor for e in better.inputs if e.kind == "constant"]
    for a, b in zip(Plan(better, groups).run([*tensors, *extra]), program(*tensors), strict=True):
        assert (a == b).all()


def test_a_graph_goes_to_fx_and_back(tensors):
    pytest.importorskip("tangrad_fx")
    graph = recorded(program, *tensors)
    module = to_fx(graph)
    wanted = program(*[t.clone() for t in tensors])
    found = module(*[t.clone() for t in tensors], *[e.tensor for e in graph.inputs[2:]])
    assert all((a == b).all() for a, b in zip(found, wanted, strict=True))
    again = from_fx(module, *[t.clone() for t in tensors], *[e.tensor for e in graph.inputs[2:]])
    assert names(again) == names(graph)


def test_a_graph_is_drawn(tensors):
    picture = svg_of(recorded(program, *tensors))
    assert picture.startswith("<svg")
    assert "relu" in picture


def test_writes_into_values_of_the_graph_become_calls(tensors):
    def f(x, y):
        return (x * y).relu_().add_(1)

    graph = recorded(f, *tensors)
    assert make_functional(graph) == 2
    assert all(node.form == "call" for node in graph.nodes)
    assert agrees(graph, f, *tensors)


def test_equal_calls_are_merged_unless_memory_was_written_between(tensors):
    def f(x, y):
        a = (x + y).exp() * (x + y).exp()
        x.add_(1)
        return a + (x + y)

    graph = recorded(f, *tensors)
    assert merge_common_subexpressions(graph) == 2
    assert names(graph).count("add_plain") == 4
    assert agrees(graph, f, *tensors)


def test_dead_calls_go_and_seen_writes_stay(tensors):
    def f(x, y):
        (x * 3).exp()
        y.mul_(2)
        return x + 1

    graph = recorded(f, *tensors)
    assert remove_dead_code(graph) == 2
    assert "mul" in names(graph)


def test_copies_of_what_dies_are_dropped(tensors):
    def f(x, y):
        return (x * y).clone().sum(0), x.clone()

    graph = recorded(f, *tensors)
    assert eliminate_copies(graph) == 1
    assert names(graph).count("clone") == 1
    assert agrees(graph, f, *tensors)


def test_constants_are_folded(tensors):
    def f(x, y):
        return x + tangrad.tensor([1.0, 2.0, 3.0, 4.0]).exp() * 2

    graph = recorded(f, *tensors)
    assert fold_constants(graph) == 2
    assert names(graph) == ["add_plain"]


def test_shapes_follow_from_the_inputs(tensors):
    graph = recorded(lambda x, y: (x + y).sum(1), *tensors)
    for entry in graph.inputs:
        type = entry.value.type
        entry.value.type = type.__class__(type.dtype, (7, 2), (2, 1))
    assert propagate_shapes(graph) == 2
    assert graph.nodes[-1].results[0].type.shape == (7,)


def naively_ordered(graph, needs):
    """Return the places of nodes: of those that may be next, what frees most goes."""
    given = {entry.value for entry in graph.inputs}
    kept = given | {value.root for value in graph.returned()}
    left, order = list(range(len(graph.nodes))), []
    while left:

        def growth(k):
            others = {root for j in left if j != k for root in roots_of(graph.nodes[j])}
            made = sum(bytes_of(v) for v in graph.nodes[k].results if v.root is v)
            return made - sum(
                bytes_of(r) for r in roots_of(graph.nodes[k]) if r not in others and r not in kept
            )

        done = {graph.nodes[k] for k in order}
        ready = [k for k in left if needs[graph.nodes[k]] <= done]
        order.append(min(ready, key=lambda k: (growth(k), k)))
        left.remove(order[-1])
    return order


@pytest.mark.parametrize("seed", range(6))
def test_the_order_is_that_of_asking_each_node_at_each_step(seed):
    rng = random.Random(seed)
    choices = [rng.randrange(4) for _ in range(24)]
    picks = [rng.random() for _ in range(48)]

    def f(x):
        values, k = [x, x + 1], 0
        for choice in choices:
            a, b = (values[int(p * len(values))] for p in picks[k : k + 2])
            k += 2
            made = (a * 2, a.sum(0) + b, a[:, :2].exp().sum() + b, (a - b).relu())[choice]
            values.append(made if made.dim() == 2 else made + x)
        return values[-1] + values[-3], values[5]

    graph = recorded(f, tangrad.ones(8, 4))
    needs = _dependencies(graph)
    assert _Uses(graph).ordered(needs, _greedily) == naively_ordered(graph, needs)


def test_a_better_order_needs_less_at_its_peak():
    def f(x):
        big = [(x + k).exp() for k in range(6)]
        return sum(b.sum() for b in big)

    graph = recorded(f, tangrad.ones(64, 64))
    before = arena_of(graph)
    assert reorder(graph) > 0
    assert arena_of(graph) < before / 2
    assert agrees(graph, f, tangrad.ones(64, 64))


def test_the_memory_plan_never_overlaps_lives():
    lives = [Life(k, 100 * (k % 5 + 1), k, k + k % 7) for k in range(40)]
    offsets, total = place(lives)
    for a in lives:
        for b in lives:
            if a is not b and a.first <= b.last and b.first <= a.last:
                end = offsets[a.key] + a.nbytes
                assert end <= offsets[b.key] or offsets[b.key] + b.nbytes <= offsets[a.key]
    assert total < sum(life.nbytes for life in lives)


def test_every_node_knows_its_effects(tensors):
    graph = recorded(lambda x, y: (tangrad.rand(3, 4) + x).add_(y), *tensors)
    assert any("random" in node.effects for node in graph.nodes)
    assert any("write" in node.effects for node in graph.nodes)
    made = Graph()
    value = made.add_input(graph.inputs[0].value.type, "argument", "x")
    node = Node(find_op("relu"), (value,))
    made.append(node, [value.type])
    assert node.effects == ()
    assert made.users()[value] == [node]
