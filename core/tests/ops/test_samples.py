"""Sample inputs are reproducible, within bounds, and the same for every library."""

from __future__ import annotations

import numpy as np
import pytest

from tangrad.ops.definition.samples import (
    ALL,
    COMPLEX,
    INTEGRAL,
    UNSIGNED,
    SampleDtype,
    Sampler,
    materialise,
    round_to_bfloat16,
)


class Strided:
    """Stand in for a tensor: an array with the two operations that `materialise` needs."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def permute(self, axes: tuple[int, ...]) -> Strided:
        return Strided(self.array.transpose(axes))

    def __getitem__(self, key: object) -> Strided:
        return Strided(self.array[key])


def make(array: np.ndarray, dtype: str) -> Strided:
    return Strided(array)


@pytest.mark.parametrize("dtype", ALL)
def test_two_samplers_of_one_seed_draw_the_same_values(dtype: str) -> None:
    first, second = Sampler(dtype, seed=3), Sampler(dtype, seed=3)
    for a, b in zip(first.binary(), second.binary(), strict=True):
        for x, y in zip(a.args, b.args, strict=True):
            np.testing.assert_array_equal(getattr(x, "array", x), getattr(y, "array", y))


def test_samplers_of_different_seeds_draw_different_values() -> None:
    first, second = Sampler(seed=1).tensor(20), Sampler(seed=2).tensor(20)
    assert not np.array_equal(first.array, second.array)


@pytest.mark.parametrize("dtype", [name for name in ALL if name != "bool"])
def test_values_lie_within_the_given_bounds(dtype: str) -> None:
    values = Sampler(dtype).tensor(50, low=1, high=4).array
    parts = (values.real, values.imag) if dtype in COMPLEX else (values,)
    for part in parts:
        assert part.min() >= 1
        assert part.max() <= 4


@pytest.mark.parametrize("dtype", ALL)
def test_nonzero_values_keep_away_from_zero(dtype: str) -> None:
    values = Sampler(dtype).tensor(200, nonzero=True).array
    assert np.abs(values.astype(np.complex128)).min() >= 0.25


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_values_and_scalars_are_not_negative(dtype: str) -> None:
    sampler = Sampler(dtype)
    assert sampler.tensor(50).array.dtype == dtype
    assert sampler.tensor(50, low=-5).array.min() >= 0
    assert all(sampler.scalar() >= 0 for _ in range(20))


def test_bfloat16_values_are_representable() -> None:
    values = Sampler("bfloat16").tensor(100).array
    assert values.dtype == np.float32
    assert not np.any(values.view(np.uint32) & 0xFFFF)


def test_rounding_to_bfloat16_is_to_nearest_even_and_keeps_nan() -> None:
    ties = np.array([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), np.nan, np.inf], np.float32)
    expected = np.array([1, 1 + 2**-6, -1, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(round_to_bfloat16(ties), expected)


def test_a_permutation_has_no_ties() -> None:
    values = Sampler("int32").permutation(3, 4).array
    assert sorted(values.ravel()) == list(range(12))


@pytest.mark.parametrize("dtype", INTEGRAL)
def test_specials_of_integers_are_their_limits(dtype: str) -> None:
    limits, values = np.iinfo(dtype), Sampler(dtype).specials().array
    assert {limits.min, limits.max, 0} <= set(values.tolist())


def test_specials_of_floats_hold_nan_infinities_and_both_zeros() -> None:
    values = Sampler("float64").specials().array
    assert np.isnan(values).sum() == 1
    assert np.isinf(values).sum() == 2
    assert set(np.signbit(values[values == 0])) == {True, False}


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 4), (2, 0)])
def test_a_strided_tensor_has_the_values_of_the_sample_in_a_sparse_layout(shape: tuple) -> None:
    sampler = Sampler("float32")
    tensor = sampler.tensor(*shape, strided=True)
    (made,), _ = materialise(sampler(tensor), make)
    np.testing.assert_array_equal(made.array, tensor.array)
    assert made.array.size == 0 or not made.array.flags.forc


def test_materialise_maps_tensors_in_lists_and_keywords_and_dtypes() -> None:
    s = Sampler("float32")
    sample = s([s.tensor(2), s.tensor(3)], 2.5, dtype=s.as_dtype("int8"), weight=s.tensor(1))
    args, kwargs = materialise(sample, make, lambda name: f"dtype {name}")
    assert [tensor.array.shape for tensor in args[0]] == [(2,), (3,)]
    assert args[1] == 2.5
    assert kwargs["dtype"] == "dtype int8"
    assert kwargs["weight"].array.shape == (1,)
    assert sample.kwargs["dtype"] == SampleDtype("int8")


def test_an_unknown_dtype_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="float7"):
        Sampler("float7")
