"""Branches, loops and sizes as numbers in files that are written, run by what reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tangrad
from tangrad import Tensor, nn
from tangrad.export import Dim
from tangrad.utils import _pytree


class Called(nn.Module):
    """A function as a module, with a parameter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(tangrad.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def assert_same(function: Callable[..., Any], *xs: Tensor, **kwargs: Any) -> Any:
    module = Called(function)
    program = tangrad.onnx.export(module, (xs[0],), **kwargs)
    onnx.checker.check_model(program.model_proto, full_check=True)
    run = ReferenceEvaluator(program.model_proto)
    read = tangrad.onnx.load(program.model_proto)
    for x in xs:
        expected = [t.detach() for t in _pytree.tree_leaves(module(x))]
        found = run.run(None, {run.input_names[0]: x.numpy()})
        loaded = read(x)
        loaded = loaded if isinstance(loaded, (tuple, list)) else (loaded,)
        for a, b, c in zip(expected, found, loaded, strict=True):
            tangrad.testing.assert_close(tangrad.tensor(b), a)
            tangrad.testing.assert_close(c.detach(), a)
    return program.model_proto


X = tangrad.tensor([0.5, 1.5, 0.25])
CASES: dict[str, Callable[..., Any]] = {
    "a branch with a parameter": lambda m, x: tangrad.cond(
        x.sum() > 0, lambda x: x + m.weight, lambda x: (x * m.weight).exp(), (x,)
    ),
    "a function hands on what it is given": lambda m, x: (
        tangrad.cond(x.sum() > 0, lambda x: x, lambda x: x * 2, (x,)) + x
    ),
    "a condition with a dimension": lambda m, x: tangrad.cond(
        x.sum().reshape(1, 1) > 0, lambda x: (x, x + 1), lambda x: (x * 2, x), (x,)
    ),
    "nested": lambda m, x: tangrad.cond(
        x.sum() > 0,
        lambda x: tangrad.cond(
            x.max() > 1, lambda: x * tangrad.tensor([1.0, 2.0, 3.0]), lambda: x - 1, ()
        ),
        lambda x: x * 2,
        (x,),
    ),
    "a loop": lambda m, x: tangrad.while_loop(
        lambda i, a: (i < 5) & (a.sum() < 9),
        lambda i, a: (i + 1, a + x.abs() + m.weight),
        (tangrad.zeros((), dtype=tangrad.int64), x),
    ),
    "carried values change places": lambda m, x: tangrad.while_loop(
        lambda a, b: a.sum() < 10, lambda a, b: (b, a + b.abs() + 1), (x, x)
    ),
    "no round at all": lambda m, x: tangrad.while_loop(
        lambda a: a.sum() < -100, lambda a: (a + 1,), (x,)
    )[0],
    "a branch in a loop": lambda m, x: tangrad.while_loop(
        lambda a: a.sum() < 9,
        lambda a: (tangrad.cond(a.sum() > 3, lambda a: a + 2, lambda a: a + x.abs() + 1, (a,)),),
        (x,),
    )[0],
    "a loop in a branch": lambda m, x: tangrad.cond(
        x.sum() > 0,
        lambda x: tangrad.while_loop(lambda a: a.sum() < 9, lambda a: (a + x.abs(),), (x,))[0],
        lambda x: x,
        (x,),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("opset", [13, 18, 21])
def test_control_flow(name: str, opset: int) -> None:
    assert_same(CASES[name], X, -X, 2 * X, opset_version=opset)


def test_a_branch_keeps_sizes_that_vary() -> None:
    def function(m: Any, x: Tensor) -> Any:
        rows = x.shape[0]
        return tangrad.cond(
            x.sum() > 0,
            lambda: (x * rows).sum(0) / x.shape[0] + m.weight,
            lambda: x.reshape(rows * 3)[:3] - rows,
            (),
        )

    xs = [sign * tangrad.rand(rows, 3) for rows in (2, 1, 5) for sign in (1, -1)]
    proto = assert_same(function, *xs, dynamic_shapes=({0: Dim("rows")},))
    (branch,) = [node for node in proto.graph.node if node.op_type == "If"]
    assert len(branch.attribute) == 2


def test_sizes_are_numbers_of_pointwise_ops() -> None:
    def function(m: Any, x: Tensor) -> Any:
        rows = x.shape[0]
        return x * rows, x.sum() / rows, x + rows * 2, tangrad.arange(rows) * rows

    xs = [tangrad.rand(rows, 3) for rows in (2, 1, 5)]
    assert_same(function, *xs, dynamic_shapes=({0: Dim("rows")},))


def test_an_op_without_a_form_is_named_in_a_branch() -> None:
    def function(m: Any, x: Tensor) -> Any:
        return tangrad.cond(x.sum() > 0, lambda: tangrad.poisson(x.abs()), lambda: x, ())

    with pytest.raises(tangrad.onnx.UnsupportedOperatorError, match="poisson"):
        tangrad.onnx.export(Called(function), (X,))
