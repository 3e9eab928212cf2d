"""What is particular to this device: its other side."""

import os
import subprocess
import sys
import warnings

import pytest

import tangrad
from tangrad.plugin import FallbackWarning, get_driver


def test_memory_and_kernels_are_in_another_process() -> None:
    x = tangrad.ones(2, 2).to("pipe")
    assert get_driver("pipe")._process.pid not in (os.getpid(), os.getppid())
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert tangrad.mm(x, x + x).cpu().tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_copies_between_strides_and_dtypes_stay_there() -> None:
    x = tangrad.arange(6.0).reshape(2, 3)
    there = x.to("pipe")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert tangrad.equal(there.t().contiguous().cpu(), x.t())
        assert tangrad.equal(there.long()[:, 1:].clone().cpu(), x.long()[:, 1:])


def test_the_kernels_take_strided_mixed_and_empty_operands() -> None:
    x = tangrad.arange(6.0).reshape(2, 3)
    there = x.to("pipe")
    assert tangrad.equal((there.t() + there[0, :2]).cpu(), x.t() + x[0, :2])
    assert tangrad.equal((there + there.int()).cpu(), x + x)
    assert tangrad.equal((there.t() @ there).cpu(), x.t() @ x)
    assert (there[:0] + 1).shape == (0, 3)


def test_the_other_side_ends_with_this_one() -> None:
    code = (
        "import tangrad; from tangrad.plugin import get_driver\n"
        "tangrad.ones(2, device='cpu').to('pipe'); print(get_driver('pipe')._process.pid)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert outcome.stderr == ""
    # It reads the end of its input then; the system may take a moment to notice.
    for _ in range(2000):
        try:
            os.kill(int(outcome.stdout), 0)
        except ProcessLookupError:
            return
        subprocess.run(["sleep", "0.05"], check=True)
    pytest.fail("the other side outlives its parent")


def test_what_the_other_side_has_no_room_for_is_out_of_memory() -> None:
    with pytest.raises(tangrad.OutOfMemoryError):
        tangrad.empty(2**60, dtype=tangrad.uint8, device="pipe")
    assert tangrad.ones(2).to("pipe").cpu().tolist() == [1.0, 1.0]
