"""Sizes of windows are integers: a bool, a tensor of several and a word are none."""

from __future__ import annotations

import pytest

_CALLS = {
    "avg_pool1d": lambda F, x, size: F.nn.functional.avg_pool1d(x[0], size),
    "max_pool2d": lambda F, x, size: F.nn.functional.max_pool2d(x, size),
    "conv2d": lambda F, x, size: F.nn.functional.conv2d(x, x, stride=size),
    "adaptive_avg_pool2d": lambda F, x, size: F.nn.functional.adaptive_avg_pool2d(x, size),
    "adaptive_max_pool2d": lambda F, x, size: F.nn.functional.adaptive_max_pool2d(x, size),
    "adaptive_max_pool3d": lambda F, x, size: F.nn.functional.adaptive_max_pool3d(x[0], size),
}


@pytest.mark.parametrize("size", [True, "ones", "2"])
@pytest.mark.parametrize("name", _CALLS)
def test_what_is_no_size_is_a_type_error(agree, name, size):
    def program(F):
        return _CALLS[name](F, F.ones(1, 1, 4, 4), F.ones(2, 3) if size == "ones" else size)

    agree(program, message=False)


@pytest.mark.parametrize("name", ["full", "full_like", "new_full"])
def test_one_value_fills_a_tensor(agree, name):
    def program(F, value):
        value = F.tensor(value)
        if name == "new_full":
            return F.ones(2).new_full((2,), value)
        return F.full((2,), value) if name == "full" else F.full_like(F.ones(2), value)

    agree(lambda F: program(F, 3.0))
    agree(lambda F: program(F, [3.0]), message=False)
    agree(lambda F: program(F, [3.0, 4.0]), message=False)
