"""Which of two zeros of unlike sign a result is."""

from __future__ import annotations

from typing import Any

import pytest

FLOATS = ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 3, 16, 37])
def test_a_rectifier_leaves_a_zero_its_sign(agree, dtype, size) -> None:
    def program(t: Any) -> Any:
        x = t.full((size,), -0.0, dtype=getattr(t, dtype))
        steps = t.full((size, 2), -0.0, dtype=getattr(t, dtype))[:, 0]
        return [t.signbit(y).tolist() for y in (x.relu(), x.clone().relu_(), steps.relu())]

    agree(program)


# PyTorch gives the other one in bfloat16 alone.
@pytest.mark.usefixtures("vectorised_torch")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [1, 3, 16, 37])
@pytest.mark.parametrize("name", ["fmax", "fmin"])
def test_of_two_zeros_the_first_is_taken(agree, name, dtype, size) -> None:
    def program(t: Any) -> Any:
        plus, minus = (t.full((size,), z, dtype=getattr(t, dtype)) for z in (0.0, -0.0))
        op = getattr(t, name)
        return t.signbit(op(plus, minus)).tolist(), t.signbit(op(minus, plus)).tolist()

    agree(program)
