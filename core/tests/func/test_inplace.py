"""Writes inside transformed functions."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.func import grad, jvp, vmap


def overwrite_element(t, x):
    y = x * 2
    y[0] = x[1] ** 2
    return y


def chain_of_writes(t, x):
    y = x * 2
    y.mul_(x).sin_()
    return y.add_(x)


def write_to_view(t, x):
    y = x * 2
    v = y[1:]
    v.add_(x[0])
    v.sin_()
    return y


def read_view_after_write_to_base(t, x):
    y = x * 2
    v = y[1:]
    y.mul_(x)
    return v


def write_to_view_of_view(t, x):
    y = (x * 3).reshape(2, 2)
    y.t()[0].mul_(x[:2])
    return y


def copy_and_fill(t, x):
    y = x.sin() * 2
    y[1:3].copy_(x[:2] * x[2:])
    y[0].fill_(3.0)
    return y


def write_into_fresh(t, x):
    y = t.zeros_like(x)
    y[1:] = x[1:] ** 2
    y[0] = x[3]
    return y


def index_put(t, x):
    y = x * 1
    y[t.tensor([0, 2])] = x[t.tensor([1, 3])] ** 2
    return y


def masked_write(t, x):
    y = x * 1
    y.masked_fill_(t.tensor([True, False, False, True]), 0.5)
    return y * x


def change_shape_in_place(t, x):
    y = x * x
    y.unsqueeze_(0)
    return y.t_() * x


PROGRAMS = [
    overwrite_element,
    chain_of_writes,
    write_to_view,
    read_view_after_write_to_base,
    write_to_view_of_view,
    copy_and_fill,
    write_into_fresh,
    index_put,
    masked_write,
    change_shape_in_place,
]


@pytest.fixture(params=PROGRAMS, ids=lambda p: p.__name__)
def program(request):
    return request.param


def loss(t, program):
    return lambda x: (program(t, x) ** 2).sum()


def test_grad(same, program):
    same(lambda t, x: t.func.grad(loss(t, program))(x), (4,))


def test_jvp(same, program):
    same(lambda t, x, d: t.func.jvp(lambda x: program(t, x), (x,), (d,)), (4,), (4,))


def test_vmap(same, program):
    same(lambda t, x: t.func.vmap(lambda x: program(t, x))(x), (3, 4))


def test_hessian(same, program):
    same(lambda t, x: t.func.hessian(loss(t, program))(x), (4,))


def test_per_sample_gradients(same, program):
    same(lambda t, x: t.func.vmap(t.func.grad(loss(t, program)), 1)(x), (4, 3))


def test_jvp_of_vmap_of_grad(same, program):
    def transformed(t, x, d):
        return t.func.jvp(t.func.vmap(t.func.grad(loss(t, program))), (x,), (d,))

    same(transformed, (3, 4), (3, 4))


def test_write_to_captured_tensor_is_refused():
    captured = tangrad.zeros(3)
    with pytest.raises(RuntimeError, match="mutate a captured Tensor"):
        grad(lambda x: captured.add_(x).sum())(tangrad.ones(3))
    assert captured.tolist() == [0, 0, 0]


def test_write_of_batch_to_unbatched_tensor_is_refused():
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda x: tangrad.zeros(2).add_(x))(tangrad.ones(3, 2))


def test_write_to_the_differentiated_input_is_refused():
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        grad(lambda x: x.mul_(2).sum())(tangrad.ones(3))


def test_out_argument_is_refused():
    out = tangrad.zeros(3)
    for transformed in (
        lambda f: grad(f)(tangrad.ones(3)),
        lambda f: vmap(f)(tangrad.ones(2, 3)),
        lambda f: jvp(f, (tangrad.ones(3),), (tangrad.ones(3),)),
    ):
        with pytest.raises(RuntimeError, match="it is an out= function"):
            transformed(lambda x: tangrad.mul(x, 2, out=out).sum())


def test_written_value_that_backward_needs_is_an_error():
    def f(x):
        y = x.exp()
        z = y.sin()
        y.mul_(2)
        return z.sum()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grad(f)(tangrad.ones(3))


def test_shape_that_would_grow_is_an_error():
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        grad(lambda x: (x.sum() * 1).add_(x).sum())(tangrad.ones(3))


@pytest.mark.parametrize("transform", [tangrad.func.jacrev, tangrad.func.jacfwd])
def test_arguments_that_are_not_differentiated_may_be_written(transform):
    def overwrite(x, y):
        y.copy_(x)
        return y * 2

    x, y = tangrad.tensor([1.0, 2.0]), tangrad.zeros(2)
    assert transform(overwrite)(x, y).tolist() == [[2, 0], [0, 2]]
    assert y.tolist() == [1, 2]
