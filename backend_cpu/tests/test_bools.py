"""Memory that is viewed as bool holds bytes of any value, and all but 0 are true."""

import numpy as np
import pytest

import tangrad

BYTES = [0, 1, 2, 0, 252, 255, 1, 4] * 9
VALUES = [byte != 0 for byte in BYTES]


def _pair():
    viewed = tangrad.tensor(BYTES, dtype=tangrad.uint8).view(tangrad.bool)
    return viewed, tangrad.tensor(VALUES)


@pytest.mark.parametrize(
    "dtype", "bool uint8 int16 int64 float16 bfloat16 float32 float64 complex64".split()
)
def test_conversions_give_zeros_and_ones(dtype):
    viewed, plain = _pair()
    kind = getattr(tangrad, dtype)
    assert viewed.to(kind).tolist() == plain.to(kind).tolist()
    assert viewed[::3].to(kind).tolist() == plain[::3].to(kind).tolist()
    assert (tangrad.zeros(72, dtype=kind) + viewed).tolist() == plain.to(kind).tolist()


@pytest.mark.parametrize(
    "name",
    "atan sin exp sqrt sigmoid logical_not bitwise_not isnan sum count_nonzero any all".split(),
)
@pytest.mark.parametrize("step", [1, 5])
def test_functions_of_one_tensor(name, step):
    viewed, plain = (x[::step] for x in _pair())
    found, expected = (getattr(tangrad, name)(x) for x in (viewed, plain))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize(
    "name",
    "add mul eq ne lt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor"
    " maximum minimum true_divide atan2".split(),
)
def test_functions_of_two_tensors(name):
    viewed, plain = _pair()
    for other in (plain, viewed.flip(0), tangrad.arange(72) % 3, tangrad.linspace(0, 1, 72)):
        standard = other.logical_not().logical_not() if other.dtype == tangrad.bool else other
        f = getattr(tangrad, name)
        if "bitwise" in name and other.is_floating_point():
            continue
        np.testing.assert_array_equal(f(viewed, other).numpy(), f(plain, standard).numpy())
        np.testing.assert_array_equal(f(other, viewed).numpy(), f(standard, plain).numpy())


def test_choices_and_sums_of_masks():
    viewed, _plain = _pair()
    x = tangrad.linspace(0, 1, 72)
    for mask in (viewed, viewed.reshape(8, 9).t().reshape(-1)):
        standard = mask.to(tangrad.uint8) != 0
        assert tangrad.where(mask, x, -x).tolist() == tangrad.where(standard, x, -x).tolist()
        assert x[mask].tolist() == x[standard].tolist()
        assert x.masked_fill(mask, 3).tolist() == x.masked_fill(standard, 3).tolist()
        assert mask.cumsum(0).tolist() == standard.cumsum(0).tolist()
        assert mask.float().mean().item() == standard.float().mean().item()
