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
