"""Scans agree with NumPy along any dimension, and do not depend on how they are cut."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.plugin import find_op
from tangrad_cpu import _kernels


@settings(max_examples=150, deadline=None)
@given(
    # Three long dimensions say no more than two, and take a minute.
    st.lists(st.sampled_from([1, 2, 3, 5, 17, 64, 300]), min_size=1, max_size=3).filter(
        lambda shape: math.prod(shape) <= 1 << 16
    ),
    st.data(),
)
def test_running_folds_along_any_dimension(shape: list[int], data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "float16"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    array = rng.integers(-2, 3, shape).astype(dtype)
    order = data.draw(st.permutations(range(len(shape))))
    tensor, array = tangrad.from_numpy(array.copy()).permute(order), array.transpose(order)
    dim = data.draw(st.integers(0, array.ndim - 1))
    np.testing.assert_array_equal(tensor.cumsum(dim).numpy(), array.cumsum(dim, dtype=dtype))
    values, indices = tensor.cummax(dim)
    np.testing.assert_array_equal(values.numpy(), np.maximum.accumulate(array, dim))
    picked = np.take_along_axis(array, indices.numpy(), dim)
    np.testing.assert_array_equal(picked, values.numpy())
    # Of equal elements the latest: the index moves on wherever the maximum is met again.
    position = np.expand_dims(
        np.arange(array.shape[dim]), [d for d in range(array.ndim) if d != dim]
    )
    met = np.where(array == values.numpy(), position, 0)
    np.testing.assert_array_equal(indices.numpy(), np.maximum.accumulate(met, dim))


@pytest.mark.parametrize("length", [32_768, 40_000, 1_000_003])
def test_one_long_row_is_scanned_in_pieces(length: int) -> None:
    array = np.random.default_rng(0).integers(-50, 50, length)
    expected = np.cumsum(array)
    np.testing.assert_array_equal(tangrad.from_numpy(array).cumsum(0).numpy(), expected)
    floating = tangrad.from_numpy(array.astype("float64"))
    np.testing.assert_array_equal(floating.cumsum(0).numpy(), expected)
    signs = np.where(array < 0, -1.0, 1.0)
    np.testing.assert_array_equal(tangrad.from_numpy(signs).cumprod(0).numpy(), np.cumprod(signs))


def test_logcumsumexp_does_not_overflow() -> None:
    array = np.random.default_rng(1).uniform(800, 900, (3, 500))
    expected = np.logaddexp.accumulate(array, 1)
    result = tangrad.from_numpy(array).logcumsumexp(1).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-14)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 7, 8, 9, 17, 64]), min_size=1, max_size=3),
    st.sampled_from(["float32", "float64"]),
    st.data(),
)
def test_recurrences_agree_with_the_reference(
    shape: list[int], dtype: str, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    order = data.draw(st.permutations(range(len(shape))))
    arrays = [rng.uniform(-1, 1, shape).astype(dtype).transpose(order) for _ in range(2)]
    dim = data.draw(st.integers(0, len(shape) - 1))
    op = find_op("linear_recurrence")
    backwards = tuple(range(len(shape)))[::-1]
    ours = (tangrad.from_numpy(x.T.copy()).permute(backwards) for x in arrays)
    found = op(*ours, dim)
    expected = op.definition.reference(np, *arrays, dim)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_nan_stays_the_extreme() -> None:
    x = tangrad.tensor([1.0, float("nan"), 2.0, float("nan"), 0.0])
    values, indices = x.cummax(0)
    assert indices.tolist() == [0, 1, 1, 3, 3]
    assert values.isnan().tolist() == [False, True, True, True, True]


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = tangrad.from_numpy(np.random.default_rng(2).standard_normal(3_000_000))
    y = x.reshape(300, 10_000)
    before = _kernels.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            _kernels.set_num_threads(threads)
            results = (x.cumsum(0), y.cumsum(0), y.cumsum(1))
            found.append([r.numpy().tobytes() for r in results])
    finally:
        _kernels.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error() -> None:
    x = tangrad.ones(100_000)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            x.cumsum(0)
    finally:
        _kernels.fail_scratch_after(-1)
    assert x.cumsum(0)[-1].item() == 100_000
