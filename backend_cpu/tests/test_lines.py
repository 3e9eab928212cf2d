"""Sums of neighbours along a dimension against a matrix product, and resampling made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.nn.weighted_lines import Band, weighted_lines
from tangrad_cpu import _kernels


def drawn_band(rng: np.random.Generator, size: int, results: int, most: int) -> Band:
    """Draw runs that begin and end no earlier than the one before; some are empty."""
    starts = np.sort(rng.integers(0, size, results))
    ends = np.maximum.accumulate(np.minimum(starts + rng.integers(0, most + 1, results), size))
    ends = np.maximum(ends, starts)
    rows = [tuple(rng.standard_normal(e - s)) for s, e in zip(starts, ends, strict=True)]
    return Band(tuple(map(int, starts)), tuple(rows))


def matrix_of(band: Band, size: int) -> np.ndarray[Any, Any]:
    matrix = np.zeros((len(band.rows), size))
    for i, (start, row) in enumerate(zip(band.starts, band.rows, strict=True)):
        matrix[i, start : start + len(row)] = row
    return matrix


def matrices(band: Band, size: int, dtype: Any) -> list[Any]:
    return [x for each in (band, band.turned(size)) for x in each.tensors(dtype, "cpu")]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.sampled_from([1, 2, 3, 15, 16, 17, 40]), min_size=1, max_size=4).filter(
        lambda shape: np.prod(shape) <= 20000
    ),
    st.sampled_from([1, 2, 7, 64, 65, 150]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["contiguous", "channels_last", "strided"]),
    st.data(),
)
def test_sums_and_their_adjoint_are_products_with_the_matrix(
    seed: int, shape: list[int], results: int, dtype: str, layout: str, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    dim = data.draw(st.integers(0, len(shape) - 1))
    size = shape[dim]
    band = drawn_band(rng, size, results, data.draw(st.sampled_from([1, 2, 4, 5, 9, 40])))
    x = rng.standard_normal(shape).astype(dtype)
    given_ = tangrad.from_numpy(x)
    if layout == "channels_last" and len(shape) == 4:
        given_ = given_.contiguous(memory_format=tangrad.channels_last)
    elif layout == "strided":
        order = data.draw(st.permutations(range(len(shape))))
        given_ = given_.permute(order).contiguous().permute(np.argsort(order).tolist())
    given_.requires_grad_()
    found = weighted_lines(given_, *matrices(band, size, given_.dtype), dim)
    matrix = matrix_of(band, size)
    expected = np.moveaxis(np.moveaxis(x, dim, -1) @ matrix.T, -1, dim)
    limit = 60 * np.finfo(dtype).eps
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=0, atol=limit * 4)
    g = rng.standard_normal(expected.shape).astype(dtype)
    found.backward(tangrad.from_numpy(g))
    back = np.moveaxis(np.moveaxis(g, dim, -1) @ matrix, -1, dim)
    assert given_.grad is not None
    np.testing.assert_allclose(given_.grad.numpy(), back, rtol=0, atol=limit * (4 + results))
    if layout == "channels_last" and len(shape) == 4 and min(shape[1], *shape[2:]) > 1:
        assert found.is_contiguous(memory_format=tangrad.channels_last)


def test_elements_outside_a_run_are_not_looked_at() -> None:
    x = tangrad.tensor([[1.0, float("nan"), 3.0, float("inf")]])
    band = Band((0, 2, 3), ((2.0,), (1.0,), ()))
    found = weighted_lines(x, *matrices(band, 4, x.dtype), 1)
    assert found.tolist() == [[2.0, 3.0, 0.0]]
    rows = weighted_lines(x.T.expand(4, 20), *matrices(band, 4, x.dtype), 0)
    assert rows.equal(found.T.expand(3, 20))


@pytest.mark.parametrize(("start", "count"), [(3, 2), (-1, 1), (0, 3)])
def test_a_run_beyond_the_elements_is_an_error(start: int, count: int) -> None:
    runs, weights = tangrad.tensor([[start], [count]]), tangrad.ones(1, 2)
    with pytest.raises(IndexError, match="_weighted_lines: result 0 looks at"):
        weighted_lines(tangrad.ones(2, 4), runs, weights, runs, weights, 1)


def pictures(layout: str, dtype: Any) -> Any:
    x = tangrad.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 61, 83)))
    x = x.to(dtype)
    wanted = tangrad.channels_last if layout == "last" else tangrad.contiguous_format
    return x.contiguous(memory_format=wanted)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64, tangrad.bfloat16], ids=str)
def test_resampling_agrees_with_the_ops_of_every_device(
    mode: Any, antialias: bool, layout: str, dtype: Any
) -> None:
    x = pictures(layout, dtype)
    exact = x.to(device="reference", dtype=tangrad.float64)
    close = {tangrad.float32: 2e-5, tangrad.float64: 1e-13, tangrad.bfloat16: 3e-2}[dtype]
    for size in ((20, 33), (61, 40), (130, 83), (1, 300)):
        found, wanted = (
            tangrad.nn.functional.interpolate(y, size, mode=mode, antialias=antialias)
            for y in (x, exact)
        )
        np.testing.assert_allclose(
            found.double().numpy(), wanted.cpu().numpy(), rtol=close, atol=close
        )


def test_results_do_not_depend_on_the_threads() -> None:
    before, found = tangrad.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            results = []
            for layout in ("first", "last"):
                x = pictures(layout, tangrad.float32).requires_grad_()
                y = tangrad.nn.functional.interpolate(x, (200, 30), mode="bicubic", antialias=True)
                y.square().sum().backward()
                assert x.grad is not None
                results += [y.detach().numpy().tobytes(), x.grad.numpy().tobytes()]
            found.append(results)
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("calls", range(3))
def test_missing_working_memory_is_an_error(calls: int) -> None:
    x = tangrad.rand(4, 3, 9, 5).permute(3, 2, 1, 0)
    given_ = matrices(Band((0, 1), ((1.0,), (2.0, 3.0))), 3, x.dtype)
    runs = given_[0].T.contiguous().T
    assert weighted_lines(x, runs, *given_[1:], 2).shape == (5, 9, 2, 4)
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError, match="_weighted_lines"):
            weighted_lines(x, runs, *given_[1:], 2)
    finally:
        _kernels.fail_scratch_after(-1)
