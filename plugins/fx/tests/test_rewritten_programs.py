"""What tracing keeps of programs: asserts, wrapped functions, nested inputs, enums, places."""

from __future__ import annotations

import copy
import enum
import multiprocessing
import pickle
from collections import namedtuple
from typing import Any

import pytest
import torch

import tangrad
from tangrad import fx
from tangrad.fx.experimental.rewriter import RewritingTracer

Triple = namedtuple("Triple", "a b c")


@fx.wrap
def doubled(x: Any) -> Any:
    return x * 2


@fx.wrap
def of_colour(values: Any, colour: Any) -> Any:
    return values * colour.value


class Colour(enum.Enum):
    RED = 3


class Checked(tangrad.nn.Module):
    def __init__(self, inner: Any = None) -> None:
        super().__init__()
        self.scale = tangrad.nn.Parameter(tangrad.ones(2))
        self.inner = inner

    def forward(self, x: Any, n: Any) -> Any:
        assert n == 2, "two is expected"
        return x * self.scale if self.inner is None else self.inner(x, n)


def rewritten(root: Any) -> fx.GraphModule:
    tracer = RewritingTracer()
    graph = tracer.trace(root)
    graph.lint()
    return fx.GraphModule(tracer.root, graph, "rewritten")


def test_asserts_on_inputs_become_nodes() -> None:
    module = Checked(Checked())
    with pytest.raises(fx.proxy.TraceError):
        fx.symbolic_trace(module)
    made = rewritten(module)
    assert made.code.count("_assert(") == 2
    assert made(tangrad.ones(2), 2).tolist() == [1.0, 1.0]
    with pytest.raises(AssertionError, match="two is expected"):
        made(tangrad.ones(2), 3)
    assert type(module).forward is Checked.forward


def test_functions_with_closures_are_rewritten() -> None:
    limit = 5

    def program(x: Any, n: Any = 1) -> Any:
        assert n < limit
        return doubled(x) + n

    made = rewritten(program)
    assert "doubled" in made.code
    assert made(1) == 3
    with pytest.raises(AssertionError):
        made(1, 6)


def test_wrapped_functions_stay_calls_when_code_is_traced_again() -> None:
    def program(x: Any) -> Any:
        return doubled(x) + 1

    again = fx.symbolic_trace(fx.symbolic_trace(program))
    assert "doubled" in again.code
    assert again(2) == 5
    assert not hasattr(doubled, "__fx_already_patched")


@pytest.mark.parametrize("nested", [[fx.PH, fx.PH], {"a": fx.PH, "b": fx.PH}])
def test_modules_of_nested_inputs_are_traced_again_and_pickled(nested: Any) -> None:
    keys = list(nested) if isinstance(nested, dict) else [0, 1]

    class Sum(tangrad.nn.Module):
        def forward(self, x: Any) -> Any:
            return x[keys[0]] + x[keys[1]] * 2

    value = dict.fromkeys(keys, 3.0) if isinstance(nested, dict) else [3.0, 3.0]
    made = fx.symbolic_trace(Sum(), concrete_args={"x": nested})
    assert made(value) == 9.0
    again = fx.symbolic_trace(made)
    assert "tree_flatten_spec" not in again.code
    assert again(value) == 9.0
    flat = fx.symbolic_trace(again, concrete_args={"x": nested})
    assert flat(value) == 9.0
    assert pickle.loads(pickle.dumps(made))(value) == 9.0


def test_named_tuples_are_inputs() -> None:
    def program(x: Any) -> Any:
        return x.a + x.b * x.c

    made = fx.symbolic_trace(program, concrete_args={"x": Triple(fx.PH, fx.PH, fx.PH)})
    assert fx.symbolic_trace(made)(Triple(1, 2, 3)) == 7


def test_attributes_of_nodes_are_not_those_of_placeholders() -> None:
    class Tagging(fx.Tracer):
        def create_node(self, *args: Any, **kwargs: Any) -> Any:
            node = super().create_node(*args, **kwargs)
            node.tag = "tracer"
            return node

    class Tagged(fx._symbolic_trace.PHBase):
        tag, note = "input", "kept"

        def __init__(self) -> None:
            self.tag, self.note = "input", "kept"

    graph = Tagging().trace(lambda x: x + 1, concrete_args={"x": Tagged()})
    first = next(iter(graph.nodes))
    assert (first.tag, first.note) == ("tracer", "kept")


def test_enums_are_arguments() -> None:
    made = fx.symbolic_trace(lambda x: of_colour(x, Colour.RED))
    assert "Colour.RED" in made.code
    assert made(2) == 6


def test_code_tells_where_the_program_was() -> None:
    made = fx.symbolic_trace(lambda x: x + 1)
    assert "test_rewritten_programs.py" in made.forward.__code__.co_filename
    assert made.forward.__code__.co_filename.startswith("<eval_with_key>")


def test_tracers_are_copied() -> None:
    tracer = fx.Tracer()
    tracer.trace(lambda x: x + 1)
    other = copy.deepcopy(tracer)
    assert str(other.graph) == str(tracer.graph)
    assert other.graph is not tracer.graph


def test_calls_that_write_arguments_are_refused_where_asked() -> None:
    class Strict(fx.Tracer):
        check_mutable_operations = True

    def into(x: Any) -> Any:
        y = tangrad.rand_like(x)
        tangrad.sigmoid(x, out=y)
        return y

    with pytest.raises(RuntimeError, match="mutable operation aten::sigmoid.out"):
        Strict().trace(into)
    with pytest.raises(RuntimeError, match="mutable operation aten::log_"):
        Strict().trace(lambda x: tangrad.log_(x))
    assert fx.symbolic_trace(into)(tangrad.zeros(1)).tolist() == [0.5]


def test_scripts_are_called_as_a_whole() -> None:
    class Holder(tangrad.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.script = tangrad.jit.script(tangrad.nn.ReLU())

        def forward(self, x: Any) -> Any:
            return self.script(x)

    made = fx.symbolic_trace(Holder())
    assert any(n.op == "call_method" and n.target == "forward" for n in made.graph.nodes)
    assert made(tangrad.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


def _index_by_inputs() -> None:
    wrapped = fx._symbolic_trace._wrapped_methods_to_patch
    wrapped.append((tangrad.Tensor, "__getitem__"))
    table = tangrad.arange(9.0).reshape(3, 3)
    made = fx.symbolic_trace(lambda x: table[:, : x.size(0)])
    assert made(tangrad.zeros(2)).shape == (3, 2)


def test_wrapped_methods_see_inputs_in_slices() -> None:
    process = multiprocessing.get_context("fork").Process(target=_index_by_inputs)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_signatures_of_all_functions_can_be_asked_for() -> None:
    ask = fx.operator_schemas.get_signature_for_torch_op
    for name in dir(tangrad):
        if callable(found := getattr(tangrad, name)):
            ask(found)
    clamp = ask(tangrad.clamp)
    assert any(_binds(s, tangrad.ones(1), max=2) for s in clamp)


def _binds(signature: Any, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("name", ["log_", "add", "Tensor", "nn.functional.relu", "nn.Linear"])
def test_functions_have_the_names_of_types(name: str) -> None:
    found: Any = tangrad
    for part in name.split("."):
        found = getattr(found, part)
    theirs = torch.typename(torch.nn.functional.relu)
    assert theirs == "torch.nn.functional.relu"
    assert tangrad.typename(found).startswith("tangrad")
    assert tangrad.typename(found).endswith(f".{name.rpartition('.')[2]}")
