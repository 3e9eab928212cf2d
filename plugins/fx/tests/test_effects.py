"""What calls do beside their results: passes keep it, and keep it in order."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad import fx, nn
from tangrad.export import Dim, export
from tangrad.fx.experimental.const_fold import split_const_subgraphs
from tangrad.fx.experimental.proxy_tensor import make_fx
from tangrad.fx.passes.dialect.common.cse_pass import CSEPass
from tangrad.fx.passes.split_module import split_module
from tangrad.fx.passes.split_utils import split_by_tags

functional = nn.functional


class Says(nn.Module):
    """A module of one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def matrix() -> Any:
    """Return the argument of these tests."""
    return tangrad.arange(6.0).reshape(2, 3)


def into_columns(x: Any) -> Any:
    x[:, 2:] = 0
    return x + 1


def into_a_masked_place(x: Any) -> Any:
    x[x > 3] = -1
    return x.sum(0)


def into_a_view_of_new_memory(x: Any) -> Any:
    y = tangrad.zeros(3)
    y[1] = 2
    y[2:].copy_(x[0, :1])
    return y


def into_out(x: Any) -> Any:
    made = tangrad.empty_like(x)
    tangrad.add(x, 1, out=made)
    return made


def into_an_activation(x: Any) -> Any:
    functional.threshold(x, 2, -5.0, True)
    return x * 2


WRITING: list[Callable[[Any], Any]] = [
    *(into_columns, into_a_masked_place, into_a_view_of_new_memory, into_out, into_an_activation),
]


def eager(function: Any) -> list[Any]:
    """Return what a function gives and leaves in its argument, in two calls."""
    given = [matrix(), matrix() + 1]
    return [[function(x).tolist(), x.tolist()] for x in given]


@pytest.mark.parametrize("function", WRITING)
def test_writes_stay_below_autograd(function: Any) -> None:
    program = export(Says(function), (matrix(),))
    assert eager(program.run_decompositions().module()) == eager(function)
    traced = make_fx(function)(matrix())
    traced.graph.eliminate_dead_code()
    traced.recompile()
    assert eager(traced) == eager(function)


@pytest.mark.parametrize("function", WRITING)
def test_exported_writes_are_no_dead_code(function: Any) -> None:
    module = export(Says(function), (matrix(),)).module()
    module.graph.eliminate_dead_code()
    module.recompile()
    assert eager(module) == eager(function)


