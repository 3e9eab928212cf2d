"""Traced programs: their code and graph are PyTorch's, and they compute what the program does."""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import pytest
import torch
import traced_programs as programs

import tangrad
from tangrad import fx

EVERY = sorted(programs.PROGRAMS)


def both(build: Any) -> tuple[Any, Any]:
    """Return a program written against tangrad, and one against PyTorch, in evaluation mode."""
    ours, theirs = build(tangrad), build(torch)
    if isinstance(ours, tangrad.nn.Module):
        ours.eval(), theirs.eval()
    return ours, theirs


def examples(name: str) -> list[Any]:
    """Return inputs of a program."""
    tangrad.manual_seed(0)
    return [tangrad.randn(*shape) for shape in programs.PROGRAMS[name][1]]


def same(got: Any, expected: Any) -> None:
    """Assert that nested results are equal."""
    got, expected = (tangrad.utils._pytree.tree_leaves(x) for x in (got, expected))
    for a, b in zip(got, expected, strict=True):
        tangrad.testing.assert_close(a, b)


def by_public_names(code: str) -> str:
    """Write functions by the names that programs use; PyTorch writes where they are defined."""
    code = code.replace("torch.functional.", "torch.")
    return code.replace("torch._C._linalg.linalg_", "torch.linalg.")


@pytest.mark.parametrize("name", [*EVERY, "unpacking"])
def test_code_and_graph_read_like_pytorchs(name: str) -> None:
    ours, theirs = both(getattr(programs, name))
    got, expected = fx.symbolic_trace(ours), torch.fx.symbolic_trace(theirs)
    assert got.code == by_public_names(expected.code)
    assert str(got.graph) == by_public_names(str(expected.graph))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "remade",
    [
        fx.symbolic_trace,
        lambda m: copy.deepcopy(fx.symbolic_trace(m)),
        lambda m: pickle.loads(pickle.dumps(fx.symbolic_trace(m))),
        lambda m: fx.Transformer(fx.symbolic_trace(m)).transform(),
        lambda m: fx.Interpreter(fx.symbolic_trace(m)).run,
    ],
    ids=["traced", "deepcopy", "pickle", "Transformer", "Interpreter"],
)
def test_a_traced_program_computes_what_the_program_does(name: str, remade: Any) -> None:
    ours, _ = both(programs.PROGRAMS[name][0])
    inputs = examples(name)
    same(remade(ours)(*inputs), ours(*inputs))


def test_gradients_reach_the_parameters_of_the_program() -> None:
    model = programs.nested(tangrad)
    traced = fx.symbolic_trace(model.eval())
    traced(tangrad.ones(2, 4)).sum().backward()
    assert model.one.inner.weight.grad is not None
    assert traced.one.inner.weight is model.one.inner.weight


def test_calls_are_compiled_again_after_tracing() -> None:
    model = programs.nested(tangrad).eval()
    before = model(tangrad.ones(2, 4))
    call = tangrad.nn.Module.__call__
    fx.symbolic_trace(model)
    assert tangrad.nn.Module.__call__ is call
    same(model(tangrad.ones(2, 4)), before)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: len(x),
        lambda x: list(x),
        lambda x: int(x),
        lambda x: {**x},
        lambda x: 3 in x,
        lambda x: round(x),
    ],
    ids=["if", "len", "for", "int", "**", "in", "round"],
)
def test_what_needs_a_value_is_refused_as_pytorch_does(program: Any) -> None:
    with pytest.raises(Exception) as expected:
        torch.fx.symbolic_trace(program)
    with pytest.raises(Exception) as got:
        fx.symbolic_trace(program)
    assert got.type.__name__ == expected.type.__name__
    assert str(got.value) == str(expected.value)


def test_values_given_beforehand_are_checked_by_the_graph() -> None:
    def program(x, flag, times=3):  # type: ignore[no-untyped-def]
        return x * times if flag else x

    given = {"flag": True, "times": 3}
    got, expected = (
        lib.symbolic_trace(program, concrete_args=dict(given)) for lib in (fx, torch.fx)
    )
    assert got.code == expected.code
    x = tangrad.ones(2)
    same(got(x, True, 3), x * 3)
    with pytest.raises(AssertionError, match="specialized to have value 3"):
        got(x, True, 4)


def test_nested_inputs_are_flattened_and_results_nested_again() -> None:
    def program(pair):  # type: ignore[no-untyped-def]
        return {"sum": pair["a"] + pair["b"][0]}

    got, expected = (
        lib.symbolic_trace(program, concrete_args={"pair": {"a": lib.PH, "b": [lib.PH]}})
        for lib in (fx, torch.fx)
    )
    assert got.code == expected.code
    one = tangrad.ones(2)
    result = got({"a": one, "b": [one]})
    assert list(result) == ["sum"]
    same(result["sum"], one * 2)


