"""`finfo` and `iinfo` tell what torch's tell."""

from __future__ import annotations

import pytest

from tangrad.tensor.finfo import finfo, iinfo

torch = pytest.importorskip("torch")

FLOATING = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
INTEGERS = [
    getattr(torch, f"{prefix}int{bits}") for prefix in ("", "u") for bits in (8, 16, 32, 64)
]


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_limits_of_floats(dtype):
    ours, theirs = finfo(dtype), torch.finfo(dtype)
    for name in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_limits_of_integers(dtype):
    ours, theirs = iinfo(dtype), torch.iinfo(dtype)
    for name in ("bits", "max", "min", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize(
    ("call", "argument"),
    [(finfo, torch.int8), (finfo, torch.bool), (finfo, 3), (iinfo, torch.float32), (iinfo, "f")],
)
def test_other_arguments_are_refused(call, argument):
    with pytest.raises(TypeError, match=call.__name__):
        call(argument)


def test_limits_compare_and_hash_by_dtype():
    assert finfo(torch.float32) == finfo(torch.complex64)
    assert finfo(torch.float32) != finfo(torch.float64)
    assert hash(iinfo(torch.int8)) == hash(iinfo(torch.int8))
    assert iinfo(torch.int8) != finfo(torch.float16)


def test_limits_are_read_only():
    with pytest.raises(AttributeError, match="not writable"):
        finfo(torch.float32).eps = 1.0
    with pytest.raises(AttributeError, match="no attribute 'digits'"):
        _ = iinfo(torch.int8).digits
