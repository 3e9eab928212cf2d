"""Tensors without data: `torch._subclasses`."""

import pytest

import tangrad
from tangrad._subclasses.fake_tensor import FakeTensor, FakeTensorMode, is_fake


def test_fake_tensors_tell_shapes_and_remember_their_device():
    mode = FakeTensorMode()
    x = mode.from_tensor(tangrad.ones(2, 3))
    with mode:
        y = x @ tangrad.ones(3, 4)
        made = tangrad.zeros(5)
    assert (tuple(y.shape), y.device.type) == ((2, 4), "cpu")
    assert is_fake(y)
    assert is_fake(made)
    assert not is_fake(tangrad.ones(1))
    assert "size=(2, 4)" in repr(y)


def test_a_mode_makes_fake_tensors_by_their_class():
    mode = FakeTensorMode()
    made = FakeTensor.from_tensor(tangrad.ones(2, 3), mode)
    assert made.fake_mode is mode
    assert tuple(made.shape) == (2, 3)


def test_fake_tensors_do_not_mix_with_data_unasked():
    x = FakeTensorMode().from_tensor(tangrad.ones(2))
    with pytest.raises(AssertionError, match="allow_non_fake_inputs"):
        _ = x + tangrad.ones(2)
    allowed = FakeTensorMode(allow_non_fake_inputs=True).from_tensor(tangrad.ones(2))
    assert is_fake(allowed + tangrad.ones(2))
    with pytest.raises(RuntimeError, match="on meta"):
        FakeTensor(FakeTensorMode(), tangrad.ones(2))
