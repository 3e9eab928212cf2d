"""Backward through nodes that no gradient reaches: hooks hear of it, Functions get zeros."""

from __future__ import annotations

import pytest

import tangrad


class Nothing(tangrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return None


def test_hooks_are_told_none():
    heard = []
    x = tangrad.ones(2, requires_grad=True)
    x.register_hook(lambda grad: heard.append(("leaf", grad)))
    y = x * 2
    y.register_hook(lambda grad: heard.append(("middle", grad)))
    y.grad_fn.register_prehook(lambda grads: heard.append(("before", grads)))
    y.grad_fn.register_hook(lambda found, grads: heard.append(("behind", found, grads)))
    y.retain_grad()
    Nothing.apply(y).sum().backward()
    assert heard == [
        ("middle", None), ("before", (None,)), ("behind", (None, None), (None,)), ("leaf", None),
    ]  # fmt: skip
    assert x.grad is None
    assert y.grad is None


def test_the_result_that_no_gradient_reaches_hears_of_it():
    heard = []
    x = tangrad.ones(3, requires_grad=True)
    first, second, _ = x.unbind()
    first.register_hook(heard.append)
    second.backward()
    assert heard == [None]
    assert x.grad.tolist() == [0, 1, 0]


def test_a_function_gets_zeros():
    heard = []

    class Same(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            heard.append(grad.tolist())
            return grad

    x = tangrad.ones(2, requires_grad=True)
    Nothing.apply(Same.apply(x)).sum().backward()
    assert heard == [[0, 0]]
    assert x.grad.tolist() == [0, 0]


def test_a_hook_cannot_make_a_gradient_of_none():
    x = tangrad.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: tangrad.ones(2))
    with pytest.raises(RuntimeError, match="can't replace a None gradient"):
        Nothing.apply(y).sum().backward()


def test_a_derivative_that_an_input_is_not_in_is_none():
    x = tangrad.tensor(0.5, requires_grad=True)
    a = tangrad.tensor(2.0, requires_grad=True)
    (by_x,) = tangrad.autograd.grad(x * a, x, create_graph=True)
    assert tangrad.autograd.grad(by_x, x, retain_graph=True, allow_unused=True) == (None,)
    with pytest.raises(RuntimeError, match="to not have been used"):
        tangrad.autograd.grad(by_x, x, retain_graph=True)
    (zero,) = tangrad.autograd.grad(by_x, x, retain_graph=True, materialize_grads=True)
    assert zero.item() == 0
    assert tangrad.autograd.grad(by_x, a)[0].item() == 1
    # Of several results, those that no gradient reaches add no terms, and no NaN.
    y = tangrad.tensor([2.0], requires_grad=True)
    infinite = tangrad.tensor([float("inf")], requires_grad=True)
    by_y, _ = tangrad.autograd.grad(y * infinite, (y, infinite), create_graph=True)
    found = tangrad.autograd.grad(by_y, (y, infinite), allow_unused=True)
    assert found[0] is None
    assert found[1].tolist() == [1]


def test_what_was_detached_in_place_is_not_given_to_backward():
    x = tangrad.tensor(1.0, requires_grad=True)
    middle = x.clone()
    result = middle.sin()
    kept = middle * x
    middle.detach_()
    for made in (result, kept):
        with pytest.raises(RuntimeError, match="has been detached in-place"):
            made.backward()
    fresh = middle.sin() * x
    fresh.backward()
    assert x.grad.item() == pytest.approx(0.841471, abs=1e-6)
