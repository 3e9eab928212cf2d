"""Sorting is stable and puts NaN last; the k best are those that sorting puts first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad_cpu import _kernels

INTEGERS = ["bool", "uint8", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
# Few that are inserted, ranked and merged; then rows that are distributed, by one piece and more.
SIZES = [1, 2, 11, 16, 17, 63, 64, 65, 130, 255, 256, 257, 600, 1500, 5000]


def values(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> tangrad.Tensor:
    """Return numbers of which few, some or nearly none are equal."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    spread = draw(st.sampled_from([0, 1, 5, 1000, 1 << 40]))
    order = draw(st.sampled_from(["random", "rising", "falling"]))
    if dtype == "bool":
        array: np.ndarray = rng.integers(0, 2, shape).astype(bool)
    elif dtype in INTEGERS:
        info = np.iinfo(dtype)
        array = rng.integers(max(info.min, -spread), min(info.max, spread) + 1, shape).astype(dtype)
    else:
        array = rng.integers(-spread, spread + 1, shape) / 8
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan], shape)
        array = np.where(rng.random(shape) < 0.1, special, array)
    if order != "random":
        array = np.sort(array, 0)
    if order == "falling":
        array = array[::-1].copy()
    return tangrad.from_numpy(array).to(getattr(tangrad, dtype))


def numbers(x: tangrad.Tensor) -> np.ndarray:
    """Return values as an array that NumPy sorts alike."""
    wide: np.ndarray = x.to(tangrad.float64).numpy() if x.is_floating_point() else x.numpy()
    return wide


def stable_order(array: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """Return indices by NumPy's stable sort, also descending."""
    if not descending:
        return np.argsort(array, dim, kind="stable")
    turned = np.argsort(np.flip(array, dim), dim, kind="stable")
    order: np.ndarray = array.shape[dim] - 1 - np.flip(turned, dim)
    return order


@st.composite
def cases(draw: st.DrawFn) -> tuple[tangrad.Tensor, int, bool]:
    dtype = draw(st.sampled_from(INTEGERS + FLOATS))
    n = draw(st.sampled_from(SIZES))
    rows = draw(st.sampled_from([1, 3]))
    layout = draw(st.sampled_from(["rows", "columns", "gaps"]))
    x = values(draw, (rows, n), dtype)
    if layout == "columns":
        return x.T.contiguous() if draw(st.booleans()) else x.T, 0, draw(st.booleans())
    if layout == "gaps":
        x = tangrad.stack([x, x], -1)[..., 1]
    return x, 1, draw(st.booleans())


@settings(max_examples=250, deadline=None)
@given(cases())
def test_sort(case: tuple[tangrad.Tensor, int, bool]) -> None:
    x, dim, descending = case
    array = numbers(x)
    order = stable_order(array, dim, descending)
    found = x.sort(dim, descending=descending)
    np.testing.assert_array_equal(found.indices.numpy(), order)
    expected = np.take_along_axis(array, order, dim)
    result = numbers(found.values)
    np.testing.assert_array_equal(result, expected)
    if x.is_floating_point():
        np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


@settings(max_examples=250, deadline=None)
@given(cases(), st.data())
def test_topk(case: tuple[tangrad.Tensor, int, bool], data: st.DataObject) -> None:
    x, dim, largest = case
    if x.dtype == tangrad.bool:
        return
    n = x.shape[dim]
    k = data.draw(st.one_of(st.sampled_from([1, 2, 8, 16, 17, 64, 65]), st.integers(0, n)))
    k = min(k, n)
    array = numbers(x)
    order = np.take(stable_order(array, dim, largest), np.arange(k), dim)
    found = x.topk(k, dim, largest=largest)
    np.testing.assert_array_equal(found.indices.numpy(), order)
    np.testing.assert_array_equal(numbers(found.values), np.take_along_axis(array, order, dim))


@settings(max_examples=150, deadline=None)
@given(cases(), st.booleans(), st.data())
def test_searchsorted(
    case: tuple[tangrad.Tensor, int, bool], right: bool, data: st.DataObject
) -> None:
    x = case[0].reshape((-1,))
    if x.dtype == tangrad.bool:
        return
    n = data.draw(st.sampled_from([0, 1, 2, 7, 64, 1000]))
    row = x.sort().values[:n]
    found = tangrad.searchsorted(row, x, right=right)
    expected = np.searchsorted(numbers(row), numbers(x), "right" if right else "left")
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("threads", [1, 4])
def test_long_rows_are_cut(dtype: str, threads: int) -> None:
    rng = np.random.default_rng(0)
    array = rng.standard_normal(300_000) if dtype == "float32" else rng.integers(-9, 9, 300_000)
    array = array.astype(dtype)
    before = _kernels.get_num_threads()
    _kernels.set_num_threads(threads)
    try:
        found = tangrad.from_numpy(array).sort()
    finally:
        _kernels.set_num_threads(before)
    np.testing.assert_array_equal(found.indices.numpy(), np.argsort(array, kind="stable"))


def test_bits_of_nan_are_kept() -> None:
    bits = np.array([0x7FC00001, 0x3F800000, 0xFFC00002], np.uint32)
    result = tangrad.from_numpy(bits.view(np.float32)).sort().values.numpy().view(np.uint32)
    assert result.tolist() == [0x3F800000, 0x7FC00001, 0xFFC00002]


def test_missing_working_memory_is_an_error() -> None:
    x = tangrad.randn(4, 8)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            x.sort()
    finally:
        _kernels.fail_scratch_after(-1)
    assert x.sort().values.shape == (4, 8)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "float32", "float64"])
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097])
def test_searches_for_more_than_is_sorted_end_at_every_place(size, dtype, right):
    rng = np.random.default_rng(size)
    row = np.sort(rng.integers(0, 2 * size, size).astype(dtype))
    wanted = np.resize(np.arange(2 * size + 1).astype(dtype), (2, size + 40))
    ends = [np.inf, -np.inf, np.nan] if "float" in dtype else [np.iinfo(dtype).max, 0]
    wanted[0, : len(ends)] = ends
    row[-1:] = ends[0]
    found = tangrad.searchsorted(tangrad.tensor(row), tangrad.tensor(wanted), right=right)
    expected = np.searchsorted(row, wanted, "right" if right else "left")
    np.testing.assert_array_equal(found.numpy(), expected)
