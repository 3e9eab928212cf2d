"""Graphs that are edited, checked, written and rewritten."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

import tangrad
from tangrad import fx
from tangrad.fx.passes.infra.pass_base import PassBase, PassResult
from tangrad.fx.passes.infra.pass_manager import (
    PassManager,
    this_before_that_pass_constraint,
)
from tangrad.fx.passes.shape_prop import ShapeProp
from tangrad.fx.passes.split_module import split_module


def chain(lib: Any, root: Any) -> Any:
    """Return the graph of relu(x) + y, in either library."""
    graph = lib.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y", default_value=2)
    graph.output(graph.call_function(operator.add, (graph.call_function(root.relu, (x,)), y)))
    return graph


def test_a_graph_made_by_hand_reads_like_pytorchs() -> None:
    got, expected = chain(fx, tangrad), chain(torch.fx, torch)
    assert str(got) == str(expected)
    assert got.python_code("self").src == expected.python_code("self").src


def test_annotations_are_written_as_pytorch_writes_them() -> None:
    def made(lib: Any, root: Any) -> Any:
        graph = lib.Graph()
        x = graph.placeholder("x", list[root.Tensor])
        graph.placeholder("if", int | str)
        graph.output(x, root.Tensor)
        return graph

    got, expected = made(fx, tangrad), made(torch.fx, torch)
    assert str(got) == str(expected)


def test_nodes_are_put_where_the_insertion_point_is() -> None:
    module = fx.GraphModule({}, chain(fx, tangrad))
    (relu,) = module.graph.find_nodes(op="call_function", target=tangrad.relu)
    with module.graph.inserting_after(relu):
        doubled = module.graph.call_function(tangrad.mul, (relu, 2))
    relu.replace_all_uses_with(doubled, delete_user_cb=lambda user: user is not doubled)
    module.recompile()
    assert module(tangrad.tensor([1.0, -1.0])).tolist() == [4.0, 2.0]


def test_what_nobody_uses_goes_and_what_has_effects_stays() -> None:
    def program(x: Any) -> Any:
        x.sin()
        x.add_(1)
        tangrad._assert(x, "message")
        return x * 2

    module = fx.symbolic_trace(program)
    assert module.graph.eliminate_dead_code()
    assert [n.name for n in module.graph.nodes] == ["x", "add_", "_assert", "mul", "output"]
    assert not module.graph.eliminate_dead_code()


def test_a_used_node_is_not_erased() -> None:
    graph = chain(fx, tangrad)
    with pytest.raises(RuntimeError, match="Tried to erase Node relu but it still had 1 users"):
        graph.erase_node(graph.find_nodes(op="call_function", target=tangrad.relu)[0])


def test_lint_finds_what_is_wrong() -> None:
    graph = chain(fx, tangrad)
    graph.lint()
    x, relu = next(iter(graph.nodes)), graph.find_nodes(op="call_function", target=tangrad.relu)[0]
    relu.append(x)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        graph.lint()
    other = fx.Graph()
    other.output(x)
    with pytest.raises(RuntimeError, match="does not belong to this Graph"):
        other.lint()


def test_arguments_are_changed_by_assignment_alone() -> None:
    graph = fx.Graph()
    node = graph.call_function(tangrad.cat, ([graph.placeholder("x")],))
    with pytest.raises(TypeError, match="does not support mutation"):
        node.args[0].append(1)
    node.args = ((),)
    assert not next(iter(graph.nodes)).users


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda g: g.create_node("jump", "x"), AssertionError),
        (lambda g: g.call_function("relu"), ValueError),
        (lambda g: g.create_node("call_method", tangrad.relu), ValueError),
        (lambda g: fx.GraphModule({}, _with_module(g)), RuntimeError),
        (lambda g: fx.GraphModule(tangrad.nn.Module(), _with_module(g)), AttributeError),
    ],
)
def test_nodes_that_make_no_sense_are_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make(fx.Graph())


def _with_module(graph: Any) -> Any:
    graph.output(graph.call_module("absent"))
    return graph


def test_every_place_of_a_pattern_is_replaced() -> None:
    def program(x: Any, w: Any) -> Any:
        a = tangrad.relu(x + w) * 2
        return tangrad.relu(a + x).sum(), a

    def pattern(a: Any, b: Any) -> Any:
        return tangrad.relu(a + b)

    def replacement(a: Any, b: Any) -> Any:
        return tangrad.sigmoid(a - b)

    module = fx.symbolic_trace(program)
    found = fx.replace_pattern(module, pattern, replacement)
    assert [m.anchor.name for m in found] == ["relu", "relu_1"]
    x, w = tangrad.randn(2, 3), tangrad.randn(2, 3)
    a = tangrad.sigmoid(x - w) * 2
    for got, expected in zip(module(x, w), (tangrad.sigmoid(a - x).sum(), a), strict=True):
        tangrad.testing.assert_close(got, expected)
    module.graph.lint()


def test_a_pattern_whose_inside_is_used_elsewhere_is_left() -> None:
    module = fx.symbolic_trace(lambda x: (tangrad.relu(x + 1), x + 1))
    module2 = fx.symbolic_trace(lambda x: (lambda y: (tangrad.relu(y), y))(x + 1))
    pattern = lambda x: tangrad.relu(x + 1)  # noqa: E731
    assert len(fx.replace_pattern(module, pattern, tangrad.sin)) == 1
    assert len(fx.replace_pattern(module2, pattern, tangrad.sin)) == 0


def test_shapes_are_noted_and_shown() -> None:
    model = tangrad.nn.Sequential(tangrad.nn.Linear(2, 3), tangrad.nn.ReLU())
    module = fx.symbolic_trace(model)
    ShapeProp(module).propagate(tangrad.ones(4, 2))
    shapes = {n.name: tuple(n.meta["tensor_meta"].shape) for n in module.graph.nodes}
    assert shapes == {"input_1": (4, 2), "_0": (4, 3), "_1": (4, 3), "output": (4, 3)}
    assert '_0: "f32[4, 3]"' in module.print_readable(print_output=False)


def test_a_split_module_computes_the_same() -> None:
    layers = [tangrad.nn.Linear(3, 3) for _ in range(4)]
    model = tangrad.nn.Sequential(*layers)
    module = fx.symbolic_trace(model)
    order = {n: k for k, n in enumerate(module.graph.nodes)}
    split = split_module(module, model, lambda node: order[node] // 3)
    assert [n for n, _ in split.named_children()] == ["submod_0", "submod_1"]
    x = tangrad.ones(2, 3)
    tangrad.testing.assert_close(split(x), model(x))


def test_passes_run_in_an_order_that_meets_the_constraints() -> None:
    ran = []

    class Note(PassBase):
        def __init__(self, name: str) -> None:
            self.name = name

        def call(self, graph_module: Any) -> PassResult:
            ran.append(self.name)
            return PassResult(graph_module, False)

    second, first = Note("second"), Note("first")
    manager = PassManager([second, first], [this_before_that_pass_constraint(first, second)])
    assert not manager(fx.symbolic_trace(lambda x: x + 1)).modified
    assert ran == ["first", "second"]


def test_a_module_written_to_a_folder_is_loaded_as_a_package(
    tmp_path: Any, monkeypatch: Any
) -> None:
    model = tangrad.nn.Sequential(tangrad.nn.Linear(2, 3), tangrad.nn.ReLU())
    module = fx.symbolic_trace(model)
    module.to_folder(tmp_path / "exported", "Exported")
    monkeypatch.syspath_prepend(tmp_path)
    from exported import Exported  # type: ignore[import-not-found]

    x = tangrad.randn(4, 2)
    tangrad.testing.assert_close(Exported()(x), model(x))


def test_others_mark_what_may_change() -> None:
    from tangrad.fx._compatibility import compatibility

    @compatibility(is_backward_compatible=False)
    def changing() -> int:
        """Return one."""
        return 1

    assert changing() == 1
    assert "Return one." in str(changing.__doc__)
    assert "NOT" in str(changing.__doc__)


cat, stack, exp, relu = tangrad.cat, tangrad.stack, tangrad.exp, tangrad.relu


@pytest.mark.parametrize(
    ("program", "pattern", "replacement", "wanted"),
    [
        (
            lambda x, y: cat([cat([x, x]), cat([y, y])]),
            lambda a: cat(a),
            lambda a: cat(a) * 2,
            lambda x, y: 4 * cat([x, x, y, y]),
        ),
        (
            lambda x, y: stack([stack([x, y]).sum(0), y]).sum(0),
            lambda a: stack(a).sum(0),
            lambda a: stack(a).mean(0),
            lambda x, y: stack([stack([x, y]).mean(0), y]).mean(0),
        ),
        (
            lambda x, y: cat([relu(cat([relu(x), y])), y]),
            lambda a, b: cat([relu(a), b]),
            lambda a, b: cat([b, a]),
            lambda x, y: cat([y, y, x]),
        ),
        (
            lambda x, y: cat(tensors=(exp(exp(x)), exp(y)), dim=0),
            lambda a: exp(a),
            lambda a: a,
            lambda x, y: cat([x, y]),
        ),
        (
            lambda x, y: y[exp(exp(x)).sum().int() :],
            lambda a: exp(a),
            lambda a: a - a,
            lambda x, y: y,
        ),
    ],
)
def test_matches_in_lists_of_others_are_replaced(
    program: Any, pattern: Any, replacement: Any, wanted: Any
) -> None:
    module = fx.symbolic_trace(program)
    found = fx.replace_pattern(module, pattern, replacement)
    module.graph.lint()
    x, y = tangrad.tensor([1.0, -2.0]), tangrad.tensor([3.0, 4.0])
    assert module(x, y).tolist() == wanted(x, y).tolist()
    erased = []
    for match in found:
        inputs = [n for p, n in match.nodes_map.items() if p.op == "placeholder"]
        fx.node.map_arg(inputs, lambda n: erased.append(n) if n._erased else None)
    assert not erased  # what stands for an input is in the graph


def test_one_node_stands_for_one_input_of_a_pattern() -> None:
    """As with PyTorch: `x + x` is no sum of two inputs."""
    for side in (torch, tangrad):
        module = side.fx.symbolic_trace(lambda x, y: (x + x, x + y))
        found = side.fx.replace_pattern(module, lambda a, b: a + b, lambda a, b: a * b)
        assert len(found) == 1


def test_a_replacement_comes_before_later_writes() -> None:
    def program(x: Any) -> Any:
        y = tangrad.relu(x)
        x.add_(1)
        return y + x

    module = fx.symbolic_trace(program)
    fx.replace_pattern(module, lambda a: tangrad.relu(a), lambda a: a.clamp(min=0))
    x = tangrad.tensor([-2.0, 3.0])
    assert module(x.clone()).tolist() == program(x.clone()).tolist()


def test_results_of_a_replacement_come_before_their_users() -> None:
    def program(x: Any) -> Any:
        y = tangrad.relu(x) + 1
        return y * tangrad.neg(tangrad.exp(x))

    module = fx.symbolic_trace(program)
    fx.replace_pattern(
        module, lambda a, b: (tangrad.relu(a), tangrad.neg(b)), lambda a, b: (a * 2, b * 3)
    )
    module.graph.lint()
    x = tangrad.tensor([1.0])
    assert module(x).tolist() == ((x * 2 + 1) * (x.exp() * 3)).tolist()


@pytest.mark.parametrize("library", [torch, tangrad])
def test_libraries_know_a_traced_module_by_the_text_of_its_class(library: Any) -> None:
    traced = library.fx.symbolic_trace(library.nn.Linear(2, 2))
    assert "GraphModuleImpl" in str(type(traced))
    assert type(traced).__name__ == "Linear"
