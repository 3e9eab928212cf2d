"""Products and sums of NumPy's arrays that are rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tangrad.random.multiply_add import multiply_add


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    st.floats(-1e3, 1e3),
    st.floats(-1e3, 1e3),
)
def test_a_product_and_a_sum_in_float64_are_rounded_once(
    values: list[float], factor: float, addend: float
) -> None:
    made = multiply_add(np.array(values), factor, addend)
    for value, got in zip(values, made.tolist(), strict=True):
        if math.isinf(value * factor):
            assert math.isinf(got)
        else:
            assert got == float(Fraction(value) * Fraction(factor) + Fraction(addend))
