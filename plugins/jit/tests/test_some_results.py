"""Backward from some results of a compiled function, and by some arguments: as eager's."""

from __future__ import annotations

import itertools

import pytest

import tangrad
from tangrad import nn

WEIGHT = nn.Parameter(tangrad.arange(3.0) + 1)


class SquareOf(tangrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


def apart(a, b):
    return (a * 3).sin(), b * WEIGHT, (WEIGHT * 2).cos()


def together(a, b):
    shared = a * WEIGHT + b
    return shared.exp().sum(), shared * 2, shared[1:], shared.tanh() * shared


def parts(a, b):
    first, *rest = (a * WEIGHT).split(1)
    low, high = tangrad.stack([b, a * b]).unbind(0)
    return first, rest[0] + rest[1], low * first, high.cumsum(0)


def by_a_function(a, b):
    return SquareOf.apply(a * WEIGHT), a * 2, b * 3


def infinite(a, b):
    zero = a - a
    return zero.sqrt(), (zero * 2 + b).sum(), zero.log() * WEIGHT


def taken(function, which, given, order):
    """Return the gradients of all that a call depends on, None where there is none."""
    a, b = (tangrad.full((3,), v, requires_grad=True) for v in given)
    WEIGHT.grad = None
    results = function(a, b)
    asked = [results[k] for k in which]
    sources = [a, b, WEIGHT]
    if order == 2:
        seeds = [tangrad.ones_like(t) for t in asked]
        first = tangrad.autograd.grad(asked, sources, seeds, create_graph=True, allow_unused=True)
        return [None if g is None else g.tolist() for g in first]
    sum(t.sum() for t in asked).backward()
    return [None if t.grad is None else t.grad.tolist() for t in sources]


@pytest.mark.parametrize("function", [apart, together, parts, by_a_function, infinite])
def test_gradients_of_some_results_are_eager_s(function):
    fast = tangrad.compile(function, fullgraph=True, options={"measure": False})
    count = len(function(tangrad.ones(3), tangrad.ones(3)))
    for size in range(1, count + 1):
        for which in itertools.combinations(range(count), size):
            for given in ((0.5, 2.0), (0.25, 1.5)):
                found = taken(fast, which, given, 1)
                wanted = taken(function, which, given, 1)
                assert [g is None for g in found] == [g is None for g in wanted]
                for got, want in zip(found, wanted, strict=True):
                    assert want is None or got == pytest.approx(want, rel=1e-6, nan_ok=True)
    assert len(fast.compiled.executables) == 1


@pytest.mark.parametrize("function", [apart, together, infinite])
def test_gradients_that_have_a_history_are_eager_s_of_some_results(function):
    fast = tangrad.compile(function, fullgraph=True, options={"measure": False})
    for which in ((0,), (1,), (2,), (0, 2)):
        for _ in range(2):
            found, wanted = (taken(run, which, (0.5, 2.0), 2) for run in (fast, function))
            assert [g is None for g in found] == [g is None for g in wanted]
            for got, want in zip(found, wanted, strict=True):
                assert want is None or got == pytest.approx(want, rel=1e-6, nan_ok=True)


def test_gradients_of_some_results_hold_for_all_sizes():
    fast = tangrad.compile(lambda a, b: (a.sqrt() * 2, (a * b).sum()), options={"measure": False})
    for size in (2, 3, 5, 7, 4, 9):
        for k in (0, 1):
            a = tangrad.zeros(size, requires_grad=True)
            b = tangrad.ones(size, requires_grad=True)
            fast(a, b)[k].sum().backward()
            assert a.grad.tolist() == [float("inf") if k == 0 else 1.0] * size
            assert (b.grad is None) is (k == 0)


MADE = {
    "a leaf": lambda a: a,
    "by ops": lambda a: (a * WEIGHT) * 2,
    "a view": lambda a: (a * WEIGHT).view(3)[:],
    "by a Function": lambda a: SquareOf.apply(a * WEIGHT),
}


@pytest.mark.parametrize("name", MADE)
def test_an_argument_that_no_result_depends_on_gets_no_gradient(name):
    def f(x, k):
        return tangrad.ones(3) * WEIGHT * k

    fast = tangrad.compile(f, fullgraph=True, options={"measure": False})
    for k in (2.5, 3.5, 4.5, 5.5):
        a = tangrad.ones(3, requires_grad=True)
        WEIGHT.grad = None
        fast(MADE[name](a), k).sum().backward()
        assert a.grad is None
        assert WEIGHT.grad.tolist() == [k] * 3


def test_a_function_that_made_an_argument_does_not_forbid_second_derivatives():
    fast = tangrad.compile(lambda x: (x.sin() * x).sum(), options={"measure": False})
    for _ in range(3):
        x = SquareOf.apply(tangrad.ones(3, requires_grad=True))
        (first,) = tangrad.autograd.grad(fast(x), x, create_graph=True)
        (second,) = tangrad.autograd.grad(first.sum(), x)
        assert second.tolist() == pytest.approx([2 * 0.5403023 - 0.8414710] * 3)
