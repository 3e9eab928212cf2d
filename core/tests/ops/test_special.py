"""What samples cannot say of the special functions and of sampled calculus."""

from __future__ import annotations

import pytest

import tangrad


@pytest.mark.parametrize("name", ["igamma", "igammac", "special.zeta"])
def test_a_derivative_without_closed_form_is_refused_in_backward(name):
    function = tangrad.special.zeta if name.startswith("special") else getattr(tangrad, name)
    a = tangrad.tensor([1.5, 2.0], requires_grad=True)
    x = tangrad.tensor([1.5, 2.5], requires_grad=True)
    both = function(a, x)  # may be called, as long as nobody asks
    with pytest.raises(NotImplementedError, match="'self' is not implemented: it has no closed"):
        both.sum().backward()
    function(a.detach(), x).sum().backward()
    assert (x.grad != 0).all()
    with pytest.raises(RuntimeError, match="not implemented"):
        tangrad.func.jvp(lambda a: function(a, x.detach()), (a.detach(),), (a.detach(),))


def test_polygamma_takes_the_order_first_and_as_a_method_last():
    x = tangrad.tensor([1.0, 2.0])
    expected = tangrad.special.zeta(3.0, x) * -2
    for value in (
        tangrad.polygamma(2, x),
        tangrad.polygamma(n=2, input=x),
        tangrad.special.polygamma(2, x),
        x.polygamma(2),
        x.clone().polygamma_(2),
    ):
        assert value.allclose(expected)
    with pytest.raises(TypeError, match="polygamma"):
        tangrad.polygamma(1.5, x)


def test_nothing_of_torch_special_is_missing():
    torch = pytest.importorskip("torch")
    others = {"Tensor", "torch", "common_args", "multi_dim_common"}
    names = {name for name in dir(torch.special) if not name.startswith("_")} - others
    assert names <= set(dir(tangrad.special))


def test_the_gradient_refuses_coordinates_of_another_length():
    with pytest.raises(RuntimeError, match=r"shape \[4\], got \[3\]"):
        tangrad.gradient(tangrad.ones(4), spacing=(tangrad.ones(3),))


def test_halves_have_neighbours():
    for dtype, step in ((tangrad.float16, 2.0**-10), (tangrad.bfloat16, 2.0**-7)):
        x = tangrad.tensor([1.0, -1.0], dtype=dtype)
        towards = tangrad.tensor([9.0, -9.0], dtype=dtype)
        assert tangrad.nextafter(x, towards).tolist() == [1 + step, -1 - step]
        assert tangrad.nextafter(x, x * 0).tolist() == [1 - step / 2, -1 + step / 2]


def test_a_power_in_place_needs_a_wide_base():
    with pytest.raises(RuntimeError, match="float64"):
        tangrad.ones(2).float_power_(2)
    assert tangrad.full((2,), 3.0, dtype=tangrad.float64).float_power_(2).tolist() == [9, 9]
