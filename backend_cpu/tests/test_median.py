"""Medians of all elements, against sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.reduction.statistics import median_all, nanmedian_all
from tangrad_cpu import _kernels

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(FLOATS + INTEGERS),
    st.sampled_from([1, 2, 3, 31, 32, 33, 100, 1000, 5001]),
    st.sampled_from(["even", "few", "equal", "sorted", "steep", "special"]),
    st.booleans(),
)
def test_median_is_the_middle_of_the_sorted(
    seed: int, dtype: str, n: int, kind: str, strided: bool
) -> None:
    rng = np.random.default_rng(seed)
    x: Any = rng.standard_normal(n) * 50
    if kind == "few":
        x = x.round() // 20
    elif kind == "equal":
        x = np.full(n, x[0])
    elif kind == "sorted":
        x = np.sort(x)[:: rng.choice([-1, 1])].copy()
    elif kind == "steep":
        x = np.exp(x / 4)
    elif kind == "special":
        x = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -2.0], n)
    if dtype in INTEGERS:
        bounds = np.iinfo(dtype)
        x = np.nan_to_num(x, nan=3)
        t = tangrad.from_numpy(
            x.clip(max(bounds.min, -(2**62)), min(bounds.max, 2**62)).astype(dtype)
        )
    else:
        t = tangrad.from_numpy(x).to(getattr(tangrad, dtype))
    if strided:
        t = t.repeat_interleave(2)[::2]
    for op in (median_all, nanmedian_all):
        found = op(t)
        wanted = op.definition.decompose(t)
        assert found.dtype == t.dtype
        np.testing.assert_array_equal(found.double().numpy(), wanted.double().numpy())


def test_extremes_of_integers_keep_their_order() -> None:
    for dtype in ("int64", "uint64"):
        bounds = np.iinfo(dtype)
        x = tangrad.from_numpy(np.array([bounds.max, bounds.min, bounds.max - 1] * 20, dtype))
        assert x.median().item() == bounds.max - 1


def test_no_elements_have_the_median_of_the_definition() -> None:
    assert tangrad.empty(0).median().isnan()
    assert tangrad.empty(0).nanmedian().isnan()


@pytest.mark.parametrize("calls", [0, 1])
def test_missing_working_memory_is_an_error(calls: int) -> None:
    x = tangrad.rand(50, 40).t()
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError):
            x.median()
    finally:
        _kernels.fail_scratch_after(-1)
