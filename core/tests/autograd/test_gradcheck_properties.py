"""What gradcheck asks of a derivative beside the values of its Jacobian."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.autograd import Function, gradcheck, gradgradcheck
from tangrad.autograd.gradcheck import GradcheckError

both_ways = pytest.mark.parametrize("fast_mode", [False, True])


def double(*size, dtype=tangrad.float64):
    return tangrad.ones(size, dtype=dtype, requires_grad=True)


def scaled(factor, backward, forward=None):
    """Return a function that multiplies by a factor, with other derivatives if so wished."""

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * backward

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * (factor if forward is None else forward)

    return Scaled.apply


@both_ways
def test_zeros_must_give_zeros(fast_mode):
    def offset(x):
        y = x.clone()
        y.register_hook(lambda grad: grad + 1e-2)
        return y

    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(offset, (double(1),), atol=1e-1, fast_mode=fast_mode)
    assert not gradcheck(
        offset, (double(1),), atol=1e-1, fast_mode=fast_mode, raise_exception=False
    )


@both_ways
def test_a_missing_gradient_must_count_as_zeros(fast_mode):
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            second = tangrad.ones(1, dtype=tangrad.float64) if second is None else second
            first = tangrad.zeros(1, dtype=tangrad.float64) if first is None else first
            return first * 2 + second * 3

    x = double(1)
    with (
        pytest.warns(UserWarning, match="undefined gradient support"),
        pytest.raises(GradcheckError, match="Expected all input grads to be undefined or zero"),
    ):
        gradcheck(lambda x: Two.apply(x)[1:], (x,), fast_mode=fast_mode)
    gradcheck(lambda x: Two.apply(x)[1:], (x,), fast_mode=fast_mode, check_undefined_grad=False)


def test_a_missing_gradient_must_not_raise():
    class Careless(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            if grad is None:
                raise RuntimeError("no gradient came")
            return grad * 2

    with (
        pytest.warns(UserWarning, match="undefined gradient support"),
        pytest.raises(GradcheckError, match="handle undefined output grads.*no gradient came"),
    ):
        gradcheck(Careless.apply, (double(2),))


@both_ways
@pytest.mark.parametrize(
    ("other", "what"),
    [(lambda x: tangrad.cat([x, x]), "shape"), (lambda x: x.to(tangrad.float32), "dtype")],
)
def test_an_outputs_shape_and_dtype_must_not_depend_on_values(other, what, fast_mode):
    def unsteady(x):
        return x if (x == 1).all() else other(x)

    with pytest.raises(AssertionError, match=f"the same {what} when inputs are perturbed"):
        gradcheck(unsteady, (double(1),), fast_mode=fast_mode)


@both_ways
def test_the_mode_that_is_wrong_is_told_backward_first(fast_mode):
    def check(function, match, **modes):
        with pytest.raises(GradcheckError, match=match):
            gradcheck(function, (double(2),), fast_mode=fast_mode, **modes)

    check(scaled(2, 3), "^Jacobian mismatch for output 0 with respect to input 0")
    check(scaled(2, 2, 3), "^Jacobian computed with forward mode mismatch", check_forward_ad=True)
    check(scaled(2, 3, 3), "^Jacobian mismatch", check_forward_ad=True)
    only_forward = {"check_backward_ad": False, "check_forward_ad": True}
    assert gradcheck(scaled(2, 3), (double(2),), fast_mode=fast_mode, **only_forward)


@both_ways
@pytest.mark.parametrize(
    ("part", "wrong"),
    [("imaginary", lambda g: g.real + 2j * g.imag), ("real", lambda g: 2 * g.real + 1j * g.imag)],
)
def test_the_part_of_a_complex_output_that_is_wrong_is_told(part, wrong, fast_mode):
    def same(x):
        y = x * 1
        y.register_hook(wrong)
        return y

    match = f"considering the {part} part of complex outputs only, Jacobian mismatch"
    with pytest.raises(GradcheckError, match=match):
        gradcheck(same, (double(2, dtype=tangrad.complex128),), fast_mode=fast_mode)


def test_inputs_of_forward_mode_record_nothing():
    class Watched(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(x.requires_grad)
            return x * 2

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * 2

    seen: list[bool] = []
    modes = {"check_backward_ad": False, "check_forward_ad": True}
    assert gradcheck(Watched.apply, (double(2),), check_batched_forward_grad=True, **modes)
    assert seen.count(False) >= 3  # the values themselves are computed from x
    assert gradgradcheck(lambda x: (x**3).sin(), (double(2),), check_fwd_over_rev=True)


def test_a_batch_of_gradients_that_differs_from_a_loop_is_told():
    class Uneven(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

        @staticmethod
        def jvp(ctx, tangent):
            if tangent[0].item() > 1:
                return tangent
            return tangent * 2

    modes = {"check_forward_ad": True, "check_batched_forward_grad": True}
    with pytest.raises(GradcheckError, match="failed while testing batched gradient computation"):
        gradcheck(Uneven.apply, (double(2),), **modes)


def test_no_tangent_must_do_what_a_tangent_of_zeros_does():
    class Uneven(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(False)
            return x + y

        @staticmethod
        def jvp(ctx, x, y):
            return x + 1 if y is None else y + 1 if x is None else x + y

    points = double(2), double(2)
    modes = {"check_backward_ad": False, "check_forward_ad": True}
    with pytest.raises(GradcheckError, match="has an undefined tangent value"):
        gradcheck(Uneven.apply, points, **modes)
    assert not gradcheck(Uneven.apply, points, raise_exception=False, **modes)
