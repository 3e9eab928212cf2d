"""What is particular to this device: its memory and its own kernels."""

import os
import warnings

import pytest

import tangrad
from tangrad.plugin import FallbackWarning, location


def test_a_tensor_lies_in_a_file() -> None:
    x = tangrad.tensor([1.0, 2.0, 3.0]).to("disk")
    handle, offset = location(x[1:])
    assert os.pread(handle, 8, offset) == bytes(tangrad.tensor([2.0, 3.0]).numpy())


def test_the_kernels_take_strided_mixed_and_empty_operands() -> None:
    x = tangrad.arange(6.0).reshape(2, 3)
    disk = x.to("disk")
    assert tangrad.equal((disk.t() + disk[0, :2]).cpu(), x.t() + x[0, :2])
    assert tangrad.equal((disk + disk.int()).cpu(), x + x)
    assert tangrad.equal((disk.t() @ disk).cpu(), x.t() @ x)
    assert (disk[:0] + 1).shape == (0, 3)


def test_its_own_kernels_need_no_copy_to_the_host() -> None:
    x = tangrad.ones(2, 2).to("disk")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        tangrad.mm(x, x + x)


def test_copies_between_strides_and_dtypes_stay_there() -> None:
    x = tangrad.arange(6.0).reshape(2, 3)
    disk = x.to("disk")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert tangrad.equal(disk.t().contiguous().cpu(), x.t())
        assert tangrad.equal(disk.long()[:, 1:].clone().cpu(), x.long()[:, 1:])


def test_what_does_not_fit_on_the_disk_is_out_of_memory() -> None:
    with pytest.raises(tangrad.OutOfMemoryError):
        tangrad.empty(2**60, dtype=tangrad.uint8, device="disk")
