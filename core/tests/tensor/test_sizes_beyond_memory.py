"""Sizes of more bytes than 64 bits count are refused before memory is asked for."""

import pytest

import tangrad

HUGE = (2**31, 2**31)  # elements that can be counted, of four bytes that cannot


@pytest.mark.parametrize(
    "grow",
    [
        lambda x: x.resize_(*HUGE),
        lambda x: x.set_(x.untyped_storage(), 0, HUGE, (2**31, 1)),
        lambda x: tangrad.exp(tangrad.zeros(1).expand(HUGE), out=x),
        lambda x: tangrad.empty(HUGE),
        lambda x: tangrad.empty_strided(HUGE, (2**31, 1)),
    ],
)
def test_is_an_error_and_leaves_the_tensor_as_it_was(grow):
    x = tangrad.empty(0)
    with pytest.raises(RuntimeError, match="bytes"):
        grow(x)
    assert x.shape == (0,)


@pytest.mark.parametrize("make", [tangrad.empty, lambda size: tangrad.zeros(()).resize_(size)])
def test_more_elements_or_longer_strides_than_are_counted_are_refused(make):
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        make([8, 8, 2**29, 2**29])
    with pytest.raises(RuntimeError, match="Stride calculation overflowed"):
        make([0, 4, 2**61])
    assert make([2**61, 4, 0]).shape == (2**61, 4, 0)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_resampling_asks_for_memory_before_it_lists_places(mode):
    with pytest.raises(RuntimeError, match="overflow|memory"):
        tangrad.nn.functional.interpolate(tangrad.ones(1, 1, 3, 4), scale_factor=2**31, mode=mode)
