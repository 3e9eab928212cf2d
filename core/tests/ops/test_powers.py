"""Powers of a number that PyTorch computes by products and roots."""

from __future__ import annotations

import pytest

import tangrad

EXPONENTS = (2, 3, -1, 2.0, 3.0, 0.5, -0.5, -1.0, 1, 4, -2, 1.5, True)


@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
def test_a_power_and_its_derivatives_are_those_of_pytorch(agree, exponent):
    def program(t):
        x = t.tensor([0.25, 1.0, 1.5], dtype=t.float64, requires_grad=True)
        y = x**exponent
        (slope,) = t.autograd.grad(y.sum(), x, create_graph=True)
        (bend,) = t.autograd.grad(slope.sum(), x)
        return y.tolist(), slope.tolist(), bend.tolist(), y.dtype == t.float64

    agree(program, tolerance=1e-9)


@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, -1, 3], ids=str)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "complex64"])
def test_a_power_of_any_dtype_is_that_of_pytorch(agree, dtype, exponent):
    def program(t):
        x = t.tensor([1, 1, 3], dtype=getattr(t, dtype))
        y = x**exponent
        return str(y.dtype).rpartition(".")[2], t.view_as_real(y).tolist() if (
            y.is_complex()
        ) else y.tolist()

    agree(program, tolerance=1e-3, message=False)


def test_squares_and_cubes_have_the_bits_of_products():
    x = tangrad.linspace(-3, 3, 1001)
    assert (x**2).equal(x * x)
    assert (x**3.0).equal(x * x * x)
    assert x.pow(2).equal(x * x)
    assert tangrad.pow(x, 2, out=tangrad.empty(0)).equal(x * x)
    assert x.clone().pow_(2).equal(x * x)


def test_a_power_is_recorded_under_its_name():
    x = tangrad.ones(1, requires_grad=True)
    assert (x**2).grad_fn.name() == (x**3).grad_fn.name() == "PowBackward0"


@pytest.mark.parametrize("exponent", [True, False])
def test_truth_values_have_the_powers_of_pytorch(agree, exponent):
    def program(t):
        x = t.tensor([True, False, True])[::2]
        x = t.cat([x, t.tensor([False])])
        y = x**exponent
        return y.tolist(), x.clone().pow_(exponent).tolist(), y.dtype == t.bool

    agree(program)


def test_truth_values_as_powers_of_each_other_are_refused(agree):
    agree(lambda t: t.tensor([True, False]) ** t.tensor([True, True]), message=False)
    agree(lambda t: True ** t.tensor([True, True]), message=False)


@pytest.mark.parametrize("exponent", [-1, -2, -0.5, -1 - 1j, -1j, 0, 2, 0.5], ids=str)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_powers_of_a_complex_zero(agree, dtype, exponent):
    def program(t):
        y = t.zeros(5, dtype=getattr(t, dtype)) ** exponent
        return [str(x) for x in t.view_as_real(y).flatten().tolist()]

    agree(program)
