"""Functions with a jvp written by hand: what is written in place, what is a view, what is saved."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.autograd import Function, forward_ad
from tangrad.func import vmap

both_forms = pytest.mark.parametrize("apart", [False, True], ids=["ctx", "setup_context"])


def function(apart, forward, jvp=None, **rules):
    """Return a Function whose forward is given as (ctx, x), in one of its two forms."""
    rules = {"backward": staticmethod(lambda ctx, grad: grad * 2), **rules}
    if jvp is not None:
        rules["jvp"] = staticmethod(jvp)
    if not apart:
        return type("Made", (Function,), {"forward": staticmethod(forward), **rules})

    class Nothing:
        def mark_dirty(self, x):
            pass

        save_for_backward = save_for_forward = mark_dirty

    rules["forward"] = staticmethod(lambda x: forward(Nothing(), x))
    rules["setup_context"] = staticmethod(lambda ctx, inputs, output: ctx.mark_dirty(*inputs))
    return type("Made", (Function,), rules)


def doubled_in_place(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(2)


@both_forms
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_dual_that_was_written_is_returned_itself(apart, requires_grad):
    doubled = function(apart, doubled_in_place, lambda ctx, t: t.mul_(2))
    x = tangrad.ones(2, requires_grad=requires_grad).clone()
    with forward_ad.dual_level():
        tangent = tangrad.ones(2)
        dual = forward_ad.make_dual(x, tangent)
        assert doubled.apply(dual) is dual
        found = forward_ad.unpack_dual(dual)
        assert found.tangent is tangent
        assert tangent.tolist() == found.primal.tolist() == [2, 2]


@pytest.mark.parametrize("jvp", [lambda ctx, t: t * 2, lambda ctx, t: t], ids=["new", "same"])
def test_the_tangent_of_what_was_written_must_be_written(jvp):
    doubled = function(False, doubled_in_place, jvp)
    with (
        forward_ad.dual_level(),
        pytest.raises(RuntimeError, match="jvp function must modify the corresponding gradient"),
    ):
        doubled.apply(forward_ad.make_dual(tangrad.ones(2), tangrad.ones(2)))


@pytest.mark.parametrize(
    ("jvp", "told"),
    [
        (lambda ctx, t: t[:1].clone(), r"not returning a view \("),
        (lambda ctx, t: t.clone()[:1], "not returning a view of the given tangent"),
    ],
)
def test_a_view_must_have_a_view_as_its_tangent(jvp, told):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tangrad.ones(2), tangrad.ones(2))
        first = function(False, lambda ctx, x: x[:1], lambda ctx, t: t[:1])
        assert forward_ad.unpack_dual(first.apply(dual)).tangent.tolist() == [1]
        with pytest.raises(RuntimeError, match=told):
            function(False, lambda ctx, x: x[:1], jvp).apply(dual)


def test_a_result_without_a_derivative_has_no_tangent():
    def forward(ctx, x):
        order = x.argsort()
        ctx.mark_non_differentiable(order)
        return x * 2, order

    right = function(False, forward, lambda ctx, t: (t * 2, None))
    wrong = function(False, forward, lambda ctx, t: (t * 2, t))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tangrad.ones(2), tangrad.ones(2))
        assert forward_ad.unpack_dual(right.apply(dual)[1]).tangent is None
        with pytest.raises(RuntimeError, match="You should return None at that position"):
            wrong.apply(dual)


def test_an_integer_argument_has_no_tangent_of_zeros():
    def jvp(ctx, t, integer):
        seen.append(integer)
        return t

    seen = []
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tangrad.ones(2), tangrad.ones(2))
        times = function(False, lambda ctx, x, n: x * 1, jvp)
        times.apply(dual, tangrad.tensor([1, 2]))
    assert seen == [None]


def test_jvp_sees_what_was_saved_for_it_alone():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x * 3)
        return x * 2

    def jvp(ctx, t):
        (saved,) = ctx.saved_tensors
        return t * saved

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tangrad.ones(2, requires_grad=True), tangrad.ones(2))
        result = function(False, forward, jvp).apply(dual)
        assert forward_ad.unpack_dual(result).tangent.tolist() == [3, 3]


def test_a_dual_result_goes_backward():
    x = tangrad.ones(2, requires_grad=True)
    doubled = function(False, lambda ctx, x: x * 2, lambda ctx, t: t * 2)
    with forward_ad.dual_level():
        doubled.apply(forward_ad.make_dual(x, tangrad.ones(2))).sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (lambda x: x * 2, "to have two returns"),
        (lambda x: (x, x, 0), "to have two returns"),
        (lambda x: (x, (0,)), "returned an incompatible"),
        (lambda x: ([x], (0,)), "returned an incompatible"),
    ],
)
def test_a_vmap_rule_returns_results_and_their_dimensions(returned, told):
    made = function(
        True, lambda ctx, x: x * 2, vmap=staticmethod(lambda info, dims, x: returned(x))
    )
    with pytest.raises(RuntimeError, match=told):
        vmap(made.apply)(tangrad.ones(3))


def test_a_vmap_rule_may_take_and_return_lists():
    def rule(info, dims, x, pair):
        assert dims == (0, [0, None])
        return (x * 2, [pair[0], pair[1]]), (0, [0, None])

    made = function(True, lambda ctx, x: x, vmap=staticmethod(rule))
    pair = [tangrad.arange(3.0), tangrad.ones(2)]
    found = vmap(lambda x, y: made.apply(x, [y, pair[1]])[1])(tangrad.ones(3), pair[0])
    assert found[0].tolist() == [0, 1, 2]
    assert found[1].tolist() == [[1, 1]] * 3
