"""Derivatives that a definition states: exact, for tangents as for gradients, at edges too."""

from __future__ import annotations

import pytest

import tangrad


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_tangent_is_as_exact_as_the_partial_that_is_stated(device):
    x = tangrad.tensor([1e-9, 1e-5], dtype=tangrad.float64, device=device, requires_grad=True)
    (gradient,) = tangrad.autograd.grad(tangrad.nn.functional.tanhshrink(x).sum(), x)
    one = tangrad.ones_like(x)
    _, tangent = tangrad.func.jvp(tangrad.nn.functional.tanhshrink, (x.detach(),), (one,))
    # 1 - (1 - tanh(x)^2), which follows from x - tanh(x), has lost all digits here.
    assert tangent.tolist() == gradient.tolist() == pytest.approx([1e-18, 1e-10], rel=1e-9, abs=0)


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
@pytest.mark.parametrize("pair", [(float("inf"), 1.0), (-float("inf"), 1.0), (1e300, 1e300)])
def test_the_greater_of_two_powers_takes_the_gradient(agree, name, pair):
    def program(F):
        both = F.tensor([pair, pair[::-1]], dtype=F.float64, requires_grad=True)
        getattr(F, name)(*both).sum().backward()
        return both.grad

    agree(program)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_complex_nan_stays_in_sums_of_exponentials(device):
    nan, inf = float("nan"), float("inf")
    values = [complex(nan, 1), complex(-inf, 1), 1 + 1j, complex(-inf, 0)]
    x = tangrad.tensor(values, device=device)
    assert tangrad.logcumsumexp(x, 0).real.isnan().all()
    assert tangrad.logaddexp(x[:1], x[1:]).real.isnan().all()
    assert tangrad.logaddexp(x[1:], x[:1]).real.isnan().all()
    assert tangrad.logaddexp(x[2:], x[1:2]).tolist() == [1 + 1j, complex(-inf, 0)]


def test_a_step_of_nan_is_zero(agree):
    agree(lambda F: F.heaviside(F.tensor([float("nan"), -1.0, 0.0, 2.0]), F.tensor(5.0)))


@pytest.mark.parametrize("zeros", [0, 1])
def test_second_derivatives_of_scattered_products_see_zeros(agree, zeros):
    def program(F):
        index = F.tensor([[0, 1, 0], [0, 0, 1]])
        source = F.tensor([[3.0, 2.0, 4.0], [1.5, 5.0, 6.0]], dtype=F.float64)
        source[:, 0] *= 1 - zeros * F.tensor([1.0, 0.0], dtype=F.float64)
        x = F.full((2, 2), 2.0, dtype=F.float64)
        leaves = [t.requires_grad_() for t in (x, source)]
        product = x.scatter_reduce(1, index, source, "prod")
        first = F.autograd.grad((product**2).sum() + product.sum(), leaves, create_graph=True)
        return first, F.autograd.grad(sum((g * g).sum() + g.sum() for g in first), leaves)

    agree(program)
