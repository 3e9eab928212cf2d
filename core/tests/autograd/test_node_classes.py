"""Nodes of the graph as programs see them: names of their classes, and what belongs to them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import tangrad


def told(node: Any) -> str:
    """Write a graph by the names of its nodes' classes."""
    if node is None:
        return "None"
    return f"{type(node).__name__}({', '.join(told(n) for n, _ in node.next_functions)})"


def agree(program: Any) -> None:
    assert program(tangrad) == program(torch)


def test_a_class_of_nodes_is_called_as_the_op() -> None:
    def program(lib: Any) -> list[str]:
        x = lib.ones(3, 3, requires_grad=True)
        ends = [x + 1, x * x, (x * 2).exp().sum(), x / 2, -x, x.relu(), x.clone().expand(2, 3, 3)]
        return [told(end.grad_fn) for end in ends]

    agree(program)


def test_what_is_named_is_still_a_node_and_is_freed() -> None:
    x = tangrad.ones(3, requires_grad=True)
    y = (x * 2).exp()
    inner = y.grad_fn.next_functions[0][0]
    assert type(inner).__name__ == "MulBackward0"
    assert isinstance(inner, type(tangrad.ones(1, requires_grad=True).view(1).grad_fn).__base__)
    assert type((x * 3).grad_fn) is type(inner)
    y.sum().backward()
    assert x.grad.allclose(2 * (2 * x).exp())
    gone = [weakref.ref(y.grad_fn), weakref.ref(inner)]
    del y, inner
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    for _ in range(200):  # memory of nodes is used again
        (x * 2).exp().grad_fn.next_functions


@pytest.mark.filterwarnings("ignore:.*reference cycle|.*cycle of references")
def test_a_gradient_with_a_history_is_a_copy_of_what_was_computed() -> None:
    def program(lib: Any) -> list[str]:
        x = lib.ones(3, 3, requires_grad=True)
        (x + x).sum().backward(lib.ones((), requires_grad=True), create_graph=True)
        return [told(x.grad.grad_fn)]

    agree(program)


def test_a_derivative_that_is_not_differentiable_ends_in_one_node() -> None:
    def program(lib: Any) -> str:
        class Twice(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, factor: Any, y: Any) -> Any:
                return factor * (x + y)

            @staticmethod
            @lib.autograd.function.once_differentiable
            def backward(ctx: Any, grad: Any) -> Any:
                return 2 * grad, None, 2 * grad

        x, y = (lib.ones(2, requires_grad=True) for _ in range(2))
        end = Twice.apply(x, 2, y).sum()
        found = lib.autograd.grad(end, [x], lib.ones((), requires_grad=True), create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            found[0].sum().backward()
        return told(found[0].grad_fn)

    agree(program)


def test_nodes_of_all_kinds_are_instances_of_one_virtual_class() -> None:
    for lib in (tangrad, torch):
        node = lib.autograd.graph.Node
        x = lib.ones(2, requires_grad=True)
        y = x.exp()
        leaf = y.grad_fn.next_functions[0][0]
        assert isinstance(y.grad_fn, node)
        assert isinstance(leaf, node)
        assert issubclass(type(y.grad_fn), node)
        assert node not in type(y.grad_fn).mro()
        assert not isinstance(x, node)
        assert not isinstance(None, node)
        with pytest.raises(RuntimeError, match="Trying to create a SavedTensor"):
            lib.autograd.SavedTensor()


def test_a_tensor_set_to_other_memory_is_no_longer_what_was_computed_from() -> None:
    for lib in (tangrad, torch):
        x = lib.ones(2, requires_grad=True)
        edge = lib.autograd.graph.get_gradient_edge(x)
        y = (x * 3).sum()
        with lib.no_grad():
            x.set_(lib.zeros(2))
        with pytest.raises(RuntimeError, match="not have been used in the graph"):
            lib.autograd.grad(y, x, retain_graph=True)
        assert lib.autograd.grad(y, edge)[0].tolist() == [3, 3]


def test_zeros_in_place_of_missing_gradients_need_unused_inputs_to_be_allowed() -> None:
    for lib in (tangrad, torch):
        x = lib.ones(2, requires_grad=True)
        with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
            lib.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True)


def test_the_classes_of_functions_and_of_delayed_errors_are_nodes() -> None:
    for lib in (tangrad, torch):
        node, function = lib.autograd.graph.Node, lib.autograd.function
        assert issubclass(node, node)
        assert issubclass(function.BackwardCFunction, node)
        seen: list[bool] = []

        class Same(function.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                seen.append(isinstance(ctx, node))  # noqa: B023
                return x.view_as(x)

        view = Same.apply(lib.ones(1, 2))
        assert seen == [True]
        with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
            view += lib.ones(1, requires_grad=True)


def test_data_of_one_layout_are_not_replaced_by_those_of_another() -> None:
    for lib in (tangrad, torch):
        x = lib.ones(1, 2)
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            x.data = lib.ones(1, 2).to_sparse()


def test_quantized_dtypes_do_not_tell_whether_they_are_signed() -> None:
    for lib in (tangrad, torch):
        with pytest.raises(RuntimeError, match="not supported for quantized"):
            lib.qint8.is_signed
        assert lib.int8.is_signed
        assert not lib.uint8.is_signed