def test_gathered_arguments_are_as_many_as_are_given() -> None:
    class Sum(tangrad.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return args[0] + 2 * args[1]

    made = fx.symbolic_trace(Sum(), concrete_args=(fx.PH, fx.PH))
    made.graph.lint()
    assert [n.name for n in made.graph.nodes if n.op == "placeholder"] == ["input_0", "input_1"]
    assert made(tangrad.ones(2), tangrad.full((2,), 3.0)).tolist() == [7, 7]

    marked = type(fx.PH)()
    marked.meaning = "a number"
    traced = fx.symbolic_trace(lambda *args: args[0] - args[1], concrete_args=(fx.PH, marked))
    first, second, *_ = traced.graph.nodes
    assert second.meaning == "a number"
    assert not hasattr(first, "meaning")
    assert traced(5, 3) == 2

    with pytest.raises(RuntimeError, match="expected 2 arguments but got 1"):
        fx.symbolic_trace(lambda a, b, *rest: a, concrete_args=(fx.PH,))


def test_a_tracer_decides_which_modules_are_one_call() -> None:
    class Whole(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return module_qualified_name == "one"

    graph = Whole().trace(programs.nested(tangrad))
    assert [n.target for n in graph.nodes if n.op == "call_module"][:1] == ["one"]
    assert "two.0.inner" not in {n.target for n in graph.nodes}


def test_parameters_keep_their_shapes_where_that_was_asked() -> None:
    class Decides(tangrad.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tangrad.nn.Parameter(tangrad.ones(2, 3))

        def forward(self, x: Any) -> Any:
            return x + self.w if self.w.shape[0] == 2 else x

    module = Decides()
    graph = fx.Tracer(param_shapes_constant=True).trace(module)
    same(fx.GraphModule(module, graph)(tangrad.ones(3)), tangrad.full((2, 3), 2.0))
    with pytest.raises(fx.proxy.TraceError):
        fx.symbolic_trace(module)


def test_stack_traces_name_the_line_of_the_program() -> None:
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    graph = tracer.trace(lambda x: x.relu())
    (node,) = graph.find_nodes(op="call_method", target="relu")
    assert __file__ in node.stack_trace


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_arguments_that_no_graph_can_hold_are_refused(value: Any) -> None:
    with pytest.raises(NotImplementedError, match="argument of type"):
        fx.symbolic_trace(lambda x: tangrad.add(x, value))
    with pytest.raises(TypeError, match="expected a module or a function"):
        fx.Tracer().trace(3)


@pytest.mark.parametrize("library", [torch, tangrad])
def test_a_tracer_of_another_package_writes_trace_anew(library):
    fx = importlib.import_module(f"{library.__name__}.fx")
    made = importlib.import_module(f"{library.__name__}.fx._symbolic_trace")

    class Tracer(fx.Tracer):
        @made.compatibility(is_backward_compatible=True)
        def trace(self, root, concrete_args=None):
            self.root, function = root, type(root).forward
            self.submodule_paths = {module: name for name, module in root.named_modules()}
            self.graph = fx.Graph(tracer_cls=type(self))
            self.tensor_attrs = {}
            assert isinstance(function, made.FunctionType)
            function_globals = function.__globals__
            function, args = self.create_args_for_root(function, True, concrete_args)
            cache = {}

            @made.functools.wraps(made._orig_module_getattr)
            def read(module, name):
                return self.getattr(name, made._orig_module_getattr(module, name), cache)

            @made.functools.wraps(made._orig_module_call)
            def call(module, *args, **kwargs):
                def forward(*args, **kwargs):
                    return made._orig_module_call(module, *args, **kwargs)

                return self.call_module(module, forward, args, kwargs)

            with made._Patcher() as patcher:
                patcher.patch_method(library.nn.Module, "__getattr__", read, deduplicate=False)
                patcher.patch_method(library.nn.Module, "__call__", call, deduplicate=False)
                made._patch_wrapped_functions(patcher)
                made._autowrap_check(patcher, function_globals, self._autowrap_function_ids)
                self.create_node("output", "output", (self.create_arg(function(*args)),), {})
            self.submodule_paths = None
            return self.graph

    class Model(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = library.nn.Linear(2, 2)
            self.scale = library.nn.Parameter(library.ones(2))

        def forward(self, x):
            return self.layer(x).relu() * self.scale

    model = Model()
    graph = Tracer().trace(model)
    ops = [(node.op, str(node.target).rpartition(".")[2]) for node in graph.nodes]
    assert [op for op, _ in ops] == [
        *("placeholder", "call_module", "call_method", "get_attr", "call_function", "output")
    ]
    x = library.tensor([[1.0, -2.0]])
    assert fx.GraphModule(model, graph)(x).tolist() == model(x).tolist()
    assert made.ScriptObject is library.ScriptObject
