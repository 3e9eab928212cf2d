"""Sums of gathered elements with weights, and their adjoint, against what the definition makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.nn.weighted_gather import weighted_gather
from tangrad.plugin import find_op
from tangrad_cpu import _kernels

weighted_scatter = find_op("_weighted_scatter")


def operands(seed: int, dtype: str, n: int, c: int, s: int, k: int, p: int) -> list[Any]:
    g = np.random.default_rng(seed)
    flat = g.standard_normal((n, c, s)).astype(dtype)
    places = g.integers(-1, s, (n, k, p))
    return [flat, places, g.standard_normal((n, k, p)).astype(dtype)]


def tensor(x: np.ndarray[Any, Any], turned: bool) -> tangrad.Tensor:
    return (
        tangrad.from_numpy(x.transpose(2, 1, 0).copy()).permute(2, 1, 0)
        if turned
        else (tangrad.from_numpy(x))
    )


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 3),
    st.integers(0, 5),
    st.integers(1, 40),
    st.sampled_from([0, 1, 2, 4, 8, 16]),
    st.sampled_from([0, 1, 15, 16, 17, 255, 256, 300]),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
)
def test_sums_are_those_of_the_definition(
    n: int, c: int, s: int, k: int, p: int, dtype: str, turned: bool
) -> None:
    given_ = [tensor(x, turned) for x in operands(s, dtype, n, c, s, k, p)]
    found = weighted_gather(*given_)
    assert found.equal(weighted_gather.definition.decompose(*given_))
    values = tangrad.rand(n, c, p, dtype=found.dtype)
    there = weighted_scatter(values, given_[1], given_[2], s)
    expected = weighted_scatter.definition.decompose(values, given_[1], given_[2], s)
    near = 8 * np.finfo(dtype).eps * max(1, k * p)
    np.testing.assert_allclose(there.numpy(), expected.numpy(), rtol=0, atol=near)


def test_a_negative_place_reads_nothing() -> None:
    flat = tangrad.tensor([[[float("inf"), 2.0]]])
    places = tangrad.tensor([[[-1, 1, -7]]])
    weights = tangrad.tensor([[[1.0, 3.0, float("nan")]]])
    found = weighted_gather(flat, places, weights)
    assert found.tolist() == [[[0.0, 6.0, 0.0]]]


def test_a_place_beyond_the_elements_is_an_error() -> None:
    flat, weights = tangrad.zeros(1, 1, 3), tangrad.ones(1, 1, 1)
    places = tangrad.tensor([[[3]]])
    with pytest.raises(IndexError, match="beyond the last of 3"):
        weighted_gather(flat, places, weights)
    with pytest.raises(IndexError, match="beyond the last of 3"):
        weighted_scatter(weights, places, weights, 3)


def test_results_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    flat, places, weights = (
        tangrad.from_numpy(x) for x in operands(1, "float32", 3, 8, 999, 4, 5000)
    )
    found = []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            results = [weighted_gather(flat, places, weights)]
            results.append(weighted_scatter(results[0], places, weights, 999))
            found.append([x.numpy().tobytes() for x in results])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]
