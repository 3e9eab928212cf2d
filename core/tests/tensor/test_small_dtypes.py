"""Dtypes that store numbers and compute none: integers below a byte, scales, bits."""

from __future__ import annotations

import io

import pytest

import tangrad
from tangrad.tensor.small_dtypes import BITS, INTEGERS, NAMES

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_keeps_its_low_bits(name):
    bits, signed = INTEGERS[name]
    dtype = getattr(tangrad, name)
    half = 1 << (bits - 1)
    numbers = tangrad.arange(-9, 10)
    kept = [(n + half) % (2 * half) - half if signed else n % (2 * half) for n in range(-9, 10)]
    assert numbers.to(dtype).tolist() == kept
    assert numbers.to(dtype).to(tangrad.float32).tolist() == kept
    assert (dtype.itemsize, dtype.is_signed) == (1, signed)


def test_a_scale_agrees_with_pytorch_for_every_half_and_every_code():
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    numbers = torch.cat([halves, halves * 2.0**100, halves * 2.0**-110])
    expected = numbers.to(torch.float8_e8m0fnu).view(torch.uint8).tolist()
    ours = tangrad.from_numpy(numbers.numpy()).to(tangrad.float8_e8m0fnu)
    assert ours.view(tangrad.uint8).tolist() == expected
    codes = tangrad.arange(255, dtype=tangrad.uint8).view(tangrad.float8_e8m0fnu)
    theirs = torch.arange(255, dtype=torch.uint8).view(torch.float8_e8m0fnu).double()
    assert codes.double().tolist() == theirs.tolist()
    assert tangrad.finfo(tangrad.float8_e8m0fnu).max == torch.finfo(torch.float8_e8m0fnu).max


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_is_stored_printed_saved_and_moved(name):
    dtype = getattr(tangrad, name)
    x = tangrad.zeros(2, 2, dtype=dtype)
    assert repr(x).endswith(f"dtype=tangrad.{name})")
    assert x.t().contiguous().clone()[0].dtype is dtype
    file = io.BytesIO()
    tangrad.save(x, file)
    file.seek(0)
    seen = tangrad.uint16 if dtype.itemsize == 2 else tangrad.uint8
    assert tangrad.equal(tangrad.load(file).view(seen), x.view(seen))


@pytest.mark.parametrize("name", ["int4", "uint3", "float8_e8m0fnu"])
@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + x,
        lambda x: x * 2,
        lambda x: x.sum(),
        lambda x: -x,
        lambda x: x @ x,
        lambda x: x.cumsum(0),
    ],
)
def test_arithmetic_is_refused_with_the_way_out(name, compute):
    x = tangrad.ones(2, 2, dtype=getattr(tangrad, name))
    with pytest.raises(NotImplementedError, match=rf"not implemented for tangrad.{name}.*convert"):
        compute(x)


@pytest.mark.parametrize("name", [*BITS, "float4_e2m1fn_x2"])
def test_what_is_no_number_is_seen_by_view_only(name):
    dtype = getattr(tangrad, name)
    seen = tangrad.uint16 if dtype.itemsize == 2 else tangrad.uint8
    x = tangrad.tensor([1, 3], dtype=seen).view(dtype)
    assert x.view(seen).tolist() == [1, 3]
    with pytest.raises(NotImplementedError, match=r"\.view\(tangrad"):
        x.to(tangrad.float32)
    with pytest.raises(NotImplementedError, match=r"\.view\(tangrad"):
        tangrad.ones(2).to(dtype)
