"""The values of the ops; that all else follows is what the conformance kit proves."""

import math

import pytest

import tangrad


def test_snake_is_a_function_and_a_method() -> None:
    x = tangrad.tensor([-1.0, 0.0, 2.0], dtype=tangrad.float64)
    expected = [v + math.sin(3 * v) ** 2 / 3 for v in x.tolist()]
    assert tangrad.snake(x, a=3.0).tolist() == pytest.approx(expected)
    assert tangrad.equal(x.snake(3.0), tangrad.snake(x, 3.0))


def test_snake_has_derivatives_of_every_order() -> None:
    x = tangrad.tensor(0.7, dtype=tangrad.float64, requires_grad=True)
    (slope,) = tangrad.autograd.grad(tangrad.snake(x, a=2.0), x, create_graph=True)
    (bend,) = tangrad.autograd.grad(slope, x)
    assert slope.item() == pytest.approx(1 + math.sin(4 * 0.7))
    assert bend.item() == pytest.approx(4 * math.cos(4 * 0.7))


def test_snake_refuses_the_frequency_zero() -> None:
    with pytest.raises(ValueError, match="frequency a must not be 0"):
        tangrad.snake(tangrad.ones(2), a=0)


def test_rms_reduces_the_dimensions_it_is_given() -> None:
    x = tangrad.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert tangrad.rms(x).item() == pytest.approx(2.5)
    assert tangrad.rms(x, dim=1, keepdim=True).shape == (2, 1)


def test_the_gradient_of_rms_at_zero_is_zero() -> None:
    x = tangrad.zeros(2, 3, requires_grad=True)
    x.rms(dim=1).sum().backward()
    assert tangrad.equal(x.grad, tangrad.zeros(2, 3))


def test_both_ops_are_batched_by_vmap() -> None:
    x = tangrad.arange(6.0).reshape(2, 3)
    assert tangrad.allclose(tangrad.vmap(tangrad.rms)(x), tangrad.rms(x, dim=1))
    assert tangrad.equal(tangrad.vmap(tangrad.snake)(x), tangrad.snake(x))
