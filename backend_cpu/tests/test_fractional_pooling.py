"""Windows at random distances have their greatest elements where the tensor code finds them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.nn import functional as F
from tangrad.ops.nn.pooling.further import _fractional_places, _places_by_gathering
from tangrad_cpu import _kernels


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([2, 3]), st.sampled_from(["float32", "float64"]), st.booleans(), st.data())
def test_agrees_with_the_tensor_code(spatial: int, dtype: str, last: bool, data: st.DataObject):
    def each(low: int, high: list[int]) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, n)) for n in high)

    size = each(1, [9] * (spatial - 1) + [150])
    kernel = each(1, [min(n, 4) for n in size])
    outs = each(1, [n - k + 1 for n, k in zip(size, kernel, strict=True)])
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(-4, 5, (2, 3, *size)).astype(dtype)
    values[rng.random(values.shape) < data.draw(st.sampled_from([0, 0.2]))] = np.nan
    x, u = tangrad.tensor(values), tangrad.tensor(rng.random((2, 3, spatial)).astype(dtype))
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    found = _fractional_places(x, u, kernel, outs)
    assert found.tolist() == _places_by_gathering(x, u, kernel, outs).tolist()


@pytest.mark.parametrize("number", [0.0, 0.5, 1.0, 1.5, -0.25, float("nan")])
def test_numbers_out_of_range_are_answered_as_by_the_tensor_code(number: float):
    x, u = tangrad.arange(36.0).reshape(1, 1, 6, 6), tangrad.full((1, 1, 2), number)
    results = []
    for find in (_fractional_places, _places_by_gathering):
        try:
            results.append(find(x, u, (2, 2), (3, 3)).tolist())
        except (IndexError, RuntimeError) as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_gradients_go_to_the_greatest():
    x = tangrad.arange(36.0).reshape(1, 1, 6, 6).requires_grad_()
    u = tangrad.zeros(1, 1, 2)
    found, places = F.fractional_max_pool2d_with_indices(x, 2, (2, 2), _random_samples=u)
    found.sum().backward()
    assert sorted(places.flatten().tolist()) == x.grad.flatten().nonzero().flatten().tolist()


def test_places_do_not_depend_on_the_number_of_threads():
    x, u = tangrad.randn(8, 16, 33, 33), tangrad.rand(8, 16, 2)
    before = _kernels.get_num_threads()
    found = []
    for threads in (1, 4):
        _kernels.set_num_threads(threads)
        found.append(_fractional_places(x, u, (3, 2), (14, 15)).tolist())
    _kernels.set_num_threads(before)
    assert found[0] == found[1]


@pytest.mark.parametrize("spatial", [2, 3])
def test_missing_working_memory_is_an_error(spatial: int):
    x, u = tangrad.randn(1, 1, *[6] * spatial), tangrad.rand(1, 1, spatial)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError):
            _fractional_places(x, u, (2,) * spatial, (3,) * spatial)
    finally:
        _kernels.fail_scratch_after(-1)
