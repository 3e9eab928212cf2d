"""gradcheck and gradgradcheck: what passes, and that wrong derivatives are found."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.autograd import Function, gradcheck, gradgradcheck
from tangrad.autograd.gradcheck import GradcheckError


class Wrong(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, x_t):
        return 3 * x_t * ctx.saved_tensors[0]


def inputs(dtype=tangrad.float64):
    return tangrad.randn(3, dtype=dtype, requires_grad=True), tangrad.randn(
        2, 3, dtype=dtype, requires_grad=True
    )


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("dtype", [tangrad.float64, tangrad.complex128])
def test_right_derivatives_pass(fast_mode, dtype):
    def f(x, y):
        return (x * y).sin(), (x * x.conj()).sum()

    assert gradcheck(
        f, inputs(dtype), check_forward_ad=True, check_batched_grad=True, fast_mode=fast_mode
    )
    assert gradgradcheck(f, inputs(dtype), check_fwd_over_rev=True, fast_mode=fast_mode)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_wrong_backward_is_found(fast_mode):
    x, _ = inputs()
    with pytest.raises(
        GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"
    ):
        gradcheck(Wrong.apply, x, fast_mode=fast_mode)
    assert not gradcheck(Wrong.apply, x, fast_mode=fast_mode, raise_exception=False)


def test_wrong_forward_mode_is_found():
    with pytest.raises(GradcheckError, match="forward mode"):
        gradcheck(Wrong.apply, inputs()[0], check_backward_ad=False, check_forward_ad=True)


def test_detached_part_is_found():
    with pytest.raises(GradcheckError):
        gradcheck(lambda x: x * x.detach(), inputs()[0])
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: (x * 2).detach(), inputs()[0])


def test_single_precision_warns():
    with pytest.warns(UserWarning, match="not of double precision|not a double precision"):
        gradcheck(lambda x: x * 2, tangrad.ones(2, requires_grad=True), eps=1e-2, atol=1e-2)


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match="at least one input tensor to require"):
        gradcheck(lambda x: x, tangrad.ones(2))
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(lambda x: x, tangrad.ones(1, dtype=tangrad.float64).expand(3).requires_grad_())


@pytest.mark.parametrize("fast_mode", [False, True])
def test_inputs_that_are_reached_otherwise_than_by_argument_are_moved_too(fast_mode):
    module = tangrad.nn.Linear(3, 2, dtype=tangrad.float64)
    both = (tangrad.randn(4, 3, dtype=tangrad.float64), *module.parameters())

    def f(x, *parameters):
        return module(x).tanh()

    assert gradcheck(f, both, fast_mode=fast_mode)
    assert gradgradcheck(f, both, fast_mode=fast_mode)
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda *unused: module(both[0]).detach(), both, fast_mode=fast_mode)


def test_an_input_given_twice_passes_and_keeps_its_bits():
    x, _ = inputs()
    before = x.detach().clone()
    assert gradcheck(tangrad.mul, (x, x))
    assert x.equal(before)


def test_random_vectors_of_the_fast_mode_leave_the_programs_random_numbers():
    def f(x):
        state = tangrad.get_rng_state()
        found = x * tangrad.rand(3, dtype=x.dtype)
        tangrad.set_rng_state(state)
        return found

    assert gradcheck(f, inputs()[0], fast_mode=True)
