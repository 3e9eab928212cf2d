"""A Python number beside a tensor of half precision."""

import pytest

CALLS = {
    "equal": lambda x: x == 0.1,
    "sum": lambda x: x + 1.1,
    "difference": lambda x: 1.1 - x,
    "product": lambda x: x * 1.1,
    "quotient": lambda x: x / 1.1,
    "power": lambda x: x.abs() ** 1.1,
    "remainder": lambda x: x % 0.3,
    "in place": lambda x: x.clone().sub_(0.3),
    "lerp": lambda x: x.lerp(x * 2, 0.3),
    "too large": lambda x: x < 1e6,
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CALLS)
def test_is_rounded_like_an_element_except_as_a_factor(agree, name, dtype):
    def program(t):
        x = t.tensor([0.1, -0.2, 0.7, 1.3, 12.5, 300.0]).to(getattr(t, dtype))
        return CALLS[name](x).float()

    agree(program, tolerance=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_root_mean_square_is_scaled_before_it_is_rounded(agree, dtype):
    def program(t):
        x = ((t.arange(120) * 37 % 101 - 50) / 16).reshape(4, 30).to(getattr(t, dtype))
        scale = ((t.arange(30) * 7 % 11) / 5).to(getattr(t, dtype)).requires_grad_()
        y = t.nn.functional.rms_norm(x.requires_grad_(), (30,), scale)
        y.float().sum().backward()
        return y.float(), x.grad.float(), scale.grad.float()

    agree(program, tolerance=0)


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_a_root_mean_square_keeps_the_dtype_of_the_input(agree):
    def program(t):
        x = ((t.arange(60) * 37 % 101 - 50) / 16).reshape(2, 30).bfloat16()
        y = t.nn.functional.rms_norm(x, (30,), t.arange(30) / 16)
        return y.dtype == t.bfloat16, y.float()

    agree(program, tolerance=0)