@pytest.mark.parametrize(
    "call",
    [
        *(operator.setitem, print, tangrad._assert, tangrad._assert_async, functional.dropout),
        *(tangrad.manual_seed, tangrad.bernoulli, nn.init.zeros_, operator.iadd),
    ],
)
def test_calls_with_effects_are_impure(call: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    assert graph.call_function(call, (x, 0)).is_impure()


def test_effects_that_arguments_switch_on() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")

    def impure(target: Any, *args: Any, **kwargs: Any) -> bool:
        return graph.call_function(target, args, kwargs).is_impure()

    assert impure(functional.relu, x, True)
    assert not impure(functional.relu, x)
    assert impure(tangrad.sin, x, out=x)
    assert not impure(tangrad.sin, x, out=None)
    assert not impure(functional.dropout, x, 0.5, False)
    assert impure(functional.batch_norm, x, x, x, None, None, True)
    assert not impure(functional.batch_norm, x, x, x, None, None, False)
    assert impure(functional.embedding, x, x, max_norm=1.0)
    assert not impure(functional.embedding, x, x)


@pytest.mark.parametrize(
    ("layer", "kept"),
    [
        (nn.BatchNorm1d(3), True),
        (nn.BatchNorm1d(3).eval(), False),
        (nn.ReLU(inplace=True), True),
        (nn.ReLU(), False),
        (nn.Linear(3, 3), False),
        (nn.Sequential(nn.Linear(3, 3), nn.Dropout()), True),
    ],
)
def test_modules_that_change_something_are_kept(layer: Any, kept: bool) -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            self.layer(x)
            return x

    tracer = fx.Tracer()
    tracer.is_leaf_module = lambda *_: True  # type: ignore[method-assign]
    module = fx.GraphModule(unused := Unused(), tracer.trace(unused))
    module.graph.eliminate_dead_code()
    assert any(n.op == "call_module" for n in module.graph.nodes) is kept


def test_a_custom_operator_that_writes_is_kept() -> None:
    @tangrad.library.custom_op("effects::count", mutates_args=("x",))
    def count(x: tangrad.Tensor) -> None:
        x.add_(1)

    traced = make_fx(lambda x: (count(x), x * 2)[1])(matrix())
    traced.graph.eliminate_dead_code()
    traced.recompile()
    assert eager(traced) == [[((m := matrix() + k + 1) * 2).tolist(), m.tolist()] for k in (0, 1)]


@pytest.mark.parametrize(
    "made",
    [
        lambda: tangrad.tensor([2.0, 3.0, 4.0]),
        lambda: tangrad.as_tensor([2.0, 3.0, 4.0]),
        lambda: tangrad.Tensor([2.0, 3.0, 4.0]),
        lambda: tangrad.tensor([[1.0], [2.0]]).new_tensor([2.0, 3.0, 4.0]),
        lambda: tangrad.tensor([2.0, 3.0, 4.0], dtype=tangrad.float64),
        lambda: tangrad.tensor([2, 3, 4])[tangrad.tensor([2, 0, 1])],
        lambda: tangrad.empty(3).fill_(7.0),
    ],
)
def test_tensors_of_numbers_are_constants_of_a_decomposed_program(made: Any) -> None:
    def function(x: Any) -> Any:
        y = made()
        y += 1  # each call writes into a tensor of its own
        return x * y

    program = export(Says(function), (matrix(),)).run_decompositions()
    module = program.module()
    assert eager(module) == eager(module) == eager(function)
    assert eager(make_fx(function)(matrix())) == eager(function)


def test_arrays_are_constants() -> None:
    array = matrix().numpy()[0].copy()
    program = export(Says(lambda x: x + tangrad.as_tensor(array)), (matrix(),))
    assert program.graph_signature.lifted_tensor_constants == ("lifted_tensor_0",)
    assert eager(program.module()) == eager(lambda x: x + tangrad.as_tensor(array))


def test_a_constant_that_depends_on_a_size() -> None:
    n = Dim("n")

    def counted(x: Any) -> Any:
        return x * tangrad.tensor([x.shape[0], 2 * x.shape[0]])[1]

    program = export(Says(counted), (tangrad.ones(3),), dynamic_shapes=({0: n},))
    assert program.run_decompositions().module()(tangrad.ones(5)).tolist() == [10.0] * 5
    with pytest.raises(ValueError, match="a tensor made of numbers is another"):
        export(
            Says(lambda x: x + tangrad.from_numpy(np.ones(x.shape[0], "f"))),
            (tangrad.ones(3),),
            dynamic_shapes=({0: n},),
        )


def test_exporting_writes_into_nothing() -> None:
    held = tangrad.zeros(3)

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(tangrad.ones(3))

        def forward(self, x: Any) -> Any:
            with tangrad.no_grad():
                self.weight.mul_(2)
            held[:2].add_(1)
            x[0] = held
            return x * self.weight

    module, x = Writes(), matrix()
    program = export(module, (x,)).run_decompositions()
    assert x.tolist() == matrix().tolist()
    assert held.tolist() == [0.0] * 3
    assert module.weight.tolist() == [1.0] * 3
    assert program.module()(x)[0].tolist() == [2.0, 2.0, 0.0]
    assert held.tolist() == [1.0, 1.0, 0.0]  # as a call of the module would


def test_random_numbers_are_drawn_in_each_call() -> None:
    module = export(Says(functional.dropout), (tangrad.ones(64),)).run_decompositions().module()
    tangrad.manual_seed(0)
    first, second = (module(tangrad.ones(64)) for _ in range(2))
    assert not tangrad.equal(first, second)
    tangrad.manual_seed(0)
    assert tangrad.equal(first, functional.dropout(tangrad.ones(64)))


def test_a_derivative_sees_the_mask_of_its_forward() -> None:
    def slope(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = functional.dropout(x)
        return y.detach(), tangrad.autograd.grad(y.sum(), x)[0]

    traced = make_fx(slope)(tangrad.ones(64))
    masks = [traced(tangrad.ones(64)) for _ in range(2)]
    assert all(tangrad.equal(y, g) for y, g in masks)
    assert not tangrad.equal(masks[0][0], masks[1][0])


def test_detached_tensors_are_others() -> None:
    program = export(Says(lambda x: x.detach() * 2 + x), (matrix(),)).run_decompositions()
    x = matrix().requires_grad_()
    program.module()(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == tangrad.ones(2, 3).tolist()
    z = tangrad.tensor([1 + 2j])
    assert make_fx(lambda z: z.conj() + 2 * z)(z)(z).tolist() == [3 + 2j]


def test_masks_are_not_those_of_the_example() -> None:
    def program(x: Any) -> Any:
        x[x > 0] *= 2
        return x[x > 1]

    module = export(Says(program), (matrix(),)).run_decompositions().module()
    x = tangrad.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
    assert module(x).tolist() == [2.0]


def test_a_repetition_behind_a_write_is_none() -> None:
    def program(x: Any) -> Any:
        a = tangrad.exp(x)
        x.add_(1)
        b = tangrad.exp(x)
        c, d = tangrad.exp(x), tangrad.zeros_like(x)
        d.add_(1)
        return a + b + c + d + tangrad.zeros_like(x)

    made, modified = CSEPass()(fx.symbolic_trace(program))
    assert modified
    assert eager(made) == eager(program)


def test_what_is_written_is_not_folded() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(tangrad.ones(3))
            self.b = nn.Parameter(tangrad.ones(3))

        def forward(self, x: Any) -> Any:
            total = self.a + self.b
            total.add_(x[0])
            return total + tangrad.exp(self.b)

    folded, module = split_const_subgraphs(Counts()), Counts()
    for x in (matrix(), matrix() + 1, matrix()):
        assert tangrad.equal(folded(x), module(x))


def test_parts_run_in_the_order_of_writes() -> None:
    def program(x: Any) -> Any:
        a = tangrad.exp(x)
        x.add_(1)
        b = tangrad.exp(x)
        return a + b

    module = fx.symbolic_trace(program)
    places = {n: "one" if n.name.startswith("exp") else "two" for n in module.graph.nodes}
    with pytest.raises(RuntimeError, match="cycle exists between partitions"):
        split_module(module, module, places.__getitem__)
    for node in module.graph.nodes:
        node.tag = places[node]
    with pytest.raises(RuntimeError, match="one writes what the other uses"):
        split_by_tags(module, ["one", "two"])
    order = iter(range(9))
    parts = split_module(module, module, lambda node: next(order))
    parts.graph.eliminate_dead_code()  # a part that only writes is none
    parts.recompile()
    assert eager(parts) == eager(program)


def test_graphs_of_ops_below_autograd_are_pickled() -> None:
    traced = make_fx(lambda x: (x.clamp(max=2) + 1).view(-1))(matrix())
    assert eager(pickle.loads(pickle.dumps(traced))) == eager(traced)


def test_a_pickled_graph_writes_into_its_buffers() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", tangrad.zeros(()))

        def forward(self, x: Any) -> Any:
            self.calls.add_(1)
            return x + self.calls

    module = export(Counts(), (matrix(),)).module()
    for again in (pickle.loads(pickle.dumps(module)), fx.symbolic_trace(module)):
        assert again.calls.item() == 0
        assert [again(tangrad.zeros(1, 1).expand(2, 3))[0, 0].item() for _ in "ab"] == [1.0, 2.0]
