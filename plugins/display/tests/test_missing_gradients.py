"""`why_no_grad` names the reason and the line of a gradient that is None or zero."""

from __future__ import annotations

import sys

import pytest

import tangrad
from tangrad import nn, why_no_grad


def here() -> str:
    """Return the place of the caller's line, as reasons give it."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@pytest.fixture
def w():
    return tangrad.ones(3, requires_grad=True)


def only(why):
    (reason,) = why.reasons
    return reason.kind, reason.where


def test_without_watching_it_tells_what_is_wrong_with_the_tensor_itself(w):
    assert only(why_no_grad(tangrad.ones(2, dtype=tangrad.int64))) == ("integer", "")
    assert only(why_no_grad(tangrad.ones(2))) == ("not requested", "")
    assert only(why_no_grad(w * 2)) == ("not a leaf", "")
    assert only(why_no_grad(w)) == ("no backward", "")
    (w * 0).sum().backward()
    assert only(why_no_grad(w)) == ("zero derivative", "")
    (w * 5).sum().backward()
    assert str(why_no_grad(w)) == "it has a gradient, up to 5"


def test_detached_at_a_line(w):
    other = tangrad.ones(3, requires_grad=True)
    with why_no_grad(w) as why:
        y = w * 2
        y, place = y.detach(), here()
        (y * other).sum().backward()
    assert only(why) == ("detached", place)


def test_gradients_are_off_in_a_part_of_the_step(w):
    other = tangrad.ones(3, requires_grad=True)
    with why_no_grad(w) as why:
        with tangrad.no_grad():
            y, place = w.exp(), here()
        (y * other).sum().backward()
    assert only(why) == ("gradients off", place)


def test_cast_to_integers(w):
    other = tangrad.ones(3, requires_grad=True)
    with why_no_grad(w) as why:
        y, place = w.long(), here()
        (y * other).sum().backward()
    assert only(why) == ("integer cast", place)


def test_op_whose_result_has_no_derivative(w):
    other = tangrad.ones(3, requires_grad=True)
    with why_no_grad(w) as why:
        y, place = w.argmax(), here()
        (y * other).sum().backward()
    assert only(why) == ("no derivative", place)


@pytest.mark.parametrize("leave", [lambda y: y.data, lambda y: tangrad.from_numpy(y.data.numpy())])
def test_memory_without_history(w, leave):
    other = tangrad.ones(3, requires_grad=True)
    with why_no_grad(w) as why:
        y = w * 2
        z = leave(y)
        product, place = z * other, here()
        product.sum().backward()
    assert only(why) == ("history lost", place)


def test_what_was_computed_and_not_used(w):
    other = tangrad.ones(3, requires_grad=True)
    with why_no_grad(w) as why:
        place, _ = here(), w.exp()
        other.sum().backward()
    assert only(why) == ("not on the path", place)
    with why_no_grad(w) as why:
        other.sum().backward()
    assert "nothing in the step" in str(why)


def test_backward_was_not_called(w):
    with why_no_grad(w) as why:
        (w * 2).sum()
    assert only(why)[0] == "no backward"


def test_dead_activations_are_named_with_their_range():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with tangrad.no_grad():
        model[0].bias.fill_(-150)
    with why_no_grad(model[0].weight) as why:
        model(tangrad.ones(4, 2)).sum().backward()
    (reason,) = why.reasons
    assert reason.kind == "dead activations"
    assert "relu: its 12 inputs lie between -1" in reason.told


def test_a_metric_that_is_detached_on_purpose_is_not_blamed(w):
    with why_no_grad(w) as why:
        y = w * 2
        y.detach().mean()
        (y * 0).sum().backward()
    assert [r.kind for r in why.reasons] == ["zero derivative"]
    assert "mul" in str(why)


def test_errors_of_the_step_pass_and_nothing_stays_behind(w):
    with pytest.raises(ZeroDivisionError), why_no_grad(w):
        raise ZeroDivisionError
    (w * 2).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="why_no_grad: expected a Tensor, but got int"):
        why_no_grad(3)


def test_a_tensor_that_backward_passed_without_a_gradient_is_told_of():
    class Nothing(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return None

    x = tangrad.ones(2, requires_grad=True)
    with tangrad.why_no_grad(x) as why:
        Nothing.apply(x * 2).sum().backward()
    assert x.grad is None
    assert str(why)
