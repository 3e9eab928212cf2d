"""The most frequent elements of short rows are those that sorting finds, at the same places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.reduction.statistics import _mode_by_sorting
from tangrad_cpu import _kernels

DTYPES = ("float32", "float64", "int32", "int64")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.sampled_from([1, 2, 5, 16, 17, 40]), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_agrees_with_sorting(dtype: str, shape: list[int], turned: bool, data: st.DataObject):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(-3, 4, shape).astype(dtype)
    if dtype.startswith("float"):
        places = rng.random(shape) < data.draw(st.sampled_from([0, 0.3, 1]))
        values[places] = rng.choice(SPECIAL, places.sum())
    x = tangrad.tensor(values)
    x = x.transpose(0, -1) if turned else x
    dim = data.draw(st.integers(0, len(shape) - 1))
    found, places = x.mode(dim, keepdim=True)
    assert places.tolist() == _mode_by_sorting(x, dim).tolist()
    np.testing.assert_array_equal(found.numpy(), x.gather(dim, places).numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [127, 128, 129, 255, 256, 257, 600])
def test_rows_too_long_to_compare_are_sorted(dtype: str, length: int):
    x = tangrad.tensor(np.random.default_rng(1).integers(0, 20, (3, length)).astype(dtype))
    assert x.mode().indices.tolist() == _mode_by_sorting(x, 1).squeeze(1).tolist()


def test_a_row_of_nan_has_the_first_and_any_number_is_more_frequent():
    nan = float("nan")
    values, places = tangrad.tensor([[nan] * 3, [nan, nan, 2.0]]).mode()
    assert places.tolist() == [0, 2]
    assert np.isnan(values[0].item())


def test_places_do_not_depend_on_the_number_of_threads():
    x = tangrad.tensor(np.random.default_rng(2).integers(0, 9, (3000, 60)))
    before = _kernels.get_num_threads()
    found = []
    for threads in (1, 4):
        _kernels.set_num_threads(threads)
        found.append(x.mode().indices.tolist())
    _kernels.set_num_threads(before)
    assert found[0] == found[1]
